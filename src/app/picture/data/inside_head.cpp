// Pictures of the parts of one layer, for readers who meet them for the first time: a norm step by step, the parameters of one
// head, the causal mask; and what is left when positions are off or the words are shuffled.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "hooks/trace.h"
#include "inspect/weights.h"
#include "intervene/intervene.h"
#include "picture/data/head_study.h"
#include "picture/data/rows.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

bool has_hook(Studio& studio, const std::string& name) { return studio.engine.model().record().hook(name) != nullptr; }

int64_t chosen_layer(const Studio& studio, int64_t usual) {
  require_place("layer", studio.options.layer, studio.facts.shape.n_layers);
  return studio.options.layer.value_or(usual);
}

int64_t chosen_head(const Studio& studio) {
  require_place("head", studio.options.head, studio.facts.shape.n_heads);
  return studio.options.head.value_or(0);
}

// Numbers of one kind.
class Size {
 public:
  void add(double x) {
    squares_ += x * x;
    largest_ = std::max(largest_, std::abs(x));
    ++count_;
  }
  double rms() const { return std::sqrt(squares_ / static_cast<double>(std::max<int64_t>(count_, 1))); }
  PictureJson json() const { return {{"count", count_}, {"rms", number(rms())}, {"largest", number(largest_)}}; }

 private:
  double squares_ = 0, largest_ = 0;
  int64_t count_ = 0;
};

}  // namespace

PictureJson data_of_norm_steps(Studio& studio) {
  constexpr size_t kShown = 10;
  const int64_t layer = chosen_layer(studio, 0);
  const std::string block = fmt::format("blocks.{}.", layer);
  const std::string in = block + "hook_resid_pre", out = block + "ln1.hook_normalized";
  if (studio.facts.norm_place == NormPlace::after || !has_hook(studio, out))
    return absent("In this model no norm reads the stream in front of attention.");
  const Model& model = studio.engine.model();
  const LayerRecord& spec = model.layer(layer);
  const FrozenNorm norm = frozen_norm(NamedWeights(model), spec, block + "ln1");
  const std::vector<std::string> hooks = {in, out};
  const Recorder recorder = trace_to_memory(studio.engine, studio.prompt.ids, hooks, nullptr, studio.options.memory);
  const auto& seen = recorder.values();
  const auto width = static_cast<size_t>(studio.facts.shape.d_model), at = static_cast<size_t>(studio.tokens()) - 1;
  const std::span<const float> x = std::span(seen.at(in).values).subspan(at * width, width),
                               y = std::span(seen.at(out).values).subspan(at * width, width);

  Moments of;
  of.add(x.data(), std::ssize(x));
  const double mean = norm.rms ? 0 : of.mean();
  double squares = 0;
  for (const float v : x) squares += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(width));
  const double divisor = std::sqrt(squares / static_cast<double>(width) + spec.norm.eps);
  PictureJson components = PictureJson::array();
  double worst = 0;
  for (size_t i = 0; i < width; ++i) {
    const double centered = static_cast<double>(x[i]) - mean, normed = centered / divisor;
    const double gain = norm.gain.empty() ? 1 : norm.gain[i], bias = norm.bias.empty() ? 0 : norm.bias[i];
    worst = std::max(worst, std::abs(normed * gain + bias - static_cast<double>(y[i])));
    if (i >= kShown) continue;
    components.push_back({{"x", number(static_cast<double>(x[i]))},
                          {"centered", norm.rms ? PictureJson(nullptr) : number(centered)},
                          {"normed", number(normed)},
                          {"gain", norm.gain.empty() ? PictureJson(nullptr) : number(gain)},
                          {"bias", norm.bias.empty() ? PictureJson(nullptr) : number(bias)},
                          {"y", number(static_cast<double>(y[i]))}});
  }
  Moments left;
  left.add(y.data(), std::ssize(y));
  Size gains, biases;
  for (const double g : norm.gain) gains.add(g);
  for (const double b : norm.bias) biases.add(b);
  PictureJson p = present(
      fmt::format(
          "The norm in front of the attention of layer {} at work on the last token: {}. The first components are shown.", layer,
          norm.rms ? "the numbers of the stream are divided by their root mean square, then multiplied by learned weights, "
                     "one for each component"
                   : "the mean of its numbers is subtracted, the rest divided by the standard deviation, then multiplied "
                     "by learned weights and shifted by learned biases, one of each for every component"),
      fmt::format("{} {:.4g}, {} {:.4g}; after the norm the root mean square is {:.4g}.", norm.rms ? "Root mean square" : "Mean",
                  norm.rms ? deviation : mean, norm.rms ? "divided by" : "standard deviation", norm.rms ? divisor : deviation,
                  left.rms()));
  p["layer"] = layer;
  p["rms"] = norm.rms ? PictureJson(true) : PictureJson(nullptr);
  p["mean"] = norm.rms ? PictureJson(nullptr) : number(mean);
  p["deviation"] = number(deviation);
  p["eps"] = number(spec.norm.eps);
  p["divisor"] = number(divisor);
  p["components"] = std::move(components);
  p["width"] = width;
  p["gains"] = gains.json();
  p["biases"] = norm.bias.empty() ? PictureJson(nullptr) : biases.json();
  p["outMean"] = number(left.mean());
  p["outRms"] = number(left.rms());
  p["difference"] = number(worst);
  p["prose"] = {{"mean", p["mean"]}, {"deviation", number(deviation)}};
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["component", "#0"], ["x", "components.*.x", ".4f"], ["− mean", "components.*.centered", ".4f"], ["÷ √(mean square + ε)", "components.*.normed", ".4f"],
       ["weight", "components.*.gain", ".4f"], ["bias", "components.*.bias", ".4f"], ["result", "components.*.y", ".4f"]]},
    {"detail": true, "columns": [["mean", "mean"], ["deviation", "deviation"], ["ε", "eps"], ["divisor", "divisor"], ["root mean square after", "outRms"],
       ["largest difference from the run", "difference"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "pairs", "label": "The first components before and after the norm.", "name": "component {#0}",
     "axis": {"label": "value"},
     "from": {"name": "entering", "value": "components.*.x", "hint": "component {#0}\nentering {components.*.x}"},
     "to": {"name": "leaving", "value": "components.*.y",
            "hint": "component {#0}\nnormalized {components.*.normed}\nleaving {components.*.y}"}},
    {"kind": "remark", "if": "mean", "text": "Mean {mean|.4f}, standard deviation {deviation|.4f} over {width} components; the mean is subtracted and the rest divided."},
    {"kind": "remark", "if": "rms", "text": "Root mean square {deviation|.4f} over {width} components."}
  ])json");
  return p;
}

PictureJson data_of_head_parameters(Studio& studio) {
  const int64_t layer = chosen_layer(studio, studio.facts.attention_layer);
  const Model& model = studio.engine.model();
  const LayerRecord& spec = model.layer(layer);
  const std::string attn = fmt::format("blocks.{}.attn.", layer);
  const int64_t heads = studio.facts.shape.n_heads, d = spec.head_dim, groups = spec.n_kv_heads;
  const int64_t head = chosen_head(studio);
  if (!spec.has_attention() || d <= 0 || groups <= 0) return absent("This layer has no attention heads.");
  const int64_t group = head / std::max<int64_t>(heads / groups, 1);
  struct Part {
    const char *matrix, *bias, *does;
    bool by_input = false;
    int64_t at = 0;  // the head among those that this matrix has
  };
  const Part kParts[] = {{"W_Q", "b_Q", "asks: what is this token looking for", false, head},
                         {"W_K", "b_K", "answers: what is there to be found", false, group},
                         {"W_V", "b_V", "what is handed over", false, group},
                         {"W_O", "b_O", "writes it into the stream", true, head}};
  const NamedWeights weights(model);  // stacked ones taken apart
  PictureJson parts = PictureJson::array();
  bool biased = false;
  for (const Part& part : kParts) {
    const Weight* const w = weights.find_matrix(attn + part.matrix);
    const int64_t all = part.at * d;
    if (w == nullptr || w->data == nullptr || (part.by_input ? w->in : w->out) % d != 0 ||
        (part.by_input ? w->in : w->out) < all + d)
      return absent("This model's heads are built in another way than by W_Q, W_K, W_V and W_O of equal sizes.");
    Size size, bias;
    const int64_t other = part.by_input ? w->out : w->in;
    for (int64_t i = 0; i < d; ++i)
      for (int64_t j = 0; j < other; ++j) size.add(part.by_input ? w->at<double>(j, all + i) : w->at<double>(all + i, j));
    if (w->bias)
      for (int64_t i = 0; i < (part.by_input ? other : d); ++i) bias.add(w->bias.at<double>(part.by_input ? i : all + i));
    biased = biased || static_cast<bool>(w->bias);
    parts.push_back({{"matrix", part.matrix},
                     {"bias", part.bias},
                     {"does", part.does},
                     {"rows", part.by_input ? other : d},
                     {"columns", part.by_input ? d : other},
                     {"weights", size.json()},
                     {"biases", w->bias ? bias.json() : PictureJson(nullptr)}});
  }
  PictureJson p = present(
      fmt::format(
          "The learned parameters of head {} of layer {}: four matrices{}. Drawn is the root mean square of each, its typical "
          "size. All were random numbers before training; nothing but their place in the computation says what each is for.",
          head, layer, biased ? ", each with a bias that is added to its result" : "; this model has no biases here"),
      "");
  int64_t total = 0;
  for (const PictureJson& part : parts) total += part.at("weights").at("count").get<int64_t>();
  p["alt"] = fmt::format("{} weights in four matrices.", total);
  p["layer"] = layer;
  p["head"] = head;
  p["group"] = group;
  p["headDim"] = d;
  p["scale"] = number(spec.attention.scale);
  p["weights"] = total;
  p["biased"] = biased ? PictureJson(true) : PictureJson(nullptr);
  p["parts"] = std::move(parts);
  p["prose"] = {{"layer", layer}, {"weights", total}, {"biased", biased}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "layer {layer}, head {head}", "columns": [["matrix", "parts.*.matrix"], ["rows", "parts.*.rows"], ["columns", "parts.*.columns"],
       ["root mean square", "parts.*.weights.rms", ".4f"], ["largest", "parts.*.weights.largest", ".4f"],
       ["root mean square of the bias", "parts.*.biases.rms", ".4f"], ["for", "parts.*.does"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "label": "Typical size of the weights of one head.", "name": "{parts.*.matrix} [{parts.*.rows}, {parts.*.columns}]", "value": "parts.*.weights.rms",
     "note": "{parts.*.weights.rms|.4f}, {parts.*.does}", "hint": "{parts.*.matrix}: {parts.*.weights.count|count} weights\nroot mean square {parts.*.weights.rms}, largest {parts.*.weights.largest}"},
    {"kind": "bars", "if": "biased", "title": "Their biases", "label": "Typical size of the biases of one head.", "name": "{parts.*.bias}", "value": "parts.*.biases.rms",
     "note": "{parts.*.biases.rms|.4f}", "hint": "{parts.*.bias}: {parts.*.biases.count|count} numbers\nroot mean square {parts.*.biases.rms}, largest {parts.*.biases.largest}"},
    {"kind": "remark", "text": "Scores are multiplied by {scale|.4f} before the softmax."}
  ])json");
  return p;
}

PictureJson data_of_causal_mask(Studio& studio) {
  constexpr size_t kMost = 40;  // tokens
  const int64_t layer = chosen_layer(studio, studio.facts.attention_layer);
  const LayerRecord& spec = studio.engine.model().layer(layer);
  const std::string attn = fmt::format("blocks.{}.attn.", layer);
  if (studio.tokens() < 2) return absent("One token has nothing before or after it; give a longer prompt.");
  const std::string q_hook = attn + (spec.rope ? "hook_rot_q" : "hook_q"), k_hook = attn + (spec.rope ? "hook_rot_k" : "hook_k"),
                    s_hook = attn + "hook_attn_scores", p_hook = attn + "hook_pattern";
  const std::vector<std::string> hooks = {q_hook, k_hook, s_hook, p_hook};
  for (const std::string& hook : hooks)
    if (!has_hook(studio, hook)) return absent("This layer does not show the queries and keys that its scores come from.");
  const std::span<const int32_t> ids(studio.prompt.ids);  // the first: later ones do not change them
  const Recorder recorder =
      trace_to_memory(studio.engine, ids.first(std::min(ids.size(), kMost)), hooks, nullptr, studio.options.memory);
  const auto& seen = recorder.values();
  const Recorder::Value &q = seen.at(q_hook), &k = seen.at(k_hook), &s = seen.at(s_hook), &w = seen.at(p_hook);
  const auto n = static_cast<size_t>(s.shape[1]), heads = static_cast<size_t>(s.shape[0]);
  const auto head = static_cast<size_t>(chosen_head(studio));
  if (q.shape.size() != 3 || k.shape.size() != 3 || q.shape[2] != k.shape[2] || k.shape[1] <= 0 || q.shape[1] != s.shape[0] ||
      q.shape[1] % k.shape[1] != 0)
    return absent("This layer's scores are not products of one query and one key for each head.");
  const auto d = static_cast<size_t>(q.shape[2]), kv = static_cast<size_t>(k.shape[1]), group = head / (heads / kv);

  std::vector<float> masked(n * n), open(n * n);
  double later = 0, furthest = 0;
  for (size_t i = 0; i < n; ++i) {
    std::vector<double> scores(n);
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t c = 0; c < d; ++c)
        sum +=
            static_cast<double>(q.values[(i * heads + head) * d + c]) * static_cast<double>(k.values[(j * kv + group) * d + c]);
      scores[j] = sum * spec.attention.scale;
      if (spec.attention.softcap != 0) scores[j] = spec.attention.softcap * std::tanh(scores[j] / spec.attention.softcap);
      if (spec.attention.alibi)
        scores[j] += alibi_slope(static_cast<int64_t>(head), static_cast<int64_t>(heads)) *
                     (static_cast<double>(j) - static_cast<double>(i));
      const double own = static_cast<double>(s.values[(head * n + i) * n + j]);
      if (j <= i && std::isfinite(own)) furthest = std::max(furthest, std::abs(own - scores[j]) / (1 + std::abs(own)));
      masked[i * n + j] = w.values[(head * n + i) * n + j];
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - most);
    for (size_t j = 0; j < n; ++j) {
      open[i * n + j] = static_cast<float>(std::exp(scores[j] - most) / sum);
      if (j > i) later += static_cast<double>(open[i * n + j]);
    }
  }
  constexpr double kClose = 2e-2;  // keys may be kept in 16 bits
  if (furthest > kClose) return absent("This layer's scores are more than the product of queries and keys.");
  PictureJson p = present(
      fmt::format(
          "Attention weights of layer {}, head {}, and what they would be without the causal mask: the same queries and keys, "
          "with every token allowed to look at every other. The mask sets the scores of all later tokens to minus infinity, "
          "so that the softmax gives them exactly 0.",
          layer, head),
      fmt::format("Without the mask {:.0f} % of the weight of this head would go to tokens that come later.",
                  100 * later / static_cast<double>(n)));
  p["layer"] = layer;
  p["head"] = head;
  p["shown"] = n;
  p["later"] = number(later / static_cast<double>(n));
  p["masked"] = packed(std::span<const float>(masked), {static_cast<int64_t>(n), static_cast<int64_t>(n)});
  p["open"] = packed(std::span<const float>(open), {static_cast<int64_t>(n), static_cast<int64_t>(n)});
  p["prose"] = {{"later", p["later"]}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "without the mask; the run's own weights are in the JSON, and above the diagonal they are 0", "keep": "last",
     "grid": {"corner": "target \\ source", "rows": "{#0} {#0|at}", "columns": "{#1|at}", "values": "open.*.*", "middle": 0.5, "reach": 0.5, "square": true}}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"choose": "Mask", "options": [
      {"name": "on, as in the run", "charts": [
        {"kind": "grid", "label": "Attention weights with the causal mask.", "values": "masked.*.*", "rows": "{#0|at}", "columns": "{#1|at}", "scale": "sequential", "most": 1, "cell": 30, "tall": 20,
         "hint": "from {#0|place} to {#1|place}\nweight {masked.*.*}", "key": {"label": "weight", "as": "%"}},
        {"kind": "remark", "text": "Above the diagonal every weight is 0: no token sees what comes after it."}]},
      {"name": "off", "charts": [
        {"kind": "grid", "label": "Attention weights without the causal mask.", "values": "open.*.*", "rows": "{#0|at}", "columns": "{#1|at}", "scale": "sequential", "most": 1, "cell": 30, "tall": 20,
         "hint": "from {#0|place} to {#1|place}\nweight without the mask {open.*.*}", "key": {"label": "weight", "as": "%"}},
        {"kind": "remark", "text": "{later|%} of the weight goes to later tokens. The model was not trained to run like this; the figure shows what the mask holds back in this head."}]}]}
  ])json");
  return p;
}

PictureJson data_of_word_order(Studio& studio) {
  constexpr size_t kFewest = 4, kMost = 256, kTop = 5;
  const std::vector<int32_t>& ids = studio.prompt.ids;
  if (ids.size() < kFewest) return absent("There is no order to change in so few tokens; give a longer prompt.");
  if (ids.size() > kMost) return absent(fmt::format("The prompt has more than {} tokens; give a shorter one.", kMost));
  const bool added = has_hook(studio, "hook_pos_embed") &&
                     (studio.facts.positions == Positions::learned || studio.facts.positions == Positions::sinusoidal);
  // The last token stays, since the prediction comes after it, and so does a mark in front of the text.
  std::vector<int32_t> reversed = ids;
  const bool marked =
      studio.spelled() && ids[0] < studio.engine.tokenizer().vocab_size() && studio.engine.tokenizer().is_control(ids[0]);
  std::reverse(reversed.begin() + (marked ? 1 : 0), reversed.end() - 1);

  Interventions off(std::vector<ValueEdit>{{.hook = "hook_pos_embed", .kind = ValueEdit::Kind::set, .values = {0}}});
  struct Case {
    const char* name;
    const std::vector<int32_t>& of;
    Listener* listener;
    size_t against;
  };
  std::vector<Case> cases = {{"as it is", ids, nullptr, 0}, {"reversed", reversed, nullptr, 0}};
  if (added) {
    cases.push_back({"positions off", ids, &off, 0});
    cases.push_back({"positions off, reversed", reversed, &off, 2});
  }
  std::vector<std::vector<double>> probabilities;
  PictureJson rows = PictureJson::array();
  for (const Case& one : cases) {
    std::vector<float> row = last_logits(studio.engine, one.of, one.listener);
    PictureJson top = PictureJson::array();
    for (const TokenLogprob& t : top_logprobs(row, kTop))
      top.push_back({{"id", studio.mention(t.token)}, {"prob", number(t.prob())}});
    log_softmax(row);
    std::vector<double>& p = probabilities.emplace_back();
    for (const float logprob : row) p.push_back(std::exp(static_cast<double>(logprob)));
    const std::vector<double>& other = probabilities[one.against];
    double distance = 0;
    for (size_t i = 0; i < p.size(); ++i) distance += std::abs(p[i] - other[i]) / 2;
    rows.push_back(
        {{"name", one.name}, {"against", cases[one.against].name}, {"distance", number(distance)}, {"top", std::move(top)}});
  }
  const auto loss = [&] {
    const std::vector<float> logprobs = studio.engine.token_logprobs(ids);
    return -std::accumulate(logprobs.begin(), logprobs.end(), 0.0) / static_cast<double>(logprobs.size());
  };
  PictureJson p = present(
      std::string("The same tokens in another order: the words before the last one are in reverse order. ") +
          (added ? "Then with the vectors of the positions replaced by zeros, in both orders. "
                 : "This model has no vectors of positions to switch off. ") +
          "The distance of two distributions is half the sum of the differences of all probabilities: 0, they agree; 1, they "
          "share "
          "nothing.",
      fmt::format("Reversing the words moves the prediction by {:.3f}{}.", rows[1].at("distance").get<double>(),
                  added ? fmt::format(", without positions by {:.3f}", rows[3].at("distance").get<double>()) : std::string()));
  p["cases"] = std::move(rows);
  p["loss"] = number(loss());
  p["lossWithout"] = nullptr;
  if (added) {
    const Listening listening(studio.engine.context(), off);
    p["lossWithout"] = number(loss());
  }
  p["reversed"] = reversed;
  for (const int32_t id : reversed) studio.mention(id);
  p["prose"] = {{"distance", p["cases"][1].at("distance")},
                {"distance_off", added ? p["cases"][3].at("distance") : PictureJson(nullptr)},
                {"loss", p["loss"]},
                {"loss_off", p["lossWithout"]}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the token after the prompt", "columns": [["order", "cases.*.name"], ["most likely", "cases.*.top.0.id", "token"], ["", "cases.*.top.0.prob", "%"],
       ["second", "cases.*.top.1.id", "token"], ["", "cases.*.top.1.prob", "%"], ["third", "cases.*.top.2.id", "token"], ["", "cases.*.top.2.prob", "%"],
       ["distance", "cases.*.distance", ".4f"], ["from", "cases.*.against"]]},
    {"detail": true, "columns": [["loss of the prompt", "loss"], ["positions off", "lossWithout"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "label": "How far the prediction moves.", "name": "{cases.1::1.name}", "value": "cases.1::1.distance", "most": 1,
     "note": "{cases.1::1.distance|.3f} from {cases.1::1.against}; now {cases.1::1.top.0.id|token}", "hint": "{cases.1::1.name}\ndistance {cases.1::1.distance} from {cases.1::1.against}\nmost likely {cases.1::1.top.0.id|token}, {cases.1::1.top.0.prob|%}"},
    {"kind": "remark", "text": "As it is, the most likely next token is {cases.0.top.0.id|token} with {cases.0.top.0.prob|%}."},
    {"kind": "remark", "if": "lossWithout", "text": "The loss of the prompt is {loss|.3f} with positions and {lossWithout|.3f} without."}
  ])json");
  return p;
}

}  // namespace vitrine
