#pragma once
// An opened model as a Hugging Face directory in a float type, its adapter merged into its matrices.
#include <functional>
#include <string>

#include "model/load.h"

namespace vitrine {

/// The configuration with what other programs need to open a directory: the class, and the type of the weights.
Json exported_config(const ModelFiles& files, DType dtype);

/// Copies what a model's directory holds besides configuration and weights: the tokenizer's files, the chat template, the
/// settings of generation.
void copy_companions(const std::string& from, const std::string& to);

/// Writes `directory`: under a temporary name beside it, then renamed, so that it is there when it is whole. Every number is
/// widened to f32, takes what the adapter adds, and is rounded once, to nearest, ties to even. `wrote`, if given, is told the
/// share that is done.
/// Errors: InputError for a GGUF model, for a directory that is there already, and for a type that safetensors does not hold;
/// RunError naming a weight that is NaN, infinite or too large for the type, and from the disk.
void write_huggingface(OpenedModel& opened, const std::string& directory, DType dtype,
                       const std::function<void(double)>& wrote = {});

}  // namespace vitrine
