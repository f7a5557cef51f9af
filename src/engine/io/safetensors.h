#pragma once
// safetensors: 8 bytes header length (little-endian), a JSON header, the tensors' bytes without gaps.
// https://github.com/huggingface/safetensors (README, section "Format").
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/stored_tensor.h"

namespace vitrine {

/// Maps and checks a model: a `.safetensors` file, a `.safetensors.index.json` with its shards beside it, or a directory
/// with `model.safetensors` or `model.safetensors.index.json` (the first decides where both are present).
/// Reads headers only: time does not grow with the weights (unless they lie unaligned, see Checkpoint::copied_bytes).
/// Errors: FileError naming file, tensor and byte for anything missing, truncated, overlapping or contradictory.
Checkpoint open_safetensors(const std::string& path);

/// Adds the tensors of one file's content to `into`; `bytes` and `file` (its path) must outlive it.
void read_safetensors(std::span<const std::byte> bytes, const std::string& file, Checkpoint& into);

/// A file that is to be written: what it begins with, and where each tensor lies.
struct SafetensorsLayout {
  std::string header;           // with its length before it
  std::vector<uint64_t> begin;  // of tensors[i], from the beginning of the file
  std::vector<uint64_t> bytes;  // of tensors[i]
  uint64_t size = 0;            // of the file
};
/// `path` is named in errors. Errors: UsageError for a name that appears twice or a block format, which safetensors lacks.
SafetensorsLayout safetensors_layout(const std::string& path, const std::vector<TensorPlan>& tensors,
                                     const Checkpoint::Metadata& metadata = {});

/// Writes a file piece by piece, in any order of tensors, without holding it in memory. The file has its final name only
/// after finish(), when it is whole and synced; a writer destroyed before that leaves nothing behind.
class SafetensorsWriter {
 public:
  /// Errors: as safetensors_layout; RunError if the file cannot be made.
  SafetensorsWriter(const std::string& path, std::vector<TensorPlan> tensors, const Checkpoint::Metadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;

  /// Puts `data` at byte `offset` of tensors[index]. Errors: UsageError beyond its end; RunError from the disk.
  void write(size_t index, std::span<const std::byte> data, size_t offset = 0);
  /// Errors: UsageError if the bytes written are not as many as the tensors have; RunError from the disk.
  void finish();

 private:
  std::unique_ptr<struct TensorFile> state_;
};

/// A tensor in memory, to be written as it is.
struct TensorToWrite {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
  const void* data;  // row_bytes(dtype, product of shape) bytes
};

/// Writes all tensors through SafetensorsWriter, replacing `path` in one step.
void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors,
                       const Checkpoint::Metadata& metadata = {});

}  // namespace vitrine
