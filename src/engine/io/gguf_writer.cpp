#include "io/gguf_writer.h"

#include <set>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "io/tensor_file.h"

namespace vitrine {
namespace {

constexpr uint64_t kAlignment = 32;

/// The numbers of ggml's element types.
std::optional<uint32_t> type_number(DType type) {
  switch (type) {
    case DType::f32: return 0;
    case DType::f16: return 1;
    case DType::q4_0: return 2;
    case DType::q8_0: return 8;
#define VITRINE_NUMBER(name, elements, bytes, number) \
  case DType::name: return number;
      VITRINE_DECODED_TYPES(VITRINE_NUMBER)
#undef VITRINE_NUMBER
    case DType::i32: return 26;
    case DType::i64: return 27;
    case DType::f64: return 28;
    case DType::bf16: return 30;
    case DType::f8_e4m3:
    case DType::u8: return std::nullopt;
  }
  return std::nullopt;
}

template <class T>
constexpr GgufType type_of() {
  if constexpr (std::is_same_v<T, uint8_t>) return GgufType::u8;
  if constexpr (std::is_same_v<T, int8_t>) return GgufType::i8;
  if constexpr (std::is_same_v<T, uint16_t>) return GgufType::u16;
  if constexpr (std::is_same_v<T, int16_t>) return GgufType::i16;
  if constexpr (std::is_same_v<T, uint32_t>) return GgufType::u32;
  if constexpr (std::is_same_v<T, int32_t>) return GgufType::i32;
  if constexpr (std::is_same_v<T, uint64_t>) return GgufType::u64;
  if constexpr (std::is_same_v<T, int64_t>) return GgufType::i64;
  if constexpr (std::is_same_v<T, float>) return GgufType::f32;
  if constexpr (std::is_same_v<T, double>) return GgufType::f64;
  if constexpr (std::is_same_v<T, bool>) return GgufType::flag;
  if constexpr (std::is_same_v<T, std::string>) return GgufType::string;
  return GgufType::array;
}

/// Collects the header.
struct Header {
  std::string bytes;

  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      put(uint64_t{value.size()});
      bytes += value;
    } else {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
  }
  void put_type(GgufType type) { put(static_cast<uint32_t>(type)); }
  void put_bytes(std::span<const std::byte> span) { bytes.append(reinterpret_cast<const char*>(span.data()), span.size()); }

  template <class T>
  void put_value(const T& value) {
    put_type(type_of<T>());
    put(value);
  }
  template <class T>
  void put_value(const std::vector<T>& values) {
    put_type(GgufType::array);
    put_type(type_of<T>());
    put(uint64_t{values.size()});
    for (const T& value : values) put(value);
  }
  void put_value(const GgufMetadata::Value& value) {
    put_type(value.type);
    if (value.type == GgufType::string) put(uint64_t{value.bytes.size()});
    if (value.type == GgufType::array) {
      put_type(value.element);
      put(value.count);
    }
    put_bytes(value.bytes);
  }
  void pad() { bytes.append((kAlignment - bytes.size() % kAlignment) % kAlignment, '\0'); }
};

}  // namespace

GgufLayout gguf_layout(const std::string& path, const GgufKeys& keys, const std::vector<TensorPlan>& tensors) {
  constexpr size_t kMostDimensions = 4;
  GgufLayout layout;
  layout.bytes = planned_bytes(path, tensors);
  Header header{"GGUF"};
  header.put(uint32_t{3});
  header.put(uint64_t{tensors.size()});
  header.put(uint64_t{keys.size()});
  std::set<std::string_view> names;
  for (const auto& [key, value] : keys) {
    if (!names.insert(key).second) throw UsageError(path + ": the key \"" + key + "\" is set twice");
    if (key == "general.alignment") throw UsageError(path + ": the key \"general.alignment\" is not to be set; it is always 32");
    header.put(key);
    std::visit([&](const auto& v) { header.put_value(v); }, value);
  }
  uint64_t at = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorPlan& tensor = tensors[i];
    const std::optional<uint32_t> type = type_number(tensor.dtype);
    if (!type)
      throw UsageError(path + ": tensor \"" + tensor.name + "\" is " + std::string(name_of(tensor.dtype)) +
                       ", a type that GGUF lacks");
    if (tensor.shape.size() > kMostDimensions)
      throw UsageError(path + ": tensor \"" + tensor.name + "\" has the shape " + shape_text(tensor.shape) +
                       "; GGUF holds at most 4 dimensions");
    header.put(tensor.name);
    header.put(static_cast<uint32_t>(tensor.shape.size()));
    for (size_t d = tensor.shape.size(); d-- > 0;) header.put(static_cast<uint64_t>(tensor.shape[d]));
    header.put(*type);
    header.put(at);
    layout.begin.push_back(at);
    at += (layout.bytes[i] + kAlignment - 1) / kAlignment * kAlignment;
  }
  header.pad();
  for (uint64_t& begin : layout.begin) begin += header.bytes.size();
  layout.size = header.bytes.size() + at;
  layout.header = std::move(header.bytes);
  return layout;
}

GgufWriter::GgufWriter(const std::string& path, const GgufKeys& keys, std::vector<TensorPlan> tensors) {
  GgufLayout layout = gguf_layout(path, keys, tensors);
  state_ = std::make_unique<TensorFile>(path, std::move(tensors), std::move(layout.bytes));
  state_->file.write_at(0, std::as_bytes(std::span(layout.header)));
  // The padding behind the last tensor belongs to the file too.
  constexpr std::byte kZero{0};
  if (layout.size > layout.header.size()) state_->file.write_at(layout.size - 1, {&kZero, 1});
  state_->begin = std::move(layout.begin);
}

GgufWriter::~GgufWriter() = default;
GgufWriter::GgufWriter(GgufWriter&&) noexcept = default;
GgufWriter& GgufWriter::operator=(GgufWriter&&) noexcept = default;

void GgufWriter::write(size_t index, std::span<const std::byte> data, size_t offset) {
  VITRINE_CHECK(state_ != nullptr, "a writer takes nothing after finish()");
  state_->write(index, data, offset);
}

void GgufWriter::finish() {
  VITRINE_CHECK(state_ != nullptr, "a writer finishes once");
  state_->finish();
  state_.reset();
}

}  // namespace vitrine
