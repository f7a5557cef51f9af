#include "graph/json.h"

#include <cstdio>
#include <vector>

#include "base/error.h"
#include "base/json.h"

namespace vitrine {
namespace {

std::string node_id_of(const std::string& a, int64_t b, int64_t c) {
  return a + "_" + std::to_string(b) + "_" + std::to_string(c);
}

OrderedJson node_json(const std::string& id, int64_t feature, const std::string& layer, int64_t position, const char* kind,
                      const std::string& script_id) {
  return {
      {"node_id", id},     {"feature", feature},       {"layer", layer},       {"ctx_idx", position},  {"feature_type", kind},
      {"token_prob", 0.0}, {"is_target_logit", false}, {"run_idx", 0},         {"reverse_ctx_idx", 0}, {"jsNodeId", script_id},
      {"clerp", ""},       {"influence", nullptr},     {"activation", nullptr}};
}

// Cantor's number of a pair, which names a feature in the viewer's files.
int64_t pair_number(int64_t a, int64_t b) { return (a + b) * (a + b + 1) / 2 + b; }

OrderedJson node_of(const AttributionGraph& graph, const PrunedGraph& pruned, int64_t node) {
  const double reached = pruned.reached[static_cast<size_t>(node)];
  OrderedJson json;
  if (node < graph.first_error()) {
    const GraphFeature& f = graph.active[static_cast<size_t>(graph.selected[static_cast<size_t>(node)])];
    const std::string layer = std::to_string(f.layer);
    json = node_json(node_id_of(layer, f.feature, f.position), pair_number(f.layer, f.feature), layer, f.position,
                     "cross layer transcoder", layer + "_" + std::to_string(f.feature) + "-0");
    json["activation"] = f.value;
  } else if (node < graph.first_token()) {
    const int64_t layer = (node - graph.first_error()) / graph.positions(),
                  position = (node - graph.first_error()) % graph.positions();
    json = node_json(node_id_of("0", layer, position), -1, std::to_string(layer), position, "mlp reconstruction error",
                     std::to_string(layer) + "_" + std::to_string(position) + "-0");
  } else if (node < graph.first_logit()) {
    const int64_t position = node - graph.first_token(), token = graph.tokens[static_cast<size_t>(position)];
    json = node_json(node_id_of("E", token, position), position, "E", position, "embedding",
                     "E_" + std::to_string(token) + "-" + std::to_string(position));
  } else {
    const auto place = static_cast<size_t>(node - graph.first_logit());
    const GraphLogit& logit = graph.logits[place];
    const int64_t last = graph.positions() - 1;
    const std::string layer = std::to_string(graph.n_layers + 1);
    json = node_json(node_id_of(layer, logit.token, last), logit.token, layer, last, "logit",
                     "L_" + std::to_string(logit.token) + "-" + std::to_string(last));
    json["token_prob"] = static_cast<float>(logit.probability);
    json["is_target_logit"] = place == 0;
    char probability[16];
    std::snprintf(probability, sizeof probability, "%.3f", logit.probability);
    json["clerp"] = "Output \"" + logit.text + "\" (p=" + probability + ")";
    return json;
  }
  json["influence"] = static_cast<float>(reached);
  return json;
}

}  // namespace

OrderedJson graph_document(const AttributionGraph& graph, const PrunedGraph& pruned, const std::string& slug) {
  std::vector<std::string> ids(static_cast<size_t>(graph.nodes()));
  std::vector<bool> connected(ids.size(), false);
  OrderedJson nodes = OrderedJson::array(), links = OrderedJson::array();
  for (const GraphEdge& e : pruned.edges)
    connected[static_cast<size_t>(e.source)] = connected[static_cast<size_t>(e.target)] = true;
  for (const int64_t node : pruned.nodes) {
    OrderedJson json = node_of(graph, pruned, node);
    ids[static_cast<size_t>(node)] = json["node_id"];
    if (connected[static_cast<size_t>(node)] || node >= graph.first_token()) nodes.push_back(std::move(json));
  }
  for (const GraphEdge& e : pruned.edges)
    links.push_back(
        {{"source", ids[static_cast<size_t>(e.source)]}, {"target", ids[static_cast<size_t>(e.target)]}, {"weight", e.effect}});
  return {{"metadata",
           {{"slug", slug},
            {"scan", graph.scan},
            {"transcoder_list", OrderedJson::array()},
            {"prompt_tokens", graph.token_texts},
            {"prompt", graph.prompt},
            {"node_threshold", pruned.node_threshold},
            {"schema_version", 1}}},
          {"qParams",
           {{"pinnedIds", OrderedJson::array()},
            {"supernodes", OrderedJson::array()},
            {"linkType", "both"},
            {"clickedId", ""},
            {"sg_pos", ""}}},
          {"nodes", nodes},
          {"links", links}};
}

OrderedJson graph_list(const OrderedJson& before, const OrderedJson& document) {
  OrderedJson list = OrderedJson::array();
  if (!before.is_null()) {
    if (!before.is_object() || !before.contains("graphs") || !before["graphs"].is_array())
      throw InputError(
          "graph-metadata.json holds no list \"graphs\"; is it another program's file? Write the graph into another folder");
    for (const OrderedJson& one : before["graphs"])
      if (!one.is_object() || one.value("slug", OrderedJson()) != document["metadata"]["slug"]) list.push_back(one);
  }
  list.push_back(document["metadata"]);
  return {{"graphs", list}};
}

}  // namespace vitrine
