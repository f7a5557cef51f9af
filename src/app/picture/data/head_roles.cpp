// Picture of what the heads of the whole model look at, which of them read each other, and what is lost without the found ones.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "hooks/listening.h"
#include "inspect/circuits.h"
#include "inspect/head_words.h"
#include "intervene/intervene.h"
#include "picture/data/head_study.h"

namespace vitrine {
namespace {

constexpr double kFoundFrom = 0.3;  // as head_words.cpp
constexpr size_t kShownLinks = 3;

struct ShownRole {
  HeadRole role;
  const char *id, *name;
};
constexpr ShownRole kShownRoles[] = {{HeadRole::previous, "previous", "previous token"},
                                     {HeadRole::induction, "induction", "what followed the last time"},
                                     {HeadRole::duplicate, "duplicate", "the same token, earlier"},
                                     {HeadRole::first, "first", "first token"}};

// Mean loss of the second copy's tokens, the first of which could not be known.
double loss_again(Engine& engine, std::span<const int32_t> ids, int64_t repeated) {
  const std::vector<float> logprobs = engine.token_logprobs(ids);  // of ids[1..]
  const size_t first = logprobs.size() - static_cast<size_t>(repeated) + 1;
  return -std::accumulate(logprobs.begin() + static_cast<std::ptrdiff_t>(first), logprobs.end(), 0.0) /
         static_cast<double>(logprobs.size() - first);
}

std::string head_name(int64_t layer, int64_t head) { return fmt::format("{}.{}", layer, head); }

// By layer: a row of the table of heads; layers without attention are left out.
PictureJson scores_by_layer(const HeadScores& scores, HeadRole role) {
  PictureJson rows = PictureJson::array();
  for (const HeadScore& score : scores.heads) {
    if (score.head == 0) rows.push_back(PictureJson::array());
    rows.back().push_back(number(score.at(role)));
  }
  return rows;
}

PictureJson links_of(Engine& engine, std::string& why_not) {
  PictureJson list = PictureJson::array();
  try {
    const CircuitTable table = circuit_table(engine, {.spectra = false});
    for (const HeadLink& link : strongest_links(table.composition, kShownLinks))
      list.push_back({{"score", number(link.score)},
                      {"kind", link.kind},
                      {"words", words_of(link)},
                      {"name", fmt::format("{} → {} of {}", head_name(link.pair->from_layer, link.pair->from_head), link.kind,
                                           head_name(link.pair->to_layer, link.pair->to_head))}});
  } catch (const InputError& error) {  // a family whose heads have no circuits, or more of them than memory holds
    why_not = error.what();
  }
  return list;
}

}  // namespace

PictureJson data_of_head_roles(Studio& studio) {
  HeadStudy& study = head_study(studio);
  if (study.scores.heads.empty()) return absent("This model's context is too short for a sequence that repeats itself.");
  Engine& engine = studio.engine;
  const HeadScores& scores = study.scores;
  PictureJson p = present(
      fmt::format("Every head of the model on {} random tokens, repeated once: in the second half only the sequence itself tells "
                  "what comes next. The share of a head's attention that goes to each kind of place, as a mean over the tokens "
                  "that have one.",
                  study.repeated),
      "");
  p["repeated"] = study.repeated;
  p["layerNames"] = PictureJson::array();
  for (const HeadScore& score : scores.heads)
    if (score.head == 0) p["layerNames"].push_back(score.layer);
  p["roles"] = PictureJson::array();
  const double usual = loss_again(engine, scores.ids, study.repeated);
  std::string alt;
  for (const ShownRole& role : kShownRoles) {
    if (scores.queries[static_cast<size_t>(role.role)] == 0) continue;
    std::vector<HeadScore> sorted = scores.heads;
    std::sort(sorted.begin(), sorted.end(), [&](const HeadScore& a, const HeadScore& b) {
      return std::tuple(-a.at(role.role), a.layer, a.head) < std::tuple(-b.at(role.role), b.layer, b.head);
    });
    PictureJson found = PictureJson::array();
    for (size_t i = 0; i < std::min<size_t>(sorted.size(), 3) && sorted[i].at(role.role) >= kFoundFrom; ++i)
      found.push_back({{"layer", sorted[i].layer}, {"head", sorted[i].head}, {"score", number(sorted[i].at(role.role))}});
    const HeadScore& best = sorted.front();
    PictureJson one = {{"id", role.id},
                       {"name", role.name},
                       {"best", {{"layer", best.layer}, {"head", best.head}, {"score", number(best.at(role.role))}}},
                       {"found", std::move(found)},
                       {"scores", scores_by_layer(scores, role.role)}};
    one["words"] = one.at("found").empty()
                       ? fmt::format("no head above {:.0f} %; the most is {}", 100 * kFoundFrom, head_name(best.layer, best.head))
                       : fmt::format("head {}", head_name(best.layer, best.head));
    alt += fmt::format("{}{}: {}, {:.0f} %", alt.empty() ? "" : "; ", role.name, one["words"].get<std::string>(),
                       100 * best.at(role.role));
    p["roles"].push_back(std::move(one));
  }
  // Without the strongest previous-token head and the strongest induction head, found or not: what the repetition then costs.
  p["ablations"] = PictureJson::array({{{"name", "all heads"}, {"loss", number(usual)}, {"change", 0}}});
  for (const PictureJson& role : p["roles"]) {
    if (role.at("id") != "previous" && role.at("id") != "induction") continue;
    const int64_t layer = role.at("best").at("layer"), head = role.at("best").at("head");
    Interventions off(std::vector<ValueEdit>{{.hook = fmt::format("blocks.{}.attn.hook_z", layer),
                                              .heads = {head, head + 1},
                                              .kind = ValueEdit::Kind::set,
                                              .values = {0}}});
    const Listening listening(engine.context(), off);
    const double loss = loss_again(engine, scores.ids, study.repeated);
    p["ablations"].push_back({{"name", fmt::format("without {} ({})", head_name(layer, head), role.at("id").get<std::string>())},
                              {"loss", number(loss)},
                              {"change", number(loss - usual)}});
  }
  std::string why_not;
  p["links"] = links_of(engine, why_not);
  p["noLinks"] = nullptr;
  if (p["links"].empty()) {
    p["links"] = nullptr;
    p["noLinks"] = why_not.empty() ? "only one layer has heads" : why_not;
  }
  p["random"] = number(1 / std::sqrt(static_cast<double>(studio.facts.shape.d_model)));
  p["alt"] = alt + ".";
  p["prose"] = {{"repeated", study.repeated}, {"loss", number(usual)}, {"random", p["random"]}};
  p["prose"]["link"] = p["links"].is_null() ? PictureJson(nullptr) : p["links"][0].at("words");
  p["prose"]["link_score"] = p["links"].is_null() ? PictureJson(nullptr) : p["links"][0].at("score");
  for (const char* id : {"previous_name", "induction_name", "previous_found", "induction_found"}) p["prose"][id] = nullptr;
  for (const PictureJson& role : p["roles"]) {
    const std::string id = role.at("id");
    if (id != "previous" && id != "induction") continue;
    const PictureJson& best = role.at("best");
    p["prose"][id + "_name"] = head_name(best.at("layer"), best.at("head"));
    p["prose"][id + "_score"] = best.at("score");
    p["prose"][id + "_found"] = !role.at("found").empty();
    for (const PictureJson& ablation : p["ablations"])
      if (ablation.at("name").get<std::string>().ends_with("(" + id + ")")) p["prose"][id + "_change"] = ablation.at("change");
  }
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Looks at", "each": "roles.*", "name": "{roles.#0.name}", "charts": [
      {"kind": "grid", "label": "Share of attention of every head on: {roles.#0.name}.", "values": "roles.#0.scores.*.*", "rows": "layer {layerNames.#1}", "columns": "{#2}",
       "columnTitle": "head", "scale": "sequential", "most": 1, "cell": 48, "tall": 22, "write": ".2f", "hint": "layer {layerNames.#1}, head {#2}\n{roles.#0.scores.*.*|%} of its attention: {roles.#0.name}",
       "key": {"label": "share of attention: {roles.#0.name}", "low": "0", "high": "1"}}]},
    {"kind": "bars", "title": "Loss of the repeated tokens, in nats", "label": "Loss of the repeated tokens with all heads and without the strongest of two kinds.", "name": "{ablations.*.name}", "value": "ablations.*.loss",
     "hint": "{ablations.*.name}\nloss {ablations.*.loss}, change {ablations.*.change}"},
    {"kind": "bars", "if": "links", "title": "Strongest compositions, from weights alone", "label": "Strongest compositions between heads.", "name": "{links.*.name}", "value": "links.*.score",
     "hint": "{links.*.words}\n{links.*.score}; two random matrices: about {random|.2g}"},
    {"kind": "remark", "if": "noLinks", "text": "No compositions between heads: {noLinks}"}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "share of attention", "columns": [["looks at", "roles.*.name"], ["strongest", "roles.*.words"], ["share", "roles.*.best.score", ".3f"]]},
    {"note": "loss of the repeated tokens", "columns": [["heads", "ablations.*.name"], ["loss", "ablations.*.loss"], ["change", "ablations.*.change"]]},
    {"if": "links", "note": "compositions", "columns": [["heads", "links.*.words"], ["score", "links.*.score"]]},
    {"detail": true, "columns": [["looks at", "roles.#0.name"], ["layer", "layerNames.#1"], ["head", "#2"], ["share", "roles.*.scores.*.*"]]}
  ])json");
  return p;
}

}  // namespace vitrine
