#pragma once
// Sequences whose keys and values are kept for prompts that begin like them: a tree over tokens (a radix tree, as SGLang's,
// arXiv:2312.07104), each path of which spells a sequence; one tree for each kind of sequence.
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/kv_cache.h"

namespace vitrine {

/// A sequence serves every text that begins with some of its tokens, as far back as it can go (CacheSequence::can_go_back): to
/// any length if all layers keep all positions, to the last few if some have a window, to its own length alone if some have a
/// recurrence. So nothing is reused but what is there.
class PrefixCache {
 public:
  /// long_from: sequences that began with more tokens than that have other frequencies (LongRoPE) and serve only their like.
  explicit PrefixCache(int64_t long_from = INT64_MAX);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  /// What a sequence was computed with besides the model, and who may continue it. Sequences of two kinds share nothing.
  struct Kind {
    std::vector<std::pair<uint64_t, double>> adapters;  // numbers of adapters, and how much of each
    std::string scope;                                  // Work::prefix_scope
    auto operator<=>(const Kind&) const = default;
  };

  struct Found {
    CacheSequence sequence;  // shares its pages; of `length` tokens
    int64_t length = 0;      // 0: there is none
    int64_t alike = 0;       // tokens that a kept sequence begins with too, whether or not it can go back there
  };
  /// The longest beginning of `tokens` that is there, for a text that begins with a prompt of `begun` tokens.
  Found find(std::span<const int32_t> tokens, int64_t begun, const Kind& kind = {});

  /// Keeps a sequence of these tokens, unless others serve in its place. It may take over the place of others.
  void keep(std::span<const int32_t> tokens, CacheSequence sequence, const Kind& kind = {});

  /// Gives up the sequence of the most of these tokens and no others; its length, 0 if there is none.
  int64_t forget(std::span<const int32_t> tokens, const Kind& kind = {});

  /// Gives up the sequence that was found or kept the longest ago. False if there is none.
  bool forget_one();

  int64_t sequences() const { return static_cast<int64_t>(by_use_.size()); }
  /// Of the trees, one for each kind: shared beginnings count once.
  int64_t tokens() const { return tokens_; }
  uint64_t forgotten() const { return forgotten_; }
  /// Whether two texts that begin with prompts of so many tokens may share, as far as long ones have other frequencies.
  bool as_long(int64_t begun, int64_t other) const { return (begun > long_from_) == (other > long_from_); }

 private:
  struct Node;
  bool serves(const CacheSequence& sequence, int64_t length, int64_t begun) const;
  Node* server(Node& from, int64_t length, int64_t begun) const;
  Node& place(std::span<const int32_t> tokens, const Kind& kind);
  void split(Node& node, size_t at);
  void use(Node& node);
  void drop(Node& node);
  void prune(Node* node);

  int64_t long_from_;
  std::map<Kind, std::unique_ptr<Node>> roots_;  // none without a child
  std::map<uint64_t, Node*> by_use_;             // nodes that keep a sequence
  uint64_t clock_ = 0, forgotten_ = 0;
  int64_t tokens_ = 0;
};

/// Tokens that two texts begin with alike.
int64_t alike(std::span<const int32_t> a, std::span<const int32_t> b);

}  // namespace vitrine
