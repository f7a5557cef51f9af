// Pictures of what training sees: the gradient that reaches each layer, and what a prediction owes to each token.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "inspect/attribution.h"
#include "inspect/listening.h"
#include "model/load.h"
#include "ops/tape.h"
#include "picture/studio.h"

namespace vitrine {
namespace {

// |gradient| at the stream that enters each layer, and at its end.
class StreamGradients final : public Listener {
 public:
  explicit StreamGradients(int64_t layers)
      : norms(static_cast<size_t>(layers) + 1, NAN), end_("blocks." + std::to_string(layers - 1) + ".hook_resid_post") {}
  std::vector<double> norms;
  bool wants(std::string_view) const override { return false; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }
  bool wants_gradient(std::string_view name) const override { return name.ends_with(".hook_resid_pre") || name == end_; }
  void see_gradient(std::string_view name, const Tensor& gradient) override {
    size_t layer = norms.size() - 1;
    if (name != end_) {
      const std::string_view number = name.substr(std::string_view("blocks.").size());
      std::from_chars(number.data(), number.data() + number.size(), layer);
    }
    double squares = 0;
    for (int64_t i = 0; i < gradient.count(); ++i) {
      const auto g = static_cast<double>(gradient.data<float>()[i]);
      squares += g * g;
    }
    norms[layer] = std::sqrt(squares);
  }

 private:
  std::string end_;
};

struct Pass {
  double loss = 0;
  std::vector<double> norms;
};

// Of the mean of -log p(next token) over the prompt.
Pass backward(Engine& engine, std::span<const int32_t> ids) {
  std::vector<int32_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(kNotScored);
  Context& ctx = engine.context();
  StreamGradients seen(engine.shape().n_layers);
  const Step step = Step::of(ids);  // the tape refers to it
  const auto frame = ctx.frame();
  const Listening listening(ctx, seen);
  Tape tape;
  const Recording recording(ctx, tape);
  const Tensor loss = cross_entropy(ctx, engine.model().residual(ctx, step), engine.model().head(), labels);
  const auto value = static_cast<double>(*loss.data<float>());
  tape.backward(ctx, loss);
  return {value, seen.norms};
}

// The same weights, opened once more without the norms; nothing where a file's format or family has no word for that, or where an
// adapter stands beside them.
std::optional<Pass> backward_without_norms(Engine& engine, std::span<const int32_t> ids) {
  ModelFiles files = engine.opened().files;
  if (files.kind == ModelFiles::Kind::gguf || engine.shape().family == "classic_decoder" || engine.opened().adapter != nullptr ||
      files.config.value("vitrine_norms", "") == "off")
    return std::nullopt;
  files.config["vitrine_norms"] = "off";
  Engine without(open_model(std::move(files)),
                 {.threads = engine.context().pool().threads(), .numerics = engine.context().numerics});
  return backward(without, ids);
}

std::string told(const Pass& pass) {
  const double first = pass.norms.front(), last = pass.norms[pass.norms.size() - 2];
  if (!std::isfinite(first) || !std::isfinite(last) || !(last > 0)) return "not finite on its way";
  return fmt::format("{:.3g} times that at the last", first / last);
}

}  // namespace

PictureJson draw_gradient_norms(Studio& studio) {
  if (studio.tokens() < 2) return absent("One token predicts nothing that is there to compare with; give a longer prompt.");
  const Pass own = backward(studio.engine, studio.prompt.ids);
  const std::optional<Pass> without = backward_without_norms(studio.engine, studio.prompt.ids);
  PictureJson p = present(
      "Length of the gradient of the prompt's loss with respect to the stream that enters each layer, and to the one that leaves "
      "the last, on a log axis: from one pass backward" +
          std::string(without ? ", and from one more through the same weights with every norm switched off" : "") +
          ". Vanishing gradients fall toward the first layer, exploding ones rise.",
      fmt::format("The gradient at the first layer is {}{}.", told(own),
                  without ? "; without norms it is " + told(*without) : ""));
  p["loss"] = number(own.loss);
  p["norms"] = numbers(own.norms);
  p["lossWithoutNorms"] = without ? number(without->loss) : PictureJson(nullptr);
  p["withoutNorms"] = without ? numbers(without->norms) : PictureJson(nullptr);
  return p;
}

PictureJson draw_input_attribution(Studio& studio) {
  const int64_t position = studio.options.position.value_or(studio.tokens() - 1);
  if (position < 0 || position >= studio.tokens())
    throw InputError(fmt::format("position {} is not there; expected 0 to {}", position, studio.tokens() - 1));
  const auto ids = std::span(studio.prompt.ids).first(static_cast<size_t>(position) + 1);
  const Attribution found = attribute(studio.engine, ids, {.token = {}, .against = {}, .steps = 0});
  const auto most = static_cast<size_t>(std::max_element(found.saliency.begin(), found.saliency.end()) - found.saliency.begin());
  PictureJson p = present(
      "What the likeliest next token owes to each token of the prompt, to first order: the length of the gradient of its "
      "log-probability at the token's embedding (saliency: how much it could change the answer), and that gradient times the "
      "embedding (how much it does, with its sign).",
      fmt::format("For the token {} after position {}: position {} has the longest gradient, {:.3g}.", studio.piece(found.token),
                  position, most, found.saliency[most]));
  p["position"] = position;
  p["target"] = {{"id", studio.mention(found.token)}, {"logprob", number(found.value)}};
  p["saliency"] = numbers(found.saliency);
  p["gradientInput"] = numbers(found.gradient_input);
  return p;
}

}  // namespace vitrine
