#include "intervene/edited_logits.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "hooks/listening.h"
#include "ops/listener_chain.h"

namespace vitrine {

Tensor checked_logits(Engine& engine, const Step& step, const Tensor& x, Interventions& edits, std::span<const int64_t> rows) {
  Context& ctx = engine.context();
  const Listening listening(ctx, edits);
  const Tensor z = logits(ctx, x, engine.model().head(), rows);
  if (first_not_finite(z) < 0) return z;
  FirstNotFinite watch;
  ListenerChain chain({&edits, &watch});
  const Listening watching(ctx, chain);
  logits(ctx, engine.model().residual(ctx, step), engine.model().head(), rows);
  throw RunError(
      "NaN or infinity appeared first in " + (watch.name.empty() ? std::string("the logits") : watch.name) +
      (edits.edits().empty()
           ? "; do the weights hold NaN? `vitrine verify` shows more"
           : " of the edited run. An intervention there or on an earlier hook may be its cause: numbers that grow beyond "
             "what f32 holds, or a division by a zero that it puts in. Change it, or edit fewer layers or norms"));
}

Tensor residual_of(Engine& engine, const Step& step, Interventions& edits) {
  const Listening listening(engine.context(), edits);
  return engine.model().residual(engine.context(), step);
}

size_t rows_at_once(const Interventions& edits, size_t rows) {
  return edits.wants("hook_logits") ? std::max<size_t>(1, rows) : static_cast<size_t>(kLogitRows);
}

void run_rows(Engine& engine, std::span<const int32_t> ids, Interventions& edits, std::span<const int64_t> rows,
              const ReadRow& read) {
  const auto frame = engine.context().frame();
  const Step step = Step::of(ids);
  const Tensor x = residual_of(engine, step, edits);
  const size_t each = rows_at_once(edits, rows.size());
  for (size_t first = 0; first < rows.size(); first += each) {
    const auto scratch = engine.context().frame();
    const Tensor z = checked_logits(engine, step, x, edits, rows.subspan(first, std::min(each, rows.size() - first)));
    for (int64_t i = 0; i < z.rows(); ++i)
      read(first + static_cast<size_t>(i), {z.row<float>(i), static_cast<size_t>(z.row_size())});
  }
}

std::vector<std::vector<float>> logits_of(Engine& engine, std::span<const int32_t> ids, Interventions& edits,
                                          std::span<const int64_t> rows) {
  std::vector<std::vector<float>> result(rows.size());
  run_rows(engine, ids, edits, rows, [&](size_t i, std::span<const float> z) { result[i].assign(z.begin(), z.end()); });
  return result;
}

}  // namespace vitrine
