#include "io/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "io/file_checks.h"

namespace vitrine {
namespace {

static_assert(std::endian::native == std::endian::little, "files are little-endian and used where they lie");

constexpr uint64_t kLongestHeader = 100'000'000;  // the limit of the format's own library
constexpr size_t kMostListed = 8;

struct TypeName {
  std::string_view name;
  size_t bits;
  std::optional<DType> type;  // none: vitrine cannot read it
};
constexpr std::array kTypes = {
    TypeName{"F64", 64, DType::f64},      TypeName{"F32", 32, DType::f32},      TypeName{"F16", 16, DType::f16},
    TypeName{"BF16", 16, DType::bf16},    TypeName{"I64", 64, DType::i64},      TypeName{"I32", 32, DType::i32},
    TypeName{"U8", 8, DType::u8},         TypeName{"I8", 8, std::nullopt},      TypeName{"I16", 16, std::nullopt},
    TypeName{"U16", 16, std::nullopt},    TypeName{"U32", 32, std::nullopt},    TypeName{"U64", 64, std::nullopt},
    TypeName{"BOOL", 8, std::nullopt},    TypeName{"C64", 64, std::nullopt},    TypeName{"F8_E4M3", 8, std::nullopt},
    TypeName{"F8_E5M2", 8, std::nullopt}, TypeName{"F8_E8M0", 8, std::nullopt}, TypeName{"F6_E2M3", 6, std::nullopt},
    TypeName{"F6_E3M2", 6, std::nullopt}, TypeName{"F4", 4, std::nullopt},
};

/// A header entry as it was written, before any check.
struct Entry {
  std::string name, type;
  std::vector<uint64_t> shape, offsets;
  size_t described_at = 0;
  std::set<std::string> fields;
};

/// Reads the header without building a tree of it, and knows at which byte it stands.
///   { "__metadata__": {string: string}, name: {"dtype": string, "shape": [int], "data_offsets": [begin, end]}, ... }
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(std::string_view text, const std::string& file) : text_(text), at_(text.data()), file_(file) {}

  void read() {
    Cursor first{text_.data(), &at_};  // NOLINT(bugprone-suspicious-stringview-data-usage): the end is a cursor of its own
    if (!Json::sax_parse(first, Cursor{text_.data() + text_.size(), nullptr}, this)) fail("the header is not valid JSON");
  }
  std::vector<Entry> entries;
  Checkpoint::Metadata metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a number that is not a 64-bit integer"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (list_ == nullptr) return unexpected("a number");
    if (list_->size() == kMostListed)
      fail("tensor \"" + entries.back().name + "\" lists more than " + std::to_string(kMostListed) + " numbers");
    list_->push_back(value);
    return true;
  }
  bool string(string_t& value) override {
    if (where_ == Where::metadata) {
      metadata[key_] = value;
    } else if (where_ == Where::entry && key_ == "dtype") {
      entries.back().type = value;
    } else {
      return unexpected("a string");
    }
    return true;
  }
  bool start_object(std::size_t) override {
    if (where_ == Where::outside && !begun_) {
      begun_ = true;
      where_ = Where::top;
    } else if (where_ == Where::top) {
      where_ = key_ == "__metadata__" ? Where::metadata : Where::entry;
    } else {
      return unexpected("an object");
    }
    return true;
  }
  bool key(string_t& name) override {
    // The parser stands behind the closing quote. A name with escapes is longer in the file: then this is close.
    const size_t behind = static_cast<size_t>(at_ - text_.data());
    const size_t at = 8 + behind - std::min(behind, name.size() + 2);
    key_ = name;
    bool is_new = true;
    if (where_ == Where::top) {
      is_new = names_.insert(name).second;
      if (name != "__metadata__" && is_new) {
        entries.emplace_back();
        entries.back().name = name;
        entries.back().described_at = at;
      }
    } else if (where_ == Where::metadata) {
      is_new = !metadata.contains(name);
    } else {
      is_new = entries.back().fields.insert(name).second;
      if (name != "dtype" && name != "shape" && name != "data_offsets")
        fail("tensor \"" + entries.back().name + "\" has the unknown field \"" + name +
             "\"; expected dtype, shape and data_offsets");
    }
    if (!is_new) fail("the name \"" + name + "\" appears twice; remove one of them");
    return true;
  }
  bool end_object() override {
    where_ = where_ == Where::top ? Where::outside : Where::top;
    return true;
  }
  bool start_array(std::size_t) override {
    if (where_ != Where::entry || key_ == "dtype" || list_ != nullptr) return unexpected("a list");
    list_ = key_ == "shape" ? &entries.back().shape : &entries.back().offsets;
    return true;
  }
  bool end_array() override {
    list_ = nullptr;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    fail("the header is not valid JSON");
  }

 private:
  enum class Where { outside, top, metadata, entry };

  /// Walks the text and tells how far the parser has come.
  struct Cursor {
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = const char*;
    using reference = const char&;
    const char* p;
    const char** seen;
    reference operator*() const { return *p; }
    Cursor& operator++() {
      *seen = ++p;
      return *this;
    }
    bool operator==(const Cursor& other) const { return p == other.p; }
    bool operator!=(const Cursor& other) const { return p != other.p; }
  };

  bool unexpected(const std::string& what) {
    std::string place = "the header";
    if (where_ == Where::top) place = "\"" + key_ + "\"";
    if (where_ == Where::metadata) place = "\"__metadata__\", \"" + key_ + "\"";
    if (where_ == Where::entry) place = "tensor \"" + entries.back().name + "\", field \"" + key_ + "\"";
    fail(place + ": found " + what + ", which does not belong there");
  }
  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(file_, problem + " (byte " + std::to_string(8 + (at_ - text_.data())) + "). Is this a safetensors file?");
  }

  std::string_view text_;
  const char* at_;
  const std::string& file_;
  Where where_ = Where::outside;
  bool begun_ = false;
  std::string key_;
  std::set<std::string> names_;
  std::vector<uint64_t>* list_ = nullptr;
};

/// Turns an entry into a tensor at its place in `data`. Errors name the tensor and the byte that describes it.
struct Placed {
  const Entry* entry;
  std::vector<int64_t> shape;
  std::optional<DType> type;
  uint64_t begin, end;
};

Placed place(const Entry& entry, uint64_t data_size, const std::string& file) {
  const auto fail = [&](const std::string& problem) -> void {
    throw FileError(file, "tensor \"" + entry.name + "\" (header byte " + std::to_string(entry.described_at) + ") " + problem);
  };
  for (const char* field : {"dtype", "shape", "data_offsets"})
    if (!entry.fields.contains(field)) fail(std::string("lacks the field ") + field);
  if (entry.offsets.size() != 2) fail("has " + std::to_string(entry.offsets.size()) + " data_offsets; expected 2 (begin, end)");

  Placed placed{&entry, {}, std::nullopt, entry.offsets[0], entry.offsets[1]};
  if (placed.begin > placed.end)
    fail("begins at " + std::to_string(placed.begin) + " behind its end " + std::to_string(placed.end));
  if (placed.end > data_size)
    fail("ends at data byte " + std::to_string(placed.end) + ", but the file has only " + std::to_string(data_size) +
         " data bytes. Is the download complete?");
  const std::optional<uint64_t> elements = checked_product(entry.shape);
  std::string shape;
  for (const uint64_t n : entry.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(n);
  if (!elements) fail("has the shape [" + shape + "], too large for any file");
  placed.shape.assign(entry.shape.begin(), entry.shape.end());

  const auto known = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeName& t) { return t.name == entry.type; });
  if (known == kTypes.end()) return placed;  // of unknown size: refused when it is asked for
  placed.type = known->type;
  // checked_product leaves room for 64 bits an element
  const uint64_t bits = *elements * known->bits, expected = bits / 8 + (bits % 8 != 0);
  if (placed.end - placed.begin != expected)
    fail("of type " + entry.type + " and shape [" + shape + "] has " + std::to_string(placed.end - placed.begin) +
         " bytes; expected " + std::to_string(expected));
  return placed;
}

}  // namespace

void read_safetensors(std::span<const std::byte> bytes, const std::string& file, Checkpoint& into) {
  refuse_pointer_file(bytes, file);
  if (bytes.size() < 8)
    throw FileError(
        file, "has " + std::to_string(bytes.size()) +
                  " bytes; a safetensors file begins with 8 bytes that tell its header's length. Is the download complete?");
  const uint64_t header_size = load<uint64_t>(bytes.data());
  const size_t rest = bytes.size() - 8;
  if (header_size > kLongestHeader && bytes[0] == std::byte{'{'})
    throw FileError(file,
                    "is JSON, not a safetensors file. Does an index name itself, or another index, as the file of a tensor?");
  if (header_size > kLongestHeader)
    throw FileError(file, "claims a header of " + std::to_string(header_size) + " bytes; at most " +
                              std::to_string(kLongestHeader) + " are allowed. Is this a safetensors file?");
  if (header_size > rest)
    throw FileError(file, "claims a header of " + std::to_string(header_size) + " bytes, but only " + std::to_string(rest) +
                              " follow. Is the download complete?");
  const auto data_begin = static_cast<size_t>(8 + header_size);
  HeaderReader header({reinterpret_cast<const char*>(bytes.data()) + 8, data_begin - 8}, file);
  header.read();

  const std::span<const std::byte> data = bytes.subspan(data_begin);
  std::vector<Placed> placed;
  placed.reserve(header.entries.size());
  for (const Entry& entry : header.entries) placed.push_back(place(entry, data.size(), file));
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t expected = 0;
  for (const Placed& tensor : placed) {
    if (tensor.begin != expected)
      throw FileError(file, "tensor \"" + tensor.entry->name + "\" (header byte " + std::to_string(tensor.entry->described_at) +
                                ") begins at data byte " + std::to_string(tensor.begin) + ", but the tensor before it ends at " +
                                std::to_string(expected) + "; tensors must lie one after the other, without overlap or gap");
    expected = tensor.end;
  }
  if (expected != data.size())
    throw FileError(file, "has " + std::to_string(data.size()) + " data bytes, but its tensors end at " +
                              std::to_string(expected) + ". Was something appended to the file?");
  for (Placed& tensor : placed) {
    const Entry& entry = *tensor.entry;
    const auto size = static_cast<size_t>(tensor.end - tensor.begin);
    if (!tensor.type) {
      into.add_unreadable(entry.name,
                          {entry.type, &file, entry.described_at, std::move(tensor.shape), data.data() + tensor.begin, size});
      continue;
    }
    into.add({entry.name, *tensor.type, std::move(tensor.shape), data.data() + tensor.begin, size, &file, entry.described_at});
  }
  into.set_metadata(std::move(header.metadata));
}

namespace {

void read_shards(const std::string& index_path, Checkpoint& into) {
  const Json index = read_json(index_path);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    throw FileError(index_path, "lacks the object \"weight_map\", which names the file of each tensor");
  const std::filesystem::path directory = std::filesystem::path(index_path).parent_path();
  std::map<std::string, const std::string*> shards;  // name in the index -> path of the mapped file
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string() || shard.get_ref<const std::string&>().empty())
      throw FileError(index_path, "names no file for tensor \"" + tensor + "\"");
    const std::string name = shard.get<std::string>();
    if (name.find('/') != std::string::npos || name == "." || name == "..")
      throw FileError(index_path, "places tensor \"" + tensor + "\" in \"" + name + "\"; expected a file beside the index");
    shards.emplace(name, nullptr);
  }
  for (auto& [name, mapped_path] : shards) {
    const std::filesystem::path path = directory / name;
    if (!present(path.string()))
      throw FileError(index_path, "names the shard \"" + name + "\", which is not there (of " + std::to_string(shards.size()) +
                                      " shards). Is the download complete?");
    const MappedFile& file = into.own(MappedFile::open(path.string()));
    read_safetensors(file.bytes(), file.path(), into);
    mapped_path = &file.path();
  }
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const std::string* expected = shards.at(shard.get_ref<const std::string&>());
    const auto readable = into.tensors().find(tensor);
    const auto other = into.unreadable().find(tensor);
    const std::string* found = readable != into.tensors().end()   ? readable->second.file
                               : other != into.unreadable().end() ? other->second.file
                                                                  : nullptr;
    if (found != expected)
      throw FileError(index_path, "places tensor \"" + tensor + "\" in " + *expected + ", but " +
                                      (found == nullptr ? "no shard holds it" : *found + " holds it") +
                                      ". Do index and shards come from the same model?");
  }
}

}  // namespace

Checkpoint open_safetensors(const std::string& path) {
  constexpr std::string_view kIndex = "model.safetensors.index.json";
  const std::filesystem::path given(path);
  std::filesystem::path file = given;
  if (is_folder(path)) {
    file = given / "model.safetensors";
    if (!present(file.string())) file = given / kIndex;
    if (!present(file.string()))
      throw FileError(path, "holds neither model.safetensors nor " + std::string(kIndex) + advice_on_weights(path));
  }
  Checkpoint checkpoint(path);
  if (file.extension() == ".json") {
    read_shards(file.string(), checkpoint);
  } else {
    const MappedFile& mapped = checkpoint.own(MappedFile::open(file.string()));
    read_safetensors(mapped.bytes(), mapped.path(), checkpoint);
  }
  return checkpoint;
}

}  // namespace vitrine
