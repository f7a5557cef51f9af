#include "picture/page/walk_values.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numbers>
#include <sstream>

#include "base/error.h"
#include "model/abilities.h"
#include "picture/data/view.h"

namespace vitrine {
namespace {

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

// GELU's forms look alike.
std::string activation_in_text(Activation f) {
  switch (f) {
    case Activation::gelu_tanh:
    case Activation::gelu_exact:
    case Activation::quick_gelu: return "gelu";
    case Activation::relu_squared: return "relu²";
    default: return activation_name(f);
  }
}

PictureJson expert_values(const std::optional<ExpertSpec>& experts) {
  if (!experts) return nullptr;
  return {{"count", experts->count},
          {"per_row", experts->per_row},
          {"d_ff", experts->d_ff},
          {"limit", experts->limit},
          {"slope", experts->slope},
          {"softmax_over_all", experts->softmax_over_all},
          {"renormalize", experts->renormalize},
          {"sigmoid", experts->sigmoid},
          {"corrected", experts->correction != nullptr},
          {"scale", experts->scale},
          {"near", experts->near ? PictureJson(*experts->near) : PictureJson(nullptr)},
          {"weighs_inputs", experts->weighs_inputs}};
}

PictureJson nearest_embeddings(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "embedding-cosine");
  if (picture == nullptr) return nullptr;
  const PictureJson &words = picture->at("words"), &grid = picture->at("cosine");
  size_t first = 0, second = 1;
  for (size_t i = 0; i < words.size(); ++i)
    for (size_t j = i + 1; j < words.size(); ++j)
      if (grid[i][j].get<double>() > grid[first][second].get<double>()) first = i, second = j;
  return {{"first", words[first].at("label")}, {"second", words[second].at("label")}, {"cosine", grid[first][second]}};
}

// Pairs of the same picture that are less alike: the least of all, and one from the middle.
PictureJson distant_embeddings(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "embedding-cosine");
  if (picture == nullptr) return PictureJson::array();
  const PictureJson &words = picture->at("words"), &grid = picture->at("cosine");
  std::vector<std::pair<double, std::pair<size_t, size_t>>> pairs;
  for (size_t i = 0; i < words.size(); ++i)
    for (size_t j = i + 1; j < words.size(); ++j) pairs.push_back({grid[i][j], {i, j}});
  std::sort(pairs.begin(), pairs.end());
  PictureJson list = PictureJson::array();
  for (const size_t at : {size_t{0}, pairs.size() / 2})
    list.push_back(
        {{"first", words[pairs[at].second.first].at("label")}, {"second", words[pairs[at].second.second].at("label")}});
  return list;
}

// Where attention goes on average over all heads, of three places: their mean weights, and the place with the most.
PictureJson look_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "attention");
  if (picture == nullptr) return nullptr;
  PictureJson looks;
  std::string most;
  double largest = -1;
  for (const auto& [key, name, place] :
       {std::tuple{"onFirst", "first", "the first token"}, std::tuple{"onPrevious", "previous", "the token before"},
        std::tuple{"onSelf", "self", "the token itself"}}) {
    double sum = 0, count = 0;
    for (const PictureJson& layer : picture->at(key))
      for (const PictureJson& weight : layer)
        if (!weight.is_null()) sum += weight.get<double>(), ++count;
    if (count == 0) return nullptr;
    looks[name] = sum / count;
    if (sum / count > largest) largest = sum / count, most = place;
  }
  looks["most"] = most;
  return looks;
}

// The part that pushed the most likely token's logit up most.
PictureJson writer_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "logit-attribution");
  if (picture == nullptr) return nullptr;
  const PictureJson &parts = picture->at("targets")[0].at("parts"), &components = picture->at("components");
  size_t best = 0;
  std::map<std::string, double> sums;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].get<double>() > parts[best].get<double>()) best = i;
    const std::string kind = components[i].at("kind");
    sums[kind == "head" || kind == "mlp" || kind == "embedding" ? kind : "rest"] += parts[i].get<double>();
  }
  return {{"label", components[best].at("label")},
          {"kind", components[best].at("kind")},
          {"part", parts[best]},
          {"logit", picture->at("targets")[0].at("uncapped")},
          {"embedding", sums["embedding"]},
          {"heads", sums["head"]},
          {"mlps", sums["mlp"]}};
}

// From which depth on the last token's most likely next token is the final one: 0 is the embedding, n the last layer.
PictureJson settled_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "logit-lens");
  if (picture == nullptr) return nullptr;
  const PictureJson& ids = picture->at("ids").back();
  size_t depth = ids.size() - 1;
  while (depth > 0 && ids[depth - 1][0] == ids.back()[0]) --depth;
  return {{"depth", depth}, {"name", picture->at("depths")[depth]}, {"depths", ids.size() - 1}};
}

// The token that the answer owes most to, by integrated gradients or, without these, by gradient times embedding.
PictureJson owed_values(const Studio& studio, const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "input-attribution");
  if (picture == nullptr) return nullptr;
  const PictureJson& integrated = picture->at("integrated");
  const PictureJson& parts = integrated.is_null() ? picture->at("gradientInput") : integrated.at("parts");
  size_t most = 0;
  for (size_t t = 0; t < parts.size(); ++t)
    if (parts[t].is_number() && parts[t].get<double>() > (parts[most].is_number() ? parts[most].get<double>() : 0)) most = t;
  constexpr size_t kShown = 6;
  PictureJson pieces = PictureJson::array();
  const size_t n = studio.prompt.ids.size();
  for (size_t t = n > kShown ? n - kShown : 0; t < n; ++t) pieces.push_back(studio.piece(studio.prompt.ids[t]));
  const std::string piece = studio.piece(studio.prompt.ids[most]);
  if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.insert(pieces.begin(), piece);
  return {{"piece", piece}, {"part", parts[most]}, {"pieces", pieces}};
}

// How the scale of the stream ends with norms and without: the last finite number, or none.
PictureJson growth_values(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "residual-scale");
  if (picture == nullptr) return nullptr;
  const PictureJson &with = picture->at("withNorms"), &without = picture->at("withoutNorms");
  if (with.empty() || with.back().is_null() || without.empty()) return nullptr;
  PictureJson last = nullptr;
  for (const PictureJson& scale : without)
    if (!scale.is_null()) last = scale;
  if (last.is_null()) return nullptr;
  const bool finite = !without.back().is_null();
  const double share = last.get<double>() / with.back().get<double>();
  return {{"with", with.back()},
          {"without", last},
          {"finite", finite},
          {"what", !finite || share > 2 ? "larger"
                   : share < 0.5        ? "smaller"
                                        : "about the same"}};
}

// "The king sat on" and "The queen sat on": how probable " his" and " her" are after each. Nothing for a model that has no such
// tokens, or does not tell the two apart.
PictureJson thread_values(Studio& studio, const PictureJson& pictures) {
  if (!studio.spelled() || available(pictures, "next-tokens") == nullptr) return nullptr;
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  const ModelShape& shape = studio.facts.shape;
  constexpr std::pair<const char*, const char*> kPrompts[] = {{"king", "The king sat on"}, {"queen", "The queen sat on"}},
                                                kWords[] = {{"his", " his"}, {"her", " her"}};
  std::vector<std::vector<int32_t>> prompts;
  std::vector<int32_t> words;
  try {
    for (const auto& [_, word] : kWords) words.push_back(single_token(tokenizer, word));
  } catch (const InputError&) {
    return nullptr;
  }
  for (const auto& [_, prompt] : kPrompts) prompts.push_back(tokenizer.encode(prompt));
  const auto fits = [&](const std::vector<int32_t>& ids) {
    return !ids.empty() && (shape.context_length == 0 || std::ssize(ids) <= shape.context_length) &&
           std::all_of(ids.begin(), ids.end(), [&](int32_t id) { return id < shape.vocab_size; });
  };
  if (!fits(words) || !std::all_of(prompts.begin(), prompts.end(), fits)) return nullptr;
  const std::vector<Prediction> predicted = studio.engine.predict_batch(prompts, shape.vocab_size);
  PictureJson thread;
  for (size_t i = 0; i < predicted.size(); ++i)
    for (size_t k = 0; k < words.size(); ++k)
      for (const TokenLogprob& one : predicted[i].top)
        if (one.token == words[k]) thread[std::string(kWords[k].first) + "_" + kPrompts[i].first] = one.prob();
  const auto p = [&](const char* name) { return thread.at(name).get<double>(); };
  if (p("his_king") <= p("her_king") || p("her_queen") <= p("his_queen")) return nullptr;
  return thread;
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

PictureJson biases_are_parts(const PictureJson& pictures) {
  const PictureJson* picture = available(pictures, "logit-attribution");
  if (picture == nullptr) return nullptr;
  const PictureJson& parts = picture->at("components");
  return std::any_of(parts.begin(), parts.end(),
                     [](const PictureJson& part) { return part.at("kind").get<std::string>().ends_with("-bias"); });
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
  const PictureJson& norms = picture->at("norms");
  return {{"loss", studio.backward->loss},
          {"even", std::log(static_cast<double>(studio.facts.shape.vocab_size))},
          {"first", norms.empty() ? PictureJson(nullptr) : norms.front()},
          {"last", norms.empty() ? PictureJson(nullptr) : norms.back()},
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
  const std::string text = studio.prompt.text.value_or("");
  std::istringstream in(text);
  PictureJson next = nullptr;
  if (!studio.seen.next.empty()) {
    const TokenLogprob& best = studio.seen.next.back().front();
    PictureJson others = PictureJson::array();
    for (const TokenLogprob& one : studio.seen.next.back())
      if (others.size() < 4) others.push_back(studio.piece(one.token));
    std::sort(others.begin(), others.end());
    next = {{"piece", studio.piece(best.token)},
            {"probability", std::exp(static_cast<double>(best.logprob))},
            {"candidates", std::move(others)}};
  }
  PictureJson vocabulary = nullptr;
  if (const PictureJson* picture = available(pictures, "vocabulary-size"))
    vocabulary = {{"characters", picture->at("tokens").front()},
                  {"tokens", picture->at("tokens").back()},
                  {"bytes", picture->at("bytes")},
                  {"alphabet", picture->at("entries").front()}};
  PictureJson regions = nullptr;
  if (const PictureJson* picture = available(pictures, "mlp-regions")) regions = picture->at("rows")[1].at("regions");
  double active = 0;
  for (const double share : studio.seen.active) active += share / static_cast<double>(studio.seen.active.size());
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
          {"parallel", is_parallel(studio.engine.model(), 0)},
          {"norm_offset", facts.norm_offset},
          {"final_norm", facts.final_norm},
          {"residual_scale", facts.residual_scale},
          {"conv_layers", facts.conv_layers.empty() ? "" : facts.conv_layers_text()},
          {"recurrent", facts.recurrent},
          {"windowed_layers", std::count_if(windows.begin(), windows.end(), [](int64_t w) { return w != kNoWindow; })},
          {"window", of_one_size ? windows[0] : kNoWindow},
          {"chunked", facts.chunked},
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
          {"activation", activation_in_text(facts.activation)},
          {"gated", facts.gated},
          {"mlp_title", facts.mlp_title()},
          {"experts", expert_values(facts.experts)},
          {"dense_layers", facts.dense_layers},
          {"n_tokens", studio.tokens()},
          {"n_words", std::distance(std::istream_iterator<std::string>(in), {})},
          {"n_characters",
           std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; })},
          {"n_parameters", facts.parameter_count},
          {"spelled", studio.spelled()},
          {"bos", std::move(bos)},
          {"nearest", nearest_embeddings(pictures)},
          {"distant", distant_embeddings(pictures)},
          {"vocabulary", std::move(vocabulary)},
          {"likeness", likeness_of_positions(studio)},
          {"growth", growth_values(pictures)},
          {"looks", look_values(pictures)},
          {"active", active},
          {"regions", std::move(regions)},
          {"updates", update_values(pictures)},
          {"final_lengths", facts.final_norm ? final_lengths(studio) : PictureJson(nullptr)},
          {"next", std::move(next)},
          {"settled", settled_values(pictures)},
          {"writer", writer_values(pictures)},
          {"owed", owed_values(studio, pictures)},
          {"thread", thread_values(studio, pictures)},
          {"biases_are_parts", biases_are_parts(pictures)},
          {"input_attribution", input_attribution(studio, pictures)},
          {"gradients", gradient_values(studio, pictures)},
          {"merging", merging_values(pictures)},
          {"tasks", task_values(pictures)}};
}

}  // namespace vitrine
