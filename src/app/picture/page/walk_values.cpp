#include "picture/page/walk_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vitrine {
namespace {

// The picture of that name; null if this document has none, or none for this model.
const PictureJson* available(const PictureJson& pictures, const char* name) {
  const auto picture = pictures.find(name);
  return picture != pictures.end() && picture->at("available").get<bool>() ? &*picture : nullptr;
}

// The matrices that have a bias.
PictureJson biases_of(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  PictureJson list = PictureJson::array();
  for (const char* matrix : {"attn.W_Q", "attn.W_K", "attn.W_V", "attn.W_O", "mlp.W_gate", "mlp.W_in", "mlp.W_out"})
    if (facts.has_bias(matrix)) list.push_back(matrix);
  if (std::any_of(facts.parameters.matrices.begin(), facts.parameters.matrices.end(),
                  [](const auto& entry) { return entry.first.ends_with("router") && static_cast<bool>(entry.second->bias); }))
    list.push_back("router");
  if (studio.engine.model().head().weight->bias) list.push_back("W_U");
  return list;
}

const char* scaling_name(RopeSpec::Scaling scaling) {
  switch (scaling) {
    case RopeSpec::Scaling::none: break;
    case RopeSpec::Scaling::linear: return "linear";
    case RopeSpec::Scaling::llama3: return "llama3";
    case RopeSpec::Scaling::yarn: return "yarn";
    case RopeSpec::Scaling::longrope: return "longrope";
    case RopeSpec::Scaling::proportional: return "proportional";
  }
  return "none";
}

PictureJson rope_values(const std::optional<RopeSpec>& rope) {
  if (!rope) return nullptr;
  const auto range = [&](const float* divisors) -> PictureJson {
    if (divisors == nullptr) return nullptr;
    const auto [least, most] = std::minmax_element(divisors, divisors + rope->rotary_dim / 2);
    return {*least, *most};
  };
  return {{"theta", rope->theta},
          {"rotary_dim", rope->rotary_dim},
          {"scaling", scaling_name(rope->scaling)},
          {"factor", rope->factor},
          {"original_context", rope->original_context},
          {"low_freq_factor", rope->low_freq_factor},
          {"high_freq_factor", rope->high_freq_factor},
          {"beta_fast", rope->beta_fast},
          {"beta_slow", rope->beta_slow},
          {"attention_factor", rope->attention_factor},
          {"divisors", range(rope->divisors)},
          {"long_divisors", range(rope->long_divisors)}};
}

PictureJson expert_values(const std::optional<ExpertSpec>& experts) {
  if (!experts) return nullptr;
  return {{"count", experts->count},
          {"per_row", experts->per_row},
          {"d_ff", experts->d_ff},
          {"limit", experts->limit},
          {"slope", experts->slope},
          {"softmax_over_all", experts->softmax_over_all},
          {"renormalize", experts->renormalize}};
}

PictureJson nearest_embeddings(const Studio& studio, const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "embedding-cosine");
  if (picture == nullptr) return nullptr;
  const PictureJson &ids = picture->at("ids"), &grid = picture->at("cosine");
  size_t first = 0, second = 1;
  for (size_t i = 0; i < ids.size(); ++i)
    for (size_t j = i + 1; j < ids.size(); ++j)
      if (grid[i][j].get<double>() > grid[first][second].get<double>()) first = i, second = j;
  return {{"first", studio.piece(ids[first])}, {"second", studio.piece(ids[second])}, {"cosine", grid[first][second]}};
}

// The middle of this run's update scales, and the part that changes the residual stream most.
PictureJson update_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "update-scale");
  if (picture == nullptr) return nullptr;
  const PictureJson& parts = picture->at("sublayers");
  std::vector<double> scales;
  size_t most = 0;
  for (const PictureJson& part : parts) {
    if (!part.at("scale").is_number()) return nullptr;
    scales.push_back(part.at("scale"));
    if (scales.back() > scales[most]) most = scales.size() - 1;
  }
  if (scales.size() < 2) return nullptr;
  const double largest = scales[most];
  std::nth_element(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(scales.size() / 2), scales.end());
  return {{"middle", scales[scales.size() / 2]},
          {"most", largest},
          {"part", parts[most].at("part")},
          {"layer", parts[most].at("layer")}};
}

PictureJson final_lengths(const Studio& studio) {
  if (studio.seen.norms.empty()) return nullptr;
  const std::vector<float>& before = studio.seen.norms.back().in_rms;
  if (before.size() < 2) return nullptr;
  const auto [low, high] = std::minmax_element(before.begin(), before.end());
  return {{"least", *low}, {"most", *high}, {"position", high - before.begin()}};
}

PictureJson input_attribution(const Studio& studio, const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "input-attribution");
  if (picture == nullptr) return nullptr;
  const PictureJson &target = picture->at("target"), &integrated = picture->at("integrated");
  PictureJson complete = nullptr;
  if (!integrated.is_null())
    complete = {{"baseline", integrated.at("baselineLogprob")},
                {"gap", std::abs(integrated.at("gap").get<double>())},
                {"points", integrated.at("points")}};
  return {{"piece", studio.piece(target.at("id"))}, {"logprob", target.at("logprob")}, {"integrated", std::move(complete)}};
}

PictureJson gradient_values(const Studio& studio, const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "gradient-norms");
  if (picture == nullptr) return nullptr;
  const PictureJson& without = picture->at("withoutNorms");
  const bool finite = std::any_of(without.begin(), without.end(), [](const PictureJson& norm) { return !norm.is_null(); });
  return {{"loss", studio.backward->loss},
          {"without_norms", finite               ? PictureJson("finite")
                            : !without.is_null() ? PictureJson("overflow")
                                                 : PictureJson(nullptr)},
          {"of_parameters", !picture->at("parameters").is_null()}};
}

double degrees(const PictureJson& radians) { return radians.get<double>() * 180 / std::numbers::pi; }

PictureJson merging_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "interpolation");
  if (picture == nullptr) return nullptr;
  const PictureJson &pair = picture->at("pairs")[0], &shape = picture->at("shape");
  return {{"matrix", picture->at("matrix")},
          {"units", shape[0]},
          {"components", shape[1]},
          {"read", picture->at("read")},
          {"rows", pair.at("rows")},
          {"degrees", degrees(pair.at("angle"))},
          {"lengths", pair.at("lengths")},
          {"average_length", pair.at("averageLength")},
          {"slerp_length", pair.at("slerpLength")},
          {"straight", pair.at("straight")}};
}

PictureJson task_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "task-vectors");
  if (picture == nullptr) return nullptr;
  return {{"degrees", degrees(picture->at("taskAngle"))},
          {"lengths", picture->at("taskLengths")},
          {"average_length", picture->at("averageLength")},
          {"slerp_length", picture->at("slerpLength")}};
}

}  // namespace

PictureJson walk_values(Studio& studio, const PictureJson& pictures) {
  const ModelFacts& facts = studio.facts;
  const ModelShape& s = facts.shape;
  const PictureJson named = to_json(facts, "", "");
  const std::vector<int64_t>& windows = facts.windows;
  const bool of_one_size = std::all_of(windows.begin(), windows.end(), [&](int64_t w) { return w == windows[0]; });
  const auto root = [](double scale, double width) { return std::abs(scale * scale - width) < 1e-3 * width; };
  PictureJson bos = nullptr;
  if (studio.spelled())
    if (const Tokenizer& tokenizer = studio.engine.tokenizer(); tokenizer.adds_bos() && tokenizer.bos())
      bos = tokenizer.piece(*tokenizer.bos());
  const std::string activation = activation_name(facts.activation);
  PictureJson next = nullptr;  // a chapter whose pictures show no predictions has none
  if (!studio.seen.next.empty()) {
    const TokenLogprob& best = studio.seen.next.back().front();
    next = {{"piece", studio.piece(best.token)}, {"probability", std::exp(static_cast<double>(best.logprob))}};
  }
  const PictureJson* attribution = available(pictures, "logit-attribution");
  const PictureJson parts = attribution == nullptr ? PictureJson::array() : attribution->at("components");
  return {{"n_layers", s.n_layers},
          {"n_heads", s.n_heads},
          {"n_kv_heads", s.n_kv_heads},
          {"head_dim", s.head_dim},
          {"d_model", s.d_model},
          {"d_ff", s.d_ff},
          {"vocab_size", s.vocab_size},
          {"context_length", s.context_length},
          {"tied", s.tied},
          {"biases", biases_of(studio)},
          {"embedding_scale", s.embedding_scale},
          {"embedding_scale_is_root", root(s.embedding_scale, static_cast<double>(s.d_model))},
          {"positions", named.at("positions")},
          {"halved_sinusoids", facts.halved_sinusoids},
          {"rms", facts.rms},
          {"norm_place", named.at("normPlace")},
          {"norm_offset", facts.norm_offset},
          {"final_norm", facts.final_norm},
          {"residual_scale", facts.residual_scale},
          {"conv_layers", facts.conv_layers.empty() ? "" : facts.conv_layers_text()},
          {"recurrent", facts.recurrent},
          {"windowed_layers", std::count_if(windows.begin(), windows.end(), [](int64_t w) { return w != kNoWindow; })},
          {"window", of_one_size ? windows[0] : kNoWindow},
          {"sinks", facts.sinks},
          {"attention_softcap", facts.attention_softcap},
          {"final_softcap", facts.final_softcap},
          {"logit_scale", facts.logit_scale},
          {"rope", rope_values(facts.rope)},
          {"other_rope", rope_values(facts.other_rope)},
          {"still_layers", facts.still_layers},
          {"head_norms", !facts.head_norms        ? "none"
                         : facts.joint_head_norms ? "joint"
                                                  : "each"},
          {"activation", activation == "silu" || activation == "relu" ? activation : "gelu"},
          {"gated", facts.gated},
          {"mlp_title", facts.mlp_title()},
          {"experts", expert_values(facts.experts)},
          {"dense_layers", facts.dense_layers},
          {"n_tokens", studio.tokens()},
          {"spelled", studio.spelled()},
          {"bos", std::move(bos)},
          {"nearest", nearest_embeddings(studio, pictures)},
          {"likeness", likeness_of_positions(studio)},
          {"updates", update_values(pictures)},
          {"final_lengths", facts.final_norm ? final_lengths(studio) : PictureJson(nullptr)},
          {"next", std::move(next)},
          {"biases_are_parts",
           std::any_of(parts.begin(), parts.end(),
                       [](const PictureJson& part) { return part.at("kind").get<std::string>().ends_with("-bias"); })},
          {"input_attribution", input_attribution(studio, pictures)},
          {"gradients", gradient_values(studio, pictures)},
          {"merging", merging_values(pictures)},
          {"tasks", task_values(pictures)}};
}

}  // namespace vitrine
