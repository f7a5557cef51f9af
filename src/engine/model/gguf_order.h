#pragma once
// The orders of rows and columns in which a GGUF file differs from a Hugging Face one.
#include "model/pairs.h"
#include "model/tensor_list.h"

namespace vitrine {

/// For each of `n` rows in GGUF's order: the one it is in the Hugging Face file.
inline std::vector<int64_t> rows_of_tiles(const HeadTiles& tiles, int64_t n) {
  const int64_t lead = tiles.together * tiles.size, leads = tiles.groups * lead;  // rows of the first tile of a group, of all
  const int64_t group = lead + (tiles.each - 1) * tiles.size;
  std::vector<int64_t> file_row(static_cast<size_t>(n));
  for (int64_t row = 0; row < n; ++row) {
    const int64_t after = row - tiles.first, head = (after - leads) / tiles.size;
    const int64_t stored =
        after < leads ? after / lead * group + after % lead
                      : head % tiles.groups * group + lead + head / tiles.groups * tiles.size + (after - leads) % tiles.size;
    file_row[static_cast<size_t>(row)] = after < 0 ? row : tiles.first + stored;
  }
  return file_row;
}

/// The same of this tensor's rows (of a vector: numbers); empty: the order is the same. head_dim: the model's.
inline std::vector<int64_t> gguf_rows(const TensorLine& line, int64_t head_dim) {
  if (line.layout.gguf_pairs) return rows_of_pairs(line.out.size, head_dim);
  if (line.layout.tiles && !line.layout.tiles.inputs) return rows_of_tiles(line.layout.tiles, line.out.size);
  return {};
}
/// The same of its columns.
inline std::vector<int64_t> gguf_columns(const TensorLine& line) {
  if (line.layout.tiles && line.layout.tiles.inputs) return rows_of_tiles(line.layout.tiles, line.in.size);
  return {};
}

}  // namespace vitrine
