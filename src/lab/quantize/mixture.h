#pragma once
// Which type each tensor of a GGUF file gets: the named mixtures of llama-quantize, tensor by tensor as it chooses.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace vitrine {

/// A file type of llama.cpp: a type for most matrices, other types for those that matter more.
struct Mixture {
  std::string_view name;  // as llama-quantize writes it: "Q4_K_M"
  DType base;
  uint32_t file_type;  // the number under general.file_type
};

/// All mixtures. Those named as a type are not --pure either: Q4_0, too, has an output matrix in Q6_K.
std::span<const Mixture> mixtures();
/// By its name in any case, or "Q3_K", "Q4_K" and "Q5_K" for their middle form; null if there is none.
const Mixture* find_mixture(std::string_view name);

/// What the choice depends on.
struct MixtureModel {
  int64_t n_layers = 0, n_heads = 0, n_experts = 0;
  int64_t n_kv_heads = 0;        // of the first layer, by which llama-quantize goes; 0: it has no attention
  bool with_importance = false;  // an importance matrix is given
};
struct MixtureTensor {
  std::string_view name;         // in GGUF: "blk.3.attn_v.weight"
  std::vector<int64_t> shape;    // outermost first
  DType unchanged = DType::f32;  // the type of a tensor that is not quantized
};

/// Whether a tensor of that name and shape is quantized at all: matrices are, but for those that are small or choose experts.
bool is_quantized(std::string_view name, size_t dimensions);

/// A type for each tensor of the model, in their order. Rows that no whole number of blocks fills get a type of smaller blocks,
/// or f16. `pure`: the base for all that is quantized.
std::vector<DType> choose_types(const Mixture& mixture, const MixtureModel& model, std::span<const MixtureTensor> tensors,
                                bool pure = false);

/// Whether a tensor of that type in that mixture is only quantized with an importance matrix, as llama-quantize demands.
bool needs_importance(const Mixture& mixture, DType type, std::string_view name);

}  // namespace vitrine
