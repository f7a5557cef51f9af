// Pictures of the chapter on what makes a model trainable: a norm by hand, signals on a mixing desk, one step of gradient descent
// weight by weight, what scale and shift have learned. Those of the ladder of models are in ladder.cpp.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/memory.h"
#include "model/from_gguf.h"
#include "model/load.h"
#include "picture/data/entry.h"
#include "picture/data/rows.h"
#include "picture/data/studio.h"
#include "train/one_step.h"

namespace vitrine {

PictureJson data_of_ladder_loss(Studio&);
PictureJson data_of_ladder_switches(Studio&);
PictureJson data_of_ladder_gradients(Studio&);

namespace {

double mean_of(std::span<const double> x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }

double variance_of(std::span<const double> x) {
  const double mean = mean_of(x);
  double squares = 0;
  for (const double v : x) squares += (v - mean) * (v - mean);
  return squares / static_cast<double>(x.size());
}

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double degrees_between(std::span<const double> a, std::span<const double> b) {
  const double cosine = dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
  return std::acos(std::clamp(cosine, -1.0, 1.0)) * 180 / std::numbers::pi;
}

// One row through the op that models run, with scale 1, shift 0 and nothing added to the variance.
std::vector<double> normed(Studio& studio, std::span<const double> x, bool rms) {
  Context& ctx = studio.engine.context();
  const auto frame = ctx.frame();
  const auto n = std::ssize(x);
  const Tensor row = ctx.empty({1, n}), ones = ctx.empty({1, n}), zeros = ctx.zeros({1, n});
  for (int64_t i = 0; i < n; ++i) row.data<float>()[i] = static_cast<float>(x[static_cast<size_t>(i)]);
  std::fill_n(ones.data<float>(), n, 1.0f);
  const Vector scale{"scale", ones.data<float>(), DType::f32, n, {}}, shift{"shift", zeros.data<float>(), DType::f32, n, {}};
  const NormSpec spec{.eps = 0};
  const Tensor y = rms ? rms_norm(ctx, "by_hand", row, scale, spec) : layer_norm(ctx, "by_hand", row, scale, shift, spec);
  return {y.data<float>(), y.data<float>() + n};
}

std::vector<double> times(std::span<const double> x, double factor) {
  std::vector<double> y(x.begin(), x.end());
  for (double& v : y) v *= factor;
  return y;
}

std::string text_of(std::span<const double> x) {
  std::string text;
  for (const double v : x) text += fmt::format("{}{:.4g}", text.empty() ? "" : ", ", v);
  return "(" + text + ")";
}

// A row by hand, step by step; the last step is the op's.
PictureJson by_hand(Studio& studio, const std::vector<double>& x) {
  const double mean = mean_of(x), variance = variance_of(x), sigma = std::sqrt(variance);
  std::vector<double> centered, squares, over_variance;
  for (const double v : x) {
    centered.push_back(v - mean);
    squares.push_back((v - mean) * (v - mean));
    over_variance.push_back((v - mean) / variance);
  }
  const std::vector<double> y = normed(studio, x, false), rms = normed(studio, x, true), longer = times(x, 100);
  std::vector<double> longer_over_variance;
  for (const double v : longer) longer_over_variance.push_back((v - 100 * mean) / (1e4 * variance));
  return {{"name", text_of(x)},
          {"x", numbers(x)},
          {"mean", number(mean)},
          {"centered", numbers(centered)},
          {"squares", numbers(squares)},
          {"variance", number(variance)},
          {"sigma", number(sigma)},
          {"normed", numbers(y)},
          {"variance_after", number(variance_of(y))},
          {"over_variance", numbers(over_variance)},
          {"variance_over_variance", number(variance_of(over_variance))},
          {"longer", numbers(longer)},
          {"longer_normed", numbers(normed(studio, longer, false))},
          {"longer_over_variance", numbers(longer_over_variance)},
          {"degrees", number(degrees_between(x, y))},
          {"rms_normed", numbers(rms)},
          {"rms_degrees", number(degrees_between(x, rms))}};
}

PictureJson data_of_norm_by_hand(Studio& studio) {
  const std::vector<double> three = {2, 4, 6}, two = {1, 5};
  PictureJson p = present(
      "LayerNorm of two small vectors, step by step; the last step is the op that models run, with scale 1, shift 0 and ε 0. "
      "Divided by the standard deviation, the same lengths in meters and in centimeters give the same numbers; divided by the "
      "variance they do not, and the result does not have variance 1.",
      "");
  const PictureJson a = by_hand(studio, three), b = by_hand(studio, two);
  p["vectors"] = PictureJson::array({a, b});
  p["alt"] = fmt::format(
      "(2, 4, 6): mean {:.3g}, variance {:.3f}, standard deviation {:.3f}, normed ({:.3f}, {:.3f}, {:.3f}). (1, 5): mean {:.3g}, "
      "standard deviation {:.3g}, normed ({:.3g}, {:.3g}), turned by {:.1f} degrees.",
      a["mean"].get<double>(), a["variance"].get<double>(), a["sigma"].get<double>(), a["normed"][0].get<double>(),
      a["normed"][1].get<double>(), a["normed"][2].get<double>(), b["mean"].get<double>(), b["sigma"].get<double>(),
      b["normed"][0].get<double>(), b["normed"][1].get<double>(), b["degrees"].get<double>());
  p["prose"] = {{"sigma", a["sigma"]}, {"degrees", b["degrees"]}, {"variance_over_variance", a["variance_over_variance"]}};
  const auto arrow = [](const PictureJson& list) { return PictureJson{{"x", {0, list[0]}}, {"y", {0, list[1]}}}; };
  p["plane"] = {
      {"x", arrow(b["x"])}, {"centered", arrow(b["centered"])}, {"normed", arrow(b["normed"])}, {"rms", arrow(b["rms_normed"])}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "step by step", "columns": [["vector", "vectors.#0.name"], ["component", "#1"], ["x", "vectors.*.x.*"], ["x − mean", "vectors.*.centered.*"],
       ["squared", "vectors.*.squares.*"], ["over the standard deviation", "vectors.*.normed.*", ".4f"], ["over the variance", "vectors.*.over_variance.*", ".4f"],
       ["over the root mean square", "vectors.*.rms_normed.*", ".4f"]]},
    {"note": "of each vector", "columns": [["vector", "vectors.*.name"], ["mean", "vectors.*.mean"], ["variance", "vectors.*.variance"], ["standard deviation", "vectors.*.sigma"],
       ["variance after", "vectors.*.variance_after", ".4f"], ["over the variance", "vectors.*.variance_over_variance", ".4f"],
       ["turned by LayerNorm, degrees", "vectors.*.degrees", ".1f"], ["by RMSNorm", "vectors.*.rms_degrees", ".1f"]]},
    {"note": "the same in centimeters: 100 times the numbers", "columns": [["vector", "vectors.#0.name"], ["component", "#1"], ["100 x", "vectors.*.longer.*"],
       ["over the standard deviation", "vectors.*.longer_normed.*", ".4f"], ["over the variance", "vectors.*.longer_over_variance.*", ".6f"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "title": "(1, 5) in the plane: taking the mean away turns it, dividing shortens it", "label": "The vector (1, 5) before and after a norm.",
     "height": 330, "x": {"label": "first component", "domain": [-3, 3]}, "y": {"label": "second component", "domain": [-1, 6]},
     "series": [
       {"name": "x", "tone": "plain", "draw": "both", "x": "plane.x.x.*", "y": "plane.x.y.*", "hint": "x\n({plane.x.x.*}, {plane.x.y.*})"},
       {"name": "x − mean", "tone": "attention faint", "draw": "both", "dashed": true, "x": "plane.centered.x.*", "y": "plane.centered.y.*",
        "hint": "without its mean\n({plane.centered.x.*}, {plane.centered.y.*})"},
       {"name": "LayerNorm", "tone": "attention", "draw": "both", "x": "plane.normed.x.*", "y": "plane.normed.y.*",
        "hint": "LayerNorm\n({plane.normed.x.*}, {plane.normed.y.*})"},
       {"name": "RMSNorm", "tone": "mlp", "draw": "both", "x": "plane.rms.x.*", "y": "plane.rms.y.*", "hint": "RMSNorm\n({plane.rms.x.*}, {plane.rms.y.*})"}]}
  ])json");
  return p;
}

PictureJson data_of_mixing_desk(Studio& studio) {
  struct Signal {
    const char* name;
    double offset, gain, turns;  // volts, volts, waves in the picture
  };
  static constexpr Signal kSignals[] = {
      {"passive microphone", 0.3, 0.05, 3}, {"active microphone", 3, 0.8, 5}, {"synthesizer", -1, 2.2, 2}};
  PictureJson p = present(
      "Three signals as they reach a mixing desk: each swings around an offset of its own, by a gain of its own. After a norm "
      "over "
      "time all swing around 0 with standard deviation 1, and none is louder than another.",
      "Before: swings of 0.05, 0.8 and 2.2 volts around 0.3, 3 and -1 volts. After: three swings of the same size around 0.");
  constexpr int kPoints = 161;
  std::vector<double> time;
  for (int i = 0; i < kPoints; ++i) time.push_back(i / (kPoints - 1.0));
  p["time"] = numbers(time);
  p["signals"] = PictureJson::array();
  for (const Signal& s : kSignals) {
    std::vector<double> volts;
    for (const double t : time) {
      const double phase = 2 * std::numbers::pi * s.turns * t;
      volts.push_back(s.offset + s.gain * (std::sin(phase) + 0.3 * std::sin(3 * phase)));
    }
    p["signals"].push_back({{"name", s.name},
                            {"before", numbers(volts)},
                            {"mean", number(mean_of(volts))},
                            {"sigma", number(std::sqrt(variance_of(volts)))},
                            {"after", numbers(normed(studio, volts, false))}});
  }
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["signal", "signals.*.name"], ["offset (mean)", "signals.*.mean", ".3f"], ["level (standard deviation)", "signals.*.sigma", ".3f"]]},
    {"note": "over time", "detail": true, "columns": [["signal", "signals.#0.name"], ["time", "time.#1", ".3f"], ["volts", "signals.*.before.*", ".3f"], ["leveled", "signals.*.after.*", ".3f"]]}
  ])json");
  PictureJson charts = PictureJson::array();
  for (const auto& [key, title, axis] :
       {std::tuple{"before", "As they come in", "volts"}, std::tuple{"after", "Leveled", "standard deviations"}}) {
    PictureJson series = PictureJson::array();
    const char* const tones[] = {"plain", "attention", "mlp"};
    for (size_t i = 0; i < std::size(kSignals); ++i) {
      const std::string y = fmt::format("signals.{}.{}.*", i, key);
      series.push_back({{"name", kSignals[i].name},
                        {"tone", tones[i]},
                        {"draw", "line"},
                        {"x", "time.*"},
                        {"y", y},
                        {"hint", fmt::format("{}\n{{{}}}", kSignals[i].name, y)}});
    }
    charts.push_back({{"kind", "xy"},
                      {"title", title},
                      {"label", fmt::format("Three signals, {}.", key)},
                      {"height", 230},
                      {"x", {{"label", "time"}, {"domain", {0, 1}}}},
                      {"y", {{"label", axis}}},
                      {"series", std::move(series)}});
  }
  p["charts"] = std::move(charts);
  return p;
}

constexpr std::string_view kTold = "the fat cat sat on the";

bool is_told(const Studio& studio) { return studio.spelled() && studio.prompt.text && studio.prompt.text->ends_with(kTold); }

// What the one step makes more likely: " mat" after the words that the chapter tells of, the second most likely token after any
// other text.
int32_t target_of(Studio& studio, std::span<const TokenLogprob> likely) {
  if (is_told(studio)) {
    const std::vector<int32_t> both = studio.engine.prompt_ids(*studio.prompt.text + " mat");
    const auto& ids = studio.prompt.ids;
    if (both.size() > ids.size() && std::equal(ids.begin(), ids.end(), both.begin())) return both[ids.size()];
  }
  return likely[1].token;
}

PictureJson data_of_gradient_step(Studio& studio) {
  constexpr double kRate = 0.003;
  constexpr int64_t kTop = 6;
  const OpenedModel& opened = studio.engine.opened();
  if (!studio.options.gradients) return absent("It was left out: gradients were switched off.");
  if (opened.adapter != nullptr)
    return absent("A step moves all weights of a model, and this one runs with an adapter beside them.");
  if (studio.facts.shape.vocab_size < 2) return absent("A vocabulary of one token leaves nothing to learn.");
  const size_t left = studio.options.memory != 0 ? studio.options.memory : available_memory();
  if (left != 0 && one_step_bytes(studio.engine.model()) > left)
    return absent(fmt::format("The weights in f32 and their gradients take {} MiB of memory, more than is left.",
                              one_step_bytes(studio.engine.model()) >> 20));
  Learner learner(as_huggingface(open_model(opened.files)), one_step_options(studio.engine.context().pool().threads()));
  Engine& engine = learner.engine();
  const auto& ids = studio.prompt.ids;
  const std::vector<float> logits = last_logits(engine, ids);
  const int32_t target = target_of(studio, top_logprobs(logits, 2));
  const Head head = engine.model().head();
  const auto row = [&] {
    std::vector<double> numbers;
    for (int64_t i = 0; i < head.weight->in; ++i) numbers.push_back(head.weight->at<double>(target, i));
    return numbers;
  };
  const auto logit_of = [](const std::vector<float>& z, int32_t token) {
    return static_cast<double>(z[static_cast<size_t>(token)]);
  };
  const auto share_of = [&](const std::vector<float>& z, int32_t token) { return std::exp(logit_of(z, token) - log_sum_exp(z)); };
  const std::vector<double> weights = row();
  const OneStep step = take_one_step(learner, ids, std::span(&target, 1), kRate, kTop);
  const std::vector<double> weights_after = row();
  const std::vector<float> logits_after = last_logits(engine, ids);

  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto moved = [&](size_t i) { return std::abs(weights_after[i] - weights[i]); };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return moved(a) != moved(b) ? moved(a) > moved(b) : a < b; });
  const std::string piece = studio.piece(studio.mention(target));
  PictureJson p = present(
      fmt::format("One step of gradient descent on this prompt, which is to be followed by {}: every weight minus {} times its "
                  "gradient. The table "
                  "has the row of the output matrix that scores {}, weight by weight, those that moved most; the gradient is how "
                  "fast the error would rise with that weight.",
                  piece, kRate, piece),
      fmt::format("The probability of {} goes from {:.3g} % to {:.3g} %, its logit from {:.3f} to {:.3f}, the error from {:.3f} "
                  "to {:.3f}.",
                  piece, 100 * share_of(logits, target), 100 * share_of(logits_after, target), logit_of(logits, target),
                  logit_of(logits_after, target), step.loss_before, step.loss_after));
  p["prose"] = {{"piece", piece},
                {"rate", kRate},
                {"loss_before", step.loss_before},
                {"loss_after", step.loss_after},
                {"logit_before", logit_of(logits, target)},
                {"logit_after", logit_of(logits_after, target)},
                {"before", 100 * share_of(logits, target)},
                {"after", 100 * share_of(logits_after, target)}};
  p["target"] = target;
  p["piece"] = piece;
  p["rate"] = kRate;
  p["loss"] = {{"before", number(step.loss_before)}, {"after", number(step.loss_after)}};
  p["logit"] = {{"before", number(logit_of(logits, target))}, {"after", number(logit_of(logits_after, target))}};
  p["probability"] = {{"before", number(share_of(logits, target))}, {"after", number(share_of(logits_after, target))}};
  p["gradientNorm"] = number(step.gradient_norm);
  p["row"] = head.weight->name + fmt::format("[{}]", target);
  p["weights"] = PictureJson::array();
  for (const size_t i : order)
    p["weights"].push_back({{"component", i},
                            {"before", number(weights[i])},
                            {"gradient", number((weights[i] - weights_after[i]) / kRate)},
                            {"change", number(weights_after[i] - weights[i])},
                            {"after", number(weights_after[i])}});
  std::vector<int32_t> shown;
  for (const auto* list : {&step.before, &step.after})
    for (const TokenLogprob& entry : *list)
      if (std::find(shown.begin(), shown.end(), entry.token) == shown.end()) shown.push_back(entry.token);
  if (std::find(shown.begin(), shown.end(), target) == shown.end()) shown.push_back(target);
  p["tokens"] = PictureJson::array();
  for (const int32_t token : shown)
    p["tokens"].push_back({{"id", studio.mention(token)},
                           {"logitBefore", number(logit_of(logits, token))},
                           {"logitAfter", number(logit_of(logits_after, token))},
                           {"before", number(share_of(logits, token))},
                           {"after", number(share_of(logits_after, token))}});
  p["parts"] = PictureJson::array();
  for (const OneStep::Part& part : step.layers)
    p["parts"].push_back({{"name", part.name}, {"gradient", number(part.gradient_norm)}, {"ratio", number(part.update_ratio)}});
  p["tables"] = PictureJson::parse(R"json([
    {"note": "row {row} of the output matrix, weight by weight", "most": 12,
     "columns": [["component", "weights.*.component"], ["weight", "weights.*.before", ".5f"], ["gradient", "weights.*.gradient", ".5f"], ["change", "weights.*.change", ".6f"], ["weight after", "weights.*.after", ".5f"]]},
    {"note": "what could come next", "columns": [["token", "tokens.*.id", "token"], ["logit", "tokens.*.logitBefore", ".3f"], ["after", "tokens.*.logitAfter", ".3f"], ["probability", "tokens.*.before", "%"], ["after", "tokens.*.after", "%"]]},
    {"note": "all weights, by part", "detail": true, "columns": [["part", "parts.*.name"], ["|gradient|", "parts.*.gradient"], ["|change| / |weights|", "parts.*.ratio"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "pairs", "title": "What could come next, before and after the step", "label": "Probabilities before and after one step.", "name": "{tokens.*.id|token}",
     "axis": {"label": "probability", "as": "%", "zero": true},
     "from": {"name": "before", "value": "tokens.*.before", "hint": "{tokens.*.id|token}\nbefore {tokens.*.before|%}, logit {tokens.*.logitBefore}"},
     "to": {"name": "after", "value": "tokens.*.after", "hint": "{tokens.*.id|token}\nafter {tokens.*.after|%}, logit {tokens.*.logitAfter}"}},
    {"kind": "bars", "title": "The row that scores {piece}: the weights that changed most", "label": "Changes of single weights.", "name": "component {weights.*.component}", "value": "weights.*.change",
     "largest": 12, "note": "{weights.*.before|.4f} to {weights.*.after|.4f}",
     "hint": "component {weights.*.component}\nweight {weights.*.before}\ngradient {weights.*.gradient}\nchange {weights.*.change}\nweight after {weights.*.after}"},
    {"kind": "xy", "title": "All weights, part by part", "label": "Length of each part's gradient.", "height": 220, "x": {"label": "part, from the embedding to the head", "whole": true},
     "y": {"label": "length of the gradient, log", "log": true},
     "series": [{"name": "gradient", "named": false, "tone": "attention", "draw": "both", "y": "parts.*.gradient", "hint": "{parts.*.name}\nlength of the gradient {parts.*.gradient}\nchange over weights {parts.*.ratio}"}]}
  ])json");
  return p;
}

PictureJson data_of_norm_weights(Studio& studio) {
  struct Found {
    std::string name;
    std::vector<double> scale, shift;
  };
  std::vector<Found> all;
  bool shifts = false;
  for (const TensorLine& line : studio.engine.model().tensors()) {
    const std::string& name = line.ours;
    if (line.vector == nullptr || !name.ends_with(".w") || line.out.size != studio.facts.shape.d_model) continue;
    if (name.find(".ln") == std::string::npos && !name.starts_with("ln_")) continue;
    Found& found = all.emplace_back(Found{name.substr(0, name.size() - 2), {}, {}});
    for (int64_t i = 0; i < line.vector->size; ++i) found.scale.push_back(studio.facts.norm_offset + line.vector->at<double>(i));
    if (const Vector* b = studio.facts.parameters.vector(found.name + ".b"))
      for (int64_t i = 0; i < b->size; ++i) found.shift.push_back(b->at<double>(i));
    shifts = shifts || !found.shift.empty();
  }
  if (all.empty()) return absent("This model has no norm of the residual stream.");
  const auto spread = [](std::vector<double> x) {
    PictureJson spread = {{"mean", number(mean_of(x))}, {"deviation", number(std::sqrt(variance_of(x)))}};
    std::sort(x.begin(), x.end());
    spread["least"] = number(x.front());
    spread["median"] = number(x[x.size() / 2]);
    spread["most"] = number(x.back());
    return spread;
  };
  double least = INFINITY, most = -INFINITY;
  for (const Found& norm : all)
    for (const double s : norm.scale) least = std::min(least, s), most = std::max(most, s);
  const bool learned = std::any_of(all.begin(), all.end(), [](const Found& norm) {
    return std::any_of(norm.scale.begin(), norm.scale.end(), [](double s) { return s != 1; }) ||
           std::any_of(norm.shift.begin(), norm.shift.end(), [](double s) { return s != 0; });
  });
  const std::string has = std::string(shifts ? "scale and shift" : "scale (these norms have no shift)");
  PictureJson p = present(
      fmt::format(
          "What the norms of this model multiply their results by, component by component{}. Training begins at scale 1{}.",
          shifts ? ", and what they add" : "", shifts ? " and shift 0" : ""),
      fmt::format("{} norms with {}: the scales lie between {:.3g} and {:.3g}.", all.size(), has, least, most));
  p["prose"] = {{"learned", learned}, {"shifts", shifts}, {"least", least}, {"most", most}, {"count", all.size()}};
  p["learned"] = learned;
  p["shifts"] = shifts;
  p["norms"] = PictureJson::array();
  for (const Found& norm : all) {
    PictureJson entry = {{"name", norm.name}, {"scale", spread(norm.scale)}};
    entry["shift"] = norm.shift.empty() ? PictureJson(nullptr) : spread(norm.shift);
    p["norms"].push_back(std::move(entry));
  }
  constexpr size_t kMostCells = 1 << 16;
  const size_t d = all[0].scale.size();
  p["scales"] = nullptr;
  if (d * all.size() <= kMostCells) {
    std::vector<float> cells;
    for (const Found& norm : all)
      for (const double s : norm.scale) cells.push_back(static_cast<float>(s));
    p["scales"] = packed(cells, {std::ssize(all), static_cast<int64_t>(d)});
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "scale", "columns": [["norm", "norms.*.name"], ["least", "norms.*.scale.least"], ["median", "norms.*.scale.median"], ["most", "norms.*.scale.most"], ["mean", "norms.*.scale.mean"], ["deviation", "norms.*.scale.deviation"]]},
    {"note": "shift", "if": "norms.0.shift.mean", "detail": true, "columns": [["norm", "norms.*.name"], ["least", "norms.*.shift.least"], ["median", "norms.*.shift.median"], ["most", "norms.*.shift.most"], ["deviation", "norms.*.shift.deviation"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "title": "Scale of each norm: smallest, median and largest component", "label": "Scales of the norms, from the first layer to the last.", "height": 260,
     "x": {"label": "norm, in the order of the run", "whole": true}, "y": {"label": "scale"}, "rules": "one",
     "series": [
       {"name": "largest", "tone": "attention faint", "draw": "both", "y": "norms.*.scale.most", "hint": "{norms.*.name}\nlargest scale {norms.*.scale.most}"},
       {"name": "median", "tone": "attention", "draw": "both", "y": "norms.*.scale.median", "hint": "{norms.*.name}\nmedian scale {norms.*.scale.median}"},
       {"name": "smallest", "tone": "attention faint", "draw": "both", "y": "norms.*.scale.least", "hint": "{norms.*.name}\nsmallest scale {norms.*.scale.least}"}]},
    {"kind": "xy", "if": "norms.0.shift.mean", "title": "Shift of each norm: smallest, median and largest component", "label": "Shifts of the norms.", "height": 220,
     "x": {"label": "norm, in the order of the run", "whole": true}, "y": {"label": "shift"},
     "series": [
       {"name": "largest", "tone": "mlp faint", "draw": "both", "y": "norms.*.shift.most", "hint": "{norms.*.name}\nlargest shift {norms.*.shift.most}"},
       {"name": "median", "tone": "mlp", "draw": "both", "y": "norms.*.shift.median", "hint": "{norms.*.name}\nmedian shift {norms.*.shift.median}"},
       {"name": "smallest", "tone": "mlp faint", "draw": "both", "y": "norms.*.shift.least", "hint": "{norms.*.name}\nsmallest shift {norms.*.shift.least}"}]},
    {"kind": "grid", "if": "scales", "title": "Every scale", "label": "Scale of every component of every norm.", "values": "scales.*.*", "rows": "{norms.#0.name}", "columns": "{#1}", "columnTitle": "component",
     "scale": "sequential", "cell": 8, "tall": 12, "hint": "{norms.#0.name}\ncomponent {#1}\nscale {scales.*.*}", "key": {"label": "scale"}}
  ])json");
  p["one"] = {{{"y", 1}, {"label", "1: as at the start"}}};
  return p;
}

constexpr PictureEntry kPictures[] = {
    {{"norm-by-hand", "A norm by hand", "LayerNorm of (2, 4, 6) and (1, 5), step by step, and why not the variance"},
     0,
     data_of_norm_by_hand,
     kToy,
     false,
     kWithoutWeights},
    {{"mixing-desk", "The mixing desk", "Three signals with their own offsets and levels, and the same leveled by a norm"},
     0,
     data_of_mixing_desk,
     kToy,
     false,
     kWithoutWeights},
    {{"gradient-step", "One step of gradient descent",
      "A token made more likely: error, logit and single weights before and after"},
     0,
     data_of_gradient_step,
     kRun},
    {{"norm-weights", "Scale and shift", "What the norms multiply by and add, as training left it"},
     0,
     data_of_norm_weights,
     kModel},
    {{"ladder-loss", "The ladder", "Loss of attention alone, with residual connections, with norms, with MLPs"},
     0,
     data_of_ladder_loss,
     kLog,
     false,
     kWithoutWeights},
    {{"ladder-switches", "Parts switched off", "Loss of a whole model, and without scale and shift, positions, mask"},
     0,
     data_of_ladder_switches,
     kLog,
     false,
     kWithoutWeights},
    {{"ladder-gradients", "Gradients that vanish and explode", "The gradient of each layer while models of the ladder learn"},
     0,
     data_of_ladder_gradients,
     kLog,
     false,
     kWithoutWeights},
};

}  // namespace

std::span<const PictureEntry> trainable_pictures() { return kPictures; }

}  // namespace vitrine
