#include "ops/low_rank.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/table.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// h [rows, rank] = scale · x Aᵀ. The scale is here, where rows are short; so dB = dyᵀ h needs none.
void inner(Context& ctx, const Tensor& x, const LowRank& adapter, const Tensor& h, double times = 1) {
  linear_part(ctx, x, adapter.A, 0, adapter.A.out, h.raw(), adapter.A.out);
  visit_scalar(h, [&](auto zero) {
    using T = decltype(zero);
    T* const numbers = h.data<T>();
    ctx.run(h.count(), false, [&](int64_t i, int) { numbers[i] *= static_cast<T>(adapter.scale * times); });
  });
}

// y [rows, n] += from [rows, n]
template <class T>
void add_rows(Context& ctx, const T* from, int64_t rows, int64_t n, void* y, int64_t y_stride) {
  parallel_for(ctx, rows, n, [&](int64_t first, int64_t count) {
    for (int64_t r = first; r < first + count; ++r) {
      T* const to = static_cast<T*>(y) + r * y_stride;
      if constexpr (std::is_same_v<T, float>) {
        kernels().add(to, from + r * n, static_cast<size_t>(n), to);
      } else {
        for (int64_t j = 0; j < n; ++j) to[j] += from[r * n + j];
      }
    }
  });
}

// y += h Bᵀ for outputs [first, first + n)
void outer(Context& ctx, const Tensor& h, const Weight& B, int64_t first, int64_t n, void* y, int64_t y_stride) {
  visit_scalar(h, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    T* const sums = ctx.scratch<T>(static_cast<size_t>(h.rows() * n));
    linear_part(ctx, h, B, first, n, sums, n);
    add_rows<T>(ctx, sums, h.rows(), n, y, y_stride);
  });
}

// Through both products; dx may be empty, and with `add` false it is set.
void backward(Context& ctx, const Tensor& x, const Tensor& h, const LowRank& adapter, int64_t first, int64_t n, const void* dy,
              int64_t dy_stride, const Tensor& dx, bool add) {
  visit_scalar(h, [&](auto zero) {
    using T = decltype(zero);
    const auto scratch = ctx.frame();
    const Tensor dh(ctx.scratch<T>(static_cast<size_t>(h.count())), h.dtype(), h.shape());
    linear_part_backward(ctx, h, adapter.B, first, n, dy, dy_stride, dh, false);
    for (int64_t i = 0; i < dh.count(); ++i) dh.data<T>()[i] *= static_cast<T>(adapter.scale);
    linear_part_backward(ctx, x, adapter.A, 0, adapter.A.out, dh.raw(), adapter.A.out, dx, add);
  });
}

Weight frozen(const Weight& w) {
  Weight plain = w;
  plain.grad = {};
  plain.adapter = nullptr;
  return plain;
}

// The rows among outputs [first, first + n) that become others, and what they differ by from the stored ones, in the context's
// scratch. Its gradient is theirs.
struct ChangedRows {
  ChangedRows(Context& ctx, const Weight& w, const LowRank& adapter, int64_t first, int64_t n, DType activations) {
    const auto begin = std::lower_bound(adapter.rows.begin(), adapter.rows.end(), first);
    const auto end = std::lower_bound(begin, adapter.rows.end(), first + n);
    rows = {begin, end};
    const auto before = static_cast<size_t>(begin - adapter.rows.begin());
    difference.name = adapter.A.name;
    difference.out = std::ssize(rows);
    difference.in = w.in;
    difference.stride = static_cast<size_t>(w.in) * sizeof(float);
    auto* const values = ctx.scratch<float>(rows.size() * static_cast<size_t>(w.in));
    difference.data = reinterpret_cast<const std::byte*>(values);
    ctx.run(std::ssize(rows), false, [&](int64_t k, int) {
      const auto* const own = reinterpret_cast<const float*>(adapter.A.stored_row(static_cast<int64_t>(before) + k));
      for (int64_t i = 0; i < w.in; ++i) values[k * w.in + i] = own[i] - w.at<float>(rows[static_cast<size_t>(k)], i);
    });
    if (adapter.A.grad.data != nullptr)
      difference.grad = {static_cast<std::byte*>(adapter.A.grad.data) + row_bytes(activations, before * adapter.A.grad.stride),
                         adapter.A.grad.stride};
  }
  std::span<const int64_t> rows;
  Weight difference;
};

void changed_rows_part(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n, void* y,
                       int64_t y_stride, double times) {
  const ChangedRows changed(ctx, w, adapter, first, n, x.dtype());
  if (changed.rows.empty()) return;
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t m = changed.difference.out;
    T* const h = ctx.scratch<T>(static_cast<size_t>(x.rows() * m));
    linear_part(ctx, x, changed.difference, 0, m, h, m);
    ctx.run(x.rows(), false, [&](int64_t r, int) {
      T* const to = static_cast<T*>(y) + r * y_stride;
      for (int64_t k = 0; k < m; ++k) to[changed.rows[static_cast<size_t>(k)] - first] += static_cast<T>(times) * h[r * m + k];
    });
  });
}

void changed_rows_backward(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n,
                           const void* dy, int64_t dy_stride, const Tensor& dx) {
  const ChangedRows changed(ctx, w, adapter, first, n, x.dtype());
  if (changed.rows.empty()) return;
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const int64_t m = changed.difference.out;
    T* const dh = ctx.scratch<T>(static_cast<size_t>(x.rows() * m));
    ctx.run(x.rows(), false, [&](int64_t r, int) {
      const T* const from = static_cast<const T*>(dy) + r * dy_stride;
      for (int64_t k = 0; k < m; ++k) dh[r * m + k] = from[changed.rows[static_cast<size_t>(k)] - first];
    });
    linear_part_backward(ctx, x, changed.difference, 0, m, dh, m, dx);
  });
}

void whole_part(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n, void* y,
                int64_t y_stride, double times) {
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const auto count = static_cast<size_t>(x.rows() * n);
    T *const with = ctx.scratch<T>(count), *const without = ctx.scratch<T>(count);
    linear_part(ctx, x, *adapter.whole, first, n, with, n);
    linear_part(ctx, x, w, first, n, without, n);
    parallel_for(ctx, x.rows(), n, [&](int64_t begin, int64_t rows) {
      for (int64_t i = begin * n; i < (begin + rows) * n; ++i) with[i] = static_cast<T>(times) * (with[i] - without[i]);
    });
    add_rows<T>(ctx, with, x.rows(), n, y, y_stride);
  });
}

// DoRA ----------------------------------------------------------------------------------------------------------------

// row += scale · row `out` of B A
void add_product(const LowRank& adapter, int64_t out, float* row) {
  for (int64_t k = 0; k < adapter.A.out; ++k)
    kernels().add_scaled(reinterpret_cast<const float*>(adapter.A.stored_row(k)),
                         static_cast<float>(adapter.scale * adapter.B.at<double>(out, k)), static_cast<size_t>(adapter.A.in),
                         row);
}

// Length of row `out` of W + scale · B A, and r.
struct Magnitude {
  float length, ratio;
};
Magnitude magnitude_of(const LowRank& adapter, int64_t out, const float* sum) {
  const double length = std::sqrt(kernels().sum_of_squares(sum, static_cast<size_t>(adapter.A.in)));
  return {static_cast<float>(length), static_cast<float>(adapter.magnitude.at<double>(out) / length)};
}
// The same of a stored W; `row` [in] is scratch.
Magnitude magnitude_of(const Weight& w, const LowRank& adapter, int64_t out, float* row) {
  if (w.by_columns || w.dtype == DType::f64) {
    for (int64_t i = 0; i < w.in; ++i) row[i] = w.at<float>(out, i);
  } else {
    kernels().widen[static_cast<size_t>(w.dtype)](w.stored_row(out), static_cast<size_t>(w.in), row);
  }
  add_product(adapter, out, row);
  return magnitude_of(adapter, out, row);
}

// The magnitudes of outputs [first, first + n).
const Magnitude* magnitudes(Context& ctx, const Weight& w, const LowRank& adapter, int64_t first, int64_t n) {
  auto* const all = ctx.scratch<Magnitude>(static_cast<size_t>(n));
  if (ctx.dry() != nullptr) return all;
  if (adapter.ratio != nullptr) {
    for (int64_t j = 0; j < n; ++j)
      all[j] = {adapter.magnitude.at<float>(first + j) / adapter.ratio[first + j], adapter.ratio[first + j]};
    return all;
  }
  parallel_for(ctx, n, w.in * (adapter.A.out + 2), [&](int64_t begin, int64_t count) {
    std::vector<float> row(static_cast<size_t>(w.in));
    for (int64_t j = begin; j < begin + count; ++j) all[j] = magnitude_of(w, adapter, first + j, row.data());
  });
  return all;
}

// base: x Wᵀ [rows, n], or null.
void dora_part(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n, void* y,
               int64_t y_stride, double times, const void* base) {
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const Magnitude* const of = magnitudes(ctx, w, adapter, first, n);
    T* const sums = ctx.scratch<T>(static_cast<size_t>(x.rows() * n));
    const auto* product = static_cast<const T*>(base);
    if (product == nullptr) {
      T* const made = ctx.scratch<T>(static_cast<size_t>(x.rows() * n));
      linear_part(ctx, x, frozen(w), first, n, made, n);
      product = made;
    }
    std::memset(sums, 0, ctx.dry() != nullptr ? 0 : static_cast<size_t>(x.rows() * n) * sizeof(T));
    const Tensor h(ctx.scratch<T>(static_cast<size_t>(x.rows() * adapter.A.out)), x.dtype(), {x.rows(), adapter.A.out});
    inner(ctx, x, adapter, h);
    outer(ctx, h, adapter.B, first, n, sums, n);
    parallel_for(ctx, x.rows(), n, [&](int64_t begin, int64_t rows) {
      for (int64_t r = begin; r < begin + rows; ++r)
        for (int64_t j = 0; j < n; ++j) {
          const T ratio = of[j].ratio;
          T& sum = sums[r * n + j];
          sum = static_cast<T>(times) * ((ratio - 1) * product[r * n + j] + ratio * sum);
        }
    });
    add_rows<T>(ctx, sums, x.rows(), n, y, y_stride);
  });
}

void dora_backward(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n,
                   const void* dy, int64_t dy_stride, const Tensor& dx) {
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    const Magnitude* const of = magnitudes(ctx, w, adapter, first, n);
    const auto count = static_cast<size_t>(x.rows() * n);
    const Weight plain = frozen(w);
    const Tensor h(ctx.scratch<T>(static_cast<size_t>(x.rows() * adapter.A.out)), x.dtype(), {x.rows(), adapter.A.out});
    inner(ctx, x, adapter, h);
    T* const product = ctx.scratch<T>(count);
    if (adapter.magnitude.grad.data != nullptr) {
      linear_part(ctx, x, plain, first, n, product, n);
      outer(ctx, h, adapter.B, first, n, product, n);
      T* const to = static_cast<T*>(adapter.magnitude.grad.data) + first;
      ctx.run(n, false, [&](int64_t j, int) {
        T sum = 0;
        for (int64_t r = 0; r < x.rows(); ++r) sum += static_cast<const T*>(dy)[r * dy_stride + j] * product[r * n + j];
        to[j] += sum / static_cast<T>(of[j].length);
      });
    }
    const auto scaled = [&](float less) {
      ctx.run(x.rows(), false, [&](int64_t r, int) {
        for (int64_t j = 0; j < n; ++j)
          product[r * n + j] = static_cast<T>(of[j].ratio - less) * static_cast<const T*>(dy)[r * dy_stride + j];
      });
    };
    scaled(1);
    if (dx) linear_part_backward(ctx, x, plain, first, n, product, n, dx);
    scaled(0);
    backward(ctx, x, h, adapter, first, n, product, n, dx, true);
  });
}

// What an op beside a product recorded --------------------------------------------------------------------------------------

struct LowRankNode {
  Tensor x, h, y;
  const LowRank* adapter;
};
struct PartNode {
  Tensor x, y;
  const Weight* w;
};

// y's gradient stays: the node of the product beside it, which ran before, reads it next and releases it.
void low_rank_backward(Context& ctx, Tape& tape, const LowRankNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  backward(ctx, node.x, node.h, *node.adapter, 0, node.adapter->B.out, dy.raw(), dy.row_size(), dx.to, !dx.fresh);
}
void part_backward(Context& ctx, Tape& tape, const PartNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  low_rank_part_backward(ctx, node.x, *node.w, *node.w->adapter, 0, node.w->out, dy.raw(), dy.row_size(),
                         tape.accumulate(node.x));
}

// f(begin, count) for the rows of [row, row + rows) that an adapter has, counted from `row`.
template <class F>
void with_rows(const RowAdapter& which, int64_t row, int64_t rows, F&& f) {
  const int64_t begin = which.rows == RowAdapter::kAllRows ? 0 : std::max<int64_t>(0, which.first - row);
  const int64_t end = which.rows == RowAdapter::kAllRows ? rows : std::min(rows, which.first + which.rows - row);
  if (begin < end) f(begin, end - begin);
}

void refuse_tape(const Context& ctx) {
  if (ctx.tape() != nullptr) throw UsageError("adapters of some rows are not differentiated; put the adapter at the weights");
}

}  // namespace

void add_low_rank(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, const Tensor& y) {
  const Tensor dropped = dropout(ctx, x, adapter.dropout, adapter.site);
  if (adapter.magnitude || !adapter.rows.empty()) {
    const auto scratch = ctx.frame();
    if (!adapter.magnitude || dropped.raw() != x.raw()) {
      low_rank_part(ctx, dropped, w, adapter, 0, w.out, y.raw(), y.row_size());
    } else {
      visit_scalar(x, [&](auto zero) {  // y without the bias is the product
        using T = decltype(zero);
        T* const base = ctx.scratch<T>(static_cast<size_t>(y.count()));
        const T* const bias = values_of<T>(ctx, w.bias);
        parallel_for(ctx, y.rows(), w.out, [&](int64_t first, int64_t n) {
          for (int64_t r = first; r < first + n; ++r)
            for (int64_t j = 0; j < w.out; ++j) base[r * w.out + j] = y.row<T>(r)[j] - (bias != nullptr ? bias[j] : T{0});
        });
        dora_part(ctx, x, w, adapter, 0, w.out, y.raw(), y.row_size(), 1, base);
      });
    }
    if (Tape* tape = ctx.tape()) tape->record(&part_backward, PartNode{dropped, y, &w});
    return;
  }
  VITRINE_CHECK(adapter.A.in == x.row_size() && adapter.B.in == adapter.A.out && adapter.B.out == y.row_size(),
                "an adapter has the sizes of the matrix it stands beside");
  const auto scratch = ctx.frame();  // with a tape, x and h are the tape's
  const Tensor h = ctx.empty({x.rows(), adapter.A.out});
  inner(ctx, dropped, adapter, h);
  outer(ctx, h, adapter.B, 0, adapter.B.out, y.raw(), y.row_size());
  if (Tape* tape = ctx.tape()) tape->record(&low_rank_backward, LowRankNode{dropped, h, y, &adapter});
}

void low_rank_part(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n, void* y,
                   int64_t y_stride, double times) {
  const auto scratch = ctx.frame();
  if (adapter.whole != nullptr) return whole_part(ctx, x, w, adapter, first, n, y, y_stride, times);
  if (!adapter.rows.empty()) return changed_rows_part(ctx, x, w, adapter, first, n, y, y_stride, times);
  if (adapter.magnitude) return dora_part(ctx, x, w, adapter, first, n, y, y_stride, times, nullptr);
  visit_scalar(x, [&](auto zero) {
    const auto count = static_cast<size_t>(x.rows() * adapter.A.out);
    const Tensor h(ctx.scratch<decltype(zero)>(count), x.dtype(), {x.rows(), adapter.A.out});
    inner(ctx, x, adapter, h, times);
    outer(ctx, h, adapter.B, first, n, y, y_stride);
  });
}

void low_rank_part_backward(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n,
                            const void* dy, int64_t dy_stride, const Tensor& dx) {
  const auto scratch = ctx.frame();
  if (!adapter.rows.empty()) return changed_rows_backward(ctx, x, w, adapter, first, n, dy, dy_stride, dx);
  if (adapter.magnitude) return dora_backward(ctx, x, w, adapter, first, n, dy, dy_stride, dx);
  visit_scalar(x, [&](auto zero) {
    const auto count = static_cast<size_t>(x.rows() * adapter.A.out);
    const Tensor h(ctx.scratch<decltype(zero)>(count), x.dtype(), {x.rows(), adapter.A.out});
    inner(ctx, x, adapter, h);
    backward(ctx, x, h, adapter, first, n, dy, dy_stride, dx, true);
  });
}

void low_rank_rows(Context& ctx, std::span<const int32_t> ids, const Weight& w, const LowRank& adapter, const Tensor& y,
                   double times) {
  visit_scalar(y, [&](auto zero) {
    using T = decltype(zero);
    ctx.run(std::ssize(ids), false, [&](int64_t r, int) {
      const int64_t id = ids[static_cast<size_t>(r)];
      T* const to = y.row<T>(r);
      const auto add = [&](auto&& changed) {
        for (int64_t i = 0; i < w.in; ++i) to[i] += static_cast<T>(times) * (changed(i) - w.at<T>(id, i));
      };
      if (adapter.whole != nullptr) return add([&](int64_t i) { return adapter.whole->at<T>(id, i); });
      if (!adapter.rows.empty()) {
        const auto found = std::lower_bound(adapter.rows.begin(), adapter.rows.end(), id);
        if (found == adapter.rows.end() || *found != id) return;
        return add([&](int64_t i) { return adapter.A.at<T>(found - adapter.rows.begin(), i); });
      }
      for (int64_t k = 0; k < adapter.A.out; ++k) {
        const T b = static_cast<T>(adapter.scale * times) * adapter.B.at<T>(id, k);
        for (int64_t i = 0; i < w.in; ++i) to[i] += b * adapter.A.at<T>(k, i);
      }
    });
  });
}

void low_rank_rows_backward(Context& ctx, std::span<const int32_t> ids, const LowRank& adapter, const Tensor& dy) {
  if (ctx.dry() != nullptr || adapter.A.grad.data == nullptr) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    auto* const dA = static_cast<T*>(adapter.A.grad.data);
    auto* const dB = static_cast<T*>(adapter.B.grad.data);
    const T scale = static_cast<T>(adapter.scale);
    for (size_t r = 0; r < ids.size(); ++r) {
      const T* const g = dy.row<T>(static_cast<int64_t>(r));
      const int64_t id = ids[r], width = dy.row_size();
      if (!adapter.rows.empty()) {
        const auto found = std::lower_bound(adapter.rows.begin(), adapter.rows.end(), id);
        if (found == adapter.rows.end() || *found != id) continue;
        T* const to = dA + static_cast<size_t>(found - adapter.rows.begin()) * adapter.A.grad.stride;
        for (int64_t i = 0; i < width; ++i) to[i] += g[i];
        continue;
      }
      for (int64_t k = 0; k < adapter.A.out; ++k) {
        T* const to = dA + static_cast<size_t>(k) * adapter.A.grad.stride;
        const T b = scale * adapter.B.at<T>(id, k);
        T sum = 0;
        for (int64_t i = 0; i < width; ++i) {
          to[i] += b * g[i];
          sum += adapter.A.at<T>(k, i) * g[i];
        }
        dB[static_cast<size_t>(id) * adapter.B.grad.stride + static_cast<size_t>(k)] += scale * sum;
      }
    }
  });
}

void add_row_adapters(Context& ctx, const Tensor& x, const Weight& w, const Tensor& y) {
  if (ctx.row_adapters.empty()) return;
  add_row_adapters(ctx, x, w, 0, 0, w.out, y.raw(), y.row_size());
  for (const RowAdapter& which : ctx.row_adapters) {
    const auto found = which.parts->vectors.find(&w.bias);
    if (found == which.parts->vectors.end()) continue;
    refuse_tape(ctx);
    with_rows(which, 0, x.rows(), [&](int64_t begin, int64_t rows) {
      visit_scalar(y, [&](auto zero) {
        using T = decltype(zero);
        ctx.run(rows, false, [&](int64_t r, int) {
          for (int64_t j = 0; j < w.out; ++j)
            y.row<T>(begin + r)[j] += static_cast<T>(which.scale) * (found->second->at<T>(j) - w.bias.at<T>(j));
        });
      });
    });
  }
}

void add_row_adapters(Context& ctx, const Tensor& x, const Weight& w, int64_t row, int64_t first, int64_t n, void* y,
                      int64_t y_stride) {
  each_row_adapter(ctx, w, [&](const LowRank& part, const RowAdapter& which) {
    refuse_tape(ctx);
    with_rows(which, row, x.rows(), [&](int64_t begin, int64_t rows) {
      void* const to = static_cast<std::byte*>(y) + row_bytes(x.dtype(), static_cast<size_t>(begin * y_stride));
      low_rank_part(ctx, x.rows_view(begin, rows), w, part, first, n, to, y_stride, which.scale);
    });
  });
}

void add_row_adapters(Context& ctx, std::span<const int32_t> ids, const Weight& w, const Tensor& y) {
  const auto add = [&](const LowRank& part, const RowAdapter& which) {
    refuse_tape(ctx);
    with_rows(which, 0, y.rows(), [&](int64_t begin, int64_t rows) {
      low_rank_rows(ctx, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)), w, part, y.rows_view(begin, rows),
                    which.scale);
    });
  };
  each_row_adapter(ctx, w, add, &LowRanks::lookups);
}

RowsTaken::RowsTaken(Context& ctx, std::span<const int64_t> rows) : ctx_(ctx), before_(ctx.row_adapters) {
  for (const RowAdapter& adapter : before_) {
    if (adapter.rows == RowAdapter::kAllRows) {
      taken_.push_back(adapter);
      continue;
    }
    const auto has = [&](size_t i) { return rows[i] >= adapter.first && rows[i] < adapter.first + adapter.rows; };
    for (size_t begin = 0; begin < rows.size();) {
      size_t end = begin;
      while (end < rows.size() && has(end)) ++end;
      if (end > begin)
        taken_.push_back({static_cast<int64_t>(begin), static_cast<int64_t>(end - begin), adapter.parts, adapter.scale});
      begin = end + 1;
    }
  }
  ctx_.row_adapters = taken_;
}

std::vector<float> magnitude_ratios(const Weight& w, const LowRank& adapter) {
  std::vector<float> ratios, row(static_cast<size_t>(w.in));
  for (int64_t j = 0; j < w.out; ++j) ratios.push_back(magnitude_of(w, adapter, j, row.data()).ratio);
  return ratios;
}

void add_merged(const LowRank& adapter, int64_t out, float* row) {
  const auto width = static_cast<size_t>(adapter.A.in);
  if (!adapter.rows.empty()) {
    const auto found = std::lower_bound(adapter.rows.begin(), adapter.rows.end(), out);
    if (found != adapter.rows.end() && *found == out)
      std::memcpy(row, adapter.A.stored_row(found - adapter.rows.begin()), width * sizeof(float));
    return;
  }
  add_product(adapter, out, row);
  if (!adapter.magnitude) return;
  const float ratio = magnitude_of(adapter, out, row).ratio;
  for (size_t i = 0; i < width; ++i) row[i] *= ratio;
}

}  // namespace vitrine
