#pragma once
// GGUF versions 2 and 3, little-endian: metadata, tensor descriptions, aligned data.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "io/stored_tensor.h"

namespace vitrine {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, flag, string, array, u64, i64, f64 };

/// Bytes of a scalar; 0 for strings and arrays, whose length varies.
constexpr size_t size_of(GgufType type) {
  switch (type) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::flag: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return 0;
}

/// The key-value part of a GGUF file, used where it lies. Getters throw FileError naming the file, the key, what was found
/// and what was expected; a getter with a fallback returns it if the key is absent. Any integer type serves as integer,
/// integers and floats serve as number.
class GgufMetadata {
 public:
  struct Value {
    GgufType type;
    std::span<const std::byte> bytes;  // a scalar's bytes, a string's characters, all elements of an array
    GgufType element = GgufType::u8;   // of an array
    uint64_t count = 0;                // of an array
    size_t at = 0;                     // byte of the file
  };

  bool has(std::string_view key) const { return values_.find(key) != values_.end(); }
  int64_t integer(std::string_view key, std::optional<int64_t> fallback = {}) const;
  double number(std::string_view key, std::optional<double> fallback = {}) const;
  bool flag(std::string_view key, std::optional<bool> fallback = {}) const;
  std::string_view string(std::string_view key, std::optional<std::string_view> fallback = {}) const;
  /// Arrays; views point into the file. Absent keys are errors: ask has() where that is allowed.
  std::vector<std::string_view> strings(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<float> numbers(std::string_view key) const;

  /// The scalars, strings and arrays of at most 4096 scalars or strings as one flat JSON object, for ConfigReader:
  /// {"llama.block_count": 32, ...}. Longer and nested arrays (vocabularies) are left out. Bytes that are not UTF-8
  /// become U+FFFD, numbers that JSON lacks the strings "NaN", "infinity" and "-infinity", which no getter takes for a number.
  Json config() const;
  const std::map<std::string_view, Value>& values() const { return values_; }
  const std::string& path() const { return path_; }

 private:
  friend class GgufParser;
  const Value* find(std::string_view key, bool required, const char* expected) const;
  [[noreturn]] void wrong(std::string_view key, const Value& value, const char* expected) const;
  const Value& array(std::string_view key, const char* expected) const;

  std::string path_;
  std::map<std::string_view, Value> values_;
};

/// A GGUF model. Shapes in the checkpoint are reversed to outermost first, so a linear layer is [out, in] there too.
struct Gguf {
  uint32_t version = 0;
  GgufMetadata metadata;
  Checkpoint checkpoint;
};

/// Maps and checks a file. Of split models (name-00001-of-00003.gguf) give the first part; the others lie beside it.
/// Errors: FileError naming the key or tensor and the byte.
Gguf open_gguf(const std::string& path);

/// The same for one file's content in memory; `bytes` and `file` (its path) must outlive the result.
Gguf read_gguf(std::span<const std::byte> bytes, const std::string& file);

}  // namespace vitrine
