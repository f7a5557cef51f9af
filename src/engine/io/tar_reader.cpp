#include "io/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr size_t kTarBlock = 512;
constexpr size_t kLongestPaxRecords = size_t{1} << 20;  // of a pax header

struct TarField {
  size_t at, size;
};
constexpr TarField kTarName{0, 100}, kTarSize{124, 12}, kTarSum{148, 8}, kTarPrefix{345, 155};
constexpr size_t kTarType = 156, kTarMagic = 257;

std::string_view tar_field(const char* block, TarField f) {
  const std::string_view whole(block + f.at, f.size);
  return whole.substr(0, whole.find('\0'));
}

// Octal digits, with blanks around them; or, if the first bit is set, as a large number.
std::optional<uint64_t> tar_number(const char* block, TarField f) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(block[f.at + i]); };
  uint64_t value = 0;
  if ((byte(0) & 0x80) != 0) {
    if (byte(0) != 0x80) return {};  // negative, or of more than 88 bits
    for (size_t i = 1; i < f.size; ++i) {
      if (value >> 55 != 0) return {};
      value = value << 8 | byte(i);
    }
    return value;
  }
  std::string_view digits = tar_field(block, f);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  while (digits.ends_with(' ')) digits.remove_suffix(1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

// Of the header's bytes, with blanks for the sum itself.
uint64_t tar_checksum(const char* block) {
  uint64_t sum = 0;
  for (size_t i = 0; i < kTarBlock; ++i)
    sum += i >= kTarSum.at && i < kTarSum.at + kTarSum.size ? ' ' : static_cast<unsigned char>(block[i]);
  return sum;
}

std::string without_controls(std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return name;
}

// What pax writes instead of fields of the next header: records "LENGTH KEY=VALUE\n".
struct PaxRecords {
  std::optional<std::string> name;
  std::optional<uint64_t> size;
};
std::optional<PaxRecords> pax_of(std::string_view records) {
  PaxRecords pax;
  while (!records.empty()) {
    size_t length = 0;
    const auto [digits, error] = std::from_chars(records.data(), records.data() + records.size(), length);
    const auto begin = static_cast<size_t>(digits - records.data()) + 1;
    if (error != std::errc() || length > records.size() || length <= begin || records[begin - 1] != ' ' ||
        records[length - 1] != '\n')
      return {};
    const std::string_view record = records.substr(begin, length - begin - 1);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return {};
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") pax.name = value;
    if (key == "size") {
      uint64_t size = 0;
      const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
      if (wrong != std::errc() || end != value.data() + value.size()) return {};
      pax.size = size;
    }
    records.remove_prefix(length);
  }
  return pax;
}

}  // namespace

bool is_tar(std::string_view path) { return name_ends_in(path, {".tar", ".tgz"}); }

void TarReader::fail(const std::string& problem) const {
  throw FileError(path_, problem + " (byte " + std::to_string(at_) + " of the archive). Was the file copied completely?");
}

// False at the end of the archive.
bool TarReader::read_block(char (&block)[kTarBlock]) {
  size_t filled = 0;
  while (filled < kTarBlock) {
    const size_t got = archive_.read(std::span(block).subspan(filled));
    if (got == 0) break;
    filled += got;
    at_ += got;
  }
  if (filled > 0 && filled < kTarBlock) fail("the tar archive ends within a header");
  return filled == kTarBlock;
}

size_t TarReader::read(std::span<char> into) {
  if (left_ == 0) return 0;
  const size_t got = archive_.read(into.first(static_cast<size_t>(std::min<uint64_t>(into.size(), left_))));
  if (got == 0) fail("the tar archive ends within " + name_);
  at_ += got;
  left_ -= got;
  return got;
}

void TarReader::skip(uint64_t bytes) {
  char some[16384];
  while (bytes > 0) {
    const size_t got = archive_.read(std::span(some).first(static_cast<size_t>(std::min<uint64_t>(sizeof some, bytes))));
    if (got == 0) fail("the tar archive ends too early");
    at_ += got;
    bytes -= got;
  }
}

// The text of a header's own file: a long name, or records.
std::string TarReader::read_text(uint64_t size, size_t most) {
  if (size > most)
    fail("a name or records of " + std::to_string(size) + " bytes in a tar archive; expected at most " + std::to_string(most));
  std::string text(static_cast<size_t>(size), '\0');
  left_ = size;
  for (size_t at = 0; left_ > 0;) at += read(std::span(text).subspan(at));
  skip((kTarBlock - size % kTarBlock) % kTarBlock);
  return text;
}

bool TarReader::next() {
  skip(left_ + padding_);
  left_ = padding_ = 0;
  name_ = "a long name";  // until there is one, for messages
  std::optional<std::string> long_name;
  std::optional<uint64_t> long_size;
  while (true) {
    char block[kTarBlock];
    if (!read_block(block)) {
      if (long_name || long_size) fail("the tar archive ends after a long name");
      return false;
    }
    if (std::all_of(std::begin(block), std::end(block), [](char c) { return c == 0; })) return false;
    const std::optional<uint64_t> sum = tar_number(block, kTarSum), size = tar_number(block, kTarSize);
    if (!sum || *sum != tar_checksum(block)) fail("is not a tar archive, or is damaged: a header does not match its checksum");
    if (!size) fail("a size that is not a number in a header of the tar archive");
    const char type = block[kTarType];
    if (type == 'L') {  // GNU
      long_name = read_text(*size, kLongestName);
      long_name->resize(std::min(long_name->find('\0'), long_name->size()));
      continue;
    }
    if (type == 'x') {
      const std::optional<PaxRecords> pax = pax_of(read_text(*size, kLongestPaxRecords));
      if (!pax) fail("damaged pax records in the tar archive");
      if (pax->name) long_name = pax->name;
      if (pax->size) long_size = pax->size;
      continue;
    }
    if (type == 'K' || type == 'g') {  // a long target of a link; records for all files, of which none matters
      skip(*size);
      skip((kTarBlock - *size % kTarBlock) % kTarBlock);
      continue;
    }
    left_ = long_size.value_or(*size);
    padding_ = (kTarBlock - left_ % kTarBlock) % kTarBlock;
    if (left_ > UINT64_MAX - 2 * kTarBlock) fail("a size that no file has in a header of the tar archive");
    if (type == '0' || type == '\0' || type == '7') {
      name_ = long_name.value_or(std::string(tar_field(block, kTarName)));
      const std::string_view prefix = std::memcmp(block + kTarMagic, "ustar\0", 6) == 0 ? tar_field(block, kTarPrefix) : "";
      if (!long_name && !prefix.empty()) name_ = std::string(prefix) + "/" + name_;
      if (name_.size() > kLongestName)
        fail("a name of " + std::to_string(name_.size()) + " bytes in the tar archive; expected at most " +
             std::to_string(kLongestName));
      name_ = without_controls(std::move(name_));
      return true;
    }
    // Links and devices have no bytes, whatever their size says; folders and others are skipped.
    if (type >= '1' && type <= '6') left_ = padding_ = 0;
    skip(left_ + padding_);
    left_ = padding_ = 0;
    long_name.reset();
    long_size.reset();
  }
}

}  // namespace vitrine
