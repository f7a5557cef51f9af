#pragma once
// Writes GGUF version 3, as io/gguf.h reads it.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "io/gguf.h"

namespace vitrine {

/// The value of a key. A GgufMetadata::Value is passed on from another file as it is.
using GgufValue =
    std::variant<uint8_t, uint16_t, uint32_t, uint64_t, int8_t, int16_t, int32_t, int64_t, float, double, bool, std::string,
                 std::vector<std::string>, std::vector<int32_t>, std::vector<float>, std::vector<bool>, GgufMetadata::Value>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

/// Where everything of a file goes.
struct GgufLayout {
  std::string header;                  // what the file begins with, padded
  std::vector<uint64_t> begin, bytes;  // of each tensor: its place in the file and its size, without the padding behind it
  uint64_t size = 0;                   // of the file
};
/// Shapes are outermost first, as everywhere; the file holds them reversed. Alignment is GGUF's 32. `path` is named in errors.
/// Errors: UsageError for a key or tensor name that appears twice, a type the format lacks (u8), more than 4 dimensions.
GgufLayout gguf_layout(const std::string& path, const GgufKeys& keys, const std::vector<TensorPlan>& tensors);

/// Writes a file piece by piece, in any order of tensors, without holding it in memory. The file has its final name only
/// after finish(), when it is whole and synced; a writer destroyed before that leaves nothing behind.
class GgufWriter {
 public:
  /// Errors: as gguf_layout; RunError if the file cannot be made.
  GgufWriter(const std::string& path, const GgufKeys& keys, std::vector<TensorPlan> tensors);
  ~GgufWriter();
  GgufWriter(GgufWriter&&) noexcept;
  GgufWriter& operator=(GgufWriter&&) noexcept;

  /// Puts `data` at byte `offset` of tensors[index]. Errors: UsageError beyond its end; RunError from the disk.
  void write(size_t index, std::span<const std::byte> data, size_t offset = 0);
  /// Errors: UsageError if the bytes written are not as many as the tensors have; RunError from the disk.
  void finish();

 private:
  std::unique_ptr<struct TensorFile> state_;
};

}  // namespace vitrine
