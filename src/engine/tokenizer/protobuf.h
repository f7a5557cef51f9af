#pragma once
// Reads Protocol Buffers' wire format: a message is a row of fields, each a varint key (number << 3 | type) and a value.
// Enough of it for SentencePiece models; every length is checked against the bytes that are there.
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

class ProtobufReader {
 public:
  /// `bytes` is a message that starts at byte `offset` of the file `where` (both for messages).
  ProtobufReader(std::string_view bytes, const std::string& where, size_t offset = 0)
      : bytes_(bytes), where_(&where), offset_(offset) {}

  /// Moves to the next field; false at the end. Errors: FileError for a field that is cut off or of an unknown type.
  bool next();
  uint32_t field() const { return field_; }
  size_t offset() const { return offset_ + field_begin_; }  // of the field, in the file

  // The value of the field. Errors: FileError when the field is of another wire type; `name` is the field's name.
  std::string_view bytes(const char* name) const;
  ProtobufReader message(const char* name) const;
  int64_t integer(const char* name) const;
  bool boolean(const char* name) const { return integer(name) != 0; }
  float real(const char* name) const;

 private:
  enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  uint64_t varint();
  void expect(Wire wire, const char* name) const;
  [[noreturn]] void fail(const std::string& problem) const;

  std::string_view bytes_;
  const std::string* where_;
  size_t offset_, pos_ = 0, field_begin_ = 0, value_begin_ = 0;
  uint32_t field_ = 0, wire_ = 0;
  uint64_t number_ = 0;
  std::string_view value_;
};

}  // namespace vitrine
