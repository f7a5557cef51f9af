#pragma once
// An attribution graph as one offline page without scripts: layers from below to above, positions from left to right.
#include <map>
#include <string>
#include <vector>

#include "graph/attribution_graph.h"
#include "graph/influence.h"

namespace vitrine {

/// What is shown of a feature besides its edges, by its place in AttributionGraph::selected: lines of text.
using FeatureNotes = std::map<int64_t, std::vector<std::string>>;

/// A whole HTML document. Nodes are as large as their influence; pointing at one shows its edges, with blue ones that raise it
/// and orange ones that lower it, and what it is, its value, its notes and its largest effects; clicking keeps that text.
std::string graph_page(const AttributionGraph& graph, const PrunedGraph& pruned, const FeatureNotes& notes);

}  // namespace vitrine
