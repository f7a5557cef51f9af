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
  size_t size = 0;
  void matrix(Weight&, const TensorLine& line) override {
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
  Binder(const std::vector<Parameter>& list, float* weights, float* gradients) : weights_(weights), gradients_(gradients) {
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
    if (gradients_ != nullptr) weight.grad = {gradients_ + begin, row};
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
    if (gradients_ != nullptr) vector.grad = {gradients_ + begin, 1};
  }

 private:
  std::map<std::string, const Parameter*, std::less<>> places_;
  float *weights_, *gradients_;
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

Parameters::Parameters(Model& model, bool with_gradients) : model_(&model) {
  Lister lister;
  model.tensors(lister);
  list_ = std::move(lister.list);
  size_ = lister.size;
  weights_ = FloatBuffer(size_);
  if (with_gradients) gradients_ = FloatBuffer(size_);
  bind(model, gradients_.data());
}

void Parameters::bind(Model& model, float* gradients) const {
  Binder binder(list_, weights_.data(), gradients);
  model.tensors(binder);
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
  gradients_ = FloatBuffer(size_);
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
