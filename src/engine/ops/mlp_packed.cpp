#include "ops/mlp_packed.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/layout.h"
#include "ops/linear.h"
#include "ops/packed_product.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr size_t kColumns = 256;                 // hidden units, or components of the stream, at a time
constexpr size_t kMostPacked = size_t{8} << 20;  // bytes of packed weights: every strip goes through them
constexpr size_t kStrip = 256;                   // rows
constexpr int64_t kFewestRows = 8 * kStrip;      // that leave work to every thread
constexpr int64_t kFar = int64_t{1} << 21;       // elements of a hidden layer that is in no near cache

size_t size_of(int64_t n) { return static_cast<size_t>(n); }

// Rows of a strip, whole blocks of them: what one task goes through, and the depth of the weights' gradients' products.
size_t strip_rows(const PackedKernels& p) { return std::max<size_t>(1, std::min(kStrip, p.depth) / p.rows) * p.rows; }

// A weight as a matrix [out, in].
Operand matrix(const Weight& w) { return {reinterpret_cast<const float*>(w.data), w.stride / sizeof(float), w.by_columns}; }

// The right side of the products that every strip goes through: a matrix of a weight, packed once, by kColumns hidden units,
// which are its columns or the depth of its sums.
class PackedWeight {
 public:
  PackedWeight() = default;
  PackedWeight(Context& ctx, const PackedKernels& p, const Operand& b, bool units_are_columns, size_t units, size_t width)
      : p_(&p), b_(b), units_are_columns_(units_are_columns), units_(units), width_(width) {
    const size_t most = std::min(kColumns, units);
    chunk_bytes_ = units_are_columns ? packed_b_bytes(p, width, most) : packed_b_bytes(p, most, width);
    packed_ = ctx.scratch<std::byte>(chunk_bytes_ * ceil_div(units, kColumns));
  }
  void pack(size_t chunk) const {
    const size_t first = chunk * kColumns, n = std::min(kColumns, units_ - first);
    if (units_are_columns_)
      pack_b(*p_, b_.from(0, first), width_, n, packed_ + chunk * chunk_bytes_);
    else
      pack_b(*p_, b_.from(first, 0), n, width_, packed_ + chunk * chunk_bytes_);
  }
  const std::byte* chunk_at(size_t chunk) const { return packed_ + chunk * chunk_bytes_; }

 private:
  const PackedKernels* p_ = nullptr;
  Operand b_{nullptr, 0};
  bool units_are_columns_ = false;
  size_t units_ = 0, width_ = 0, chunk_bytes_ = 0;
  std::byte* packed_ = nullptr;
};

// A matrix [rows, columns] packed for sums over its rows, by strips of them and kColumns columns: as the left side of a product,
// whose rows its columns become, or as the right side.
struct Pieces {
  std::byte* packed = nullptr;  // null: not wanted
  bool left = false;
  size_t columns = 0, chunk_bytes = 0;

  Pieces() = default;
  template <class Allocate>
  Pieces(const PackedKernels& p, bool as_left, size_t rows, size_t n_columns, Allocate&& allocate)
      : left(as_left), columns(n_columns) {
    const size_t strip = strip_rows(p), most = std::min(kColumns, columns);
    chunk_bytes = align_up(left ? p.a_bytes(most, strip) : p.b_bytes(strip, most));
    packed = allocate(chunk_bytes * ceil_div(rows, strip) * ceil_div(columns, kColumns));
  }
  std::byte* at(size_t strip, size_t chunk) const { return packed + (strip * ceil_div(columns, kColumns) + chunk) * chunk_bytes; }
  // n rows of it: columns [chunk kColumns, …) of a strip lie at x, `stride` elements from row to row.
  void pack(const PackedKernels& p, size_t strip, size_t chunk, const float* x, size_t stride, size_t n) const {
    if (packed == nullptr) return;
    const size_t here = std::min(kColumns, columns - chunk * kColumns);
    if (left)
      p.pack_a(x, stride, true, here, n, at(strip, chunk));
    else
      p.pack_b(x, stride, false, n, here, at(strip, chunk));
  }
  void pack_whole(const PackedKernels& p, size_t strip, const float* x, size_t n) const {
    for (size_t chunk = 0; packed != nullptr && chunk < ceil_div(columns, kColumns); ++chunk)
      pack(p, strip, chunk, x + chunk * kColumns, columns, n);
  }
};

// What lies before and after f, [rows, d_ff] in bf16.
struct Kept {
  uint16_t *pre = nullptr, *linear = nullptr;
  Pieces post;
};
struct MlpNode {
  Tensor x, y;
  Mlp mlp;
  Kept kept;
};

// Memory of each thread, one after the other.
class Scratch {
 public:
  Scratch(Context& ctx, const Layout& layout)
      : bytes_(layout.bytes()), base_(ctx.scratch<std::byte>(bytes_ * size_of(ctx.pool().threads()))) {}
  std::byte* at(size_t offset, int thread) const { return base_ + bytes_ * size_of(thread) + offset; }
  float* floats_at(size_t offset, int thread) const { return reinterpret_cast<float*>(at(offset, thread)); }

 private:
  size_t bytes_;
  std::byte* base_;
};

// Sizes of one call.
struct Sizes {
  Sizes(const PackedKernels& p, const Tensor& x, const Mlp& mlp)
      : rows(size_of(x.rows())),
        width(size_of(x.row_size())),
        units(size_of(mlp.in->out)),
        strip(strip_rows(p)),
        strips(ceil_div(rows, strip)),
        chunks(ceil_div(units, kColumns)) {}
  size_t rows, width, units, strip, strips, chunks;
  size_t rows_of(size_t task) const { return std::min(strip, rows - task * strip); }
  size_t units_of(size_t chunk) const { return std::min(kColumns, units - chunk * kColumns); }
};

void pack_weights(Context& ctx, const Sizes& size, std::initializer_list<const PackedWeight*> weights, size_t n_weights) {
  ctx.run(static_cast<int64_t>(n_weights * size.chunks),
          [&](int64_t task, int) { weights.begin()[size_of(task) / size.chunks]->pack(size_of(task) % size.chunks); });
}

void forward(Context& ctx, const Tensor& x, const Mlp& mlp, const Kept& kept, const Tensor& y) {
  const auto frame = ctx.frame();
  const KernelTable& k = kernels();
  const PackedKernels& p = packed_kernels(ctx);
  const Sizes size(p, x, mlp);
  const bool gated = mlp.gate != nullptr;
  const Weight& bent = gated ? *mlp.gate : *mlp.in;  // what goes through f
  const PackedWeight of_pre(ctx, p, matrix(bent).transpose(), true, size.units, size.width),
      of_out(ctx, p, matrix(*mlp.out).transpose(), false, size.units, size.width);
  const PackedWeight of_linear =
      gated ? PackedWeight(ctx, p, matrix(*mlp.in).transpose(), true, size.units, size.width) : PackedWeight();
  pack_weights(ctx, size, {&of_pre, &of_out, &of_linear}, gated ? 3 : 2);
  const float *pre_bias = values_of<float>(ctx, bent.bias), *linear_bias = gated ? values_of<float>(ctx, mlp.in->bias) : nullptr,
              *out_bias = values_of<float>(ctx, mlp.out->bias);
  Layout layout;
  const size_t x_at = layout.reserve(packed_a_bytes(p, size.strip, size.width)),
               post_at = layout.reserve(packed_a_bytes(p, size.strip, kColumns)),
               pre_at = layout.reserve_floats(size.strip * kColumns),
               linear_at = layout.reserve_floats(gated ? size.strip * kColumns : 0);
  const Scratch scratch(ctx, layout);
  ctx.run(static_cast<int64_t>(size.strips), [&](int64_t task, int thread) {
    const size_t strip = size_of(task), begin = strip * size.strip, n = size.rows_of(strip);
    std::byte *const x_packed = scratch.at(x_at, thread), *const post_packed = scratch.at(post_at, thread);
    float *const pre = scratch.floats_at(pre_at, thread), *const linear = scratch.floats_at(linear_at, thread);
    float* const out = y.row<float>(static_cast<int64_t>(begin));
    pack_a(p, {x.row<float>(static_cast<int64_t>(begin)), size.width}, n, size.width, x_packed);
    for (size_t chunk = 0; chunk < size.chunks; ++chunk) {
      const size_t unit = chunk * kColumns, here = size.units_of(chunk);
      multiply_packed(p, x_packed, false, of_pre.chunk_at(chunk), n, here, size.width, pre, kColumns, false);
      if (gated) multiply_packed(p, x_packed, false, of_linear.chunk_at(chunk), n, here, size.width, linear, kColumns, false);
      for (size_t r = 0; r < n; ++r) {
        float *const a = pre + r * kColumns, *const b = linear + r * kColumns;
        const size_t at = (begin + r) * size.units + unit;
        if (pre_bias != nullptr) k.add(a, pre_bias + unit, here, a);
        if (linear_bias != nullptr) k.add(b, linear_bias + unit, here, b);
        if (kept.pre != nullptr) k.narrow(a, here, kept.pre + at);
        if (kept.linear != nullptr) k.narrow(b, here, kept.linear + at);
        if (gated)
          k.gate(mlp.f, a, b, here, a);
        else
          k.activate(mlp.f, a, here, a);
      }
      kept.post.pack(p, strip, chunk, pre, kColumns, n);
      pack_a(p, {pre, kColumns}, n, here, post_packed);
      multiply_packed(p, post_packed, false, of_out.chunk_at(chunk), n, size.width, here, out, size.width, chunk > 0);
    }
    for (size_t r = 0; r < n && out_bias != nullptr; ++r) k.add(out + r * size.width, out_bias, size.width, out + r * size.width);
  });
}

// The gradient of a weight, from `hidden` and what is on its other side; nothing if it is not wanted.
struct WeightGradient {
  const Weight* w = nullptr;
  Pieces hidden, other;
  bool set = false;  // rather than added to

  static bool wanted(const Weight* w) { return w != nullptr && w->grad.data != nullptr; }
  size_t tasks() const { return wanted(w) ? ceil_div(hidden.columns, kColumns) * ceil_div(other.columns, kColumns) : 0; }
  // += or = the part of hidden's columns of chunk i and the other's of chunk j, strip by strip.
  void run(const PackedKernels& p, const Sizes& size, size_t task) const {
    const Pieces &left = hidden.left ? hidden : other, &right = hidden.left ? other : hidden;
    const size_t across = ceil_div(right.columns, kColumns), i = task / across, j = task % across;
    const size_t rows = std::min(kColumns, left.columns - i * kColumns),
                 columns = std::min(kColumns, right.columns - j * kColumns);
    float* const c = static_cast<float*>(w->grad.data) + i * kColumns * w->grad.stride + j * kColumns;
    for (size_t s = 0; s < size.strips; ++s)
      p.multiply(left.at(s, i), true, right.at(s, j), rows, columns, size.rows_of(s), c, w->grad.stride, !set || s > 0, {});
  }
};

// bias's gradient += parts[0] + parts[1] + …
void bias_from_parts(Context& ctx, const Vector& bias, const float* parts, const Sizes& size) {
  if (!bias || bias.grad.data == nullptr) return;
  add_parts(ctx, parts, static_cast<int64_t>(size.strips), static_cast<int64_t>(2 * size.units), bias.size,
            static_cast<float*>(bias.grad.data));
}

void mlp_backward(Context& ctx, Tape& tape, const MlpNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  const KernelTable& k = kernels();
  const PackedKernels& p = packed_kernels(ctx);
  const Mlp& mlp = node.mlp;
  const Sizes size(p, node.x, mlp);
  const bool gated = mlp.gate != nullptr;
  const Weight& bent = gated ? *mlp.gate : *mlp.in;
  const Weight* const plain = gated ? mlp.in : nullptr;

  const PackedWeight of_out(ctx, p, matrix(*mlp.out), true, size.units, size.width);
  const PackedWeight of_pre = dx ? PackedWeight(ctx, p, matrix(bent), false, size.units, size.width) : PackedWeight(),
                     of_linear =
                         dx && gated ? PackedWeight(ctx, p, matrix(*plain), false, size.units, size.width) : PackedWeight();
  pack_weights(ctx, size, {&of_out, &of_pre, &of_linear}, !dx ? 1 : gated ? 3 : 2);

  const auto packed = [&](const Weight* w, bool left, size_t columns) {
    return WeightGradient::wanted(w)
               ? Pieces(p, left, size.rows, columns, [&](size_t bytes) { return ctx.scratch<std::byte>(bytes); })
               : Pieces();
  };
  // Stored [out, in], a gradient's rows are its outputs: hidden units for the first matrices, and not for the last.
  WeightGradient of_weight[] = {{mlp.out, node.kept.post, packed(mlp.out, !mlp.out->by_columns, size.width)},
                                {&bent, packed(&bent, !bent.by_columns, size.units), packed(&bent, bent.by_columns, size.width)},
                                {plain, {}, {}}};
  if (plain != nullptr) {
    of_weight[2].hidden = packed(plain, !plain->by_columns, size.units);
    const bool same = of_weight[1].other.packed != nullptr && plain->by_columns == bent.by_columns;
    of_weight[2].other = same ? of_weight[1].other : packed(plain, plain->by_columns, size.width);
  }
  const bool own_x = of_weight[2].other.packed != of_weight[1].other.packed;

  float* const parts =
      bent.bias || (plain != nullptr && plain->bias) ? ctx.scratch<float>(size.strips * 2 * size.units) : nullptr;
  Layout layout;
  const size_t y_at = layout.reserve(packed_a_bytes(p, size.strip, size.width)),
               packed_at = layout.reserve(packed_a_bytes(p, size.strip, kColumns)),
               dpost_at = layout.reserve_floats(size.strip * kColumns), dpre_at = layout.reserve_floats(size.strip * kColumns),
               dlinear_at = layout.reserve_floats(gated ? size.strip * kColumns : 0),
               row_at = layout.reserve_floats(2 * kColumns);
  const Scratch scratch(ctx, layout);
  const auto widen = k.widen[static_cast<size_t>(DType::bf16)];
  ctx.run(static_cast<int64_t>(size.strips), [&](int64_t task, int thread) {
    const size_t strip = size_of(task), begin = strip * size.strip, n = size.rows_of(strip);
    std::byte *const y_packed = scratch.at(y_at, thread), *const left = scratch.at(packed_at, thread);
    float *const dpost = scratch.floats_at(dpost_at, thread), *const dpre = scratch.floats_at(dpre_at, thread),
                 *const dlinear = scratch.floats_at(dlinear_at, thread), *const pre = scratch.floats_at(row_at, thread),
                 *const linear = pre + kColumns;
    float* const sums = parts != nullptr ? parts + strip * 2 * size.units : nullptr;
    if (sums != nullptr) std::fill(sums, sums + 2 * size.units, 0.0f);
    const auto* dy_rows = dy.row<float>(static_cast<int64_t>(begin));
    const auto* x_rows = node.x.row<float>(static_cast<int64_t>(begin));
    pack_a(p, {dy_rows, size.width}, n, size.width, y_packed);
    of_weight[0].other.pack_whole(p, strip, dy_rows, n);
    of_weight[1].other.pack_whole(p, strip, x_rows, n);
    if (own_x) of_weight[2].other.pack_whole(p, strip, x_rows, n);
    for (size_t chunk = 0; chunk < size.chunks; ++chunk) {
      const size_t unit = chunk * kColumns, here = size.units_of(chunk);
      multiply_packed(p, y_packed, false, of_out.chunk_at(chunk), n, here, size.width, dpost, kColumns, false);
      for (size_t r = 0; r < n; ++r) {
        const size_t at = (begin + r) * size.units + unit;
        float *const a = dpre + r * kColumns, *const b = dlinear + r * kColumns;
        widen(node.kept.pre + at, here, pre);
        if (gated) {
          widen(node.kept.linear + at, here, linear);
          k.gate_gradient(mlp.f, pre, linear, dpost + r * kColumns, here, a, b, false);
          if (sums != nullptr) k.add(sums + size.units + unit, b, here, sums + size.units + unit);
        } else {
          k.activate_gradient(mlp.f, pre, dpost + r * kColumns, here, a, false);
        }
        if (sums != nullptr) k.add(sums + unit, a, here, sums + unit);
      }
      of_weight[1].hidden.pack(p, strip, chunk, dpre, kColumns, n);
      of_weight[2].hidden.pack(p, strip, chunk, dlinear, kColumns, n);
      if (!dx) continue;
      float* const out = dx.to.row<float>(static_cast<int64_t>(begin));
      pack_a(p, {dpre, kColumns}, n, here, left);
      multiply_packed(p, left, false, of_pre.chunk_at(chunk), n, size.width, here, out, size.width, !dx.fresh || chunk > 0);
      if (!gated) continue;
      pack_a(p, {dlinear, kColumns}, n, here, left);
      multiply_packed(p, left, false, of_linear.chunk_at(chunk), n, size.width, here, out, size.width, true);
    }
  });

  size_t end[4] = {0};
  for (size_t i = 0; i < 3; ++i) {
    end[i + 1] = end[i] + of_weight[i].tasks();
    of_weight[i].set = end[i + 1] > end[i] && takes_first(of_weight[i].w->grad);
  }
  ctx.run(static_cast<int64_t>(end[3]), [&](int64_t task, int) {
    size_t i = 0;
    while (size_of(task) >= end[i + 1]) ++i;
    of_weight[i].run(p, size, size_of(task) - end[i]);
  });
  bias_backward(ctx, *mlp.out, 0, mlp.out->out, dy.raw(), mlp.out->out, dy.rows(), dy.dtype());
  if (parts != nullptr) bias_from_parts(ctx, bent.bias, parts, size);
  if (parts != nullptr && gated) bias_from_parts(ctx, plain->bias, parts + size.units, size);
  tape.release(node.y);
}

}  // namespace

bool packs_mlp(const Context& ctx, const Tensor& x, const Mlp& mlp) {
  if (!ctx.row_adapters.empty() || !packs_bf16(ctx) || x.dtype() != DType::f32 || x.rows() < kFewestRows ||
      x.rows() * mlp.in->out < kFar)
    return false;
  size_t bytes = 0;
  for (const Weight* w : {mlp.gate, mlp.in, mlp.out}) {
    if (w == nullptr) continue;
    if (w->dtype != DType::f32 || w->adapter != nullptr) return false;
    const bool last = w == mlp.out;  // sizes that disagree are the ops' business
    if (w->in != (last ? mlp.in->out : x.row_size()) || (!last && w->out != mlp.in->out)) return false;
    bytes += size_of(w->in) * size_of(w->out) * sizeof(uint16_t);
  }
  return bytes <= kMostPacked;
}

Tensor mlp_packed(Context& ctx, const Tensor& x, const Mlp& mlp) {
  const Tensor y = ctx.empty({x.rows(), mlp.out->out});
  Kept kept;
  Tape* const tape = ctx.tape();
  if (tape != nullptr) {
    const size_t rows = size_of(x.rows()), units = size_of(mlp.in->out), bytes = rows * units * sizeof(uint16_t);
    const auto allocate = [&](size_t n) { return static_cast<std::byte*>(tape->arena().allocate(n)); };
    kept.pre = reinterpret_cast<uint16_t*>(allocate(bytes));
    if (mlp.gate != nullptr) kept.linear = reinterpret_cast<uint16_t*>(allocate(bytes));
    if (WeightGradient::wanted(mlp.out)) kept.post = Pieces(packed_kernels(ctx), mlp.out->by_columns, rows, units, allocate);
  }
  forward(ctx, x, mlp, kept, y);
  if (tape != nullptr) tape->record(&mlp_backward, MlpNode{x, y, mlp, kept});
  if (DryRun* dry = ctx.dry()) {  // as what it is a part of: mlp or gated_mlp
    OpCall call{.op = "mlp_packed", .inputs = {x}, .outputs = {y}};
    for (const Weight* w : {mlp.gate, mlp.in, mlp.out}) {
      if (w == nullptr) continue;
      call.weights.push_back(w);
      if (w->bias.size > 0) call.vectors.push_back(&w->bias);
      call.multiply_adds += x.rows() * w->in * w->out;
    }
    dry->add(ctx, call);
  }
  return y;
}

}  // namespace vitrine
