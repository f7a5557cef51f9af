#pragma once
// The matrices that one parameter holds, as they lie in the file.
#include <cstddef>

#include "train/parameters.h"

namespace vitrine {

struct MatrixShape {
  size_t matrices, rows, columns;  // rows and columns of each
};

inline MatrixShape matrix_shape(const Parameter& p) {
  const auto columns = static_cast<size_t>(p.shape.back());
  const size_t matrices = p.shape.size() == 3 ? static_cast<size_t>(p.shape[0]) : 1;
  return {matrices, p.count / matrices / columns, columns};
}

}  // namespace vitrine
