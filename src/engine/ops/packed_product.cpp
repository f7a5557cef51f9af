#include "ops/packed_product.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "kernels/table.h"
#include "ops/layout.h"

namespace vitrine {
namespace {

// Calls f(t, depth) for each cut of the depth.
template <class F>
void each_cut(const PackedKernels& p, size_t depth, F&& f) {
  for (size_t t = 0; t < depth; t += p.depth) f(t, std::min(p.depth, depth - t));
}

// Where a part of an operand lies: so many lines (rows of a, columns of b), so deep.
ReadNext lines_of(const float* data, size_t stride, bool side_by_side, size_t lines, size_t depth) {
  if (side_by_side) std::swap(lines, depth);
  return {data, lines, depth * sizeof(float), stride * sizeof(float)};
}

constexpr size_t kNear = size_t{2} << 20;  // bytes that are likely in a core's cache

// Numbers of a packed strip that leave room beside it in a core's second cache.
size_t strip_numbers() {
  static const size_t numbers = [] {
    long bytes = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE
    bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    return std::clamp(bytes > 0 ? static_cast<size_t>(bytes) / 8 : 0, size_t{1} << 17, size_t{1} << 18);
  }();
  return numbers;
}

// Lines of c that a task multiplies: whole blocks, more of them where there are many.
size_t strip_of(size_t lines, size_t block) {
  const size_t wanted = lines <= 512 ? 32 : lines < 2048 ? 64 : 128;
  return std::max<size_t>(1, wanted / block) * block;
}
// Tasks for so many lines: as many for each thread, and no more than lines have blocks. No sum depends on it.
// far: what is read or written of lines lies in short pieces far from one another and from the core, so that strips shall be as
// wide as fits.
size_t tasks_of(size_t lines, size_t block, size_t depth, bool far, size_t threads) {
  size_t tasks = ceil_div(lines, strip_of(lines, block));
  if (far) tasks = std::min(tasks, ceil_div(lines, std::max<size_t>(1, strip_numbers() / depth)));
  return std::min(ceil_div(tasks, threads) * threads, ceil_div(lines, block));
}

}  // namespace

bool packs_bf16(const Context& ctx) { return ctx.numerics.bf16 && kernels().packed_bf16.rows > 0; }
const PackedKernels& packed_kernels(const Context& ctx) { return packs_bf16(ctx) ? kernels().packed_bf16 : kernels().packed_f32; }

size_t packed_a_bytes(const PackedKernels& p, size_t rows, size_t depth) {
  size_t bytes = 0;
  each_cut(p, depth, [&](size_t, size_t here) { bytes += align_up(p.a_bytes(rows, here)); });
  return bytes;
}
size_t packed_b_bytes(const PackedKernels& p, size_t depth, size_t columns) {
  size_t bytes = 0;
  each_cut(p, depth, [&](size_t, size_t here) { bytes += align_up(p.b_bytes(here, columns)); });
  return bytes;
}

void pack_a(const PackedKernels& p, const Operand& a, size_t rows, size_t depth, std::byte* packed) {
  each_cut(p, depth, [&](size_t t, size_t here) {
    p.pack_a(a.from(0, t).data, a.stride, a.transposed, rows, here, packed);
    packed += align_up(p.a_bytes(rows, here));
  });
}
void pack_b(const PackedKernels& p, const Operand& b, size_t depth, size_t columns, std::byte* packed) {
  each_cut(p, depth, [&](size_t t, size_t here) {
    p.pack_b(b.from(t, 0).data, b.stride, b.transposed, here, columns, packed);
    packed += align_up(p.b_bytes(here, columns));
  });
}

void multiply_packed(const PackedKernels& p, const std::byte* a, bool a_turned, const std::byte* b, size_t rows, size_t columns,
                     size_t depth, float* c, size_t c_stride, bool add) {
  each_cut(p, depth, [&](size_t t, size_t here) {
    p.multiply(a, a_turned, b, rows, columns, here, c, c_stride, add || t > 0, {});
    a += align_up(p.a_bytes(rows, here));
    b += align_up(p.b_bytes(here, columns));
  });
}

// The operand of the shorter side is packed once for all; strips of the longer side are packed by the task that multiplies
// them, piece by piece of the depth, so that they stay in its cache.
void packed_product(Context& ctx, const Operand& a, const Operand& b, size_t rows, size_t columns, size_t depth, float* c,
                    size_t c_stride, bool add) {
  if (depth == 0) {
    ctx.run(add ? 0 : static_cast<int64_t>(rows), false,
            [&](int64_t i, int) { std::fill_n(c + static_cast<size_t>(i) * c_stride, columns, 0.0f); });
    return;
  }
  const PackedKernels& p = packed_kernels(ctx);
  const auto scratch = ctx.frame();
  const bool by_rows = rows >= columns;
  const size_t lines = by_rows ? rows : columns, others = by_rows ? columns : rows;
  const auto other_bytes = [&](size_t n, size_t here) { return by_rows ? p.b_bytes(here, n) : p.a_bytes(n, here); };
  auto* shared = ctx.scratch<std::byte>(by_rows ? packed_b_bytes(p, depth, columns) : packed_a_bytes(p, rows, depth));
  const auto cut_of = [&](size_t t) { return shared + t / p.depth * align_up(other_bytes(others, p.depth)); };

  // Pieces of the shared operand in the order of its memory where that is far, else so that unequal cuts fall to all threads.
  const bool shared_far = (by_rows ? !b.transposed : a.transposed) && others * depth * sizeof(float) > kNear;
  const size_t cuts = ceil_div(depth, p.depth), per_piece = strip_of(64, by_rows ? p.columns : p.rows),
               n_pieces = ceil_div(others, per_piece);
  const auto pack_shared = [&](int64_t chunk, int) {
    const auto i = static_cast<size_t>(chunk);
    const size_t t = (shared_far ? i / n_pieces : i % cuts) * p.depth, first = (shared_far ? i % n_pieces : i / cuts) * per_piece;
    const size_t here = std::min(p.depth, depth - t), n = std::min(per_piece, others - first);
    std::byte* to = cut_of(t) + other_bytes(first, here);
    if (by_rows) {
      p.pack_b(b.from(t, first).data, b.stride, b.transposed, here, n, to);
    } else {
      p.pack_a(a.from(first, t).data, a.stride, a.transposed, n, here, to);
    }
  };
  ctx.run(static_cast<int64_t>(cuts * n_pieces), depth * others > 4096, pack_shared);

  const bool far_apart = (!by_rows || a.transposed) && (rows * columns + lines * depth) * sizeof(float) > kNear;
  const size_t block = by_rows ? p.rows : p.columns, deepest = std::min(p.depth, depth);
  const size_t blocks = ceil_div(lines, block),
               tasks = tasks_of(lines, block, deepest, far_apart, static_cast<size_t>(ctx.pool().threads()));
  const auto begin_of = [&](size_t task) { return std::min(lines, blocks * task / tasks * block); };
  const size_t strip = ceil_div(blocks, tasks) * block;
  const size_t own_bytes = align_up(by_rows ? p.a_bytes(strip, deepest) : p.b_bytes(deepest, strip));
  auto* own = ctx.scratch<std::byte>(own_bytes * static_cast<size_t>(ctx.pool().threads()));
  const auto multiply = [&](int64_t task, int thread) {
    const size_t first = begin_of(static_cast<size_t>(task)), end = begin_of(static_cast<size_t>(task) + 1), n = end - first;
    std::byte* mine = own + own_bytes * static_cast<size_t>(thread);
    // What this thread most likely packs next: the rest of these lines, or those that follow (ThreadPool's shares).
    const auto after = [&](size_t t) -> ReadNext {
      const size_t line = t < depth ? first : end;
      if (t >= depth) t = 0;
      if (line >= lines) return {};
      const size_t count = std::min(strip, lines - line), here = std::min(p.depth, depth - t);
      return by_rows ? lines_of(a.from(line, t).data, a.stride, a.transposed, count, here)
                     : lines_of(b.from(t, line).data, b.stride, !b.transposed, count, here);
    };
    each_cut(p, depth, [&](size_t t, size_t here) {
      if (by_rows) {
        p.pack_a(a.from(first, t).data, a.stride, a.transposed, n, here, mine);
        p.multiply(mine, a.transposed, cut_of(t), n, columns, here, c + first * c_stride, c_stride, add || t > 0,
                   after(t + here));
      } else {
        p.pack_b(b.from(t, first).data, b.stride, b.transposed, here, n, mine);
        p.multiply(cut_of(t), a.transposed, mine, rows, n, here, c + first, c_stride, add || t > 0, after(t + here));
      }
    });
  };
  ctx.run(static_cast<int64_t>(tasks), rows * columns * depth > 65536, multiply);
}

}  // namespace vitrine
