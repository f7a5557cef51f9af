#pragma once
// The metadata of a model in GGUF, all but the vocabulary.
#include <vector>

#include "io/gguf_writer.h"
#include "model/load.h"

namespace vitrine {

/// The tensors that GGUF would hold of a model's RoPE.
GgufRopeTensors gguf_rope_tensors(const Model& model);

/// general.* and the architecture's keys of a model that is no GGUF file. Errors: FileError naming the family that has no GGUF
/// form, and what the form cannot say of this model.
GgufKeys gguf_model_keys(const OpenedModel& opened, uint32_t file_type);

/// All keys of a model that is a GGUF file, but for the type of its tensors.
GgufKeys gguf_kept_keys(const GgufMetadata& metadata, uint32_t file_type);

}  // namespace vitrine
