#include "ops/norm.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/reference/backward.h"
#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/low_rank.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct NormNode {
  Tensor x, y;
  Tensor mean, inv_scale;  // one number per row; mean empty: RMSNorm; both empty: x is normalized, y = x (offset + w) + b
  const Vector *w, *b;     // b null: RMSNorm; of size 0: LayerNorm without one
  double offset;
  int64_t sets;  // of weights: row r has number r % sets. One, or one for each head
};

// The weights or biases of a row, of which w holds all sets.
template <class T>
T* of_row(const NormNode& node, T* w, int64_t r) {
  return w == nullptr ? nullptr : w + r % node.sets * node.x.row_size();
}

template <class T>
void row_gradient(const NormNode& node, const T* w, const Tensor& dy, int64_t r, T* dx, T* dw, T* db, bool add) {
  const auto d = static_cast<size_t>(node.x.row_size());
  const T *x = node.x.row<T>(r), *g = dy.row<T>(r), offset = static_cast<T>(node.offset);
  if (!node.inv_scale) {
    for (size_t i = 0; dx != nullptr && i < d; ++i) dx[i] = (add ? dx[i] : T{0}) + g[i] * (w == nullptr ? T{1} : offset + w[i]);
    for (size_t i = 0; dw != nullptr && i < d; ++i) dw[i] += g[i] * x[i];
    for (size_t i = 0; db != nullptr && i < d; ++i) db[i] += g[i];
    return;
  }
  const T inv = node.inv_scale.data<T>()[r];
  const auto rms = of_type<T>(kernels().rms_norm_gradient, rms_norm_gradient<double>);
  const auto layer = of_type<T>(kernels().layer_norm_gradient, layer_norm_gradient<double>);
  if (node.b == nullptr) return rms(x, w, offset, inv, g, d, dx, dw, add);
  layer(x, w, node.mean.data<T>()[r], inv, g, d, dx, dw, db, add);
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
    const int64_t d = node.x.row_size(), all = node.sets * d;
    const int64_t per_chunk = node.sets * std::clamp<int64_t>(16384 / std::max<int64_t>(d, 1), 1, 64);
    const int64_t chunks = (dy.rows() + per_chunk - 1) / per_chunk, width = (all + 15) / 16 * 16;
    T* parts = of_w || of_b ? ctx.scratch<T>(static_cast<size_t>(2 * chunks * width)) : nullptr;
    const auto one_chunk = [&](int64_t chunk, int) {
      T* dw = of_w ? parts + 2 * chunk * width : nullptr;
      T* db = of_b ? parts + (2 * chunk + 1) * width : nullptr;
      if (of_w) std::fill(dw, dw + all, T{0});
      if (of_b) std::fill(db, db + all, T{0});
      for (int64_t r = chunk * per_chunk; r < std::min(dy.rows(), (chunk + 1) * per_chunk); ++r)
        row_gradient<T>(node, of_row(node, w, r), dy, r, dx ? dx.to.row<T>(r) : nullptr, of_row(node, dw, r), of_row(node, db, r),
                        !dx.fresh);
    };
    ctx.run(chunks, dy.count() > 32768, one_chunk);
    if (of_w) add_parts(ctx, parts, chunks, 2 * width, all, static_cast<T*>(node.w->grad.data));
    if (of_b) add_parts(ctx, parts + width, chunks, 2 * width, all, static_cast<T*>(node.b->grad.data));
  });
  tape.release(node.y);
}

// Calls f(r) for each row, shared among the threads.
template <class F>
void each_row(Context& ctx, const Tensor& x, F&& f) {
  parallel_for(ctx, x.rows(), x.row_size(), [&](int64_t first, int64_t n) {
    for (int64_t r = first; r < first + n; ++r) f(r);
  });
}

// all_w, all_b: those of every set.
template <class T>
void norm_row(const NormNode& node, const T* all_w, const T* all_b, T eps, int64_t r) {
  const T *const w = of_row(node, all_w, r), *const b = of_row(node, all_b, r);
  const auto d = static_cast<size_t>(node.x.row_size());
  const T *x = node.x.row<T>(r), offset = static_cast<T>(node.offset);
  T* y = node.y.row<T>(r);
  if (!node.inv_scale) {  // two loops: within one a compiler may round product and sum together, which the kernels do not
    for (size_t i = 0; i < d; ++i) y[i] = x[i] * (w == nullptr ? T{1} : offset + w[i]);
    for (size_t i = 0; b != nullptr && i < d; ++i) y[i] += b[i];
    return;
  }
  T* inv = node.inv_scale.data<T>() + r;
  const auto rms = of_type<T>(kernels().rms_norm, rms_norm_reference<double>);
  const auto layer = of_type<T>(kernels().layer_norm, layer_norm_reference<double>);
  if (!node.mean) return rms(x, w, offset, eps, d, y, inv);
  layer(x, w, b, eps, d, y, node.mean.data<T>() + r, inv);
}

// The stepwise form, where somebody listens inside: an op for each part, a hook after it. What a listener puts in a part's place,
// a constant or something it built with ops, is what the next op reads and where its gradient goes.
//   s = 1 / inv_scale      p = (x - mean) / s      y = p (offset + w) + b
// 1 / (1 / (1 / a)) is 1 / a in floating point, too: dividing by s is the fused form's product with inv_scale, bit for bit.
struct PartNode {
  Tensor x, mean, s, p;
};

template <class T>
T mean_of(const Tensor& mean, int64_t r) {
  return mean ? mean.data<T>()[r] : T{0};
}

// d s / d x_i = (x_i - mean) / (d s), for the root mean square (mean 0) and the standard deviation alike.
void scale_backward(Context& ctx, Tape& tape, const PartNode& n) {
  const Tensor ds = tape.gradient(n.s), dx = tape.accumulate(n.x);
  if (!ds || !dx) return;
  visit_scalar(ds, [&](auto zero) {
    using T = decltype(zero);
    const int64_t d = n.x.row_size();
    each_row(ctx, n.x, [&](int64_t r) {
      const T factor = ds.data<T>()[r] / (static_cast<T>(d) * n.s.data<T>()[r]), m = mean_of<T>(n.mean, r), *x = n.x.row<T>(r);
      T* const to = dx.row<T>(r);
      for (int64_t i = 0; i < d; ++i) to[i] += factor * (x[i] - m);
    });
  });
}

template <class T>
Tensor scale_of(Context& ctx, const NormNode& node) {
  const Tensor s = ctx.empty(node.inv_scale.shape());
  each_row(ctx, s, [&](int64_t r) { s.data<T>()[r] = 1 / node.inv_scale.data<T>()[r]; });
  if (Tape* tape = ctx.tape()) tape->record(&scale_backward, PartNode{node.x, node.mean, s, {}});
  return s;
}

void divide_backward(Context& ctx, Tape& tape, const PartNode& n) {
  const Tensor dp = tape.gradient(n.p);
  if (!dp) return;
  const Tensor dx = tape.accumulate(n.x), ds = tape.accumulate(n.s);
  visit_scalar(dp, [&](auto zero) {
    using T = decltype(zero);
    const int64_t d = dp.row_size();
    each_row(ctx, dp, [&](int64_t r) {
      const T *g = dp.row<T>(r), *p = n.p.row<T>(r), inv = 1 / n.s.data<T>()[r];
      T sum = 0;
      for (int64_t i = 0; n.mean && i < d; ++i) sum += g[i];
      const T of_mean = sum / static_cast<T>(d);
      T* const to = dx ? dx.row<T>(r) : nullptr;
      for (int64_t i = 0; to != nullptr && i < d; ++i) to[i] += inv * (g[i] - of_mean);
      if (ds) ds.data<T>()[r] -= inv * dot_reference(g, p, static_cast<size_t>(d));
    });
  });
}

template <class T>
Tensor divided(Context& ctx, const NormNode& node, const Tensor& s) {
  const Tensor p = ctx.empty(node.x.shape());
  each_row(ctx, p, [&](int64_t r) {
    const T inv = 1 / s.data<T>()[r], m = mean_of<T>(node.mean, r), *x = node.x.row<T>(r);
    T* const to = p.row<T>(r);
    for (int64_t i = 0, d = p.row_size(); i < d; ++i) to[i] = (x[i] - m) * inv;
  });
  if (Tape* tape = ctx.tape()) tape->record(&divide_backward, PartNode{node.x, node.mean, s, p});
  return p;
}

void check_norm(std::string_view name, const Tensor& x, const Vector& w) {
  const int rank = x.shape().rank();
  const bool fits =
      rank >= 2 && rank <= 3 && (w.size == 0 || w.size == x.dim(rank - 1) || (rank == 3 && w.size == x.dim(1) * x.dim(2)));
  if (!fits)
    throw ShapeError("norm " + std::string(name) + ": " + w.name + " has " + std::to_string(w.size) +
                     " numbers; found x of shape " + x.shape().text());
}

// Vectors of heads are rows to a norm, and [rows, heads, d] to those who see them.
Tensor by_heads(const Tensor& t, int64_t heads) { return heads == 0 ? t : t.view({t.rows() / heads, heads, t.row_size()}); }
Tensor by_rows(const Tensor& t, int64_t heads) { return heads == 0 ? t : t.view({t.rows() * heads, t.dim(2)}); }

// Runs the first two of these ops, and leaves the third in `node`. Whether a listener changed what y is made of.
template <class T>
bool show_inside(Context& ctx, NormNode& node, int64_t heads) {
  const auto hook = [&](const char* name, const Tensor& t) { return by_rows(ctx.hook(name, by_heads(t, heads)), heads); };
  const Tensor scale = scale_of<T>(ctx, node), s = hook("hook_scale", scale);
  const Tensor pre = divided<T>(ctx, node, s), p = hook("hook_normalized_pre", pre);
  node.x = p;
  node.mean = node.inv_scale = {};
  return s.raw() != scale.raw() || p.raw() != pre.raw();
}

// The rows whose adapters (Context::row_adapters) have another weight or bias of this norm, once more with those.
template <class T>
void adapt_rows(Context& ctx, const NormNode& node, int64_t heads, T eps) {
  const auto width = static_cast<size_t>(node.sets * node.x.row_size());
  const auto changes = [&](const RowAdapter& which) {
    const auto& vectors = which.parts->vectors;
    return vectors.contains(node.w) || (node.b != nullptr && vectors.contains(node.b));
  };
  if (ctx.dry() != nullptr || std::none_of(ctx.row_adapters.begin(), ctx.row_adapters.end(), changes)) return;
  const int64_t each = std::max<int64_t>(heads, 1), all = node.x.rows() / each;
  std::vector<T> w(width), b(width);
  for (int64_t begin = 0; begin < all;) {  // rows of the step that have the same adapters
    int64_t end = all;
    bool found = false;
    for (size_t i = 0; i < width; ++i) {
      w[i] = node.w->template at<T>(static_cast<int64_t>(i));
      b[i] = node.b != nullptr && *node.b ? node.b->template at<T>(static_cast<int64_t>(i)) : T{0};
    }
    for (const RowAdapter& which : ctx.row_adapters) {
      const bool every = which.rows == RowAdapter::kAllRows;
      const int64_t first = every ? 0 : which.first, last = every ? all : which.first + which.rows;
      if (begin < first) end = std::min(end, first);
      if (begin < first || begin >= last) continue;
      end = std::min(end, last);
      const auto change = [&](const Vector* vector, std::vector<T>& to) {
        const auto other = which.parts->vectors.find(vector);
        if (other == which.parts->vectors.end()) return;
        found = true;
        for (size_t i = 0; i < width; ++i) {
          const auto at = static_cast<int64_t>(i);
          to[i] += static_cast<T>(which.scale) * (other->second->at<T>(at) - vector->at<T>(at));
        }
      };
      change(node.w, w);
      if (node.b != nullptr) change(node.b, b);
    }
    if (found && ctx.tape() != nullptr)
      throw UsageError("adapters of some rows are not differentiated; put the adapter at the weights");
    for (int64_t r = begin * each; found && r < end * each; ++r)
      norm_row<T>(node, w.data(), node.b != nullptr && *node.b ? b.data() : nullptr, eps, r);
    begin = end;
  }
}

Tensor norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector* b, const NormSpec& spec) {
  check_norm(name, x, w);
  const auto scope = ctx.scope(name);
  const int64_t heads = x.shape().rank() == 3 ? x.dim(1) : 0;
  const Tensor rows = by_rows(x, heads);
  const int64_t sets = w.size > rows.row_size() ? heads : 1;
  NormNode node{rows, ctx.empty(rows.shape()), {}, ctx.empty({rows.rows(), 1}), &w, b, spec.offset, sets};
  if (b != nullptr) node.mean = ctx.empty({rows.rows(), 1});
  visit_scalar(rows, [&](auto zero) {
    using T = decltype(zero);
    const T* weights = values_of<T>(ctx, w);
    const T* biases = b == nullptr ? nullptr : values_of<T>(ctx, *b);
    const auto run = [&] {
      each_row(ctx, rows, [&](int64_t r) { norm_row<T>(node, weights, biases, static_cast<T>(spec.eps), r); });
    };
    run();
    if (!ctx.row_adapters.empty()) adapt_rows<T>(ctx, node, heads, static_cast<T>(spec.eps));
    const bool inside = ctx.listens("hook_scale") || ctx.listens("hook_normalized_pre");
    if (inside && show_inside<T>(ctx, node, heads)) {
      run();
      if (!ctx.row_adapters.empty()) adapt_rows<T>(ctx, node, heads, static_cast<T>(spec.eps));
    }
  });
  if (Tape* tape = ctx.tape()) tape->record(&norm_backward, node);
  const Tensor y = by_heads(node.y, heads);
  if (DryRun* dry = ctx.dry()) {
    OpCall call{.op = b != nullptr ? "layer_norm" : "rms_norm", .inputs = {x}, .outputs = {y}, .vectors = {&w}, .spec = spec};
    if (b != nullptr && b->size > 0) call.vectors.push_back(b);
    dry->add(ctx, call);
  }
  return ctx.hook("hook_normalized", y);
}

}  // namespace

Tensor rms_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const NormSpec& spec) {
  return norm(ctx, name, x, w, nullptr, spec);
}

Tensor layer_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector& b, const NormSpec& spec) {
  return norm(ctx, name, x, w, &b, spec);
}

}  // namespace vitrine
