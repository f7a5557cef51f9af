#include "graphs.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "graph/attribution_graph.h"
#include "graph/influence.h"
#include "graph/json.h"
#include "sae/transcoder_set.h"

namespace vitrine::python {
namespace {

using SharedGraph = std::shared_ptr<AttributionGraph>;

SharedGraph make_graph(Session& session, const std::shared_ptr<TranscoderSet>& set, const Ids& ids, int64_t max_features,
                       int64_t max_logits, double logit_share, const std::vector<int64_t>& targets, int64_t ignored_positions,
                       int64_t ranked_together, int64_t memory) {
  GraphOptions options;
  options.max_features = max_features;
  options.max_logits = max_logits;
  options.logit_share = logit_share;
  options.targets = token_ids(std::span<const int64_t>(targets));
  options.ignored_positions = ignored_positions;
  options.ranked_together = ranked_together;
  options.memory = static_cast<size_t>(std::max<int64_t>(memory, 0));
  const std::vector<int32_t> tokens = token_ids(std::span<const int64_t>(ids.data(), ids.size()));
  const nb::gil_scoped_release unlocked;
  const Running running(session);
  return std::make_shared<AttributionGraph>(attribution_graph(session.engine, *set, tokens, options));
}

// Where the effects lie, read-only; the array keeps the graph alive.
nb::object effects_of(const SharedGraph& graph) {
  const size_t shape[] = {static_cast<size_t>(graph->rows()), static_cast<size_t>(graph->nodes())};
  auto kept = std::make_unique<SharedGraph>(graph);
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<SharedGraph*>(p); });
  kept.release();
  return nb::cast(nb::ndarray<nb::numpy, const float>(graph->effects.data(), 2, shape, owner));
}

nb::list places_of(const AttributionGraph& graph) {
  nb::list places;
  for (const GraphFeature& f : graph.active) places.append(nb::make_tuple(f.layer, f.position, f.feature, f.value));
  return places;
}

nb::list logits_of(const AttributionGraph& graph) {
  nb::list logits;
  for (const GraphLogit& logit : graph.logits) logits.append(nb::make_tuple(logit.token, text(logit.text), logit.probability));
  return logits;
}

// (nodes, [(source, target, effect)], influence, reached, the viewer's document)
nb::tuple pruned(const AttributionGraph& graph, double node_threshold, double edge_threshold, const nb::str& slug) {
  const std::string name = utf8(slug);
  PrunedGraph kept;
  std::string document;
  {
    const nb::gil_scoped_release unlocked;
    kept = prune(graph, node_threshold, edge_threshold);
    document = graph_document(graph, kept, name).dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  nb::list edges;
  for (const GraphEdge& e : kept.edges) edges.append(nb::make_tuple(e.source, e.target, e.effect));
  return nb::make_tuple(kept.nodes, edges, kept.influence, kept.reached, text(document));
}

}  // namespace

void bind_graphs(nb::module_& m) {
  nb::class_<AttributionGraph>(m, "Graph", "An attribution graph; vitrine/attribution_graphs.py makes it pleasant.")
      .def_prop_ro("tokens", [](const AttributionGraph& g) { return g.tokens; })
      .def_prop_ro(
          "token_texts",
          [](const AttributionGraph& g) {
            nb::list texts;
            for (const std::string& one : g.token_texts) texts.append(text(one));
            return texts;
          },
          nb::sig("def token_texts(self, /) -> list[str]"))
      .def_prop_ro("prompt", [](const AttributionGraph& g) { return text(g.prompt); })
      .def_prop_ro("n_layers", [](const AttributionGraph& g) { return g.n_layers; })
      .def_prop_ro("active", &places_of, nb::sig("def active(self, /) -> list[tuple[int, int, int, float]]"))
      .def_prop_ro("selected", [](const AttributionGraph& g) { return g.selected; })
      .def_prop_ro("logits", &logits_of, nb::sig("def logits(self, /) -> list[tuple[int, str, float]]"))
      .def_prop_ro("effects", &effects_of, nb::sig("def effects(self, /) -> numpy.typing.NDArray[numpy.float32]"))
      .def("scores",
           [](const AttributionGraph& g) {
             const nb::gil_scoped_release unlocked;
             const GraphScores scores = graph_scores(g);
             return std::vector<double>{scores.replacement, scores.completeness};
           })
      .def("prune", &pruned, nb::arg("node_threshold"), nb::arg("edge_threshold"), nb::arg("slug"),
           nb::sig("def prune(self, node_threshold: float, edge_threshold: float, slug: str) -> "
                   "tuple[list[int], list[tuple[int, int, float]], list[float], list[float], str]"));
}

void bind_graph_calls(nb::class_<Session>& session) {
  session.def(
      "attribution_graph", &make_graph, nb::arg("transcoders"), nb::arg("ids"), nb::arg("max_features"), nb::arg("max_logits"),
      nb::arg("logit_share"), nb::arg("targets"), nb::arg("ignored_positions"), nb::arg("ranked_together"), nb::arg("memory"),
      nb::sig(
          "def attribution_graph(self, transcoders: TranscoderSet, ids: numpy.typing.NDArray[numpy.int64], max_features: int, "
          "max_logits: int, logit_share: float, targets: collections.abc.Sequence[int], ignored_positions: int, "
          "ranked_together: int, memory: int) -> Graph"));
  session.def(
      "graph_ids",
      [](const Session& s, const Ids& ids) {
        const std::vector<int32_t> made = graph_ids(s.engine, token_ids(std::span<const int64_t>(ids.data(), ids.size())));
        return std::vector<int64_t>(made.begin(), made.end());
      },
      nb::arg("ids"), nb::sig("def graph_ids(self, ids: numpy.typing.NDArray[numpy.int64]) -> list[int]"));
}

}  // namespace vitrine::python
