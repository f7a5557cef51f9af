#include "ops/norm.h"

#include <algorithm>

#include "kernels/reference/norm.h"
#include "kernels/table.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// What a listener changed on the way: the gradient stops where a constant came in.
enum class Replaced : uint8_t { nothing, scale, normalized };

struct NormNode {
  Tensor x, y;
  Tensor mean, inv_scale;  // one number per row; mean empty: RMSNorm
  Tensor normalized;       // what a listener put in place of (x - mean) / scale
  const Vector *w, *b;     // b null: RMSNorm
  double offset;
  Replaced replaced;
};

template <class T>
void one_row_backward(const NormNode& node, const T* w, int64_t r, const T* dy, T* dx, T* dw, T* db) {
  const int64_t d = node.x.row_size();
  const T* x = node.x.row<T>(r);
  const T inv = node.inv_scale.data<T>()[r], mean = node.mean ? node.mean.data<T>()[r] : T{0};
  const T offset = static_cast<T>(node.offset);
  if (node.replaced == Replaced::nothing) {
    if (node.b != nullptr) return layer_norm_backward(x, w, mean, inv, dy, static_cast<size_t>(d), dx, dw, db);
    return rms_norm_backward(x, w, offset, inv, dy, static_cast<size_t>(d), dx, dw);
  }
  for (int64_t i = 0; i < d; ++i) {
    const T pre = node.replaced == Replaced::normalized ? node.normalized.row<T>(r)[i] : (x[i] - mean) * inv;
    if (dw != nullptr) dw[i] += dy[i] * pre;
    if (db != nullptr) db[i] += dy[i];
    // A given scale is a constant. (The mean's own gradient is that of the subtraction: constant rows cancel.)
    if (dx != nullptr && node.replaced == Replaced::scale) dx[i] += dy[i] * (offset + w[i]) * inv;
  }
  if (dx != nullptr && node.replaced == Replaced::scale && node.b != nullptr) {
    T sum = 0;
    for (int64_t i = 0; i < d; ++i) sum += dy[i] * (offset + w[i]) * inv;
    for (int64_t i = 0; i < d; ++i) dx[i] -= sum / static_cast<T>(d);
  }
}

void norm_backward(Context& ctx, Tape& tape, const NormNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tensor dx = tape.accumulate(node.x);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const T* w = numbers<T>(ctx, *node.w);
    auto* dw = static_cast<T*>(node.w->grad.data);
    auto* db = node.b != nullptr ? static_cast<T*>(node.b->grad.data) : nullptr;
    for (int64_t r = 0; r < dy.rows(); ++r) one_row_backward<T>(node, w, r, dy.row<T>(r), dx ? dx.row<T>(r) : nullptr, dw, db);
  });
}

void check_norm(std::string_view name, const Tensor& x, const Vector& w) {
  if (x.shape().rank() != 2 || x.row_size() != w.size)
    throw ShapeError("norm " + std::string(name) + ": " + w.name + " has " + std::to_string(w.size) +
                     " numbers; found x of shape " + x.shape().text());
}

// What is inside the norm, a hook for each part; node.y holds the fused result and is written again only in rows where a
// listener put something else, so that watching changes no bit and the other sequences keep theirs. b null: RMSNorm.
template <class T>
void show_inside(Context& ctx, NormNode& node, const T* w, const T* b) {
  const Tensor& x = node.x;
  const int64_t rows = x.rows(), d = x.row_size();
  Tensor scale = ctx.empty({rows, 1});
  for (int64_t r = 0; r < rows; ++r) scale.data<T>()[r] = 1 / node.inv_scale.data<T>()[r];
  const Tensor shown = ctx.hook("hook_scale", scale);
  const auto same_scale = [&](int64_t r) { return shown.data<T>()[r] == scale.data<T>()[r]; };
  if (shown.raw() != scale.raw()) {
    node.replaced = Replaced::scale;
    for (int64_t r = 0; r < rows; ++r)
      if (!same_scale(r)) node.inv_scale.data<T>()[r] = 1 / shown.data<T>()[r];
  }
  Tensor pre = ctx.empty(x.shape());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < d; ++i)
      pre.row<T>(r)[i] = (x.row<T>(r)[i] - (node.mean ? node.mean.data<T>()[r] : T{0})) * node.inv_scale.data<T>()[r];
  const Tensor seen = ctx.hook("hook_normalized_pre", pre);
  if (seen.raw() != pre.raw()) {
    node.replaced = Replaced::normalized;
    node.normalized = seen;
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (same_scale(r) && std::equal(seen.row<T>(r), seen.row<T>(r) + d, pre.row<T>(r))) continue;
    for (int64_t i = 0; i < d; ++i)
      node.y.row<T>(r)[i] = seen.row<T>(r)[i] * (static_cast<T>(node.offset) + w[i]) + (b != nullptr ? b[i] : T{0});
  }
}

template <class T>
void fused(NormNode& node, const T* w, const T* b, T eps, int64_t r) {
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
  if (!spec.enabled) return ctx.hook("hook_normalized", x);
  NormNode node{x, ctx.empty(x.shape()), {}, ctx.empty({x.rows(), 1}), {}, &w, b, spec.offset, Replaced::nothing};
  if (b != nullptr) node.mean = ctx.empty({x.rows(), 1});
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const T* weights = numbers<T>(ctx, w);
    const T* biases = b != nullptr ? numbers<T>(ctx, *b) : nullptr;
    share(ctx, x.rows(), x.row_size(), [&](int64_t first, int64_t n) {
      for (int64_t r = first; r < first + n; ++r) fused<T>(node, weights, biases, static_cast<T>(spec.eps), r);
    });
    if (ctx.listens("hook_scale") || ctx.listens("hook_normalized_pre")) show_inside<T>(ctx, node, weights, biases);
  });
  if (Tape* tape = ctx.tape()) tape->record(&norm_backward, node);
  return ctx.hook("hook_normalized", node.y);
}

}  // namespace

Tensor rms_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const NormSpec& spec) {
  return norm(ctx, name, x, w, nullptr, spec);
}

Tensor layer_norm(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector& b, const NormSpec& spec) {
  return norm(ctx, name, x, w, &b, spec);
}

}  // namespace vitrine
