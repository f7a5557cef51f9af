#include "merge/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "base/error.h"
#include "ops/head.h"

namespace vitrine {
namespace {

int64_t window_in(const Engine& engine, int64_t window) {
  const int64_t context = engine.shape().context_length;
  return context == 0 ? window : std::min(window, context);
}

// Cuts `ids` into windows, each behind `bos` if there is one.
void cut_windows(std::span<const int32_t> ids, std::optional<int32_t> bos, ScoredWindows& to) {
  const auto room = static_cast<size_t>(to.window) - (bos ? 1 : 0);
  if (room < 1) throw InputError("a window of " + std::to_string(to.window) + " tokens scores none; expected more");
  for (size_t begin = 0; begin < ids.size(); begin += room) {
    std::vector<int32_t> part;
    if (bos) part.push_back(*bos);
    const std::span<const int32_t> piece = ids.subspan(begin, std::min(room, ids.size() - begin));
    part.insert(part.end(), piece.begin(), piece.end());
    if (part.size() >= 2) to.ids.push_back(std::move(part));
  }
}

}  // namespace

double TextLoss::perplexity() const { return std::exp(loss); }

TextLoss text_loss(Engine& engine, std::string_view text, int64_t window) {
  return loss_on(engine, windows_of(engine, text, window));
}

ScoredWindows windows_of(const Engine& engine, std::string_view text, int64_t window, int64_t most) {
  const Tokenizer& tokenizer = engine.tokenizer();
  std::vector<int32_t> ids = tokenizer.encode(text, false);
  if (most > 0 && ids.size() > static_cast<size_t>(most)) ids.resize(static_cast<size_t>(most));
  ScoredWindows windows;
  windows.window = window_in(engine, window);
  cut_windows(ids, tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt, windows);
  if (windows.ids.empty()) throw InputError("the text has too few tokens to be scored; expected two or more");
  return windows;
}

ScoredWindows windows_of(const Engine& engine, const std::function<bool(std::vector<int32_t>&)>& next, const std::string& where,
                         int64_t window) {
  ScoredWindows windows;
  windows.window = window_in(engine, window);
  for (std::vector<int32_t> ids; next(ids);) cut_windows(ids, std::nullopt, windows);
  if (windows.ids.empty()) throw InputError(where + " has no document of two or more tokens, so there is nothing to score");
  return windows;
}

TextLoss loss_on(Engine& engine, const ScoredWindows& windows) {
  TextLoss total;
  total.window = windows.window;
  double sum = 0;
  for (const std::vector<int32_t>& ids : windows.ids) {
    for (const float logprob : engine.token_logprobs(ids)) sum -= static_cast<double>(logprob);
    total.tokens += static_cast<int64_t>(ids.size()) - 1;
  }
  total.loss = sum / static_cast<double>(total.tokens);
  return total;
}

double divergence_on(Engine& reference, Engine& engine, const ScoredWindows& windows) {
  if (reference.shape().vocab_size != engine.shape().vocab_size)
    throw InputError(engine.name() + " has a vocabulary of " + std::to_string(engine.shape().vocab_size) + " tokens and " +
                     reference.name() + " one of " + std::to_string(reference.shape().vocab_size) +
                     "; predictions are compared token by token");
  double sum = 0;
  int64_t count = 0;
  for (const std::vector<int32_t>& ids : windows.ids) {
    const std::span<const int32_t> read = std::span(ids).first(ids.size() - 1);
    reference.check_ids(read);
    const auto frame = reference.context().frame(), its_frame = engine.context().frame();
    Step step, its_step;
    step.add(read);
    its_step.add(read);
    const Tensor p = reference.model().residual(reference.context(), step);
    const Tensor q = engine.model().residual(engine.context(), its_step);
    for (int64_t row = 0; row < step.rows(); row += kLogitRows) {
      std::vector<int64_t> rows(static_cast<size_t>(std::min(kLogitRows, step.rows() - row)));
      std::iota(rows.begin(), rows.end(), row);
      const auto logit_frame = reference.context().frame(), its_logit_frame = engine.context().frame();
      const Tensor a = logits(reference.context(), p, reference.model().head(), rows);
      const Tensor b = logits(engine.context(), q, engine.model().head(), rows);
      const auto width = static_cast<size_t>(a.row_size());
      for (size_t i = 0; i < rows.size(); ++i) {
        const double kl =
            kl_divergence({a.row<float>(static_cast<int64_t>(i)), width}, {b.row<float>(static_cast<int64_t>(i)), width});
        if (!std::isfinite(kl)) engine.report_not_finite(its_step, rows);
        sum += kl;
      }
      count += static_cast<int64_t>(rows.size());
    }
  }
  return sum / static_cast<double>(count);
}

}  // namespace vitrine
