#include "generate/speculate.h"

#include <algorithm>

#include "runtime/model_tokenizer.h"
#include "runtime/row_math.h"

namespace vitrine {
namespace {

constexpr size_t kLongestMatch = 3;  // tokens that lookup compares

int64_t checked_count(int64_t n_tokens) {
  if (n_tokens < 1 || n_tokens > kMostDrafts)
    throw UsageError(std::to_string(n_tokens) + " tokens cannot be drafted at a time; expected 1 to " +
                     std::to_string(kMostDrafts));
  return n_tokens;
}

void check_same_tokens(const Engine& target, const Engine& draft) {
  const std::string what = "the draft model " + draft.name(), advice = ". Take a draft model of the same vocabulary";
  const int64_t theirs = draft.shape().vocab_size, own = target.shape().vocab_size;
  if (theirs != own)
    throw InputError(what + " has a vocabulary of " + std::to_string(theirs) + " tokens, " + target.name() + " one of " +
                     std::to_string(own) + advice);
  if (!target.has_tokenizer() || !draft.has_tokenizer()) return;
  if (const std::optional<int32_t> id = first_other_piece(target.tokenizer(), draft.tokenizer()))
    throw InputError(what + " has another vocabulary than " + target.name() + ": token " + std::to_string(*id) + " is \"" +
                     draft.tokenizer().piece(*id) + "\" there and \"" + target.tokenizer().piece(*id) + "\" here" + advice);
}

/// Nobody hears the context while it lives.
class Unheard {
 public:
  explicit Unheard(Context& ctx) : ctx_(ctx), listener_(ctx.listener()), sequence_(ctx.listening_sequence()) {
    ctx_.listen(nullptr);
  }
  ~Unheard() { ctx_.listen(listener_, sequence_); }
  Unheard(const Unheard&) = delete;
  Unheard& operator=(const Unheard&) = delete;

 private:
  Context& ctx_;
  Listener* listener_;
  int sequence_;
};

}  // namespace

void check_goes_back(const Engine& engine) {
  const std::vector<CacheLayer> layers = engine.model().cache_layers();
  if (std::any_of(layers.begin(), layers.end(), [](const CacheLayer& layer) { return layer.state > 0; }))
    throw InputError(
        engine.name() + " (" + engine.shape().family +
        ") has recurrent layers, whose state cannot be rolled back after a rejected draft. Decode it without drafts");
}

LookupDrafter::LookupDrafter(int64_t n_tokens) : n_tokens_(checked_count(n_tokens)) {}

std::vector<int32_t> LookupDrafter::draft(std::span<const int32_t> text, int64_t most) {
  const auto wanted = static_cast<size_t>(std::clamp<int64_t>(most, 0, n_tokens_));
  for (size_t n = std::min(kLongestMatch, text.size() - 1); n > 0; --n) {
    const std::span<const int32_t> last = text.last(n);
    for (size_t begin = text.size() - n; begin-- > 0;)
      if (std::ranges::equal(text.subspan(begin, n), last)) {
        const std::span<const int32_t> behind = text.subspan(begin + n);
        return {behind.begin(), behind.begin() + static_cast<std::ptrdiff_t>(std::min(wanted, behind.size()))};
      }
  }
  return {};
}

ModelDrafter::ModelDrafter(Engine& target, std::shared_ptr<const Engine> draft, int64_t n_tokens, int64_t most_read)
    : target_(target), draft_(std::move(draft)), n_tokens_(checked_count(n_tokens)), most_read_(most_read) {
  check_same_tokens(target, *draft_);
  check_goes_back(*draft_);
  begin();
}

ModelDrafter::ModelDrafter(const ModelDrafter& like, int64_t n_tokens)
    : target_(like.target_), draft_(like.draft_), n_tokens_(checked_count(n_tokens)), most_read_(like.most_read_) {
  begin();
}

std::shared_ptr<ModelDrafter> ModelDrafter::another(int64_t n_tokens) const {
  return std::shared_ptr<ModelDrafter>(new ModelDrafter(*this, n_tokens));
}

void ModelDrafter::begin() {
  const int64_t context = draft_->shape().context_length;
  context_ = context > 0 ? context : INT32_MAX;  // positions are 32-bit
  cache_ = draft_->decoding_cache(context_);     // memory is taken as positions are written
  sequence_ = cache_->sequence();
}

std::vector<int32_t> ModelDrafter::draft(std::span<const int32_t> text, int64_t most) {
  const auto length = static_cast<int64_t>(text.size());
  most = std::min({most, n_tokens_, context_ - length + 1});  // the last token that is drafted needs no position
  if (most <= 0) return {};
  const auto known = std::ranges::mismatch(seen_, text.first(text.size() - 1)).in1 - seen_.begin();
  if (known + kMostDrafts < std::ssize(seen_)) {  // a new text
    sequence_ = cache_->sequence();
    seen_.clear();
  } else {  // all but drafts that were refused, and the text's last token, whose logits are wanted again
    sequence_.truncate(known);
    seen_.resize(static_cast<size_t>(known));
  }
  const Unheard unheard(target_.context());
  const std::span<const int32_t> unread = text.subspan(seen_.size());
  if (most_read_ > 0 && std::ssize(unread) > most_read_) {
    likeliest_after(unread.first(static_cast<size_t>(most_read_)), length);
    return {};
  }
  std::vector<int32_t> drafted = {likeliest_after(unread, length)};
  while (std::ssize(drafted) < most) drafted.push_back(likeliest_after(std::span(&drafted.back(), 1), length));
  return drafted;
}

int32_t ModelDrafter::likeliest_after(std::span<const int32_t> tokens, int64_t begun) {
  Context& ctx = target_.context();
  int32_t most_likely = 0;
  const auto chunk = static_cast<size_t>(cache_->largest_step());
  for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::span<const int32_t> part = tokens.subspan(begin, std::min(chunk, tokens.size() - begin));
    const auto frame = ctx.frame();
    Step step;
    step.add(part, &sequence_, begun);
    const Tensor x = draft_->model().residual(ctx, step);
    if (begin + part.size() == tokens.size()) {
      const int64_t last = step.rows() - 1;
      const Tensor z = logits(ctx, x, draft_->model().head(), std::span(&last, 1));
      most_likely = static_cast<int32_t>(argmax({z.data<float>(), static_cast<size_t>(z.count())}));
    }
    step.commit();
    seen_.insert(seen_.end(), part.begin(), part.end());
  }
  return most_likely;
}

}  // namespace vitrine
