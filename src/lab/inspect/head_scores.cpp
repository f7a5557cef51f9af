#include "inspect/head_scores.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "base/philox.h"
#include "hooks/listening.h"
#include "model/layer_name.h"

namespace vitrine {
namespace {

constexpr HeadRole kRoles[] = {HeadRole::previous, HeadRole::duplicate, HeadRole::induction, HeadRole::first};

bool is_target(HeadRole role, std::span<const int32_t> t, int64_t query, int64_t key) {
  const auto i = static_cast<size_t>(query), j = static_cast<size_t>(key);
  switch (role) {
    case HeadRole::previous: return key == query - 1;
    case HeadRole::duplicate: return j < i && t[j] == t[i];
    case HeadRole::induction: return j >= 1 && j <= i && t[j - 1] == t[i];
    case HeadRole::first: return j == 0 && i > 0;
  }
  return false;
}

class Scorer final : public Listener {
 public:
  explicit Scorer(std::span<const int32_t> ids) {
    scores.ids.assign(ids.begin(), ids.end());
    const auto n = static_cast<int64_t>(ids.size());
    for (const HeadRole role : kRoles) {
      auto& targets = targets_[static_cast<size_t>(role)];
      for (int64_t i = 0; i < n; ++i) {
        const size_t before = targets.size();
        for (int64_t j = 0; j <= i; ++j)
          if (is_target(role, ids, i, j)) targets.push_back({i, j});
        scores.queries[static_cast<size_t>(role)] += targets.size() > before ? 1 : 0;
      }
    }
  }
  HeadScores scores;

  bool wants(std::string_view name) const override { return name.ends_with(".attn.hook_pattern"); }
  Tensor see(Context&, std::string_view name, const Tensor& pattern) override {  // [head, query, key]
    const int64_t layer = split_layer(name).first;
    for (int64_t h = 0; h < pattern.dim(0); ++h) {
      HeadScore score;
      score.layer = layer;
      score.head = h;
      for (size_t role = 0; role < kHeadRoles; ++role) {
        double sum = 0;
        for (const auto& [i, j] : targets_[role])
          sum += static_cast<double>(pattern.data<float>()[(h * pattern.dim(1) + i) * pattern.dim(2) + j]);
        score.mean[role] = scores.queries[role] > 0 ? sum / static_cast<double>(scores.queries[role]) : 0;
      }
      scores.heads.push_back(score);
    }
    return {};
  }

 private:
  struct Cell {
    int64_t query, key;
  };
  std::array<std::vector<Cell>, kHeadRoles> targets_;
};

}  // namespace

const HeadScore& HeadScores::of(int64_t layer, int64_t head) const {
  const auto found =
      std::find_if(heads.begin(), heads.end(), [&](const HeadScore& s) { return s.layer == layer && s.head == head; });
  VITRINE_CHECK(found != heads.end(), "a head of a layer that has attention");
  return *found;
}

HeadScores score_heads(Engine& engine, std::span<const int32_t> ids) {
  engine.check_ids(ids);
  const size_t n = ids.size();
  require_memory(2 * static_cast<size_t>(engine.shape().n_heads) * n * n * sizeof(float), 0,
                 "The scores and patterns of one layer for " + std::to_string(n) + " tokens", "Use a shorter prompt");
  Scorer scorer(ids);
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  const Listening listening(ctx, scorer);
  const int64_t last = static_cast<int64_t>(n) - 1;
  engine.run(Step::of(ids), std::span(&last, 1));
  return std::move(scorer.scores);
}

std::vector<int32_t> repeated_random_ids(const Engine& engine, int64_t length, uint64_t seed) {
  const ModelShape& shape = engine.shape();
  std::vector<int32_t> ids;
  if (engine.has_tokenizer()) ids = engine.tokenizer().encode("");
  while (ids.size() > 1) ids.pop_back();  // BOS, and no EOS that would follow it
  const auto bos = static_cast<int64_t>(ids.size());
  if (length < 2 || (shape.context_length > 0 && bos + 2 * length > shape.context_length))
    throw InputError("a repeated sequence of " + std::to_string(length) + " tokens was asked for; expected 2 to " +
                     (shape.context_length > 0 ? std::to_string((shape.context_length - bos) / 2) + ", as twice that many"
                                               : "any number, as they") +
                     " must fit into the context");
  const auto vocab = static_cast<uint64_t>(shape.vocab_size);
  const bool once = static_cast<uint64_t>(length) <= vocab / 2;
  std::unordered_set<int32_t> seen(ids.begin(), ids.end());
  for (uint64_t draw = 0; static_cast<int64_t>(ids.size()) < bos + length; ++draw) {
    const auto words = philox(seed, draw, 0);
    const auto id = static_cast<int32_t>((uint64_t{words[0]} * vocab) >> 32);
    if (once && !seen.insert(id).second) continue;
    ids.push_back(id);
  }
  for (int64_t i = 0; i < length; ++i) ids.push_back(ids[static_cast<size_t>(bos + i)]);
  return ids;
}

}  // namespace vitrine
