#include "analysis.h"

#include <nanobind/stl/complex.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>

#include "arrays.h"
#include "base/error.h"
#include "inspect/circuits.h"
#include "inspect/compare.h"
#include "intervene/recipe.h"
#include "intervene/run.h"

namespace vitrine::python {
namespace {

nb::dict spectrum(const Spectrum& s) {
  nb::dict d;
  d["singular_values"] = s.singular_values;
  d["rank"] = s.rank;
  d["frobenius"] = s.frobenius;
  return d;
}

nb::dict circuits(Session& session, std::optional<int64_t> layer, std::optional<int64_t> head, int64_t offset, bool composition) {
  CircuitTable table;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    table = circuit_table(session.engine, {.layer = layer, .head = head, .offset = offset, .composition = composition});
  }
  nb::list heads, compositions;
  for (const HeadSpectra& h : table.heads) {
    nb::dict d;
    d["layer"] = h.layer;
    d["head"] = h.head;
    d["copying"] = h.copying;
    d["eigenvalues"] = h.eigenvalues;
    d["qk"] = spectrum(h.qk);
    d["ov"] = spectrum(h.ov);
    heads.append(d);
  }
  for (const Composition& c : table.composition) {
    nb::dict d;
    d["from_layer"] = c.from_layer;
    d["from_head"] = c.from_head;
    d["to_layer"] = c.to_layer;
    d["to_head"] = c.to_head;
    d["q"] = c.q;
    d["k"] = c.k;
    d["v"] = c.v;
    compositions.append(d);
  }
  nb::dict result;
  result["heads"] = heads;
  result["composition"] = compositions;
  return result;
}

nb::dict compare(Session& session, Session& other, const Ids& ids, double threshold) {
  const std::vector<int32_t> tokens = token_ids(std::span<const int64_t>(ids.data(), ids.size()));
  if (&session == &other) throw UsageError("a model is compared with itself; load the second file as a model of its own");
  ModelComparison c;
  {
    const nb::gil_scoped_release unlocked;
    const bool first = &session < &other;  // always in this order, so that two threads do not wait for each other
    const Running one(first ? session : other), two(first ? other : session);
    c = compare_models(session.engine, other.engine, tokens, threshold);
  }
  nb::list layers, predictions;
  for (const StreamDifference& s : c.layers) {
    nb::dict d;
    d["point"] = text(s.point);
    d["layer"] = s.layer;
    d["cosine"] = s.cosine;
    d["distance"] = s.distance;
    d["worst_at"] = s.worst_at;
    d["relative"] = s.relative;
    d["attention_mean"] = s.attention_mean;
    d["attention_most"] = s.attention_most;
    d["attention_head"] = s.attention_head;
    d["attention_query"] = s.attention_query;
    layers.append(d);
  }
  for (const PredictionDifference& p : c.predictions) {
    nb::dict d;
    d["position"] = p.position;
    d["kl"] = p.kl;
    d["top"] = nb::make_tuple(p.top_a.token, p.top_b.token);
    d["logprobs"] = nb::make_tuple(p.top_a.logprob, p.top_b.logprob);
    predictions.append(d);
  }
  nb::dict result;
  result["dtypes"] = nb::make_tuple(c.dtypes_a, c.dtypes_b);
  result["layers"] = layers;
  result["predictions"] = predictions;
  result["kl_mean"] = c.kl_mean;
  result["kl_most"] = c.kl_most;
  result["same_top"] = c.same_top;
  result["first_beyond"] = c.first_beyond;
  return result;
}

nb::str intervene_by(Session& session, const nb::bytes& path, int64_t top, bool all_positions) {
  const std::string file(path.c_str(), path.size());
  std::string document;
  {
    const nb::gil_scoped_release unlocked;
    Recipe recipe = read_recipe(file);
    if (!recipe.model.empty() || !recipe.adapter.empty())
      throw InputError(
          "the recipe names a model; here it is run by the model whose intervene() is called, so leave model and "
          "adapter out of the recipe");
    const Running running(session);
    const InterveneResult result = intervene(session.engine, recipe, {.top = top, .all_positions = all_positions});
    document = to_json(result, session.engine).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  return text(document);
}

}  // namespace

void bind_analysis(nb::class_<Session>& session) {
  session
      .def("circuits", &circuits, nb::arg("layer").none(), nb::arg("head").none(), nb::arg("offset"), nb::arg("composition"),
           nb::sig("def circuits(self, layer: int | None, head: int | None, offset: int, composition: bool) -> dict[str, "
                   "typing.Any]"))
      .def("compare", &compare, nb::arg("other"), nb::arg("ids"), nb::arg("threshold"),
           nb::sig("def compare(self, other: Session, ids: numpy.typing.NDArray[numpy.int64], threshold: float) -> dict[str, "
                   "typing.Any]"))
      .def("intervene", &intervene_by, nb::arg("path"), nb::arg("top"), nb::arg("all_positions"),
           "The document of `vitrine intervene --json` for the recipe in this file.");
}

}  // namespace vitrine::python
