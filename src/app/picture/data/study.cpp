#include "picture/data/study.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "inspect/head_words.h"
#include "vitrine/version.h"

namespace vitrine {
namespace {

constexpr size_t kPairsOnPage = 50000;  // of compositions; a page of some MB
constexpr size_t kLinksOnPage = 20;

/// [id, probability, id, probability, …]
PictureJson likely_json(const std::vector<TokenLogprob>& likely) {
  PictureJson list = PictureJson::array();
  for (const TokenLogprob& one : likely) {
    list.push_back(one.token);
    list.push_back(number(std::exp(static_cast<double>(one.logprob))));
  }
  return list;
}

void note_ids(const PictureJson& likely, std::set<int32_t>& ids) {
  for (size_t i = 0; i < likely.size(); i += 2) ids.insert(likely[i].get<int32_t>());
}

PictureJson pieces_of(const Engine& engine, const std::set<int32_t>& ids) {
  PictureJson pieces = PictureJson::object();
  for (const int32_t id : ids)
    if (const std::optional<std::string> piece = engine.piece(id)) pieces[std::to_string(id)] = *piece;
  return pieces;
}

double mean_nll(std::span<const float> logprobs) {
  double sum = 0;
  for (const float logprob : logprobs) sum -= static_cast<double>(logprob);
  return logprobs.empty() ? std::nan("") : sum / static_cast<double>(logprobs.size());
}

PictureJson heads_run(const StudiedHeads& run, std::span<const HeadSpectra> spectra, int64_t repeated) {
  PictureJson scores = PictureJson::array();
  for (const HeadScore& head : run.scores.heads) scores.push_back(numbers(std::span<const double>(head.mean)));
  return {{"name", run.name},
          {"options", run.options},
          {"step", run.step ? PictureJson(*run.step) : PictureJson(nullptr)},
          {"loss", number(run.loss(repeated, false))},
          {"lossAgain", repeated > 0 ? number(run.loss(repeated, true)) : PictureJson(nullptr)},
          {"scores", std::move(scores)},
          {"sentences", head_sentences(run.scores, spectra)}};
}

PictureJson circuits_json(const CircuitTable& table) {
  PictureJson heads = PictureJson::array(), pairs = PictureJson::array(), links = PictureJson::array();
  const auto values = [](const Spectrum& s) {
    return numbers(std::span(s.singular_values).first(std::min<size_t>(3, s.singular_values.size())));
  };
  for (const HeadSpectra& h : table.heads)
    heads.push_back({{"layer", h.layer},
                     {"head", h.head},
                     {"copying", number(h.copying)},
                     {"qkRank", h.qk.rank},
                     {"qk", values(h.qk)},
                     {"ovRank", h.ov.rank},
                     {"ov", values(h.ov)}});
  if (table.composition.size() <= kPairsOnPage)
    for (const Composition& c : table.composition)
      pairs.push_back({c.from_layer, c.from_head, c.to_layer, c.to_head, number(c.q), number(c.k), number(c.v)});
  for (const HeadLink& link : strongest_links(table.composition, kLinksOnPage))
    links.push_back({{"score", number(link.score)}, {"words", words_of(link)}});
  return {{"heads", std::move(heads)}, {"pairs", std::move(pairs)}, {"links", std::move(links)}};
}

}  // namespace

double StudiedHeads::loss(int64_t repeated, bool again) const {
  const std::span<const float> all = logprobs;
  const size_t last = std::min(static_cast<size_t>(repeated), all.size());
  return mean_nll(again ? all.last(last) : all.first(all.size() - last));
}

PictureJson study_document(const Engine& engine, const StudyHead& head, std::vector<PictureJson> sections) {
  std::set<int32_t> ids;
  for (const PictureJson& section : sections)
    for (const PictureJson& id : section.value("ids", PictureJson::array())) ids.insert(id.get<int32_t>());
  return {{"format", 1},
          {"kind", "study"},
          {"version", version()},
          {"kicker", head.kicker},
          {"title", head.title},
          {"lines", head.lines},
          {"command", head.command},
          {"pieces", pieces_of(engine, ids)},
          {"sections", std::move(sections)}};
}

PictureJson heads_section(std::span<const StudiedHeads> runs, const CircuitTable* circuits, int64_t repeated,
                          const std::string& prompt) {
  VITRINE_CHECK(!runs.empty(), "heads of at least one run");
  const HeadScores& first = runs[0].scores;
  std::vector<HeadSpectra> places;  // which heads are spoken of
  PictureJson heads = PictureJson::array();
  for (const HeadScore& head : first.heads) {
    HeadSpectra& place = places.emplace_back();
    place.layer = head.layer;
    place.head = head.head;
    heads.push_back({head.layer, head.head});
  }
  PictureJson list = PictureJson::array();
  for (const StudiedHeads& run : runs) {
    if (run.scores.heads.size() != first.heads.size())
      throw InputError(run.name + " has " + std::to_string(run.scores.heads.size()) + " heads, and " + runs[0].name + " has " +
                       std::to_string(first.heads.size()) + "; heads are compared one with one");
    const bool with_circuits = circuits != nullptr && &run == &runs.back();
    list.push_back(heads_run(run, with_circuits ? std::span<const HeadSpectra>(circuits->heads) : places, repeated));
  }
  return {{"picture", "heads"},       {"ids", first.ids},
          {"prompt", prompt},         {"repeated", repeated},
          {"queries", first.queries}, {"heads", std::move(heads)},
          {"runs", std::move(list)},  {"circuits", circuits == nullptr ? PictureJson(nullptr) : circuits_json(*circuits)}};
}

PictureJson patch_section(const InterveneResult& r, const std::vector<TokenLogprob>& clean) {
  if (!r.grid) throw InputError("the recipe has no grid to be drawn: give it patch, ablate or path");
  const InterveneGrid& grid = *r.grid;
  std::set<int32_t> ids(r.metric_tokens.begin(), r.metric_tokens.end());
  ids.insert(r.prompts.clean.begin(), r.prompts.clean.end());
  ids.insert(r.prompts.corrupt.begin(), r.prompts.corrupt.end());
  PictureJson cells = PictureJson::array();
  for (size_t i = 0; i < grid.values.size(); ++i) {
    if (!grid.values[i]) {
      cells.push_back(nullptr);
      continue;
    }
    PictureJson likely = i < grid.most_likely.size() ? likely_json(grid.most_likely[i]) : PictureJson::array();
    note_ids(likely, ids);
    const std::optional<double> share = r.normalized(*grid.values[i]);
    cells.push_back({{"value", number(*grid.values[i])},
                     {"share", share ? number(*share) : PictureJson(nullptr)},
                     {"likely", std::move(likely)},
                     {"recipe", grid.recipe_cells[i]}});
  }
  std::vector<TokenLogprob> unchanged;  // as many as are kept of the others
  if (!r.before.empty()) unchanged = r.before.back().top;
  unchanged.resize(std::min(unchanged.size(), clean.size()));
  PictureJson before = likely_json(unchanged);
  PictureJson of_clean = likely_json(clean);
  note_ids(before, ids);
  note_ids(of_clean, ids);
  const auto optional = [](const std::optional<double>& value) { return value ? number(*value) : PictureJson(nullptr); };
  const char* metric = "loss";
  switch (r.recipe.metric.kind) {
    case MetricSpec::Kind::logit_difference: metric = "logit difference"; break;
    case MetricSpec::Kind::logprob: metric = "log-probability"; break;
    case MetricSpec::Kind::kl: metric = "KL divergence"; break;
    default: break;
  }
  return {{"picture", "patch"},
          {"ids", ids},
          {"clean", r.prompts.clean},
          {"corrupt", r.prompts.corrupt},
          {"runsCorrupt", r.recipe.run_corrupt},
          {"kind", grid.kind},
          {"what", grid.what},
          {"rows", grid.rows},
          {"columnAxis", grid.column_axis},
          {"columns", grid.columns},
          {"positions", grid.positions},
          {"position", r.position},
          {"metric", {{"name", metric}, {"tokens", r.metric_tokens}}},
          {"metricBefore", optional(r.metric_before)},
          {"metricClean", optional(r.metric_clean)},
          {"metricCorrupt", optional(r.metric_corrupt)},
          {"before", std::move(before)},
          {"cleanLikely", std::move(of_clean)},
          {"recipeHead", grid.recipe_head},
          {"cells", std::move(cells)}};
}

PictureJson losses_section(std::span<const StudiedLosses> runs, bool paired, std::span<const double> kl) {
  PictureJson list = PictureJson::array();
  for (const StudiedLosses& run : runs) {
    std::set<int32_t> ids;
    PictureJson texts = PictureJson::array();
    for (const StudiedText& text : run.texts) {
      PictureJson likely = PictureJson::array();
      for (const std::vector<TokenLogprob>& one : text.likely) {
        likely.push_back(likely_json(one));
        note_ids(likely.back(), ids);
      }
      texts.push_back(
          {{"words", text.words}, {"nll", numbers(text.nll)}, {"likely", std::move(likely)}, {"leftOut", text.left_out}});
    }
    list.push_back(
        {{"name", run.name}, {"facts", run.facts}, {"pieces", pieces_of(*run.engine, ids)}, {"texts", std::move(texts)}});
  }
  return {{"picture", "losses"}, {"paired", paired}, {"kl", numbers(kl)}, {"runs", std::move(list)}};
}

PictureJson layers_section(const ModelComparison& c) {
  PictureJson points = PictureJson::array();
  for (const StreamDifference& d : c.layers)
    points.push_back({{"name", d.point},
                      {"layer", d.layer},
                      {"distance", number(1 - d.cosine)},
                      {"largest", number(d.distance)},
                      {"position", d.worst_at},
                      {"relative", number(d.relative)},
                      {"attention", d.layer < 0 ? PictureJson(nullptr) : number(d.attention_mean)},
                      {"attentionMost", d.layer < 0 ? PictureJson(nullptr) : number(d.attention_most)},
                      {"head", d.attention_head},
                      {"query", d.attention_query}});
  return {{"picture", "layers"}, {"points", std::move(points)}};
}

PictureJson curves_section(const std::string& title, const std::string& axis, const std::vector<std::string>& names,
                           const std::vector<std::vector<StudiedRange>>& curves) {
  PictureJson list = PictureJson::array();
  for (size_t i = 0; i < curves.size(); ++i) {
    PictureJson ranges = PictureJson::array();
    for (const StudiedRange& r : curves[i])
      ranges.push_back({{"from", r.from}, {"to", r.to}, {"tokens", r.tokens}, {"value", number(r.value)}});
    list.push_back({{"name", names.at(i)}, {"ranges", std::move(ranges)}});
  }
  return {{"picture", "curves"}, {"title", title}, {"axis", axis}, {"curves", std::move(list)}};
}

}  // namespace vitrine
