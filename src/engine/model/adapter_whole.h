#pragma once
// Tensors of a model that learn whole beside an adapter's A and B (PEFT's modules_to_save and biases), and rows of its embedding
// (trainable_token_indices).
#include <optional>
#include <string>

#include "model/adapter.h"

namespace vitrine {

/// Names of the two modules that a tied model has in one tensor: "model.embed_tokens", "lm_head".
struct EmbeddingNames {
  std::string embedding, head;
};
EmbeddingNames embedding_names(const Model& model);

/// The tensor of that name in the Hugging Face file, as one that learns: with sizes and no numbers. The head of a tied model is
/// the embedding's tensor. Empty: there is none. Errors: InputError where a GGUF file holds it in another form.
std::optional<Adapter::Whole> whole_of(const OpenedModel& opened, const std::string& name);
/// Those that the options name, with the model's numbers.
std::vector<Adapter::Whole> fresh_wholes(const OpenedModel& opened, const AdapterOptions& options,
                                         const std::vector<Adapter::Module>& modules);

/// The rows of the embedding or the head that learn, of a tied embedding in_both of its places; without numbers. Errors:
/// InputError for a row outside of the vocabulary or one that comes twice.
Adapter::Tokens tokens_of(const OpenedModel& opened, const std::string& module, std::vector<int64_t> rows, bool in_both);
/// The model's numbers.
void fill_tokens(Adapter::Tokens& tokens);

/// Opens a tied model again, its head a matrix of its own with the embedding's numbers.
void untie(OpenedModel& opened);

}  // namespace vitrine
