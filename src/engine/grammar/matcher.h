#pragma once
// A text against a compiled grammar.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "generate/constraint.h"
#include "grammar/llguidance.h"

namespace vitrine {

struct FreeMatcher {
  void operator()(LlgMatcher* matcher) const { llg_free_matcher(matcher); }
};
using MatcherHandle = std::unique_ptr<LlgMatcher, FreeMatcher>;

/// What matchers of one vocabulary share.
struct GrammarVocabulary {
  GrammarVocabulary() = default;
  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;
  ~GrammarVocabulary() { llg_free_tokenizer(tokenizer); }
  LlgTokenizer* tokenizer = nullptr;
  std::vector<uint32_t> text;  // a bit for each token that is text
};

/// llguidance's reason without what follows its first line; "" if nothing failed.
std::string failure(LlgMatcher* matcher);

class GrammarConstraint final : public Constraint {
 public:
  /// A matcher that has not failed. source: for messages. mask_seconds: Grammar::mask_seconds.
  GrammarConstraint(MatcherHandle matcher, std::shared_ptr<const GrammarVocabulary> vocabulary, std::string source,
                    double mask_seconds);
  ~GrammarConstraint() override;

  void prepare() override;
  bool ready(std::chrono::milliseconds patience) override;
  std::span<const uint32_t> allowed() override;
  void accept(int32_t token) override;
  bool may_end() const override { return may_end_; }
  bool must_end() const override { return must_end_; }
  std::unique_ptr<Constraint> clone() const override;

 private:
  enum class Mask : uint8_t { none, wanted, being_made, made };
  /// Shared with the worker's job, which may come late.
  struct State {
    std::shared_ptr<const GrammarVocabulary> vocabulary;  // freed last
    MatcherHandle matcher;
    std::vector<uint32_t> mask;
    std::string error;  // "": the mask counts
    bool empty = false;
    double spent = 0;  // seconds of a processor, for the masks of this text
    double usual = 0;  // the same of a mask: of the last one, or of a longer one before that is being forgotten
    std::mutex mutex;  // of `stage`; whoever sets being_made has the rest to himself until made
    std::condition_variable changed;
    Mask stage = Mask::none;
  };
  static void make_mask(State& state);
  void settle() const;
  void check_time() const;
  ConstraintError too_complex(const std::string& why) const;

  std::shared_ptr<State> state_;
  std::string source_;
  double mask_seconds_;
  bool may_end_ = false, must_end_ = false;
};

}  // namespace vitrine
