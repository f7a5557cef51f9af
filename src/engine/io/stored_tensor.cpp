#include "io/stored_tensor.h"

#include <cstring>

#include "base/error.h"

namespace vitrine {
namespace {

size_t alignment_of(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64: return 8;
    case DType::f32:
    case DType::i32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::q8_0:
    case DType::q4_0: return 2;
    default: return 1;  // bytes, and blocks that are read as bytes
  }
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  if (const auto found = tensors_.find(name); found != tensors_.end()) return &found->second;
  if (const auto found = unreadable_.find(name); found != unreadable_.end()) {
    const UnreadableTensor& tensor = found->second;
    throw FileError(*tensor.file, "tensor \"" + std::string(name) + "\" (described at byte " +
                                      std::to_string(tensor.described_at) + ") has the element type " + tensor.type +
                                      "; expected one of " + weight_types() + ". Use a copy of the model in one of these types");
  }
  return nullptr;
}

void Checkpoint::will_need() const {
  for (const MappedFile& file : files_) file.will_need();
}

void Checkpoint::check_new(const std::string& name, const std::string& file) const {
  const std::string* first = nullptr;
  if (const auto found = tensors_.find(name); found != tensors_.end()) first = found->second.file;
  if (const auto found = unreadable_.find(name); found != unreadable_.end()) first = found->second.file;
  if (first != nullptr)
    throw FileError(file, "holds a tensor \"" + name + "\" that " + (*first == file ? "it already held" : *first + " holds too") +
                              "; a name may appear once in a model");
}

void Checkpoint::add(StoredTensor tensor) {
  check_new(tensor.name, *tensor.file);
  // Kernels read weights through pointers of their type. Files written before safetensors padded its header begin their
  // data anywhere; only they pay for a copy, of at most their own size because the bytes of tensors do not overlap.
  if (tensor.bytes != 0 && reinterpret_cast<uintptr_t>(tensor.data) % alignment_of(tensor.dtype) != 0) {
    std::byte* const copy = room(tensor.bytes);
    std::memcpy(copy, tensor.data, tensor.bytes);
    tensor.data = copy;
  }
  bytes_ += tensor.bytes;
  std::string name = tensor.name;
  tensors_.emplace(std::move(name), std::move(tensor));
}

std::byte* Checkpoint::add_new(StoredTensor tensor) {
  check_new(tensor.name, *tensor.file);
  std::byte* const data = room(tensor.bytes);
  tensor.data = data;
  add(std::move(tensor));
  return data;
}

void Checkpoint::remove(const std::string& name) {
  if (const auto found = tensors_.find(name); found != tensors_.end()) {
    bytes_ -= found->second.bytes;
    tensors_.erase(found);
  }
  unreadable_.erase(name);
}

std::byte* Checkpoint::room(size_t bytes) {
  const size_t units = (bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t);
  copies_.emplace_back(new std::max_align_t[units]);
  copied_bytes_ += bytes;
  return reinterpret_cast<std::byte*>(copies_.back().get());
}

void Checkpoint::add_unreadable(const std::string& name, UnreadableTensor tensor) {
  check_new(name, *tensor.file);
  unreadable_.emplace(name, std::move(tensor));
}

}  // namespace vitrine
