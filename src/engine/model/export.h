#pragma once
// An opened model as a Hugging Face directory in a float type, its adapter merged into its matrices.
#include <functional>
#include <map>
#include <string>

#include "model/load.h"

namespace vitrine {

/// The configuration with what other programs need to open a directory: the class, and the type of the weights.
Json exported_config(const ModelFiles& files, DType dtype);

/// What a model's directory holds besides configuration and weights, by name: the files of the tokenizer and the chat template in
/// files.directory, which may be another than the model's, and the model's settings of generation.
using Companions = std::map<std::string, std::string>;
Companions companions_in(const ModelFiles& files);
void write_companions(const Companions& companions, const std::string& directory);

/// Rows [first, first + n) of a tensor of the file, of a vector so many elements, as f32, with what the adapter adds.
void read_rows(const FileTensor& tensor, int64_t first, int64_t n, float* to);

/// Opens a model that was just written, before it gets the name `path`: headers and configuration.
/// Errors: RunError naming `path` and why it would not open.
void check_written(ModelFiles files, const std::string& path);

/// Writes `directory`: under a temporary name beside it, then renamed, so that it is there when it is whole. Every number is
/// widened to f32, takes what the adapter adds, and is rounded once, to nearest, ties to even. `wrote`, if given, is told the
/// share that is done.
/// `companions` go beside them. A GGUF model must be as_huggingface().
/// Errors: InputError for a directory that is there already, and for a type that safetensors does not hold; RunError naming a
/// weight that is NaN, infinite or too large for the type, and from the disk.
void write_huggingface(OpenedModel& opened, const Companions& companions, const std::string& directory, DType dtype,
                       const std::function<void(double)>& wrote = {});

}  // namespace vitrine
