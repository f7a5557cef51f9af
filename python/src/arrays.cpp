#include "arrays.h"

#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"

namespace vitrine::python {

Array batch_of_one(Numbers numbers, const std::vector<int64_t>& shape) {
  std::vector<size_t> sizes = {1};
  for (const int64_t size : shape) sizes.push_back(static_cast<size_t>(size));
  if (shape.size() == 1) sizes.push_back(1);
  auto kept = std::make_unique<Numbers>(std::move(numbers));
  float* data = kept->data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<Numbers*>(p); });
  kept.release();
  return Array(data, sizes.size(), sizes.data(), owner);
}

std::vector<int32_t> token_ids(std::span<const int64_t> ids) {
  std::vector<int32_t> result(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t id = ids[i];
    if (id < 0 || id > std::numeric_limits<int32_t>::max())
      throw InputError("token " + std::to_string(id) + " at place " + std::to_string(i) +
                       " is no token id; ids are numbers from 0 to the vocabulary's end");
    result[i] = static_cast<int32_t>(id);
  }
  return result;
}

nb::str text(std::string_view bytes) {
  PyObject* decoded = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal<nb::str>(decoded);
}

}  // namespace vitrine::python
