#include "train/parameters.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>

#include "base/error.h"
#include "kernels/table.h"

namespace vitrine {
namespace {

constexpr size_t kBorder = 64 / sizeof(float);
constexpr size_t kHugePage = size_t{2} << 20;

int64_t layer_of(std::string_view ours) {
  constexpr std::string_view kPrefix = "blocks.";
  int64_t layer = -1;
  if (ours.starts_with(kPrefix)) std::from_chars(ours.data() + kPrefix.size(), ours.data() + ours.size(), layer);
  return layer;
}

class Lister final : public TensorTable {
 public:
  std::vector<Parameter> list;
  size_t size = 0, n_matrices = 0;
  void matrix(Weight&, const TensorLine& line) override {
    ++n_matrices;
    const int64_t out = line.out.size * line.parts;
    if (line.by_columns)
      add(line, {line.in.size, out});
    else
      add(line, {out, line.in.size});
  }
  void vector(Vector&, const TensorLine& line) override { add(line, {line.out.size * line.parts}); }

 private:
  void add(const TensorLine& line, std::vector<int64_t> shape) {
    if (line.part != 0) return;
    size_t count = 1;
    for (const int64_t n : shape) count *= static_cast<size_t>(n);
    list.push_back(
        {line.huggingface, line.ours, std::move(shape), size, count, layer_of(line.ours), line.in.size != 0, line.by_columns});
    size += (count + kBorder - 1) / kBorder * kBorder;
  }
};

// Copies what is there and points the model at the copies.
class Binder final : public TensorTable {
 public:
  Binder(const std::vector<Parameter>& list, float* weights, const ParameterGradients& gradients)
      : weights_(weights), gradients_(gradients) {
    for (const Parameter& p : list) places_[p.name] = &p;
  }

  void matrix(Weight& weight, const TensorLine& line) override {
    const Parameter& p = *places_.at(line.huggingface);
    const auto row = static_cast<size_t>(p.shape[1]), first = static_cast<size_t>(line.part * line.out.size);
    const size_t begin = p.begin + (line.by_columns ? first : first * row);
    if (weight.data != nullptr) {
      const auto rows = static_cast<size_t>(weight.by_columns ? line.in.size : line.out.size);
      const auto numbers = static_cast<size_t>(weight.by_columns ? line.out.size : line.in.size);
      const auto widen = kernels().widen[static_cast<size_t>(weight.dtype)];
      VITRINE_CHECK(line.by_columns || !weight.by_columns, "only files that want columns hold them");
      std::vector<float> output(weight.by_columns == line.by_columns ? 0 : numbers);  // of a matrix stored the other way round
      for (size_t r = 0; r < rows; ++r) {
        const std::byte* const stored = weight.stored_row(static_cast<int64_t>(r));
        if (output.empty()) {
          widen(stored, numbers, weights_ + begin + r * row);
          continue;
        }
        widen(stored, numbers, output.data());
        for (size_t i = 0; i < numbers; ++i) weights_[begin + i * row + r] = output[i];
      }
    }
    weight.name = p.name;
    weight.data = reinterpret_cast<const std::byte*>(weights_ + begin);
    weight.dtype = DType::f32;
    weight.out = line.out.size;
    weight.in = line.in.size;
    weight.by_columns = line.by_columns;
    weight.stride = row * sizeof(float);
    if (gradients_.data() != nullptr) gradients_.bind(n_matrices_++, weight, begin, row);
  }

  void vector(Vector& vector, const TensorLine& line) override {
    const Parameter& p = *places_.at(line.huggingface);
    const size_t begin = p.begin + static_cast<size_t>(line.part * line.out.size);
    if (vector.data != nullptr)
      for (int64_t i = 0; i < line.out.size; ++i) weights_[begin + static_cast<size_t>(i)] = vector.at<float>(i);
    vector.name = p.name;
    vector.data = weights_ + begin;
    vector.dtype = DType::f32;
    vector.size = line.out.size;
    if (gradients_.data() != nullptr) vector.grad = {gradients_.data() + begin, 1};
  }

 private:
  std::map<std::string, const Parameter*, std::less<>> places_;
  float* weights_;
  const ParameterGradients& gradients_;
  size_t n_matrices_ = 0;
};

class Unbinder final : public TensorTable {
 public:
  void matrix(Weight& weight, const TensorLine&) override {
    weight.data = nullptr;
    weight.grad = {};
  }
  void vector(Vector& vector, const TensorLine&) override {
    vector.data = nullptr;
    vector.grad = {};
  }
};

}  // namespace

void* zero_bytes(size_t bytes) {
  const size_t border = bytes < kHugePage ? 64 : kHugePage;  // small ones need no page of their own
  const size_t taken = (std::max<size_t>(bytes, 1) + border - 1) / border * border;
  void* const data = std::aligned_alloc(border, taken);
  if (data == nullptr)
    throw RunError("there is no memory for " + std::to_string(taken) + " bytes of weights or their optimiser state");
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
  Lister lister;
  model.tensors(lister);
  list_ = std::move(lister.list);
  size_ = lister.size;
  n_matrices_ = lister.n_matrices;
  weights_ = FloatBuffer(size_);
  gradients_ = bind(model);
}

ParameterGradients Parameters::bind(Model& model) const {
  ParameterGradients gradients =
      grads_ == Grads::none ? ParameterGradients() : ParameterGradients(size_, grads_ == Grads::first_sets ? n_matrices_ : 0);
  Binder binder(list_, weights_.data(), gradients);
  model.tensors(binder);
  return gradients;
}

Parameters::Parameters(Adapter& adapter) {
  for (const Adapter::Module& m : adapter.modules())
    for (const char which : {'A', 'B'}) {
      const std::vector<int64_t> shape = which == 'A' ? std::vector<int64_t>{m.rank, m.in} : std::vector<int64_t>{m.out, m.rank};
      const auto count = static_cast<size_t>(shape[0] * shape[1]);
      list_.push_back({m.tensor_name(which), m.ours, shape, size_, count, m.layer, true, false});
      size_ += (count + kBorder - 1) / kBorder * kBorder;
    }
  weights_ = FloatBuffer(size_);
  gradients_ = ParameterGradients(size_);
  for (size_t i = 0; i < adapter.modules().size(); ++i) {
    const Parameter &A = list_[2 * i], &B = list_[2 * i + 1];
    adapter.bind(i, weights(A), weights(B), gradients(A), gradients(B));
  }
}

Parameters::~Parameters() {
  if (model_ == nullptr) return;
  Unbinder unbinder;
  model_->tensors(unbinder);
}

int64_t Parameters::count() const {
  size_t n = 0;
  for (const Parameter& p : list_) n += p.count;
  return static_cast<int64_t>(n);
}

}  // namespace vitrine
