#include "merge/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "base/error.h"
#include "base/fnv.h"
#include "kernels/table.h"
#include "merge/numbers.h"

namespace vitrine {
namespace {

constexpr int64_t kPiece = 1 << 15;  // elements: an input's piece is 128 KiB, so that those of a few inputs stay in the cache

// Keys of the random masks of a tensor: its name (FNV-1a) under the run's seed.
uint64_t seed_of(const std::string& name, uint64_t seed) { return fnv1a(name) ^ (seed * 0x9e3779b97f4a7c15u); }

struct ThreadBuffers {
  std::vector<std::vector<float>> inputs;
  std::vector<float> out, scratch, row;
  std::vector<std::byte> narrowed;
};

using LayerSums = std::map<std::string, std::vector<double>>;

class PlannedInputs final : public TensorInputs {
 public:
  PlannedInputs(const MergePlan& plan, size_t index, ThreadPool& pool, std::vector<ThreadBuffers>& buffers, TensorSink* sink,
                LayerSums& layer_sums, bool measures = false)
      : plan_(plan),
        index_(index),
        tensor_(plan.tensors[index]),
        pool_(pool),
        buffers_(buffers),
        sink_(sink),
        layer_sums_(layer_sums) {
    measured = measures;
    name = tensor_.name;
    const auto& shape = tensor_.shape;
    width = shape.empty() ? 1 : shape.back();
    rows = width == 0 ? 0 : tensor_.elements() / width;
    first_dim = shape.empty() ? 1 : shape.front();
    count = tensor_.sources.size();
    base = tensor_.base;
    seed = seed_of(tensor_.name, plan.options.random_seed);
    for (const PlannedTensor::Source& source : tensor_.sources) made_ = made_ || source.tensor->made != nullptr;
    aligned_ = tensor_.vocabulary && plan.tokens.has_value();
    if (aligned_) find_means();
  }

  int64_t pieces(bool whole_rows) const override {
    const int64_t size = piece_size(whole_rows);
    return size == 0 ? 0 : (elements() + size - 1) / size;
  }
  int threads() const override { return pool_.threads(); }

  TensorMeasure measure() {
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    TensorMeasure made;
    const std::vector<size_t> of = base >= 0 ? others() : all();
    const Gram g = gram(*this, of, base);
    made.norms.assign(count, kNone);
    for (size_t i = 0; i < of.size(); ++i) made.norms[of[i]] = g.norm(i);
    for (size_t i = 0; i < count; ++i)
      for (size_t j = i + 1; j < count; ++j) {
        const auto a = std::find(of.begin(), of.end(), i) - of.begin(), b = std::find(of.begin(), of.end(), j) - of.begin();
        const bool both = static_cast<size_t>(a) < of.size() && static_cast<size_t>(b) < of.size();
        const double norms = both ? g.norm(static_cast<size_t>(a)) * g.norm(static_cast<size_t>(b)) : 0;
        made.cosines.push_back(norms > 0 ? std::clamp(g(static_cast<size_t>(a), static_cast<size_t>(b)) / norms, -1.0, 1.0)
                                         : kNone);
      }
    made.sign_conflict = kNone;
    if (of.size() > 1 && elements() > 0)
      made.sign_conflict = sum(1,
                               [&](const Piece& piece) {
                                 for (size_t e = 0; e < piece.size; ++e) {
                                   bool up = false, down = false;
                                   for (const size_t i : of) {
                                     const float d = piece.x[i][e] - (base < 0 ? 0 : piece.x[static_cast<size_t>(base)][e]);
                                     up = up || d > 0;
                                     down = down || d < 0;
                                   }
                                   piece.sums[0] += up && down;
                                 }
                               })[0] /
                           static_cast<double>(elements());
    return made;
  }
  // After the merge.
  void measure_result(TensorMeasure& made) const {
    made.kept = kept;
    double squares = 0, distances = 0;
    for (const auto& [norm, distance] : result_) {
      squares += norm;
      distances += distance;
    }
    made.result_norm = std::sqrt(squares);
    made.result_distance = std::sqrt(distances);
  }

  std::vector<double> sum_of_layer(size_t n, const Visit& visit) override {
    const std::string key = tensor_.stack + " " + std::to_string(tensor_.layer);
    if (const auto found = layer_sums_.find(key); found != layer_sums_.end()) return found->second;
    std::vector<double> sums(n, 0.0);
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const PlannedTensor& other = plan_.tensors[i];
      if (other.stack != tensor_.stack || other.layer != tensor_.layer || other.copied || other.sources.size() != count) continue;
      PlannedInputs inputs(plan_, i, pool_, buffers_, nullptr, layer_sums_);
      const std::vector<double> its = inputs.sum(n, visit);
      for (size_t s = 0; s < n; ++s) sums[s] += its[s];
    }
    layer_sums_[key] = sums;
    return sums;
  }

 protected:
  std::vector<double> pass(const Visit& visit, size_t n_sums, bool writes, bool whole_rows) override {
    const int64_t size = piece_size(whole_rows), n = pieces(whole_rows);
    std::vector<double> sums(static_cast<size_t>(n) * n_sums, 0.0);
    if (writes && measured) result_.assign(static_cast<size_t>(n), {});
    std::mutex mutex;
    std::exception_ptr error;
    int64_t failed = n;  // the first piece that did
    pool_.run(n, [&](int64_t index, int thread) {
      try {
        ThreadBuffers& own = buffers_[static_cast<size_t>(thread)];
        Piece piece;
        piece.first = index * size;
        piece.size = static_cast<size_t>(std::min(size, elements() - piece.first));
        piece.index = index;
        piece.thread = thread;
        piece.own = &own.scratch;
        piece.sums = std::span(sums).subspan(static_cast<size_t>(index) * n_sums, n_sums);
        own.inputs.resize(std::max(own.inputs.size(), count));
        for (size_t i = 0; i < count; ++i) piece.x.push_back(fetch(i, piece, own));
        if (writes) {
          if (own.out.size() < piece.size) own.out.resize(piece.size);
          piece.out = own.out.data();
        }
        visit(piece);
        if (writes) put(piece, own);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (index < failed) {
          failed = index;
          error = std::current_exception();
        }
      }
    });
    if (error) std::rethrow_exception(error);
    checked_ = true;  // the inputs were seen, all of them
    std::vector<double> total(n_sums, 0.0);
    for (int64_t i = 0; i < n; ++i)
      for (size_t s = 0; s < n_sums; ++s) total[s] += sums[static_cast<size_t>(i) * n_sums + s];
    return total;
  }

 private:
  std::vector<size_t> all() const {
    std::vector<size_t> list(count);
    std::iota(list.begin(), list.end(), size_t{0});
    return list;
  }

  int64_t piece_size(bool whole_rows) const {
    if (elements() == 0) return 0;
    if (!whole_rows && !made_ && !aligned_) return std::min(kPiece, elements());
    // Whole rows; of what is stored the other way round in blocks, whole blocks.
    const int64_t row = tensor_.shape.size() < 2 && !aligned_ ? elements() : width;
    return std::max<int64_t>(1, kPiece / row / static_cast<int64_t>(kLargestBlock) * static_cast<int64_t>(kLargestBlock)) * row;
  }

  const MergeInput& model(size_t source) const { return *plan_.inputs[tensor_.sources[source].input]; }

  const float* fetch(size_t source, const Piece& piece, ThreadBuffers& own) {
    const InputTensor& tensor = *tensor_.sources[source].tensor;
    const float* values;
    if (!aligned_ && tensor.stored != nullptr && tensor.stored->dtype == DType::f32) {
      values = reinterpret_cast<const float*>(tensor.stored->data) + piece.first;
    } else {
      std::vector<float>& to = own.inputs[source];
      if (to.size() < piece.size) to.resize(piece.size);
      if (aligned_) {
        fetch_tokens(source, piece.first / width, static_cast<int64_t>(piece.size) / width, to.data(), own.row);
      } else {
        model(source).read(tensor, piece.first, piece.size, to.data());
      }
      values = to.data();
    }
    if (!checked_ && !plan_.options.allow_nan)
      if (const size_t bad = first_not_finite(values, piece.size); bad < piece.size)
        throw RunError(tensor_.sources[source].name + " of " + model(source).name() + ": element " +
                       std::to_string(piece.first + static_cast<int64_t>(bad)) + " is " + std::to_string(values[bad]) +
                       "; a model with NaN or infinity is not merged. --allow-nan merges it all the same");
    return values;
  }

  void read_row(size_t source, int64_t row, float* to) const {
    model(source).read(*tensor_.sources[source].tensor, row * width, static_cast<size_t>(width), to);
  }

  // The source that is this input of the plan; the tokens' rows may come from any of them.
  size_t source_of(int input) const {
    for (size_t i = 0; i < count; ++i)
      if (tensor_.sources[i].input == static_cast<size_t>(input)) return i;
    throw RunError(name + ": a token's row comes from " + plan_.inputs[static_cast<size_t>(input)]->name() +
                   ", which is no source of this tensor");
  }

  // Row `token` of a source, aligned with the tokens of the result.
  void token_row(size_t source, int64_t token, float* to, std::vector<float>& row) const {
    const TokenPlan& tokens = *plan_.tokens;
    const auto id = static_cast<size_t>(token);
    if (const int64_t own = tokens.own[tensor_.sources[source].input][id]; own >= 0) return read_row(source, own, to);
    const auto& from = tokens.defaults[id];
    std::fill(to, to + width, 0.0f);
    row.resize(static_cast<size_t>(width));
    for (const auto& [input, other] : from) {
      read_row(source_of(input), other, row.data());
      for (int64_t i = 0; i < width; ++i) to[i] += row[static_cast<size_t>(i)];
    }
    if (from.size() > 1)
      for (int64_t i = 0; i < width; ++i) to[i] /= static_cast<float>(from.size());
  }

  void fetch_tokens(size_t source, int64_t first, int64_t n, float* to, std::vector<float>& row) const {
    const auto tokens = static_cast<int64_t>(plan_.tokens->tokens.size());
    for (int64_t i = first; i < first + n; ++i, to += width) {
      if (i < tokens) {
        token_row(source, i, to, row);
      } else {
        std::copy(means_[source].begin(), means_[source].end(), to);
      }
    }
  }

  // Rows behind the last token are the mean of all tokens' rows.
  void find_means() {
    const auto tokens = static_cast<int64_t>(plan_.tokens->tokens.size());
    if (tensor_.shape[0] <= tokens) return;
    std::vector<float> row(static_cast<size_t>(width)), spare;
    for (size_t source = 0; source < count; ++source) {
      std::vector<double> sum(static_cast<size_t>(width), 0.0);
      for (int64_t token = 0; token < tokens; ++token) {
        token_row(source, token, row.data(), spare);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<double>(row[i]);
      }
      std::vector<float>& mean = means_.emplace_back();
      for (const double s : sum) mean.push_back(static_cast<float>(s / static_cast<double>(tokens)));
    }
  }

  void put(const Piece& piece, ThreadBuffers& own) {
    const DType dtype = tensor_.dtype;
    if (!plan_.options.allow_nan)
      if (const size_t bad = first_not_finite(piece.out, piece.size); bad < piece.size)
        throw RunError(name + ": element " + std::to_string(piece.first + static_cast<int64_t>(bad)) + " of the result is " +
                       std::to_string(piece.out[bad]) + "; change the weights, or use --allow-nan");
    if (measured) {
      auto& [norm, distance] = result_[static_cast<size_t>(piece.index)];
      const float* const from = piece.x[base < 0 ? 0 : static_cast<size_t>(base)];
      for (size_t e = 0; e < piece.size; ++e) {
        const auto x = static_cast<double>(piece.out[e]), d = x - static_cast<double>(from[e]);
        norm += x * x;
        distance += d * d;
      }
    }
    if (sink_ == nullptr) return;
    const uint64_t offset = row_bytes(dtype, static_cast<size_t>(piece.first));
    if (dtype == DType::f32) return sink_->write(index_, offset, piece.out, piece.size * sizeof(float));
    own.narrowed.resize(std::max(own.narrowed.size(), row_bytes(dtype, piece.size)));
    narrow_to(dtype, piece.out, piece.size, own.narrowed.data());
    if (dtype == DType::f16 && !plan_.options.allow_nan)
      for (size_t i = 0; i < piece.size; ++i)
        if (!std::isfinite(f16_to_f32(reinterpret_cast<const uint16_t*>(own.narrowed.data())[i])))
          throw RunError(name + ": element " + std::to_string(piece.first + static_cast<int64_t>(i)) + " of the result is " +
                         std::to_string(piece.out[i]) + ", beyond what f16 holds; use bfloat16 or float32");
    sink_->write(index_, offset, own.narrowed.data(), row_bytes(dtype, piece.size));
  }

  const MergePlan& plan_;
  size_t index_;
  const PlannedTensor& tensor_;
  ThreadPool& pool_;
  std::vector<ThreadBuffers>& buffers_;
  TensorSink* sink_;
  LayerSums& layer_sums_;
  bool made_ = false, aligned_ = false, checked_ = false;
  std::vector<std::pair<double, double>> result_;  // of each piece, if measured: squares of the result and of its distance
  std::vector<std::vector<float>> means_;          // of each source, if there are rows behind the tokens
};

// A tensor that is taken as it is: of whole numbers, all sources must agree.
void copy_tensor(const MergePlan& plan, size_t index, TensorSink* sink) {
  const PlannedTensor& tensor = plan.tensors[index];
  const StoredTensor* const from = tensor.sources.front().tensor->stored;
  for (const PlannedTensor::Source& source : tensor.sources) {
    const StoredTensor* const other = source.tensor->stored;
    if (other->dtype != from->dtype || other->bytes != from->bytes || std::memcmp(other->data, from->data, from->bytes) != 0)
      throw RunError(tensor.name + " holds whole numbers that differ between " +
                     plan.inputs[tensor.sources.front().input]->name() + " and " + plan.inputs[source.input]->name() +
                     "; it cannot be merged. Make them equal first");
  }
  if (sink != nullptr) sink->write(index, 0, from->data, from->bytes);
}

void copy_as_numbers(TensorInputs& in, const MethodParameters&) {
  in.write([](const Piece& piece) { std::copy(piece.x[0], piece.x[0] + piece.size, piece.out); });
}

}  // namespace

std::vector<size_t> TensorInputs::others() const {
  std::vector<size_t> list;
  for (size_t i = 0; i < count; ++i)
    if (static_cast<int>(i) != base) list.push_back(i);
  return list;
}

uint64_t merge_memory(const MergePlan& plan, int threads) {
  uint64_t most = 0;
  for (const PlannedTensor& tensor : plan.tensors) {
    const auto width = static_cast<uint64_t>(tensor.shape.empty() ? 1 : tensor.shape.back());
    const uint64_t piece = std::max<uint64_t>(static_cast<uint64_t>(kPiece), width);
    most = std::max(most, piece * sizeof(float) * (2 * tensor.sources.size() + 4));
  }
  return most * static_cast<uint64_t>(threads);
}

namespace {

void merge_one(const MergePlan& plan, const PlannedTensor& tensor, TensorInputs& inputs) {
  if (tensor.copied) return copy_as_numbers(inputs, tensor.parameters);
  try {
    plan.method->merge(inputs, tensor.parameters);
  } catch (const UsageError& error) {  // of parameters that the method cannot work with
    throw UsageError(plan.recipe.where + " is " + plan.method->name + ": " + error.what());
  }
}

void merge_each(const MergePlan& plan, ThreadPool& pool, TensorSink* sink, const std::function<bool(size_t)>& wanted,
                const WatchMerge& watch, const MeasureMerge& measure) {
  std::vector<ThreadBuffers> buffers(static_cast<size_t>(pool.threads()));
  LayerSums layer_sums;
  MergeProgress progress;
  progress.all = plan.bytes_read() + plan.bytes_written();
  const auto need = [&](size_t i) {
    if (i < plan.tensors.size())
      for (const PlannedTensor::Source& source : plan.tensors[i].sources) MergeInput::will_need(*source.tensor);
  };
  need(0);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const PlannedTensor& tensor = plan.tensors[i];
    need(i + 1);
    const bool writes = !wanted || wanted(i);
    if (writes || measure) {  // what was written before is measured all the same
      TensorSink* const to = writes ? sink : nullptr;
      if (tensor.copied && !tensor.sources.front().tensor->made && tensor.dtype == tensor.sources.front().tensor->stored->dtype &&
          !(tensor.vocabulary && plan.tokens)) {
        copy_tensor(plan, i, to);
      } else {
        PlannedInputs inputs(plan, i, pool, buffers, to, layer_sums, static_cast<bool>(measure));
        TensorMeasure measured;
        if (measure) measured = inputs.measure();
        if (inputs.elements() > 0) merge_one(plan, tensor, inputs);
        if (measure) {
          inputs.measure_result(measured);
          measure(i, measured);
        }
      }
      if (to != nullptr) to->finished(i);
    }
    for (const PlannedTensor::Source& source : tensor.sources) {
      MergeInput::release(*source.tensor);
      if (source.tensor->stored != nullptr) progress.bytes += source.tensor->stored->bytes;
    }
    progress.bytes += row_bytes(tensor.dtype, static_cast<size_t>(tensor.elements()));
    progress.tensor = &tensor.name;
    if (watch) watch(progress);
  }
}

}  // namespace

void merge_tensors(const MergePlan& plan, ThreadPool& pool, TensorSink& sink, const std::function<bool(size_t)>& wanted,
                   const WatchMerge& watch, const MeasureMerge& measure) {
  merge_each(plan, pool, &sink, wanted, watch, measure);
}

void measure_merge(const MergePlan& plan, ThreadPool& pool, const MeasureMerge& measure, const WatchMerge& watch) {
  refuse_problems(plan);
  merge_each(plan, pool, nullptr, {}, watch, measure);
}

}  // namespace vitrine
