#include "ops/causal_conv.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/elementwise.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr int64_t kStrip = 256;  // channels whose sums stay in the first cache

// y += a ⊙ b, for n <= kStrip.
template <class T>
void add_product(const T* a, const T* b, int64_t n, T* y) {
  if constexpr (std::is_same_v<T, float>) {
    float product[kStrip];
    kernels().gate(Activation::none, a, b, static_cast<size_t>(n), product);
    kernels().add(y, product, static_cast<size_t>(n), y);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] += a[i] * b[i];
  }
}

template <class T>
void add_row(const T* a, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] += a[i];
}

// The kernel by taps, [K, channels]: neighboring channels are neighbors.
template <class T>
const T* by_taps(Context& ctx, const Vector& w, int64_t channels) {
  const T* stored = values_of<T>(ctx, w);
  const int64_t taps = w.size / channels;
  T* turned = ctx.scratch<T>(static_cast<size_t>(w.size));
  ctx.run(taps, false, [&](int64_t k, int) {
    for (int64_t c = 0; c < channels; ++c) turned[k * channels + c] = stored[c * taps + k];
  });
  return turned;
}

// Calls f(first, n) for strips of channels.
template <class F>
void by_strips(int64_t channels, F&& f) {
  for (int64_t first = 0; first < channels; first += kStrip) f(first, std::min(kStrip, channels - first));
}

// The inputs of one sequence: this step's rows of x, and those its cache holds from before.
template <class T>
class Inputs {
 public:
  /// carried: of how many positions the cache's state holds the inputs, from the number state_at on; state_at < 0: it has rows.
  Inputs(const Tensor& x, const StepSequence& sequence, int layer, int64_t carried, int64_t state_at)
      : x_(x), s_(sequence), layer_(layer), carried_(carried), state_at_(state_at) {}
  /// At `position` of the sequence; null before its first.
  const T* at(int64_t position) const {
    if (position >= s_.position) return x_.row<T>(s_.first_row + position - s_.position);
    if constexpr (std::is_same_v<T, float>)
      if (position >= 0 && s_.cache != nullptr)
        return state_at_ < 0 ? s_.cache->row(layer_, position)
                             : s_.cache->state(layer_) + state_at_ + (position - s_.position + carried_) * x_.row_size();
    return nullptr;
  }
  /// Writes this step's to the cache.
  void keep() const {
    if constexpr (std::is_same_v<T, float>) {
      if (s_.cache == nullptr) return;
      if (state_at_ >= 0) return carry();
      for (int64_t i = 0; i < s_.rows; ++i) {
        const float* row = x_.row<float>(s_.first_row + i);
        std::copy(row, row + x_.row_size(), s_.cache->row(layer_, s_.position + i));
      }
    }
  }

 private:
  // The inputs of the last positions, zeros before the first one.
  void carry() const {
    float* to = s_.cache->next_state(layer_) + state_at_;
    for (int64_t i = 0; i < carried_; ++i, to += x_.row_size()) {
      if (const T* from = at(s_.position + s_.rows - carried_ + i))
        std::copy(from, from + x_.row_size(), to);
      else
        std::fill(to, to + x_.row_size(), 0.0f);
    }
  }

  const Tensor& x_;
  const StepSequence& s_;
  int layer_;
  int64_t carried_, state_at_;
};

template <class T>
void convolve(Context& ctx, const Tensor& x, const Vector& w, const Vector& bias, const Step& step, int layer, int64_t state_at,
              const Tensor& y) {
  const auto scratch = ctx.frame();
  const int64_t channels = x.row_size(), taps = w.size / channels;
  const T *kernel = by_taps<T>(ctx, w, channels), *start = values_of<T>(ctx, bias);
  for (const StepSequence& s : step.sequences()) {
    const Inputs<T> inputs(x, s, layer, taps - 1, state_at);
    parallel_for(ctx, s.rows, channels * taps, [&](int64_t first_row, int64_t rows) {
      for (int64_t r = first_row; r < first_row + rows; ++r)
        by_strips(channels, [&](int64_t c, int64_t n) {
          T* sum = y.row<T>(s.first_row + r) + c;
          if (start != nullptr) {
            std::copy(start + c, start + c + n, sum);
          } else {
            std::fill(sum, sum + n, T{0});
          }
          for (int64_t k = 0; k < taps; ++k)
            if (const T* in = inputs.at(s.position + r - taps + 1 + k)) add_product(kernel + k * channels + c, in + c, n, sum);
        });
    });
    ctx.run(1, false, [&](int64_t, int) { inputs.keep(); });
  }
}

struct ConvNode {
  Tensor x, y;
  const Vector *w, *bias;
  const StepSequence* sequences;
  size_t n_sequences;
};

// dx[t] += sum over k of w[k] ⊙ dy[t + K - 1 - k], within the sequence.
template <class T>
void inputs_gradient(Context& ctx, const ConvNode& node, const Tensor& dy, const Tensor& dx) {
  const int64_t channels = dy.row_size(), taps = node.w->size / channels;
  const T* kernel = by_taps<T>(ctx, *node.w, channels);
  for (size_t i = 0; i < node.n_sequences; ++i) {
    const StepSequence& s = node.sequences[i];
    parallel_for(ctx, s.rows, channels * taps, [&](int64_t first_row, int64_t rows) {
      for (int64_t r = first_row; r < first_row + rows; ++r)
        for (int64_t k = taps - 1; k >= 0; --k) {
          const int64_t reader = r + taps - 1 - k;
          if (reader >= s.rows) break;
          by_strips(channels, [&](int64_t c, int64_t n) {
            add_product(kernel + k * channels + c, dy.row<T>(s.first_row + reader) + c, n, dx.row<T>(s.first_row + r) + c);
          });
        }
    });
  }
}

// dw[c, k] += sum over t of dy[t, c] x[t - K + 1 + k, c],  dbias[c] += sum over t of dy[t, c]. Threads share the channels: rows
// are added in order.
template <class T>
void parameters_gradient(Context& ctx, const ConvNode& node, const Tensor& dy) {
  auto* dw = static_cast<T*>(node.w->grad.data);
  auto* dbias = static_cast<T*>(node.bias->grad.data);
  if (dw == nullptr && dbias == nullptr) return;
  const int64_t channels = dy.row_size(), taps = node.w->size / channels, strips = (channels + kStrip - 1) / kStrip;
  const auto strip = [&](int64_t first, T* sums) {  // sums [K, kStrip]
    const int64_t c = first * kStrip, n = std::min(kStrip, channels - c);
    std::fill(sums, sums + taps * kStrip, T{0});
    for (size_t i = 0; i < node.n_sequences; ++i) {
      const StepSequence& s = node.sequences[i];
      for (int64_t r = 0; r < s.rows; ++r) {
        const T* g = dy.row<T>(s.first_row + r) + c;
        if (dbias != nullptr) add_row(g, n, dbias + c);
        for (int64_t k = std::max<int64_t>(0, taps - 1 - r); dw != nullptr && k < taps; ++k)
          add_product(g, node.x.row<T>(s.first_row + r - taps + 1 + k) + c, n, sums + k * kStrip);
      }
    }
    for (int64_t k = 0; dw != nullptr && k < taps; ++k)
      for (int64_t j = 0; j < n; ++j) dw[(c + j) * taps + k] += sums[k * kStrip + j];
  };
  const int64_t room = taps * kStrip;
  T* sums = ctx.scratch<T>(static_cast<size_t>(room * ctx.pool().threads()));
  ctx.run(strips, dy.count() * taps > 32768, [&](int64_t i, int thread) { strip(i, sums + thread * room); });
}

void conv_backward(Context& ctx, Tape& tape, const ConvNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tensor dx = tape.accumulate(node.x);
  const auto scratch = ctx.frame();
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    if (dx) inputs_gradient<T>(ctx, node, dy, dx);
    parameters_gradient<T>(ctx, node, dy);
  });
  tape.release(node.y);
}

void record(Tape& tape, const Tensor& x, const Vector& w, const Vector& bias, const Step& step, const Tensor& y) {
  const auto sequences = step.sequences();
  tape.record(&conv_backward, ConvNode{x, y, &w, &bias, tape.keep(sequences), sequences.size()});
}

void check(const Tensor& x, const Vector& w, const Vector& bias, const Step& step, const Context& ctx) {
  if (x.shape().rank() != 2 || x.rows() != step.rows() || x.row_size() <= 0 || w.size <= 0 || w.size % x.row_size() != 0)
    throw ShapeError("causal convolution: x " + x.shape().text() + " for " + std::to_string(step.rows()) + " rows, and " +
                     w.name + " of " + std::to_string(w.size) +
                     " numbers; expected [rows, channels], and the kernel's size for each channel");
  if (bias && bias.size != x.row_size())
    throw ShapeError("causal convolution: " + bias.name + " has " + std::to_string(bias.size) + " numbers for " +
                     std::to_string(x.row_size()) + " channels; expected one for each");
  for (const StepSequence& s : step.sequences())
    if (s.cache != nullptr && (ctx.tape() != nullptr || x.dtype() == DType::f64))
      throw UsageError("causal convolution: a cache cannot be used while a tape records or in f64");
}

}  // namespace

Tensor causal_conv(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector& bias, const Step& step,
                   int layer, Activation f, int64_t state_at) {
  check(x, w, bias, step, ctx);
  const auto scope = ctx.scope(name);
  const Tensor y = ctx.empty(x.shape());
  visit_scalar(x, [&](auto zero) { convolve<decltype(zero)>(ctx, x, w, bias, step, layer, state_at, y); });
  if (Tape* tape = ctx.tape()) record(*tape, x, w, bias, step, y);
  if (DryRun* dry = ctx.dry()) {
    OpCall call{.op = "causal_conv", .inputs = {x}, .outputs = {y}, .vectors = {&w}, .cache_layer = layer};
    if (bias.size > 0) call.vectors.push_back(&bias);
    call.spec = ConvSpec{w.size / x.row_size(), x.row_size(), f};
    call.multiply_adds = x.rows() * w.size;
    dry->add(ctx, call);
  }
  return f == Activation::none ? y : activation(ctx, ctx.hook("hook_pre", y), f);
}

}  // namespace vitrine
