// A soft cap beside a hard clip: what they do to numbers, and what they let through of a gradient.
#include <algorithm>
#include <cmath>

#include "picture/data/studio.h"

namespace vitrine {
namespace {

// In units of the cap.
double soft(double x) { return std::tanh(x); }
double hard(double x) { return std::clamp(x, -1.0, 1.0); }
double soft_gradient(double x) { return 1 - std::tanh(x) * std::tanh(x); }
double hard_gradient(double x) { return std::abs(x) < 1 ? 1 : 0; }

}  // namespace

PictureJson data_of_clipping(Studio&) {
  PictureJson p = present(
      "A soft cap, cap · tanh(x / cap), beside a hard clip at the same cap, and the derivative of each. The clip leaves small "
      "numbers "
      "alone and stops at the cap: beyond it the gradient is 0, so that training has nothing to bring the number back by. The "
      "soft cap "
      "bends all "
      "of them a little and keeps a gradient everywhere.",
      "Two curves near the diagonal at 0; the clip turns level at the cap at once, the soft cap approaches it. Their "
      "derivatives: a step "
      "from 1 to 0, and a bell.");
  std::vector<double> x, values[2], gradients[2];
  for (int i = 0; i <= 160; ++i) {
    x.push_back(-4 + 0.05 * i);
    values[0].push_back(soft(x.back()));
    values[1].push_back(hard(x.back()));
    gradients[0].push_back(soft_gradient(x.back()));
    gradients[1].push_back(hard_gradient(x.back()));
  }
  p["x"] = numbers(x);
  p["soft"] = numbers(values[0]);
  p["hard"] = numbers(values[1]);
  p["softGradient"] = numbers(gradients[0]);
  p["hardGradient"] = numbers(gradients[1]);
  p["examples"] = PictureJson::array();
  const auto example = [&](double cap, double logit) {
    p["examples"].push_back({{"cap", number(cap)},
                             {"x", number(logit)},
                             {"soft", number(cap * soft(logit / cap))},
                             {"softGradient", number(soft_gradient(logit / cap))},
                             {"hard", number(cap * hard(logit / cap))},
                             {"hardGradient", number(hard_gradient(logit / cap))}});
  };
  for (const double logit : {0.5, 1.0, 2.0, 3.0}) example(2, logit);
  for (const double logit : {15.0, 30.0, 60.0}) example(30, logit);   // Gemma 2's logits
  for (const double logit : {25.0, 50.0, 100.0}) example(50, logit);  // and its scores
  p["prose"] = {{"soft", p["examples"].back().at("soft")}, {"gradient", p["examples"].back().at("softGradient")}};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "title": "What becomes of a number", "label": "Soft cap and hard clip, in units of the cap.", "height": 300,
     "x": {"label": "number, in caps", "domain": [-4, 4]}, "y": {"label": "capped, in caps", "domain": [-1.25, 1.25]},
     "series": [
       {"name": "soft cap", "tone": "attention", "draw": "line", "x": "x.*", "y": "soft.*", "hint": "{x.*} × cap\nsoft cap: {soft.*} × cap"},
       {"name": "hard clip", "tone": "mlp", "draw": "line", "x": "x.*", "y": "hard.*", "hint": "{x.*} × cap\nhard clip: {hard.*} × cap"}]},
    {"kind": "xy", "title": "What is left of its gradient", "label": "Derivatives of the soft cap and the hard clip.", "height": 240,
     "x": {"label": "number, in caps", "domain": [-4, 4]}, "y": {"label": "derivative", "domain": [-0.1, 1.1]},
     "series": [
       {"name": "soft cap", "tone": "attention", "draw": "line", "x": "x.*", "y": "softGradient.*", "hint": "{x.*} × cap\nsoft cap: derivative {softGradient.*}"},
       {"name": "hard clip", "tone": "mlp", "draw": "line", "x": "x.*", "y": "hardGradient.*", "hint": "{x.*} × cap\nhard clip: derivative {hardGradient.*}"}]}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["cap", "examples.*.cap"], ["number", "examples.*.x"], ["soft cap", "examples.*.soft", ".4f"], ["its derivative", "examples.*.softGradient", ".4f"],
      ["hard clip", "examples.*.hard", ".4f"], ["its derivative", "examples.*.hardGradient"]]}
  ])json");
  return p;
}

}  // namespace vitrine
