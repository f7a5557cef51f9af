#include "tokenizer/protobuf.h"

#include <fmt/format.h>

#include <cstring>

#include "base/error.h"

namespace vitrine {

void ProtobufReader::fail(const std::string& problem) const {
  throw FileError(*where_, fmt::format("field {} at byte {} {}; is this a SentencePiece model, and complete?", field_,
                                       offset_ + field_begin_, problem));
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (pos_ >= bytes_.size()) fail("is truncated");
    const auto byte = static_cast<unsigned char>(bytes_[pos_++]);
    value |= uint64_t(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  fail("holds a number of more than 64 bits");
}

bool ProtobufReader::next() {
  if (pos_ >= bytes_.size()) return false;
  field_begin_ = pos_;
  const uint64_t key = varint();
  if (key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) fail("has the impossible number " + std::to_string(key >> 3));
  field_ = uint32_t(key >> 3);
  wire_ = uint32_t(key & 7);
  uint64_t size = 0;
  switch (wire_) {
    case kVarint: number_ = varint(); return true;
    case kFixed64: size = 8; break;
    case kFixed32: size = 4; break;
    case kBytes: size = varint(); break;
    default: fail("has the unknown wire type " + std::to_string(wire_));
  }
  if (size > bytes_.size() - pos_) fail(fmt::format("gives {} bytes where {} are left", size, bytes_.size() - pos_));
  value_begin_ = pos_;
  value_ = bytes_.substr(pos_, size_t(size));
  pos_ += size_t(size);
  return true;
}

void ProtobufReader::expect(Wire wire, const char* name) const {
  if (wire_ != wire) fail(fmt::format("({}) has wire type {}, expected {}", name, wire_, uint32_t(wire)));
}

std::string_view ProtobufReader::bytes(const char* name) const {
  expect(kBytes, name);
  return value_;
}

ProtobufReader ProtobufReader::message(const char* name) const {
  expect(kBytes, name);
  return {value_, *where_, offset_ + value_begin_};
}

int64_t ProtobufReader::integer(const char* name) const {
  expect(kVarint, name);
  return int64_t(number_);
}

float ProtobufReader::real(const char* name) const {
  expect(kFixed32, name);
  float value = 0;
  std::memcpy(&value, value_.data(), 4);
  return value;
}

}  // namespace vitrine
