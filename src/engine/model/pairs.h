#pragma once
// The two orders of a head's rows for rotary positions.
#include <cstdint>
#include <vector>

namespace vitrine {

/// For each row of a matrix whose neighboring rows turn together (Llama's q and k in GGUF): the row it is in the Hugging Face
/// file, where the halves of a head lie side by side.
inline std::vector<int64_t> rows_of_pairs(int64_t rows, int64_t head_dim) {
  std::vector<int64_t> file_row(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t in_head = row % head_dim;
    file_row[static_cast<size_t>(row)] = row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
  }
  return file_row;
}

}  // namespace vitrine
