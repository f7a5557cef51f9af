#include "io/gguf_extent.h"

#include <cstring>
#include <iterator>

#include "io/file_checks.h"
#include "io/gguf.h"

namespace vitrine {
namespace {

constexpr uint32_t kMostDimensionsOfATensor = 8;
constexpr int kDeepestNesting = 8;
constexpr uint32_t kString = static_cast<uint32_t>(GgufType::string), kArray = static_cast<uint32_t>(GgufType::array);

/// Walks over a header as GgufParser reads it, without looking at names or values.
class GgufWalk {
 public:
  explicit GgufWalk(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  bool ran_out() const { return ran_out_; }

  /// False where the bytes end, or are none of a GGUF file.
  bool walk() {
    uint64_t tensors = 0, keys = 0;
    if (!skip(8) || std::memcmp(bytes_.data(), "GGUF", 4) != 0 || !take(tensors) || !take(keys)) return false;
    for (uint64_t i = 0; i < keys; ++i) {
      uint32_t type = 0;
      if (!skip_string() || !take(type) || !skip_value(type, 0)) return false;
    }
    for (uint64_t i = 0; i < tensors; ++i) {
      uint32_t dimensions = 0;
      if (!skip_string() || !take(dimensions) || dimensions > kMostDimensionsOfATensor || !skip(8 * uint64_t{dimensions} + 12))
        return false;
    }
    return true;
  }

 private:
  bool skip(uint64_t count) {
    if (count > bytes_.size() - at_) {
      ran_out_ = true;
      return false;
    }
    at_ += count;
    return true;
  }
  template <class T>
  bool take(T& value) {
    const uint64_t from = at_;
    if (!skip(sizeof value)) return false;
    value = load<T>(bytes_.data() + from);
    return true;
  }
  bool skip_string() {
    uint64_t length = 0;
    return take(length) && skip(length);
  }

  /// Bytes of a scalar; 0 for what is none.
  static uint64_t scalar_bytes(uint32_t type) {
    using enum GgufType;
    constexpr GgufType kTypes[] = {u8, i8, u16, i16, u32, i32, f32, flag, string, array, u64, i64, f64};
    return type < std::size(kTypes) ? size_of(kTypes[type]) : 0;
  }

  bool skip_value(uint32_t type, int depth) {
    if (type == kString) return skip_string();
    if (type != kArray) return scalar_bytes(type) > 0 && skip(scalar_bytes(type));
    uint32_t element = 0;
    uint64_t count = 0;
    if (depth >= kDeepestNesting || !take(element) || !take(count)) return false;
    if (const uint64_t bytes = scalar_bytes(element); bytes > 0) return count <= ~uint64_t{0} / bytes && skip(count * bytes);
    for (uint64_t i = 0; i < count; ++i)
      if (!skip_value(element, depth + 1)) return false;
    return true;
  }

  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  bool ran_out_ = false;
};

}  // namespace

std::optional<uint64_t> gguf_header_bytes(std::span<const std::byte> bytes) {
  GgufWalk walk(bytes);
  if (!walk.walk() && walk.ran_out()) return std::nullopt;
  return walk.at();
}

}  // namespace vitrine
