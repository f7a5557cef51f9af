#include "model/fingerprint.h"

#include <algorithm>
#include <cstdio>

#include "base/checksum.h"
#include "io/gguf.h"
#include "model/registry.h"

namespace vitrine {
namespace {

// Sums up every number of a model, with its names and shapes.
struct Fingerprint {
  uint64_t sum = 0;
  void add(const TensorLine& line) {
    if (line.vector != nullptr) return add(*line.vector, line);
    const Weight& weight = *line.weight;
    add_text(line.ours + " " + std::to_string(weight.out) + " " + std::to_string(weight.in) + " " +
             std::to_string(static_cast<int>(weight.dtype)));
    const int64_t rows = weight.by_columns ? weight.in : weight.out;
    const size_t bytes = row_bytes(weight.dtype, static_cast<size_t>(weight.by_columns ? weight.out : weight.in));
    for (int64_t r = 0; r < rows; ++r) add({weight.stored_row(r), bytes});
  }
  void add(const Vector& vector, const TensorLine& line) {
    add_text(line.ours);
    for (int64_t i = 0; i < vector.size; ++i) {
      const float x = vector.at<float>(i);
      add(std::as_bytes(std::span(&x, 1)));
    }
  }
  void add_text(const std::string& text) { add(std::as_bytes(std::span(text.data(), text.size()))); }
  void add(std::span<const std::byte> bytes) { sum = add_to_fingerprint(sum, bytes); }
};

}  // namespace

uint64_t fingerprint_of(const OpenedModel& opened) {
  Fingerprint fingerprint;
  fingerprint.add_text(without_dropout(opened.files.config).dump());
  if (opened.gguf != nullptr) fingerprint.add_text(opened.gguf->config().dump());
  for (const char* name : {"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"})
    if (const StoredTensor* divisors = opened.checkpoint.find(name))  // beside the table of weights
      fingerprint.add({divisors->data, divisors->bytes});
  for (const TensorLine& line : opened.model->tensors()) fingerprint.add(line);
  return fingerprint.sum;
}

uint64_t add_to_fingerprint(uint64_t sum, std::span<const std::byte> bytes) {
  const size_t whole = bytes.size() / 8 * 8;
  std::byte last[8] = {};
  std::copy(bytes.begin() + static_cast<ptrdiff_t>(whole), bytes.end(), last);
  return word_checksum(word_checksum(sum, bytes.first(whole)) + bytes.size(), last);
}

std::string hexadecimal(uint64_t number) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

}  // namespace vitrine
