#include "model/from_gguf.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "model/pairs.h"

namespace vitrine {
namespace {

// A number that was f32, as people write it: 1e-05 and not 9.999999747378752e-06.
double shortest(double x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(x)).ptr;
  double value = x;
  std::from_chars(text, end, value);
  return value;
}

std::optional<int64_t> token_of(const OpenedModel& gguf, const char* key) {
  if (!gguf.gguf->has(key)) return {};
  const int64_t id = gguf.gguf->integer(key);
  if (id < 0 || id >= gguf.model->shape().vocab_size) return {};
  return id;
}

bool has_tensor(Model& model, const std::string& huggingface) {
  const std::vector<FileTensor> all = file_tensors(model, false);
  return std::any_of(all.begin(), all.end(), [&](const FileTensor& tensor) { return tensor.name == huggingface; });
}

// GGUF holds the divisors that Llama 3.1's rule gives, and not the rule's numbers. Every published model stretches wavelengths
// beyond its original context by the factor, and leaves those below a quarter of it alone; so one divisor tells that context.
Json llama3_scaling(const RopeSpec& rope) {
  RopeSpec plain = rope;
  plain.divisors = nullptr;
  const std::vector<float> frequencies = rope_frequencies(plain);
  constexpr double kLow = 1, kHigh = 4;
  const double factor = static_cast<double>(*std::max_element(rope.divisors, rope.divisors + frequencies.size()));
  double context = 1;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / static_cast<double>(frequencies[i]);
    const auto divisor = static_cast<double>(rope.divisors[i]);
    if (divisor == 1) context = std::ceil(kHigh * wavelength);
    if (divisor == 1 || divisor >= factor) continue;
    const double smooth = (1 / divisor - 1 / factor) / (1 - 1 / factor);
    context = std::round(wavelength * (smooth * (kHigh - kLow) + kLow));
    break;
  }
  return {{"rope_type", "llama3"},
          {"factor", shortest(factor)},
          {"low_freq_factor", kLow},
          {"high_freq_factor", kHigh},
          {"original_max_position_embeddings", static_cast<int64_t>(context >= 1 ? std::min(context, 0x1p30) : 1.0)}};
}

Json rope_scaling(const RopeSpec& rope) {
  if (rope.divisors != nullptr) return llama3_scaling(rope);
  if (rope.scaling == RopeSpec::Scaling::linear) return {{"rope_type", "linear"}, {"factor", shortest(rope.factor)}};
  return nullptr;
}

Json gpt2_config(const ModelShape& shape, const BlockSpec& block) {
  return {{"model_type", "gpt2"},
          {"n_embd", shape.d_model},
          {"n_layer", shape.n_layers},
          {"n_head", shape.n_heads},
          {"n_inner", shape.d_ff},
          {"n_positions", shape.context_length},
          {"layer_norm_epsilon", shortest(block.norm.eps)},
          {"activation_function", "gelu_new"},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

Json rotary_config(Model& model, const ModelShape& shape, const BlockSpec& block) {
  Json config = {{"model_type", shape.family},
                 {"hidden_size", shape.d_model},
                 {"num_hidden_layers", shape.n_layers},
                 {"num_attention_heads", shape.n_heads},
                 {"num_key_value_heads", shape.n_kv_heads},
                 {"head_dim", shape.head_dim},
                 {"intermediate_size", shape.d_ff},
                 {"max_position_embeddings", shape.context_length},
                 {"rms_norm_eps", shortest(block.norm.eps)},
                 {"rope_theta", shortest(block.rope->theta)},
                 {"rope_scaling", rope_scaling(*block.rope)},
                 {"attention_dropout", 0.0}};
  const bool gemma = shape.family == "gemma" || shape.family == "gemma2";
  if (shape.family != "gemma2") config["hidden_act"] = gemma ? "gelu_pytorch_tanh" : "silu";
  if (gemma) config["hidden_activation"] = "gelu_pytorch_tanh";
  if (gemma) config["attention_bias"] = false;
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < shape.n_layers; ++layer) windows.push_back(model.block_spec(layer).attention.window);
  if (shape.family == "llama" && windows[0] != kNoWindow) {  // which Llama's configuration has no word for
    config["model_type"] = "mistral";
    config["sliding_window"] = windows[0];
  }
  if (shape.family == "llama") {
    config["attention_bias"] = has_tensor(model, "model.layers.0.self_attn.q_proj.bias");
    config["mlp_bias"] = has_tensor(model, "model.layers.0.mlp.up_proj.bias");
  }
  if (shape.family == "gemma2") {
    const auto cap = [](double softcap) { return softcap > 0 ? Json(shortest(softcap)) : Json(nullptr); };
    const double scalar = shortest(1 / (block.attention.scale * block.attention.scale));
    config["query_pre_attn_scalar"] =
        scalar == std::floor(scalar) && scalar < 0x1p53 ? Json(static_cast<int64_t>(scalar)) : Json(scalar);
    config["attn_logit_softcapping"] = cap(block.attention.softcap);
    config["final_logit_softcapping"] = cap(model.head().softcap);
    config["sliding_window"] = windows[0];
    for (const int64_t window : windows)
      config["layer_types"].push_back(window == kNoWindow ? "full_attention" : "sliding_attention");
  }
  return config;
}

// Errors: FileError naming what the directory's model would do otherwise.
void check_same(const Model& stored, const Model& model, const std::string& path) {
  const auto same = [&](const std::string& what, double a, double b) {
    if (std::abs(a - b) <= 1e-6 * std::abs(a)) return;
    throw FileError(path, "gives " + what + " as " + Json(a).dump() + ", and its family's config.json can only say " +
                              Json(b).dump() + "; such a model has no form as a Hugging Face directory. Run it as it is");
  };
  const ModelShape a = stored.shape(), b = model.shape();
  same("the scale of embeddings", a.embedding_scale, b.embedding_scale);
  same("the soft cap of logits", stored.head().softcap, model.head().softcap);
  for (int64_t layer = 0; layer < a.n_layers; ++layer) {
    const std::string in = " in layer " + std::to_string(layer);
    const BlockSpec x = stored.block_spec(layer), y = model.block_spec(layer);
    same("the scale of scores" + in, x.attention.scale, y.attention.scale);
    same("the soft cap of scores" + in, x.attention.softcap, y.attention.softcap);
    same("the window" + in, static_cast<double>(x.attention.window), static_cast<double>(y.attention.window));
    same("what norms add to the mean square" + in, x.norm.eps, y.norm.eps);
    if (!x.rope) continue;
    same("the turning components of a head" + in, static_cast<double>(x.rope->rotary_dim),
         static_cast<double>(y.rope->rotary_dim));
    const std::vector<float> turns = rope_frequencies(*x.rope), says = rope_frequencies(*y.rope);
    for (size_t i = 0; i < turns.size(); ++i)
      if (!(std::abs(turns[i] - says[i]) <= 1e-5f * std::abs(turns[i])))
        throw FileError(path,
                        "divides the frequencies of RoPE by rope_freqs.weight in a way that is not llama3's with low_freq_factor "
                        "1 and high_freq_factor 4 (frequency " +
                            std::to_string(i) + " is " + Json(turns[i]).dump() + ", the nearest such rule gives " +
                            Json(says[i]).dump() + "); such a model has no form as a Hugging Face directory. Run it as it is");
  }
}

// By the name in the Hugging Face file and the part of it.
class Finder final : public TensorTable {
 public:
  std::map<std::pair<std::string, int>, const Weight*> matrices;
  std::map<std::pair<std::string, int>, const Vector*> vectors;
  void matrix(Weight& weight, const TensorLine& line) override { matrices[{line.huggingface, line.part}] = &weight; }
  void vector(Vector& vector, const TensorLine& line) override { vectors[{line.huggingface, line.part}] = &vector; }
};

class Binder final : public TensorTable {
 public:
  /// head_dim: of a file whose neighbouring rows turn together; 0: of another. shift: what norms are to hold more than the file.
  Binder(const Finder& from, int64_t head_dim, double shift, std::vector<std::unique_ptr<float[]>>& copies)
      : from_(from), head_dim_(head_dim), shift_(static_cast<float>(shift)), copies_(copies) {}

  void matrix(Weight& weight, const TensorLine& line) override {
    const Weight& stored = *from_.matrices.at({line.huggingface, line.part});
    weight.name = line.huggingface;
    weight.data = stored.data;
    weight.dtype = stored.dtype;
    weight.out = stored.out;
    weight.in = stored.in;
    weight.stride = stored.stride;
    weight.by_columns = stored.by_columns;
    if (!turns(line)) return;
    const size_t row = row_bytes(stored.dtype, static_cast<size_t>(stored.in));
    auto* const copy = reinterpret_cast<std::byte*>(room((static_cast<size_t>(stored.out) * row + 3) / 4));
    const std::vector<int64_t> to = rows_of_pairs(stored.out, head_dim_);
    for (int64_t i = 0; i < stored.out; ++i)
      std::memcpy(copy + static_cast<size_t>(to[static_cast<size_t>(i)]) * row, stored.stored_row(i), row);
    weight.data = copy;
    weight.stride = row;
  }

  void vector(Vector& vector, const TensorLine& line) override {
    const Vector& stored = *from_.vectors.at({line.huggingface, line.part});
    vector.name = line.huggingface;
    vector.data = stored.data;
    vector.dtype = stored.dtype;
    vector.size = stored.size;
    const bool norm = line.ours.ends_with(".w");
    if (!turns(line) && !(norm && shift_ != 0)) return;
    float* const copy = room(static_cast<size_t>(stored.size));
    const std::vector<int64_t> to = turns(line) ? rows_of_pairs(stored.size, head_dim_) : std::vector<int64_t>();
    for (int64_t i = 0; i < stored.size; ++i)
      copy[to.empty() ? i : to[static_cast<size_t>(i)]] = stored.at<float>(i) + (norm ? shift_ : 0);
    vector.data = copy;
  }

 private:
  bool turns(const TensorLine& line) const {
    return head_dim_ != 0 && (line.ours.ends_with("attn.W_Q") || line.ours.ends_with("attn.W_K") ||
                              line.ours.ends_with("attn.b_Q") || line.ours.ends_with("attn.b_K"));
  }
  float* room(size_t numbers) {
    copies_.push_back(std::make_unique<float[]>(numbers));
    return copies_.back().get();
  }

  const Finder& from_;
  int64_t head_dim_;
  float shift_;
  std::vector<std::unique_ptr<float[]>>& copies_;
};

}  // namespace

Json huggingface_config(const OpenedModel& gguf) {
  Model& model = *gguf.model;
  const ModelShape shape = model.shape();
  const BlockSpec block = model.block_spec(0);
  Json config = block.rope ? rotary_config(model, shape, block) : gpt2_config(shape, block);
  config["vocab_size"] = shape.vocab_size;
  config["tie_word_embeddings"] = shape.tied;
  // Said even where there is none: other programs would put in their family's ids.
  const auto name = [&](const char* key, const char* stored) {
    const std::optional<int64_t> id = token_of(gguf, stored);
    config[key] = id ? Json(*id) : Json(nullptr);
  };
  name("bos_token_id", "tokenizer.ggml.bos_token_id");
  name("eos_token_id", "tokenizer.ggml.eos_token_id");
  name("pad_token_id", "tokenizer.ggml.padding_token_id");
  return config;
}

OpenedModel as_huggingface(OpenedModel gguf, Json config) {
  VITRINE_CHECK(gguf.files.kind == ModelFiles::Kind::gguf && gguf.adapter == nullptr, "a GGUF model without adapter");
  ModelFiles files = gguf.files;
  files.kind = ModelFiles::Kind::huggingface;
  files.config_path = files.weights;  // for messages
  files.directory.clear();            // what lies beside the file is not this model's
  files.config = std::move(config);
  std::unique_ptr<Model> model = model_from_config(files);
  check_same(*gguf.model, *model, files.weights);
  Finder finder;
  gguf.model->tensors(finder);
  const BlockSpec stored = gguf.model->block_spec(0);
  const bool pairs = stored.rope && stored.rope->layout == RopeLayout::pairs;
  Binder binder(finder, pairs ? gguf.model->shape().head_dim : 0, stored.norm.offset - model->block_spec(0).norm.offset,
                gguf.widened);
  model->tensors(binder);
  gguf.model = std::move(model);
  gguf.files = std::move(files);
  return gguf;
}

OpenedModel as_huggingface(OpenedModel opened) {
  if (opened.files.kind != ModelFiles::Kind::gguf) return opened;
  Json config = huggingface_config(opened);
  return as_huggingface(std::move(opened), std::move(config));
}

}  // namespace vitrine
