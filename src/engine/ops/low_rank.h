#pragma once
// What an adapter adds to a stored matrix, which stays as it lies. LoRA: arXiv:2106.09685 section 4.1.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "ops/context.h"
#include "ops/weight.h"

namespace vitrine {

/// An adapter of one matrix W, one of these:
///   low rank   y += scale · dropout(x) Aᵀ Bᵀ          A and B are learned, W is not
///   DoRA       y = r (x Wᵀ + scale · x Aᵀ Bᵀ) + bias   r[j] = magnitude[j] / |row j of W + scale · B A|, the norm a constant in
///              backward (arXiv:2402.09353 section 4.3); dropout is of the x of what is added to x Wᵀ, as in PEFT
///   rows       rows `rows` of W become those of A     (trained tokens); B is empty
///   whole      W becomes *whole                       for some rows of a step only; where all have it, Weight::data is changed
struct LowRank {
  Weight A;                        // [rank, in]
  Weight B;                        // [out, rank]
  double scale = 1;                // alpha / rank
  double dropout = 0;              // of x, in training
  uint64_t site = 0;               // of that dropout: the same for parts of one stacked matrix, which read the same x
  Vector magnitude = {};           // DoRA: [out]; empty: none
  const float* ratio = nullptr;    // DoRA: r [out] where nothing learns; null: it is computed in each run
  std::vector<int64_t> rows = {};  // ascending
  const Weight* whole = nullptr;
};

/// Adds to y [rows, out], which linear has made from x [rows, in] and recorded. Backward: x, A, B.
void add_low_rank(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, const Tensor& y);

/// The same without dropout for outputs [first, first + n), `times` as much of it, into memory of the caller's, y_stride elements
/// between rows. Not recorded.
void low_rank_part(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n, void* y,
                   int64_t y_stride, double times = 1);

/// Backward of low_rank_part: adds to dx [rows, in], if it is not empty, and to the gradients of A and B.
void low_rank_part_backward(Context& ctx, const Tensor& x, const Weight& w, const LowRank& adapter, int64_t first, int64_t n,
                            const void* dy, int64_t dy_stride, const Tensor& dx);

/// Adds to y [ids, in], the rows `ids` of w, what the adapter changes in them, `times` as much. Not recorded.
void low_rank_rows(Context& ctx, std::span<const int32_t> ids, const Weight& w, const LowRank& adapter, const Tensor& y,
                   double times = 1);
/// Backward of low_rank_rows: adds to the gradients of A and B.
void low_rank_rows_backward(Context& ctx, std::span<const int32_t> ids, const LowRank& adapter, const Tensor& dy);

/// The parts of one adapter by what they stand beside.
struct LowRanks {
  using OfWeights = std::unordered_map<const Weight*, const LowRank*>;
  OfWeights beside;                                          // in products
  OfWeights lookups;                                         // in embeddings
  std::unordered_map<const Vector*, const Vector*> vectors;  // biases, and weights of norms, that become others
};

/// f(part, RowAdapter) for each of Context::row_adapters that has a part beside w.
template <class F>
void each_row_adapter(const Context& ctx, const Weight& w, F&& f, LowRanks::OfWeights LowRanks::* which = &LowRanks::beside) {
  for (const RowAdapter& rows : ctx.row_adapters) {
    const LowRanks::OfWeights& parts = rows.parts->*which;
    if (const auto part = parts.find(&w); part != parts.end()) f(*part->second, rows);
  }
}

/// Adds to y [rows, out] what Context::row_adapters say, where x [rows, in] has the step's rows in their order.
/// Errors: UsageError on a tape.
void add_row_adapters(Context& ctx, const Tensor& x, const Weight& w, const Tensor& y);
/// The same for rows [row, row + x.rows()) of the step and outputs [first, first + n), without the bias.
void add_row_adapters(Context& ctx, const Tensor& x, const Weight& w, int64_t row, int64_t first, int64_t n, void* y,
                      int64_t y_stride);
/// The same for y [ids, in], rows of w that the step's rows look up.
void add_row_adapters(Context& ctx, std::span<const int32_t> ids, const Weight& w, const Tensor& y);

/// While it lives, Context::row_adapters are those of some rows of the step, which become rows 0, 1, … of what is run.
class RowsTaken {
 public:
  RowsTaken(Context& ctx, std::span<const int64_t> rows);
  ~RowsTaken() { ctx_.row_adapters = before_; }
  RowsTaken(const RowsTaken&) = delete;
  RowsTaken& operator=(const RowsTaken&) = delete;

 private:
  Context& ctx_;
  std::span<const RowAdapter> before_;
  std::vector<RowAdapter> taken_;
};

/// DoRA's r [out].
std::vector<float> magnitude_ratios(const Weight& w, const LowRank& adapter);

/// Row `out` of the matrix that the two are together: `row` [in] holds the stored one.
void add_merged(const LowRank& adapter, int64_t out, float* row);

}  // namespace vitrine
