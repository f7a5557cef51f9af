#include "picture/data/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/plural.h"
#include "picture/data/soft_cap.h"
#include "picture/data/view.h"

namespace vitrine {
namespace {

using Tables = std::vector<PictureTable>;

constexpr bool kWords = true;
constexpr size_t kWhole = std::string::npos;  // of a piece: all its characters

const PictureCell kNone{"-", ""};

std::string whole(const PictureJson& n) { return n.is_null() ? "-" : n.dump(); }
PictureCell shortly(const PictureJson& n) { return n.is_null() ? kNone : PictureCell(short_number(n), n.dump()); }
PictureCell shortly(double n) { return {short_number(n), fmt::format("{}", n)}; }
PictureCell fixed(const PictureJson& n, int decimals = 3) {
  return n.is_null() ? kNone : PictureCell(fmt::format("{:.{}f}", n.get<double>(), decimals), n.dump());
}
PictureCell share(const PictureJson& n) {
  return n.is_null() ? kNone : PictureCell(fmt::format("{:.2f} %", 100 * n.get<double>()), n.dump());
}
PictureJson in_degrees(const PictureJson& radians) { return radians.get<double>() * 180 / std::numbers::pi; }
PictureCell share(double n) { return {fmt::format("{:.2f} %", 100 * n), fmt::format("{}", n)}; }

// Rows from `first` on, as many as there is room for; the rest counts as left out.
PictureTable part(PictureTable table, size_t first, size_t most) {
  const size_t end = std::min(table.rows.size(), first + most);
  table.left_out += table.rows.size() - (end - first);
  if (end - first < table.rows.size()) table.every = table.rows;
  table.rows = {table.rows.begin() + static_cast<std::ptrdiff_t>(first), table.rows.begin() + static_cast<std::ptrdiff_t>(end)};
  return table;
}
PictureTable first_rows(PictureTable table, size_t most = kTableRows) { return part(std::move(table), 0, most); }
PictureTable last_rows(PictureTable table, size_t most = kTableRows) {
  const size_t first = table.rows.size() - std::min(table.rows.size(), most);
  return part(std::move(table), first, most);
}
// From the first to the last in even steps.
PictureTable spread_rows(PictureTable table, size_t most = kTableRows) {
  const size_t n = table.rows.size();
  if (n <= most) return table;
  std::vector<std::vector<PictureCell>> kept;
  for (size_t i = 0; i < most; ++i) kept.push_back(table.rows[i * (n - 1) / (most - 1)]);
  table.left_out += n - most;
  table.every = std::exchange(table.rows, std::move(kept));
  return table;
}

// A square of cosines, its first rows and columns.
PictureTable cosines(const PictureView& c, const std::string& corner, const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kTableRows - 1);
  PictureGrid grid{corner, {}, {}, {}, 0, 1};
  for (size_t i = 0; i < shown; ++i) {
    grid.rows.push_back(names[i]);
    grid.columns.push_back(shortened(names[i], 7));
    for (size_t j = 0; j < shown; ++j) grid.values.emplace_back(c.picture.at("cosine")[i][j].get<double>());
  }
  return {"cosines", {}, {}, std::move(grid), names.size() - shown};
}

Tables of_dot_product(const PictureView& c) {
  PictureTable t{"products with a = (1, 0)", {{"x[0]"}, {"x[1]"}, {"x · a"}}, {}, {}, 0};
  for (const PictureJson& v : c.picture.at("vectors"))
    t.rows.push_back({fixed(v.at("x")[0], 4), fixed(v.at("x")[1], 4), fixed(v.at("dot"), 4)});
  return {t};
}

Tables of_tokens(const PictureView& c) {
  PictureTable t{"", {{"at"}, {"id"}, {"piece", kWords}, {"bytes", kWords}}, {}, {}, 0};
  for (size_t i = 0; i < c.tokens(); ++i) {
    const PictureJson& token = c.document.at("tokens")[i];
    const PictureJson& offsets = token.at("offsets");
    const bool none = offsets.is_null() || offsets[0] == offsets[1];
    t.rows.push_back({std::to_string(i), whole(token.at("id")), c.token_at(i, kWhole),
                      none ? "-" : fmt::format("{}-{}", whole(offsets[0]), whole(offsets[1]))});
  }
  return {first_rows(std::move(t))};
}

Tables of_merges(const PictureView& c) {
  PictureTable t{"", {{"merge"}, {"order"}, {"left", kWords}, {"right", kWords}, {"joined", kWords}}, {}, {}, 0};
  std::vector<std::string> parts;
  for (const PictureJson& p : c.picture.at("start")) parts.push_back(shortened(p.at("piece")));
  for (const PictureJson& step : c.picture.at("steps")) {
    const size_t at = step.at("at");
    t.rows.push_back(
        {std::to_string(t.rows.size() + 1), shortly(step.at("order")), parts[at], parts[at + 1], parts[at] + parts[at + 1]});
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  return {first_rows(std::move(t))};
}

Tables of_splits(const PictureView& c) {
  PictureTable t{"ln p of each split, * marks the tokenizer's own",
                 {{"ln p"}, {"bits/byte"}, {"tokens"}, {"", kWords}, {"pieces", kWords}},
                 {},
                 {},
                 0};
  for (const PictureJson& split : c.picture.at("splits")) {
    std::string pieces;
    for (const PictureJson& id : split.at("ids")) pieces += (pieces.empty() ? "" : " | ") + c.spelling(id, kWhole);
    t.rows.push_back({fixed(split.at("logprob"), 2), fixed(split.at("bitsPerByte")), std::to_string(split.at("ids").size()),
                      split.at("chosen").get<bool>() ? "*" : "", pieces});
  }
  return {t};
}

Tables of_embedding_cosine(const PictureView& c) {
  std::vector<std::string> names;
  for (const PictureJson& id : c.picture.at("ids")) names.push_back(c.spelling(id));
  return {cosines(c, "word", names)};
}

Tables of_position_vectors(const PictureView& c) {
  std::vector<std::string> names;
  for (const PictureJson& p : c.picture.at("positions")) names.push_back(p.dump());
  return {cosines(c, "position", names)};
}

Tables of_embedding_neighbors(const PictureView& c) {
  PictureTable t{"", {{"rank"}, {"token", kWords}, {"cosine"}, {"", kWords}}, {}, {}, 0};
  for (const PictureJson& n : c.picture.at("neighbors"))
    t.rows.push_back({std::to_string(t.rows.size() + 1), c.spelling(n.at("id"), kWhole), fixed(n.at("cosine"), 4),
                      n.at("term").get<bool>() ? "in the sum" : ""});
  return {t};
}

Tables of_embedding_rescaling(const PictureView& c) {
  PictureTable t{"update scale of the first layer's", {{"sub-layer", kWords}, {"with the factor"}, {"without"}}, {}, {}, 0};
  for (const auto& [key, name] : {std::pair{"attention", "attention"}, std::pair{"mlp", "MLP"}})
    t.rows.push_back({name, fixed(c.picture.at(key).at("with")), fixed(c.picture.at(key).at("without"))});
  t.rows.push_back({"σ of the embeddings", shortly(c.picture.at("sigmaWith")), shortly(c.picture.at("sigmaWithout"))});
  return {t};
}

Tables of_update_scale(const PictureView& c) {
  PictureTable t{"", {{"layer"}, {"attention"}, {"σ added"}, {"σ stream"}, {"MLP"}, {"σ added"}, {"σ stream"}}, {}, {}, 0};
  const PictureJson& sublayers = c.picture.at("sublayers");
  for (size_t i = 0; i + 1 < sublayers.size(); i += 2) {
    std::vector<PictureCell>& row = t.rows.emplace_back(1, whole(sublayers[i].at("layer")));
    for (const PictureJson& s : {sublayers[i], sublayers[i + 1]})
      for (const PictureCell& cell : {fixed(s.at("scale")), shortly(s.at("sigmaUpdate")), shortly(s.at("sigmaSkip"))})
        row.push_back(cell);
  }
  return {spread_rows(std::move(t))};
}

Tables of_residual_scale(const PictureView& c) {
  PictureTable t{"σ of the stream that each sub-layer reads", {{"sub-layer", kWords}, {"with norms"}, {"without"}}, {}, {}, 0};
  for (size_t i = 0; i < c.picture.at("labels").size(); ++i)
    t.rows.push_back({c.picture.at("labels")[i].get<std::string>(), shortly(c.picture.at("withNorms")[i]),
                      shortly(c.picture.at("withoutNorms")[i])});
  return {spread_rows(std::move(t))};
}

Tables of_layer_norm(const PictureView& c) {
  PictureTable t{"", {{"LayerNorm", kWords}, {"x[0]"}, {"x[1]"}}, {}, {}, 0}, r = t;
  r.columns[0].name = "RMSNorm";
  const auto add = [&](PictureTable& table, const char* name, const char* key) {
    table.rows.push_back({name, fixed(c.picture.at(key)[0]), fixed(c.picture.at(key)[1])});
  };
  add(t, "x", "x"), add(t, "− mean", "centered"), add(t, "over σ", "scaled"), add(t, "· weight + bias", "layerNorm");
  add(r, "x", "x"), add(r, "over RMS", "rmsScaled"), add(r, "· weight", "rmsNorm");
  return {t, r};
}

Tables of_norm_statistics(const PictureView& c) {
  PictureTable t{"", {{"norm", kWords}, {"in: mean"}, {"σ"}, {"RMS"}, {"out: mean"}, {"σ"}, {"RMS"}}, {}, {}, 0};
  for (size_t i = 0; i < c.picture.at("norms").size(); ++i) {
    std::vector<PictureCell>& row = t.rows.emplace_back(1, c.picture.at("norms")[i].get<std::string>());
    for (const char* key : {"inMean", "inSigma", "inRms", "outMean", "outSigma", "outRms"})
      row.push_back(shortly(c.picture.at(key)[i]));
  }
  return {first_rows(std::move(t))};
}

Tables of_final_norm(const PictureView& c) {
  PictureTable t{"root mean square of each token's vector", {{"at"}, {"token", kWords}, {"before"}, {"after"}}, {}, {}, 0};
  for (size_t i = 0; i < c.picture.at("before").size(); ++i)
    t.rows.push_back({std::to_string(i), c.token_at(i), shortly(c.picture.at("before")[i]), shortly(c.picture.at("after")[i])});
  return {first_rows(std::move(t))};
}

Tables of_gradient_norms(const PictureView& c) {
  const PictureJson &own = c.picture.at("norms"), &without = c.picture.at("withoutNorms"),
                    &parameters = c.picture.at("parameters");
  PictureTable t{"gradient of the loss at the stream that enters each layer, and of the layer's parameters",
                 {{"layer", kWords}, {"|gradient|"}, {"without norms"}, {"attention"}, {"MLP"}},
                 {},
                 {},
                 0};
  for (size_t i = 0; i < own.size(); ++i) {
    const bool layer = i + 1 < own.size(), has = layer && !parameters.is_null();
    t.rows.push_back({layer ? std::to_string(i) : "end", shortly(own[i]), without.is_null() ? "" : shortly(without[i]),
                      has ? shortly(parameters.at("attention")[i]) : "", has ? shortly(parameters.at("mlp")[i]) : ""});
  }
  return {spread_rows(std::move(t))};
}

Tables of_gradient_hooks(const PictureView& c) {
  PictureTable t{"the longest gradient at each hook, over layers and tokens",
                 {{"hook", kWords}, {"|gradient|"}, {"layer"}, {"at"}, {"token", kWords}},
                 {},
                 {},
                 0};
  const auto first = c.picture.at("first").get<size_t>();
  for (const PictureJson& hook : c.picture.at("hooks")) {
    const std::string name = hook.at("hook");
    const std::vector<double> cells = unpacked(hook.at("norms"));
    const auto shown = hook.at("norms").at("shape")[1].get<size_t>();
    const auto most = static_cast<size_t>(std::max_element(cells.begin(), cells.end()) - cells.begin());
    const size_t position = first + most % shown;
    t.rows.push_back({name, shortly(cells[most]), name.find('*') == std::string::npos ? "" : std::to_string(most / shown),
                      std::to_string(position), c.token_at(position)});
  }
  return {first_rows(std::move(t))};
}

Tables of_input_attribution(const PictureView& c) {
  const PictureJson& integrated = c.picture.at("integrated");
  PictureTable t{"gradient of the most likely next token's log-probability at each embedding",
                 {{"at"}, {"token", kWords}, {"saliency"}, {"gradient · embedding"}, {"integrated"}},
                 {},
                 {},
                 0};
  for (size_t i = 0; i < c.picture.at("saliency").size(); ++i)
    t.rows.push_back({std::to_string(i), c.token_at(i), shortly(c.picture.at("saliency")[i]),
                      shortly(c.picture.at("gradientInput")[i]), integrated.is_null() ? "" : shortly(integrated.at("parts")[i])});
  return {first_rows(std::move(t))};
}

Tables of_head_grouping(const PictureView& c) {
  PictureTable t{c.picture.at("kind"), {{"key and value head"}, {"query heads", kWords}}, {}, {}, 0};
  for (const PictureJson& group : c.picture.at("groups")) {
    const auto heads = group.get<std::vector<int64_t>>();
    t.rows.push_back({std::to_string(t.rows.size()), fmt::format("{}", fmt::join(heads, " "))});
  }
  PictureTable p{"parameters of one layer", {{"W_Q"}, {"W_K"}, {"W_V"}, {"W_O"}, {"cache bytes/position"}}, {}, {}, 0};
  const PictureJson& n = c.picture.at("parameters");
  p.rows.push_back(
      {whole(n.at("q")), whole(n.at("k")), whole(n.at("v")), whole(n.at("o")), whole(c.picture.at("cacheBytesPerPosition"))});
  return {first_rows(std::move(t), kTableRows - 2), p};
}

Tables of_softmax(const PictureView& c) {
  PictureTable t{fmt::format("layer {}, head {}, target {} {}", whole(c.picture.at("layer")), whole(c.picture.at("head")),
                             whole(c.picture.at("target")), c.token_at(c.picture.at("target"))),
                 {{"at"}, {"source", kWords}, {"score"}, {"weight"}},
                 {},
                 {},
                 0};
  const PictureJson& sources = c.picture.at("sources");
  for (size_t i = 0; i < sources.size(); ++i)
    t.rows.push_back(
        {whole(sources[i]), c.token_at(sources[i]), fixed(c.picture.at("scores")[i]), fixed(c.picture.at("weights")[i], 4)});
  if (const PictureJson& sink = c.picture.at("sink"); !sink.is_null())
    t.rows.push_back({"-", "the sink", fixed(sink.at("score")), fixed(sink.at("weight"), 4)});
  return {last_rows(std::move(t))};
}

// One head's weights: the last targets over the last sources.
PictureTable head_weights(const PictureView& c, size_t layer, size_t head) {
  constexpr size_t kMost = 24;
  const bool full = c.picture.at("level") == "full";
  const PictureJson& packed = full ? c.picture.at("patterns")[layer] : c.picture.at("tiles").at("max")[layer];
  const auto n = packed.at("shape").back().get<size_t>(), first = n - std::min(n, kMost);
  const std::vector<double> values = unpacked(packed);
  PictureGrid grid{full ? "target \\ source" : "tokens from", {}, {}, {}, 0, 1};
  for (size_t t = first; t < n; ++t) {
    const std::string from = full ? "" : std::to_string(t * c.picture.at("tiles").at("tokensPerBin").get<size_t>());
    grid.rows.push_back(full ? fmt::format("{} {}", t, c.token_at(t, 12)) : from);
    grid.columns.push_back(full ? c.token_at(t, 7) : from);
    for (size_t s = first; s < n; ++s)
      grid.values.push_back(s <= t ? std::optional(values[(head * n + t) * n + s]) : std::nullopt);
  }
  return {fmt::format("weights of layer {}, head {}{}", layer, head, full ? "" : ", the largest of each tile"),
          {},
          {},
          std::move(grid),
          first};
}

// Heads down, layers across; NaN where the data has null: a head of which the run says nothing.
PictureGrid by_head(const PictureJson& layers, double middle, double reach) {
  PictureGrid grid{"head \\ layer", {}, {}, {}, middle, reach};
  const size_t heads = std::min(layers[0].size(), kTableRows - 2);
  for (size_t l = 0; l < layers.size(); ++l) grid.columns.push_back(std::to_string(l));
  for (size_t h = 0; h < heads; ++h) {
    grid.rows.push_back(std::to_string(h));
    for (const PictureJson& layer : layers)
      grid.values.emplace_back(layer[h].is_null() ? std::numeric_limits<double>::quiet_NaN() : layer[h].get<double>());
  }
  return grid;
}

Tables of_attention(const PictureView& c) {
  if (c.options.layer || c.options.head)
    return {head_weights(c, static_cast<size_t>(c.options.layer.value_or(0)), static_cast<size_t>(c.options.head.value_or(0)))};
  const PictureJson& flat = c.picture.at("flatness");
  PictureGrid grid = by_head(flat, 0.5, 0.5);
  const size_t left = flat[0].size() - grid.rows.size();
  PictureTable flatness{
      "how flat each head is: 1 looks everywhere alike, 0 at one token; --layer and --head show a head's weights",
      {},
      {},
      std::move(grid),
      left};
  PictureTable most{"mean weight of the heads that look there most",
                    {{"at", kWords}, {"layer"}, {"head"}, {"weight"}, {"layer"}, {"head"}, {"weight"}},
                    {},
                    {},
                    0};
  for (const auto& [key, name] :
       {std::pair{"onFirst", "first token"}, std::pair{"onPrevious", "token before"}, std::pair{"onSelf", "token itself"}}) {
    const PictureJson& layers = c.picture.at(key);
    std::vector<std::pair<size_t, size_t>> heads;
    for (size_t l = 0; l < layers.size(); ++l)
      for (size_t h = 0; h < layers[l].size(); ++h)
        if (!layers[l][h].is_null()) heads.emplace_back(l, h);
    const auto weight = [&](std::pair<size_t, size_t> at) { return layers[at.first][at.second].get<double>(); };
    std::sort(heads.begin(), heads.end(), [&](std::pair<size_t, size_t> a, std::pair<size_t, size_t> b) {
      return weight(a) != weight(b) ? weight(a) > weight(b) : a < b;
    });
    std::vector<PictureCell>& row = most.rows.emplace_back(1, name);
    for (size_t i = 0; i < 2; ++i) {
      const bool there = i < heads.size();
      row.push_back(there ? std::to_string(heads[i].first) : "-");
      row.push_back(there ? std::to_string(heads[i].second) : "-");
      row.push_back(there ? fixed(layers[heads[i].first][heads[i].second]) : "-");
    }
  }
  return {flatness, most};
}

Tables of_soft_cap(const PictureView& c) {
  const PictureJson &attention = c.picture.at("attention"), &logits = c.picture.at("final");
  Tables tables;
  if (!attention.is_null()) {
    PictureJson percent = attention.at("changed");
    for (PictureJson& layer : percent)
      for (PictureJson& changed : layer) changed = 100 * changed.get<double>();
    PictureGrid grid = by_head(percent, 0, 100);
    const size_t left = percent[0].size() - grid.rows.size();
    tables.push_back({"% of scores that the cap changes by more than 1 %", {}, {}, std::move(grid), left});
  }
  PictureTable t{"", {{"capped", kWords}, {"cap"}, {"changed"}, {"beyond half"}, {"largest"}}, {}, {}, 0};
  const auto most = [](const PictureJson& layers) {
    double largest = 0;
    for (const PictureJson& layer : layers)
      for (const double value : number_list(layer)) largest = std::max(largest, value);
    return largest;
  };
  const auto largest = [](double n, double cap) { return at_least(short_number(n), n, cap); };
  if (!attention.is_null())
    t.rows.push_back({"scores of the head most changed", shortly(attention.at("cap")), share(most(attention.at("changed"))),
                      share(most(attention.at("beyondHalf"))), largest(most(attention.at("largest")), attention.at("cap"))});
  if (!logits.is_null())
    t.rows.push_back({"logits", shortly(logits.at("cap")), share(logits.at("changed")), share(logits.at("beyondHalf")),
                      largest(logits.at("largest"), logits.at("cap"))});
  if (!t.rows.empty()) tables.push_back(std::move(t));
  if (!tables.empty()) return tables;
  const PictureJson& example = c.picture.at("example");
  PictureTable curve{fmt::format("an example with cap {}", whole(example.at("cap"))), {{"score"}, {"capped"}}, {}, {}, 0};
  for (size_t i = 0; i < example.at("x").size(); ++i)
    curve.rows.push_back({shortly(example.at("x")[i]), shortly(example.at("y")[i])});
  return {curve};
}

Tables of_rope_rotation(const PictureView& c) {
  PictureTable t{"the vector (1, 0), turned", {{"pair"}, {"position"}, {"x[0]"}, {"x[1]"}}, {}, {}, 0};
  for (const PictureJson& component : c.picture.at("components")) {
    int position = 0;
    for (const PictureJson& point : component.at("points"))
      t.rows.push_back({whole(component.at("component")), std::to_string(position++), fixed(point[0], 4), fixed(point[1], 4)});
  }
  return {t};
}

Tables of_rope_wavelengths(const PictureView& c) {
  PictureTable t{"", {{"pair"}, {"radians/position"}, {"wavelength"}, {"", kWords}}, {}, {}, 0};
  const PictureJson& beyond = c.picture.at("firstBeyondContext");
  for (size_t i = 0; i < c.picture.at("wavelengths").size(); ++i)
    t.rows.push_back({std::to_string(i), shortly(c.picture.at("frequencies")[i]), shortly(c.picture.at("wavelengths")[i]),
                      !beyond.is_null() && i >= beyond.get<size_t>() ? "longer than the context" : ""});
  return {spread_rows(std::move(t))};
}

Tables of_query_length(const PictureView& c) {
  const std::vector<double> wavelengths = number_list(c.picture.at("wavelengths"));
  const size_t pairs = wavelengths.size();
  PictureTable t{"the pair in which each head's queries are longest",
                 {{"layer"}, {"head"}, {"wavelength"}, {"length"}, {"all pairs"}},
                 {},
                 {},
                 0};
  for (const PictureJson& layer : c.picture.at("shown")) {
    const std::vector<double> values = unpacked(c.picture.at("layers")[layer.get<size_t>()]);
    for (size_t h = 0; h < values.size() / pairs; ++h) {
      const auto head = values.begin() + static_cast<std::ptrdiff_t>(h * pairs);
      const auto longest = std::max_element(head, head + static_cast<std::ptrdiff_t>(pairs));
      const double all = std::inner_product(head, head + static_cast<std::ptrdiff_t>(pairs), head, 0.0);
      t.rows.push_back({whole(layer), std::to_string(h), shortly(wavelengths[static_cast<size_t>(longest - head)]),
                        shortly(*longest), shortly(std::sqrt(all))});
    }
  }
  const size_t each = t.rows.size() / c.picture.at("shown").size();
  t.left_out = each * (c.picture.at("layers").size() - c.picture.at("shown").size());
  return {first_rows(std::move(t))};
}

Tables of_activation_curves(const PictureView& c) {
  PictureTable t{"", {{"x"}, {"ReLU"}, {"GELU"}, {"its tanh form"}, {"SiLU"}}, {}, {}, 0};
  for (size_t i = 0; i < c.picture.at("x").size(); ++i) {
    std::vector<PictureCell>& row = t.rows.emplace_back(1, fixed(c.picture.at("x")[i], 1));
    for (const char* key : {"relu", "geluExact", "geluTanh", "silu"}) row.push_back(fixed(c.picture.at(key)[i], 4));
  }
  PictureTable active{"share of the MLP's units that are above zero", {{"layer"}, {"active"}}, {}, {}, 0};
  for (const PictureJson& layer : c.picture.at("active"))
    active.rows.push_back({std::to_string(active.rows.size()), share(layer)});
  return {spread_rows(std::move(t), 9), spread_rows(std::move(active), kTableRows - 9)};
}

Tables of_mlp_surfaces(const PictureView& c) {
  constexpr size_t kSlice = 3, kStep = 10;
  PictureTable t{fmt::format("y[0] over x[0] at x[1] = {}", whole(c.picture.at("sliceAt")[kSlice])),
                 {{"x[0]"}, {"linear"}, {"ReLU"}, {"ReGLU"}, {"GeGLU"}},
                 {},
                 {},
                 0};
  const PictureJson& x = c.picture.at("x");
  for (size_t i = 0; i < x.size(); i += kStep) {
    std::vector<PictureCell>& row = t.rows.emplace_back(1, whole(x[i]));
    for (const PictureJson& kind : c.picture.at("slices")) row.push_back(fixed(kind[kSlice][i], 4));
  }
  t.left_out = x.size() * c.picture.at("sliceAt").size() - t.rows.size();
  return {t};
}

Tables of_next_tokens(const PictureView& c) {
  constexpr size_t kTop = 3;
  const PictureJson &ids = c.picture.at("ids"), &probs = c.picture.at("probs"), &actual = c.picture.at("actual");
  PictureTable t{"", {{"at"}, {"after", kWords}}, {}, {}, 0};
  for (const char* rank : {"most likely", "second", "third"}) t.columns.insert(t.columns.end(), {{rank, kWords}, {""}});
  t.columns.insert(t.columns.end(), {{"came", kWords}, {""}, {"rank"}});
  for (size_t i = 0; i < ids.size(); ++i) {
    std::vector<PictureCell>& row = t.rows.emplace_back();
    row = {std::to_string(i), c.token_at(i)};
    for (size_t k = 0; k < kTop; ++k) {
      row.push_back(k < ids[i].size() ? c.spelling(ids[i][k]) : "");
      row.push_back(k < ids[i].size() ? share(probs[i][k]) : "");
    }
    if (actual[i].is_null())
      row.insert(row.end(), {"", "", ""});
    else
      row.insert(row.end(), {c.token_at(i + 1), share(actual[i].at("prob")), whole(actual[i].at("rank"))});
  }
  return {last_rows(std::move(t))};
}

Tables of_logit_lens(const PictureView& c) {
  constexpr size_t kTop = 3;
  const size_t last = c.picture.at("positions").size() - 1;
  const PictureJson &ids = c.picture.at("ids")[last], &probs = c.picture.at("probs")[last];
  PictureTable t{"after " + c.token_at(c.picture.at("positions")[last]), {{"depth", kWords}}, {}, {}, 0};
  for (const char* rank : {"most likely", "second", "third"}) t.columns.insert(t.columns.end(), {{rank, kWords}, {""}});
  t.columns.insert(t.columns.end(), {{"the answer"}, {"rank"}, {"KL"}});
  const PictureJson& depths = c.picture.at("depths");
  for (size_t d = 0; d < depths.size(); ++d) {
    std::vector<PictureCell>& row = t.rows.emplace_back(1, depths[d].get<std::string>());
    for (size_t k = 0; k < kTop; ++k) {
      row.push_back(k < ids[d].size() ? c.spelling(ids[d][k]) : "");
      row.push_back(k < ids[d].size() ? share(probs[d][k]) : "");
    }
    row.push_back(share(c.picture.at("finalProb")[last][d]));
    row.push_back(whole(c.picture.at("finalRank")[last][d]));
    row.push_back(fixed(c.picture.at("kl")[last][d]));
  }
  t.left_out = last * depths.size();
  return {last_rows(std::move(t))};
}

Tables of_logit_attribution(const PictureView& c) {
  constexpr size_t kParts = kTableRows - 4;
  const PictureJson &targets = c.picture.at("targets"), &components = c.picture.at("components");
  const std::vector<double> parts = number_list(targets[0].at("parts"));
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::abs(parts[a]) != std::abs(parts[b]) ? std::abs(parts[a]) > std::abs(parts[b]) : a < b;
  });
  const size_t shown = order.size() <= kParts + 1 ? order.size() : kParts;
  PictureTable t{"logits of the most likely tokens as sums; the strongest parts of the first", {{"part", kWords}}, {}, {}, 0};
  for (const PictureJson& target : targets) t.columns.push_back({c.spelling(target.at("id"))});
  for (const size_t part : order) {
    std::vector<PictureCell>& row = t.every.emplace_back(1, components[part].at("label").get<std::string>());
    for (const PictureJson& target : targets)
      row.push_back({fmt::format("{:+.4f}", target.at("parts")[part].get<double>()), target.at("parts")[part].dump()});
  }
  t.rows = {t.every.begin(), t.every.begin() + static_cast<std::ptrdiff_t>(shown)};
  std::vector<PictureCell> others = {plural(order.size() - shown, "other") + " together"}, remainder = {"remainder"},
                           logit = {"logit"};
  for (const PictureJson& target : targets) {
    double rest = 0;
    for (size_t i = shown; i < order.size(); ++i) rest += target.at("parts")[order[i]].get<double>();
    others.push_back({fmt::format("{:+.4f}", rest), fmt::format("{}", rest)});
    remainder.push_back({fmt::format("{:+.1e}", target.at("remainder").get<double>()), target.at("remainder").dump()});
    logit.push_back(fixed(target.at("uncapped"), 4));
  }
  if (shown < order.size()) t.rows.push_back(std::move(others));
  for (auto* rows : {&t.rows, &t.every}) {
    rows->push_back(remainder);
    rows->push_back(logit);
  }
  t.left_out = order.size() - shown;
  return {t};
}

Tables of_reach(const PictureView& c) {
  PictureTable t{"what the last token sees, and what can have reached it through the layers before",
                 {{"layer"}, {"window"}, {"sees from"}, {"hears from"}, {"cached"}, {"bytes"}},
                 {},
                 {},
                 0};
  for (const PictureJson& layer : c.picture.at("layers"))
    t.rows.push_back({whole(layer.at("layer")), layer.at("window") == 0 ? "all" : whole(layer.at("window")),
                      whole(layer.at("sees")), whole(layer.at("receives")), whole(layer.at("cached")), whole(layer.at("bytes"))});
  return {first_rows(std::move(t))};
}

Tables of_interpolation(const PictureView& c) {
  PictureTable pairs{"two rows of " + c.picture.at("matrix").get<std::string>(),
                     {{"rows", kWords}, {"|a|"}, {"|b|"}, {"cosine"}, {"angle °"}, {"|average|"}, {"|SLERP|"}, {"", kWords}},
                     {},
                     {},
                     0};
  PictureTable path{"lengths on the way of the first pair", {{"t"}, {"linear"}, {"SLERP"}}, {}, {}, 0};
  for (const PictureJson& pair : c.picture.at("pairs"))
    pairs.rows.push_back({whole(pair.at("rows")[0]) + ", " + whole(pair.at("rows")[1]), shortly(pair.at("lengths")[0]),
                          shortly(pair.at("lengths")[1]), fixed(pair.at("cosine"), 4), fixed(in_degrees(pair.at("angle")), 2),
                          shortly(pair.at("averageLength")), shortly(pair.at("slerpLength")),
                          pair.at("straight").get<bool>() ? "too near to a line for an arc" : ""});
  const PictureJson &t = c.picture.at("t"), &pair = c.picture.at("pairs")[0];
  for (size_t i = 0; i < t.size(); i += 4)
    path.rows.push_back({fixed(t[i], 1), shortly(pair.at("linearLengths")[i]), shortly(pair.at("slerpLengths")[i])});
  return {pairs, path};
}

Tables of_task_vectors(const PictureView& c) {
  const PictureJson& p = c.picture;
  PictureTable vectors{fmt::format("rows {} and {} of {}; the start is the mean of {} rows", whole(p.at("rows")[0]),
                                   whole(p.at("rows")[1]), p.at("matrix").get<std::string>(), whole(p.at("averaged"))),
                       {{"", kWords}, {"length"}, {"from the start"}},
                       {},
                       {},
                       0};
  vectors.rows = {{"start", shortly(p.at("initialLength")), "0"},
                  {"first", shortly(p.at("lengths")[0]), shortly(p.at("taskLengths")[0])},
                  {"second", shortly(p.at("lengths")[1]), shortly(p.at("taskLengths")[1])},
                  {"average", shortly(p.at("mergedLengths").at("average")), shortly(p.at("averageLength"))},
                  {"SLERP", shortly(p.at("mergedLengths").at("slerp")), shortly(p.at("slerpLength"))}};
  PictureTable cosines{"cosine of the two", {{"", kWords}, {"cosine"}}, {}, {}, 0};
  cosines.rows = {{"rows", fixed(p.at("cosine"), 4)}, {"task vectors", fixed(p.at("taskCosine"), 4)}};
  PictureTable liti{"LITI: from the start to the merge by SLERP", {{"η"}, {"length"}, {"from the start"}}, {}, {}, 0};
  const PictureJson& line = p.at("liti");
  for (size_t i = 0; i < line.at("eta").size(); ++i)
    liti.rows.push_back({fixed(line.at("eta")[i], 1), shortly(line.at("lengths")[i]), shortly(line.at("distances")[i])});
  return {vectors, cosines, liti};
}

// Of a layer: for each token its experts with their weights, and the probabilities; of the experts that a token here has chosen.
Tables experts_of_layer(const PictureView& c, const PictureJson& layer) {
  const size_t count = c.picture.at("count"), per_token = c.picture.at("perToken"), first = c.picture.at("first");
  const size_t tokens = c.tokens() - first, most = layer.at("probabilities").is_null() ? kTableRows : kTableRows / 2;
  const size_t shown = std::min(tokens, most), begin = tokens - shown;
  const std::vector<double> chosen = unpacked(layer.at("chosen")), weight = unpacked(layer.at("weights"));
  std::vector<std::optional<size_t>> column(count);
  for (size_t i = begin * per_token; i < chosen.size(); ++i) column[static_cast<size_t>(chosen[i])] = 0;
  PictureGrid weights{"token", {}, {}, {}, 0, *std::max_element(weight.begin(), weight.end())};
  for (size_t e = 0; e < count; ++e)
    if (column[e]) {
      column[e] = weights.columns.size();
      weights.columns.push_back(std::to_string(e));
    }
  for (size_t i = 0; i < shown; ++i) weights.rows.push_back(c.token_at(first + begin + i));
  const size_t columns = weights.columns.size();
  weights.values.resize(shown * columns);
  PictureGrid probabilities = weights;
  for (size_t i = begin * per_token; i < chosen.size(); ++i)
    weights.values[(i / per_token - begin) * columns + *column[static_cast<size_t>(chosen[i])]] = weight[i];
  const std::string name = fmt::format("layer {}: ", whole(layer.at("layer")));
  const std::string others = columns < count ? fmt::format("; {} of {} experts", columns, count) : "";
  Tables tables = {{name + "weights of the chosen experts" + others, {}, {}, std::move(weights), tokens - shown}};
  if (layer.at("probabilities").is_null()) return tables;
  const std::vector<double> probability = unpacked(layer.at("probabilities"));
  for (size_t i = 0; i < shown; ++i)
    for (size_t e = 0; e < count; ++e)
      if (column[e]) probabilities.values[i * columns + *column[e]] = probability[(begin + i) * count + e];
  tables.push_back({name + "the router's probabilities" + others, {}, {}, std::move(probabilities), tokens - shown});
  return tables;
}

Tables of_experts(const PictureView& c) {
  const PictureJson& layers = c.picture.at("layers");
  if (c.options.layer) {
    for (const PictureJson& layer : layers)
      if (layer.at("layer") == *c.options.layer) return experts_of_layer(c, layer);
  }
  constexpr size_t kMostLayers = 8, kMostNamed = 3;
  const size_t per_token = c.picture.at("perToken"), first = c.picture.at("first"), named = std::min(per_token, kMostNamed);
  PictureTable t{fmt::format("{} of each token, the heaviest first{}; --layer shows the weights of one",
                             named < per_token ? fmt::format("{} of the {} experts", named, per_token) : "experts",
                             layers.size() > kMostLayers ? fmt::format(", in {} of {} layers", kMostLayers, layers.size()) : ""),
                 {{"at"}, {"token", kWords}},
                 {},
                 {},
                 0};
  for (size_t i = first; i < c.tokens(); ++i) t.rows.push_back({std::to_string(i), c.token_at(i, kWhole)});
  for (size_t l = 0; l < std::min(layers.size(), kMostLayers); ++l) {
    const std::vector<double> chosen = unpacked(layers[l].at("chosen"));
    t.columns.push_back({"layer " + whole(layers[l].at("layer")), kWords});
    for (size_t i = 0; i < t.rows.size(); ++i) {
      std::string experts;
      for (size_t k = 0; k < named; ++k) experts += (k > 0 ? " " : "") + fmt::format("{}", chosen[i * per_token + k]);
      t.rows[i].push_back(experts);
    }
  }
  return {last_rows(std::move(t))};
}

Tables of_expert_load(const PictureView& c) {
  if (c.options.layer) {
    PictureTable t{fmt::format("layer {}; an even load is {}", *c.options.layer, share(c.picture.at("ideal"))),
                   {{"expert"}, {"of the choices"}, {"mean probability"}},
                   {},
                   {},
                   0};
    for (const PictureJson& layer : c.picture.at("layers"))
      for (size_t e = 0; layer.at("layer") == *c.options.layer && e < layer.at("share").size(); ++e)
        t.rows.push_back({std::to_string(e), share(layer.at("share")[e]), share(layer.at("probability")[e])});
    return {first_rows(std::move(t))};
  }
  PictureTable t{
      fmt::format("an even load is {} for each of {} experts", share(c.picture.at("ideal")), whole(c.picture.at("count"))),
      {{"layer"}, {"busiest expert"}, {"of the choices"}, {"least"}, {"no token"}, {"balance"}},
      {},
      {},
      0};
  for (const PictureJson& layer : c.picture.at("layers")) {
    const std::vector<double> shares = number_list(layer.at("share"));
    const auto [least, most] = std::minmax_element(shares.begin(), shares.end());
    t.rows.push_back({whole(layer.at("layer")), std::to_string(most - shares.begin()), share(*most), share(*least),
                      whole(layer.at("idle")), fixed(layer.at("balance"))});
  }
  return {spread_rows(std::move(t))};
}

struct Maker {
  const char* name;
  Tables (*make)(const PictureView&);
};
constexpr std::array kMakers = {Maker{"dot-product", of_dot_product},
                                Maker{"tokens", of_tokens},
                                Maker{"merges", of_merges},
                                Maker{"splits", of_splits},
                                Maker{"embedding-cosine", of_embedding_cosine},
                                Maker{"embedding-neighbors", of_embedding_neighbors},
                                Maker{"position-vectors", of_position_vectors},
                                Maker{"embedding-rescaling", of_embedding_rescaling},
                                Maker{"update-scale", of_update_scale},
                                Maker{"residual-scale", of_residual_scale},
                                Maker{"layer-norm", of_layer_norm},
                                Maker{"norm-statistics", of_norm_statistics},
                                Maker{"head-grouping", of_head_grouping},
                                Maker{"softmax", of_softmax},
                                Maker{"attention", of_attention},
                                Maker{"soft-cap", of_soft_cap},
                                Maker{"rope-rotation", of_rope_rotation},
                                Maker{"rope-wavelengths", of_rope_wavelengths},
                                Maker{"query-length", of_query_length},
                                Maker{"activation-curves", of_activation_curves},
                                Maker{"mlp-surfaces", of_mlp_surfaces},
                                Maker{"experts", of_experts},
                                Maker{"expert-load", of_expert_load},
                                Maker{"final-norm", of_final_norm},
                                Maker{"next-tokens", of_next_tokens},
                                Maker{"logit-lens", of_logit_lens},
                                Maker{"logit-attribution", of_logit_attribution},
                                Maker{"input-attribution", of_input_attribution},
                                Maker{"reach", of_reach},
                                Maker{"gradient-norms", of_gradient_norms},
                                Maker{"gradient-hooks", of_gradient_hooks},
                                Maker{"interpolation", of_interpolation},
                                Maker{"task-vectors", of_task_vectors}};

}  // namespace

std::string csv_text(const std::vector<PictureTable>& tables) {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += ',';
      if (cells[i].find_first_of(",\"\r\n") == std::string::npos) {
        text += cells[i];
        continue;
      }
      text += '"';
      for (const char c : cells[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  };
  for (const PictureTable& table : tables) {
    if (!text.empty()) text += "\r\n";
    std::vector<std::string> cells;
    if (table.grid) {
      const PictureGrid& grid = *table.grid;
      cells = {grid.corner};
      cells.insert(cells.end(), grid.columns.begin(), grid.columns.end());
      line(cells);
      for (size_t r = 0; r < grid.rows.size(); ++r) {
        cells = {grid.rows[r]};
        for (size_t i = r * grid.columns.size(); i < (r + 1) * grid.columns.size(); ++i)
          cells.push_back(grid.values[i] && std::isfinite(*grid.values[i]) ? fmt::format("{}", *grid.values[i]) : "");
        line(cells);
      }
    }
    if (table.columns.empty()) continue;
    cells.clear();
    for (const PictureTable::Column& column : table.columns) cells.push_back(column.name);
    line(cells);
    for (const auto& row : table.every.empty() ? table.rows : table.every) {
      cells.clear();
      for (const PictureCell& cell : row) cells.push_back(cell == "-" ? "" : cell.full);
      line(cells);
    }
  }
  return text;
}

std::vector<PictureTable> picture_tables(const PictureJson& document, std::string_view name, const PictureOptions& options) {
  const PictureJson& picture = document.at("pictures").at(std::string(name));
  if (!picture.at("available").get<bool>()) throw InputError(picture.at("reason").get<std::string>());
  for (const Maker& maker : kMakers)
    if (name == maker.name) return maker.make({document, picture, options});
  throw UsageError("there is no table of \"" + std::string(name) + "\"");
}

}  // namespace vitrine
