// Pictures of a model's sizes: what they are chosen between, and what they make possible.
#include <algorithm>
#include <cmath>

#include "picture/data/studio.h"

namespace vitrine {
namespace {

double log10_of_sum(const std::vector<double>& logs) {  // natural logarithms
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double l : logs) sum += std::exp(l - most);
  return (most + std::log(sum)) / std::log(10.0);
}

double log_choose(double n, double k) { return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1); }

// log10 of the largest number of regions into which so many hyperplanes cut a space of `inputs` dimensions: those through the
// origin, 2 Σ C(units − 1, k) for k < inputs (Cover 1965), or anywhere, Σ C(units, k) for k ≤ inputs (Schläfli; Zaslavsky 1975).
double log10_regions(int64_t inputs, int64_t units, bool through_origin) {
  const int64_t planes = through_origin ? units - 1 : units, last = std::min(through_origin ? inputs - 1 : inputs, planes);
  std::vector<double> logs;
  for (int64_t k = 0; k <= last; ++k) logs.push_back(log_choose(static_cast<double>(planes), static_cast<double>(k)));
  return log10_of_sum(logs) + (through_origin ? std::log10(2.0) : 0);
}

// The same count in integers, where it is small.
int64_t regions(int64_t inputs, int64_t units, bool through_origin) {
  const int64_t planes = through_origin ? units - 1 : units, last = std::min(through_origin ? inputs - 1 : inputs, planes);
  int64_t sum = 0, choose = 1;
  for (int64_t k = 0; k <= last; ++k) {
    sum += choose;
    choose = choose * (planes - k) / (k + 1);
  }
  return through_origin ? 2 * sum : sum;
}

// "15995904", "about 2.2·10^2678".
std::string regions_text(int64_t inputs, int64_t units, bool through_origin) {
  constexpr double kExactDigits = 10;
  const double log10 = log10_regions(inputs, units, through_origin);
  if (log10 < kExactDigits) return std::to_string(regions(inputs, units, through_origin));
  return fmt::format("about {:.1f}·10^{:.0f}", std::pow(10, log10 - std::floor(log10)), std::floor(log10));
}

PictureJson regions_row(const std::string& name, int64_t inputs, int64_t units, bool through_origin) {
  return {{"name", name},
          {"inputs", inputs},
          {"units", units},
          {"log10", number(log10_regions(inputs, units, through_origin))},
          {"regions", regions_text(inputs, units, through_origin)}};
}

bool is_power_of_two(int64_t n) { return (n & (n - 1)) == 0; }

}  // namespace

PictureJson data_of_mlp_regions(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  const int64_t inputs = facts.shape.d_model, units = facts.experts ? facts.experts->d_ff : facts.shape.d_ff;
  const bool through_origin = !facts.has_bias(facts.gated ? "mlp.W_gate" : "mlp.W_in");
  const std::string most = regions_text(inputs, units, through_origin);
  PictureJson p = present(
      fmt::format(
          "Each hidden unit cuts the space of inputs in two: above zero on one side, below on the other. {} can cut a space "
          "of {} into {}, each with a formula of its own, and not into more. How many of them the weights "
          "reach is not known; this is the bound that geometry sets.",
          plural(units, "unit"), plural(inputs, "dimension"), most == "1" ? "1 region" : most + " regions"),
      fmt::format(
          "The bound for the toy with 2 inputs and 3 hidden units is 6; for this model (inputs: {}, hidden units: {}) it is "
          "{}.",
          inputs, units, most));
  p["throughOrigin"] = through_origin;
  p["formula"] = through_origin ? "2 · Σ C(units − 1, k), k from 0 to inputs − 1" : "Σ C(units, k), k from 0 to inputs";
  p["rows"] = {regions_row("the toy", 2, 3, true),
               regions_row(facts.experts ? "an expert of this model" : "this model", inputs, units, through_origin),
               regions_row("Gemma 2B (its configuration)", 2048, 16384, true)};
  // From one unit to this model's number, evenly spaced.
  constexpr int kPoints = 33;
  p["units"] = p["log10"] = p["signs"] = PictureJson::array();
  for (int i = 0; i < kPoints; ++i) {
    const int64_t m = 1 + (units - 1) * i / (kPoints - 1);
    if (!p["units"].empty() && p["units"].back() == m) continue;
    p["units"].push_back(m);
    p["log10"].push_back(number(log10_regions(inputs, m, through_origin)));
    p["signs"].push_back(number(static_cast<double>(m) * std::log10(2.0)));
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "regions at most: {formula}", "columns": [["MLP", "rows.*.name"], ["inputs", "rows.*.inputs", "count"], ["hidden units", "rows.*.units", "count"],
       ["regions at most", "rows.*.regions"]]},
    {"detail": true, "columns": [["hidden units", "units.*", "count"], ["log₁₀ of the regions", "log10.*", ".2f"], ["log₁₀ of all combinations, 2 to the units", "signs.*", ".2f"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "How many regions hidden units can make, as a power of ten.", "height": 250,
     "x": {"label": "hidden units"}, "y": {"label": "regions: 10 to the", "zero": true},
     "series": [
       {"name": "regions", "tone": "mlp strong", "draw": "line", "x": "units.*", "y": "log10.*", "hint": "hidden units: {units.*|count}\nregions at most: 10^{log10.*|.1f}"},
       {"name": "on or off, any way", "tone": "plain", "draw": "line", "dashed": true, "x": "units.*", "y": "signs.*", "hint": "hidden units: {units.*|count}\ncombinations of on and off: 10^{signs.*|.1f}"}]}
  ])json");
  return p;
}

PictureJson data_of_head_sizes(Studio& studio) {
  const ModelShape& s = studio.facts.shape;
  const int64_t width = s.n_heads * s.head_dim, tokens = studio.tokens();
  const auto layers = s.n_layers - static_cast<int64_t>(studio.facts.conv_layers.size());
  PictureJson p = present(
      fmt::format(
          "The numbers of all queries of a layer, {} of them, may be shared out in other ways. More heads: more patterns of "
          "attention a "
          "layer, each with fewer numbers to compare; the matrices and the products of queries with keys cost the same. Fewer "
          "key and value heads: a smaller cache, and less that differs between heads. This model has {} of {}, and {}.",
          width, plural(s.n_heads, "head"), plural(s.head_dim, "number"), plural(s.n_kv_heads, "key and value head")),
      fmt::format("{} of {} in a layer: {} in all. A token costs {} bytes of cache.", plural(s.n_heads, "head"),
                  plural(s.head_dim, "number"), plural(s.n_heads * layers, "pattern"),
                  cached_bytes(studio.engine, layers, s.n_kv_heads, s.head_dim)));
  p["width"] = width;
  p["layers"] = layers;
  p["nTokens"] = tokens;
  p["heads"] = p["sharing"] = PictureJson::array();
  for (int64_t heads = 1; heads <= width; ++heads) {
    const int64_t size = width / heads;
    const bool here = heads == s.n_heads;
    // Sizes of one kind with the model's: powers of two, where its own is one.
    const bool usual = width % heads == 0 && size >= 8 && (is_power_of_two(size) || !is_power_of_two(s.head_dim));
    if (!here && !usual) continue;
    p["heads"].push_back({{"heads", heads},
                          {"size", size},
                          {"here", here},
                          {"patterns", heads * layers},
                          {"weights", heads * layers * tokens * (tokens + 1) / 2},
                          {"products", width * layers * tokens * (tokens + 1) / 2},
                          {"pairs", size / 2}});
  }
  for (int64_t kv = 1; kv <= s.n_heads; ++kv) {
    if (s.n_heads % kv != 0) continue;
    const int64_t projections = 2 * s.d_model * kv * s.head_dim;
    p["sharing"].push_back({{"kvHeads", kv},
                            {"title", kv == s.n_heads ? "one for each head (MHA)"
                                      : kv == 1       ? "one for all (MQA)"
                                                      : "groups (GQA)"},
                            {"here", kv == s.n_kv_heads},
                            {"parameters", projections * layers},
                            {"cacheBytes", cached_bytes(studio.engine, layers, kv, s.head_dim)}});
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "{width} numbers of queries, shared out among heads; weights and products for {nTokens} tokens",
     "columns": [["heads", "heads.*.heads"], ["numbers a head", "heads.*.size"], ["", "heads.*.here", "this model"], ["patterns in all layers", "heads.*.patterns", "count"],
       ["attention weights", "heads.*.weights", "count"], ["multiplications of queries with keys", "heads.*.products", "count"]]},
    {"note": "key and value heads",
     "columns": [["key and value heads", "sharing.*.kvHeads"], ["", "sharing.*.title"], ["", "sharing.*.here", "this model"], ["parameters of W_K and W_V", "sharing.*.parameters", "count"],
       ["cache bytes a token", "sharing.*.cacheBytes", "count"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "title": "Patterns of attention, by the number of heads", "label": "Patterns of attention by the number of heads in a layer.", "name": "{heads.*.heads} of {heads.*.size}{heads.*.here|, this model}", "value": "heads.*.patterns",
     "note": "{heads.*.patterns|count}", "hint": "heads: {heads.*.heads}, numbers in each: {heads.*.size}\npatterns in all layers: {heads.*.patterns|count}\nweights for this prompt: {heads.*.weights|count}\nmultiplications of queries with keys: {heads.*.products|count}"},
    {"kind": "bars", "title": "Bytes of cache for one token, by the number of key and value heads", "label": "Bytes of cache for one token by the number of key and value heads.", "name": "{sharing.*.kvHeads}: {sharing.*.title}{sharing.*.here|, this model}", "value": "sharing.*.cacheBytes",
     "note": "{sharing.*.cacheBytes|count}", "hint": "key and value heads: {sharing.*.kvHeads}\nbytes of cache a token: {sharing.*.cacheBytes|count}\nparameters of W_K and W_V: {sharing.*.parameters|count}"}
  ])json");
  return p;
}

}  // namespace vitrine
