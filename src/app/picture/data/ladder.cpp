// Pictures of the ladder: small models that lack parts, as they learned (models/book/ladder).
#include <algorithm>
#include <cmath>

#include "picture/data/shipped_text.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

double as_number(const PictureJson& value) { return value.is_number() ? value.get<double>() : std::nan(""); }

constexpr const char* kLadder = "models/book/ladder/ladder.json";

const PictureJson& ladder() {
  static const PictureJson runs = [] {
    const PictureJson file = PictureJson::parse(shipped_text(kLadder), nullptr, false);
    return file.is_object() && file.contains("runs") ? file.at("runs") : PictureJson(nullptr);
  }();
  return runs;
}

PictureJson no_ladder() { return absent(fmt::format("This build has no {}.", kLadder)); }

struct Rung {
  const char *name, *title, *tone;
  bool dashed;
};
constexpr Rung kRungs[] = {{"attention", "attention alone", "plain", true},
                           {"residual", "+ residual", "mlp", true},
                           {"norm", "+ LayerNorm", "mlp", false},
                           {"mlp", "+ MLP", "attention", false}};
constexpr Rung kSwitches[] = {{"mlp", "the whole model", "attention", false},
                              {"no-affine", "no scale and shift", "attention", true},
                              {"no-positions", "no positions", "mlp", true},
                              {"no-mask", "no mask", "plain", true}};
constexpr Rung kDeep[] = {{"vanishing", "no norms, no residual", "plain", true},
                          {"exploding", "no norms, large weights", "mlp", true},
                          {"healthy", "norms and residual", "attention", false}};

const PictureJson* run_of(const char* name) {
  for (const PictureJson& run : ladder())
    if (run.at("name") == name) return &run;
  return nullptr;
}

// These runs with their titles, or nothing where one is missing.
template <size_t N>
PictureJson runs_of(const Rung (&rungs)[N]) {
  PictureJson list = PictureJson::array();
  for (const Rung& rung : rungs) {
    const PictureJson* const run = run_of(rung.name);
    if (run == nullptr) return nullptr;
    const PictureJson& losses = run->at("loss").at("value");
    const PictureJson& held_out = run->at("validation").at("value");
    PictureJson& entry = list.emplace_back(*run);
    entry["title"] = rung.title;
    entry["last"] = losses.back();
    entry["validated"] = held_out.empty() ? PictureJson(nullptr) : held_out.back();
  }
  return list;
}

template <size_t N>
PictureJson loss_series(const Rung (&rungs)[N]) {
  PictureJson series = PictureJson::array();
  for (size_t i = 0; i < N; ++i) {
    const std::string at = fmt::format("runs.{}.loss.", i);
    series.push_back({{"name", rungs[i].title},
                      {"tone", rungs[i].tone},
                      {"dashed", rungs[i].dashed},
                      {"draw", "line"},
                      {"x", at + "step.*"},
                      {"y", at + "value.*"},
                      {"hint", fmt::format("{}\nstep {{{}step.*}}\nloss {{{}value.*}}", rungs[i].title, at, at)}});
  }
  return series;
}

PictureJson loss_chart(const char* title, const char* label, PictureJson series) {
  return {{"kind", "xy"},
          {"title", title},
          {"label", label},
          {"height", 330},
          {"x", {{"label", "step"}, {"zero", true}}},
          {"y", {{"label", "loss: −ln p of the next token"}}},
          {"series", std::move(series)},
          {"rules", "guess"}};
}

// What a model knows that has learned nothing: every piece of the vocabulary is as likely as any other.
constexpr double kPieces = 1024;

// What the pictures of losses say of p["runs"].
void add_losses(PictureJson& p) {
  std::string alt;
  PictureJson prose = PictureJson::object();
  for (const PictureJson& run : p["runs"]) {  // "no_mask_loss", "no_mask_sample"
    std::string name = run["name"];
    std::replace(name.begin(), name.end(), '-', '_');
    prose[name + "_loss"] = run["last"];
    prose[name + "_held_out"] = run["validated"];
    prose[name + "_sample"] = run["sample"];
    prose["steps"] = run["steps"];
    alt += fmt::format("{}{}: {:.2f}", alt.empty() ? "Loss of the last step. " : "; ", run["title"].get<std::string>(),
                       run["last"].get<double>());
  }
  p["alt"] = alt + ".";
  p["guess"] = {{{"y", number(std::log(kPieces))}, {"label", "knowing nothing: ln 1,024"}}};
  if (const PictureJson* const first = run_of("attention"); first != nullptr && first->contains("frequencies")) {
    p["guess"].push_back({{"y", first->at("frequencies")}, {"label", "knowing how often each piece occurs"}});
    prose["frequencies"] = first->at("frequencies");
  }
  p["prose"] = std::move(prose);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "loss of the last step, and on text that it has not read", "columns": [["model", "runs.*.title"], ["steps", "runs.*.steps"], ["loss", "runs.*.last", ".3f"], ["held out", "runs.*.validated", ".3f"]]},
    {"note": "what it writes after \"Once upon a time there was a\"", "columns": [["model", "runs.*.title"], ["sample", "runs.*.sample"]]},
    {"detail": true, "columns": [["model", "runs.#0.title"], ["step", "runs.*.loss.step.*"], ["loss", "runs.#0.loss.value.#1", ".4f"]]}
  ])json");
}

// log10 of each layer's gradient over that at the stream's end, one row for each step that was logged.
PictureJson decades_of(const PictureJson& stream) {
  PictureJson rows = PictureJson::array();
  for (const PictureJson& step : stream) {
    const double end = as_number(step.back());
    std::vector<double> row;
    for (size_t l = 0; l + 1 < step.size(); ++l) {
      const double ratio = as_number(step[l]) / end;
      row.push_back(ratio > 0 ? std::log10(ratio) : std::nan(""));
    }
    rows.push_back(numbers(row));
  }
  return rows;
}

}  // namespace

PictureJson data_of_ladder_loss(Studio&) {
  PictureJson p = present(
      "Loss of four small models while they learn from old tales: 6 layers of width 64, 1,024 pieces, the same data, steps and "
      "learning rate. "
      "Each has one part more than the one before it.",
      "");
  p["runs"] = runs_of(kRungs);
  if (p["runs"].is_null()) return no_ladder();
  add_losses(p);
  double most = -INFINITY;  // how far the part that helps most lowers the loss
  for (size_t i = 1; i < std::size(kRungs); ++i) {
    const double falls = as_number(p["runs"][i - 1]["validated"]) - as_number(p["runs"][i]["validated"]);
    if (falls <= most) continue;
    most = falls;
    p["prose"]["most"] = kRungs[i].name;
  }
  p["charts"] = {loss_chart("Each part that is added", "Loss of four models by step.", loss_series(kRungs))};
  return p;
}

PictureJson data_of_ladder_switches(Studio&) {
  PictureJson p = present(
      "The whole model of the ladder, and the same without scale and shift, without positions and without the causal mask. "
      "Without the mask the "
      "loss says nothing: each position sees the token that it has to predict.",
      "");
  p["runs"] = runs_of(kSwitches);
  if (p["runs"].is_null()) return no_ladder();
  add_losses(p);
  p["charts"] = {loss_chart("Parts that are switched off", "Loss of four models by step.", loss_series(kSwitches))};
  return p;
}

PictureJson data_of_ladder_gradients(Studio&) {
  PictureJson p = present(
      "Length of the gradient at the stream that enters each layer, on a log axis, at the first step of three models of 12 "
      "layers; and over all "
      "steps of every run of the ladder, in powers of ten of that after the last layer.",
      "");
  p["deep"] = runs_of(kDeep);
  const PictureJson rungs = runs_of(kRungs), others = runs_of(kSwitches);
  if (p["deep"].is_null() || rungs.is_null() || others.is_null()) return no_ladder();
  p["runs"] = PictureJson::array();
  const PictureJson deep = p["deep"];
  for (const PictureJson* list : {&deep, &rungs, &others})
    for (const PictureJson& run : *list)
      if (list != &others || run.at("name") != "mlp")  // which is the last rung, too
        p["runs"].push_back({{"name", run.at("name")},
                             {"title", run.at("title")},
                             {"steps", run.at("gradients").at("step")},
                             {"layers", run.at("layers")},
                             {"error", run.at("error")},
                             {"decades", decades_of(run.at("gradients").at("stream"))}});
  std::string alt = "From the last layer to the first, at the first step, the gradient is multiplied";
  PictureJson prose = PictureJson::object();
  for (PictureJson& run : p["deep"]) {
    const PictureJson first = run["gradients"]["stream"][0];
    prose[run["name"].get<std::string>()] = as_number(first[0]) / as_number(first[first.size() - 2]);
    run["ratio"] = number(as_number(first[0]) / as_number(first[first.size() - 2]));
    alt += fmt::format("{} {:.2g} ({})", alt.ends_with("multiplied") ? " by" : ",", run["ratio"].get<double>(),
                       run["title"].get<std::string>());
  }
  p["alt"] = alt + ".";
  p["prose"] = std::move(prose);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "at the first step: gradient at the first layer over that at the last", "columns": [["model", "deep.*.title"], ["ratio", "deep.*.ratio", ".3g"], ["how it ended", "deep.*.error"]]},
    {"note": "at the first step", "detail": true, "columns": [["model", "deep.#0.title"], ["layer", "#1"], ["|gradient|", "deep.*.gradients.stream.0.*", ".3g"]]},
    {"note": "in powers of ten of the gradient after the last layer", "detail": true, "columns": [["model", "runs.#0.title"], ["step", "runs.#0.steps.#1"], ["layer", "#2"], ["log10 of the ratio", "runs.*.decades.*.*", ".2f"]]}
  ])json");
  PictureJson series = PictureJson::array();
  for (size_t i = 0; i < std::size(kDeep); ++i) {
    const std::string y = fmt::format("deep.{}.gradients.stream.0.*", i);
    series.push_back({{"name", kDeep[i].name},
                      {"tone", kDeep[i].tone},
                      {"dashed", kDeep[i].dashed},
                      {"draw", "both"},
                      {"y", y},
                      {"hint", fmt::format("{} ({})\nentering layer {{#0}}\nlength of the gradient {{{}}}", kDeep[i].name,
                                           kDeep[i].title, y)}});
  }
  p["charts"] = {{{"kind", "xy"},
                  {"title", "The first step: vanishing, exploding, healthy"},
                  {"label", "Length of the gradient by layer, of three models."},
                  {"height", 300},
                  {"x", {{"label", "layer that the stream enters; the last is the end"}, {"whole", true}}},
                  {"y", {{"label", "length of the gradient, log"}, {"log", true}}},
                  {"series", std::move(series)}}};
  p["charts"].push_back(PictureJson::parse(R"json(
    {"choose": "Run", "each": "runs.*", "name": "{runs.#0.title}", "charts": [
      {"kind": "grid", "title": "{runs.#0.title}: every layer, step by step", "label": "Gradient of each layer over that after the last, by step.", "values": "runs.#0.decades.*.*",
       "rows": "step {runs.#0.steps.#1}", "columns": "{#2}", "columnTitle": "layer", "scale": "diverging", "most": 6, "cell": 34, "tall": 9,
       "hint": "step {runs.#0.steps.#1}, entering layer {#2}\n10 to the power {runs.#0.decades.*.*|.2f} times the gradient after the last layer",
       "key": {"label": "powers of ten: below 0 it vanishes, above 0 it explodes", "low": "−6", "high": "6"}},
      {"kind": "remark", "if": "runs.#0.error", "text": "How it ended: {runs.#0.error}"}]}
  )json"));
  return p;
}

}  // namespace vitrine
