#pragma once
// Float weights as blocks of GGUF's types: the scales, minima and integers of a block are searched for, so that the weighted
// squared error of its values is small. What a block means stands in base/blocks/<type>.h.
#include <cstddef>

#include "base/dtype.h"

namespace vitrine {

/// Whether encode_row() writes the type.
bool can_encode(DType type);

/// The types that encode_row() writes, for messages.
std::string encodable_types();

/// n values of a row, whole blocks of `type`, as its blocks. `importance` is null or has n values, zero or positive: how much the
/// input that meets a weight matters, as the mean of its squares (an importance matrix). Block types make
/// NaN or infinity of blocks with a value beyond ±30,000 (Q8_0: beyond what it holds) or one that is not finite: check what
/// decode_block() gives. The same bits on every machine.
void encode_row(DType type, const float* row, size_t n, const float* importance, std::byte* out);

}  // namespace vitrine
