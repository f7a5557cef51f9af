#include "collect/contexts.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace vitrine {

ContextForm context_form(const Engine& engine, int64_t length, bool special) {
  constexpr int64_t kUsual = 256;
  const int64_t most = engine.shape().context_length > 0 ? engine.shape().context_length : INT32_MAX;
  ContextForm form;
  form.length = length > 0 ? length : std::min(kUsual, most);
  if (form.length > most)
    throw InputError("a context of " + std::to_string(form.length) + " tokens is longer than that of " + engine.name() +
                     ", which is " + std::to_string(most));
  if (special && engine.has_tokenizer() && engine.tokenizer().adds_bos() && engine.tokenizer().bos())
    form.lead = *engine.tokenizer().bos();
  if (form.lead >= 0 && form.length < 2)
    throw InputError("a context of 1 token holds BOS and nothing of the text; give at least 2");
  return form;
}

std::string last_of_name(const Engine& engine) {
  std::filesystem::path name(engine.name());
  if (!name.has_filename()) name = name.parent_path();
  return name.filename().string();
}

Contexts::Contexts(DocumentTokens& documents, int64_t context, int64_t lead, uint64_t max_tokens)
    : documents_(documents),
      room_(static_cast<size_t>(context) - (lead >= 0 ? 1 : 0)),
      lead_(lead),
      left_(max_tokens > 0 ? max_tokens : UINT64_MAX) {}

ContextIds Contexts::next() {
  ContextIds context;
  const size_t lead = lead_ >= 0 ? 1 : 0;
  if (left_ <= lead) return context;
  while (rest_.size() - begin_ < room_ && more()) {
  }
  const size_t held = border_.value_or(rest_.size()) - begin_;
  const size_t n = std::min({held, room_, static_cast<size_t>(std::min<uint64_t>(left_ - lead, INT64_MAX))});
  if (n == 0) return context;
  if (lead_ >= 0) context.push_back(static_cast<int32_t>(lead_));
  const auto from = rest_.begin() + static_cast<ptrdiff_t>(begin_);
  context.insert(context.end(), from, from + static_cast<ptrdiff_t>(n));
  begin_ += n;
  if (border_ && begin_ == *border_) border_.reset();
  left_ -= context.size();
  return context;
}

// Reads on within the document whose ids stand at begin_; false at its end.
bool Contexts::more() {
  if (border_) return false;
  std::vector<int32_t> ids;
  bool begins = false;
  do {
    if (!documents_.next(ids, begins)) return false;
  } while (ids.empty());
  rest_.erase(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(begin_));
  begin_ = 0;
  if (begins && !rest_.empty()) border_ = rest_.size();  // the next document waits behind it
  rest_.insert(rest_.end(), ids.begin(), ids.end());
  return !border_;
}

ShardPlan ShardPlanner::next() {
  ShardPlan plan;
  while (!ahead_.empty() && plan.tokens + ahead_.size() <= shard_tokens_) {
    plan.tokens += ahead_.size();
    plan.contexts.push_back(std::move(ahead_));
    ahead_ = contexts_.next();
  }
  return plan;
}

}  // namespace vitrine
