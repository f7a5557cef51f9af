#pragma once
// Runs of one sequence with interventions, and their logits.
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "intervene/intervene.h"
#include "runtime/engine.h"

namespace vitrine {

Tensor residual_of(Engine& engine, const Step& step, Interventions& edits);
/// Logits of some rows, [rows, vocab_size], of a residual stream that was computed with the same edits.
/// Errors: RunError for NaN or infinity, naming the hook where it appeared first.
Tensor checked_logits(Engine& engine, const Step& step, const Tensor& x, Interventions& edits, std::span<const int64_t> rows);
/// How many rows of logits are made at once: a listener that edits the logits is shown the whole table each time.
size_t rows_at_once(const Interventions& edits, size_t rows);

/// Calls read(place among `rows`, logits [vocab_size]) for rows of one sequence, run with `edits`. Errors: as checked_logits.
using ReadRow = std::function<void(size_t, std::span<const float>)>;
void run_rows(Engine& engine, std::span<const int32_t> ids, Interventions& edits, std::span<const int64_t> rows,
              const ReadRow& read);
/// The same, kept.
std::vector<std::vector<float>> logits_of(Engine& engine, std::span<const int32_t> ids, Interventions& edits,
                                          std::span<const int64_t> rows);

}  // namespace vitrine
