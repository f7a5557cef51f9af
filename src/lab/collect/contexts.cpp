#include "collect/contexts.h"

#include <algorithm>

namespace vitrine {

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
