#include "io/tensor_file.h"

#include <set>

#include "base/error.h"
#include "io/file_checks.h"

namespace vitrine {

std::vector<uint64_t> planned_bytes(const std::string& path, const std::vector<TensorPlan>& tensors) {
  std::set<std::string_view> names;
  std::vector<uint64_t> bytes;
  for (const TensorPlan& tensor : tensors) {
    if (!names.insert(tensor.name).second) throw UsageError(path + ": the tensor name \"" + tensor.name + "\" is taken");
    bool possible = true;
    std::vector<uint64_t> sizes;
    for (const int64_t n : tensor.shape) {
      possible = possible && n >= 0;
      sizes.push_back(static_cast<uint64_t>(n));
    }
    const std::optional<uint64_t> elements = checked_product(sizes);
    if (!possible || !elements)
      throw UsageError(path + ": tensor \"" + tensor.name + "\" has the impossible shape " + shape_text(tensor.shape));
    const size_t block = block_elements(tensor.dtype);
    if (block > 1 && (sizes.empty() || sizes.back() % block != 0))
      throw UsageError(path + ": tensor \"" + tensor.name + "\" of type " + std::string(name_of(tensor.dtype)) +
                       " has the shape " + shape_text(tensor.shape) + "; expected rows of a multiple of " +
                       std::to_string(block));
    bytes.push_back(row_bytes(tensor.dtype, *elements));
  }
  return bytes;
}

void TensorFile::write(size_t index, std::span<const std::byte> data, size_t offset) {
  VITRINE_CHECK(index < tensors.size(), "a writer takes the tensors it was made for");
  if (offset > bytes[index] || data.size() > bytes[index] - offset)
    throw UsageError(file.path() + ": tensor \"" + tensors[index].name + "\" has " + std::to_string(bytes[index]) + " bytes; " +
                     std::to_string(data.size()) + " at byte " + std::to_string(offset) + " do not fit");
  file.write_at(begin[index] + offset, data);
  written += data.size();
}

void TensorFile::finish() {
  uint64_t expected = 0;
  for (const uint64_t n : bytes) expected += n;
  if (written != expected)
    throw UsageError(file.path() + ": " + std::to_string(written) + " bytes of tensors were written; expected " +
                     std::to_string(expected));
  file.finish();
}

}  // namespace vitrine
