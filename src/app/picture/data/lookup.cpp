// One row of attention as a lookup: a query is matched against keys and takes a mixture of their values.
#include <algorithm>
#include <cmath>

#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_lookup(Studio& studio) {
  const Observation& seen = studio.seen;
  const auto sources = static_cast<size_t>(seen.row_target) + 1;
  const size_t size = seen.row_values.size() / sources;
  if (size == 0 || seen.row_mixture.size() != size || seen.row_values.size() != sources * size)
    return absent("This layer takes its values from another layer, so they are not here to be shown.");
  const auto value = [&](size_t source, size_t i) { return static_cast<double>(seen.row_values[source * size + i]); };
  std::vector<size_t> shown;
  for (size_t s = 0; s < sources; ++s)
    if (std::isfinite(seen.row_scores[s])) shown.push_back(s);
  const size_t best = *std::max_element(shown.begin(), shown.end(),
                                        [&](size_t a, size_t b) { return seen.row_weights[a] < seen.row_weights[b]; });
  constexpr size_t kMost = 24, kComponents = 12;
  if (shown.size() > kMost) {
    std::nth_element(shown.begin(), shown.begin() + kMost, shown.end(),
                     [&](size_t a, size_t b) { return seen.row_weights[a] > seen.row_weights[b]; });
    shown.resize(kMost);
    std::sort(shown.begin(), shown.end());
  }
  // What the weights and values of all tokens give, beside what the model computed.
  double error = 0, dot = 0, mixture = 0, picked = 0;
  for (size_t i = 0; i < size; ++i) {
    double sum = 0;
    for (size_t s = 0; s < sources; ++s) sum += static_cast<double>(seen.row_weights[s]) * value(s, i);
    error = std::max(error, std::abs(sum - static_cast<double>(seen.row_mixture[i])));
    dot += sum * value(best, i);
    mixture += sum * sum;
    picked += value(best, i) * value(best, i);
  }
  const double cosine = mixture > 0 && picked > 0 ? dot / std::sqrt(mixture * picked) : 0;
  PictureJson p = present(
      fmt::format(
          "Layer {}, head {}, as a lookup. A database compares a query with its keys and returns the value of the one that "
          "matches. Here every key matches a little: the weights say how much, and the result is the mixture of all values "
          "with these weights, the last row of the grid.",
          seen.row_layer, seen.row_head),
      fmt::format(
          "The best match is token {} with weight {:.3f}; a database would return its value alone. The mixture's cosine with "
          "that value is {:.3f}.",
          best, static_cast<double>(seen.row_weights[best]), cosine));
  p["layer"] = seen.row_layer;
  p["head"] = seen.row_head;
  p["target"] = seen.row_target;
  p["best"] = best;
  p["bestWeight"] = number(static_cast<double>(seen.row_weights[best]));
  p["cosine"] = number(cosine);
  p["error"] = number(error);
  p["sources"] = shown;
  const size_t components = std::min(kComponents, size);
  p["size"] = size;
  p["shown"] = components;
  p["scores"] = p["weights"] = p["names"] = p["values"] = PictureJson::array();
  double most = 0;
  for (const size_t s : shown) {
    p["scores"].push_back(number(static_cast<double>(seen.row_scores[s])));
    p["weights"].push_back(number(static_cast<double>(seen.row_weights[s])));
    p["names"].push_back(studio.piece(studio.mention(studio.prompt.ids[s])));
    std::vector<double> row;
    for (size_t i = 0; i < components; ++i) row.push_back(value(s, i)), most = std::max(most, std::abs(value(s, i)));
    p["values"].push_back(numbers(row));
  }
  p["names"].push_back("mixture");
  p["values"].push_back(numbers(std::span<const float>(seen.row_mixture).first(components)));
  p["most"] = number(most);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the query of token {target} {target|at} in layer {layer}, head {head}", "keep": "last", "most": 24,
     "columns": [["key of", "sources.*", "at"], ["match (score)", "scores.*", ".3f"], ["weight", "weights.*", ".4f"]]},
    {"note": "values, their first {shown} of {size} numbers; the mixture is the sum of weight · value", "detail": true,
     "grid": {"corner": "value of", "rows": "{names.#0|piece}", "columns": "{#1}", "values": "values.*.*", "middle": 0, "reach": "most"}}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "title": "How well each key matches the query of {target|at}", "label": "Weight of each key.", "name": "{sources.*|at}", "value": "weights.*", "most": 1,
     "note": "{weights.*|%}", "hint": "key of {sources.*|place}\nscore {scores.*|.3f}\nweight {weights.*|.4f}"},
    {"kind": "grid", "title": "The values, and their mixture", "label": "Values of the tokens and their mixture.", "values": "values.*.*", "rows": "{names.#0|piece}", "columns": "{#1}", "columnTitle": "number of the value",
     "scale": "diverging", "cell": 34, "tall": 24, "hint": "{names.#0|piece}\nnumber {#1} of {size}: {values.*.*}", "key": {"label": "value"}}
  ])json");
  return p;
}

}  // namespace vitrine
