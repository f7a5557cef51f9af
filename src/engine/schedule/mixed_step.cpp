#include "schedule/mixed_step.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/merge_sort.h"
#include "ops/head.h"
#include "ops/listening.h"

namespace vitrine {
namespace {

constexpr std::chrono::milliseconds kPatience{2};  // for a constraint that is nearly ready

// Some of a piece's rows whose logits exist at once.
struct Wanted {
  Piece* piece = nullptr;
  size_t sequence = 0;        // of the step
  int64_t row = 0, rows = 0;  // the first of them in the piece; how many
  bool scored = false;        // they tell of the prompt; else of what comes behind it
};

std::span<const float> row_of(const Tensor& z, int64_t row) { return {z.row<float>(row), static_cast<size_t>(z.row_size())}; }

// Tokens from the logits of a piece's last token and of the drafts behind it, as far as these are what is chosen.
void choose(Piece& piece, const Tensor& z, int64_t first, int64_t rows) {
  Stream& stream = *piece.stream;
  piece.counted = piece.tokens - 1;
  for (int64_t row = 0; row < rows; ++row) {
    if (!stream.sequence().ready(kPatience)) {
      stream.hold(row_of(z, first + row));
      ++piece.counted;
      break;
    }
    std::optional<TokenEvent> event = stream.push(row_of(z, first + row));
    ++piece.counted;
    if (event) piece.made.push_back(std::move(*event));
    if (stream.sequence().done() || row == std::ssize(piece.drafts) ||
        piece.made.back().token != piece.drafts[static_cast<size_t>(row)])
      break;
  }
}

// What is wanted of the logits: first the prompts that are scored, in runs, then all new tokens.
std::vector<Wanted> wanted_of(std::span<Piece* const> pieces) {
  std::vector<Wanted> wanted;
  for (size_t i = 0; i < pieces.size(); ++i) {
    Piece& piece = *pieces[i];
    if (!piece.stream->scores()) continue;
    const int64_t scored = std::min(piece.tokens, piece.stream->prompt_tokens() - 1 - piece.stream->cached.length());
    for (int64_t row = 0; row < scored; row += kLogitRows)
      wanted.push_back({&piece, i, row, std::min(kLogitRows, scored - row), true});
  }
  for (size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i]->ends_text()) wanted.push_back({pieces[i], i, pieces[i]->tokens - 1, 1 + std::ssize(pieces[i]->drafts), false});
  return wanted;
}

// Alone, a piece is told where it went wrong; together they are not, for some of them may count already.
[[noreturn]] void not_finite(Engine& engine, const Step& step, std::span<const int64_t> rows) {
  if (step.sequences().size() == 1) engine.report_not_finite(step, rows);
  throw RunError("a step of several streams gave NaN or infinity");
}

// The logits of some rows, and what they say: of each piece on a thread of its own, or of each row of a prompt. Throws before
// anything has come of it.
void take_logits(Engine& engine, const Step& step, const Tensor& x, std::span<const Wanted> wanted) {
  const auto frame = engine.context().frame();
  std::vector<int64_t> rows, first;  // in the step; of each of `wanted` in z
  for (const Wanted& w : wanted) {
    first.push_back(std::ssize(rows));
    for (int64_t row = 0; row < w.rows; ++row) rows.push_back(step.sequences()[w.sequence].first_row + w.row + row);
  }
  const Tensor z = logits(engine.context(), x, engine.model().head(), rows);
  if (first_not_finite(z) >= 0) not_finite(engine, step, rows);
  ThreadPool& pool = engine.context().pool();
  if (wanted[0].scored) {
    Piece& piece = *wanted[0].piece;
    const auto before = std::ssize(piece.scores);
    const int64_t position = piece.stream->cached.length() + wanted[0].row;
    piece.scores.resize(static_cast<size_t>(before + wanted[0].rows));
    std::vector<std::exception_ptr> errors(static_cast<size_t>(wanted[0].rows));
    pool.run(wanted[0].rows, [&](int64_t row, int) {
      try {
        piece.scores[static_cast<size_t>(before + row)] = piece.stream->score(position + row, row_of(z, row));
      } catch (...) {
        errors[static_cast<size_t>(row)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& error : errors)
      if (error != nullptr) std::rethrow_exception(error);
    return;
  }
  pool.run(std::ssize(wanted), [&](int64_t i, int) {
    const Wanted& w = wanted[static_cast<size_t>(i)];
    try {
      choose(*w.piece, z, first[static_cast<size_t>(i)], w.rows);
    } catch (...) {
      w.piece->error = std::current_exception();
    }
    w.piece->done = true;
  });
}

// While it lives, the rows of each piece have the adapters of its stream besides those of the engine; neighbors with the same
// ones have them together.
class AdaptedPieces {
 public:
  AdaptedPieces(Context& ctx, std::span<Piece* const> pieces)
      : ctx_(ctx), of_engine_(ctx.row_adapters), rows_(of_engine_.begin(), of_engine_.end()) {
    int64_t row = 0;
    for (size_t i = 0; i < pieces.size();) {
      const Stream& stream = *pieces[i]->stream;
      const int64_t first = row;
      for (; i < pieces.size() && pieces[i]->stream->kind().adapters == stream.kind().adapters; ++i) row += pieces[i]->rows();
      add_row_adapters(stream.adapters(), first, row - first, rows_);
    }
    ctx_.row_adapters = rows_;
  }
  ~AdaptedPieces() { ctx_.row_adapters = of_engine_; }
  AdaptedPieces(const AdaptedPieces&) = delete;
  AdaptedPieces& operator=(const AdaptedPieces&) = delete;

 private:
  Context& ctx_;
  std::span<const RowAdapter> of_engine_;
  std::vector<RowAdapter> rows_;
};

// Throws before anything has come of those pieces that are not done.
void attempt(Engine& engine, std::span<Piece* const> pieces) {
  const auto frame = engine.context().frame();
  Step step;
  for (Piece* piece : pieces) {
    Stream& stream = *piece->stream;
    const auto text = stream.sequence().text().subspan(static_cast<size_t>(stream.cached.length()));
    std::vector<int32_t> tokens(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(piece->tokens));
    tokens.insert(tokens.end(), piece->drafts.begin(), piece->drafts.end());
    step.add(tokens, &stream.cached, stream.prompt_tokens());
    piece->scores.clear();
  }
  const AdaptedPieces adapted(engine.context(), pieces);
  std::optional<Listening> listening;
  if (Listener* const listener = pieces[0]->stream->listener()) listening.emplace(engine.context(), *listener);
  const Tensor x = engine.model().residual(engine.context(), step);
  if (first_not_finite(x) >= 0) {
    const int64_t last = step.rows() - 1;
    not_finite(engine, step, std::span(&last, 1));
  }
  const std::vector<Wanted> wanted = wanted_of(pieces);
  if (const int64_t last = step.rows() - 1; wanted.empty() && engine.context().listens("hook_logits"))
    logits(engine.context(), x, engine.model().head(), std::span(&last, 1));  // they are shown all the same
  const auto commit = [&](size_t i) {
    if (pieces[i]->error == nullptr) step.commit(i, pieces[i]->counted);
  };
  for (size_t begin = 0; begin < wanted.size();) {
    size_t end = begin + 1;
    int64_t rows = wanted[begin].rows;
    while (end < wanted.size() && !wanted[begin].scored && rows + wanted[end].rows <= kLogitRows) rows += wanted[end++].rows;
    take_logits(engine, step, x, std::span(wanted).subspan(begin, end - begin));
    for (; begin < end; ++begin)
      if (!wanted[begin].scored) commit(wanted[begin].sequence);
  }
  for (size_t i = 0; i < pieces.size(); ++i) {  // in the middle of a text
    if (pieces[i]->done) continue;
    pieces[i]->counted = pieces[i]->tokens;
    pieces[i]->done = true;
    commit(i);
  }
}

}  // namespace

void choose_held(Piece& piece) {
  try {
    if (auto event = piece.stream->push_held()) piece.made.push_back(std::move(*event));
  } catch (...) {
    piece.error = std::current_exception();
  }
}

void run_mixed_step(Engine& engine, std::span<Piece> pieces) {
  std::vector<Piece*> together;
  for (Piece& piece : pieces) together.push_back(&piece);
  const auto before = [](const Piece* a, const Piece* b) { return a->stream->kind().adapters < b->stream->kind().adapters; };
  if (!std::is_sorted(together.begin(), together.end(), before)) merge_sort(together, before);
  try {
    attempt(engine, together);
  } catch (...) {
    for (Piece* piece : together) {
      if (piece->done) continue;
      if (together.size() == 1 && piece->drafts.empty()) {  // nothing would change, and a listener would be shown it twice
        piece->error = std::current_exception();
        piece->done = true;
        return;
      }
      piece->drafts.clear();  // the fault may be behind one that is wrong
      try {
        attempt(engine, std::span(&piece, 1));
      } catch (...) {
        piece->error = std::current_exception();
        piece->done = true;
      }
    }
  }
}

}  // namespace vitrine
