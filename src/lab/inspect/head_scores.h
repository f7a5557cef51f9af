#pragma once
// What each attention head attends to, as four numbers.
// Sources: Olsson et al., "In-context Learning and Induction Heads", Transformer Circuits Thread, 2022 (previous-token and
// induction heads, repeated random tokens); Wang et al., arXiv:2211.00593 (duplicate-token heads).
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// Which keys j a query i is expected to attend to, in a sequence of tokens t.
enum class HeadRole : uint8_t {
  previous,   // j = i - 1
  duplicate,  // j < i with t[j] = t[i]: the same token, earlier
  induction,  // j <= i with t[j - 1] = t[i], j - 1 < i: what came after the same token, earlier
  first,      // j = 0, for i > 0
};
inline constexpr int kHeadRoles = 4;

/// For each role: the attention that falls on its keys, as a mean over the queries that have such keys. 1: all of it.
/// (Over all attention of the head, as the detector of TransformerLens counts it: mean · queries / tokens.)
struct HeadScore {
  int64_t layer = 0, head = 0;
  std::array<double, kHeadRoles> mean{};  // by HeadRole; 0 if no query has such keys

  double at(HeadRole role) const { return mean[static_cast<size_t>(role)]; }
};
struct HeadScores {
  std::vector<int32_t> ids;
  std::array<int64_t, kHeadRoles> queries{};  // how many have keys of that role
  std::vector<HeadScore> heads;               // by layer, then head; of layers that have attention

  /// Errors: none but a broken promise: the layer has attention.
  const HeadScore& of(int64_t layer, int64_t head) const;
  double detector(const HeadScore& score, HeadRole role) const {
    return score.at(role) * static_cast<double>(queries[static_cast<size_t>(role)]) / static_cast<double>(ids.size());
  }
};

/// Runs `ids` once and scores every head; patterns are read as they pass and not kept. Errors: as Engine::check_ids; InputError
/// for a pattern that does not fit into memory; RunError for NaN.
HeadScores score_heads(Engine& engine, std::span<const int32_t> ids);

/// The prompt that induction is measured on: the tokenizer's BOS, if it has one, and `length` random tokens twice. The same for
/// the same seed. No token comes twice within the half if the vocabulary allows.
/// Errors: InputError for a length below 2 or one whose double does not fit into the context.
std::vector<int32_t> repeated_random_ids(const Engine& engine, int64_t length, uint64_t seed);

}  // namespace vitrine
