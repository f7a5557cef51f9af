#pragma once
// Tensors of a file by name, as f32 whatever floating type they are stored in.
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "io/stored_tensor.h"
#include "vitrine/float_vector.h"

namespace vitrine {

/// Of a checkpoint that outlives it.
class StoredFloats {
 public:
  explicit StoredFloats(const Checkpoint& file) : file_(file) {}

  /// The elements of a tensor, which must be of this shape. Errors: FileError with the names or the shape that there are.
  FloatVector get(const std::string& name, std::initializer_list<int64_t> shape) const;
  bool has(const std::string& name) const { return file_.find(name) != nullptr; }
  /// Errors: as get.
  std::vector<int64_t> shape(const std::string& name) const;

 private:
  const StoredTensor& tensor(const std::string& name) const;
  const Checkpoint& file_;
};

/// w [rows, columns] becomes [columns, rows].
void transpose(FloatVector& w, int64_t rows, int64_t columns);

}  // namespace vitrine
