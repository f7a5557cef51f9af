#include "inspect/weights.h"

#include "base/error.h"

namespace vitrine {
NamedWeights::NamedWeights(const Model& model) : split_(model) {
  for (const TensorLine& line : model.tensors()) {
    if (line.weight != nullptr)
      matrices_[line.ours] = line.weight;
    else
      vectors_[line.ours] = line.vector;
  }
}

const Weight* NamedWeights::find_matrix(std::string_view name) const {
  const auto found = matrices_.find(name);
  return found == matrices_.end() ? split_.find(name) : found->second;
}

const Weight& NamedWeights::matrix(std::string_view name) const {
  const Weight* const found = find_matrix(name);
  if (found == nullptr) throw UsageError("the model has no matrix \"" + std::string(name) + "\"");
  return *found;
}

const Vector* NamedWeights::find_vector(std::string_view name) const {
  const auto found = vectors_.find(name);
  return found == vectors_.end() ? nullptr : found->second;
}

void FrozenNorm::apply(double* x, double scale) const {
  const size_t d = gain.size();
  double mean = 0;
  for (size_t i = 0; !rms && i < d; ++i) mean += x[i];
  mean /= static_cast<double>(d);
  for (size_t i = 0; i < d; ++i) x[i] = (x[i] - mean) / scale * gain[i];
}

FrozenNorm frozen_norm(const NamedWeights& weights, const LayerRecord& spec, const std::string& name) {
  FrozenNorm norm;
  norm.rms = spec.rms;
  if (const Vector* w = weights.find_vector(name + ".w"))
    for (int64_t i = 0; i < w->size; ++i) norm.gain.push_back(spec.norm.offset + w->at<double>(i));
  if (const Vector* b = weights.find_vector(name + ".b"))
    for (int64_t i = 0; i < b->size; ++i) norm.bias.push_back(b->at<double>(i));
  return norm;
}

}  // namespace vitrine
