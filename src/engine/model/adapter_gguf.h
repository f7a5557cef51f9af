#pragma once
// Adapters in the GGUF files of llama.cpp: general.type is "adapter", and each adapted tensor has NAME.lora_a and NAME.lora_b.
#include <string>

#include "model/adapter.h"

namespace vitrine {

/// The tensors of such a file, beside a model of the same architecture, in whatever file that lies. Errors: FileError naming what
/// does not fit the model and what is not supported.
Adapter::Parts read_gguf_adapter(const OpenedModel& opened, const std::string& path, size_t most_bytes, AdapterOptions& options);

/// Whether such a file changes the embedding of a tied model, and so not its head: llama.cpp adapts what is looked up.
bool gguf_adapter_parts_embedding(const OpenedModel& opened, const std::string& path);

/// Errors: InputError where an adapter of such a file is none that PEFT's files can hold (model/adapter.h's write_adapter), since
/// they have a model's matrices stacked otherwise, or with the factors of its family.
void check_modules_of_peft(const OpenedModel& opened, const Adapter& adapter);

/// Errors: InputError for an adapter of a matrix that the model's own GGUF file holds as two tensors (DeepSeek's keys and
/// values): neither a merged model nor an adapter of such a file is written.
void check_adapter_of_halves(const OpenedModel& opened);

/// Writes `path` for llama.cpp, in f32. Errors: InputError for a family without a GGUF form, for what such a file cannot hold
/// (DoRA, whole tensors, trained tokens) and for a file that is there already.
void write_gguf_adapter(const OpenedModel& opened, const Adapter& adapter, const std::string& path);

}  // namespace vitrine
