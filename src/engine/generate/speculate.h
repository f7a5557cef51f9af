#pragma once
// Speculative decoding (arXiv:2211.17192): something cheap proposes the next tokens, and the model checks them in one step.
// Every token is still chosen by the sampler, from the model's logits at its place and with the draw of its place. A proposal
// counts if it is what the sampler chooses; the first other choice takes its place and ends the step. So the tokens are those of
// decoding without proposals, greedy or sampled, whatever is proposed. Good proposals only make it faster.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/table.h"
#include "runtime/engine.h"

namespace vitrine {

/// Tokens proposed at a time, at most: the rows of a step are these and the token before them, and up to kFewRows rows have the
/// bits of a step of their own (more rows have them with Numerics::exact only).
inline constexpr int64_t kMostDrafts = static_cast<int64_t>(kFewRows) - 1;

inline constexpr int64_t kDefaultDrafts = 4;

/// Proposes tokens. One drafter serves one text at a time; a text that does not continue the last one is a new one.
class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Tokens that may follow text (prompt and generated tokens, at least one), at most `most` of them; none if it knows none.
  virtual std::vector<int32_t> draft(std::span<const int32_t> text, int64_t most) = 0;
  /// Texts that may share a step for its proposals to be worth their time.
  virtual int64_t most_texts() const { return kMostDrafts; }
};

/// Prompt lookup: the last n tokens of the text, n the largest of 3, 2 and 1 with which they stand in it before, are looked up
/// where they stood most recently, and what followed them there is proposed.
class LookupDrafter final : public Drafter {
 public:
  /// n_tokens: proposed at a time, at most. Errors: UsageError unless it is in [1, kMostDrafts].
  explicit LookupDrafter(int64_t n_tokens);
  std::vector<int32_t> draft(std::span<const int32_t> text, int64_t most) override;

 private:
  int64_t n_tokens_;
};

/// A smaller model proposes what it finds most likely, with a cache of its own. It runs on the target's threads, in the target's
/// numerics, and no listener hears it. Where its context ends it proposes nothing.
class ModelDrafter final : public Drafter {
 public:
  /// target: the engine that checks; must outlive the drafter. draft: may be the target itself; only its weights and its
  /// tokenizer are used, so that it may run something else meanwhile. n_tokens: proposed at a time, at most. Errors: UsageError
  /// unless n_tokens is in [1, kMostDrafts]; InputError for vocabularies that differ in size or, where both have a tokenizer, in
  /// a piece, and for a draft model whose cache cannot go back (check_goes_back).
  /// most_read: tokens that a call reads; if it is further behind it proposes nothing yet, so that a long prompt does not hold up
  /// others. 0: all.
  ModelDrafter(Engine& target, std::shared_ptr<const Engine> draft, int64_t n_tokens, int64_t most_read = 0);
  std::vector<int32_t> draft(std::span<const int32_t> text, int64_t most) override;
  /// Each text has steps of its own in the draft model.
  int64_t most_texts() const override { return kMostDraftedTexts; }

  /// One of the same models for another text.
  std::shared_ptr<ModelDrafter> another(int64_t n_tokens) const;

 private:
  static constexpr int64_t kMostDraftedTexts = 2;
  ModelDrafter(const ModelDrafter& like, int64_t n_tokens);
  void begin();
  int32_t likeliest_after(std::span<const int32_t> tokens, int64_t begun);

  Engine& target_;
  std::shared_ptr<const Engine> draft_;
  int64_t n_tokens_, most_read_, context_ = 0;
  std::unique_ptr<KvCache> cache_;
  CacheSequence sequence_;
  std::vector<int32_t> seen_;  // the tokens in sequence_
};

/// Errors: InputError for a model with recurrent layers: their state is known behind the last row of a step alone, and refused
/// proposals are rows in the middle of one.
void check_goes_back(const Engine& engine);

}  // namespace vitrine
