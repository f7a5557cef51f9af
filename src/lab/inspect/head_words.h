#pragma once
// What the numbers of attention heads say, in sentences.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "inspect/circuits.h"
#include "inspect/head_scores.h"

namespace vitrine {

/// What a head with a high score of this role looks at: "the previous token".
const char* words_of(HeadRole role);

/// Which heads do what, the strongest of each kind: "`1.3` looks at the previous token, 69.6 %; `1.0`, 38.6 %". Heads that do it
/// stand between backquotes. `heads`: which are spoken of; without eigenvalues nothing is said of copying.
std::vector<std::string> head_sentences(const HeadScores& scores, std::span<const HeadSpectra> heads);

/// One way in which a head reads what an earlier one wrote.
struct HeadLink {
  double score;
  const char* kind;  // "queries", "keys" or "values"
  const Composition* pair;
};
/// The n strongest, the strongest first.
std::vector<HeadLink> strongest_links(std::span<const Composition> all, size_t n);
/// "the keys of 4.1 read what 0.3 writes"
std::string words_of(const HeadLink& link);

}  // namespace vitrine
