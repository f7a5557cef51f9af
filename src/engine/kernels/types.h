#pragma once
// The choices that models and caches make for the kernels; kernels/table.h has the kernels themselves.
#include <cstddef>
#include <cstdint>

namespace vitrine {

inline constexpr size_t kKeyBlock = 256;  // keys are reduced in blocks of this many positions, aligned to position 0

enum class RopeLayout : uint8_t {
  halves,  // component i turns with i + d/2 (Gemma, Hugging Face's Llama, GPT-NeoX)
  pairs,   // component 2i turns with 2i + 1 (GGUF's Llama order, RoFormer)
};
enum class Activation : uint8_t { none, relu, gelu_tanh, gelu_exact, silu, sigmoid, relu_squared, quick_gelu, tanh };

}  // namespace vitrine
