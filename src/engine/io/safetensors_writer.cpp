// The writing half of io/safetensors.h.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"
#include "io/tensor_file.h"

namespace vitrine {
namespace {

std::string_view type_name(DType type) {
  switch (type) {
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::f64: return "F64";
    case DType::i32: return "I32";
    case DType::i64: return "I64";
    case DType::u8: return "U8";
    default: return "";  // block types
  }
}

}  // namespace

SafetensorsLayout safetensors_layout(const std::string& path, const std::vector<TensorPlan>& tensors,
                                     const Checkpoint::Metadata& metadata) {
  for (const TensorPlan& tensor : tensors) {
    if (tensor.name == "__metadata__") throw UsageError(path + ": no tensor may be called \"__metadata__\"");
    if (type_name(tensor.dtype).empty())
      throw UsageError(path + ": tensor \"" + tensor.name + "\" is " + std::string(name_of(tensor.dtype)) +
                       "; safetensors holds float and integer types, GGUF holds block formats");
  }
  SafetensorsLayout layout;
  layout.bytes = planned_bytes(path, tensors);
  // Widest types first: without gaps, each tensor is then aligned for its type. Names decide among equals.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const size_t wide_a = block_bytes(tensors[a].dtype), wide_b = block_bytes(tensors[b].dtype);
    return wide_a != wide_b ? wide_a > wide_b : tensors[a].name < tensors[b].name;
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  layout.begin.resize(tensors.size());
  uint64_t at = 0;
  for (const size_t i : order) {
    layout.begin[i] = at;
    at += layout.bytes[i];
    header[tensors[i].name] = {
        {"dtype", type_name(tensors[i].dtype)}, {"shape", tensors[i].shape}, {"data_offsets", {layout.begin[i], at}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    throw UsageError(path + ": a name or metadata string is not valid UTF-8, which the format demands");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  layout.header.resize(8);
  std::memcpy(layout.header.data(), &length, 8);
  layout.header += text;
  for (uint64_t& b : layout.begin) b += 8 + length;
  layout.size = at + 8 + length;
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<TensorPlan> tensors,
                                     const Checkpoint::Metadata& metadata) {
  SafetensorsLayout layout = safetensors_layout(path, tensors, metadata);
  state_ = std::make_unique<TensorFile>(path, std::move(tensors), std::move(layout.bytes));
  state_->file.write_at(0, std::as_bytes(std::span(layout.header)));
  state_->begin = std::move(layout.begin);
}

SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;

void SafetensorsWriter::write(size_t index, std::span<const std::byte> data, size_t offset) {
  VITRINE_CHECK(state_ != nullptr, "a writer takes nothing after finish()");
  state_->write(index, data, offset);
}

void SafetensorsWriter::finish() {
  VITRINE_CHECK(state_ != nullptr, "a writer finishes once");
  state_->finish();
  state_.reset();
}

void write_safetensors(const std::string& path, const std::vector<TensorToWrite>& tensors, const Checkpoint::Metadata& metadata) {
  std::vector<TensorPlan> plans;
  plans.reserve(tensors.size());
  for (const TensorToWrite& tensor : tensors) plans.push_back({tensor.name, tensor.dtype, tensor.shape});
  SafetensorsWriter writer(path, std::move(plans), metadata);
  for (size_t i = 0; i < tensors.size(); ++i) {
    size_t elements = 1;
    for (const int64_t n : tensors[i].shape) elements *= static_cast<size_t>(n);
    writer.write(i, {static_cast<const std::byte*>(tensors[i].data), row_bytes(tensors[i].dtype, elements)});
  }
  writer.finish();
}

}  // namespace vitrine
