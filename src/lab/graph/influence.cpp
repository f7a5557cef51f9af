#include "graph/influence.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr int kMostSteps = 1000;  // longer than any path: features act on later layers alone

// The graph's rows divided by their sums, over the nodes that `kept` leaves.
class Shares {
 public:
  Shares(const AttributionGraph& graph, const std::vector<bool>& kept) : graph_(graph), kept_(kept) {
    for (int64_t r = 0; r < graph.rows(); ++r) {
      double sum = 0;
      if (has(graph.node_of_row(r))) each(r, [&](int64_t, float effect) { sum += std::abs(static_cast<double>(effect)); });
      divisor_.push_back(std::max(sum, 1e-10));
    }
  }
  bool has(int64_t node) const { return kept_[static_cast<size_t>(node)]; }
  /// f(source, share) of each source that acts on the row's target.
  template <class F>
  void row(int64_t r, F&& f) const {
    if (!has(graph_.node_of_row(r))) return;
    const double divisor = divisor_[static_cast<size_t>(r)];
    each(r, [&](int64_t source, float effect) { f(source, std::abs(static_cast<double>(effect)) / divisor); });
  }
  std::vector<double> influence() const {
    std::vector<double> total(static_cast<size_t>(graph_.nodes()), 0.0), now = logit_weights(graph_);
    for (int step = 0;; ++step) {
      std::vector<double> next(total.size(), 0.0);
      bool any = false;
      for (int64_t r = 0; r < graph_.rows(); ++r) {
        const double weight = now[static_cast<size_t>(graph_.node_of_row(r))];
        if (weight == 0) continue;
        row(r, [&](int64_t source, double share) { next[static_cast<size_t>(source)] += weight * share; });
      }
      for (size_t i = 0; i < total.size(); ++i) {
        total[i] += next[i];
        any = any || next[i] != 0;
      }
      if (!any) return total;
      if (step >= kMostSteps)
        throw RunError("the influence of an attribution graph's nodes has no end: its effects hold a cycle");
      now = std::move(next);
    }
  }
  static std::vector<double> logit_weights(const AttributionGraph& graph) {
    std::vector<double> weights(static_cast<size_t>(graph.nodes()), 0.0);
    for (size_t i = 0; i < graph.logits.size(); ++i)
      weights[static_cast<size_t>(graph.first_logit()) + i] = graph.logits[i].probability;
    return weights;
  }

 private:
  template <class F>
  void each(int64_t r, F&& f) const {
    const std::span<const float> effects = graph_.row(r);
    for (size_t i = 0; i < effects.size(); ++i)
      if (effects[i] != 0 && kept_[i]) f(static_cast<int64_t>(i), effects[i]);
  }

  const AttributionGraph& graph_;
  const std::vector<bool>& kept_;
  std::vector<double> divisor_;  // of each row
};

std::vector<bool> all_nodes(const AttributionGraph& graph) { return std::vector<bool>(static_cast<size_t>(graph.nodes()), true); }

// The score down to which the largest scores add up to `share` of all.
template <class T>
T score_at(std::vector<T> scores, double share) {
  if (scores.empty()) return 0;
  std::ranges::sort(scores, std::greater<>());
  const double all = std::accumulate(scores.begin(), scores.end(), 0.0);
  double sum = 0;
  for (const T score : scores) {
    sum += static_cast<double>(score);
    if (sum >= share * all) return score;
  }
  return scores.back();
}

std::vector<double> shares_reached(const std::vector<double>& influence) {
  std::vector<size_t> order(influence.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order,
                    [&](size_t a, size_t b) { return influence[a] > influence[b] || (influence[a] == influence[b] && a < b); });
  const double all = std::accumulate(influence.begin(), influence.end(), 0.0);
  std::vector<double> reached(influence.size());
  double sum = 0;
  for (const size_t i : order) {
    sum += influence[i];
    reached[i] = all > 0 ? sum / all : 1;
  }
  return reached;
}

// Drops features and errors that act on nothing and features on which nothing acts, until none is left.
void drop_loose_ends(const AttributionGraph& graph, std::vector<bool>& kept, std::vector<GraphEdge>& edges) {
  for (bool changed = true; changed;) {
    std::vector<bool> acts(kept.size(), false), acted_on(kept.size(), false);
    for (const GraphEdge& e : edges) {
      acts[static_cast<size_t>(e.source)] = true;
      acted_on[static_cast<size_t>(e.target)] = true;
    }
    changed = false;
    for (size_t i = 0; i < static_cast<size_t>(graph.first_token()); ++i) {
      if (!kept[i] || (acts[i] && (acted_on[i] || i >= static_cast<size_t>(graph.first_error())))) continue;
      kept[i] = false;
      changed = true;
    }
    std::erase_if(
        edges, [&](const GraphEdge& e) { return !kept[static_cast<size_t>(e.source)] || !kept[static_cast<size_t>(e.target)]; });
  }
}

void check_share(double share, const char* name) {
  if (!(share >= 0 && share <= 1)) throw InputError(std::string("the ") + name + " threshold must be from 0 to 1");
}

}  // namespace

std::vector<double> node_influence(const AttributionGraph& graph) {
  const std::vector<bool> all = all_nodes(graph);
  return Shares(graph, all).influence();
}

PrunedGraph prune(const AttributionGraph& graph, double node_threshold, double edge_threshold) {
  check_share(node_threshold, "node");
  check_share(edge_threshold, "edge");
  PrunedGraph pruned;
  pruned.node_threshold = node_threshold;
  pruned.edge_threshold = edge_threshold;
  pruned.influence = node_influence(graph);
  const std::vector<double>& influence = pruned.influence;
  pruned.reached = shares_reached(influence);
  const double least = score_at(influence, node_threshold);
  std::vector<bool> kept(influence.size());
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = influence[i] >= least || i >= static_cast<size_t>(graph.first_token());

  const Shares shares(graph, kept);
  std::vector<double> of_target = shares.influence();
  const std::vector<double> weights = Shares::logit_weights(graph);
  for (size_t i = 0; i < weights.size(); ++i) of_target[i] += weights[i];
  const auto each_edge = [&](auto&& f) {  // f(target's row, source, score)
    for (int64_t r = 0; r < graph.rows(); ++r) {
      const double here = of_target[static_cast<size_t>(graph.node_of_row(r))];
      if (here > 0) shares.row(r, [&](int64_t source, double share) { f(r, source, static_cast<float>(share * here)); });
    }
  };
  std::vector<float> scores;
  each_edge([&](int64_t, int64_t, float score) { scores.push_back(score); });
  const float least_score = score_at(std::move(scores), edge_threshold);
  each_edge([&](int64_t r, int64_t source, float score) {
    if (score >= least_score) pruned.edges.push_back({source, graph.node_of_row(r), graph.row(r)[static_cast<size_t>(source)]});
  });
  drop_loose_ends(graph, kept, pruned.edges);
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) pruned.nodes.push_back(static_cast<int64_t>(i));
  return pruned;
}

GraphScores graph_scores(const AttributionGraph& graph) {
  const std::vector<bool> all = all_nodes(graph);
  const Shares shares(graph, all);
  std::vector<double> influence = shares.influence();
  const auto sum = [&](int64_t first, int64_t end) {
    return std::accumulate(influence.begin() + first, influence.begin() + end, 0.0);
  };
  const double tokens = sum(graph.first_token(), graph.first_logit()), errors = sum(graph.first_error(), graph.first_token());
  std::vector<double> not_errors(influence.size(), 1.0);
  for (int64_t r = 0; r < graph.rows(); ++r)
    shares.row(r, [&](int64_t source, double share) {
      if (source >= graph.first_error() && source < graph.first_token())
        not_errors[static_cast<size_t>(graph.node_of_row(r))] -= share;
    });
  const std::vector<double> weights = Shares::logit_weights(graph);
  double complete = 0, total = 0;
  for (size_t i = 0; i < influence.size(); ++i) {
    complete += not_errors[i] * (influence[i] + weights[i]);
    total += influence[i] + weights[i];
  }
  return {tokens + errors > 0 ? tokens / (tokens + errors) : 0, total > 0 ? complete / total : 0};
}

PartialInfluence::PartialInfluence(int64_t width, std::span<const GraphLogit> logits) : width_(width) {
  for (const GraphLogit& logit : logits) probabilities_.push_back(logit.probability);
}

void PartialInfluence::add_row(int64_t target, std::span<const float> effects) {
  double sum = 0;
  for (const float x : effects) sum += std::abs(static_cast<double>(x));
  rows_.push_back({target, effects, std::max(sum, 1e-8)});
}

std::vector<double> PartialInfluence::of_nodes() const {
  std::vector<double> total(static_cast<size_t>(width_), 0.0), now;
  for (int step = 0; step < kMostSteps; ++step) {
    std::vector<double> next(total.size(), 0.0);
    bool any = false;
    for (const Row& row : rows_) {
      const double weight = row.target < 0 ? (step == 0 ? probabilities_[static_cast<size_t>(-1 - row.target)] : 0)
                                           : (step == 0 ? 0 : now[static_cast<size_t>(row.target)]);
      if (weight == 0) continue;
      any = true;
      for (size_t i = 0; i < next.size(); ++i) next[i] += weight / row.sum * std::abs(static_cast<double>(row.effects[i]));
    }
    if (!any) break;
    for (size_t i = 0; i < total.size(); ++i) total[i] += next[i];
    now = std::move(next);
  }
  return total;
}

}  // namespace vitrine
