#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "generate/repetitions.h"
#include "generate/select.h"
#include "io/safetensors.h"
#include "runtime/logits.h"
#include "runtime/model_tokenizer.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/generate/";

std::vector<float> floats(const Checkpoint& file, const std::string& name) {
  const StoredTensor* tensor = file.find(name);
  if (!tensor) throw std::runtime_error("golden file lacks " + name);
  std::vector<float> values(tensor->bytes / 4);
  std::memcpy(values.data(), tensor->data, tensor->bytes);
  return values;
}

void set_rule(SamplingOptions& options, const std::string& name, const Json& value) {
  if (name == "temperature") options.temperature = value.get<double>();
  if (name == "top_k") options.top_k = value.get<int64_t>();
  if (name == "top_p") options.top_p = value.get<double>();
  if (name == "min_p") options.min_p = value.get<double>();
  if (name == "typical") options.typical_p = value.get<double>();
  if (name == "repetition") options.repetition_penalty = value.get<double>();
  if (name == "frequency") options.frequency_penalty = value.get<double>();
  if (name == "presence") options.presence_penalty = value.get<double>();
  if (name == "bias") options.logit_bias = value.get<std::vector<std::pair<int32_t, double>>>();
  options.order.push_back(parse_sampling_order(name).at(0));
}

/// Compares candidates with a full row in which dropped tokens are -inf.
void expect_scores(const Candidates& got, const std::vector<float>& expected, const std::string& where) {
  size_t next = 0;
  for (size_t token = 0; token < expected.size(); ++token) {
    const bool kept = next < got.token.size() && got.token[next] == static_cast<int32_t>(token);
    ASSERT_EQ(kept, expected[token] > -INFINITY) << where << ": token " << token << " of score " << expected[token];
    if (!kept) continue;
    ASSERT_NEAR(got.logit[next], expected[token], 1e-6 * std::max(1.0f, std::abs(expected[token])))
        << where << ": token " << token;
    ++next;
  }
}

TEST(SamplerGolden, RulesMatchTransformers) {
  const Json spec = read_json(kFolder + "sampling.json");
  const Checkpoint file = open_safetensors(kFolder + "sampling.safetensors");
  const auto prompt = spec["prompt"].get<std::vector<int32_t>>(), generated = spec["generated"].get<std::vector<int32_t>>();
  size_t cases = 0;
  for (const Json& entry : spec["cases"]) {
    SamplingOptions options;
    options.order.clear();
    for (const Json& rule : entry["rules"]) set_rule(options, rule[0].get<std::string>(), rule[1]);
    if (!options.draws()) {  // penalties alone: a draw at temperature 1 goes through every rule and changes nothing more
      options.temperature = 1;
      options.order.push_back(SamplingRule::temperature);
    }
    Sampler sampler(options, spec["vocab_size"].get<int64_t>());
    const auto raw = floats(file, "raw/" + entry["row"].get<std::string>());
    expect_scores(sampler.process(raw, prompt, generated), floats(file, entry["key"].get<std::string>()), entry.dump());
    ++cases;
  }
  EXPECT_EQ(cases, 245u);
}

struct LlamaGolden {
  Json spec = read_json(kFolder + "llama_sampling.json");
  std::vector<float> row(const Json& entry) const { return spec["rows"][entry["row"].get<size_t>()].get<std::vector<float>>(); }
};

TEST(SamplerGolden, TopNSigmaAndXtcMatchLlamaCpp) {
  const LlamaGolden golden;
  const auto left = [&](const Json& entry, SamplingOptions options) {
    const auto row = golden.row(entry);
    return Sampler(std::move(options), std::ssize(row)).process(row, {}, {}).token;
  };
  for (const Json& entry : golden.spec["top_n_sigma"])
    EXPECT_EQ(left(entry, {.top_n_sigma = entry["n"].get<double>()}), entry["left"].get<std::vector<int32_t>>()) << entry["n"];
  for (const Json& entry : golden.spec["xtc"])
    EXPECT_EQ(
        left(entry, {.xtc_probability = entry["probability"].get<double>(), .xtc_threshold = entry["threshold"].get<double>()}),
        entry["left"].get<std::vector<int32_t>>())
        << entry["threshold"] << " of row " << entry["row"];
}

TEST(SamplerGolden, MirostatMatchesLlamaCpp) {
  const LlamaGolden golden;
  size_t steps = 0;
  for (const Json& entry : golden.spec["mirostat"]) {
    Sampler sampler({.mirostat = entry["version"].get<int64_t>(),
                     .mirostat_tau = entry["tau"].get<double>(),
                     .mirostat_eta = entry["eta"].get<double>()},
                    std::ssize(golden.row(entry["steps"][0])));
    for (const Json& step : entry["steps"]) {
      const Candidates& left = sampler.process(golden.row(step), {}, {});
      ASSERT_EQ(left.token, step["left"].get<std::vector<int32_t>>()) << entry["version"] << " step " << steps;
      sampler.accept(step["taken"].get<int32_t>());
      ++steps;
    }
  }
  EXPECT_EQ(steps, 180u);
}

TEST(SamplerGolden, DryMatchesLlamaCpp) {
  const LlamaGolden golden;
  size_t penalized = 0;
  for (const Json& entry : golden.spec["dry"]) {
    SequenceBreakers breakers;
    for (const Json& breaker : entry["breakers"])
      breakers[breaker[0].get<int32_t>()].emplace_back(breaker.begin() + 1, breaker.end());
    const SamplingOptions options{.dry_multiplier = entry["multiplier"].get<double>(),
                                  .dry_base = entry["base"].get<double>(),
                                  .dry_allowed_length = entry["allowed"].get<int64_t>(),
                                  .dry_penalty_last_n = entry["last_n"].get<int64_t>()};
    const auto text = entry["text"].get<std::vector<int32_t>>();
    const std::span<const int32_t> all = text, prompt = all.first(text.size() / 3), generated = all.subspan(text.size() / 3);
    const auto penalties = repetition_penalties(prompt, generated, options, breakers);
    const auto expected = entry["penalties"].get<std::vector<std::pair<int32_t, float>>>();
    ASSERT_EQ(penalties.size(), expected.size()) << entry;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(penalties[i].first, expected[i].first) << entry;
      EXPECT_NEAR(penalties[i].second / expected[i].second, 1, 1e-5) << entry;
    }
    penalized += penalties.size();
  }
  EXPECT_EQ(penalized, 295u);
}

// Tokens that contain a breaker break alone; one that ends with its beginning needs the rest after it.
TEST(Repetitions, BreakersAreFoundInTokensAndAcrossThem) {
  const auto tokenizer = open_tokenizer(std::string(VITRINE_SOURCE) + "/models/tales9m");
  const SequenceBreakers newline = sequence_breakers(*tokenizer, {"\n", ""});
  ASSERT_FALSE(newline.empty());
  for (const auto& [token, rests] : newline) {
    EXPECT_NE(tokenizer->token_bytes(token).find('\n'), std::string::npos) << token;
    EXPECT_EQ(rests, std::vector<std::vector<int32_t>>{{}});
  }
  const SequenceBreakers across = sequence_breakers(*tokenizer, {"house in"});
  for (const auto& [token, rests] : across) {
    const std::string word = tokenizer->token_bytes(token);
    for (const std::vector<int32_t>& rest : rests) {
      const std::string text = word + tokenizer->decode(rest);
      EXPECT_NE(text.find("house in"), std::string::npos) << word;
    }
  }
  EXPECT_GT(across.size(), 1u);
}

TEST(Sampler, XtcActsAsOftenAsAsked) {
  std::vector<float> row(50);
  row[3] = 5, row[7] = 4.5;
  Sampler sampler({.xtc_probability = 0.3, .seed = 4}, 50);
  std::vector<int32_t> generated;
  int removed = 0;
  for (int i = 0; i < 2000; ++i) {
    removed += sampler.process(row, {}, generated).token.size() < 50;
    generated.push_back(1);
  }
  EXPECT_NEAR(removed, 600, 60);
}

TEST(SamplerGolden, EveryModelsProcessedLogitsAndProbabilities) {
  size_t cases = 0;
  for (const auto& folder : std::filesystem::directory_iterator(std::string(VITRINE_GOLDEN) + "/models")) {
    const std::string path = folder.path().string() + "/golden/sampling.safetensors";
    if (!std::filesystem::exists(path)) continue;
    const Checkpoint file = open_safetensors(path);
    const StoredTensor* ids = file.find("input_ids");
    ASSERT_TRUE(ids) << path;
    std::vector<int64_t> wide(ids->bytes / 8);
    std::memcpy(wide.data(), ids->data, ids->bytes);
    const std::vector<int32_t> prompt(wide.begin(), wide.end());
    const auto raw = floats(file, "raw");
    for (const auto& [name, tensor] : file.tensors()) {
      const std::string suffix = "/logits";
      if (!name.ends_with(suffix)) continue;
      const std::string key = name.substr(0, name.size() - suffix.size());  // "repetition_1.3+temperature_0.7+..."
      SamplingOptions options;
      options.order.clear();
      for (size_t begin = 0; begin < key.size();) {
        const size_t end = std::min(key.find('+', begin), key.size());
        const std::string rule = key.substr(begin, end - begin);
        const size_t split = rule.rfind('_');
        set_rule(options, rule.substr(0, split), Json::parse(rule.substr(split + 1)));
        begin = end + 1;
      }
      if (!options.draws()) {
        options.temperature = 1;
        options.order.push_back(SamplingRule::temperature);
      }
      Sampler sampler(options, static_cast<int64_t>(raw.size()));
      const Candidates& got = sampler.process(raw, prompt, {});
      expect_scores(got, floats(file, name), path + " " + key);
      const auto probabilities = floats(file, key + "/probs");
      const double total = log_sum_exp(got.logit);
      for (size_t i = 0; i < got.token.size(); ++i)
        EXPECT_NEAR(std::exp(got.logit[i] - total), probabilities[static_cast<size_t>(got.token[i])], 1e-6) << path << key;
      ++cases;
    }
  }
  EXPECT_GE(cases, 8u * 7u);
}

TEST(Sampler, GreedyTakesTheLowestOfEqualsAndKeepsPenalties) {
  SamplingOptions options;
  EXPECT_FALSE(options.draws());
  EXPECT_EQ(Sampler(options, 4).pick(std::vector<float>{1, 3, 3, 2}, {}, {}).token, 1);
  options.presence_penalty = 1.5;
  EXPECT_EQ(Sampler(options, 4).pick(std::vector<float>{1, 3, 3, 2}, std::vector<int32_t>{2}, std::vector<int32_t>{1}).token, 2);
  options.temperature = 0;
  options.top_k = 3;
  EXPECT_FALSE(options.draws());
  options.temperature = 0.5;
  EXPECT_TRUE(options.draws());
}

TEST(Sampler, LogprobsAreOfTheUnmodifiedLogits) {
  SamplingOptions options;
  options.temperature = 0.5;
  options.logit_bias = {{0, -INFINITY}};
  const std::vector<float> logits = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const Pick pick = Sampler(options, 3).pick(logits, {}, {});
  EXPECT_NE(pick.token, 0);
  EXPECT_NEAR(pick.logprob, std::log(0.25), 1e-6);
  EXPECT_NEAR(pick.logprob_after, std::log(0.5), 1e-6);
}

TEST(Sampler, DrawsFollowTheDistributionAndDependOnSeedPlaceAndStreamOnly) {
  SamplingOptions options;
  options.temperature = 1;
  options.seed = 42;
  const std::vector<float> probabilities = {0.5f, 0.125f, 0.0f, 0.3f, 0.075f};
  std::vector<float> logits;
  for (const float p : probabilities) logits.push_back(std::log(std::max(p, 1e-30f)));
  Sampler sampler(options, 5);
  std::vector<int32_t> generated, again;
  std::map<int32_t, int> counts;
  const int draws = 20000;
  for (int i = 0; i < draws; ++i) {
    generated.push_back(sampler.pick(logits, {}, generated).token);
    ++counts[generated.back()];
  }
  for (int32_t token = 0; token < 5; ++token) {
    const double p = probabilities[static_cast<size_t>(token)], spread = std::sqrt(draws * p * (1 - p));
    EXPECT_NEAR(counts[token], draws * p, 4 * spread + 1e-9) << token;  // four standard deviations
  }
  // A fresh sampler that did not make the earlier draws continues alike, whatever ran before on it.
  Sampler other(options, 5);
  for (size_t i = 100; i-- > 0;) EXPECT_EQ(other.pick(logits, {}, std::span(generated).first(i)).token, generated[i]);
  int differing = 0;
  for (size_t i = 0; i < 100; ++i) differing += other.pick(logits, {}, std::span(generated).first(i), 1).token != generated[i];
  EXPECT_GT(differing, 20);
}

TEST(Sampler, DamagedLogitsAreNamed) {
  Sampler sampler({}, 3);
  const auto pick = [&](std::vector<float> logits) { return message_of<Error>([&] { sampler.pick(logits, {}, {}); }); };
  EXPECT_THROW(sampler.pick(std::vector<float>{0, NAN, 1}, {}, {}), RunError);
  EXPECT_EQ(pick({0, NAN, 1}),
            "the logits hold NaN at token 1 of 3; the model's weights may be damaged, or the computation overflowed");
  EXPECT_NE(pick({0, 1, INFINITY}).find("an infinity at token 2"), std::string::npos);
  EXPECT_NE(pick({-INFINITY, 1, 2}).find("an infinity at token 0"), std::string::npos);
  EXPECT_EQ(pick({0, 1}), "a row of logits has 2 entries; expected vocab_size 3");
}

TEST(Sampler, ScoresThatOverflowAreNamed) {
  SamplingOptions options;
  options.logit_bias = {{0, -INFINITY}, {1, -INFINITY}};
  EXPECT_EQ(message_of<Error>([&] { Sampler(options, 2).pick(std::vector<float>{0, 1}, {}, {}); }),
            "bias forbids every token of the vocabulary; leave at least one above -inf");
  options = {};
  options.temperature = 1e-39;
  EXPECT_EQ(message_of<Error>([&] { Sampler(options, 2).pick(std::vector<float>{0, 1}, {}, {}); }),
            "temperature makes a score infinite; use a less extreme value");
}

TEST(SamplingOptions, ImpossibleValuesAreRefused) {
  const auto refusal = [](auto set) {
    SamplingOptions options;
    set(options);
    return message_of<Error>([&] { check_sampling_options(options, 10); });
  };
  EXPECT_EQ(refusal([](auto& o) { o.temperature = -0.5; }), "temperature is -0.5; expected a number above 0, or 0 for greedy");
  EXPECT_EQ(refusal([](auto& o) { o.temperature = NAN; }), "temperature is nan; expected a number above 0, or 0 for greedy");
  EXPECT_EQ(refusal([](auto& o) { o.top_k = -2; }), "top_k is -2; expected a number of tokens; 0 and -1 are off");
  EXPECT_EQ(refusal([](auto& o) { o.top_p = 1.5; }), "top_p is 1.5; expected a probability from 0 to 1");
  EXPECT_EQ(refusal([](auto& o) { o.min_p = -0.1; }), "min_p is -0.1; expected a probability from 0 to 1");
  EXPECT_EQ(refusal([](auto& o) { o.typical_p = 0; }), "typical_p is 0; expected a probability above 0 and up to 1");
  EXPECT_EQ(refusal([](auto& o) { o.repetition_penalty = 0; }),
            "repetition_penalty is 0; expected a number above 0 (1 changes nothing)");
  EXPECT_EQ(refusal([](auto& o) { o.logit_bias = {{10, 1.0}}; }),
            "logit_bias names the token 10; the vocabulary has the ids 0 to 9");
  EXPECT_EQ(refusal([](auto& o) { o.logit_bias = {{1, INFINITY}}; }),
            "logit_bias is inf; expected a finite number, or -inf to forbid the token");
  EXPECT_EQ(refusal([](auto& o) {
              o.top_k = 5;
              o.order = parse_sampling_order("temperature,top_p");
            }),
            "top_k is set and the order \"temperature,top_p\" leaves it out; add it to the order or do not set it");
}

// As a request may have them: no cast of a number that no int64 holds.
TEST(SamplingOptions, NumbersBeyondAnIntegerAreNamed) {
  for (const double value : {1e300, -1e300, double{INFINITY}, double{NAN}}) {
    SamplingOptions options;
    find_sampling_option("top_k")->set(options, value);
    EXPECT_CONTAINS(message_of<Error>([&] { check_sampling_options(options, 10); }), "top_k is ") << value;
  }
}

TEST(SamplingOptions, OrderAndRecipe) {
  EXPECT_EQ(sampling_order_text(SamplingOptions().order),
            "bias,repetition,frequency,presence,dry,temperature,top_k,top_p,min_p,typical,top_n_sigma,xtc,mirostat");
  EXPECT_EQ(
      message_of<Error>([] { parse_sampling_order("top_k,topp"); }),
      "the sampler \"topp\" is unknown; known samplers: bias, repetition, frequency, presence, dry, temperature, top_k, top_p, "
      "min_p, typical, top_n_sigma, xtc, mirostat");
  EXPECT_EQ(parse_sampling_order(" top_k, dry "), (std::vector{SamplingRule::top_k, SamplingRule::dry}));
  EXPECT_EQ(message_of<Error>([] { parse_sampling_order("top_k,top_k"); }),
            "the sampler \"top_k\" is named twice; name each at most once");
  SamplingOptions options;
  EXPECT_EQ(sampling_recipe(options).dump(), R"({"choice":"greedy","rules":[]})");
  options.temperature = 0.5;
  options.top_k = 3;
  options.seed = 7;
  options.logit_bias = {{4, -INFINITY}};
  EXPECT_EQ(sampling_recipe(options).dump(),
            R"({"choice":"drawn","rules":[{"bias":{"4":"-inf"}},{"temperature":0.5},{"top_k":3}],"seed":7})");
  EXPECT_EQ(sampling_recipe({.mirostat = 2}).dump(),
            R"({"choice":"drawn","rules":[{"mirostat":{"mirostat":2,"mirostat_eta":0.1,"mirostat_tau":5.0}}],"seed":0})");
}

TEST(Select, FirstCrossingEqualsASort) {
  uint32_t state = 12345;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  for (int round = 0; round < 200; ++round) {
    const size_t n = 1 + next() % 300;
    const bool coarse = round % 2;
    std::vector<float> keys(n);
    std::vector<double> mass(n);
    for (size_t i = 0; i < n; ++i) {
      keys[i] = coarse ? static_cast<float>(static_cast<int>(next() >> 24) % 5 - 2)
                       : static_cast<float>(static_cast<int32_t>(next())) * 1e-6f;
      mass[i] = static_cast<double>(next() % 64);  // whole numbers: sums are exact in any order
    }
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; });
    double total = 0;
    for (const double m : mass) total += m;
    const double limit = static_cast<double>(next() % 1000) / 999 * (total + 1);
    double sum = 0;
    size_t expected = n;
    for (const size_t i : order)
      if ((sum += mass[i]) > limit) {
        expected = i;
        break;
      }
    std::vector<uint32_t> members;
    const Crossing got = first_crossing(keys, [&](size_t i) { return mass[i]; }, [&](double s) { return s > limit; }, members);
    ASSERT_EQ(got.found, expected < n) << round;
    if (got.found) {
      ASSERT_EQ(got.index, expected) << round;
    }
  }
}

TEST(Select, KthLargestEqualsASort) {
  uint32_t state = 54321;
  const auto next = [&] { return state = state * 1664525u + 1013904223u; };
  std::vector<float> work;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row(1 + next() % 3000);
    for (float& x : row) {
      x = round % 2 ? static_cast<float>(static_cast<int>(next() >> 24) % 5 - 2)
                    : static_cast<float>(static_cast<int32_t>(next())) * 1e-6f;
      if (next() % 10 == 0) x = -INFINITY;
    }
    std::vector<float> sorted = row;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (const size_t k : {size_t{1}, 1 + next() % row.size(), 1 + next() % std::min<size_t>(row.size(), 40), row.size()})
      ASSERT_EQ(kth_largest(row, k, work), sorted[k - 1]) << "round " << round << ", k " << k << " of " << row.size();
  }
}

}  // namespace
}  // namespace vitrine
