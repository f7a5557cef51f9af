// The pictures of the chapter "gpt2" against plain computations of the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <regex>
#include <set>

#include "base/mapped_file.h"
#include "picture/data/facts.h"
#include "support.h"

namespace vitrine {
namespace {

const std::string kTales = std::string(VITRINE_SOURCE) + "/models/book/gpt2-tales";
const std::vector<int32_t> kIds = {5, 3, 7, 9, 2, 11};

// The distribution after the last of the ids, by rising token.
std::vector<double> distribution(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<double> p(static_cast<size_t>(engine.shape().vocab_size));
  const std::vector<Prediction> predicted = engine.predict(ids, engine.shape().vocab_size, false);
  for (const TokenLogprob& t : predicted.front().top) p[static_cast<size_t>(t.token)] = t.prob();
  return p;
}

// Byte-pair encoding by the book: in each word the pair of the lowest rank is joined, leftmost first.
size_t naive_tokens(const std::string& text, const std::map<std::pair<std::string, std::string>, int>& ranks, int known) {
  const std::regex word(" ?[A-Za-z]+| ?[0-9]+| ?[^\\sA-Za-z0-9]+|\\s+(?!\\S)|\\s+");
  size_t tokens = 0;
  for (auto at = std::sregex_iterator(text.begin(), text.end(), word); at != std::sregex_iterator(); ++at) {
    std::vector<std::string> parts;
    for (const char c : at->str()) parts.push_back(c == ' ' ? "\xC4\xA0" : c == '\n' ? "\xC4\x8A" : std::string(1, c));
    for (;;) {
      int best = known;
      size_t where = 0;
      for (size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = ranks.find({parts[i], parts[i + 1]});
        if (found != ranks.end() && found->second < best) best = found->second, where = i;
      }
      if (best == known) break;
      parts[where] += parts[where + 1];
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(where) + 1);
    }
    tokens += parts.size();
  }
  return tokens;
}

TEST(Gpt2Pictures, VocabularyGrowthIsThatOfAShorterListOfMerges) {
  Engine engine(kTales, kF32);
  const PictureJson p = picture_of(engine, text_prompt(engine, "The king"), "vocabulary-growth");
  ASSERT_TRUE(p.at("available"));
  std::map<std::pair<std::string, std::string>, int> ranks;
  const Json merges = read_json(kTales + "/tokenizer.json").at("model").at("merges");
  for (const Json& merge : merges) {
    std::pair<std::string, std::string> pair;
    if (merge.is_array()) {
      pair = {merge[0], merge[1]};
    } else {
      const std::string text = merge;
      pair = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
    }
    ranks.emplace(pair, static_cast<int>(ranks.size()));
  }
  const std::string passage = p.at("passage");
  EXPECT_GT(passage.size(), 1000u);
  EXPECT_EQ(p.at("start"), passage.size());  // ASCII: a part for each byte
  EXPECT_EQ(p.at("end"), naive_tokens(passage, ranks, static_cast<int>(ranks.size())));
  for (const PictureJson& step : p.at("steps"))
    EXPECT_EQ(step.at("tokens"), naive_tokens(passage, ranks, step.at("known").get<int>())) << step;
  EXPECT_EQ(p.at("steps")[0].at("piece"), "\xC4\xA0t");  // " t" is the first pair of English tales
}

TEST(Gpt2Pictures, LossAndItsGradientAtTheLogits) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  const PictureJson p = picture_of(engine, ids_prompt(kIds), "token-loss");
  const std::vector<float> logprobs = engine.token_logprobs(kIds);
  double sum = 0;
  for (size_t i = 0; i < logprobs.size(); ++i) {
    EXPECT_NEAR(p.at("tokens")[i].at("loss").get<double>(), -static_cast<double>(logprobs[i]), 1e-5);
    sum -= static_cast<double>(logprobs[i]);
  }
  EXPECT_NEAR(p.at("loss").get<double>(), sum / static_cast<double>(logprobs.size()), 1e-5);

  const Recorder::Value logits = hook_value(engine, kIds, "hook_logits");
  const auto width = static_cast<size_t>(logits.shape.back()), at = p.at("position").get<size_t>();
  std::vector<double> z;
  for (size_t i = 0; i < width; ++i) z.push_back(static_cast<double>(logits.values[at * width + i]));
  const auto target = static_cast<size_t>(kIds[at + 1]);
  const auto loss = [&] {
    double all = 0;
    for (const double x : z) all += std::exp(x);
    return std::log(all) - z[target];
  };
  for (const PictureJson& one : p.at("gradient")) {
    double& x = z[one.at("id").get<size_t>()];
    const double before = x, h = 1e-4;
    x = before + h;
    const double above = loss();
    x = before - h;
    const double below = loss();
    x = before;
    EXPECT_NEAR(one.at("gradient").get<double>(), (above - below) / (2 * h), 1e-5) << one;
  }
}

TEST(Gpt2Pictures, RulesOfSamplingByTheirDefinitions) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  const PictureJson p = picture_of(engine, ids_prompt(kIds), "sampling-rules");
  const std::vector<double> own = distribution(engine, kIds);
  std::vector<size_t> order(own.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto sorted_by = [&](auto key) {
    std::vector<size_t> by = order;
    std::sort(by.begin(), by.end(), [&](size_t a, size_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
    return by;
  };
  const std::vector<size_t> likely = sorted_by([&](size_t i) { return -own[i]; });
  // The first of `by` until their mass reaches `mass`.
  const auto until = [&](const std::vector<size_t>& by, double mass) {
    std::set<size_t> kept;
    double sum = 0;
    for (const size_t i : by) {
      kept.insert(i);
      if ((sum += own[i]) >= mass) break;
    }
    return kept;
  };
  double entropy = 0;
  for (const double x : own) entropy -= x * std::log(x);
  EXPECT_NEAR(p.at("entropy").get<double>(), entropy, 1e-4);
  std::set<size_t> all(order.begin(), order.end()), frequent;
  for (const size_t i : order)
    if (own[i] >= 0.1 * own[likely[0]]) frequent.insert(i);
  const auto expect = [&](size_t rule, const std::set<size_t>& kept, double temperature) {
    double sum = 0;
    for (const size_t i : kept) sum += std::pow(own[i], 1 / temperature);
    EXPECT_EQ(p.at("rules")[rule].at("tokens"), kept.size()) << p.at("rules")[rule];
    for (size_t row = 0; row < p.at("ids").size(); ++row) {
      const auto id = p.at("ids")[row].get<size_t>();
      const double expected = kept.contains(id) ? std::pow(own[id], 1 / temperature) / sum : 0;
      EXPECT_NEAR(p.at("kept")[row][rule].get<double>(), expected, 1e-5) << p.at("rules")[rule] << " " << id;
    }
  };
  expect(0, all, 1);
  expect(1, {likely[0]}, 1);
  expect(2, all, 0.5);
  expect(3, all, 1.5);
  expect(4, {likely.begin(), likely.begin() + 5}, 1);
  expect(5, until(likely, 0.9), 1);
  expect(6, frequent, 1);
  expect(7, until(sorted_by([&](size_t i) { return std::abs(-std::log(own[i]) - entropy); }), 0.9), 1);
}

TEST(Gpt2Pictures, BeamsAreTheBestContinuationsOfTheBeamsBefore) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  const PictureJson p = picture_of(engine, ids_prompt(kIds), "beam-search");
  ASSERT_TRUE(p.at("available")) << p;
  const PictureJson& nodes = p.at("nodes");
  std::map<size_t, std::vector<int32_t>> texts;  // the tokens of each node
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].at("parent").is_null()) texts[i] = texts.at(nodes[i].at("parent"));
    texts[i].push_back(nodes[i].at("id"));
    std::vector<int32_t> ids = kIds;
    ids.insert(ids.end(), texts[i].begin(), texts[i].end());
    const std::vector<float> logprobs = engine.token_logprobs(ids);
    const double total = std::accumulate(logprobs.end() - std::ssize(texts[i]), logprobs.end(), 0.0);
    EXPECT_NEAR(nodes[i].at("total").get<double>(), total, 1e-4) << nodes[i];
  }
  const std::vector<int32_t> ends = engine.end_tokens();
  std::vector<std::vector<int32_t>> running = {{}};
  for (int64_t step = 1; step <= p.at("length").get<int64_t>(); ++step) {
    std::vector<std::pair<double, std::vector<int32_t>>> all;
    for (const std::vector<int32_t>& beam : running) {
      std::vector<int32_t> ids = kIds;
      ids.insert(ids.end(), beam.begin(), beam.end());
      double before = 0;
      if (!beam.empty()) {
        const std::vector<float> logprobs = engine.token_logprobs(ids);
        before = std::accumulate(logprobs.end() - std::ssize(beam), logprobs.end(), 0.0);
      }
      const std::vector<double> next = distribution(engine, ids);
      for (size_t token = 0; token < next.size(); ++token) {
        if (std::find(ends.begin(), ends.end(), static_cast<int32_t>(token)) != ends.end()) continue;
        all.emplace_back(before + std::log(next[token]), beam);
        all.back().second.push_back(static_cast<int32_t>(token));
      }
    }
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    std::set<std::vector<int32_t>> expected, found;
    running.clear();
    for (size_t i = 0; i < p.at("beams").get<size_t>(); ++i) expected.insert(all[i].second), running.push_back(all[i].second);
    for (const auto& [node, tokens] : texts)
      if (std::ssize(tokens) == step && nodes[node].at("kept").get<bool>()) found.insert(tokens);
    EXPECT_EQ(found, expected) << step;
  }
  std::vector<int32_t> ids = kIds;
  for (const PictureJson& id : p.at("greedy").at("ids")) {
    EXPECT_EQ(id, engine.predict(ids, 1, false).front().top[0].token);
    ids.push_back(id);
  }
}

// Softmax over fewer scores is the rest of the softmax over all, brought to a sum of 1.
TEST(Gpt2Pictures, TheMaskTakesTheLaterTokensAway) {
  for (const char* model : {"gpt2_a", "gemma2", "llama"}) {
    Engine engine(Golden::open(model).model(), kF32);
    const PictureJson p = picture_of(engine, ids_prompt(kIds), "causal-mask");
    ASSERT_TRUE(p.at("available")) << model << p;
    const std::vector<double> masked = unpacked(p.at("masked")), open = unpacked(p.at("open"));
    const size_t n = kIds.size();
    double later = 0;
    for (size_t i = 0; i < n; ++i) {
      const auto row = open.begin() + static_cast<std::ptrdiff_t>(i * n);
      EXPECT_NEAR(std::accumulate(row, row + static_cast<std::ptrdiff_t>(n), 0.0), 1, 1e-5);
      const double seen = std::accumulate(row, row + static_cast<std::ptrdiff_t>(i) + 1, 0.0);
      later += (1 - seen) / static_cast<double>(n);
      for (size_t j = 0; j < n; ++j)
        EXPECT_NEAR(masked[i * n + j], j <= i ? open[i * n + j] / seen : 0, 2e-4) << model << " " << i << " " << j;
    }
    EXPECT_NEAR(p.at("later").get<double>(), later, 1e-5);
  }
}

TEST(Gpt2Pictures, NormStepsEndAtWhatTheNextPartReads) {
  for (const char* model : {"gpt2_a", "llama", "gemma2"}) {
    Engine engine(Golden::open(model).model(), kF32);
    const PictureJson p = picture_of(engine, ids_prompt(kIds), "norm-steps");
    ASSERT_TRUE(p.at("available")) << model;
    EXPECT_LT(p.at("difference").get<double>(), 1e-4) << model;
    const Recorder::Value x = hook_value(engine, kIds, "blocks.0.hook_resid_pre");
    const auto width = static_cast<size_t>(x.shape.back());
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += static_cast<double>(x.values[x.values.size() - width + i]);
    if (!p.at("mean").is_null()) {
      EXPECT_NEAR(p.at("mean").get<double>(), sum / static_cast<double>(width), 1e-5);
    }
    for (const PictureJson& one : p.at("components")) {
      const double gain = one.at("gain").is_null() ? 1 : one.at("gain").get<double>();
      const double bias = one.at("bias").is_null() ? 0 : one.at("bias").get<double>();
      EXPECT_NEAR(one.at("y").get<double>(), one.at("normed").get<double>() * gain + bias, 1e-4);
    }
  }
}

TEST(Gpt2Pictures, NameTheLayerAndHeadThatWereChosen) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  EXPECT_CONTAINS(picture_of(engine, ids_prompt(kIds), "norm-steps", {.layer = 1}).at("caption").get<std::string>(),
                  "attention of layer 1");
  for (const char* name : {"norm-steps", "head-parameters", "causal-mask"})
    EXPECT_CONTAINS(message_of<InputError>([&] { picture_of(engine, ids_prompt(kIds), name, {.layer = 99}); }),
                    "layer 99 does not exist");
  for (const char* name : {"head-parameters", "causal-mask"})
    EXPECT_CONTAINS(message_of<InputError>([&] { picture_of(engine, ids_prompt(kIds), name, {.head = 99}); }),
                    "head 99 does not exist");
}

TEST(Gpt2Pictures, AHeadHasItsRowsOfTheMatrices) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  const ModelShape& shape = engine.shape();
  const PictureJson p = picture_of(engine, ids_prompt(kIds), "head-parameters", {.layer = 1, .head = 1});
  EXPECT_EQ(p.at("weights"), 4 * shape.d_model * shape.head_dim);
  const PictureJson& w_q = p.at("parts")[0];
  EXPECT_EQ(w_q.at("rows"), shape.head_dim);
  const NamedParameters parameters = parameters_of(engine.model());
  double squares = 0;
  for (int64_t j = 0; j < shape.head_dim; ++j)
    for (int64_t i = 0; i < shape.d_model; ++i) {
      const double w = parameters.matrix("blocks.1.attn.W_Q")->at<double>(shape.head_dim + j, i);
      squares += w * w;
    }
  EXPECT_NEAR(w_q.at("weights").at("rms").get<double>(), std::sqrt(squares / static_cast<double>(shape.d_model * shape.head_dim)),
              1e-6);
  EXPECT_EQ(p.at("parts")[3].at("biases").at("count"), shape.d_model);
}

TEST(Gpt2Pictures, WordsInAnotherOrder) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  const PictureJson p = picture_of(engine, ids_prompt(kIds), "word-order");
  const std::vector<int32_t> reversed = {2, 9, 7, 3, 5, 11};
  EXPECT_EQ(p.at("reversed"), PictureJson(reversed));
  const std::vector<double> a = distribution(engine, kIds), b = distribution(engine, reversed);
  double distance = 0;
  for (size_t i = 0; i < a.size(); ++i) distance += std::abs(a[i] - b[i]) / 2;
  EXPECT_NEAR(p.at("cases")[1].at("distance").get<double>(), distance, 1e-5);
  ASSERT_EQ(p.at("cases").size(), 4u);
  EXPECT_NE(p.at("lossWithout"), p.at("loss"));

  // Rotary positions are in the queries and keys: there is nothing to switch off.
  Engine llama(Golden::open("llama").model(), kF32);
  EXPECT_EQ(picture_of(llama, ids_prompt(kIds), "word-order").at("cases").size(), 2u);
}

// The log that ships belongs to the weights that ship.
TEST(Gpt2Pictures, TheFilmEndsWithTheShippedModel) {
  Engine engine(kTales, kF32);
  const PictureJson p = picture_of(engine, text_prompt(engine, "The king"), "training-film");
  ASSERT_TRUE(p.at("available"));
  const PictureJson &first = p.at("checkpoints").front(), &last = p.at("checkpoints").back();
  EXPECT_EQ(first.at("step"), 0);
  EXPECT_NEAR(first.at("valLoss").get<double>(), std::log(2048), 0.1);
  for (const char* bias : {"ln1.b", "b_Q", "b_K", "b_V", "b_O", "b_in", "b_out", "ln_final.b"})
    EXPECT_EQ(first.at("parts").at(bias), PictureJson({0.0, 0.0})) << bias;
  EXPECT_EQ(first.at("parts").at("ln1.w"), PictureJson({1.0, 1.0}));
  EXPECT_NEAR(first.at("parts").at("W_Q")[0].get<double>(), 0.02, 2e-4);

  const PictureJson& watched = p.at("watched");
  const std::vector<int32_t> ids = watched.at("ids");
  const std::string hook = "blocks." + std::to_string(watched.at("layer").get<int>()) + ".attn.hook_pattern";
  const Recorder::Value pattern = hook_value(engine, ids, hook);
  const size_t n = ids.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      const float weight = pattern.values[(watched.at("head").get<size_t>() * n + i) * n + j];
      EXPECT_NEAR(last.at("attention")[i][j].get<double>(), static_cast<double>(weight), 5e-3) << i << " " << j;
    }
}

// The classic sum, on embeddings that a GPT-2 of ours learned.
TEST(Gpt2Pictures, KingWithoutManAndWithWomanIsNearQueen) {
  Engine engine(kTales, kF32);
  const PictureJson p = picture_of(engine, text_prompt(engine, "The king"), "embedding-neighbors");
  for (const PictureJson& neighbor : p.at("neighbors"))
    if (!neighbor.at("term").get<bool>()) {
      EXPECT_EQ(engine.piece(neighbor.at("id")), "\xC4\xA0queen");
      break;
    }
}

TEST(Gpt2Pictures, ReasonsWhereAPictureCannotBe) {
  Engine engine(Golden::open("gpt2_a").model(), kF32);
  for (const char* name : {"token-loss", "causal-mask", "word-order"}) {
    const PictureJson p = picture_of(engine, ids_prompt({3}), name);
    EXPECT_FALSE(p.at("available").get<bool>()) << name;
    EXPECT_TRUE(p.at("reason").get<std::string>().ends_with(".")) << name;
  }
  Engine bare(Golden::open("mistral").model(), kF32);
  ASSERT_FALSE(bare.has_tokenizer());
  EXPECT_FALSE(picture_of(bare, ids_prompt({3, 4}), "vocabulary-growth").at("available").get<bool>());
}

}  // namespace
}  // namespace vitrine
