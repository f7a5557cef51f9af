// tests/golden/attribution_graphs/make.py: graphs of circuit-tracer, on models of four shapes and sets of every kind.
#include "graph/attribution_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "graph/influence.h"
#include "graph/json.h"
#include "graph/local_replacement.h"
#include "sae/circuit_tracer.h"
#include "sae/sae_file.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

struct GraphCase {
  const char* name;
  const char* model;
  GraphOptions options = {};
  bool document = false;
};

std::ostream& operator<<(std::ostream& out, const GraphCase& c) { return out << c.name; }

std::string folder_of(const GraphCase& c) { return std::string(VITRINE_GOLDEN) + "/attribution_graphs/" + c.name; }

class CircuitTracerGraph : public testing::TestWithParam<GraphCase> {
 protected:
  GoldenTensor gold(const std::string& name) { return golden_tensor(file_, name); }
  std::vector<int64_t> whole(const std::string& name) {
    std::vector<int64_t> numbers;
    for (const float x : gold(name)) numbers.push_back(std::llround(x));
    return numbers;
  }
  std::vector<int32_t> tokens() {
    const std::vector<int64_t> ids = whole("tokens");
    return {ids.begin(), ids.end()};
  }
  AttributionGraph graph() {
    Engine engine(Golden::open(GetParam().model).model());
    return attribution_graph(engine, read_transcoders(folder_of(GetParam()) + "/transcoders"), tokens(), GetParam().options);
  }
  // Relative to the largest numbers of a row: what is taken away from what leaves f32's rounding of them.
  void expect_effects(const AttributionGraph& g, const GoldenTensor& expected) {
    ASSERT_EQ(g.effects.size(), expected.size());
    for (int64_t r = 0; r < g.rows(); ++r) {
      const std::span<const float> row = g.row(r);
      const std::span<const float> right(expected.data() + r * g.nodes(), static_cast<size_t>(g.nodes()));
      float largest = 0;
      for (const float x : right) largest = std::max(largest, std::abs(x));
      EXPECT_TRUE(close_to(row, right, {.abs = 1e-5 * static_cast<double>(largest), .rel = 1e-4})) << "row " << r;
    }
  }
  Checkpoint file_ = open_safetensors(folder_of(GetParam()) + "/graph.safetensors");
};

TEST_P(CircuitTracerGraph, NodesAndEffects) {
  const AttributionGraph g = graph();
  std::vector<int64_t> places;
  std::vector<float> values;
  for (const GraphFeature& f : g.active) {
    places.insert(places.end(), {f.layer, f.position, f.feature});
    values.push_back(f.value);
  }
  EXPECT_EQ(places, whole("active"));
  EXPECT_CLOSE(values, gold("values"), (Tolerance{.abs = 1e-5, .rel = 1e-4}));
  EXPECT_EQ(g.selected, whole("selected"));
  std::vector<int64_t> logit_tokens;
  std::vector<double> probabilities;
  for (const GraphLogit& logit : g.logits) {
    logit_tokens.push_back(logit.token);
    probabilities.push_back(logit.probability);
  }
  EXPECT_EQ(logit_tokens, whole("logit_tokens"));
  EXPECT_CLOSE(probabilities, gold("probabilities"), (Tolerance{.abs = 0, .rel = 1e-4}));
  expect_effects(g, gold("adjacency"));
}

TEST_P(CircuitTracerGraph, InfluenceAndWhatIsKept) {
  const AttributionGraph g = graph();
  EXPECT_CLOSE(node_influence(g), gold("node_influence"), (Tolerance{.abs = 1e-7, .rel = 1e-4}));
  const GraphScores scores = graph_scores(g);
  EXPECT_NEAR(scores.replacement, gold("scores").values[0], 1e-4);
  EXPECT_NEAR(scores.completeness, gold("scores").values[1], 1e-4);
  for (const auto& [nodes, edges, name] : {std::tuple(0.8, 0.98, "at 0.8 0.98"), std::tuple(0.98, 0.9, "at 0.98 0.9")}) {
    const PrunedGraph kept = prune(g, nodes, edges);
    EXPECT_EQ(kept.nodes, whole(std::string(name) + ": nodes"));
    if (nodes > 0.9) {
      EXPECT_LT(kept.nodes.front(), g.features()) << "no feature is kept";
    }
    std::vector<int64_t> pairs;
    for (const GraphEdge& e : kept.edges) pairs.insert(pairs.end(), {e.target, e.source});
    EXPECT_EQ(pairs, whole(std::string(name) + ": edges"));
    // Nodes without influence stand in any order behind the others, where all of it is reached.
    EXPECT_CLOSE(kept.reached, gold(std::string(name) + ": cumulative"), (Tolerance{.abs = 1e-5, .rel = 1e-4}));
  }
}

// The document holds the same fields with the same values; numbers to 1e-4.
void expect_same_json(const Json& actual, const Json& expected, const std::string& where) {
  if (expected.is_number_float()) {
    ASSERT_TRUE(actual.is_number()) << where;
    EXPECT_NEAR(actual.get<double>(), expected.get<double>(), 1e-4 * std::max(0.1, std::abs(expected.get<double>()))) << where;
  } else if (expected.is_array()) {
    ASSERT_EQ(actual.size(), expected.size()) << where;
    for (size_t i = 0; i < expected.size(); ++i) expect_same_json(actual[i], expected[i], where + "[" + std::to_string(i) + "]");
  } else if (expected.is_object()) {
    ASSERT_EQ(actual.size(), expected.size()) << where;
    for (const auto& [key, value] : expected.items()) {
      ASSERT_TRUE(actual.contains(key)) << where << " lacks " << key;
      expect_same_json(actual[key], value, where + "." + key);
    }
  } else {
    EXPECT_EQ(actual, expected) << where;
  }
}

TEST_P(CircuitTracerGraph, TheViewersDocument) {
  if (!GetParam().document) GTEST_SKIP() << "circuit-tracer's document is kept of other cases";
  const AttributionGraph g = graph();
  const auto document = graph_document(g, prune(g), "tiny");
  std::ifstream in(folder_of(GetParam()) + "/graph.json");
  const auto expected = nlohmann::ordered_json::parse(in);
  for (const char* list : {"nodes", "links"}) {
    ASSERT_FALSE(expected[list].empty());
    std::vector<std::string> keys, expected_keys;
    for (const auto& item : document[list][0].items()) keys.push_back(item.key());
    for (const auto& item : expected[list][0].items()) expected_keys.push_back(item.key());
    EXPECT_EQ(keys, expected_keys);
  }
  expect_same_json(Json::parse(document.dump()), Json::parse(expected.dump()), "");
}

INSTANTIATE_TEST_SUITE_P(Sets, CircuitTracerGraph,
                         testing::Values(GraphCase{"gemma2", "gemma2", {}, true}, GraphCase{"llama_skip", "llama"},
                                         GraphCase{"gpt2_cross_layer", "gpt2_a", {}, true},
                                         GraphCase{"gemma2_limited", "gemma2", {.max_features = 22, .ranked_together = 6}}),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace vitrine
