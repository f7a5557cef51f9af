#include "ops/norm.h"

#include <algorithm>

#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct NormNode {
  Tensor x, y;
  Tensor mean, inv_scale;  // one number per row; mean empty: RMSNorm
  const Vector *w, *b;     // b null: RMSNorm
  double offset;
};

template <class T>
void row_gradient(const NormNode& node, const T* w, const Tensor& dy, int64_t r, T* dx, T* dw, T* db, bool add) {
  const auto d = static_cast<size_t>(node.x.row_size());
  const T inv = node.inv_scale.data<T>()[r], offset = static_cast<T>(node.offset);
  const T *x = node.x.row<T>(r), *g = dy.row<T>(r);
  if constexpr (std::is_same_v<T, float>) {
    if (node.b != nullptr) return kernels().layer_norm_gradient(x, w, node.mean.data<T>()[r], inv, g, d, dx, dw, db, add);
    return kernels().rms_norm_gradient(x, w, offset, inv, g, d, dx, dw, add);
  }
  if (node.b != nullptr) return layer_norm_gradient(x, w, node.mean.data<T>()[r], inv, g, d, dx, dw, db, add);
  return rms_norm_gradient(x, w, offset, inv, g, d, dx, dw, add);
}

// Threads share chunks of rows; each chunk has sums of its own for the weights' gradients.
void norm_backward(Context& ctx, Tape& tape, const NormNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const T* w = values_of<T>(ctx, *node.w);
    const bool of_w = node.w->grad.data != nullptr, of_b = node.b != nullptr && node.b->grad.data != nullptr;
    const int64_t d = node.x.row_size(), per_chunk = std::clamp<int64_t>(16384 / std::max<int64_t>(d, 1), 1, 64);
    const int64_t chunks = (dy.rows() + per_chunk - 1) / per_chunk, width = (d + 15) / 16 * 16;
    T* parts = of_w || of_b ? ctx.scratch<T>(static_cast<size_t>(2 * chunks * width)) : nullptr;
    const auto one_chunk = [&](int64_t chunk, int) {
      T* dw = of_w ? parts + 2 * chunk * width : nullptr;
      T* db = of_b ? parts + (2 * chunk + 1) * width : nullptr;
      if (of_w) std::fill(dw, dw + d, T{0});
      if (of_b) std::fill(db, db + d, T{0});
      for (int64_t r = chunk * per_chunk; r < std::min(dy.rows(), (chunk + 1) * per_chunk); ++r)
        row_gradient<T>(node, w, dy, r, dx ? dx.to.row<T>(r) : nullptr, dw, db, !dx.fresh);
    };
    if (dy.count() > 32768) {
      ctx.run(chunks, one_chunk);
    } else {
      for (int64_t chunk = 0; chunk < chunks; ++chunk) one_chunk(chunk, 0);
    }
    if (of_w) add_parts(ctx, parts, chunks, 2 * width, d, static_cast<T*>(node.w->grad.data));
    if (of_b) add_parts(ctx, parts + width, chunks, 2 * width, d, static_cast<T*>(node.b->grad.data));
  });
  tape.release(node.y);
}

// The stepwise form, recorded where somebody listens inside: each part has a gradient of its own, and what a listener puts
// in its place, a constant or something it built with ops, is where the next part's gradient goes.
//   s = scale of x      pre = (x - mean) / s'      y = pre' (offset + w) + b      (s', pre': what the listener left)
struct ScaleNode {
  Tensor x, mean, scale;  // scale [rows, 1]
};
struct DivideNode {
  Tensor x, mean, scale, pre;  // scale: s'
};
struct WeightNode {
  Tensor pre, y;  // pre: pre'
  const Vector *w, *b;
  double offset;
};

template <class T>
T mean_of(const Tensor& mean, int64_t r) {
  return mean ? mean.data<T>()[r] : T{0};
}

// d s / d x_i = (x_i - mean) / (d s), for the root mean square (mean 0) and the standard deviation alike.
void scale_backward(Context&, Tape& tape, const ScaleNode& n) {
  const Tensor ds = tape.gradient(n.scale), dx = tape.accumulate(n.x);
  if (!ds || !dx) return;
  visit_scalar(ds, [&](auto zero) {
    using T = decltype(zero);
    const int64_t d = n.x.row_size();
    for (int64_t r = 0; r < n.x.rows(); ++r) {
      const T factor = ds.data<T>()[r] / (static_cast<T>(d) * n.scale.data<T>()[r]), m = mean_of<T>(n.mean, r);
      for (int64_t i = 0; i < d; ++i) dx.row<T>(r)[i] += factor * (n.x.row<T>(r)[i] - m);
    }
  });
}

void divide_backward(Context& ctx, Tape& tape, const DivideNode& n) {
  const Tensor dpre = tape.gradient(n.pre);
  if (!dpre) return;
  const Tensor dx = tape.accumulate(n.x), ds = tape.accumulate(n.scale);
  visit_scalar(dpre, [&](auto zero) {
    using T = decltype(zero);
    const int64_t d = n.x.row_size();
    parallel_for(ctx, n.x.rows(), d, [&](int64_t first, int64_t rows) {
      for (int64_t r = first; r < first + rows; ++r) {
        const T inv = 1 / n.scale.data<T>()[r];
        const T *g = dpre.row<T>(r), *pre = n.pre.row<T>(r);
        T sum = 0, dot = 0;
        if (n.mean)
          for (int64_t i = 0; i < d; ++i) sum += g[i];
        if (ds)
          for (int64_t i = 0; i < d; ++i) dot += g[i] * pre[i];
        const T of_mean = n.mean ? sum / static_cast<T>(d) : T{0};
        T* to = dx ? dx.row<T>(r) : nullptr;
        for (int64_t i = 0; to != nullptr && i < d; ++i) to[i] += inv * (g[i] - of_mean);
        if (ds) ds.data<T>()[r] -= dot * inv;
      }
    });
  });
}

void weight_backward(Context& ctx, Tape& tape, const WeightNode& n) {
  const Tensor dy = tape.gradient(n.y);
  if (!dy) return;
  const Tensor dpre = tape.accumulate(n.pre);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const T* w = values_of<T>(ctx, *n.w);
    auto* dw = static_cast<T*>(n.w->grad.data);
    auto* db = n.b != nullptr ? static_cast<T*>(n.b->grad.data) : nullptr;
    const T offset = static_cast<T>(n.offset);
    const int64_t d = dy.row_size();
    parallel_for(ctx, dpre ? dy.rows() : 0, d, [&](int64_t first, int64_t rows) {
      for (int64_t r = first; r < first + rows; ++r) {
        const T* g = dy.row<T>(r);
        T* to = dpre.row<T>(r);
        for (int64_t i = 0; i < d; ++i) to[i] += g[i] * (offset + w[i]);
      }
    });
    for (int64_t r = 0; dw != nullptr && r < dy.rows(); ++r)
      for (int64_t i = 0; i < d; ++i) dw[i] += dy.row<T>(r)[i] * n.pre.row<T>(r)[i];
    for (int64_t r = 0; db != nullptr && r < dy.rows(); ++r)
      for (int64_t i = 0; i < d; ++i) db[i] += dy.row<T>(r)[i];
  });
}

void check_norm(std::string_view name, const Tensor& x, const Vector& w) {
  const int rank = x.shape().rank();
  if (rank < 2 || rank > 3 || x.dim(rank - 1) != w.size)
    throw ShapeError("norm " + std::string(name) + ": " + w.name + " has " + std::to_string(w.size) +
                     " numbers; found x of shape " + x.shape().text());
}

// Vectors of heads are rows to a norm, and [rows, heads, d] to those who see them.
Tensor by_heads(const Tensor& t, int64_t heads) { return heads == 0 ? t : t.view({t.rows() / heads, heads, t.row_size()}); }
Tensor by_rows(const Tensor& t, int64_t heads) { return heads == 0 ? t : t.view({t.rows() * heads, t.dim(2)}); }

// What is inside the norm, a hook for each part; node.y holds the fused result and is written again only in rows where a
// listener put something else, so that watching changes no bit and the other sequences keep theirs. b null: RMSNorm.
// Each part is recorded before its hook: what a listener builds on it comes later on the tape.
template <class T>
void show_inside(Context& ctx, const NormNode& node, const T* w, const T* b, int64_t heads) {
  const Tensor& x = node.x;
  const int64_t rows = x.rows(), d = x.row_size();
  const auto hook = [&](const char* name, const Tensor& t) { return by_rows(ctx.hook(name, by_heads(t, heads)), heads); };
  Tape* const tape = ctx.tape();
  const Tensor scale = ctx.empty({rows, 1});
  ctx.run(rows, false, [&](int64_t r, int) { scale.data<T>()[r] = 1 / node.inv_scale.data<T>()[r]; });
  if (tape != nullptr) tape->record(&scale_backward, ScaleNode{x, node.mean, scale});
  const Tensor divisor = hook("hook_scale", scale);
  const auto same_scale = [&](int64_t r) { return divisor.data<T>()[r] == scale.data<T>()[r]; };

  const Tensor pre = ctx.empty(x.shape());
  parallel_for(ctx, rows, d, [&](int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) {
      const T inv = same_scale(r) ? node.inv_scale.data<T>()[r] : 1 / divisor.data<T>()[r], m = mean_of<T>(node.mean, r);
      const T* in = x.row<T>(r);
      T* out = pre.row<T>(r);
      for (int64_t i = 0; i < d; ++i) out[i] = (in[i] - m) * inv;
    }
  });
  if (tape != nullptr) tape->record(&divide_backward, DivideNode{x, node.mean, divisor, pre});
  const Tensor seen = hook("hook_normalized_pre", pre);

  const bool same_pre = seen.raw() == pre.raw();
  parallel_for(ctx, rows, d, [&](int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) {
      if (same_scale(r) && (same_pre || std::equal(seen.row<T>(r), seen.row<T>(r) + d, pre.row<T>(r)))) continue;
      for (int64_t i = 0; i < d; ++i)
        node.y.row<T>(r)[i] = seen.row<T>(r)[i] * (static_cast<T>(node.offset) + w[i]) + (b != nullptr ? b[i] : T{0});
    }
  });
  if (tape != nullptr) tape->record(&weight_backward, WeightNode{seen, node.y, node.w, node.b, node.offset});
}

template <class T>
void fused(const NormNode& node, const T* w, const T* b, T eps, int64_t r) {
  const auto d = static_cast<size_t>(node.x.row_size());
  const T* x = node.x.row<T>(r);
  T *y = node.y.row<T>(r), *inv = node.inv_scale.data<T>() + r;
  if constexpr (std::is_same_v<T, float>) {
    const KernelTable& k = kernels();
    if (b != nullptr) return k.layer_norm(x, w, b, eps, d, y, node.mean.data<T>() + r, inv);
    return k.rms_norm(x, w, static_cast<T>(node.offset), eps, d, y, inv);
  }
  if (b != nullptr) return layer_norm_reference(x, w, b, eps, d, y, node.mean.data<T>() + r, inv);
  return rms_norm_reference(x, w, static_cast<T>(node.offset), eps, d, y, inv);
}

Tensor norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector* b, const NormSpec& spec) {
  check_norm(name, x, w);
  const auto scope = ctx.scope(name);
  const int64_t heads = x.shape().rank() == 3 ? x.dim(1) : 0;
  const Tensor rows = by_rows(x, heads);
  NormNode node{rows, ctx.empty(rows.shape()), {}, ctx.empty({rows.rows(), 1}), &w, b, spec.offset};
  if (b != nullptr) node.mean = ctx.empty({rows.rows(), 1});
  visit_scalar(rows, [&](auto zero) {
    using T = decltype(zero);
    const T* weights = values_of<T>(ctx, w);
    const T* biases = b != nullptr ? values_of<T>(ctx, *b) : nullptr;
    parallel_for(ctx, rows.rows(), rows.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) fused<T>(node, weights, biases, static_cast<T>(spec.eps), r);
    });
    if (ctx.listens("hook_scale") || ctx.listens("hook_normalized_pre")) {
      show_inside<T>(ctx, node, weights, biases, heads);
    } else if (Tape* tape = ctx.tape()) {
      tape->record(&norm_backward, node);
    }
  });
  if (DryRun* dry = ctx.dry()) {
    OpCall call{.op = b != nullptr ? "layer_norm" : "rms_norm",
                .inputs = {x},
                .outputs = {by_heads(node.y, heads)},
                .vectors = {&w},
                .spec = spec};
    if (b != nullptr) call.vectors.push_back(b);
    dry->add(ctx, call);
  }
  return ctx.hook("hook_normalized", by_heads(node.y, heads));
}

}  // namespace

Tensor rms_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const NormSpec& spec) {
  return norm(ctx, name, x, w, nullptr, spec);
}

Tensor layer_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector& b, const NormSpec& spec) {
  return norm(ctx, name, x, w, &b, spec);
}

}  // namespace vitrine
