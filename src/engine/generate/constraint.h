#pragma once
// What a text must conform to while it is made: before each token, which tokens may come.
#include <cstdint>
#include <memory>
#include <span>

namespace vitrine {

/// The state of one text. Not thread-safe.
class Constraint {
 public:
  virtual ~Constraint() = default;

  /// Starts computing allowed() on another thread and returns at once. Without it allowed() computes.
  virtual void prepare() = 0;

  /// One bit for each token of the model's vocabulary, token t the bit t % 32 of word t / 32: whether the text may go on with it.
  /// Tokens that are no text (Tokenizer::token_bytes) never may. Valid until the next call. No bit is set where the text can only
  /// end. Errors: RunError if it can neither go on nor end, or if to say so costs more than the limits allow; afterwards the
  /// constraint is of no more use.
  virtual std::span<const uint32_t> allowed() = 0;

  /// The text goes on with a token that is allowed. Errors: RunError otherwise.
  virtual void accept(int32_t token) = 0;

  virtual bool may_end() const = 0;   // the text is complete
  virtual bool must_end() const = 0;  // and nothing may follow

  /// The same state, for another text.
  virtual std::unique_ptr<Constraint> clone() const = 0;
};

}  // namespace vitrine
