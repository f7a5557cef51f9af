#include "train/parameters.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "kernels/table.h"
#include "model/layer_name.h"

namespace vitrine {
namespace {

constexpr size_t kBorder = 64 / sizeof(float);
constexpr size_t kHugePage = size_t{2} << 20;

// Copies a matrix that is there to where it is learned: `begin` is its first element, `row` the length of a row of its file
// tensor.
void copy_matrix(const TensorLine& line, float* weights, size_t begin, size_t row) {
  const Weight& weight = *line.weight;
  const bool by_columns = line.layout.by_columns;
  const auto rows = static_cast<size_t>(weight.by_columns ? line.in.size : line.out.size);
  const auto elements = static_cast<size_t>(weight.by_columns ? line.out.size : line.in.size);
  const auto widen = kernels().widen[static_cast<size_t>(weight.dtype)];
  VITRINE_CHECK(by_columns || !weight.by_columns, "only files that want columns hold them");
  std::vector<float> output(weight.by_columns == by_columns ? 0 : elements);  // of a matrix stored the other way round
  for (size_t r = 0; r < rows; ++r) {
    const std::byte* const stored = weight.stored_row(static_cast<int64_t>(r));
    if (output.empty()) {
      widen(stored, elements, weights + begin + r * row);
      continue;
    }
    widen(stored, elements, output.data());
    for (size_t i = 0; i < elements; ++i) weights[begin + i * row + r] = output[i];
  }
}

}  // namespace

void* zero_bytes(size_t bytes) {
  const size_t border = bytes < kHugePage ? 64 : kHugePage;  // small ones need no page of their own
  const size_t taken = (std::max<size_t>(bytes, 1) + border - 1) / border * border;
  void* const data = std::aligned_alloc(border, taken);
  if (data == nullptr)
    throw RunError("there is no memory for " + std::to_string(taken) + " bytes of weights or their optimizer state");
  if (border == kHugePage) static_cast<void>(::madvise(data, taken, MADV_HUGEPAGE));
  return std::memset(data, 0, taken);
}

void ParameterGradients::bind(size_t i, Weight& weight, size_t begin, size_t stride) const {
  weight.grad = {data() + begin, stride, i < n_matrices_ ? &matrices_[i].unset : nullptr};
  if (i < n_matrices_) matrices_[i].weight = &weight;
}
void ParameterGradients::unset() const {
  for (size_t i = 0; i < n_matrices_; ++i) matrices_[i].unset = true;
}
void ParameterGradients::complete() const {
  for (size_t i = 0; i < n_matrices_; ++i) zero_if_unset(*matrices_[i].weight);
}

Parameters::Parameters(Model& model, Grads grads) : model_(&model), grads_(grads) {
  for (const FileTensor& tensor : file_tensors(model, false)) {
    const TensorLine& first = *tensor.parts.front();
    size_t count = 1;
    for (const int64_t n : tensor.shape) count *= static_cast<size_t>(n);
    list_.push_back({tensor.name, first.ours, tensor.shape, size_, count, split_layer(first.ours).first, first.weight != nullptr,
                     tensor.by_columns, tensor.is_constant()});
    size_ += (count + kBorder - 1) / kBorder * kBorder;
  }
  for (const TensorLine& line : model.tensors()) n_matrices_ += line.weight != nullptr ? 1 : 0;
  weights_ = FloatBuffer(size_);
  gradients_ = bind(model);
}

ParameterGradients Parameters::bind(Model& model) const {
  ParameterGradients gradients =
      grads_ == Grads::none ? ParameterGradients() : ParameterGradients(size_, grads_ == Grads::first_sets ? n_matrices_ : 0);
  std::map<std::string_view, const Parameter*> places;
  for (const Parameter& p : list_) places[p.name] = &p;
  float* const weights = weights_.data();
  size_t matrix = 0;
  for (const TensorLine& line : model.tensors()) {  // copies what is there and points the model at the copies
    const Parameter& p = *places.at(line.huggingface);
    const auto first = static_cast<size_t>(line.first_row(false));
    if (line.vector != nullptr) {
      Vector& vector = *line.vector;
      const size_t begin = p.begin + first;
      if (vector.data != nullptr)
        for (int64_t i = 0; i < line.out.size; ++i) weights[begin + static_cast<size_t>(i)] = vector.at<float>(i);
      vector.name = p.name;
      vector.data = weights + begin;
      vector.dtype = DType::f32;
      vector.size = line.out.size;
      if (gradients.data() != nullptr && !line.layout.constant) vector.grad = {gradients.data() + begin, 1};
      continue;
    }
    Weight& weight = *line.weight;
    const auto row = static_cast<size_t>(p.shape.back());
    const size_t begin = p.begin + first * row + static_cast<size_t>(line.first_column(false));
    if (weight.data != nullptr) copy_matrix(line, weights, begin, row);
    weight.name = p.name;
    weight.data = reinterpret_cast<const std::byte*>(weights + begin);
    weight.dtype = DType::f32;
    weight.out = line.out.size;
    weight.in = line.in.size;
    weight.by_columns = p.by_columns;
    weight.stride = row * sizeof(float);
    if (gradients.data() != nullptr) gradients.bind(matrix++, weight, begin, row);
  }
  return gradients;
}

Parameters::Parameters(Adapter& adapter) {
  for (Adapter::Learned& tensor : adapter.learned()) {
    size_t count = 1;
    for (const int64_t n : tensor.shape) count *= static_cast<size_t>(n);
    list_.push_back({tensor.name, tensor.ours, std::move(tensor.shape), size_, count, tensor.layer, tensor.matrix, false});
    size_ += (count + kBorder - 1) / kBorder * kBorder;
  }
  weights_ = FloatBuffer(size_);
  gradients_ = ParameterGradients(size_);
  std::vector<float*> values, gradients;
  for (const Parameter& p : list_) {
    values.push_back(weights(p));
    gradients.push_back(this->gradients(p));
  }
  adapter.bind(values, gradients);
}

Parameters::Parameters(std::span<Weight> weights) {
  const auto place = [&](const std::string& name, std::vector<int64_t> shape, bool matrix) {
    const auto count = static_cast<size_t>(matrix ? shape[0] * shape[1] : shape[0]);
    list_.push_back({name, name, std::move(shape), size_, count, -1, matrix, false});
    size_ += (count + kBorder - 1) / kBorder * kBorder;
  };
  for (const Weight& w : weights) {
    VITRINE_CHECK(w.dtype == DType::f32 && !w.by_columns, "a matrix of no model is f32 and [out, in]");
    place(w.name, {w.out, w.in}, true);
    if (w.bias.size > 0) place(w.bias.name, {w.bias.size}, false);
  }
  weights_ = FloatBuffer(size_);
  gradients_ = ParameterGradients(size_);
  auto next = list_.begin();
  for (Weight& w : weights) {
    const Parameter& p = *next++;
    const auto row = static_cast<size_t>(w.in);
    for (int64_t i = 0; w.data != nullptr && i < w.out; ++i)
      std::memcpy(this->weights(p) + static_cast<size_t>(i) * row, w.stored_row(i), row * sizeof(float));
    w.data = reinterpret_cast<const std::byte*>(this->weights(p));
    w.stride = row * sizeof(float);
    w.grad = {gradients(p), row};
    if (w.bias.size == 0) continue;
    const Parameter& b = *next++;
    if (w.bias) std::memcpy(this->weights(b), w.bias.data, b.count * sizeof(float));
    w.bias.data = this->weights(b);
    w.bias.grad = {gradients(b), 1};
  }
}

Parameters::~Parameters() {
  if (model_ == nullptr) return;
  for (const TensorLine& line : model_->tensors()) {
    if (line.weight != nullptr) {
      line.weight->data = nullptr;
      line.weight->grad = {};
    } else {
      line.vector->data = nullptr;
      line.vector->grad = {};
    }
  }
}

int64_t Parameters::count() const {
  size_t n = 0;
  for (const Parameter& p : list_) n += p.count;
  return static_cast<int64_t>(n);
}

}  // namespace vitrine
