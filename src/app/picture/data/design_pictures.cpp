// Pictures of designs, from configurations alone: models side by side, how heads share keys and values, which positions a layer
// may look at.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "base/error.h"
#include "picture/data/designs.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

constexpr int64_t kLongPrompt = 8192;  // positions at which designs are compared, or their context where that is shorter

int64_t compared_positions(const ModelShape& shape) {
  return shape.context_length > 0 ? std::min(shape.context_length, kLongPrompt) : kLongPrompt;
}

// "4096 in 13 of 26 layers"
std::string windows_text(const ModelFacts& facts) {
  std::map<int64_t, int64_t> layers;
  for (int64_t layer = 0; layer < facts.shape.n_layers; ++layer)
    if (facts.attends(layer) && facts.windows[static_cast<size_t>(layer)] != kNoWindow)
      ++layers[facts.windows[static_cast<size_t>(layer)]];
  std::string text;
  for (const auto& [window, count] : layers)
    text += fmt::format("{}{}{} in {} of {} layers", text.empty() ? "" : ", ", facts.chunked ? "chunks of " : "", window, count,
                        facts.shape.n_layers);
  if (!facts.conv_layers.empty())
    text += fmt::format("{}{} in {} of {} layers", text.empty() ? "" : ", ", facts.recurrent ? "recurrence" : "convolution",
                        facts.conv_layers.size(), facts.shape.n_layers);
  return text.empty() ? "none" : text;
}

std::string norms_text(const ModelFacts& facts) {
  static constexpr const char* kPlaces[] = {"before", "after the sum", "before and after", "on what is added"};
  return fmt::format("{} {}{}", facts.rms ? "RMSNorm" : "LayerNorm", kPlaces[static_cast<size_t>(facts.norm_place)],
                     facts.head_norms ? "; queries and keys" : "");
}

std::string positions_text(const ModelFacts& facts) {
  static constexpr const char* kPositions[] = {"rotary", "learned table", "sinusoidal", "none", "ALiBi"};
  return kPositions[static_cast<size_t>(facts.positions)];
}

std::string mlp_text(const ModelFacts& facts) {
  if (!facts.experts) return fmt::format("{} {}", facts.mlp_title(), facts.shape.d_ff);
  return fmt::format("{} {}, {} of {} experts", facts.mlp_title(), facts.experts->d_ff, facts.experts->per_row,
                     facts.experts->count);
}

std::string caps_text(const ModelFacts& facts) {
  if (facts.attention_softcap == 0 && facts.final_softcap == 0) return "none";
  const auto cap = [](double value) { return value == 0 ? std::string("none") : fmt::format("{:g}", value); };
  return fmt::format("scores {}, logits {}", cap(facts.attention_softcap), cap(facts.final_softcap));
}

PictureJson parts_json(const ByPart& parts) {
  return {{"embedding", parts.embedding}, {"attention", parts.mixers}, {"mlp", parts.mlps},
          {"norms", parts.norms},         {"head", parts.head},        {"total", parts.total()}};
}

PictureJson design_json(const Model& model, const std::string& title, PictureJson year, PictureJson source, bool own) {
  const ModelFacts facts = facts_of(model);
  const ModelShape& s = facts.shape;
  const int64_t positions = compared_positions(s);
  const TokenCost cost = token_cost(model, positions - 1);
  PictureJson windows = PictureJson::array();  // null: a layer without attention
  for (int64_t layer = 0; layer < s.n_layers; ++layer)
    windows.push_back(facts.attends(layer) ? PictureJson(facts.windows[static_cast<size_t>(layer)]) : PictureJson(nullptr));
  const ByPart parameters = parameters_by_part(model);
  const auto attention = static_cast<double>(parameters.mixers), mlp = static_cast<double>(parameters.mlps),
             each = (attention + mlp) / static_cast<double>(s.n_layers);  // of a layer
  return {{"title", title},
          {"own", own},
          {"year", std::move(year)},
          {"source", std::move(source)},
          {"layers", s.n_layers},
          {"dModel", s.d_model},
          {"heads", s.n_heads},
          {"kvHeads", s.n_kv_heads},
          {"headDim", s.head_dim},
          {"sharing", facts.heads_title()},
          {"norms", norms_text(facts)},
          {"positions", positions_text(facts)},
          {"mlp", mlp_text(facts)},
          {"window", windows_text(facts)},
          {"caps", caps_text(facts)},
          {"context", s.context_length > 0 ? PictureJson(s.context_length) : PictureJson("any")},
          {"vocabulary", s.vocab_size},
          {"windows", std::move(windows)},
          {"parameters", parts_json(parameters)},
          {"attentionShare", number(attention / (attention + mlp))},
          {"embeddingInLayers", number(static_cast<double>(parameters.embedding) / each)},  // how many layers have as many
          {"headInLayers", number(static_cast<double>(parameters.head) / each)},
          {"comparedPositions", positions},
          {"multiplyAdds",
           {{"attention", cost.products.mixers},
            {"scores", cost.scores},
            {"mlp", cost.products.mlps},
            {"head", cost.products.head},
            {"total", cost.total()}}},
          {"cacheBytes", cache_bytes_16(model, positions)}};
}

// Which are the same for every model.
const PictureJson& published_designs() {
  static const PictureJson list = [] {
    PictureJson all = PictureJson::array();
    for (const Design& design : designs())
      all.push_back(design_json(*open_design(design).model, design.title, design.year, design.source, false));
    return all;
  }();
  return list;
}

std::vector<int64_t> distinct_windows(const ModelFacts& facts) {
  std::set<int64_t> windows;
  for (int64_t layer = 0; layer < facts.shape.n_layers; ++layer)
    if (facts.attends(layer)) windows.insert(facts.windows[static_cast<size_t>(layer)]);
  return {windows.begin(), windows.end()};
}

// "layers 0, 2, 4, … (13 of them)"
std::string layers_text(const std::vector<int64_t>& layers) {
  constexpr size_t kNamed = 4;
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (size_t i = 0; i < std::min(layers.size(), kNamed); ++i) text += (i == 0 ? "" : ", ") + std::to_string(layers[i]);
  return layers.size() > kNamed ? fmt::format("{}, … ({} of them)", text, layers.size()) : text;
}

}  // namespace

PictureJson data_of_designs(Studio& studio) {
  PictureJson p = present(
      "Published designs beside the model of this page, drawn to one scale. Width: numbers in the residual stream. Height: "
      "layers, "
      "each cut into attention and MLP by their shares of its parameters; the embedding, and an output matrix where it is "
      "another one, are as high as "
      "the "
      "layers that have as many parameters. Layers that see a window only are paler. All of it follows from the sizes alone.",
      "");
  const PictureJson& published = published_designs();
  p["designs"] = published;
  p["designs"].push_back(design_json(studio.engine.model(), studio.facts.family_title + " of this page", nullptr, nullptr, true));

  using Key = int64_t (*)(const PictureJson&);
  const auto ends = [&](Key key) {  // titles of the published designs with the least and the most
    size_t least = 0, most = 0;
    for (size_t i = 1; i < published.size(); ++i) {
      if (key(published[i]) < key(published[least])) least = i;
      if (key(published[i]) > key(published[most])) most = i;
    }
    return std::array<std::string, 2>{published[least].at("title"), published[most].at("title")};
  };
  const std::array<std::string, 2> parameters =
                                       ends([](const PictureJson& d) { return d.at("parameters").at("total").get<int64_t>(); }),
                                   cache = ends([](const PictureJson& d) { return d.at("cacheBytes").get<int64_t>(); });
  p["alt"] = fmt::format(
      "{} designs, the smallest {}, the largest {}. The largest cache, for {} positions or as many as the "
      "design allows, is that of {}, the smallest that of {}.",
      published.size(), parameters[0], parameters[1], kLongPrompt, cache[1], cache[0]);
  const auto parts_of = [&](std::string_view title) -> const PictureJson& {
    for (const PictureJson& d : published)
      if (d.at("title") == title) return d.at("parameters");
    check_failed(__FILE__, __LINE__, "a design of that title", "the texts name designs that are there");
  };
  const PictureJson &small = parts_of("Gemma 2 2B"), &large = parts_of("Gemma 2 27B");
  p["prose"] = {{"small_all", small.at("total")},
                {"small_embedding", small.at("embedding")},
                {"large_all", large.at("total")},
                {"large_embedding", large.at("embedding")}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "sizes", "columns": [["design", "designs.*.title"], ["year", "designs.*.year"], ["layers", "designs.*.layers"], ["width", "designs.*.dModel"],
      ["heads", "designs.*.heads"], ["key heads", "designs.*.kvHeads"], ["head size", "designs.*.headDim"], ["", "designs.*.sharing"], ["context", "designs.*.context"], ["vocabulary", "designs.*.vocabulary"]]},
    {"note": "parts", "columns": [["design", "designs.*.title"], ["norms", "designs.*.norms"], ["positions", "designs.*.positions"], ["MLP", "designs.*.mlp"],
      ["window", "designs.*.window"], ["soft caps", "designs.*.caps"]]},
    {"note": "parameters by part", "detail": true, "columns": [["design", "designs.*.title"], ["embedding", "designs.*.parameters.embedding", "count"], ["attention", "designs.*.parameters.attention", "count"],
      ["MLP", "designs.*.parameters.mlp", "count"], ["norms", "designs.*.parameters.norms", "count"], ["head", "designs.*.parameters.head", "count"], ["all", "designs.*.parameters.total", "count"]]},
    {"note": "multiply-adds for the last token of a full prompt, and the cache of that prompt in 16 bits", "detail": true, "columns": [["design", "designs.*.title"], ["tokens", "designs.*.comparedPositions", "count"],
      ["attention's matrices", "designs.*.multiplyAdds.attention", "count"], ["scores and values", "designs.*.multiplyAdds.scores", "count"], ["MLP", "designs.*.multiplyAdds.mlp", "count"],
      ["head", "designs.*.multiplyAdds.head", "count"], ["all", "designs.*.multiplyAdds.total", "count"], ["cache bytes", "designs.*.cacheBytes", "count"]]},
    {"note": "where the sizes are published", "detail": true, "columns": [["design", "designs.*.title"], ["source", "designs.*.source"]]}
  ])json");
  return p;
}

PictureJson data_of_head_sharing(Studio& studio) {
  struct Kind {
    std::string title;
    int64_t heads, kv_heads, head_dim, layers;
  };
  const ModelFacts& facts = studio.facts;
  const ModelShape& s = facts.shape;
  std::vector<Kind> kinds;  // the first three: 32 heads of 128 components in 32 layers, as Llama 3 8B has them
  for (const auto& [title, kv_heads] : {std::pair{"multi-head (MHA)", int64_t{32}}, std::pair{"grouped-query (GQA)", int64_t{8}},
                                        std::pair{"multi-query (MQA)", int64_t{1}}})
    kinds.push_back({title, 32, kv_heads, 128, 32});
  const int64_t positions = kLongPrompt;
  kinds.push_back({fmt::format("{} of this page ({})", facts.family_title, facts.heads_title()), s.n_heads, s.n_kv_heads,
                   s.head_dim, s.n_layers - static_cast<int64_t>(facts.conv_layers.size())});
  PictureJson p = present(
      fmt::format(
          "Three ways to give 32 query heads of 128 numbers their keys and values, and this model's. The cache keeps a key "
          "and a value of every key head, for every position in every one of 32 layers, or of the {} of this model with "
          "attention: 16 bits a number, {} positions.",
          s.n_layers - static_cast<int64_t>(facts.conv_layers.size()), positions),
      "");
  p["positions"] = positions;
  p["kinds"] = PictureJson::array();
  for (const Kind& k : kinds) {
    const int64_t each = 2 * k.kv_heads * k.head_dim * k.layers * 2;  // key and value, two bytes a number
    p["kinds"].push_back({{"title", k.title},
                          {"heads", k.heads},
                          {"kvHeads", k.kv_heads},
                          {"headsEach", k.heads / k.kv_heads},
                          {"headDim", k.head_dim},
                          {"layers", k.layers},
                          {"bytesPerPosition", each},
                          {"bytes", each * positions}});
  }
  p["prose"] = {{"positions", positions},
                {"mha", p["kinds"][0].at("bytes")},
                {"gqa", p["kinds"][1].at("bytes")},
                {"mqa", p["kinds"][2].at("bytes")}};
  const auto mebibytes = [&](size_t i) { return p["kinds"][i].at("bytes").get<double>() / 1048576; };
  p["alt"] = fmt::format("With 32 key heads the cache takes {:g} MiB, with 8 it takes {:g} MiB, with one {:g} MiB.", mebibytes(0),
                         mebibytes(1), mebibytes(2));
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["", "kinds.*.title"], ["query heads", "kinds.*.heads"], ["key heads", "kinds.*.kvHeads"], ["query heads to each", "kinds.*.headsEach"],
      ["layers", "kinds.*.layers"], ["bytes a position", "kinds.*.bytesPerPosition", "count"], ["bytes at {positions}", "kinds.*.bytes", "count"]]}
  ])json");
  return p;
}

PictureJson data_of_masks(Studio& studio) {
  constexpr int64_t kBins = 32;
  const ModelFacts& facts = studio.facts;
  const int64_t n = compared_positions(facts.shape), bins = std::min(kBins, n), per_bin = (n + bins - 1) / bins;
  const std::vector<int64_t> windows = distinct_windows(facts);
  const bool local = windows.back() != kNoWindow;
  PictureJson p = present(
      fmt::format(
          "Which of {} positions each position may look at: down the position that looks, across the one that is looked at, "
          "{} to a cell. Nothing right of the diagonal, which comes later. {}",
          n, plural(per_bin, "position"),
          facts.chunked ? "A layer with chunks sees triangles along the diagonal: a position sees its own chunk up to itself."
          : local       ? "A layer with a window sees a band along the diagonal and nothing before it."
                        : "No layer of this model has a window: every one sees all that came before."),
      "");
  p["positions"] = n;
  p["perCell"] = per_bin;
  p["starts"] = PictureJson::array();
  for (int64_t bin = 0; bin < bins; ++bin) p["starts"].push_back(bin * per_bin);
  p["masks"] = PictureJson::array();
  const auto share = [&](int64_t row, int64_t column, int64_t window) {
    int64_t seen = 0, all = 0;
    for (int64_t i = row * per_bin; i < std::min(n, (row + 1) * per_bin); ++i) {
      const int64_t begin = column * per_bin, end = std::min(n, begin + per_bin);
      seen += std::max<int64_t>(0, std::min(end, i + 1) - std::max(begin, facts.first_seen(window, i)));
      all += end - begin;
    }
    return all == 0 ? 0.0 : static_cast<double>(seen) / static_cast<double>(all);
  };
  std::string alt;
  for (const int64_t window : windows) {
    std::vector<std::vector<double>> cells;
    for (int64_t r = 0; r < bins; ++r) {
      std::vector<double>& row = cells.emplace_back();
      for (int64_t c = 0; c < bins; ++c) row.push_back(share(r, c, window));
    }
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < facts.shape.n_layers; ++layer)
      if (facts.attends(layer) && facts.windows[static_cast<size_t>(layer)] == window) layers.push_back(layer);
    const int64_t within = window == kNoWindow ? n : std::min(window, n);
    int64_t pairs = 0;
    for (int64_t i = 0; i < n; ++i) pairs += i + 1 - facts.first_seen(window, i);
    const std::string sees = window == kNoWindow ? "everything before" : facts.chunked ? "its chunk of" : "the last";
    p["masks"].push_back(
        {{"layers", layers_text(layers)},
         {"window", window == kNoWindow ? PictureJson(nullptr) : PictureJson(window)},
         {"sees", window == kNoWindow ? sees : fmt::format("{} {}", sees, window)},
         {"pairs", pairs},
         {"share", number(static_cast<double>(pairs) / (0.5 * static_cast<double>(n) * static_cast<double>(n + 1)))},
         {"kept", within},
         {"cells", table(cells)}});
    alt += fmt::format("{}{}: {}, {} pairs.", alt.empty() ? "" : " ", layers_text(layers),
                       window == kNoWindow ? sees : fmt::format("{} {}", sees, plural(window, "position")), pairs);
  }
  alt[0] = 'L';
  p["alt"] = alt;
  const PictureJson& last = p["masks"].back();  // the widest window, if there is one
  p["prose"] = {{"positions", n}, {"window", last.at("window")}, {"pairs", last.at("pairs")}, {"share", last.at("share")}};
  p["charts"] = PictureJson::array();
  for (size_t i = 0; i < windows.size(); ++i) {
    const std::string mask = fmt::format("masks.{}.", i);
    p["charts"].push_back(
        {{"kind", "grid"},
         {"title", fmt::format("{{{0}layers}}: each position sees {{{0}sees}}", mask)},
         {"label", fmt::format("Which positions a position sees in {{{}layers}}.", mask)},
         {"values", mask + "cells.*.*"},
         {"rows", "{starts.#0}"},
         {"columnTitle", "position that is looked at"},
         {"scale", "sequential"},
         {"most", 1},
         {"cell", 12},
         {"tall", 10},
         {"hint", fmt::format("positions from {{starts.#0}} on look at those from {{starts.#1}} on: {{{}cells.*.*|%}} of the "
                              "pairs are allowed",
                              mask)},
         {"key", {{"label", "share of the pairs that are allowed"}, {"as", "%"}}}});
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "{positions} positions", "columns": [["layers", "masks.*.layers"], ["sees", "masks.*.sees"], ["pairs", "masks.*.pairs", "count"], ["of all earlier ones", "masks.*.share", "%"], ["positions kept in the cache", "masks.*.kept", "count"]]}
  ])json");
  return p;
}

}  // namespace vitrine
