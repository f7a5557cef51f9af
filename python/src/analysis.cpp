#include "analysis.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "inspect/circuits.h"
#include "inspect/compare.h"
#include "intervene/recipe.h"
#include "intervene/run.h"
#include "objects.h"
#include "runtime/token_json.h"

namespace vitrine::python {
namespace {

nb::object circuits(Session& session, std::optional<int64_t> layer, std::optional<int64_t> head, int64_t offset,
                    bool composition) {
  CircuitTable table;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    table = circuit_table(session.engine, {.layer = layer, .head = head, .offset = offset, .composition = composition});
  }
  return python_of(table);
}

nb::object compare(Session& session, Session& other, const Ids& ids, double threshold) {
  const std::vector<int32_t> tokens = token_ids(std::span<const int64_t>(ids.data(), ids.size()));
  if (&session == &other) throw UsageError("a model is compared with itself; load the second file as a model of its own");
  ModelComparison c;
  {
    const nb::gil_scoped_release unlocked;
    const bool first = &session < &other;  // always in this order, so that two threads do not wait for each other
    const Running one(first ? session : other), two(first ? other : session);
    c = compare_models(session.engine, other.engine, tokens, threshold);
  }
  return python_of(c, speller_of(session.engine));
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
    std::vector<SplicedSae> saes = read_saes(recipe.saes);
    std::shared_ptr<const SplicedModel> spliced = session.spliced();
    if (!saes.empty()) {
      if (spliced != nullptr)
        for (const SplicedModel::Place& place : spliced->places()) saes.push_back({place.sae, place.keep_error});
      spliced = std::make_shared<const SplicedModel>(session.base(), saes);
    }
    const Running running(session, spliced);
    const InterveneResult result = intervene(session.engine, recipe, {.top = top, .all_positions = all_positions});
    document = to_json(result, session.engine).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  return text(document);
}

}  // namespace

void bind_analysis(nb::class_<Session>& session) {
  session
      .def("circuits", &circuits, nb::arg("layer").none(), nb::arg("head").none(), nb::arg("offset"), nb::arg("composition"),
           nb::sig("def circuits(self, layer: int | None, head: int | None, offset: int, composition: bool) -> typing.Any"))
      .def("compare", &compare, nb::arg("other"), nb::arg("ids"), nb::arg("threshold"),
           nb::sig("def compare(self, other: Session, ids: numpy.typing.NDArray[numpy.int64], threshold: float) -> typing.Any"))
      .def("intervene", &intervene_by, nb::arg("path"), nb::arg("top"), nb::arg("all_positions"),
           "The document of `vitrine intervene --json` for the recipe in this file.");
}

}  // namespace vitrine::python
