#include "io/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/file_checks.h"

namespace vitrine {

static_assert(std::endian::native == std::endian::little, "files are little-endian and used where they lie");

namespace {

constexpr uint32_t kMostDimensions = 4;  // ggml's own limit
constexpr int kDeepestArray = 4;

std::string_view characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Names of ggml's element types by number (ggml.h, enum ggml_type); empty: removed from the format.
constexpr std::array<std::string_view, 40> kTypeNames = {
    "F32",    "F16",   "Q4_0",  "Q4_1",   "",      "",      "Q5_0",    "Q5_1",   "Q8_0",    "Q8_1",
    "Q2_K",   "Q3_K",  "Q4_K",  "Q5_K",   "Q6_K",  "Q8_K",  "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S",
    "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS", "I8",    "I16",   "I32",     "I64",    "F64",     "IQ1_M",
    "BF16",   "",      "",      "",       "TQ1_0", "TQ2_0", "",        "",       "",        "MXFP4"};

std::optional<DType> readable(uint32_t type) {
  switch (type) {
    case 0: return DType::f32;
    case 1: return DType::f16;
    case 2: return DType::q4_0;
    case 8: return DType::q8_0;
#define VITRINE_NUMBER(name, elements, bytes, number) \
  case number: return DType::name;
      VITRINE_DECODED_TYPES(VITRINE_NUMBER)
#undef VITRINE_NUMBER
    case 26: return DType::i32;
    case 27: return DType::i64;
    case 28: return DType::f64;
    case 30: return DType::bf16;
    default: return std::nullopt;
  }
}

}  // namespace

/// Walks one file. Everything it hands out was checked against the bytes that are there.
///   "GGUF", u32 version, u64 tensors, u64 keys; keys: string name, u32 type, value;
///   tensors: string name, u32 n, n u64 sizes (innermost first), u32 type, u64 offset; padding; data.
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  void read(Gguf& into) {
    into.metadata.path_ = file_;
    const auto [tensors, keys] = read_preamble(into.version);
    for (uint64_t i = 0; i < keys; ++i) read_key(i, into.metadata.values_);
    const int64_t alignment = into.metadata.integer("general.alignment", 32);
    if (alignment < 8 || alignment > 65536 || (alignment & (alignment - 1)) != 0)
      throw FileError(file_,
                      "key \"general.alignment\" is " + std::to_string(alignment) + "; expected a power of two from 8 to 65536");
    alignment_ = static_cast<uint64_t>(alignment);
    read_tensors(tensors, into.checkpoint);
  }

 private:
  struct Placed {
    StoredTensor tensor;
    uint64_t offset;
    std::string unreadable;
  };

  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(file_, problem + " (byte " + std::to_string(at_) + " of " + std::to_string(bytes_.size()) + ")");
  }
  uint64_t left() const { return bytes_.size() - at_; }

  template <class T>
  T take(const std::string& what) {
    return load<T>(skip(sizeof(T), what).data());
  }
  std::span<const std::byte> skip(uint64_t n, const std::string& what) {
    if (n > left()) fail("ends inside " + what + ". Is the download complete?");
    const auto taken = bytes_.subspan(at_, n);
    at_ += n;
    return taken;
  }
  std::span<const std::byte> take_string(const std::string& what) {
    const uint64_t length = take<uint64_t>(what);
    if (length > left())
      fail(what + " claims " + std::to_string(length) + " characters where " + std::to_string(left()) +
           " bytes are left. Is the download complete?");
    return skip(length, what);
  }

  std::pair<uint64_t, uint64_t> read_preamble(uint32_t& version) {
    refuse_pointer_file(bytes_, file_);
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      throw FileError(file_, "does not begin with \"GGUF\"; is it a GGUF file?");
    at_ = 4;
    version = take<uint32_t>("the preamble");
    if (version == 0x02000000u || version == 0x03000000u)
      throw FileError(file_, "is a big-endian GGUF file; expected little-endian. Convert it again for this machine");
    if (version != 2 && version != 3)
      throw FileError(file_,
                      "has GGUF version " + std::to_string(version) + "; versions 2 and 3 are read. Convert the model again");
    const uint64_t tensors = take<uint64_t>("the preamble"), keys = take<uint64_t>("the preamble");
    // The least that a description takes: a claim beyond the file is refused before anything is made of it.
    if (keys > left() / 13) fail("claims " + std::to_string(keys) + " keys, more than its bytes can hold");
    if (tensors > left() / 24) fail("claims " + std::to_string(tensors) + " tensors, more than its bytes can hold");
    return {tensors, keys};
  }

  GgufType take_type(const std::string& what) {
    const uint32_t type = take<uint32_t>(what);
    if (type > static_cast<uint32_t>(GgufType::f64)) fail(what + " has the unknown type " + std::to_string(type));
    return static_cast<GgufType>(type);
  }

  void read_key(uint64_t number, std::map<std::string_view, GgufMetadata::Value>& values) {
    const std::string_view key = characters(take_string("the name of key " + std::to_string(number)));
    const std::string what = "key \"" + std::string(key) + "\"";
    GgufMetadata::Value value;
    value.type = take_type(what);
    value.at = at_;
    if (value.type == GgufType::array) {
      value.element = take_type(what);
      value.count = take<uint64_t>(what);
      const size_t first = at_;
      skip_elements(value.element, value.count, what, 1);
      value.bytes = bytes_.subspan(first, at_ - first);
    } else {
      value.bytes = value.type == GgufType::string ? take_string(what) : skip(size_of(value.type), what);
    }
    if (value.type == GgufType::flag && load<uint8_t>(value.bytes.data()) > 1)
      fail(what + " is a bool of value " + std::to_string(load<uint8_t>(value.bytes.data())) + "; expected 0 or 1");
    if (!values.emplace(key, value).second) fail(what + " appears twice");
  }

  void skip_elements(GgufType type, uint64_t count, const std::string& what, int depth) {
    const size_t least = type == GgufType::string ? 8 : type == GgufType::array ? 12 : size_of(type);
    if (count > left() / least)
      fail(what + " claims " + std::to_string(count) + " elements, more than the bytes left can hold. Is the download complete?");
    if (type == GgufType::string) {
      for (uint64_t i = 0; i < count; ++i) take_string(what);
    } else if (type == GgufType::array) {
      if (depth == kDeepestArray) fail(what + " nests arrays deeper than " + std::to_string(kDeepestArray) + " levels");
      for (uint64_t i = 0; i < count; ++i) {
        const GgufType inner = take_type(what);
        const uint64_t inner_count = take<uint64_t>(what);
        skip_elements(inner, inner_count, what, depth + 1);
      }
    } else {
      skip(count * least, what);
    }
  }

  void read_tensors(uint64_t count, Checkpoint& into) {
    std::vector<Placed> placed;
    placed.reserve(count);  // at most a 24th of the file's size, see read_preamble
    for (uint64_t i = 0; i < count; ++i) placed.push_back(describe(i));

    const uint64_t padded = (alignment_ - at_ % alignment_) % alignment_;
    const uint64_t data_at = count == 0 || padded > left() ? bytes_.size() : at_ + padded;
    const std::span<const std::byte> data = bytes_.subspan(data_at);
    std::vector<size_t> order(placed.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return std::pair(placed[a].offset, placed[a].tensor.bytes) < std::pair(placed[b].offset, placed[b].tensor.bytes);
    });
    uint64_t end = 0;
    for (const size_t i : order) {
      const Placed& p = placed[i];
      const std::string what =
          "tensor \"" + p.tensor.name + "\" (described at byte " + std::to_string(p.tensor.described_at) + ")";
      if (p.offset % alignment_ != 0)
        throw FileError(file_, what + " begins at data byte " + std::to_string(p.offset) + ", no multiple of the alignment " +
                                   std::to_string(alignment_));
      if (p.offset > data.size() || p.tensor.bytes > data.size() - p.offset)
        throw FileError(file_, what + " takes " + std::to_string(p.tensor.bytes) + " bytes from data byte " +
                                   std::to_string(p.offset) + ", but the file has only " + std::to_string(data.size()) +
                                   " data bytes. Is the download complete?");
      if (p.offset < end)
        throw FileError(file_, what + " begins at data byte " + std::to_string(p.offset) +
                                   ", inside the tensor before it, which ends at " + std::to_string(end));
      if (p.unreadable.empty()) end = p.offset + p.tensor.bytes;
    }
    for (Placed& p : placed) {
      if (!p.unreadable.empty()) {
        into.add_unreadable(p.tensor.name, {p.unreadable, &file_, p.tensor.described_at});
        continue;
      }
      p.tensor.data = data.data() + p.offset;
      into.add(std::move(p.tensor));
    }
  }

  Placed describe(uint64_t number) {
    Placed p;
    p.tensor.described_at = at_;
    p.tensor.file = &file_;
    p.tensor.name = characters(take_string("the name of tensor " + std::to_string(number)));
    const std::string what = "tensor \"" + p.tensor.name + "\"";
    const uint32_t dimensions = take<uint32_t>(what);
    if (dimensions > kMostDimensions)
      fail(what + " has " + std::to_string(dimensions) + " dimensions; at most " + std::to_string(kMostDimensions) + " exist");
    std::vector<uint64_t> sizes(dimensions);
    for (uint64_t& size : sizes) size = take<uint64_t>(what);
    const std::optional<uint64_t> elements = checked_product(sizes);
    if (!elements) fail(what + " has a shape too large for any file");
    const uint64_t row = sizes.empty() ? 1 : sizes.front();
    p.tensor.shape.assign(sizes.rbegin(), sizes.rend());
    const uint32_t type = take<uint32_t>(what);
    p.offset = take<uint64_t>(what);
    if (const std::optional<DType> known = readable(type)) {
      p.tensor.dtype = *known;
      if (row % block_elements(*known) != 0)
        fail(what + " of type " + std::string(kTypeNames[type]) + " has rows of " + std::to_string(row) +
             " elements; expected a multiple of " + std::to_string(block_elements(*known)));
      p.tensor.bytes = row_bytes(*known, *elements);
    } else {
      p.tensor.dtype = DType::u8;
      p.tensor.bytes = 0;
      p.unreadable = type < kTypeNames.size() && !kTypeNames[type].empty() ? std::string(kTypeNames[type])
                                                                           : "number " + std::to_string(type);
    }
    return p;
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  size_t at_ = 0;
  uint64_t alignment_ = 32;
};

Gguf read_gguf(std::span<const std::byte> bytes, const std::string& file) {
  Gguf gguf{0, {}, Checkpoint(file)};
  GgufParser(bytes, file).read(gguf);
  return gguf;
}

namespace {

/// "m-00001-of-00003.gguf", 3 -> the paths of parts 2 and 3.
std::vector<std::string> other_parts(const std::string& path, int64_t parts) {
  const auto number = [](int64_t n) {
    std::string digits = std::to_string(n);
    return digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  };
  const std::string first = number(1), ending = std::string("-of-").append(number(parts)).append(".gguf");
  if (!path.ends_with(std::string("-").append(first).append(ending)))
    throw FileError(path, "is part of a model split into " + std::to_string(parts) +
                              " files; give the first, whose name ends in -" + first + ending);
  std::vector<std::string> paths;
  for (int64_t part = 2; part <= parts; ++part) {
    paths.push_back(path.substr(0, path.size() - ending.size() - 5) + number(part) + ending);
    if (!present(paths.back()))
      throw FileError(path, "is the first of " + std::to_string(parts) + " parts, but " + paths.back() +
                                " does not exist. Is the download complete?");
  }
  return paths;
}

}  // namespace

Gguf open_gguf(const std::string& path) {
  constexpr int64_t kMostParts = 99999;
  Gguf gguf{0, {}, Checkpoint(path)};
  const MappedFile& file = gguf.checkpoint.own(MappedFile::open(path));
  GgufParser(file.bytes(), file.path()).read(gguf);
  const int64_t parts = gguf.metadata.integer("split.count", 0);
  if (parts < 0 || parts > kMostParts) throw FileError(path, "key \"split.count\" is " + std::to_string(parts));
  if (parts <= 1) return gguf;
  for (const std::string& other : other_parts(path, parts)) {
    const MappedFile& mapped = gguf.checkpoint.own(MappedFile::open(other));
    Gguf part{0, {}, std::move(gguf.checkpoint)};
    GgufParser(mapped.bytes(), mapped.path()).read(part);
    gguf.checkpoint = std::move(part.checkpoint);
  }
  const int64_t tensors = gguf.metadata.integer("split.tensors.count", -1);
  const size_t found = gguf.checkpoint.tensors().size() + gguf.checkpoint.unreadable().size();
  if (tensors >= 0 && static_cast<size_t>(tensors) != found)
    throw FileError(path, "and its parts hold " + std::to_string(found) + " tensors; expected " + std::to_string(tensors) +
                              " (key \"split.tensors.count\"). Do all parts come from the same model?");
  return gguf;
}

}  // namespace vitrine
