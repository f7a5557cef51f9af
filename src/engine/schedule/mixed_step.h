#pragma once
// One step of the model over pieces of many streams.
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "schedule/stream.h"

namespace vitrine {

/// What a stream has in a step.
struct Piece {
  Piece(Stream* of, int64_t n) : stream(of), tokens(n) {}
  Stream* stream;
  int64_t tokens;               // of its text, behind those that the model has seen
  std::vector<int32_t> drafts;  // proposed behind them; only where they are the text's last
  // What came of it:
  bool done = false;                // its rows count, or the stream has failed
  std::vector<TokenEvent> made;     // new tokens
  std::vector<PromptToken> scores;  // if the stream asks for them
  int64_t counted = 0;              // rows that count
  std::exception_ptr error = {};    // of its sampler

  int64_t rows() const { return tokens + std::ssize(drafts); }
  /// Its last token's logits are wanted: a new token comes.
  bool ends_text() const { return !stream->sequence().done() && tokens == stream->left(); }
};

/// Takes the next token of a stream from the logits that it holds. Does not throw.
void choose_held(Piece& piece);

/// Runs the pieces together (one whose stream listens is alone), commits them and takes the next tokens of the texts that were
/// read to their end. A stream whose rows hold NaN, or whose sampler fails, fails by itself: if a step goes wrong, each of its
/// pieces runs again alone. A stream whose constraint needs longer holds its logits instead (Stream::hold). Does not throw.
void run_mixed_step(Engine& engine, std::span<Piece> pieces);

}  // namespace vitrine
