#include "ops/elementwise.h"

#include <cstring>

#include "base/philox.h"
#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

void check_same(const char* op, const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape())
    throw ShapeError(std::string(op) + ": the two sides have shapes " + a.shape().text() + " and " + b.shape().text() +
                     "; expected the same");
}

struct Two {
  Tensor a, b, y;
  Activation f;
};
struct One {
  Tensor x, y;
  double number;
  Activation f;
};

// Runs f(offset, n) over the elements of x, shared among the threads.
template <class F>
void over(Context& ctx, const Tensor& x, F&& f) {
  parallel_for(ctx, x.count(), 1, [&](int64_t first, int64_t n) { f(first, static_cast<size_t>(n)); });
}

// dx (+)= factor dy
void add_to(Context& ctx, const Tape::Sum& sum, const Tensor& dy, double factor) {
  if (!sum) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    over(ctx, dy, [&](int64_t first, size_t n) {
      const T* from = dy.data<T>() + first;
      T* to = sum.to.data<T>() + first;
      if constexpr (std::is_same_v<T, float>) {
        const KernelTable& k = kernels();
        if (sum.fresh && factor == 1) {
          std::memcpy(to, from, n * sizeof(T));
        } else if (sum.fresh) {
          k.scale(from, static_cast<T>(factor), n, to);
        } else if (factor == 1) {
          k.add(to, from, n, to);
        } else {
          k.add_scaled(from, static_cast<T>(factor), n, to);
        }
      } else {
        for (size_t i = 0; i < n; ++i) to[i] = (sum.fresh ? T{0} : to[i]) + factor * from[i];
      }
    });
  });
}

void add_backward(Context& ctx, Tape& tape, const Two& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  add_to(ctx, tape.contribute(node.a), dy, 1);
  add_to(ctx, tape.contribute(node.b), dy, 1);
  tape.release(node.y);
}

void scale_backward(Context& ctx, Tape& tape, const One& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  add_to(ctx, tape.contribute(node.x), dy, node.number);
  tape.release(node.y);
}

void softcap_node_backward(Context& ctx, Tape& tape, const One& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  if (!dx) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const auto gradient = of_type<T>(kernels().softcap_gradient, softcap_gradient<double>);
    over(ctx, dy, [&](int64_t i, size_t n) {
      gradient(node.x.data<T>() + i, static_cast<T>(node.number), dy.data<T>() + i, n, dx.to.data<T>() + i, !dx.fresh);
    });
  });
  tape.release(node.y);
}

void activation_backward(Context& ctx, Tape& tape, const One& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  if (!dx) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const auto gradient = of_type<T>(kernels().activate_gradient, activate_gradient<double>);
    over(ctx, dy, [&](int64_t i, size_t n) {
      gradient(node.f, node.x.data<T>() + i, dy.data<T>() + i, n, dx.to.data<T>() + i, !dx.fresh);
    });
  });
  tape.release(node.y);
}

void gated_backward(Context& ctx, Tape& tape, const Two& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dgate = tape.contribute(node.a), dup = tape.contribute(node.b);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const auto gradient = of_type<T>(kernels().gate_gradient, gate_gradient<double>);
    // The two sides may differ in whether something was added before (one of them listened to, or the same tensor).
    const auto one_side = [&](int64_t i, size_t n, T* gate, T* up, bool add) {
      gradient(node.f, node.a.data<T>() + i, node.b.data<T>() + i, dy.data<T>() + i, n, gate, up, add);
    };
    over(ctx, dy, [&](int64_t i, size_t n) {
      T* gate = dgate ? dgate.to.data<T>() + i : nullptr;
      T* up = dup ? dup.to.data<T>() + i : nullptr;
      if (dgate.fresh == dup.fresh || gate == nullptr || up == nullptr) {
        one_side(i, n, gate, up, gate != nullptr ? !dgate.fresh : !dup.fresh);
      } else {
        one_side(i, n, gate, nullptr, !dgate.fresh);
        one_side(i, n, nullptr, up, !dup.fresh);
      }
    });
  });
  tape.release(node.y);
}

void scale_rows_backward(Context& ctx, Tape& tape, const Two& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tensor dx = tape.accumulate(node.a), dof_row = tape.accumulate(node.b);
  const auto d = static_cast<size_t>(dy.row_size());
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const auto add = of_type<T>(kernels().add_scaled, add_scaled_reference<double>);
    const auto dot = of_type<T>(kernels().dot, dot_reference<double>);
    parallel_for(ctx, dy.rows(), dy.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) {
        if (dx) add(dy.row<T>(r), node.b.data<T>()[r], d, dx.row<T>(r));
        if (dof_row) dof_row.data<T>()[r] += dot(dy.row<T>(r), node.a.row<T>(r), d);
      }
    });
  });
  tape.release(node.y);
}

// Factors of a tensor's elements, the first of which has the number `first` among all: 0 with probability p, else 1 / (1 - p).
struct Mask {
  uint64_t seed, step, site, first;
  float p;
  float factor(int64_t i) const {
    const uint64_t element = first + static_cast<uint64_t>(i);
    const auto words = philox(seed ^ (step * 0x9E3779B97F4A7C15u), element / 4, site);
    return uniform_from(words[element % 4]) < p ? 0.0f : 1.0f / (1.0f - p);
  }
};

struct Dropped {
  Tensor x, y;
  Mask mask;
};

void dropout_backward(Context& ctx, Tape& tape, const Dropped& node) {
  const Tensor dy = tape.gradient(node.y), dx = tape.accumulate(node.x);
  if (!dy || !dx) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    over(ctx, dy, [&](int64_t first, size_t n) {
      for (int64_t i = first; i < first + static_cast<int64_t>(n); ++i)
        dx.data<T>()[i] += static_cast<T>(node.mask.factor(i)) * dy.data<T>()[i];
    });
  });
  tape.release(node.y);
}

Tensor drop(Context& ctx, const Tensor& x, double p, uint64_t site, uint64_t first) {
  if (p <= 0 || !ctx.training()) return x;
  if (p >= 1) throw UsageError("dropout: the probability is " + std::to_string(p) + "; expected 0 <= p < 1");
  const Tensor y = ctx.empty(x.shape());
  const Mask mask{ctx.step_of_training.seed, ctx.step_of_training.number, site, first, static_cast<float>(p)};
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    over(ctx, y, [&](int64_t begin, size_t n) {
      for (int64_t i = begin; i < begin + static_cast<int64_t>(n); ++i)
        y.data<T>()[i] = static_cast<T>(mask.factor(i)) * x.data<T>()[i];
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&dropout_backward, Dropped{x, y, mask});
  return y;
}

}  // namespace

Tensor add(Context& ctx, const Tensor& a, const Tensor& b) {
  check_same("add", a, b);
  const Tensor y = ctx.empty(a.shape());
  over(ctx, y, [&](int64_t i, size_t n) {
    if (y.dtype() == DType::f32) {
      kernels().add(a.data<float>() + i, b.data<float>() + i, n, y.data<float>() + i);
    } else {
      add_reference(a.data<double>() + i, b.data<double>() + i, n, y.data<double>() + i);
    }
  });
  if (Tape* tape = ctx.tape()) tape->record(&add_backward, Two{a, b, y, Activation::none});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "add", .inputs = {a, b}, .outputs = {y}});
  return y;
}

Tensor scale(Context& ctx, const Tensor& x, double factor) {
  const Tensor y = ctx.empty(x.shape());
  over(ctx, y, [&](int64_t i, size_t n) {
    if (y.dtype() == DType::f32) {
      kernels().scale(x.data<float>() + i, static_cast<float>(factor), n, y.data<float>() + i);
    } else {
      scale_reference(x.data<double>() + i, factor, n, y.data<double>() + i);
    }
  });
  if (Tape* tape = ctx.tape()) tape->record(&scale_backward, One{x, y, factor, Activation::none});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "scale", .inputs = {x}, .outputs = {y}, .spec = ScaleSpec{factor}});
  return y;
}

Tensor softcap(Context& ctx, const Tensor& x, double cap) {
  if (cap == 0) return x;
  const Tensor y = ctx.empty(x.shape());
  over(ctx, y, [&](int64_t i, size_t n) {
    if (y.dtype() == DType::f32) {
      kernels().softcap(x.data<float>() + i, static_cast<float>(cap), n, y.data<float>() + i);
    } else {
      softcap_reference(x.data<double>() + i, cap, n, y.data<double>() + i);
    }
  });
  if (Tape* tape = ctx.tape()) tape->record(&softcap_node_backward, One{x, y, cap, Activation::none});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "softcap", .inputs = {x}, .outputs = {y}, .spec = SoftcapSpec{cap}});
  return y;
}

Tensor activation(Context& ctx, const Tensor& x, Activation f) {
  const Tensor y = ctx.empty(x.shape());
  over(ctx, y, [&](int64_t i, size_t n) {
    if (y.dtype() == DType::f32) {
      kernels().activate(f, x.data<float>() + i, n, y.data<float>() + i);
    } else {
      activate_reference(f, x.data<double>() + i, n, y.data<double>() + i);
    }
  });
  if (Tape* tape = ctx.tape()) tape->record(&activation_backward, One{x, y, 0, f});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "activation", .inputs = {x}, .outputs = {y}, .spec = f});
  return y;
}

Tensor gated(Context& ctx, const Tensor& gate, const Tensor& up, Activation f) {
  check_same("gated", gate, up);
  const Tensor y = ctx.empty(gate.shape());
  over(ctx, y, [&](int64_t i, size_t n) {
    if (y.dtype() == DType::f32) {
      kernels().gate(f, gate.data<float>() + i, up.data<float>() + i, n, y.data<float>() + i);
    } else {
      gate_reference(f, gate.data<double>() + i, up.data<double>() + i, n, y.data<double>() + i);
    }
  });
  if (Tape* tape = ctx.tape()) tape->record(&gated_backward, Two{gate, up, y, f});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "gated", .inputs = {gate, up}, .outputs = {y}, .spec = f});
  return y;
}

Tensor scale_rows(Context& ctx, const Tensor& x, const Tensor& of_row) {
  if (x.shape().rank() != 2 || of_row.count() != x.rows())
    throw ShapeError("scale_rows: x " + x.shape().text() + " by " + of_row.shape().text() + "; expected [rows, d] and [rows, 1]");
  const Tensor y = ctx.empty(x.shape());
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const auto scaled = of_type<T>(kernels().scale, scale_reference<double>);
    parallel_for(ctx, x.rows(), x.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r)
        scaled(x.row<T>(r), of_row.data<T>()[r], static_cast<size_t>(x.row_size()), y.row<T>(r));
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&scale_rows_backward, Two{x, of_row, y, Activation::none});
  if (DryRun* dry = ctx.dry()) dry->add(ctx, {.op = "scale_rows", .inputs = {x, of_row}, .outputs = {y}});
  return y;
}

Tensor dropout(Context& ctx, const Tensor& x, double p, uint64_t site) {
  const Tensor y = drop(ctx, x, p, site, ctx.step_of_training.first_row * static_cast<uint64_t>(x.row_size()));
  if (DryRun* dry = ctx.dry(); dry != nullptr && p > 0)  // outside of training, too: what the model is made of
    dry->add(ctx, {.op = "dropout", .inputs = {x}, .outputs = {y}, .spec = DropoutSpec{p, site}});
  return y;
}

Tensor dropout_of_sequence(Context& ctx, const Tensor& x, double p, uint64_t site, int64_t first_row) {
  return drop(ctx, x, p, site + ((ctx.step_of_training.first_row + static_cast<uint64_t>(first_row)) << 32), 0);
}

}  // namespace vitrine
