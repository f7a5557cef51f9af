#pragma once
// What a text must conform to while it is made: before each token, which tokens may come.
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"

namespace vitrine {

/// What a text must conform to ends it: no token may follow, or to say which may costs too much.
struct ConstraintError : InputError {
  ConstraintError(std::string error_code, std::string grammar, const std::string& message)
      : InputError(grammar + ": " + message), code(std::move(error_code)), source(std::move(grammar)) {}
  std::string code;    // "grammar_dead_end", "grammar_too_complex", "grammar_too_slow"
  std::string source;  // the file, flag or field that has the grammar
};

/// The state of one text. Not thread-safe.
class Constraint {
 public:
  virtual ~Constraint() = default;

  /// Starts computing allowed() on another thread and returns at once. Without it allowed() computes.
  virtual void prepare() = 0;

  /// False if allowed() would still wait for that thread, after `patience` if it usually needs little time. Then the text had
  /// better wait and others go on.
  virtual bool ready(std::chrono::milliseconds /*patience*/) { return true; }

  /// One bit for each token of the model's vocabulary, token t the bit t % 32 of word t / 32: whether the text may go on with it.
  /// Tokens that are no text (Tokenizer::token_bytes) never may. Valid until the next call. No bit is set where the text can only
  /// end. Errors: ConstraintError if it can neither go on nor end, or if to say so costs more than the limits allow; afterwards
  /// the constraint is of no more use.
  virtual std::span<const uint32_t> allowed() = 0;

  /// The text goes on with a token that is allowed. Errors: ConstraintError otherwise, and if it costs too much.
  virtual void accept(int32_t token) = 0;

  virtual bool may_end() const = 0;   // the text is complete
  virtual bool must_end() const = 0;  // and nothing may follow

  /// The same state, for another text.
  virtual std::unique_ptr<Constraint> clone() const = 0;
};

}  // namespace vitrine
