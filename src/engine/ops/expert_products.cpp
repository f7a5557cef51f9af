#include "ops/expert_products.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/table.h"
#include "ops/dry_run.h"
#include "ops/linear.h"
#include "ops/low_rank.h"
#include "ops/rows.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

struct ProductNode {
  Tensor x, for_adapter, y;  // for_adapter: x with what dropout of the adapters leaves of it
  ExpertRows rows;
  const Expert* experts;
  Weight Expert::* matrix;
};

// While it lives, products are those of many rows if the step has many.
class ForStep {
 public:
  ForStep(Context& ctx, int64_t rows) : ctx_(ctx), exact_(ctx.numerics.exact) {
    if (rows > static_cast<int64_t>(kFewRows)) ctx.numerics.exact = true;
  }
  ~ForStep() { ctx_.numerics.exact = exact_; }
  ForStep(const ForStep&) = delete;
  ForStep& operator=(const ForStep&) = delete;

 private:
  Context& ctx_;
  bool exact_;
};

// f(weight, first sorted row, rows) for each expert that has rows.
template <class F>
void each_expert(const ExpertRows& rows, const Expert* experts, Weight Expert::* matrix, F&& f) {
  for (int64_t e = 0; e < rows.experts; ++e)
    if (const int64_t first = rows.first[e], n = rows.first[e + 1] - first; n > 0) f(experts[e].*matrix, first, n);
}

void product_backward(Context& ctx, Tape& tape, const ProductNode& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tape::Sum dx = tape.contribute(node.x);
  each_expert(node.rows, node.experts, node.matrix, [&](const Weight& w, int64_t first, int64_t n) {
    const Tensor mine = dy.rows_view(first, n);
    linear_part_backward(ctx, node.x.rows_view(first, n), w, 0, w.out, mine.raw(), w.out,
                         dx ? dx.to.rows_view(first, n) : Tensor(), !dx.fresh, takes_first(w.grad));
    bias_backward(ctx, w, 0, w.out, mine.raw(), w.out, n, dy.dtype());
  });
  if (!node.for_adapter) return tape.release(node.y);
  const Tensor dropped = tape.accumulate(node.for_adapter);
  each_expert(node.rows, node.experts, node.matrix, [&](const Weight& w, int64_t first, int64_t n) {
    if (w.adapter != nullptr)
      low_rank_part_backward(ctx, node.for_adapter.rows_view(first, n), w, *w.adapter, 0, w.out, dy.rows_view(first, n).raw(),
                             w.out, dropped ? dropped.rows_view(first, n) : Tensor());
  });
  tape.release(node.y);
}

// What the adapters read: x, or what their dropout leaves of it; nothing without adapters.
Tensor read_by_adapters(Context& ctx, const Tensor& x, std::span<const Expert> experts, Weight Expert::* matrix) {
  for (const Expert& expert : experts)
    if (const LowRank* adapter = (expert.*matrix).adapter) return dropout(ctx, x, adapter->dropout, adapter->site);
  return {};
}

// Adds what Context::row_adapters say to y of an expert, whose sorted places begin at `first`: of each adapter those stretches of
// places that hold rows of its.
void add_row_adapters(Context& ctx, const Tensor& x, const ExpertRows& rows, int64_t first, const Weight& w, const Tensor& y) {
  each_row_adapter(ctx, w, [&](const LowRank& part, const RowAdapter& which) {
    if (ctx.tape() != nullptr) throw UsageError("adapters of some rows are not differentiated; put the adapter at the weights");
    const auto adapted = [&](int64_t place) {
      const int64_t row = rows.choice[first + place] / rows.per_row;
      return which.rows == RowAdapter::kAllRows || (row >= which.first && row < which.first + which.rows);
    };
    for (int64_t begin = 0; begin < x.rows();) {
      int64_t end = begin;
      while (end < x.rows() && adapted(end)) ++end;
      if (end > begin)
        low_rank_part(ctx, x.rows_view(begin, end - begin), w, part, 0, w.out, y.rows_view(begin, end - begin).raw(), w.out,
                      which.scale);
      begin = end + 1;
    }
  });
}

struct Split {
  Tensor x, even, odd;
};
void split_backward(Context&, Tape& tape, const Split& node) {
  const Tensor parts[] = {tape.gradient(node.even), tape.gradient(node.odd)};
  if (!parts[0] && !parts[1]) return;
  const Tensor dx = tape.accumulate(node.x);
  if (!dx) return;
  visit_scalar(dx, [&](auto zero) {
    using T = decltype(zero);
    for (int p = 0; p < 2; ++p)
      for (int64_t i = 0; parts[p] && i < parts[p].count(); ++i) dx.data<T>()[2 * i + p] += parts[p].data<T>()[i];
  });
  tape.release(node.even);
  tape.release(node.odd);
}

struct Clamped {
  Tensor gate, up, y;
  double limit, slope;
};
void clamped_backward(Context& ctx, Tape& tape, const Clamped& node) {
  const Tensor dy = tape.gradient(node.y);
  if (!dy) return;
  const Tensor dgate = tape.accumulate(node.gate), dup = tape.accumulate(node.up);
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const T limit = static_cast<T>(node.limit), slope = static_cast<T>(node.slope);
    parallel_for(ctx, dy.count(), 8, [&](int64_t first, int64_t n) {
      for (int64_t i = first; i < first + n; ++i) {
        const T gate = node.gate.data<T>()[i], up = node.up.data<T>()[i], d = dy.data<T>()[i];
        const T g = std::min(gate, limit), u = std::clamp(up, -limit, limit), s = 1 / (1 + std::exp(-slope * g));
        if (dgate && gate <= limit) dgate.data<T>()[i] += d * (u + 1) * s * (1 + slope * g * (1 - s));
        if (dup && up >= -limit && up <= limit) dup.data<T>()[i] += d * g * s;
      }
    });
  });
  tape.release(node.y);
}

// Sorted rows [row, row + rows) of an expert.
struct Share {
  const Expert* expert;
  int64_t row, rows;
};

// Those that have rows. A dry run knows no choices: as many rows for each as evenly routed ones are, of as many experts as
// choices reach.
std::vector<Share> shares_of(Context& ctx, const ExpertRows& rows, std::span<const Expert> experts) {
  std::vector<Share> shares;
  const int64_t reached = ctx.dry() == nullptr ? rows.experts : std::min(rows.experts, rows.choices());
  for (int64_t e = 0; e < reached; ++e) {
    const bool dry = ctx.dry() != nullptr;
    const int64_t first = dry ? rows.choices() * e / reached : rows.first[e],
                  end = dry ? rows.choices() * (e + 1) / reached : rows.first[e + 1];
    if (end > first) shares.push_back({&experts[static_cast<size_t>(e)], first, end - first});
  }
  return shares;
}

void record(Context& ctx, const Tensor& x, size_t reached, std::span<const Expert> experts, Weight Expert::* matrix,
            const Tensor& y) {
  const Weight& w = experts[0].*matrix;
  OpCall call{.op = "expert_product", .inputs = {x}, .outputs = {y}, .multiply_adds = x.rows() * w.in * w.out};
  for (const Expert& expert : experts) {
    call.weights.push_back(&(expert.*matrix));
    if ((expert.*matrix).bias.size > 0) call.vectors.push_back(&(expert.*matrix).bias);
  }
  call.weights_read = static_cast<int64_t>(reached);
  ctx.dry()->add(ctx, call);
}

}  // namespace

void expert_products(Context& ctx, const Tensor& x, const ExpertRows& rows, std::span<const Expert> experts,
                     std::span<Weight Expert::* const> matrices, Tensor* results) {
  const std::vector<Share> shares = shares_of(ctx, rows, experts);
  std::vector<Tensor> for_adapters;
  for (size_t m = 0; m < matrices.size(); ++m) {
    for_adapters.push_back(read_by_adapters(ctx, x, experts, matrices[m]));
    results[m] = ctx.empty({x.rows(), (experts[0].*matrices[m]).out});
  }
  if (Listener* listener = ctx.listener(); listener != nullptr && ctx.dry() == nullptr)
    for (Weight Expert::* const matrix : matrices)
      for (const Share& s : shares) listener->see_input(s.expert->*matrix, x.rows_view(s.row, s.rows));
  {
    const ForStep numerics(ctx, rows.rows);
    std::vector<Stretch> stretches;
    stretches.reserve(shares.size() * matrices.size());
    for (const Share& s : shares)
      for (size_t m = 0; m < matrices.size(); ++m)
        stretches.push_back({&(s.expert->*matrices[m]), s.row, s.rows, results[m].rows_view(s.row, s.rows).raw()});
    linear_stretches(ctx, x, stretches);
    for (size_t m = 0; m < matrices.size() && ctx.dry() == nullptr; ++m) {
      for (const Share& s : shares) {
        const Weight& w = s.expert->*matrices[m];
        const Tensor mine = results[m].rows_view(s.row, s.rows);
        if (w.bias) add_bias(ctx, w.bias, mine);
        if (w.adapter != nullptr)
          low_rank_part(ctx, for_adapters[m].rows_view(s.row, s.rows), w, *w.adapter, 0, w.out, mine.raw(), w.out);
        add_row_adapters(ctx, x.rows_view(s.row, s.rows), rows, s.row, w, mine);
      }
    }
  }
  for (size_t m = 0; m < matrices.size(); ++m) {
    if (Tape* tape = ctx.tape())
      tape->record(&product_backward, ProductNode{x, for_adapters[m], results[m], rows, experts.data(), matrices[m]});
    if (ctx.dry() != nullptr) record(ctx, x, shares.size(), experts, matrices[m], results[m]);
  }
}

std::pair<Tensor, Tensor> split_pairs(Context& ctx, const Tensor& x) {
  const int64_t n = x.row_size() / 2;
  const Tensor even = ctx.empty({x.rows(), n}), odd = ctx.empty({x.rows(), n});
  visit_scalar(x, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(ctx, x.rows() * n, 2, [&](int64_t first, int64_t count) {
      for (int64_t i = first; i < first + count; ++i) {
        even.data<T>()[i] = x.data<T>()[2 * i];
        odd.data<T>()[i] = x.data<T>()[2 * i + 1];
      }
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&split_backward, Split{x, even, odd});
  return {even, odd};
}

Tensor clamped_gated(Context& ctx, const Tensor& gate, const Tensor& up, double limit, double slope) {
  const Tensor y = ctx.empty(gate.shape());
  visit_scalar(y, [&](auto zero) {
    using T = decltype(zero);
    const T most = static_cast<T>(limit), factor = static_cast<T>(slope);
    parallel_for(ctx, y.count(), 8, [&](int64_t first, int64_t n) {
      for (int64_t i = first; i < first + n; ++i) {
        const T g = std::min(gate.data<T>()[i], most), u = std::clamp(up.data<T>()[i], -most, most);
        y.data<T>()[i] = (u + 1) * (g / (1 + std::exp(-factor * g)));
      }
    });
  });
  if (Tape* tape = ctx.tape()) tape->record(&clamped_backward, Clamped{gate, up, y, limit, slope});
  return y;
}

}  // namespace vitrine
