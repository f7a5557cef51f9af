// Pictures of attention: who looks where, how heads share keys, what a cap changes, what a layer can reach.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/kv_cache.h"
#include "picture/data/soft_cap.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

// Means of `count` numbers; NaN, which is written as null, where there are none.
std::vector<double> over(const std::vector<double>& sums, double count) {
  std::vector<double> means;
  for (const double s : sums) means.push_back(count > 0 ? s / count : std::numeric_limits<double>::quiet_NaN());
  return means;
}

// cap · atanh(s / cap) of the largest capped number: what it was before the cap.
double before_cap(double capped, double cap) { return cap * std::atanh(std::min(capped / cap, std::tanh(kMostCaps))); }
std::string largest_text(double largest, double cap) { return at_least(fmt::format("{:.3g}", largest), largest, cap); }

constexpr int64_t kDefaultSpan = 8192;  // positions of a cache where the context has no limit

// The two heads that look most at a place, by place.
PictureJson most_looking(const PictureJson& p) {
  PictureJson rows = PictureJson::array();
  for (const auto& [key, name] :
       {std::pair{"onFirst", "first token"}, std::pair{"onPrevious", "token before"}, std::pair{"onSelf", "token itself"}}) {
    std::vector<std::array<double, 3>> heads;
    for (size_t l = 0; l < p.at(key).size(); ++l)
      for (size_t h = 0; h < p.at(key)[l].size(); ++h)
        if (!p.at(key)[l][h].is_null())
          heads.push_back({-p.at(key)[l][h].get<double>(), static_cast<double>(l), static_cast<double>(h)});
    std::sort(heads.begin(), heads.end());
    heads.resize(2, {std::nan(""), std::nan(""), std::nan("")});
    PictureJson& row = rows.emplace_back(PictureJson{{"at", name}, {"heads", PictureJson::array()}});
    for (const auto& [weight, layer, head] : heads)
      row["heads"].push_back({{"layer", number(layer)}, {"head", number(head)}, {"weight", number(-weight)}});
  }
  return rows;
}

void declare_tables(PictureJson& p, const PictureOptions& options) {
  p["tables"] = PictureJson::parse(R"json([
    {"note": "how flat each head is, from 0 (one token) to 1 (everywhere alike); --layer and --head show a head's weights", "most": 23,
     "grid": {"corner": "head \\ layer", "rows": "{#1}", "columns": "{#0}", "values": "flatness.*.*", "middle": 0.5, "reach": 0.5, "across": true}},
    {"note": "mean weight of the heads that look there most",
     "columns": [["at", "mostLooking.*.at"], ["layer", "mostLooking.*.heads.0.layer"], ["head", "mostLooking.*.heads.0.head"], ["weight", "mostLooking.*.heads.0.weight", ".3f"],
       ["layer", "mostLooking.*.heads.1.layer"], ["head", "mostLooking.*.heads.1.head"], ["weight", "mostLooking.*.heads.1.weight", ".3f"]]},
    {"note": "The single weights are in the JSON.", "detail": true, "columns": [["layer", "#0"], ["head", "#1"], ["flatness", "flatness.*.*"],
       ["on the first token", "onFirst.*.*"], ["on the token before", "onPrevious.*.*"], ["on itself", "onSelf.*.*"]]}
  ])json");
  p["mostLooking"] = most_looking(p);
  if (!options.layer && !options.head) return;
  const bool full = p.at("level") == "full";
  const std::string head = fmt::format("{}.{}", options.layer.value_or(0), options.head.value_or(0));
  PictureJson& tables = p["tables"];
  tables.erase(1);
  tables[0] = {{"note", fmt::format("weights of layer {}, head {}{}", options.layer.value_or(0), options.head.value_or(0),
                                    full ? "" : ", the largest of each tile")},
               {"keep", "last"},
               {"grid",
                {{"corner", full ? "target \\ source" : "tokens from"},
                 {"rows", full ? "{#0} {#0|at}" : "{tiles.from.#0}"},
                 {"columns", full ? "{#1|at}" : "{tiles.from.#1}"},
                 {"values", (full ? "patterns." : "tiles.max.") + head + ".*.*"},
                 {"square", true},
                 {"blank", true}}}};
}

// What caps change, in words: of the head where it is most, and of the logits.
PictureJson capped_in_words(const PictureJson& p) {
  PictureJson rows = PictureJson::array();
  const auto most = [](const PictureJson& layers) {
    PictureJson largest = 0;
    for (const PictureJson& layer : layers)
      for (const PictureJson& value : layer) largest = std::max(largest, value);
    return largest;
  };
  const auto add = [&](const char* what, const PictureJson& of, const auto& pick) {
    const double largest = pick(of.at("largest")).template get<double>();
    rows.push_back({{"what", what},
                    {"cap", of.at("cap")},
                    {"changed", pick(of.at("changed"))},
                    {"beyondHalf", pick(of.at("beyondHalf"))},
                    {"largest", at_least(fmt::format("{:.4g}", largest), largest, of.at("cap").get<double>())}});
  };
  if (!p.at("attention").is_null()) add("scores of the head most changed", p.at("attention"), most);
  if (!p.at("final").is_null()) add("logits", p.at("final"), [](const PictureJson& value) { return value; });
  return rows;
}

}  // namespace

PictureJson data_of_head_grouping(Studio& studio) {
  const ModelShape& s = studio.facts.shape;
  const auto layers = s.n_layers - static_cast<int64_t>(studio.facts.conv_layers.size());
  const std::string kind = studio.facts.heads_title();
  const int64_t per_group = s.n_heads / s.n_kv_heads;
  const int64_t cache = cached_bytes(studio.engine, layers, s.n_kv_heads, s.head_dim),
                cache_mha = cached_bytes(studio.engine, layers, s.n_heads, s.head_dim);
  PictureJson p =
      present(kind == "MHA"   ? "Multi-head attention: every query head has a key and value head of its own."
              : kind == "MQA" ? fmt::format("Multi-query attention: all {} query heads read the same keys and values.", s.n_heads)
                              : fmt::format("Grouped-query attention: {} query heads share {} key and value heads, {} to each.",
                                            s.n_heads, s.n_kv_heads, per_group),
              fmt::format("{} above {}. One position costs {} bytes of cache in all layers{}; with a key and "
                          "value head for each query head it would be {}.",
                          plural(s.n_heads, "query head"), plural(s.n_kv_heads, "key and value head"), cache,
                          layers < s.n_layers ? " with attention" : "", cache_mha));
  p["kind"] = kind;
  p["groups"] = PictureJson::array();
  for (int64_t g = 0; g < s.n_kv_heads; ++g) {
    std::vector<int64_t> heads(static_cast<size_t>(per_group));
    std::iota(heads.begin(), heads.end(), g * per_group);
    p["groups"].push_back(heads);
  }
  p["headDim"] = s.head_dim;
  const int64_t q = s.d_model * s.n_heads * s.head_dim, k = s.d_model * s.n_kv_heads * s.head_dim;
  p["parameters"] = {{"q", q}, {"k", k}, {"v", k}, {"o", q}};
  p["cacheBytesPerPosition"] = cache;
  p["cacheBytesPerPositionMha"] = cache_mha;
  p["tables"] = PictureJson::parse(R"json([
    {"note": "{kind}", "most": 23, "columns": [["key and value head", "#0"], ["query heads", "groups.*"]]},
    {"note": "parameters of one layer", "columns": [["W_Q", "parameters.q"], ["W_K", "parameters.k"], ["W_V", "parameters.v"], ["W_O", "parameters.o"],
       ["cache bytes/position", "cacheBytesPerPosition"]]}
  ])json");
  return p;
}

PictureJson data_of_softmax(Studio& studio) {
  const Observation& seen = studio.seen;
  PictureJson p = present(
      fmt::format("Softmax turns scores into weights that sum to 1: each weight is e to its score, over the sum. A difference of "
                  "scores becomes a ratio of weights. The longer row is that of token {} in layer {}, head {}{}.",
                  seen.row_target, seen.row_layer, seen.row_head,
                  studio.facts.sinks ? ", together with the head's sink: a learned score that takes part in the softmax and has "
                                       "no value, so that the tokens' weights sum to less than 1"
                                     : ""),
      "");
  const double e = std::exp(-0.693);
  p["pair"] = {{"scores", {0, -0.693}}, {"weights", {number(1 / (1 + e)), number(e / (1 + e))}}};
  p["layer"] = seen.row_layer;
  p["head"] = seen.row_head;
  p["target"] = seen.row_target;
  std::vector<size_t> sources;
  for (size_t s = 0; s < seen.row_scores.size(); ++s)
    if (std::isfinite(seen.row_scores[s])) sources.push_back(s);
  constexpr size_t kMost = 32;
  if (sources.size() > kMost) {
    std::nth_element(sources.begin(), sources.begin() + kMost, sources.end(),
                     [&](size_t a, size_t b) { return seen.row_weights[a] > seen.row_weights[b]; });
    sources.resize(kMost);
    std::sort(sources.begin(), sources.end());
  }
  p["sources"] = sources;
  p["scores"] = p["weights"] = PictureJson::array();
  size_t strongest = sources.front();
  for (const size_t s : sources) {
    p["scores"].push_back(number(static_cast<double>(seen.row_scores[s])));
    p["weights"].push_back(number(static_cast<double>(seen.row_weights[s])));
    if (seen.row_weights[s] > seen.row_weights[strongest]) strongest = s;
  }
  p["sink"] = nullptr;
  std::string sinks;
  if (const Vector* scores = studio.engine.model().layer(seen.row_layer).attention.sinks) {
    const double score = scores->at<double>(seen.row_head), taken = 1 / (1 + std::exp(log_sum_exp(seen.row_scores) - score));
    p["sink"] = {{"score", number(score)}, {"weight", number(taken)}};
    sinks = fmt::format(" The tokens' weights sum to {:.3f}; the sink takes the other {:.3f}.", 1 - taken, taken);
  }
  p["alt"] =
      fmt::format("Scores 0 and −0.693 become weights 2/3 and 1/3. In this run the largest weight, {:.3f}, is on token {}.{}",
                  seen.row_weights[strongest], strongest, sinks);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "layer {layer}, head {head}, target {target} {target|at}", "keep": "last", "most": 24,
     "columns": [["at", "sources.*"], ["source", "sources.*", "at"], ["score", "scores.*", ".3f"], ["weight", "weights.*", ".4f"]]},
    {"note": "the sink, which takes the rest of the weight", "columns": [["score", "sink.score", ".3f"], ["weight", "sink.weight", ".4f"]]}
  ])json");
  return p;
}

PictureJson data_of_attention(Studio& studio) {
  const Observation& seen = studio.seen;
  const ModelShape& s = studio.facts.shape;
  const PatternLevel& level = seen.level;
  const double targets = static_cast<double>(seen.tokens - 1);
  // A head none of whose targets sees two positions (one token, a window of one) has no choice to make and no flatness: NaN.
  std::vector<std::vector<double>> flatness, first, previous, self;
  std::vector<std::vector<int64_t>> order;
  for (const LayerPatterns& layer : seen.patterns) {
    std::vector<double>& flat = flatness.emplace_back();
    for (size_t h = 0; h < layer.entropy_share.size(); ++h)
      flat.push_back(layer.seen_rows[h] > 0 ? layer.entropy_share[h] / layer.seen_rows[h]
                                            : std::numeric_limits<double>::quiet_NaN());
    std::vector<int64_t>& heads = order.emplace_back(flat.size());
    std::iota(heads.begin(), heads.end(), 0);
    std::sort(heads.begin(), heads.end(), [&](int64_t a, int64_t b) {
      const double of_a = flat[static_cast<size_t>(a)], of_b = flat[static_cast<size_t>(b)];
      if (std::isnan(of_a) != std::isnan(of_b)) return std::isnan(of_b);
      return of_a > of_b || (!(of_b > of_a) && a < b);
    });
    first.push_back(over(layer.on_first, targets));
    previous.push_back(over(layer.on_previous, targets));
    self.push_back(over(layer.on_self, targets));
  }
  struct Extreme {
    double value;
    size_t layer, head;
  };
  Extreme flattest{-1, 0, 0}, spikiest{2, 0, 0};
  for (size_t l = 0; l < flatness.size(); ++l)
    for (size_t h = 0; h < flatness[l].size(); ++h) {
      if (flatness[l][h] > flattest.value) flattest = {flatness[l][h], l, h};
      if (flatness[l][h] < spikiest.value) spikiest = {flatness[l][h], l, h};
    }
  const std::string extremes = flattest.value < 0
                                   ? "No token sees more than one position, so no head is flatter than another."
                                   : fmt::format("The flattest head is layer {}, head {}; the spikiest layer {}, head {}.",
                                                 flattest.layer, flattest.head, spikiest.layer, spikiest.head);
  PictureJson p = present(
      fmt::format("Attention weights of every head in every layer: for each target token (down) how much of each source token "
                  "(across) it takes in; each row sums to {}, and nothing lies right of the diagonal, since no token sees later "
                  "ones. The stronger the color, the more weight.{}",
                  studio.facts.sinks ? "less than 1, because the head's sink takes the rest" : "1",
                  studio.facts.conv_layers.empty()
                      ? ""
                      : fmt::format(" In {} a {} stands in the place of attention: the grids there "
                                    "are empty.",
                                    studio.facts.conv_layers_text(), studio.facts.recurrent ? "recurrence" : "convolution")),
      fmt::format("{} of {} × {}. {}", plural(s.n_layers * s.n_heads, "grid"), seen.tokens, plural(seen.tokens, "token"),
                  extremes));
  p["nTokens"] = seen.tokens;
  p["nLayers"] = s.n_layers;
  p["nHeads"] = s.n_heads;
  p["level"] = level.full ? "full" : "tiles";
  p["patterns"] = p["tiles"] = p["top"] = nullptr;
  constexpr double k16 = 1.0 / 65535, k8 = 1.0 / 255;
  if (level.full) {
    p["patterns"] = PictureJson::array();
    for (const LayerPatterns& layer : seen.patterns)
      p["patterns"].push_back(packed(std::span<const uint16_t>(layer.full), {s.n_heads, seen.tokens, seen.tokens}, k16, true));
  } else {
    p["tiles"] = {{"bins", level.bins},
                  {"tokensPerBin", level.tokens_per_bin},
                  {"from", PictureJson::array()},
                  {"max", PictureJson::array()}};
    for (int64_t bin = 0; bin < level.bins; ++bin) p["tiles"]["from"].push_back(bin * level.tokens_per_bin);
    for (const LayerPatterns& layer : seen.patterns)
      p["tiles"]["max"].push_back(packed(std::span<const uint8_t>(layer.tiles), {s.n_heads, level.bins, level.bins}, k8, true));
    if (level.top > 0) {
      p["top"] = {{"k", level.top}, {"sources", PictureJson::array()}, {"weights", PictureJson::array()}};
      const std::vector<int64_t> shape = {s.n_heads, seen.tokens, level.top};
      for (const LayerPatterns& layer : seen.patterns) {
        p["top"]["sources"].push_back(packed(std::span<const uint16_t>(layer.top_sources), shape, 1, false));
        p["top"]["weights"].push_back(packed(std::span<const uint16_t>(layer.top_weights), shape, k16, false));
      }
    }
  }
  p["flatness"] = table(flatness);
  p["flatToSpiky"] = order;
  p["onFirst"] = table(first);
  p["onPrevious"] = table(previous);
  p["onSelf"] = table(self);
  declare_tables(p, studio.options);

  return p;
}

PictureJson data_of_soft_cap(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  const Observation& seen = studio.seen;
  const bool any = facts.attention_softcap != 0 || facts.final_softcap != 0;
  PictureJson p = present(any ? "A soft cap lets small scores through and bends large ones towards a limit: cap · tanh(s / cap). "
                                "Counted for this run: "
                                "scores that the cap changes by more than one hundredth of themselves (|s| above 0.17 of the "
                                "cap), and those beyond half of it."
                              : "A soft cap lets small scores through and bends large ones towards a limit: cap · tanh(s / cap). "
                                "This model has none.",
                          "");
  std::vector<double> x, y;
  for (int i = 0; i <= 160; ++i) x.push_back(-4 + 0.05 * i), y.push_back(std::tanh(x.back()));
  p["curve"] = {{"x", numbers(x)}, {"y", numbers(y)}};
  const std::vector<double> example = {0.5, 1, 2, 3};
  std::vector<double> capped;
  for (const double v : example) capped.push_back(2 * std::tanh(v / 2));
  p["example"] = {{"cap", 2},
                  {"x", numbers(example)},
                  {"y", numbers(capped)},
                  {"inCaps", {{"x", {0.25, 0.5, 1, 1.5}}, {"y", PictureJson::array()}}}};
  for (const double value : capped) p["example"]["inCaps"]["y"].push_back(number(value / 2));
  p["attention"] = p["final"] = nullptr;
  std::string alt = "A curve along the diagonal near 0 that levels off at the cap.";
  if (const double cap = facts.attention_softcap; cap != 0) {
    std::vector<std::vector<double>> changed, half, largest;
    double scores = 0, moved = 0, most = 0;
    for (const auto& layer : seen.caps) {
      changed.emplace_back(), half.emplace_back(), largest.emplace_back();
      for (const CapCount& c : layer) {
        changed.back().push_back(c.changed / c.scores);
        half.back().push_back(c.beyond_half / c.scores);
        largest.back().push_back(before_cap(c.largest_capped, cap));
        scores += c.scores, moved += c.changed, most = std::max(most, largest.back().back());
      }
    }
    p["attention"] = {{"cap", number(cap)},
                      {"changed", table(changed)},
                      {"beyondHalf", table(half)},
                      {"largest", table(largest)},
                      {"most", PictureJson::array()}};
    for (const auto& layer : largest) {
      PictureJson& row = p["attention"]["most"].emplace_back(PictureJson::array());
      for (const double value : layer) row.push_back(is_most(value, cap));
    }
    alt += fmt::format(" Attention scores are capped at {:g}: {:.2f} % of them change, the largest was {}.", cap,
                       100 * moved / scores, largest_text(most, cap));
  }
  if (const double cap = facts.final_softcap; cap != 0) {
    const CapCount& c = seen.final_cap;
    const double largest = before_cap(c.largest_capped, cap);
    p["final"] = {{"cap", number(cap)},
                  {"changed", number(c.changed / c.scores)},
                  {"beyondHalf", number(c.beyond_half / c.scores)},
                  {"largest", number(largest)},
                  {"most", is_most(largest, cap)}};
    alt += fmt::format(" Logits are capped at {:g}: {:.2f} % of them change, the largest was {}.", cap,
                       100 * c.changed / c.scores, largest_text(largest, cap));
  }
  p["alt"] = alt;
  p["capped"] = capped_in_words(p);
  p["uncapped"] = any ? PictureJson(nullptr) : PictureJson(true);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "% of scores that the cap changes by more than 1 %", "most": 23,
     "grid": {"corner": "head \\ layer", "rows": "{#1}", "columns": "{#0}", "values": "attention.changed.*.*", "across": true, "as": "%"}},
    {"columns": [["capped", "capped.*.what"], ["cap", "capped.*.cap"], ["changed", "capped.*.changed", "%"], ["beyond half", "capped.*.beyondHalf", "%"], ["largest", "capped.*.largest"]]},
    {"detail": true, "columns": [["layer", "#0"], ["head", "#1"], ["changed by more than 1 %", "attention.changed.*.*"],
       ["beyond half the cap", "attention.beyondHalf.*.*"], ["largest |score|", "attention.largest.*.*"]]},
    {"if": "uncapped", "note": "an example with cap {example.cap}", "columns": [["score", "example.x.*"], ["capped", "example.y.*"]]}
  ])json");
  p["diagonal"] = {-1.25, 1.25};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "title": "The bend", "made": "toy", "label": "The soft cap: the hyperbolic tangent, in units of the cap.", "height": 320,
     "x": {"label": "score, in caps", "domain": [-4, 4]}, "y": {"label": "capped score, in caps", "domain": [-1.25, 1.25]},
     "series": [
       {"name": "capped", "tone": "attention", "draw": "line", "x": "curve.x.*", "y": "curve.y.*", "hint": "score {curve.x.*} × cap\nbecomes {curve.y.*} × cap"},
       {"name": "as it was", "tone": "plain", "draw": "line", "dashed": true, "x": "diagonal.*", "y": "diagonal.*", "hint": "score {diagonal.*} × cap, uncapped"},
       {"name": "cap of {example.cap}", "tone": "mlp", "draw": "dots", "x": "example.inCaps.x.*", "y": "example.inCaps.y.*",
        "hint": "with cap {example.cap}\n{example.x.*} becomes {example.y.*}"}]},
    {"kind": "grid", "if": "attention", "title": "Share of the scores that the cap of {attention.cap} changes by more than 1 %", "made": "run",
     "label": "Share of attention scores changed by the cap, by layer and head.", "values": "attention.changed.*.*",
     "rows": "layer {#0}", "columns": "head {#1}", "scale": "sequential", "cell": 72, "tall": 26, "write": "%",
     "hint": "layer {#0}, head {#1}\nchanged by more than 1 %: {attention.changed.*.*|%}\nbeyond half the cap: {attention.beyondHalf.*.*|%}\nlargest |score| {attention.largest.*.*}{attention.most.*.*| or more}",
     "pick": {"do": "head", "with": ["{#0}", "{#1}"], "says": "how to switch the head off"}, "key": {"label": "share", "as": "%"}},
    {"kind": "remark", "if": "final", "text": "The final logits are capped at {final.cap}: {final.changed|%} of them change by more than 1 %, {final.beyondHalf|%} lie beyond half the cap, the largest before the cap is {final.largest}{final.most| or more}."}
  ])json");
  return p;
}

PictureJson data_of_reach(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  const ModelShape& s = facts.shape;
  const int64_t span = s.context_length > 0 ? s.context_length : kDefaultSpan;
  const int64_t n = studio.tokens() > 0 ? studio.tokens() : span, last = n - 1;  // of a configuration alone: a full context
  const bool windows = std::any_of(facts.windows.begin(), facts.windows.end(), [](int64_t w) { return w != kNoWindow; });
  PictureJson p = present(
      windows
          ? std::string("What the last token can see in each layer. A window layer sees the ") +
                (facts.chunked ? "tokens of the same chunk" : "nearest tokens") +
                std::string(" only, and its cache is a ring of whole pages that holds them and the tokens of one step; "
                            "through the layers before, content from further back still arrives.") +
                (facts.conv_layers.empty() ? std::string()
                                           : " The convolution of " + facts.conv_layers_text() + " sees its taps in this way.")
      : facts.recurrent
          ? "Every layer sees every earlier token: those with attention through keys and values in the cache, " +
                facts.conv_layers_text() + " through the state of a recurrence, which has the same size at every length."
          : "Every layer sees every earlier token, so the cache keeps keys and values of all of them.",
      "");
  p["nTokens"] = n;
  p["contextLength"] = s.context_length;
  p["chunked"] = facts.chunked;
  p["layers"] = PictureJson::array();
  // What the cache of decoding allocates: a ring of whole pages holds more than its window.
  std::vector<CacheLayer> cache_layers = studio.engine.model().cache_layers(studio.engine.decoding_types());
  const auto cache_of = [&](std::vector<CacheLayer> layers) {
    return KvCache(std::move(layers), span, std::min(span, kPrefillChunk), false);
  };
  const size_t at_context = cache_of(cache_layers).bytes_for(span);
  int64_t receives = last, global_layers = 0;
  for (size_t l = 0; l < facts.windows.size(); ++l) {
    const int64_t window = facts.windows[l];
    const bool is_global = window == kNoWindow;
    const auto reach_back = [&](int64_t from) { return facts.first_seen(window, from); };
    // What a token of the layer before has received, the last one receives through the first token it sees here.
    receives = reach_back(receives);
    const int64_t cached = n - reach_back(n);  // those before it that the next token sees
    const KvCache own = cache_of({cache_layers[l]});
    const size_t each = own.bytes_per_position();  // 0: the layer reads the keys and values of another
    const int64_t room = is_global   ? s.context_length
                         : each == 0 ? std::min(window, span)
                                     : static_cast<int64_t>(own.bytes_for(span) / each);
    p["layers"].push_back({{"layer", l},
                           {"window", window},
                           {"within", is_global ? PictureJson("all") : PictureJson(window)},
                           {"sees", reach_back(last)},
                           {"receives", receives},
                           {"cached", cached},
                           {"room", room},
                           {"bytes", cached * static_cast<int64_t>(each)}});
    global_layers += is_global ? 1 : 0;
  }
  for (size_t l = 0; l < cache_layers.size(); ++l)
    if (facts.attends(static_cast<int64_t>(l))) cache_layers[l].window = kNoWindow;
  const size_t global = cache_of(cache_layers).bytes_for(span);
  p["bytesAtContext"] = at_context;
  p["bytesAtContextGlobal"] = global;
  p["alt"] = fmt::format(
      "{} of {} see{} the whole context. At {} the cache takes {:.1f} MiB; it would take {:.1f} MiB "
      "if all did.",
      global_layers, plural(s.n_layers, "layer"), s.n_layers == 1 ? "s" : "", plural(span, "position"),
      static_cast<double>(at_context) / 1048576, static_cast<double>(global) / 1048576);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "what the last token sees, and what can have reached it through the layers before",
     "columns": [["layer", "layers.*.layer"], ["window", "layers.*.within"], ["sees from", "layers.*.sees"], ["hears from", "layers.*.receives"],
       ["cached", "layers.*.cached"], ["positions with room", "layers.*.room"], ["bytes", "layers.*.bytes"]]}
  ])json");
  return p;
}

}  // namespace vitrine
