#include "ops/state_scan.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/reference/backward.h"
#include "kernels/reference/linear.h"
#include "kernels/reference/scan.h"
#include "kernels/table.h"
#include "ops/recurrence.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr int64_t kKept = 64;  // rows from one state that is kept for backward to the next
constexpr auto kStrip = static_cast<int64_t>(kScanColumns);

void check(const ScanInputs& in, const Step& step, Context& ctx) {
  const auto& [q, k, v, g, beta, tiled, corrects] = in;
  if (q.shape().rank() != 3 || q.shape() != k.shape() || v.shape().rank() != 3 || q.dim(1) <= 0 || v.dim(1) % q.dim(1) != 0 ||
      q.rows() != step.rows() || v.rows() != q.rows() || g.shape() != Shape{v.rows(), v.dim(1)} || beta.shape() != g.shape())
    throw ShapeError("recurrence: q " + q.shape().text() + ", k " + k.shape().text() + ", v " + v.shape().text() + ", decay " +
                     g.shape().text() + ", beta " + beta.shape().text() + " for " + std::to_string(step.rows()) +
                     " rows; expected q and k [rows, key heads, d_key], v [rows, heads, d_value] and [rows, heads], with heads a "
                     "multiple of key heads");
  for (const StepSequence& s : step.sequences())
    if (s.cache != nullptr && (ctx.tape() != nullptr || q.dtype() == DType::f64))
      throw UsageError("recurrence: a cache cannot be used while a tape records or in f64");
}

struct Inputs : ScanInputs {
  int64_t heads() const { return v.dim(1); }
  int64_t per_key() const { return v.dim(1) / q.dim(1); }
  int64_t key_head(int64_t head) const { return tiled ? head % q.dim(1) : head / per_key(); }
  // The i-th head that reads this key head.
  int64_t head(int64_t key_head, int64_t i) const { return tiled ? i * q.dim(1) + key_head : key_head * per_key() + i; }
  size_t d_key() const { return static_cast<size_t>(q.dim(2)); }
  size_t d_value() const { return static_cast<size_t>(v.dim(2)); }
  size_t state() const { return d_key() * d_value(); }
};

// y = factor aᵀ S  [d_value]
template <class T>
void read_state(const T* a, const T* S, size_t d_key, size_t d_value, T factor, T* y) {
  const auto products = of_type<T>(kernels().set_products, set_products_reference<double>);
  products(a, d_key, 1, S, d_value, d_key, d_value, factor, y, d_value);
}
// S += a bᵀ
template <class T>
void add_outer(const T* a, const T* b, size_t d_key, size_t d_value, T* S) {
  const auto add = of_type<T>(kernels().add_scaled, add_scaled_reference<double>);
  for (size_t i = 0; i < d_key; ++i) add(b, a[i], d_value, S + i * d_value);
}
// y += factor S b  [d_key]
template <class T>
void add_columns(const T* S, const T* b, size_t d_key, size_t d_value, T factor, T* y) {
  const auto dot = of_type<T>(kernels().dot, dot_reference<double>);
  for (size_t i = 0; i < d_key; ++i) y[i] += factor * dot(S + i * d_value, b, d_value);
}
// One head of the inputs.
template <class T>
struct HeadRows {
  HeadRows(const Inputs& in, int64_t head) : in_(in), head_(head), key_head_(in.key_head(head)) {}
  const T* q(int64_t row) const { return in_.q.row<T>(row) + key_head_ * in_.q.dim(2); }
  const T* k(int64_t row) const { return in_.k.row<T>(row) + key_head_ * in_.q.dim(2); }
  const T* v(int64_t row) const { return in_.v.row<T>(row) + head_ * in_.v.dim(2); }
  T decay(int64_t row) const { return std::exp(in_.log_decay.row<T>(row)[head_]); }
  T beta(int64_t row) const { return in_.beta.row<T>(row)[head_]; }

  // to = the state behind `row`, from the one before it. wrong [d_value]: v, less what the state has under k if it corrects;
  // correction [d_value] = beta wrong.
  void advance(int64_t row, const T* from, T* to, T* wrong, T* correction) const {
    const size_t d_key = in_.d_key(), d_value = in_.d_value();
    const T a = decay(row), b = beta(row);
    if (in_.corrects)
      read_state(k(row), from, d_key, d_value, a, wrong);
    else
      std::fill(wrong, wrong + d_value, T{0});
    for (size_t j = 0; j < d_value; ++j) {
      wrong[j] = v(row)[j] - wrong[j];
      correction[j] = b * wrong[j];
    }
    scale_into(from, a, d_key * d_value, to);
    add_outer(k(row), correction, d_key, d_value, to);
  }

 private:
  const Inputs& in_;
  int64_t head_, key_head_;
};

int64_t kept_states(const StepSequence& s) { return (s.rows - 1) / kKept; }

struct Node {
  Inputs in;
  Tensor z;
  const Step* step;
  void* kept;  // [kept state of all sequences, heads, d_key, d_value]: those before rows kKept, 2 kKept … of each sequence
};

// Runs f(task, thread) for each, on the caller where that is little work.
template <class F>
void each_task(Context& ctx, int64_t tasks, int64_t work, F&& f) {
  ctx.run(tasks, work > 32768, f, [&](int64_t) { return TaskCost{.multiply_adds = work / tasks}; });
}

// One head's columns [first, first + n) of a state, as the kernel takes them: [d_key, kStrip].
template <class T>
struct Strip {
  size_t d_key, d_value, first, n;
  // Zeros where it has no columns, or `from` is null.
  void take(const T* from, T* strip) const {
    if (from == nullptr || n < kScanColumns) std::fill(strip, strip + d_key * kScanColumns, T{0});
    for (size_t i = 0; i < d_key && from != nullptr; ++i) copy(from + i * d_value + first, strip + i * kScanColumns);
  }
  void put(const T* strip, T* to) const {
    for (size_t i = 0; i < d_key; ++i) copy(strip + i * kScanColumns, to + i * d_value + first);
  }

 private:
  // A row of a whole strip without a call.
  void copy(const T* from, T* to) const {
    if (n == kScanColumns)
      std::memcpy(to, from, kScanColumns * sizeof(T));
    else
      std::copy_n(from, n, to);
  }
};

// exp(log_decay) [rows, heads]
template <class T>
const T* decays(Context& ctx, const Tensor& log_decay) {
  T* decay = ctx.scratch<T>(static_cast<size_t>(log_decay.count()));
  parallel_for(ctx, log_decay.count(), 16, [&](int64_t first, int64_t n) {
    for (int64_t i = first; i < first + n; ++i) decay[i] = std::exp(log_decay.data<T>()[i]);
  });
  return decay;
}

template <class T>
void run_forward(Context& ctx, const Inputs& in, const Step& step, int layer, const Tensor& z, T* kept) {
  const auto scratch = ctx.frame();
  const size_t size = in.state(), per_thread = in.d_key() * kScanColumns;
  const int64_t heads = in.heads(), strips = (in.v.dim(2) + kStrip - 1) / kStrip;
  const T* const decay = decays<T>(ctx, in.log_decay);
  T* const work = ctx.scratch<T>(per_thread * static_cast<size_t>(ctx.pool().threads()));
  int64_t* const kept_before = ctx.scratch<int64_t>(step.sequences().size());
  int64_t kept_count = 0;
  for (size_t s = 0; s < step.sequences().size(); ++s) {
    if (ctx.dry() == nullptr) kept_before[s] = kept_count;
    kept_count += kept_states(step.sequences()[s]);
  }
  const auto run = [&](int64_t task, int thread) {
    const auto s = static_cast<size_t>(task / (heads * strips));
    const int64_t head = task / strips % heads, column = task % strips * kStrip;
    const StepSequence& sequence = step.sequences()[s];
    const HeadRows<T> rows(in, head);
    const Strip<T> strip{in.d_key(), in.d_value(), static_cast<size_t>(column),
                         static_cast<size_t>(std::min(kStrip, in.v.dim(2) - column))};
    T* const S = work + static_cast<size_t>(thread) * per_thread;
    const size_t place = static_cast<size_t>(head) * size;
    const T* begin = nullptr;
    T* end = nullptr;
    if constexpr (std::is_same_v<T, float>) {
      if (sequence.cache != nullptr) {
        begin = sequence.cache->state(layer);
        end = sequence.cache->next_state(layer) + place;
      }
    }
    strip.take(begin == nullptr ? nullptr : begin + place, S);
    const int64_t at_once = kept == nullptr ? sequence.rows : kKept;
    for (int64_t r = 0; r < sequence.rows; r += at_once) {
      if (r > 0) strip.put(S, kept + static_cast<size_t>((kept_before[s] + r / kKept - 1) * heads + head) * size);
      const int64_t row = sequence.first_row + r;
      const size_t gates = static_cast<size_t>(row * heads + head);
      of_type<T>(kernels().scan, scan_reference<double>)({.q = rows.q(row),
                                                          .k = rows.k(row),
                                                          .key_stride = static_cast<size_t>(in.q.row_size()),
                                                          .v = rows.v(row) + column,
                                                          .v_stride = static_cast<size_t>(in.v.row_size()),
                                                          .decay = decay + gates,
                                                          .beta = in.beta.data<T>() + gates,
                                                          .gate_stride = static_cast<size_t>(heads),
                                                          .rows = static_cast<size_t>(std::min(at_once, sequence.rows - r)),
                                                          .d_key = in.d_key(),
                                                          .columns = strip.n,
                                                          .corrects = in.corrects,
                                                          .state = S,
                                                          .z = z.row<T>(row) + head * in.v.dim(2) + column,
                                                          .z_stride = static_cast<size_t>(z.row_size())});
    }
    if (end != nullptr) strip.put(S, end);
  };
  each_task(ctx, static_cast<int64_t>(step.sequences().size()) * heads * strips, step.rows() * heads * static_cast<int64_t>(size),
            run);
}

// Where a gradient of one row and head goes, or nothing.
template <class T>
T* at(const Tensor& gradient, int64_t row, int64_t head, size_t size) {
  return gradient ? gradient.row<T>(row) + static_cast<size_t>(head) * size : nullptr;
}

struct Gradients {
  Tensor q, k, v, g, beta;
};

// One head of a sequence, from its last rows to its first. Going backwards, dS is the gradient at the state behind the row.
template <class T>
class HeadBackward {
 public:
  static size_t scratch(const Inputs& in) { return (kKept + 2) * in.state() + (2 * kKept + 1) * in.d_value() + in.d_key(); }
  HeadBackward(const Node& node, const Gradients& gradients, const Tensor& dz, int64_t head, T* memory)
      : in_(node.in),
        d_(gradients),
        dz_(dz),
        rows_(node.in, head),
        head_(head),
        key_head_(node.in.key_head(head)),
        size_(in_.state()),
        d_key_(in_.d_key()),
        d_value_(in_.d_value()) {
    states_ = memory;
    dS_ = states_ + (kKept + 1) * size_;
    wrong_ = dS_ + size_;
    correction_ = wrong_ + kKept * d_value_;
    dcorrection_ = correction_ + kKept * d_value_;
    lost_ = dcorrection_ + d_value_;
  }

  void run(const StepSequence& s, const T* kept, size_t kept_stride) {
    std::fill(dS_, dS_ + size_, T{0});
    for (int64_t chunk = kept_states(s); chunk >= 0; --chunk) {
      if (chunk == 0) {
        std::fill(states_, states_ + size_, T{0});
      } else {
        const T* from = kept + static_cast<size_t>(chunk - 1) * kept_stride;
        std::copy(from, from + size_, states_);
      }
      const int64_t first = s.first_row + chunk * kKept, n = std::min(kKept, s.rows - chunk * kKept);
      for (int64_t r = 0; r < n; ++r) rows_.advance(first + r, state(r), state(r + 1), wrong(r), correction(r));
      for (int64_t r = n; r-- > 0;) row(first + r, r);
    }
  }

 private:
  T* state(int64_t r) const { return states_ + static_cast<size_t>(r) * size_; }  // before the chunk's row r
  T* wrong(int64_t r) const { return wrong_ + static_cast<size_t>(r) * d_value_; }
  T* correction(int64_t r) const { return correction_ + static_cast<size_t>(r) * d_value_; }

  void row(int64_t row, int64_t r) {
    const T *q = rows_.q(row), *k = rows_.k(row), *dz = dz_.row<T>(row) + static_cast<size_t>(head_) * d_value_;
    const T a = rows_.decay(row), b = rows_.beta(row);
    T* dk = at<T>(d_.k, row, key_head_, d_key_);
    if (dk == nullptr) dk = lost_;
    // z = Sᵀ q
    if (T* dq = at<T>(d_.q, row, key_head_, d_key_)) add_columns(state(r + 1), dz, d_key_, d_value_, T{1}, dq);
    add_outer(q, dz, d_key_, d_value_, dS_);
    // S = S' + k correctionᵀ, correction = beta (v - S'ᵀ k) or beta v
    read_state(k, dS_, d_key_, d_value_, T{1}, dcorrection_);
    add_columns(dS_, correction(r), d_key_, d_value_, T{1}, dk);
    if (T* dbeta = at<T>(d_.beta, row, head_, 1)) *dbeta += inner(dcorrection_, wrong(r), d_value_);
    T* const dv = at<T>(d_.v, row, head_, d_value_);
    for (size_t j = 0; j < d_value_; ++j) {
      dcorrection_[j] *= b;
      if (dv != nullptr) dv[j] += dcorrection_[j];
    }
    if (in_.corrects) {
      add_columns(state(r), dcorrection_, d_key_, d_value_, -a, dk);
      for (size_t j = 0; j < d_value_; ++j) dcorrection_[j] = -dcorrection_[j];
      add_outer(k, dcorrection_, d_key_, d_value_, dS_);  // now the gradient at S'
    }
    // S' = exp(g) times the state before
    if (T* dg = at<T>(d_.g, row, head_, 1)) *dg += a * inner(dS_, state(r), size_);
    scale_into(dS_, a, size_, dS_);
  }

  const Inputs& in_;
  const Gradients& d_;
  const Tensor& dz_;
  HeadRows<T> rows_;
  int64_t head_, key_head_;
  size_t size_, d_key_, d_value_;
  T *states_, *dS_, *wrong_, *correction_, *dcorrection_, *lost_;
};

template <class T>
void run_backward(Context& ctx, const Node& node, const Tensor& dz, const Gradients& gradients) {
  const auto scratch = ctx.frame();
  const size_t per_thread = HeadBackward<T>::scratch(node.in), size = node.in.state();
  T* const work = ctx.scratch<T>(per_thread * static_cast<size_t>(ctx.pool().threads()));
  const int64_t key_heads = node.in.q.dim(1), heads = node.in.heads(), per_key = node.in.per_key();
  const auto sequences = node.step->sequences();
  int64_t* const kept_before = ctx.scratch<int64_t>(sequences.size());
  int64_t kept_count = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    kept_before[s] = kept_count;
    kept_count += kept_states(sequences[s]);
  }
  // A task has all heads of a key head, whose gradients they add to one after the other.
  const auto run = [&](int64_t task, int thread) {
    const auto s = static_cast<size_t>(task / key_heads);
    for (int64_t i = 0; i < per_key; ++i) {
      const int64_t head = node.in.head(task % key_heads, i);
      HeadBackward<T> backward(node, gradients, dz, head, work + static_cast<size_t>(thread) * per_thread);
      backward.run(sequences[s], static_cast<const T*>(node.kept) + static_cast<size_t>(kept_before[s] * heads + head) * size,
                   static_cast<size_t>(heads) * size);
    }
  };
  each_task(ctx, static_cast<int64_t>(sequences.size()) * key_heads, node.step->rows() * heads * static_cast<int64_t>(size), run);
}

void scan_backward(Context& ctx, Tape& tape, const Node& node) {
  const Tensor dz = tape.gradient(node.z);
  if (!dz) return;
  const Gradients gradients{tape.accumulate(node.in.q), tape.accumulate(node.in.k), tape.accumulate(node.in.v),
                            tape.accumulate(node.in.log_decay), tape.accumulate(node.in.beta)};
  visit_scalar(dz, [&](auto zero) { run_backward<decltype(zero)>(ctx, node, dz, gradients); });
  tape.release(node.z);
}

}  // namespace

Tensor state_scan(Context& ctx, const ScanInputs& inputs, const Step& step, int layer) {
  check(inputs, step, ctx);
  const Inputs in{inputs};
  const Tensor z = ctx.empty(in.v.shape());
  visit_scalar(z, [&](auto zero) {
    using T = decltype(zero);
    T* kept = nullptr;
    if (Tape* tape = ctx.tape()) {
      int64_t states = 0;
      for (const StepSequence& s : step.sequences()) states += kept_states(s);
      kept = static_cast<T*>(tape->arena().allocate(static_cast<size_t>(states * in.heads()) * in.state() * sizeof(T)));
      tape->record(&scan_backward, Node{in, z, &step, kept});
    }
    run_forward<T>(ctx, in, step, layer, z, kept);
  });
  return z;
}

}  // namespace vitrine
