#include "io/npz.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "io/file_checks.h"

namespace vitrine {
namespace {

constexpr uint64_t kInZip64 = 0xFFFFFFFF;      // a 32-bit size that stands for one in the zip64 field
constexpr size_t kLongestNpyHeader = 1 << 16;  // of a .npy file

using ZipBytes = std::span<const std::byte>;

// One file of the archive, as the central directory has it.
struct ZipMember {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t checksum = 0;
  uint64_t packed = 0, size = 0, at = 0;  // at: of its local header
};

class ZipArchive {
 public:
  ZipArchive(ZipBytes bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  [[noreturn]] void fail(uint64_t at, const std::string& what) const {
    throw FileError(path_, "byte " + std::to_string(at) + ": " + what);
  }
  ZipBytes part(uint64_t at, uint64_t n, const char* what) const {
    if (at > bytes_.size() || n > bytes_.size() - at)
      fail(at, std::string(what) + " reaches beyond the end of the file (" + std::to_string(bytes_.size()) + " bytes)");
    return bytes_.subspan(static_cast<size_t>(at), static_cast<size_t>(n));
  }
  template <class T>
  T number(uint64_t at, const char* what) const {
    return load<T>(part(at, sizeof(T), what).data());
  }

  std::vector<ZipMember> members() const {
    const uint64_t end = end_record();
    uint64_t count = number<uint16_t>(end + 10, "the end record"), at = number<uint32_t>(end + 16, "the end record");
    if (end >= 20 && number<uint32_t>(end - 20, "the end record") == 0x07064B50) {  // zip64's locator
      const auto wide = number<uint64_t>(end - 12, "the zip64 locator");
      if (number<uint32_t>(wide, "the zip64 end record") != 0x06064B50) fail(wide, "expected a zip64 end record");
      count = number<uint64_t>(wide + 32, "the zip64 end record");
      at = number<uint64_t>(wide + 48, "the zip64 end record");
    }
    std::vector<ZipMember> list;
    for (uint64_t i = 0; i < count; ++i) {
      if (number<uint32_t>(at, "the central directory") != 0x02014B50) fail(at, "expected an entry of the central directory");
      ZipMember m;
      m.flags = number<uint16_t>(at + 8, "an entry");
      m.method = number<uint16_t>(at + 10, "an entry");
      m.checksum = number<uint32_t>(at + 16, "an entry");
      m.packed = number<uint32_t>(at + 20, "an entry");
      m.size = number<uint32_t>(at + 24, "an entry");
      const uint64_t name = number<uint16_t>(at + 28, "an entry"), extra = number<uint16_t>(at + 30, "an entry"),
                     comment = number<uint16_t>(at + 32, "an entry");
      m.at = number<uint32_t>(at + 42, "an entry");
      const ZipBytes text = part(at + 46, name, "a name");
      m.name.assign(reinterpret_cast<const char*>(text.data()), text.size());
      widen(m, at + 46 + name, extra);
      list.push_back(std::move(m));
      at += 46 + name + extra + comment;
    }
    return list;
  }

  // The content as it lies, compressed or not.
  ZipBytes content(const ZipMember& m) const {
    if (number<uint32_t>(m.at, "a local header") != 0x04034B50) fail(m.at, "expected the local header of " + m.name);
    const uint64_t name = number<uint16_t>(m.at + 26, "a local header"), extra = number<uint16_t>(m.at + 28, "a local header");
    return part(m.at + 30 + name + extra, m.packed, "an array");
  }

 private:
  // A comment of up to 65535 bytes may follow the end record.
  uint64_t end_record() const {
    const uint64_t size = bytes_.size();
    for (uint64_t back = 22; back <= size && back <= 22 + 65535; ++back)
      if (load<uint32_t>(bytes_.data() + (size - back)) == 0x06054B50) return size - back;
    fail(size, "there is no end record of a zip archive; is this a whole .npz file?");
  }
  // Sizes that do not fit into 32 bits stand in extra field 1, in this order.
  void widen(ZipMember& m, uint64_t at, uint64_t length) const {
    const uint64_t end = at + length;
    while (at + 4 <= end) {
      const auto id = number<uint16_t>(at, "an extra field"), n = number<uint16_t>(at + 2, "an extra field");
      uint64_t from = at + 4;
      if (id == 1)
        for (uint64_t* value : {&m.size, &m.packed, &m.at})
          if (*value == kInZip64 && from + 8 <= at + 4 + n) *value = number<uint64_t>(from, "an extra field"), from += 8;
      at += 4 + uint64_t{n};
    }
  }

  ZipBytes bytes_;
  const std::string& path_;
};

// What stands behind a key of the header, a Python literal: "'shape': (3, 4)".
std::string_view behind_key(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = header.substr(at + key.size());
  const size_t begin = rest.find_first_not_of(": ");
  return begin == std::string_view::npos ? std::string_view() : rest.substr(begin);
}

std::optional<DType> npy_type(std::string_view descr) {
  if (descr.starts_with("'<f4'")) return DType::f32;
  if (descr.starts_with("'<f2'")) return DType::f16;
  if (descr.starts_with("'<f8'")) return DType::f64;
  if (descr.starts_with("'<i4'")) return DType::i32;
  if (descr.starts_with("'<i8'")) return DType::i64;
  if (descr.starts_with("'|u1'")) return DType::u8;
  return {};
}

// The sizes of "(3, 4)"; nothing if it is not one.
std::optional<std::vector<uint64_t>> npy_sizes(std::string_view text) {
  if (!text.starts_with('(')) return {};
  text = text.substr(1, text.find(')') - 1);
  std::vector<uint64_t> sizes;
  while (true) {
    const size_t digit = text.find_first_not_of(", ");
    if (digit == std::string_view::npos) return sizes;
    uint64_t size = 0;
    const auto [end, error] = std::from_chars(text.data() + digit, text.data() + text.size(), size);
    if (error != std::errc() || size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return {};
    sizes.push_back(size);
    text = text.substr(static_cast<size_t>(end - text.data()));
  }
}

struct NpyHeader {
  std::string text;
  size_t bytes = 0;  // before the elements
};
NpyHeader npy_header(const ZipArchive& archive, const ZipMember& m, ZipBytes begin) {
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (begin.size() < 12 || std::memcmp(begin.data(), kMagic.data(), kMagic.size()) != 0)
    archive.fail(m.at, m.name + " is no .npy array");
  const auto version = static_cast<int>(begin[6]);
  if (version < 1 || version > 3)
    archive.fail(m.at, m.name + " is of .npy version " + std::to_string(version) + "; expected 1 to 3");
  const size_t first = version == 1 ? 10 : 12;
  const size_t length = version == 1 ? load<uint16_t>(begin.data() + 8) : load<uint32_t>(begin.data() + 8);
  if (length > kLongestNpyHeader || length > begin.size() - first) archive.fail(m.at, m.name + " ends within its header");
  return {{reinterpret_cast<const char*>(begin.data() + first), length}, first + length};
}

// Expands `packed` into `to`, which it must fill.
bool inflate_into(ZipBytes packed, std::span<std::byte> to) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
  size_t done = 0, taken = 0;
  int state = Z_OK;
  while (state == Z_OK && done < to.size()) {
    const size_t in = std::min<size_t>(packed.size() - taken, 1 << 30), out = std::min<size_t>(to.size() - done, 1 << 30);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(to.data() + done);
    stream.avail_out = static_cast<uInt>(out);
    state = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    done += out - stream.avail_out;
    if (in == stream.avail_in && out == stream.avail_out) break;
  }
  inflateEnd(&stream);
  return done == to.size();
}

void check_checksum(const ZipArchive& archive, const ZipMember& m, ZipBytes content) {
  if (crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) != m.checksum)
    archive.fail(m.at, m.name + " does not match the archive's checksum: the file is damaged");
}

void add_array(const ZipArchive& archive, const ZipMember& m, const std::string& path, Checkpoint& into) {
  if ((m.flags & 1) != 0) archive.fail(m.at, m.name + " is encrypted");
  if (m.method != 0 && m.method != 8)
    archive.fail(m.at, m.name + " is compressed by method " + std::to_string(m.method) + "; expected 0 (stored) or 8 (deflate)");
  const ZipBytes packed = archive.content(m);
  if (m.method == 0 && m.packed != m.size) archive.fail(m.at, m.name + " is stored, but its two sizes differ");
  std::vector<std::byte> begin;
  if (m.method == 8) {
    begin.resize(static_cast<size_t>(std::min<uint64_t>(m.size, kLongestNpyHeader + 12)));
    if (!inflate_into(packed, begin)) archive.fail(m.at, m.name + " cannot be expanded");
  }
  const NpyHeader header = npy_header(archive, m, m.method == 8 ? ZipBytes(begin) : packed);
  const auto sizes = npy_sizes(behind_key(header.text, "'shape'"));
  const std::string_view order = behind_key(header.text, "'fortran_order'"), descr = behind_key(header.text, "'descr'");
  if (!sizes || descr.empty() || order.empty())
    archive.fail(m.at, m.name + " has the header " + header.text + "; expected descr, fortran_order and shape");
  const std::string name = m.name.substr(0, m.name.size() - 4);
  const auto type = npy_type(descr);
  if (!type) {
    into.add_unreadable(name, {std::string(descr.substr(0, descr.find(','))), &path, static_cast<size_t>(m.at)});
    return;
  }
  if (order.starts_with("True") && sizes->size() > 1)
    archive.fail(m.at, m.name + " is in Fortran order; save it with numpy.ascontiguousarray");
  const auto count = checked_product(*sizes);
  const uint64_t bytes = count ? row_bytes(*type, static_cast<size_t>(*count)) : 0;
  if (!count || bytes != m.size - header.bytes)
    archive.fail(m.at, m.name + " is of shape " + std::string(behind_key(header.text, "'shape'")) + " but holds " +
                           std::to_string(m.size - header.bytes) + " bytes of elements");
  StoredTensor tensor{
      name, *type, {sizes->begin(), sizes->end()}, nullptr, static_cast<size_t>(bytes), &path, static_cast<size_t>(m.at)};
  if (m.method == 0) {
    check_checksum(archive, m, packed);
    tensor.data = packed.data() + header.bytes;
    into.add(std::move(tensor));
    return;
  }
  // Deflate makes at most 1032 bytes of one.
  if (m.size / 1032 > m.packed) archive.fail(m.at, m.name + " cannot hold the " + std::to_string(m.size) + " bytes that it says");
  std::vector<std::byte> whole(static_cast<size_t>(m.size));
  if (!inflate_into(packed, whole)) archive.fail(m.at, m.name + " cannot be expanded");
  check_checksum(archive, m, whole);
  std::copy_n(whole.data() + header.bytes, bytes, into.add_new(std::move(tensor)));
}

}  // namespace

void read_npz(std::span<const std::byte> bytes, const std::string& file, Checkpoint& into) {
  refuse_pointer_file(bytes, file);
  const ZipArchive archive(bytes, file);
  uint64_t taken = 0;
  for (const ZipMember& m : archive.members()) {
    if (!m.name.ends_with(".npy") || m.name.size() == 4) continue;
    if (m.packed > bytes.size() - taken) archive.fail(m.at, "arrays of the archive overlap");
    taken += m.packed;
    add_array(archive, m, file, into);
  }
}

Checkpoint open_npz(const std::string& path) {
  Checkpoint result(path);
  const MappedFile& file = result.own(MappedFile::open(path));
  read_npz(file.bytes(), file.path(), result);
  return result;
}

}  // namespace vitrine
