#pragma once
// An attribution graph as the JSON document that circuit-tracer's viewer (and Neuronpedia's) opens: the same fields, in their
// order, and the same names of nodes.
#include <nlohmann/json.hpp>
#include <string>

#include "graph/attribution_graph.h"
#include "graph/influence.h"

namespace vitrine {

/// metadata, qParams, nodes and links of the pruned graph. Nodes: "LAYER_FEATURE_POSITION" of a feature, "0_LAYER_POSITION" of an
/// error, "E_TOKEN_POSITION" of a token, "N_TOKEN_POSITION" of a logit with N = n_layers + 1. Nodes without an edge are left out,
/// but for tokens and logits.
nlohmann::ordered_json graph_document(const AttributionGraph& graph, const PrunedGraph& pruned, const std::string& slug);

/// The list of graphs that the viewer shows, graph-metadata.json, with this document's in it. `before`: what the file holds, or
/// null. Errors: InputError if that is no such list.
nlohmann::ordered_json graph_list(const nlohmann::ordered_json& before, const nlohmann::ordered_json& document);

}  // namespace vitrine
