#include "generate/beam.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Scores of the next token by the two tokens before it. It forks its beams as a caller forks caches: from `choices` alone.
class Table {
 public:
  Table(const Json& table, std::vector<int32_t> prompt) : vocab_(table["vocab_size"]), prompt_(std::move(prompt)) {
    scores_ = table["log_probs"].get<std::vector<float>>();
  }

  std::span<const float> operator()(std::span<const BeamChoice> choices) {
    std::vector<std::vector<int32_t>> next;
    if (choices.empty()) next = {prompt_};
    for (const BeamChoice& choice : choices) {
      next.push_back(beams_.size() == 1 ? beams_[0] : beams_.at(static_cast<size_t>(choice.parent)));
      next.back().push_back(choice.token);
    }
    beams_ = std::move(next);
    rows_.clear();
    for (const auto& beam : beams_) {
      const size_t last = static_cast<size_t>(beam.back()),
                   before = static_cast<size_t>(beam[beam.size() < 2 ? 0 : beam.size() - 2]);
      const auto row = std::span(scores_).subspan((before * vocab_ + last) * vocab_, vocab_);
      rows_.insert(rows_.end(), row.begin(), row.end());
    }
    return rows_;
  }

 private:
  size_t vocab_;
  std::vector<int32_t> prompt_;
  std::vector<float> scores_, rows_;
  std::vector<std::vector<int32_t>> beams_;
};

BeamOptions options_of(const Json& entry) {
  const Json& early = entry["early_stopping"];
  return {.n_beams = entry["n_beams"],
          .n_return = entry["n_beams"],
          .max_new_tokens = entry["max_new_tokens"],
          .length_penalty = entry["length_penalty"],
          .early_stopping = early.is_string()   ? EarlyStopping::never
                            : early.get<bool>() ? EarlyStopping::yes
                                                : EarlyStopping::no,
          .eos = entry["eos"].get<std::vector<int32_t>>()};
}

TEST(BeamGolden, SequencesAndScoresMatchTransformers) {
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/generate/beam.json");
  size_t cases = 0;
  for (const Json& entry : golden["cases"]) {
    Table table(golden["tables"][entry["table"].get<std::string>()], entry["prompt"].get<std::vector<int32_t>>());
    const auto got = beam_search(options_of(entry), std::ref(table));
    ASSERT_EQ(got.size(), entry["sequences"].size());
    for (size_t i = 0; i < got.size(); ++i) {
      const float expected = entry["scores"][i];
      EXPECT_EQ(got[i].tokens, entry["sequences"][i].get<std::vector<int32_t>>()) << i << " of " << entry;
      EXPECT_NEAR(got[i].score, expected, 2e-6 * std::max(1.0f, std::abs(expected))) << i << " of " << entry;
    }
    ++cases;
  }
  EXPECT_GT(cases, 500u);
}

TEST(BeamSearch, FindsTheSequenceGreedyMisses) {
  const Json golden = read_json(std::string(VITRINE_GOLDEN) + "/generate/beam.json");
  const Json& trap = golden["tables"]["trap"];
  const auto total = [&](int n_beams) {
    Table table(trap, {0});
    return beam_search({.n_beams = n_beams, .max_new_tokens = 2, .length_penalty = 0}, std::ref(table)).at(0);
  };
  // Greedy: token 1 (0.45), then nothing better than 0.25. Two beams: token 2 (0.40), then 3 (0.97).
  EXPECT_EQ(total(1).tokens.at(0), 1);
  EXPECT_NEAR(total(1).score, std::log(0.45 * 0.25), 1e-5);
  EXPECT_EQ(total(2).tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_NEAR(total(2).score, std::log(0.40 * 0.97), 1e-5);
}

TEST(BeamSearch, RefusesWhatItCannotDo) {
  std::vector<float> row(4, std::log(0.25f));
  const auto same = [&](std::span<const BeamChoice>) { return std::span<const float>(row); };
  EXPECT_EQ(message_of<Error>([&] { beam_search({.n_beams = 0}, same); }), "n_beams is 0; expected at least 1");
  EXPECT_EQ(message_of<Error>([&] { beam_search({.n_beams = 2, .n_return = 3}, same); }), "n_return is 3; expected 1 to n_beams");
  EXPECT_EQ(message_of<Error>([&] { beam_search({.max_new_tokens = 0}, same); }), "max_new_tokens is 0; expected at least 1");
  EXPECT_EQ(message_of<Error>([&] { beam_search({.eos = {0, 1, 2, 3}}, same); }),
            "the vocabulary has 4 tokens; beam search with 4 end tokens needs at least 5");
  EXPECT_EQ(message_of<Error>([&] { beam_search({.n_beams = 2}, same); }),
            "beam scores have 4 entries; expected n_beams * vocab_size = 2 * 4");
  row[2] = NAN;
  EXPECT_EQ(message_of<Error>([&] { beam_search({.n_beams = 2}, same); }),
            "the scores of beam 0 hold NaN at token 2; the model's weights may be damaged, or the computation overflowed");
}

}  // namespace
}  // namespace vitrine
