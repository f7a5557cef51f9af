#include "sae/stored_floats.h"

#include <cstddef>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "io/file_checks.h"
#include "kernels/table.h"

namespace vitrine {

const StoredTensor& StoredFloats::tensor(const std::string& name) const {
  if (const StoredTensor* t = file_.find(name)) return *t;
  std::string names;
  for (const auto& [other, stored] : file_.tensors()) {
    names += (names.empty() ? "" : ", ") + other;
    if (names.size() > 200) {
      names += ", …";
      break;
    }
  }
  throw FileError(file_.path(), "there is no tensor \"" + name + "\"; it holds " + (names.empty() ? "no tensor" : names));
}

std::vector<int64_t> StoredFloats::shape(const std::string& name) const { return tensor(name).shape; }

FloatVector StoredFloats::get(const std::string& name, std::initializer_list<int64_t> shape) const {
  const StoredTensor& t = tensor(name);
  if (t.shape != std::vector<int64_t>(shape))
    throw FileError(file_.path(), "tensor \"" + name + "\" is " + shape_text(t.shape) + "; expected " + shape_text(shape) +
                                      " from the configuration");
  size_t count = 1;
  for (const int64_t size : t.shape) count *= static_cast<size_t>(size);
  FloatVector values(count);
  if (count == 0) return values;
  if (t.dtype == DType::f64) {
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(load<double>(t.data + i * sizeof(double)));
  } else if (t.dtype == DType::f32 || t.dtype == DType::f16 || t.dtype == DType::bf16) {
    kernels().widen[static_cast<size_t>(t.dtype)](t.data, count, values.data());
  } else {
    throw FileError(file_.path(),
                    "tensor \"" + t.name + "\" is of type " + std::string(name_of(t.dtype)) + "; expected f32, f16, bf16 or f64");
  }
  return values;
}

void transpose(FloatVector& w, int64_t rows, int64_t columns) {
  FloatVector turned(w.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) turned[static_cast<size_t>(j * rows + i)] = w[static_cast<size_t>(i * columns + j)];
  w = std::move(turned);
}

}  // namespace vitrine
