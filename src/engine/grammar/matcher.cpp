#include "grammar/matcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <functional>

#include "base/error.h"
#include "grammar/mask_worker.h"

namespace vitrine {
namespace {
constexpr size_t kMostOfAReason = 400;  // bytes
constexpr double kQuick = 1e-3;         // seconds of a mask for which a step of the model may wait
constexpr double kForget = 0.75;

double thread_seconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}
}  // namespace

std::string failure(LlgMatcher* matcher) {
  const char* reason = llg_matcher_get_error(matcher);
  if (reason == nullptr) return "";
  std::string text = reason;
  text = text.substr(0, text.find("\n<"));
  if (text.size() > kMostOfAReason) text = text.substr(0, kMostOfAReason) + " ...";
  while (text.ends_with('\n')) text.pop_back();
  return text.empty() ? "it gives no reason" : text;
}

GrammarConstraint::GrammarConstraint(MatcherHandle matcher, std::shared_ptr<const GrammarVocabulary> vocabulary,
                                     std::string source, double mask_seconds)
    : state_(std::make_shared<State>()), source_(std::move(source)), mask_seconds_(mask_seconds) {
  state_->vocabulary = std::move(vocabulary);
  state_->matcher = std::move(matcher);
  state_->mask.resize(state_->vocabulary->text.size());
  may_end_ = llg_matcher_is_accepting(state_->matcher.get());
}

GrammarConstraint::~GrammarConstraint() {
  const std::lock_guard lock(state_->mutex);
  if (state_->stage == Mask::wanted) state_->stage = Mask::none;  // a job that comes late does nothing
}

void GrammarConstraint::make_mask(State& state) {
  const double began = thread_seconds();
  const size_t bytes = state.mask.size() * sizeof(uint32_t);
  if (llg_matcher_compute_mask_into(state.matcher.get(), state.mask.data(), bytes) != 0) {
    state.error = failure(state.matcher.get());
    state.empty = state.error.find("NoExtensionBias") != std::string::npos;  // the library's word for a mask without tokens
    if (state.empty) {
      std::ranges::fill(state.mask, 0);
      state.error.clear();
    }
  } else {  // a grammar in Lark may ask for tokens by their ids
    std::ranges::transform(state.mask, state.vocabulary->text, state.mask.begin(), std::bit_and<>());
    state.empty = std::ranges::all_of(state.mask, [](uint32_t word) { return word == 0; });
  }
  const double seconds = thread_seconds() - began;
  const std::lock_guard lock(state.mutex);
  state.spent += seconds;
  state.usual = std::max(seconds, kForget * state.usual);
  state.stage = Mask::made;
  state.changed.notify_all();
}

// Tokens are chosen by the mask, so a matcher fails where a grammar has too many ways to go on.
ConstraintError GrammarConstraint::too_complex(const std::string& why) const {
  return {"grammar_too_complex", source_,
          "the text does not conform to the grammar, or the grammar has too many ways to continue it, such as many optional "
          "properties or nested repetitions; simplify it: " +
              why};
}

void GrammarConstraint::check_time() const {
  if (mask_seconds_ <= 0 || state_->spent <= mask_seconds_) return;
  throw ConstraintError("grammar_too_slow", source_,
                        "to find the tokens that may follow took more than " + fmt::format("{:g} s", mask_seconds_) +
                            " for this text (--mask-seconds); simplify the grammar, or ask for a shorter text");
}

void GrammarConstraint::prepare() {
  bool slow = false;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->stage != Mask::none) return;
    if (mask_seconds_ > 0 && state_->spent > mask_seconds_) return;  // allowed() throws
    state_->stage = Mask::wanted;
    slow = state_->usual > kQuick;
  }
  (slow ? MaskWorker::slow() : MaskWorker::quick()).add([state = state_] {
    {
      const std::lock_guard lock(state->mutex);
      if (state->stage != Mask::wanted) return;
      state->stage = Mask::being_made;
    }
    make_mask(*state);
  });
}

bool GrammarConstraint::ready(std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  if (state_->stage == Mask::none || state_->stage == Mask::made) return true;
  if (state_->usual > kQuick) return false;
  state_->changed.wait_for(lock, patience, [&] { return state_->stage != Mask::being_made; });
  return state_->stage != Mask::being_made;  // one that has not been begun is the caller's, and takes little time
}

// Until nobody else uses the matcher. A mask that is wanted and not begun is then left to the caller.
void GrammarConstraint::settle() const {
  std::unique_lock lock(state_->mutex);
  if (state_->stage == Mask::wanted) state_->stage = Mask::none;
  state_->changed.wait(lock, [&] { return state_->stage != Mask::being_made; });
}

std::span<const uint32_t> GrammarConstraint::allowed() {
  settle();
  State& state = *state_;
  if (state.stage == Mask::none) {
    check_time();
    make_mask(state);
  }
  if (state.error.empty() && (!state.empty || may_end_)) return state.mask;
  if (state.empty)
    throw ConstraintError("grammar_dead_end", source_,
                          "the grammar does not allow the text to continue: no token of the vocabulary fits, and it is not "
                          "complete");
  throw too_complex(state.error);
}

void GrammarConstraint::accept(int32_t token) {
  settle();
  LlgMatcher* const matcher = state_->matcher.get();
  const double began = thread_seconds();
  if (llg_matcher_consume_token(matcher, static_cast<uint32_t>(token)) != 0)
    throw too_complex("behind token " + std::to_string(token) + ": " + failure(matcher));
  {
    const std::lock_guard lock(state_->mutex);
    state_->spent += thread_seconds() - began;
    state_->stage = Mask::none;
  }
  must_end_ = llg_matcher_is_stopped(matcher);
  may_end_ = must_end_ || llg_matcher_is_accepting(matcher);
}

std::unique_ptr<Constraint> GrammarConstraint::clone() const {
  settle();
  auto copy = std::make_unique<GrammarConstraint>(MatcherHandle(llg_clone_matcher(state_->matcher.get())), state_->vocabulary,
                                                  source_, mask_seconds_);
  copy->may_end_ = may_end_;
  copy->must_end_ = must_end_;
  copy->state_->usual = state_->usual;
  return copy;
}

}  // namespace vitrine
