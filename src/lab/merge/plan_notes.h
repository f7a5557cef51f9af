#pragma once
// What the reader of a plan should know of a recipe that is right, and may not be what was meant.
#include "merge/plan.h"

namespace vitrine {

/// Adds a note for each parameter that the method does not have, and for each key that changes nothing.
void note_idle_parameters(MergePlan& plan);

/// Adds a note for each filter of a parameter that occurs in no tensor's name; nothing if tensors are missing.
void note_idle_filters(MergePlan& plan);

/// Without a "tokenizer", rows of embeddings are merged by their numbers: adds a note for each model that has other tokens than
/// the one whose tokenizer is copied, in an embedding of the same size. Tokenizers that cannot be read are passed over, and so
/// are GGUF files and models with an adapter.
void note_other_tokenizers(MergePlan& plan);

}  // namespace vitrine
