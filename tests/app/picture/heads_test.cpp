// The chapter on heads: every number once more, by plain loops over the stored weights and the hooks of a run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "hooks/trace.h"
#include "inspect/head_scores.h"
#include "inspect/support.h"
#include "picture/data/facts.h"
#include "support.h"
#include "support/random_model.h"

namespace vitrine {
namespace {

using Rows = std::vector<std::vector<double>>;

const std::vector<int32_t> kSixIds = {5, 3, 7, 9, 11, 2};

Rows hook_rows(const Recorder& seen, const std::string& hook) {
  const Recorder::Value& value = seen.values().at(hook);
  const auto n = static_cast<size_t>(value.shape[0]), width = value.values.size() / n;
  Rows rows(n);
  for (size_t i = 0; i < value.values.size(); ++i) rows[i / width].push_back(static_cast<double>(value.values[i]));
  return rows;
}
Rows rows_of_packed(const PictureJson& packed) {
  const std::vector<double> values = unpacked(packed);
  const size_t columns = packed.at("shape")[1];
  Rows rows;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i % columns == 0) rows.emplace_back();
    rows.back().push_back(values[i]);
  }
  return rows;
}
Rows times(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size(), 0));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t k = 0; k < b.size(); ++k)
      for (size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
  return c;
}
Rows plus(const Rows& a, const Rows& b, double sign = 1) {
  Rows c = a;
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[i].size(); ++j) c[i][j] += sign * b[i][j];
  return c;
}
double frobenius_of(const Rows& a) {
  double squares = 0;
  for (const auto& row : a)
    for (const double v : row) squares += v * v;
  return std::sqrt(squares);
}
double largest_entry(const Rows& a) {
  double found = 0;
  for (const auto& row : a)
    for (const double v : row) found = std::max(found, std::abs(v));
  return found;
}
Rows in_order(const Rows& x, const std::vector<size_t>& order) {
  Rows moved;
  for (const size_t i : order) moved.push_back(x[i]);
  return moved;
}

// One head of a model without rotation, norms on queries and caps, read number by number from the weights.
struct PlainHead {
  Rows W_Q, W_K, S;  // x W_Q [D, H], x W_K [D, H]; [D, D]
  std::vector<double> b_Q, b_K, constant;
  double scale;

  PlainHead(Engine& engine, int64_t layer, int64_t head) {
    const NamedParameters all = parameters_of(engine.model());
    const std::string attn = "blocks." + std::to_string(layer) + ".attn.";
    const Weight &Q = *all.matrix(attn + "W_Q"), &K = *all.matrix(attn + "W_K"), &V = *all.matrix(attn + "W_V"),
                 &O = *all.matrix(attn + "W_O");
    const ModelShape& s = engine.shape();
    const int64_t H = s.head_dim, kv = head / (s.n_heads / s.n_kv_heads);
    scale = 1 / std::sqrt(static_cast<double>(H));
    W_Q.assign(static_cast<size_t>(s.d_model), {});
    W_K = W_Q;
    S.assign(static_cast<size_t>(s.d_model), std::vector<double>(static_cast<size_t>(s.d_model), 0));
    for (int64_t i = 0; i < s.d_model; ++i) {
      for (int64_t h = 0; h < H; ++h) {
        W_Q[static_cast<size_t>(i)].push_back(Q.at<double>(head * H + h, i));
        W_K[static_cast<size_t>(i)].push_back(K.at<double>(kv * H + h, i));
      }
      for (int64_t j = 0; j < s.d_model; ++j)
        for (int64_t h = 0; h < H; ++h)
          S[static_cast<size_t>(i)][static_cast<size_t>(j)] += V.at<double>(kv * H + h, i) * O.at<double>(j, head * H + h);
    }
    const auto bias = [](const Vector& b, int64_t i) { return b ? b.at<double>(i) : 0; };
    for (int64_t h = 0; h < H; ++h) b_Q.push_back(bias(Q.bias, head * H + h)), b_K.push_back(bias(K.bias, kv * H + h));
    constant.assign(static_cast<size_t>(s.d_model), 0);
    for (int64_t j = 0; j < s.d_model; ++j)
      for (int64_t h = 0; h < H; ++h)
        constant[static_cast<size_t>(j)] += bias(V.bias, kv * H + h) * O.at<double>(j, head * H + h);
  }

  Rows pattern(const Rows& x, bool mask) const {
    const Rows q = times(x, W_Q), k = times(x, W_K);
    Rows A(x.size(), std::vector<double>(x.size(), 0));
    for (size_t i = 0; i < x.size(); ++i) {
      double sum = 0;
      for (size_t j = 0; j < x.size(); ++j) {
        if (mask && j > i) continue;
        double score = 0;
        for (size_t h = 0; h < b_Q.size(); ++h) score += (q[i][h] + b_Q[h]) * (k[j][h] + b_K[h]);
        sum += A[i][j] = std::exp(scale * score);
      }
      for (double& weight : A[i]) weight /= sum;
    }
    return A;
  }
  Rows mixed(const Rows& A, const Rows& x) const { return times(times(A, x), S); }
  Rows written(const Rows& A, const Rows& x) const {
    Rows h = mixed(A, x);
    for (auto& row : h)
      for (size_t j = 0; j < row.size(); ++j) row[j] += constant[j];  // rows of A add up to 1
    return h;
  }
};

PictureJson picture_with(Engine& engine, const char* name, const PictureOptions& options = {},
                         const std::vector<int32_t>& ids = kSixIds) {
  return picture_of(engine, ids_prompt(ids), name, options);
}

// A head of GPT-2, whose scores nothing turns: its input behind the norm.
class OneHead : public testing::Test {
 protected:
  Engine engine{Golden::open("gpt2_a").model(), kF32};
  PictureOptions options{.layer = 1, .head = 2};
  const std::vector<std::string> hooks = {
      "blocks.1.ln1.hook_normalized", "blocks.1.attn.hook_result", "blocks.1.attn.hook_pattern", "hook_embed", "hook_pos_embed",
      "blocks.0.ln1.hook_normalized"};
  const Recorder seen = trace_to_memory(engine, kSixIds, hooks);
  const Rows x = hook_rows(seen, hooks[0]);
  const PlainHead head{engine, 1, 2};
  Rows result() const {  // [token, head, component]
    Rows h = hook_rows(seen, hooks[1]);
    const auto D = static_cast<std::ptrdiff_t>(engine.shape().d_model);
    for (auto& row : h) row = {row.begin() + 2 * D, row.begin() + 3 * D};
    return h;
  }
};

TEST_F(OneHead, IsAxS) {
  const PictureJson p = picture_with(engine, "head-matrices", options);
  EXPECT_EQ(p.at("layer"), 1);
  EXPECT_EQ(p.at("head"), 2);
  const Rows A = head.pattern(x, true), h = result();
  EXPECT_LT(largest_entry(plus(rows_of_packed(p.at("A")), A, -1)), 1e-5);
  EXPECT_LT(p.at("patternCheck").get<double>(), 1e-5);
  const double check = frobenius_of(plus(head.written(A, x), h, -1)) / frobenius_of(h);
  EXPECT_LT(check, 1e-5);
  EXPECT_LT(p.at("check").get<double>(), 1e-5);
  EXPECT_GT(p.at("check").get<double>(), 0);
  EXPECT_NEAR(p.at("outputLength").get<double>(), frobenius_of(h), 1e-5 * frobenius_of(h));
  // The maps: all entries up to 32 of a side, else root mean squares of blocks.
  const Rows Y = times(head.W_Q, [&] {
    Rows t(head.b_K.size(), std::vector<double>(head.W_K.size()));
    for (size_t i = 0; i < head.W_K.size(); ++i)
      for (size_t j = 0; j < t.size(); ++j) t[j][i] = head.W_K[i][j];
    return t;
  }());
  for (const auto& [name, full] : {std::pair{"S", head.S}, std::pair{"Y", Y}}) {
    EXPECT_NEAR(p.at(name).at("frobenius").get<double>(), frobenius_of(full), 1e-5 * frobenius_of(full)) << name;
    EXPECT_EQ(p.at(name).at("rank"), engine.shape().head_dim) << name;
    double squares = 0;
    for (const double s : doubles(p.at(name).at("singularValues"))) squares += s * s;
    EXPECT_NEAR(std::sqrt(squares), frobenius_of(full), 1e-5 * frobenius_of(full)) << name;
    const Rows map = rows_of_packed(p.at(name).at("map"));
    const size_t D = full.size(), side = std::min<size_t>(D, 32);
    ASSERT_EQ(map.size(), side);
    for (size_t r = 0; r < side; ++r)
      for (size_t c = 0; c < side; ++c) {
        double sum = 0, count = 0;
        for (size_t i = r * D / side; i < (r + 1) * D / side; ++i)
          for (size_t j = c * D / side; j < (c + 1) * D / side; ++j) sum += full[i][j] * full[i][j], ++count;
        EXPECT_NEAR(std::abs(map[r][c]), std::sqrt(sum / count), 1e-5) << name << " " << r << " " << c;
      }
  }
}

TEST_F(OneHead, IsLinearIfItsWeightsAreKept) {
  const PictureJson p = picture_with(engine, "frozen-attention", options);
  Rows y = x;
  std::reverse(y.begin(), y.end());
  const Rows sum = plus(x, y), A = head.pattern(x, true);
  const auto deviation = [&](const Rows& of_sum, const Rows& of_x, const Rows& of_y) {
    return frobenius_of(plus(plus(of_sum, of_x, -1), of_y, -1)) / frobenius_of(of_sum);
  };
  EXPECT_LT(deviation(head.mixed(A, sum), head.mixed(A, x), head.mixed(A, y)), 1e-13);
  const double free = deviation(head.mixed(head.pattern(sum, true), sum), head.mixed(A, x), head.mixed(head.pattern(y, true), y));
  EXPECT_GT(free, 1e-3);
  EXPECT_EQ(p.at("shown").at("head"), 2);
  EXPECT_NEAR(p.at("shown").at("free").get<double>(), free, 1e-5);
  EXPECT_EQ(p.at("heads").size(), static_cast<size_t>(engine.shape().n_layers * engine.shape().n_heads));
  for (const PictureJson& one : p.at("heads")) {
    EXPECT_LT(one.at("frozen").get<double>(), 1e-13);
    EXPECT_GT(one.at("free").get<double>(), 1e-9);
  }
}

TEST_F(OneHead, OneForAllLosesWhatItsPictureSays) {
  const PictureJson p = picture_with(engine, "heads-as-one", options);
  const auto n = static_cast<size_t>(engine.shape().n_heads);
  Rows mean(x.size(), std::vector<double>(x.size(), 0)), all, S;
  std::vector<PlainHead> heads;
  for (size_t h = 0; h < n; ++h) heads.emplace_back(engine, 1, static_cast<int64_t>(h));
  for (const PlainHead& one : heads) {
    const Rows A = one.pattern(x, true), wrote = one.mixed(A, x);
    mean = plus(mean, A, 1 / static_cast<double>(n));
    all = all.empty() ? wrote : plus(all, wrote);
    S = S.empty() ? one.S : plus(S, one.S);
  }
  const Rows one = times(times(mean, x), S);
  EXPECT_NEAR(p.at("layers")[1].at("lost").get<double>(), frobenius_of(plus(one, all, -1)) / frobenius_of(all), 1e-5);
  EXPECT_LT(p.at("fold").get<double>(), 1e-12);
  EXPECT_EQ(p.at("rank"), std::min(engine.shape().d_model, engine.shape().n_heads * engine.shape().head_dim));
}

TEST_F(OneHead, ObeysThePermutationLawWithoutMask) {
  const PictureJson p = picture_with(engine, "permutations", options);
  ASSERT_EQ(p.at("n"), kSixIds.size());
  ASSERT_EQ(p.at("conditions").size(), 2u);  // nothing is turned, and vectors are added in front of the first layer only
  for (const bool mask : {false, true}) {
    const PictureJson& condition = p.at("conditions")[mask ? 1 : 0];
    const Rows A = head.pattern(x, mask), h = head.written(A, x);
    EXPECT_LT(largest_entry(plus(rows_of_packed(condition.at("A")), A, -1)), 1e-6);
    for (size_t i = 0; i < p.at("shuffles").size(); ++i) {
      const auto order = p.at("shuffles")[i].at("order").get<std::vector<size_t>>();
      const Rows moved = in_order(x, order), A_moved = head.pattern(moved, mask);
      Rows A_expected = in_order(A, order);
      for (auto& row : A_expected) {
        std::vector<double> columns;
        for (const size_t j : order) columns.push_back(row[j]);
        row = columns;
      }
      const double pattern = largest_entry(plus(A_moved, A_expected, -1)),
                   output = largest_entry(plus(head.written(A_moved, moved), in_order(h, order), -1)) / largest_entry(h);
      const PictureJson& found = condition.at("shuffles")[i];
      EXPECT_LT(largest_entry(plus(rows_of_packed(found.at("A")), A_moved, -1)), 1e-6);
      if (mask) {
        EXPECT_NEAR(found.at("pattern").get<double>(), pattern, 1e-6);
        EXPECT_NEAR(found.at("output").get<double>(), output, 1e-5);
        EXPECT_GT(output, 1e-3);
      } else {
        EXPECT_LT(pattern, 1e-13);
        EXPECT_LT(found.at("pattern").get<double>(), 1e-13);
        EXPECT_LT(found.at("output").get<double>(), 1e-12);
      }
      EXPECT_EQ(p.at("shuffles")[i].at("inverse"), 0);
      EXPECT_EQ(p.at("shuffles")[i].at("mlp"), 0);
    }
  }
}

// In front of the first layer: the tokens move, the vectors of their places stay.
TEST_F(OneHead, PositionsThatAreAddedBreakTheLaw) {
  const PictureJson p = picture_with(engine, "permutations", {.layer = 0, .head = 1});
  ASSERT_EQ(p.at("conditions").size(), 4u);
  EXPECT_EQ(p.at("places"), "added");
  const PlainHead first(engine, 0, 1);
  const NamedParameters all = parameters_of(engine.model());
  const Vector &w = *all.vector("blocks.0.ln1.w"), &b = *all.vector("blocks.0.ln1.b");
  const double eps = engine.model().layer(0).norm.eps;
  const auto read = [&](Rows rows) {
    for (auto& row : rows) {
      const double mean = std::accumulate(row.begin(), row.end(), 0.0) / static_cast<double>(row.size());
      double variance = 0;
      for (const double v : row) variance += (v - mean) * (v - mean) / static_cast<double>(row.size());
      for (size_t i = 0; i < row.size(); ++i)
        row[i] = (row[i] - mean) / std::sqrt(variance + eps) * w.at<double>(static_cast<int64_t>(i)) +
                 b.at<double>(static_cast<int64_t>(i));
    }
    return rows;
  };
  const Rows tokens = hook_rows(seen, hooks[3]), places = hook_rows(seen, hooks[4]);
  EXPECT_LT(largest_entry(plus(read(plus(tokens, places)), hook_rows(seen, hooks[5]), -1)), 1e-5);
  const auto order = p.at("shuffles")[0].at("order").get<std::vector<size_t>>();
  const auto difference = [&](bool added, bool mask) {
    const auto input = [&](const Rows& rows) { return read(added ? plus(rows, places) : rows); };
    const Rows usual = input(tokens), moved = input(in_order(tokens, order));
    const Rows h = first.written(first.pattern(usual, mask), usual);
    return largest_entry(plus(first.written(first.pattern(moved, mask), moved), in_order(h, order), -1)) / largest_entry(h);
  };
  EXPECT_LT(p.at("conditions")[0].at("most").get<double>(), 1e-12);
  const auto found = [&](size_t i) { return p.at("conditions")[i].at("shuffles")[0].at("output").get<double>(); };
  EXPECT_NEAR(found(1), difference(false, true), 1e-4);
  EXPECT_NEAR(found(2), difference(true, false), 1e-4);
  EXPECT_NEAR(found(3), difference(true, true), 1e-4);
  const PictureJson bars = picture_with(engine, "mask-and-positions", {.layer = 0, .head = 1});
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(bars.at("conditions")[i].at("most"), p.at("conditions")[i].at("most"));
}

// Of every family: with mask and positions the formula gives the run's own weights and results, without them the law.
class HeadsOf : public testing::TestWithParam<std::string> {};

TEST_P(HeadsOf, AreTheirFormula) {
  Engine engine(Golden::open(GetParam()).model(), kF32);
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer) {
    if (!engine.model().layer(layer).has_attention()) continue;
    const PictureOptions options{.layer = layer, .head = engine.shape().n_heads - 1};
    const PictureJson p = picture_with(engine, "head-matrices", options);
    if (!p.at("available").get<bool>()) {
      const std::set<std::string> no_formula = {"qwen3_5", "gemma4", "gemma4_moe", "deepseek_v3", "hunyuan", "llama4"};
      EXPECT_TRUE(no_formula.contains(GetParam())) << p.at("reason");
      continue;
    }
    EXPECT_LT(p.at("check").get<double>(), 1e-5) << layer;
    EXPECT_LT(p.at("patternCheck").get<double>(), 1e-5) << layer;
    const PictureJson law = picture_with(engine, "permutations", options);
    const PictureJson& conditions = law.at("conditions");
    EXPECT_LT(conditions[0].at("most").get<double>(), 1e-11) << layer;
    EXPECT_GT(conditions[1].at("most").get<double>(), 1e-6) << layer;
    const bool has_mlp = GetParam() != "nemotron_h";  // whose layers have one sub-layer
    for (const PictureJson& shuffle : law.at("shuffles"))
      EXPECT_EQ(shuffle.at("mlp"), has_mlp ? PictureJson(0) : PictureJson(nullptr)) << layer;
    const std::string hook = "blocks." + std::to_string(layer) + ".attn.hook_pattern";
    const std::vector<std::string> hooks = {hook};
    const Recorder seen = trace_to_memory(engine, kSixIds, hooks);
    const FloatVector& all = seen.values().at(hook).values;
    const std::vector<double> both = unpacked(conditions.back().at("A"));
    if (law.at("places") == "none" && conditions.size() == 2 && engine.model().record().positions != AddedPositions::none)
      continue;
    const size_t first = static_cast<size_t>(engine.shape().n_heads - 1) * both.size();
    for (size_t i = 0; i < both.size(); ++i)
      EXPECT_NEAR(both[i], static_cast<double>(all[first + i]), 1e-5) << layer << ": " << i;
  }
}

TEST_P(HeadsOf, ChapterIsWhole) {
  Engine engine(Golden::open(GetParam()).model(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt(kSixIds), {}, "heads");
  EXPECT_EQ(document.at("steps").size(), 9u);
  for (const PictureJson& step : document.at("steps"))
    for (const PictureJson& name : step.at("pictures")) {
      const PictureJson& p = document.at("pictures").at(name.get<std::string>());
      if (p.at("available").get<bool>())
        EXPECT_GT(picture_svg(document, name.get<std::string>()).size(), 500u) << name;
      else
        EXPECT_GT(p.at("reason").get<std::string>().size(), 20u) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Golden, HeadsOf, testing::ValuesIn(models_with_attention()),
                         [](const auto& test) { return test.param; });

TEST(Blocks, HaveTheirPartsInTheModelsOrder) {
  const auto words = [](const char* model) {
    Engine engine(Golden::open(model).model(), kF32);
    const PictureJson p = picture_with(engine, "block-diagram", {.layer = 1});
    std::string all;
    for (const PictureJson& part : p.at("parts")) {
      all += part.at("normBefore").is_null() ? "" : "norm ";
      all += part.at("id").get<std::string>();
      all += part.at("normBehind").is_null() ? " + " : " norm + ";
      all += part.at("normAfter").is_null() ? "" : "norm ";
      EXPECT_TRUE(part.at("adds").get<bool>());
    }
    return all;
  };
  EXPECT_EQ(words("gpt2_a"), "norm attention + norm mlp + ");
  EXPECT_EQ(words("classic_post"), "attention + norm mlp + norm ");
  EXPECT_EQ(words("gemma2"), "norm attention norm + norm mlp norm + ");
  EXPECT_EQ(words("olmo2"), "attention norm + mlp norm + ");
}

TEST(Streams, AreTheSumOfTheirParts) {
  for (const char* model : {"gpt2_a", "gemma2", "granite", "olmo2"}) {
    Engine engine(Golden::open(model).model(), kF32);
    const std::vector<std::string> hooks = {"blocks.*.hook_attn_out", "blocks.*.hook_mlp_out", "blocks.*.hook_resid_p*"};
    const Recorder seen = trace_to_memory(engine, kSixIds, hooks);
    const int64_t layers = engine.shape().n_layers;
    Rows sum = hook_rows(seen, "blocks.0.hook_resid_pre");
    const PictureJson p = picture_with(engine, "stream-sum");
    EXPECT_NEAR(p.at("start").get<double>(), frobenius_of({sum.back()}), 1e-5 * frobenius_of({sum.back()}));
    for (int64_t layer = 0; layer < layers; ++layer)
      for (const auto& [key, hook] : {std::pair{"attention", ".hook_attn_out"}, std::pair{"mlp", ".hook_mlp_out"}}) {
        const Rows update = hook_rows(seen, "blocks." + std::to_string(layer) + hook);
        sum = plus(sum, update);
        EXPECT_NEAR(p.at("layers")[static_cast<size_t>(layer)].at(key).get<double>(), frobenius_of({update.back()}), 1e-4)
            << model;
      }
    const Rows end = hook_rows(seen, "blocks." + std::to_string(layers - 1) + ".hook_resid_post");
    EXPECT_NEAR(p.at("error").get<double>(), frobenius_of(plus(sum, end, -1)) / frobenius_of(end), 1e-8) << model;
    EXPECT_LT(p.at("error").get<double>(), 1e-5) << model;
  }
  Engine after(Golden::open("classic_post").model(), kF32);
  EXPECT_FALSE(picture_with(after, "stream-sum").at("available").get<bool>());
}

TEST(Sinusoids, RepeatWithinTheContextIfNIsSmall) {
  Engine engine(Golden::open("classic_pre").model(), kF32);
  const PictureJson p = picture_with(engine, "sinusoids");
  for (size_t c = 0; c < 3; ++c) {
    const PictureJson& one = p.at("cases")[c];
    const int E = one.at("E"), C = one.at("C");
    const double N = one.at("N");
    const auto vector = [&](int k) {
      std::vector<double> e;
      for (int j = 0; j < E / 2; ++j)
        e.push_back(std::sin(k / std::pow(N, 2.0 * j / E))), e.push_back(std::cos(k / std::pow(N, 2.0 * j / E)));
      return e;
    };
    const std::vector<double> found = unpacked(one.at("distance"));
    ASSERT_EQ(found.size(), static_cast<size_t>(C));
    int nearest = 2;
    std::vector<double> distance;
    for (int k = 0; k < C; ++k) {
      distance.push_back(frobenius_of(plus({vector(k)}, {vector(0)}, -1)));
      EXPECT_NEAR(found[static_cast<size_t>(k)], distance.back(), 1e-5);
      if (k > 2 && distance[static_cast<size_t>(k)] < distance[static_cast<size_t>(nearest)]) nearest = k;
    }
    EXPECT_EQ(one.at("nearest"), nearest);
  }
  EXPECT_LT(p.at("cases")[0].at("N"), p.at("cases")[0].at("C"));
  EXPECT_GT(p.at("cases")[0].at("alike"), 0);
  EXPECT_GT(p.at("cases")[1].at("N"), p.at("cases")[1].at("C"));
  EXPECT_EQ(p.at("cases")[1].at("alike"), 0);
  const Rows e = rows_of_packed(p.at("cases")[1].at("values"));  // [component, position]
  const PictureJson shift = picture_with(engine, "sinusoid-shift");
  const Rows R = rows_of_packed(shift.at("R"));
  double error = 0;
  for (size_t k = 0; k + 1 < e[0].size(); ++k) {
    Rows column(e.size()), next(e.size());
    for (size_t i = 0; i < e.size(); ++i) column[i] = {e[i][k]}, next[i] = {e[i][k + 1]};
    error = std::max(error, largest_entry(plus(times(R, column), next, -1)));
  }
  EXPECT_LT(error, 1e-6);  // both are packed as f32
  EXPECT_LT(shift.at("error").get<double>(), 1e-12);
  EXPECT_LT(shift.at("longer").at("error").get<double>(), 1e-6);
  EXPECT_GT(shift.at("longer").at("error").get<double>(), 1e-9);
  for (size_t i = 0; i < R.size(); ++i)
    for (size_t j = 0; j < R.size(); ++j) EXPECT_EQ(R[i][j] != 0, i / 2 == j / 2) << i << ", " << j;
}

// A head without its columns of W_O writes nothing: what the picture's ablation says, from changed weights.
TEST(Roles, LossWithoutAHeadIsThatOfAModelWithoutIt) {
  const Golden gold = Golden::open("llama");
  Engine engine(gold.model(), kF32);
  const PictureJson p = picture_with(engine, "head-roles");
  const int64_t repeated = p.at("repeated");
  const std::vector<int32_t> ids = repeated_random_ids(engine, repeated, 0);
  const HeadScores scores = score_heads(engine, ids);
  const auto loss = [&](Engine& of) {
    const std::vector<float> logprobs = of.token_logprobs(ids);
    double sum = 0;
    for (int64_t i = 0; i + 1 < repeated; ++i) sum -= static_cast<double>(logprobs[logprobs.size() - 1 - static_cast<size_t>(i)]);
    return sum / static_cast<double>(repeated - 1);
  };
  EXPECT_NEAR(p.at("ablations")[0].at("loss").get<double>(), loss(engine), 1e-5);
  for (const PictureJson& role : p.at("roles")) {
    if (role.at("id") != "previous" && role.at("id") != "induction") continue;
    const HeadRole of = role.at("id") == "previous" ? HeadRole::previous : HeadRole::induction;
    double best = 0;
    for (const HeadScore& score : scores.heads) best = std::max(best, score.at(of));
    EXPECT_NEAR(role.at("best").at("score").get<double>(), best, 1e-6);
    EXPECT_EQ(role.at("found").empty(), best < 0.3);
    const int64_t layer = role.at("best").at("layer"), head = role.at("best").at("head"), size = engine.shape().head_dim;
    const Scratch scratch;
    const std::string changed = copy_of(gold, scratch / "without", [&](std::vector<OwnedTensor>& tensors) {
      for (OwnedTensor& t : tensors) {
        if (!t.name.ends_with("layers." + std::to_string(layer) + ".self_attn.o_proj.weight")) continue;
        const size_t element = t.bytes.size() / static_cast<size_t>(t.shape[0] * t.shape[1]);
        for (int64_t row = 0; row < t.shape[0]; ++row)
          std::fill_n(
              t.bytes.begin() + static_cast<std::ptrdiff_t>(element * static_cast<size_t>(row * t.shape[1] + head * size)),
              element * static_cast<size_t>(size), std::byte{0});
      }
    });
    Engine without(changed, kF32);
    double found = -1;
    for (const PictureJson& ablation : p.at("ablations"))
      if (ablation.at("name").get<std::string>().ends_with("(" + role.at("id").get<std::string>() + ")"))
        found = ablation.at("loss");
    EXPECT_NEAR(found, loss(without), 1e-4);
  }
}

TEST(Roles, SayWhyNoHeadReadsAnother) {
  const Scratch folder;
  write_random_model(folder.path(), small_gemma(1, 4));
  Engine engine(folder.path(), kF32);
  const PictureJson document = picture_document(engine, ids_prompt(kSixIds), "head-roles");
  EXPECT_TRUE(document.at("pictures").at("head-roles").at("links").is_null());
  EXPECT_CONTAINS(picture_svg(document, "head-roles"), "No compositions between heads: only one layer has heads");
}

TEST(Heads, EdgesSayWhatIsWrong) {
  Engine engine(Golden::open("llama").model(), kF32);
  for (const char* name : {"frozen-attention", "permutations", "mask-and-positions"})
    EXPECT_FALSE(picture_with(engine, name, {}, {5}).at("available").get<bool>()) << name;
  EXPECT_TRUE(picture_with(engine, "head-matrices", {}, {5}).at("available").get<bool>());
  EXPECT_CONTAINS(message_of<InputError>([&] { picture_with(engine, "head-matrices", {.layer = 9}); }), "layer 9 does not exist");
  EXPECT_CONTAINS(message_of<InputError>([&] { picture_with(engine, "permutations", {.head = -1}); }), "head -1 does not exist");
  const PictureJson cut = picture_with(engine, "head-matrices", {}, std::vector<int32_t>(60, 7));
  EXPECT_EQ(cut.at("A").at("shape")[0], 24);
  EXPECT_CONTAINS(cut.at("caption").get<std::string>(), "its first 24 tokens");
  Engine gated(Golden::open("qwen3_5").model(), kF32);
  EXPECT_CONTAINS(picture_with(gated, "head-matrices").at("reason").get<std::string>(), "behind gates");
}

}  // namespace
}  // namespace vitrine
