#include "picture/data/facts.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <set>

#include "model/registry.h"

namespace vitrine {
const Weight* NamedParameters::matrix(std::string_view name) const {
  const auto found = matrices.find(name);
  return found == matrices.end() ? nullptr : found->second;
}
const Vector* NamedParameters::vector(std::string_view name) const {
  const auto found = vectors.find(name);
  return found == vectors.end() ? nullptr : found->second;
}

NamedParameters parameters_of(const Model& model) {
  NamedParameters found;
  for (const TensorLine& line : model.tensors()) {
    if (line.weight != nullptr)
      found.matrices[line.ours] = line.weight;
    else
      found.vectors[line.ours] = line.vector;
  }
  return found;
}

int64_t cached_bytes(const Engine& engine, int64_t layers, int64_t kv_heads, int64_t head_dim) {
  const CacheLayer layer{.n_kv_heads = kv_heads, .head_dim = head_dim, .v_dim = head_dim, .types = engine.decoding_types()};
  return layers * static_cast<int64_t>(KvCache({layer}, 1, 1, false).bytes_per_position());
}

ModelFacts facts_of(const Model& model) {
  const LayerRecord& first = model.layer(0);
  const std::vector<std::string> hooks = model.hook_names();
  const auto has = [&](std::string_view name) { return std::find(hooks.begin(), hooks.end(), name) != hooks.end(); };
  const auto mlp_has = [&](int64_t layer, const char* hook) { return has("blocks." + std::to_string(layer) + ".mlp." + hook); };
  ModelFacts facts;
  facts.shape = model.shape();
  facts.parameters = parameters_of(model);
  facts.family_title = family_of(model).title;
  for (const CacheLayer& layer : model.cache_layers()) facts.windows.push_back(layer.window);
  for (int64_t layer = 0; layer < facts.shape.n_layers; ++layer)
    if (const LayerRecord& spec = model.layer(layer); !spec.has_attention()) {
      facts.conv_layers.push_back(layer);
      facts.recurrent = spec.delta.has_value();
    }
  while (facts.attention_layer + 1 < facts.shape.n_layers && !facts.attends(facts.attention_layer)) ++facts.attention_layer;
  const std::string attention = "blocks." + std::to_string(facts.attention_layer) + ".attn.";
  facts.norm_place = first.norms_after                           ? NormPlace::after
                     : !has("blocks.0.ln1_post.hook_normalized") ? NormPlace::before
                     : has("blocks.0.ln1.hook_normalized")       ? NormPlace::both
                                                                 : NormPlace::written;
  for (int64_t layer = 0; layer < facts.shape.n_layers; ++layer) {
    const std::optional<RopeSpec> rope = model.layer(layer).rope;
    facts.chunked = facts.chunked || model.layer(layer).attention.chunked;
    if (!rope && facts.attends(layer)) facts.still_layers.push_back(layer);
    if (rope && facts.rope && rope != facts.rope && !facts.other_rope) facts.other_rope = rope;
    if (rope && !facts.rope) facts.rope = rope;
  }
  if (!facts.rope) facts.still_layers.clear();
  const AddedPositions added = model.record().positions;
  facts.positions = facts.rope                         ? Positions::rotary
                    : added == AddedPositions::none    ? Positions::none
                    : added == AddedPositions::learned ? Positions::learned
                                                       : Positions::sinusoidal;
  if (first.attention.alibi) facts.positions = Positions::alibi;
  facts.halved_sinusoids = added == AddedPositions::sinusoids_in_halves;
  facts.rms = first.rms;
  facts.norm_offset = first.rms ? first.norm.offset : 0;
  facts.final_norm = has("ln_final.hook_normalized");
  const HookShape* const normed_queries = model.record().hook(attention + "q_norm.hook_normalized");
  facts.head_norms = normed_queries != nullptr;
  facts.joint_head_norms = facts.head_norms && normed_queries->sizes.size() == 2;  // [rows, n_heads * head_dim]
  for (int64_t layer = 0; layer < facts.shape.n_layers; ++layer) {
    const LayerRecord& spec = model.layer(layer);
    const std::optional<ExpertSpec> experts = spec.experts_beside ? std::nullopt : spec.experts;
    if (!experts && mlp_has(layer, "hook_post")) facts.dense_layers.push_back(layer);
    if (!experts || facts.experts) continue;
    facts.experts = experts;
    facts.mlp_layer = layer;
  }
  if (!facts.experts) {
    if (!facts.dense_layers.empty()) facts.mlp_layer = facts.dense_layers.front();
    facts.dense_layers.clear();
  }
  facts.activation = model.layer(facts.mlp_layer).activation;
  facts.gated = mlp_has(facts.mlp_layer, "hook_pre_linear");
  const AttentionSpec attention_spec = model.layer(facts.attention_layer).attention;
  facts.sinks = attention_spec.sinks != nullptr;
  facts.attention_softcap = attention_spec.softcap;
  facts.final_softcap = model.head().softcap;
  facts.logit_scale = model.head().scale;
  facts.residual_scale = first.residual_scale;
  facts.parameter_count = parameter_count(model);
  std::set<std::string> dtypes;
  for (const auto& [name, weight] : facts.parameters.matrices)
    if (*weight) dtypes.insert(std::string(name_of(weight->dtype)));
  facts.dtypes.assign(dtypes.begin(), dtypes.end());
  return facts;
}

bool ModelFacts::attends(int64_t layer) const {
  return std::find(conv_layers.begin(), conv_layers.end(), layer) == conv_layers.end();
}

std::string ModelFacts::conv_layers_text() const {
  std::string text = conv_layers.size() == 1 ? "layer " : "layers ";
  for (size_t i = 0; i < conv_layers.size(); ++i)
    text += (i == 0 ? "" : i + 1 == conv_layers.size() ? " and " : ", ") + std::to_string(conv_layers[i]);
  return text;
}

std::string ModelFacts::heads_title() const {
  if (shape.n_kv_heads == shape.n_heads) return "MHA";
  return shape.n_kv_heads == 1 ? "MQA" : "GQA";
}

std::string mlp_title(Activation f, bool gated) {
  switch (f) {
    case Activation::relu: return gated ? "ReGLU" : "ReLU";
    case Activation::gelu_tanh:
    case Activation::gelu_exact: return gated ? "GeGLU" : "GELU";
    case Activation::silu: return gated ? "SwiGLU" : "SiLU";
    case Activation::relu_squared: return gated ? "ReGLU, squared" : "squared ReLU";
    case Activation::quick_gelu: return gated ? "GeGLU" : "GELU";
    case Activation::tanh: return gated ? "GLU of tanh" : "tanh";
    case Activation::sigmoid: return gated ? "GLU" : "sigmoid";
    case Activation::none: break;
  }
  return gated ? "bilinear" : "linear";
}

bool ModelFacts::has_bias(std::string_view matrix) const {
  const int64_t layer = matrix.starts_with("attn.") ? attention_layer : mlp_layer;
  const std::string block = "blocks." + std::to_string(layer) + ".";
  const Weight* weight = parameters.matrix(block + std::string(matrix));
  if (weight == nullptr && (matrix == "attn.W_Q" || matrix == "attn.W_K" || matrix == "attn.W_V"))
    weight = parameters.matrix(block + "attn.W_QKV");
  return weight != nullptr && static_cast<bool>(weight->bias);
}

std::string ModelFacts::mlp_title() const { return vitrine::mlp_title(activation, gated); }

std::string activation_name(Activation f) {
  switch (f) {
    case Activation::relu: return "relu";
    case Activation::gelu_tanh: return "gelu_tanh";
    case Activation::gelu_exact: return "gelu_exact";
    case Activation::silu: return "silu";
    case Activation::sigmoid: return "sigmoid";
    case Activation::relu_squared: return "relu2";
    case Activation::quick_gelu: return "quick_gelu";
    case Activation::tanh: return "tanh";
    case Activation::none: break;
  }
  return "none";
}

double activation_value(Activation f, double x) {
  switch (f) {
    case Activation::relu: return std::max(0.0, x);
    case Activation::gelu_tanh:  // arXiv:1606.08415 section 2
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_exact: return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::sigmoid: return 1 / (1 + std::exp(-x));
    case Activation::relu_squared: return std::max(0.0, x) * std::max(0.0, x);
    case Activation::quick_gelu: return x / (1 + std::exp(-1.702 * x));
    case Activation::tanh: return std::tanh(x);
    case Activation::none: break;
  }
  return x;
}

PictureJson to_json(const ModelFacts& f, const std::string& name, const std::string& adapter) {
  const ModelShape& s = f.shape;
  static constexpr const char* kPlaces[] = {"before", "after", "both", "written"};
  static constexpr const char* kPositions[] = {"rotary", "learned", "sinusoidal", "none", "alibi"};
  return {{"name", name},
          {"adapter", adapter},
          {"family", s.family},
          {"familyTitle", f.family_title},
          {"dModel", s.d_model},
          {"nLayers", s.n_layers},
          {"nHeads", s.n_heads},
          {"nKvHeads", s.n_kv_heads},
          {"headDim", s.head_dim},
          {"dFf", s.d_ff},
          {"vocabSize", s.vocab_size},
          {"contextLength", s.context_length},
          {"tied", s.tied},
          {"parameters", f.parameter_count},
          {"embeddingParameters", s.vocab_size * s.d_model},
          {"norm", f.rms ? "rms_norm" : "layer_norm"},
          {"normPlace", kPlaces[static_cast<size_t>(f.norm_place)]},
          {"positions", kPositions[static_cast<size_t>(f.positions)]},
          {"heads", f.heads_title()},
          {"mlp", f.gated ? "gated" : "plain"},
          {"activation", activation_name(f.activation)},
          {"mlpTitle", f.mlp_title()},
          {"embeddingScale", f.shape.embedding_scale == 1 ? PictureJson(nullptr) : number(f.shape.embedding_scale)},
          {"attentionSoftcap", number(f.attention_softcap)},
          {"finalSoftcap", number(f.final_softcap)},
          {"windows", f.windows},
          {"dtypes", f.dtypes}};
}

}  // namespace vitrine
