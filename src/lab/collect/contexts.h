#pragma once
// How a corpus is cut: documents into contexts, contexts into shards.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collect/collect.h"

namespace vitrine {

using ContextIds = std::vector<int32_t>;

struct ContextForm {
  int64_t length = 0;  // most tokens
  int64_t lead = -1;   // what each begins with; -1: nothing
};
/// length 0: 256, or what the model holds. special: each begins with BOS, if the tokenizer puts one in front of texts.
/// Errors: InputError for contexts longer than the model's, and for those that hold nothing but BOS.
ContextForm context_form(const Engine& engine, int64_t length, bool special);
/// The last part of a model's path or name, which files that are made with it keep.
std::string last_of_name(const Engine& engine);

/// Documents cut into contexts of at most `context` tokens, none of which holds two. Each begins with `lead`, unless that is
/// below 0.
class Contexts {
 public:
  /// max_tokens: of all contexts together; 0: no limit.
  Contexts(DocumentTokens& documents, int64_t context, int64_t lead, uint64_t max_tokens);
  /// The next one; empty at the end.
  ContextIds next();

 private:
  bool more();

  DocumentTokens& documents_;
  size_t room_;
  int64_t lead_;
  uint64_t left_;
  std::vector<int32_t> rest_;  // ids that were read, from begin_ on
  size_t begin_ = 0;
  std::optional<size_t> border_;  // where in rest_ another document begins
};

/// Contexts that become one shard.
struct ShardPlan {
  std::vector<ContextIds> contexts;
  uint64_t tokens = 0;
};

/// As many contexts as a shard takes, in order.
class ShardPlanner {
 public:
  ShardPlanner(Contexts& contexts, uint64_t shard_tokens)
      : contexts_(contexts), shard_tokens_(shard_tokens), ahead_(contexts.next()) {}
  bool at_end() const { return ahead_.empty(); }
  /// Empty at the end.
  ShardPlan next();

 private:
  Contexts& contexts_;
  uint64_t shard_tokens_;
  ContextIds ahead_;
};

}  // namespace vitrine
