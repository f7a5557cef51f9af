#pragma once
// What the writers of weight formats share: a new file in which every tensor has its place before its bytes are known.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "io/stored_tensor.h"

namespace vitrine {

/// Bytes of each tensor, checked: names unique, sizes not negative, no overflow, block rows whole.
/// Errors: UsageError naming `path` and the tensor.
std::vector<uint64_t> planned_bytes(const std::string& path, const std::vector<TensorPlan>& tensors);

/// The file while it is written. `begin` is set by the format once its header is.
struct TensorFile {
  TensorFile(const std::string& path, std::vector<TensorPlan> plans, std::vector<uint64_t> sizes)
      : file(path), tensors(std::move(plans)), bytes(std::move(sizes)) {}

  /// Puts `data` at byte `offset` of tensors[index]. Errors: UsageError beyond its end; RunError from the disk.
  void write(size_t index, std::span<const std::byte> data, size_t offset);
  /// Errors: UsageError if not as many bytes were written as the tensors have; RunError from the disk.
  void finish();

  AtomicFile file;
  std::vector<TensorPlan> tensors;
  std::vector<uint64_t> begin, bytes;  // place of tensors[i] in the file
  uint64_t written = 0;
};

}  // namespace vitrine
