#include "model/gguf_output.h"

#include <array>

#include "base/error.h"
#include "model/export.h"

namespace vitrine {

GgufOutput::GgufOutput(const std::string& path, const GgufKeys& keys, const std::vector<TensorPlan>& tensors,
                       const std::string& made_from)
    : layout_(gguf_layout(path, keys, tensors)), path_(path), file_(path, made_from), began_anew_(file_.began_anew()) {
  const auto header = std::as_bytes(std::span(layout_.header));
  if (made_from.empty() || file_.written() > layout_.size || (file_.written() >= header.size() && !file_.begins_with(header))) {
    began_anew_ = began_anew_ || (file_.written() > 0 && !made_from.empty());
    file_.cut(0);
  }
  if (file_.written() >= header.size()) {
    kept_ = file_.written();
  } else {
    file_.cut(0);
    file_.append(header);
  }
}

bool GgufOutput::has(size_t tensor, uint64_t offset, uint64_t bytes) {
  const uint64_t begin = layout_.begin[tensor] + offset;
  if (begin + bytes <= file_.written()) return true;
  file_.cut(begin);
  return false;
}

void GgufOutput::write(size_t tensor, std::span<const std::byte> data, uint64_t offset) {
  VITRINE_CHECK(offset + data.size() <= layout_.bytes[tensor], "a tensor takes the bytes it was planned with");
  pad_to(layout_.begin[tensor] + offset);
  VITRINE_CHECK(file_.written() == layout_.begin[tensor] + offset, "tensors are written in the order of the file");
  file_.append(data);
}

void GgufOutput::pad_to(uint64_t at) {
  constexpr std::array<std::byte, 32> kZeros{};
  if (at > file_.written() && at - file_.written() < kZeros.size()) file_.append(std::span(kZeros).first(at - file_.written()));
}

void GgufOutput::finish() {
  pad_to(layout_.size);
  VITRINE_CHECK(file_.written() == layout_.size, "all tensors are written");
  ModelFiles written;
  written.kind = ModelFiles::Kind::gguf;
  written.name = path_;
  written.weights = file_.bytes_path();
  try {
    check_written(written, path_);
  } catch (...) {  // would come again
    file_.discard();
    throw;
  }
  file_.finish();
}

WorkEstimate::WorkEstimate(std::vector<double> numbers, std::vector<double> seconds_each)
    : seconds_each_(std::move(seconds_each)) {
  for (size_t i = 0; i < numbers.size(); ++i) all_ += numbers[i] * seconds_each_[i];
}

}  // namespace vitrine
