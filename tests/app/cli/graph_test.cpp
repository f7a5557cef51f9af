// vitrine graph: the command's files and messages, with circuit-tracer's document (tests/golden/attribution_graphs).
#include <filesystem>
#include <fstream>

#include "cli/program.h"
#include "support/close.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kGraphs = std::string(VITRINE_GOLDEN) + "/attribution_graphs/";

std::vector<std::string> graph_of(const std::string& folder, const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"graph", "--model", Golden::open(model).model(), "--transcoders",
                                        kGraphs + folder + "/transcoders"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> ids_of(const Json& document, const char* list, const char* key) {
  std::vector<std::string> ids;
  for (const Json& one : document[list]) ids.push_back(one[key]);
  return ids;
}

TEST(GraphCommand, WritesTheViewersFilesAndAPage) {
  const Scratch scratch;
  const std::string folder = scratch / "graphs/", page = scratch / "graph.html";
  for (int i = 0; i < 2; ++i) {  // the list holds the graph once
    const auto done = vitrine(graph_of(
        "gemma2", "gemma2", {"--tokens", "2,267,283,451,273,280,322,17,301", "--out", folder, "--slug", "tiny", "--page", page}));
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_CONTAINS(done.out, "72 active features, 72 of them nodes");
    EXPECT_CONTAINS(done.out, "replacement score 0.481, completeness score 0.746");
  }
  const Json written = read_json(folder + "tiny.json"), expected = read_json(kGraphs + "gemma2/graph.json");
  EXPECT_EQ(written["metadata"], expected["metadata"]);
  EXPECT_EQ(written["qParams"], expected["qParams"]);
  EXPECT_EQ(ids_of(written, "nodes", "node_id"), ids_of(expected, "nodes", "node_id"));
  EXPECT_EQ(ids_of(written, "links", "source"), ids_of(expected, "links", "source"));
  EXPECT_EQ(ids_of(written, "links", "target"), ids_of(expected, "links", "target"));
  const Json list = read_json(folder + "graph-metadata.json");
  ASSERT_EQ(list["graphs"].size(), 1U);
  EXPECT_EQ(list["graphs"][0], expected["metadata"]);
  EXPECT_CONTAINS(read_file(page), "28 of 127 nodes and 147 edges");
}

TEST(GraphCommand, ThePageShowsNodesEdgesAndLogits) {
  const Scratch scratch;
  const std::string page = scratch / "graph.html";
  const auto done = vitrine(graph_of("gpt2_cross_layer", "gpt2_a", {"--tokens", "511,257,273,78,263,270,312", "--page", page}));
  ASSERT_EQ(done.code, 0) << done.err;
  const Json expected = read_json(kGraphs + "gpt2_cross_layer/graph.json");
  const std::string html = read_file(page);
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("http://"), html.find("http://www.w3.org/2000/svg"));
  const auto count = [&](const std::string& what) {
    size_t n = 0;
    for (size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++n;
    return n;
  };
  size_t features = 0;
  for (const Json& node : expected["nodes"]) features += node["feature_type"] == "cross layer transcoder" ? 1 : 0;
  ASSERT_GT(features, 0U);
  EXPECT_EQ(count("<section"), expected["nodes"].size());
  EXPECT_EQ(count("<path class=\"e "), expected["links"].size());
  EXPECT_EQ(count("<p>raises  "), features);
}

TEST(GraphCommand, ExplainsATokenThatIsNamed) {
  const Json document = vitrine(graph_of("gpt2_cross_layer", "gpt2_a", {"hello world", "--target", "he", "--json"})).json();
  EXPECT_EQ(document["metadata"]["prompt_tokens"].size(), 7U);  // a control token in front
  size_t logits = 0;
  for (const Json& node : document["nodes"]) logits += node["feature_type"] == "logit" ? 1 : 0;
  EXPECT_EQ(logits, 1U);
}

TEST(GraphCommand, SaysWhatIsWrong) {
  const Scratch scratch;
  expect_refused(graph_of("gemma2", "llama", {"--tokens", "2,5,6"}), {"there are transcoders for 4 layers"});
  expect_refused(graph_of("gemma2", "gemma2", {"--tokens", "2"}), {"the prompt has 1 token"});
  expect_refused(graph_of("gemma2", "gemma2", {"--tokens", "2,5;2,6"}), {"one sequence"});
  expect_refused(graph_of("gemma2", "gemma2", {"--tokens", "2,5", "--slug", "../x"}), {"--slug"});
  expect_refused(graph_of("gemma2", "gemma2", {"--tokens", "2,5", "--node-threshold", "2"}), {"--node-threshold"});
  expect_refused(graph_of("gemma2", "gemma2", {"hello", "--no-such"}), {"--no-such"});
  expect_refused(graph_of("nothing", "gemma2", {"hello"}), {"is no folder"});
  std::ofstream(scratch / "graph-metadata.json") << "[]";
  expect_refused(graph_of("gemma2", "gemma2", {"--tokens", "2,5,6", "--out", scratch.path()}), {"holds no list"});
}

}  // namespace
}  // namespace vitrine
