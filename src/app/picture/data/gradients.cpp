// Pictures of what training sees: the gradient that reaches each layer and any hook, and what a prediction owes to each token.
#include <algorithm>
#include <cmath>

#include "base/memory.h"
#include "inspect/attribution.h"
#include "model/load.h"
#include "model/rearranged.h"
#include "model/registry.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

size_t gradient_bytes(const Studio& studio) { return sizeof(float) * static_cast<size_t>(studio.facts.parameter_count); }

// Bytes that may still be taken; all of them where the system does not say.
size_t memory_left(const Studio& studio) {
  const size_t limit = studio.options.memory != 0 ? studio.options.memory : available_memory();
  return limit != 0 ? limit : SIZE_MAX;
}

std::string mib(size_t bytes) { return fmt::format("{} MiB", (bytes + (size_t{1} << 20) - 1) >> 20); }

// Why the model does not run backward on this prompt with so many layers kept; empty: it does.
std::string refused(const Studio& studio, int64_t layers) {
  if (!studio.options.gradients) return "It was left out: gradients were switched off.";
  const size_t needed = backward_bytes(studio.engine.model(), studio.tokens(), layers), left = memory_left(studio);
  if (needed <= left) return {};
  return fmt::format("A run backward through this prompt would take {} of memory; {} are left. Give a shorter prompt.",
                     mib(needed), mib(left));
}

// The run that the pictures of the loss share, or why there is none.
std::string run_once(Studio& studio) {
  if (studio.tokens() < 2) return "One token predicts nothing that is there to compare with; give a longer prompt.";
  if (const std::string why = refused(studio, studio.facts.shape.n_layers); !why.empty()) return why;
  if (studio.backward) return {};
  const size_t tape = backward_bytes(studio.engine.model(), studio.tokens(), studio.facts.shape.n_layers);
  const bool parameters = tape + gradient_bytes(studio) <= memory_left(studio);
  studio.backward = run_backward(studio.engine, studio.prompt.ids, {.hooks = true, .parameters = parameters});
  return {};
}

// The same weights without the norms; nothing where a family's form is its own affair, or without norms already.
std::optional<Backward> backward_without_norms(Engine& engine, std::span<const int32_t> ids) {
  const Model& model = engine.model();
  const Family& family = family_of(model);
  if (family.norm_order_key != nullptr || !family.has_forms || model.form().norms == Form::Norms::off) return std::nullopt;
  Form form = model.form();  // other parts that it lacks stay away
  form.norms = Form::Norms::off;
  form.affine = true;
  const Rearranged without(model, form);
  return run_backward(engine, ids, {.hooks = false, .parameters = false, .model = &without});
}

std::string told(const Backward& pass) {
  const double first = pass.stream.front(), last = pass.stream[pass.stream.size() - 2];
  if (!std::isfinite(first) || !std::isfinite(last)) return "not finite on its way";
  if (last == 0) return "zero: it has vanished";
  return fmt::format("{:.3g} times that at the last", first / last);
}

}  // namespace

int64_t integral_points(const ModelFacts& facts, int64_t tokens) {
  constexpr double kMostOperations = 3e11;  // some ten seconds on two cores
  constexpr int64_t kFewestTokens = 32;     // to read all weights takes as long as to multiply them with so many
  constexpr int64_t kMost = AttributionOptions{}.steps, kFewest = 16;
  if (tokens > kTokensEach) return 0;
  const ModelShape& s = facts.shape;
  const double n = static_cast<double>(std::max(tokens, kFewestTokens));
  const double tables = static_cast<double>(s.vocab_size * s.d_model) * (s.tied ? 1 : 2);
  // Forward a multiplication and an addition for each weight of the layers and each token, and for each pair of tokens that
  // attention compares; backward twice as many.
  const double pairs = n * static_cast<double>(s.n_layers * s.n_heads * s.head_dim);
  const double run = 6 * n * (static_cast<double>(facts.parameter_count) - tables + pairs);
  for (int64_t points = kMost; points >= kFewest; points /= 2)
    if (run * static_cast<double>(points) <= kMostOperations) return points;
  return 0;
}

PictureJson data_of_gradient_norms(Studio& studio) {
  if (const std::string why = run_once(studio); !why.empty()) return absent(why);
  const Backward& own = *studio.backward;
  const std::optional<Backward> without = backward_without_norms(studio.engine, studio.prompt.ids);
  std::string caption =
      "Length of the gradient of the prompt's loss with respect to the stream that enters each layer, and to the one that leaves "
      "the last, on a log axis: from one pass backward" +
      std::string(without ? ", and from one more through the same weights with every norm switched off" : "") +
      ". Vanishing gradients fall toward the first layer, exploding ones rise.";
  caption +=
      own.parameters
          ? " The dots are the lengths of the gradients of each layer's parameters, attention and MLP each with its norms."
          : fmt::format(" Gradients of all parameters would take {} of memory and are left out.", mib(gradient_bytes(studio)));
  PictureJson p = present(caption, fmt::format("The loss is {:.4g}. The gradient at the first layer is {}{}.", own.loss,
                                               told(own), without ? "; without norms it is " + told(*without) : ""));
  p["loss"] = number(own.loss);
  p["norms"] = numbers(own.stream);
  p["lossWithoutNorms"] = without ? number(without->loss) : PictureJson(nullptr);
  p["withoutNorms"] = without ? numbers(without->stream) : PictureJson(nullptr);
  p["parameters"] = nullptr;
  if (own.parameters) {
    PictureJson rest = PictureJson::array();
    for (const auto& [name, norm] : own.parameters->rest) rest.push_back({{"name", name}, {"norm", number(norm)}});
    p["parameters"] = {{"attention", numbers(own.parameters->attention)},
                       {"mlp", numbers(own.parameters->mlp)},
                       {"rest", std::move(rest)},
                       {"all", number(own.parameters->all)}};
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "gradient of the loss at the stream, and of the layer's parameters", "keep": "spread",
     "columns": [["stream", "stream.*.name"], ["|gradient|", "norms.*"], ["without norms", "withoutNorms.*"], ["attention", "parameters.attention.*"], ["MLP", "parameters.mlp.*"]]},
    {"detail": true, "columns": [["parameters outside the layers", "parameters.rest.*.name"], ["|gradient|", "parameters.rest.*.norm"]]}
  ])json");
  p["stream"] = PictureJson::array();
  const size_t layers = own.stream.size() - 1;
  for (size_t l = 0; l <= layers; ++l)
    p["stream"].push_back({{"name", l < layers ? fmt::format("entering layer {}", l) : "leaving the last layer"},
                           {"hook", l < layers ? fmt::format("blocks.{}.hook_resid_pre", l)
                                               : fmt::format("blocks.{}.hook_resid_post", layers - 1)}});
  p["lost"] = nullptr;
  if (without) {
    const auto n =
        std::count_if(without->stream.begin(), without->stream.end(), [](double norm) { return !std::isfinite(norm); });
    if (n == static_cast<std::ptrdiff_t>(without->stream.size()))
      p["lost"] =
          "With norms off, this model's numbers leave the range of 32-bit floats on the way forward already, and no gradient "
          "comes back.";
    else if (n > 0)
      p["lost"] = "Where the second curve is missing, the gradient without norms has left the range of 32-bit floats.";
  }
  if (own.parameters) {
    std::string outside;
    for (const auto& [name, norm] : own.parameters->rest)
      outside += fmt::format("{}`{}` {:.3g}", outside.empty() ? "" : ", ", name, norm);
    p["outside"] = outside.empty() ? "" : "Outside the layers: " + outside + ".";
  }
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "title": "At the residual stream", "label": "Length of the gradient at the stream that enters each layer.",
     "x": {"label": "layer that the stream enters", "whole": true}, "y": {"label": "length of the gradient, log", "log": true},
     "series": [
       {"name": "with norms", "tone": "attention", "draw": "both", "y": "norms.*",
        "hint": "{stream.*.name}, with norms\nlength of the gradient {norms.*}",
        "pick": {"do": "gradient", "with": ["{stream.*.hook}"], "says": "how to write it to a file"}},
       {"name": "without norms", "tone": "mlp", "draw": "both", "dashed": true, "y": "withoutNorms.*",
        "hint": "{stream.*.name}, norms off\nlength of the gradient {withoutNorms.*}",
        "pick": {"do": "gradient", "with": ["{stream.*.hook}"], "says": "how to write that with norms to a file"}}]},
    {"kind": "remark", "if": "lost", "text": "{lost}"},
    {"kind": "xy", "if": "parameters", "title": "Of the parameters of each layer", "label": "Length of the gradient of each layer's parameters.", "height": 280,
     "x": {"label": "layer", "whole": true, "pad": 0.5}, "y": {"label": "length of the gradient, log", "log": true},
     "series": [
       {"name": "attention", "tone": "attention", "draw": "dots", "shift": -0.12, "y": "parameters.attention.*",
        "hint": "layer {#0}, parameters of the attention\nlength of the gradient {parameters.attention.*}"},
       {"name": "MLP", "tone": "mlp", "draw": "dots", "shift": 0.12, "y": "parameters.mlp.*",
        "hint": "layer {#0}, parameters of the MLP\nlength of the gradient {parameters.mlp.*}"}]},
    {"kind": "remark", "if": "parameters", "text": "{outside} All together {parameters.all}."}
  ])json");
  return p;
}

PictureJson data_of_gradient_hooks(Studio& studio) {
  if (const std::string why = run_once(studio); !why.empty()) return absent(why);
  const size_t n = studio.prompt.ids.size(), shown = std::min(n, static_cast<size_t>(kTokensEach)), first = n - shown;
  PictureJson hooks = PictureJson::array();
  std::string alt;
  for (const Backward::Hook& hook : studio.backward->hooks) {
    std::vector<float> cells;
    for (const std::vector<double>& layer : hook.norms)
      for (size_t t = first; t < n; ++t) cells.push_back(static_cast<float>(layer[t]));
    const size_t most = static_cast<size_t>(std::max_element(cells.begin(), cells.end()) - cells.begin());
    hooks.push_back({{"hook", hook.name},
                     {"norms", packed(cells, {static_cast<int64_t>(hook.norms.size()), static_cast<int64_t>(shown)})},
                     {"longest",
                      {{"norm", number(static_cast<double>(cells[most]))},
                       {"layer", PictureJson(nullptr)},
                       {"position", first + most % shown}}}});
    if (hook.name == "blocks.*.hook_resid_pre")
      alt = fmt::format("At the stream, the longest gradient is {:.3g}: at position {}, where it enters layer {}.",
                        static_cast<double>(cells[most]), first + most % shown, most / shown);
    if (hook.name.find('*') != std::string::npos) hooks.back()["longest"]["layer"] = most / shown;
  }
  PictureJson p = present(
      fmt::format("Length of the gradient of the prompt's loss at a hook of your choice, {}by layer and token. After the last "
                  "token nothing follows that could be compared, so that only what earlier tokens expect counts, and its "
                  "gradient is 0.",
                  shown < n ? fmt::format("of the last {} tokens, ", shown) : ""),
      alt);
  p["positions"] = PictureJson::array();
  for (size_t position = first; position < n; ++position) p["positions"].push_back(position);
  p["hooks"] = std::move(hooks);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the longest gradient at each hook, over layers and tokens", "columns": [["hook", "hooks.*.hook"], ["|gradient|", "hooks.*.longest.norm"],
       ["layer", "hooks.*.longest.layer"], ["at", "hooks.*.longest.position"], ["token", "hooks.*.longest.position", "at"]]},
    {"detail": true, "columns": [["hook", "hooks.#0.names.#1"], ["position", "positions.#2"], ["token", "positions.#2", "at"], ["|gradient|", "hooks.*.norms.*.*"]]}
  ])json");
  for (size_t i = 0; i < p["hooks"].size(); ++i) {
    PictureJson& hook = p["hooks"][i];
    const std::string name = hook.at("hook");
    const bool each = name.starts_with("blocks.*.");
    if (name == "blocks.*.hook_resid_pre") p["usual"] = i;
    hook["name"] = each ? name.substr(9) : name;
    hook["rows"] = hook["names"] = PictureJson::array();
    for (size_t l = 0; l < hook.at("norms").at("shape")[0].get<size_t>(); ++l) {
      hook["rows"].push_back(each ? fmt::format("layer {}", l) : name.substr(0, name.find('.')));
      hook["names"].push_back(each ? fmt::format("blocks.{}.{}", l, name.substr(9)) : name);
    }
  }
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Gradient at", "each": "hooks.*", "at": "usual", "name": "{hooks.#0.name}", "charts": [
      {"kind": "grid", "label": "Length of the gradient at {hooks.#0.hook}, by layer and token.", "values": "hooks.#0.norms.*.*",
       "rows": "{hooks.#0.rows.#1}", "columns": "{positions.#2|at}", "place": "positions.#2", "scale": "sequential", "cell": 58, "tall": 24, "write": ".2g",
       "hint": "{hooks.#0.names.#1}\nat {positions.#2|place}\nlength of the gradient {hooks.#0.norms.*.*}",
       "pick": {"do": "gradient", "with": ["{hooks.#0.names.#1}"], "says": "how to write it to a file"},
       "key": {"label": "length"}}]}
  ])json");
  return p;
}

PictureJson data_of_input_attribution(Studio& studio) {
  const int64_t position = studio.options.position.value_or(studio.tokens() - 1);
  if (position < 0 || position >= studio.tokens())
    throw InputError(fmt::format("position {} does not exist; expected 0 to {}", position, studio.tokens() - 1));
  // A tape that runs each block again keeps one at a time.
  if (const std::string why = refused(studio, 1); !why.empty()) return absent(why);
  const auto ids = std::span(studio.prompt.ids).first(static_cast<size_t>(position) + 1);
  AttributionOptions options;
  options.steps = integral_points(studio.facts, position + 1);
  const bool integrated = options.steps > 0;
  const Attribution found = attribute(studio.engine, ids, options);
  const auto most = static_cast<size_t>(std::max_element(found.saliency.begin(), found.saliency.end()) - found.saliency.begin());
  PictureJson p = present(
      std::string("What the most likely next token owes to each token of the prompt: the length of the gradient of its "
                  "log-probability at the token's embedding (saliency: how much it could change the answer), that gradient times "
                  "the embedding (what would be lost, to first order, without it), and ") +
          (integrated ? fmt::format("integrated gradients ({} points between the vocabulary's mean embedding and the token's), "
                                    "whose sum is what the prompt adds to the log-probability.",
                                    options.steps)
                      : "no integrated gradients, which would take long here: `vitrine attribute` computes them."),
      fmt::format("For the token {} after position {}: position {} has the longest gradient, {:.3g}.{}",
                  studio.piece(found.token), position, most, found.saliency[most],
                  integrated ? fmt::format(" The integrated gradients sum to what the prompt adds, {:.4g}, but for {:.2g}.",
                                           found.value - *found.baseline_value, *found.gap)
                             : ""));
  p["position"] = position;
  p["target"] = {{"id", studio.mention(found.token)}, {"logprob", number(found.value)}};
  p["saliency"] = numbers(found.saliency);
  p["gradientInput"] = numbers(found.gradient_input);
  p["integrated"] = nullptr;
  if (integrated)
    p["integrated"] = {{"parts", numbers(*found.integrated)},
                       {"baselineLogprob", number(*found.baseline_value)},
                       {"gap", number(*found.gap)},
                       {"points", options.steps}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "gradient of the most likely next token's log-probability at each embedding",
     "columns": [["at", "#0"], ["token", "#0", "at"], ["saliency", "saliency.*"], ["gradient · embedding", "gradientInput.*"], ["integrated", "integrated.parts.*"]]}
  ])json");
  p["target"]["probability"] = number(std::exp(found.value));
  if (integrated)
    p["complete"] = fmt::format(
        "From the baseline, where its ln p is {:.4g}, the parts sum to {:.4g}; complete would be {:.4g}, so {:.2g} is missed.",
        *found.baseline_value, found.value - *found.baseline_value + *found.gap, found.value - *found.baseline_value,
        std::abs(*found.gap));
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Measured by", "options": [
      {"if": "integrated", "name": "integrated gradients", "charts": [
        {"kind": "bars", "label": "What the answer owes to each token, by integrated gradients.", "name": "{#0} {#0|at}", "value": "integrated.parts.*", "largest": 40, "hint": "{#0|place}\nsaliency {saliency.*}\ngradient × embedding {gradientInput.*}\nintegrated gradients {integrated.parts.*}"},
        {"kind": "remark", "text": "{complete}"}]},
      {"name": "gradient × embedding", "charts": [
        {"kind": "bars", "label": "What the answer owes to each token, by gradient × embedding.", "name": "{#0} {#0|at}", "value": "gradientInput.*", "largest": 40, "hint": "{#0|place}\nsaliency {saliency.*}\ngradient × embedding {gradientInput.*}"}]},
      {"name": "saliency", "charts": [
        {"kind": "bars", "label": "What the answer owes to each token, by saliency.", "name": "{#0} {#0|at}", "value": "saliency.*", "largest": 40, "hint": "{#0|place}\nsaliency {saliency.*}\ngradient × embedding {gradientInput.*}"},
        {"kind": "remark", "text": "Saliency has no sign: it says how sensitive the answer is to a token."}]}]},
    {"kind": "remark", "text": "The answer is {target.id|token} after {position|place}, with probability {target.probability|%} (ln p = {target.logprob})."}
  ])json");
  return p;
}

}  // namespace vitrine
