#pragma once
// The unigram model: of all ways to cut a text into pieces the one with the largest sum of scores, found by Viterbi's
// algorithm from left to right. Kudo, arXiv:1804.10959. `Real` is the type of the sums: SentencePiece adds floats,
// Hugging Face doubles, and where two ways tie to rounding that decides.
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/trie.h"

namespace vitrine {

/// trie      pieces by id; those that may not be used are not in it
/// score     score(id, size): a Real or double
/// unknown   id and score of a character that no piece of its length covers
template <class Real, class Score>
void unigram_encode(std::string_view text, const Trie& trie, const Score& score, int32_t unknown, Real unknown_score,
                    std::vector<WordToken>& out) {
  struct Node {
    Real score = 0;
    int64_t start = -1;  // -1: not reached
    int32_t id = -1;
  };
  std::vector<Node> best(text.size() + 1);
  const auto reach = [&](size_t begin, size_t end, int32_t id, Real candidate) {
    if (best[end].start >= 0 && !(candidate > best[end].score)) return;
    best[end] = {candidate, int64_t(begin), id};
  };
  for (size_t begin = 0; begin < text.size();) {
    const Real so_far = best[begin].score;
    const size_t character = utf8_at(text, begin).size;
    bool covered = false;
    trie.each(text, begin, [&](size_t size, int32_t id) {
      reach(begin, begin + size, id, Real(score(id, size)) + so_far);
      covered = covered || size == character;
    });
    if (!covered) reach(begin, begin + character, unknown, unknown_score + so_far);
    begin += character;
  }
  const size_t first = out.size();
  for (size_t end = text.size(); end > 0; end = size_t(best[end].start))
    out.push_back({best[end].id, uint32_t(best[end].start), uint32_t(end)});
  std::reverse(out.begin() + long(first), out.end());
}

}  // namespace vitrine
