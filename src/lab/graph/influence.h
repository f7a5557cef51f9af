#pragma once
// How much each node of an attribution graph influences the logits, along all paths, and what of the graph matters.
//   A = |effects|, each row divided by its sum        influence = p (A + A² + …), p the logits' probabilities
// Definitions of circuit-tracer 0.5; sums are in double.
#include <cstdint>
#include <span>
#include <vector>

#include "graph/attribution_graph.h"

namespace vitrine {

/// Of every node. Errors: RunError if the sum does not end, for a graph with a cycle.
std::vector<double> node_influence(const AttributionGraph& graph);

struct GraphEdge {
  int64_t source = 0, target = 0;
  float effect = 0;
};
struct PrunedGraph {
  std::vector<int64_t> nodes;     // those that are left, ascending; tokens and logits always are
  std::vector<GraphEdge> edges;   // by target, then source
  std::vector<double> influence;  // of every node of the graph
  std::vector<double> reached;    // of every node of the graph: the share of all influence that it and the nodes above it have
  double node_threshold = 0, edge_threshold = 0;
};
/// Keeps the nodes with the largest influence until they have `node_threshold` of all, and of the edges between these those that
/// carry `edge_threshold` of it; then drops features and errors that act on nothing, and features on which nothing acts.
/// Errors: InputError for thresholds outside [0, 1].
PrunedGraph prune(const AttributionGraph& graph, double node_threshold = 0.8, double edge_threshold = 0.98);

/// How much of the model's computation the features stand for, each from 0 to 1.
struct GraphScores {
  double replacement = 0;   // of the influence of tokens and errors, that of tokens
  double completeness = 0;  // of what acts on nodes, weighted by their influence, that which no error does
};
GraphScores graph_scores(const AttributionGraph& graph);

/// Influence of active features while rows are still missing.
class PartialInfluence {
 public:
  PartialInfluence(int64_t width, std::span<const GraphLogit> logits);
  /// The effects on `target`: an active feature, or -1 - i for logit i. They must stay where they are.
  void add_row(int64_t target, std::span<const float> effects);
  std::vector<double> of_nodes() const;

 private:
  struct Row {
    int64_t target;
    std::span<const float> effects;
    double sum;
  };
  int64_t width_;
  std::vector<double> probabilities_;
  std::vector<Row> rows_;
};

}  // namespace vitrine
