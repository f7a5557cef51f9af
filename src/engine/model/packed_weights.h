#pragma once
// Packed weights of Hugging Face directories: which methods of quantization_config are read, and how their tensors become
// tensors that run.
#include <string>

#include "io/config_reader.h"
#include "model/load.h"

namespace vitrine {

/// Puts tensors that run in the place of packed ones, as quantization_config says:
///   mxfp4                     X_blocks [..., out, in / 32, 16] and X_scales [..., out, in / 32] become X [..., out, in] in our
///                             MXFP4 blocks; transformers' X is its transpose
///   fp8, compressed-tensors   X.weight in F8_E4M3 becomes blocks of f8_e4m3, 32 codes and their scale, or f32 where scales
///                             change within 32 columns or a row is not a multiple of 32. The scales are X.weight_scale or
///                             X.weight_scale_inv, one for the tensor, for each row or for each block; scales of activations
///                             and of the cache are ignored
/// The new tensors are in memory (checkpoint.copied_bytes()), and pages of the packed ones are given back.
/// Errors: FileError for a tensor whose scales are missing or of another shape, and for numbers that are NaN.
/// Without `read` nothing is read or allocated: the new tensors have types and shapes, and no bytes.
void unpack_weights(Checkpoint& checkpoint, const ConfigReader& config, bool read = true);

/// The method by which a configuration says that the weights are packed: "mxfp4", "fp8", "compressed-tensors"; empty if they are
/// not. Errors: FileError for a method that is not read, and for settings of one that change a number and are not known.
std::string packing_method(const ConfigReader& config);
/// The same of a model's files; those of GGUF pack nothing.
std::string packing_method(const ModelFiles& files);

}  // namespace vitrine
