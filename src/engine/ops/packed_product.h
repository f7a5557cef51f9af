#pragma once
// Products of two matrices that both change from step to step: those of backward, and of training in bf16.
#include "ops/context.h"

namespace vitrine {

struct PackedKernels;

/// A matrix of f32 elements: element (i, j) is data[i stride + j], or data[j stride + i] if transposed.
struct Operand {
  const float* data;
  size_t stride;
  bool transposed = false;

  /// The same from element (i, j) on.
  Operand from(size_t i, size_t j) const { return {data + (transposed ? j * stride + i : i * stride + j), stride, transposed}; }
  Operand transpose() const { return {data, stride, !transposed}; }
};

/// The kernels for this context: rounded to bf16 where it asks for that and the target has them, else f32.
const PackedKernels& packed_kernels(const Context& ctx);
/// Whether these are rounded.
bool packs_bf16(const Context& ctx);

/// Packed lines of any depth, in memory of the caller's: pieces of the kernel's depth one after the other.
size_t packed_a_bytes(const PackedKernels& p, size_t rows, size_t depth);
size_t packed_b_bytes(const PackedKernels& p, size_t depth, size_t columns);
void pack_a(const PackedKernels& p, const Operand& a, size_t rows, size_t depth, std::byte* packed);
void pack_b(const PackedKernels& p, const Operand& b, size_t depth, size_t columns, std::byte* packed);
/// c [rows, columns] = or += a b for operands packed so; a_turned as the operand was.
void multiply_packed(const PackedKernels& p, const std::byte* a, bool a_turned, const std::byte* b, size_t rows, size_t columns,
                     size_t depth, float* c, size_t c_stride, bool add);

/// c [rows, columns] = or += a [rows, depth] b [depth, columns], shared among the threads. Cut by shape: the same bits for
/// any number of threads.
void packed_product(Context& ctx, const Operand& a, const Operand& b, size_t rows, size_t columns, size_t depth, float* c,
                    size_t c_stride, bool add);

}  // namespace vitrine
