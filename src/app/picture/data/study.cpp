#include "picture/data/study.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "inspect/head_words.h"
#include "runtime/token_json.h"
#include "vitrine/version.h"

namespace vitrine {
namespace {

constexpr size_t kPairsOnPage = 50000;  // of compositions; a page of some MB
constexpr size_t kLinksOnPage = 20;

void mention(std::set<int32_t>& ids, const LikelyTokens& likely) {
  for (size_t i = 0; i < likely.size(); i += 2) ids.insert(static_cast<int32_t>(likely[i]));
}

// The tokens that a section speaks of.
void mention(std::set<int32_t>& ids, const HeadsData& heads) { ids.insert(heads.ids.begin(), heads.ids.end()); }
void mention(std::set<int32_t>& ids, const PatchData& patch) {
  for (const auto* tokens : {&patch.clean, &patch.corrupt, &patch.metric.tokens}) ids.insert(tokens->begin(), tokens->end());
  for (const auto* likely : {&patch.before, &patch.clean_likely}) mention(ids, *likely);
  for (const auto& cell : patch.cells)
    if (cell) mention(ids, cell->likely);
}
void mention(std::set<int32_t>&, const LossesData&) {}  // a run may have another vocabulary
void mention(std::set<int32_t>&, const LayersData&) {}
void mention(std::set<int32_t>&, const CurvesData&) {}

std::map<std::string, std::string> pieces_of(const Engine& engine, const std::set<int32_t>& ids) {
  std::map<std::string, std::string> pieces;
  for (const int32_t id : ids)
    if (const std::optional<std::string> piece = engine.piece(id)) pieces[std::to_string(id)] = *piece;
  return pieces;
}

void round_numbers(PictureJson& json) {
  if (json.is_number_float()) json = number(json.get<double>());
  if (json.is_structured())
    for (PictureJson& one : json) round_numbers(one);
}

std::optional<double> known(double value) { return std::isfinite(value) ? std::optional(value) : std::nullopt; }

double mean_nll(std::span<const float> logprobs) {
  double sum = 0;
  for (const float logprob : logprobs) sum -= static_cast<double>(logprob);
  return logprobs.empty() ? std::nan("") : sum / static_cast<double>(logprobs.size());
}

HeadsData::Run heads_run(const StudiedHeads& run, std::span<const HeadSpectra> spectra, int64_t repeated) {
  HeadsData::Run made{.name = run.name,
                      .options = run.options,
                      .step = run.step,
                      .loss = known(run.loss(repeated, false)),
                      .sentences = head_sentences(run.scores, spectra)};
  if (repeated > 0) made.loss_again = known(run.loss(repeated, true));
  for (const HeadScore& head : run.scores.heads)
    std::transform(head.mean.begin(), head.mean.end(), made.scores.emplace_back().begin(), known);
  return made;
}

CircuitsData circuits_data(const CircuitTable& table) {
  CircuitsData data;
  for (const HeadSpectra& h : table.heads) data.heads.push_back({h.layer, h.head, h.copying, h.qk.rank, h.ov.rank});
  if (table.composition.size() <= kPairsOnPage) data.composition = table.composition;
  for (const HeadLink& link : strongest_links(table.composition, kLinksOnPage))
    data.links.push_back({link.score, words_of(link)});
  return data;
}

}  // namespace

LikelyTokens likely_tokens(const std::vector<TokenLogprob>& likely) {
  LikelyTokens list;
  for (const TokenLogprob& one : likely) list.insert(list.end(), {static_cast<double>(one.token), one.prob()});
  return list;
}

double StudiedHeads::loss(int64_t repeated, bool again) const {
  const std::span<const float> all = logprobs;
  const size_t last = std::min(static_cast<size_t>(repeated), all.size());
  return mean_nll(again ? all.last(last) : all.first(all.size() - last));
}

PictureJson study_document(const Engine& engine, const StudyHead& head, const std::vector<StudySection>& sections) {
  std::set<int32_t> ids;
  PictureJson list = PictureJson::array();
  for (const StudySection& section : sections)
    std::visit(
        [&](const auto& data) {
          mention(ids, data);
          list.push_back({{"picture", data.kPicture}});
          list.back().update(json_of(data, speller_of(engine)));
          if (!std::holds_alternative<LayersData>(section)) round_numbers(list.back());  // 1 - cosine needs all digits
        },
        section);
  PictureJson json = {{"format", 2}, {"kind", "study"}, {"version", version()}};
  json.update(json_of(head));
  json["pieces"] = pieces_of(engine, ids);
  json["sections"] = std::move(list);
  return json;
}

HeadsData heads_section(std::span<const StudiedHeads> runs, const CircuitTable* circuits, int64_t repeated,
                        const std::string& prompt) {
  VITRINE_CHECK(!runs.empty(), "heads of at least one run");
  const HeadScores& first = runs[0].scores;
  std::vector<HeadSpectra> places;  // which heads are spoken of
  HeadsData data{.ids = first.ids, .prompt = prompt, .repeated = repeated, .queries = first.queries};
  for (const HeadScore& head : first.heads) {
    HeadSpectra& place = places.emplace_back();
    place.layer = head.layer;
    place.head = head.head;
    data.heads.push_back({head.layer, head.head});
  }
  for (const StudiedHeads& run : runs) {
    if (run.scores.heads.size() != first.heads.size())
      throw InputError(run.name + " has " + std::to_string(run.scores.heads.size()) + " heads, and " + runs[0].name + " has " +
                       std::to_string(first.heads.size()) + "; heads are compared one with one");
    const bool with_circuits = circuits != nullptr && &run == &runs.back();
    data.runs.push_back(heads_run(run, with_circuits ? std::span<const HeadSpectra>(circuits->heads) : places, repeated));
  }
  if (circuits != nullptr) data.circuits = circuits_data(*circuits);
  return data;
}

PatchData patch_section(const InterveneResult& r, const std::vector<TokenLogprob>& clean) {
  if (!r.grid) throw InputError("the recipe has no grid to be drawn: give it patch, ablate or path");
  const InterveneGrid& grid = *r.grid;
  PatchData data{.clean = r.prompts.clean,
                 .corrupt = r.prompts.corrupt,
                 .runs_corrupt = r.recipe.run_corrupt,
                 .kind = grid.kind,
                 .what = grid.what,
                 .rows = grid.rows,
                 .column_axis = grid.column_axis,
                 .columns = grid.columns,
                 .positions = grid.positions,
                 .position = r.position,
                 .metric = *r.metric,
                 .clean_likely = likely_tokens(clean),
                 .recipe_head = grid.recipe_head};
  for (size_t i = 0; i < grid.values.size(); ++i) {
    std::optional<PatchData::Cell>& cell = data.cells.emplace_back();
    if (!grid.values[i]) continue;
    cell = {*grid.values[i], r.metric->normalized(*grid.values[i]), {}, grid.recipe_cells[i]};
    if (i < grid.most_likely.size()) cell->likely = likely_tokens(grid.most_likely[i]);
  }
  std::vector<TokenLogprob> unchanged;  // as many as are kept of the others
  if (!r.before.empty()) unchanged = r.before.back().top;
  unchanged.resize(std::min(unchanged.size(), clean.size()));
  data.before = likely_tokens(unchanged);
  return data;
}

LossesData losses_section(std::vector<LossesData::Run> runs, bool paired, std::vector<std::optional<double>> kl) {
  for (LossesData::Run& run : runs) {
    std::set<int32_t> ids;
    for (const LossesData::Text& text : run.texts)
      for (const LikelyTokens& likely : text.likely) mention(ids, likely);
    run.pieces = pieces_of(*run.engine, ids);
  }
  return {paired, std::move(kl), std::move(runs)};
}

}  // namespace vitrine
