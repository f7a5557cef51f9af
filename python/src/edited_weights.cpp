#include "edited_weights.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hooks/listening.h"
#include "kernels/table.h"
#include "ops/low_rank.h"
#include "quantize/encode.h"

namespace vitrine::python {
namespace {

std::unique_ptr<std::byte[]> room(size_t bytes, const std::string& name) {
  require_memory(bytes, 0, "A copy of " + name + " to be changed", "Change fewer matrices of this model");
  return std::make_unique_for_overwrite<std::byte[]>(bytes);
}

size_t bytes_of(const Weight& w, DType dtype) { return static_cast<size_t>(w.out) * row_bytes(dtype, static_cast<size_t>(w.in)); }

}  // namespace

std::byte* EditedWeights::put(Weight& w, DType dtype, std::shared_ptr<std::byte[]> data) {
  Matrix& kept = matrices_.try_emplace(&w, Matrix{w, nullptr}).first->second;
  w.data = data.get();
  w.dtype = dtype;
  w.stride = row_bytes(dtype, static_cast<size_t>(w.in));
  w.by_columns = false;
  w.adapter = nullptr;
  kept.data = std::move(data);  // the last one goes, unless an array still looks at it
  return kept.data.get();
}

float* EditedWeights::own(Weight& w) {
  const auto found = matrices_.find(&w);
  if (found != matrices_.end() && w.dtype == DType::f32) return reinterpret_cast<float*>(found->second.data.get());
  std::unique_ptr<std::byte[]> data = room(bytes_of(w, DType::f32), w.name);
  auto* const numbers = reinterpret_cast<float*>(data.get());
  for (int64_t j = 0; j < w.out; ++j) {
    float* const row = numbers + j * w.in;
    if (w.by_columns)
      for (int64_t i = 0; i < w.in; ++i) row[i] = w.at<float>(j, i);
    else
      kernels().widen[static_cast<size_t>(w.dtype)](w.stored_row(j), static_cast<size_t>(w.in), row);
    if (w.adapter != nullptr) add_merged(*w.adapter, j, row);
  }
  return reinterpret_cast<float*>(put(w, DType::f32, std::move(data)));
}

float* EditedWeights::own(Vector& v) {
  if (const auto found = vectors_.find(&v); found != vectors_.end()) return found->second.data.get();
  auto data = std::make_unique<float[]>(static_cast<size_t>(v.size));
  for (int64_t i = 0; i < v.size; ++i) data[static_cast<size_t>(i)] = v.at<float>(i);
  Numbers& kept = vectors_.emplace(&v, Numbers{v, std::move(data)}).first->second;
  v.data = kept.data.get();
  v.dtype = DType::f32;
  return kept.data.get();
}

std::shared_ptr<const void> EditedWeights::numbers_of(const Weight& w) const {
  const auto found = matrices_.find(&w);
  return found == matrices_.end() ? nullptr : found->second.data;
}

std::shared_ptr<const void> EditedWeights::numbers_of(const Vector& v) const {
  const auto found = vectors_.find(&v);
  return found == vectors_.end() ? nullptr : found->second.data;
}

const Weight& EditedWeights::original(const Weight& w) const {
  const auto found = matrices_.find(&w);
  return found == matrices_.end() ? w : found->second.before;
}

void EditedWeights::restore(Weight& w) {
  const auto found = matrices_.find(&w);
  if (found == matrices_.end()) return;
  const Weight& before = found->second.before;
  w.data = before.data;
  w.dtype = before.dtype;
  w.stride = before.stride;
  w.by_columns = before.by_columns;
  w.adapter = before.adapter;
  matrices_.erase(found);
}

void EditedWeights::restore(Vector& v) {
  const auto found = vectors_.find(&v);
  if (found == vectors_.end()) return;
  v.data = found->second.before.data;
  v.dtype = found->second.before.dtype;
  vectors_.erase(found);
}

bool EditedWeights::encode(Weight& w) {
  const auto found = matrices_.find(&w);
  if (found == matrices_.end() || w.dtype != DType::f32) return false;
  const DType type = found->second.before.dtype;
  if (type == DType::f32) return false;
  const auto width = static_cast<size_t>(w.in);
  if (!can_encode(type) || width % block_elements(type) != 0)
    throw InputError(w.name + " is " + std::string(name_of(type)) +
                     " in the file, which is not written; types that are: " + encodable_types() + ". Leave it in f32");
  std::unique_ptr<std::byte[]> data = room(bytes_of(w, type), w.name);
  const size_t bytes = row_bytes(type, width);
  std::vector<float> back(width);
  for (int64_t j = 0; j < w.out; ++j) {
    const auto* const row = reinterpret_cast<const float*>(w.stored_row(j));
    std::byte* const to = data.get() + static_cast<size_t>(j) * bytes;
    encode_row(type, row, width, nullptr, to);
    kernels().widen[static_cast<size_t>(type)](to, width, back.data());
    for (size_t i = 0; i < width; ++i)
      if (!std::isfinite(back[i]))
        throw RunError(w.name + ": number " + std::to_string(i) + " of row " + std::to_string(j) + " is " +
                       std::to_string(row[i]) + ", which " + std::string(name_of(type)) + " does not hold. Leave it in f32");
  }
  put(w, type, std::move(data));
  return true;
}

void EditedWeights::copy(const Model& model, const EditedWeights& other, const Model& of_other) {
  const std::vector<TensorLine>&mine = model.tensors(), &theirs = of_other.tensors();
  VITRINE_CHECK(mine.size() == theirs.size(), "two models of one file");
  for (size_t i = 0; i < mine.size(); ++i) {
    if (const Weight* const from = theirs[i].weight; from != nullptr && other.holds(*from)) {
      std::unique_ptr<std::byte[]> data = room(bytes_of(*from, from->dtype), from->name);
      std::memcpy(data.get(), from->data, bytes_of(*from, from->dtype));
      put(*mine[i].weight, from->dtype, std::move(data));
    }
    if (const Vector* const from = theirs[i].vector; from != nullptr && other.holds(*from))
      std::memcpy(own(*mine[i].vector), from->data, static_cast<size_t>(from->size) * sizeof(float));
  }
}

}  // namespace vitrine::python
