#include "model/load.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/error.h"
#include "kernels/table.h"
#include "model/layer_name.h"
#include "model/packed_weights.h"
#include "model/rearranged.h"
#include "model/registry.h"
#include "model/reward_model.h"
#include "model/unknown_keys.h"

namespace vitrine {
namespace {

// What a file of a multimodal model puts before the names of its language model, "model." in them left out where it has its own
// place; empty: it is none.
std::string_view language_prefix(const Checkpoint& checkpoint) {
  for (const std::string_view prefix : {"model.language_model.", "language_model."})
    for (const auto& [name, tensor] : checkpoint.tensors())
      if (std::string_view(name).starts_with(prefix)) return prefix;
  return {};
}

class Loader {
 public:
  /// left_out: tensors that the family has and this model does without.
  Loader(OpenedModel& opened, const Family& family, std::set<std::string, std::less<>> left_out)
      : opened_(opened),
        family_(family),
        gguf_(opened.gguf != nullptr),
        language_(gguf_ ? std::string_view() : language_prefix(opened.checkpoint)),
        left_out_(std::move(left_out)),
        has_further_layers_(has_further_layers(opened, family)) {}

  void load(const TensorLine& line) {
    if (line.ours == "W_U" && lacks(line)) return matrix(*line.weight, line, *embedding_, true);
    if (opened_.files.fresh_score && line.huggingface == RewardModel::kScore) return zeros(*line.weight, line);
    line.weight != nullptr ? matrix(*line.weight, line) : vector(*line.vector, line);
  }

 private:
  void matrix(Weight& weight, const TensorLine& line) {
    line.layout.split ? join(weight, line) : matrix(weight, line, find(line), false);
  }

  // absent: the file holds no such tensor, and t, of the same shape, lies in its place; no product reads it.
  void matrix(Weight& weight, const TensorLine& line, const StoredTensor& t, bool absent) {
    if (line.ours == "W_E") embedding_ = &t;
    check_type(t);
    weight.name = absent ? line.file_name(gguf_) : t.name;
    weight.absent = absent;
    weight.dtype = t.dtype;
    weight.out = line.out.size;
    weight.in = line.in.size;
    weight.by_columns = line.stored_by_columns(gguf_);
    weight.stride = row_bytes(t.dtype, static_cast<size_t>(t.shape.back()));
    const size_t before = static_cast<size_t>(line.first_row(gguf_)) * weight.stride +
                          row_bytes(t.dtype, static_cast<size_t>(line.first_column(gguf_)));
    weight.data = t.data == nullptr ? nullptr : t.data + before;  // of a file whose headers alone were read there is none
  }

  static void check_type(const StoredTensor& t) {
    if (static_cast<int>(t.dtype) >= kWeightTypes)
      throw FileError(*t.file, "tensor \"" + t.name + "\" (header byte " + std::to_string(t.described_at) +
                                   ") has element type " + std::string(name_of(t.dtype)) + "; expected one of " + weight_types());
  }

  // Whether the files are those of the bare model, and hold no matrix for its output. Errors: FileError where one is needed.
  bool lacks(const TensorLine& head) const {
    if (gguf_ || !bare_ || stored(head.file_name(false)) != nullptr) return false;
    if (opened_.files.may_lack_head) return true;
    throw FileError(opened_.checkpoint.path(),
                    "holds the model without its output matrix (" + head.file_name(false) +
                        "), as files of embedding models do. `vitrine serve` (/v1/embeddings), `trace` and `collect` run it; "
                        "everything else needs the matrix: take the files of the whole model");
  }

  // What the files do not hold yet.
  void zeros(Weight& weight, const TensorLine& line) {
    opened_.widened.push_back(std::make_unique<float[]>(static_cast<size_t>(line.out.size * line.in.size)));
    weight.name = line.huggingface;
    weight.dtype = DType::f32;
    weight.data = reinterpret_cast<const std::byte*>(opened_.widened.back().get());
    weight.out = line.out.size;
    weight.in = line.in.size;
    weight.stride = static_cast<size_t>(line.in.size) * sizeof(float);
  }

  // A copy in f32 of what the file holds as two tensors.
  void join(Weight& weight, const TensorLine& line) {
    const auto& [heads, keys, values] = line.layout.split;
    const auto part = [&](const char* name, Dim out, Dim in) -> const StoredTensor& {
      TensorLine one = line;
      one.gguf = line.gguf.substr(0, line.gguf.rfind("attn_")) + name;
      one.out = out;
      one.in = in;
      one.layout = {.experts = static_cast<int>(heads)};
      const StoredTensor& t = find(one);
      check_type(t);
      return t;
    };
    const StoredTensor& k = part("attn_k_b.weight", line.in, {"qk_nope_head_dim", keys});
    const StoredTensor& v = part("attn_v_b.weight", {"v_head_dim", values}, line.in);
    weight.name = line.gguf;
    weight.dtype = DType::f32;
    weight.stride = static_cast<size_t>(line.in.size) * sizeof(float);
    if (k.data == nullptr || v.data == nullptr) return;
    const int64_t n = line.in.size, each = keys + values;
    opened_.widened.push_back(std::make_unique<float[]>(static_cast<size_t>(line.out.size * n)));
    float* const joined = opened_.widened.back().get();
    const auto read = [](const StoredTensor& t, int64_t row, int64_t width, float* to) {
      kernels().widen[static_cast<size_t>(t.dtype)](
          t.data + static_cast<size_t>(row) * row_bytes(t.dtype, static_cast<size_t>(width)), static_cast<size_t>(width), to);
    };
    std::vector<float> column(static_cast<size_t>(keys));
    for (int64_t h = 0; h < heads; ++h) {
      float* const head = joined + h * each * n;
      for (int64_t i = 0; i < n; ++i) {
        read(k, h * n + i, keys, column.data());
        for (int64_t j = 0; j < keys; ++j) head[j * n + i] = column[static_cast<size_t>(j)];
      }
      for (int64_t j = 0; j < values; ++j) read(v, h * values + j, n, head + (keys + j) * n);
    }
    weight.data = reinterpret_cast<const std::byte*>(joined);
  }

  // Of a norm without scale and shift: 1 and 0, whatever the file of the model that learning started from holds.
  void identity(Vector& vector, const TensorLine& line) {
    const bool bias = line.ours.ends_with(".b");
    opened_.widened.push_back(std::make_unique<float[]>(static_cast<size_t>(line.out.size)));
    float* values = opened_.widened.back().get();
    const auto one = static_cast<float>(1 - opened_.model->layer(0).norm.offset);
    std::fill_n(values, line.out.size, bias ? 0.0f : one);
    vector.data = values;
  }

  void vector(Vector& vector, const TensorLine& line) {
    const StoredTensor& t = find(line);
    vector.name = t.name;
    vector.size = line.out.size;
    vector.dtype = DType::f32;
    if (line.layout.constant && !opened_.model->form().affine) return identity(vector, line);
    const int64_t first = line.first_row(gguf_);
    if (t.dtype == DType::f32) {
      vector.data = reinterpret_cast<const float*>(t.data) + first;
      return;
    }
    if (t.dtype != DType::f16 && t.dtype != DType::bf16)
      throw FileError(
          *t.file, "tensor \"" + t.name + "\" has element type " + std::string(name_of(t.dtype)) + "; expected f32, f16 or bf16");
    opened_.widened.push_back(std::make_unique<float[]>(static_cast<size_t>(vector.size)));
    float* wide = opened_.widened.back().get();
    for (int64_t i = 0; i < vector.size; ++i) wide[i] = element_at(t.dtype, t.data, static_cast<size_t>(first + i));
    vector.data = wide;
  }

 public:
  /// A tied model's file may hold its head once more. Errors: FileError if that is another matrix than the embedding.
  void check_tied_head() const {
    const StoredTensor* head = gguf_ || !opened_.model->shape().tied ? nullptr : stored(family_.head);
    if (head == nullptr || head->data == nullptr ||
        (head->dtype == embedding_->dtype && head->shape == embedding_->shape &&
         std::memcmp(head->data, embedding_->data, head->bytes) == 0))
      return;
    throw FileError(*head->file, "tensor \"" + head->name + "\" (header byte " + std::to_string(head->described_at) +
                                     ") differs from \"" + embedding_->name +
                                     "\", although tie_word_embeddings is true (in config.json or by default).\n  Set it to "
                                     "false if the model has a head of its own, or remove the tensor");
  }

  /// Errors: FileError naming tensors of the file that the family does not know: they would be silently lost.
  void refuse_unknown() const {
    std::string unknown;
    int count = 0;
    const auto look = [&](const auto& tensors) {
      for (const auto& [name, tensor] : tensors) {
        if (used_.count(name) != 0 || is_left_out(name) || is_beside(name) || may_be_ignored(name)) continue;
        if (++count <= 3) unknown += (count > 1 ? ", " : "") + ("\"" + name + "\"");
      }
    };
    look(opened_.checkpoint.tensors());
    look(opened_.checkpoint.unreadable());
    if (count > 0)
      throw FileError(opened_.checkpoint.path(), "holds " + std::to_string(count) + " tensor(s) that the family " + family_.name +
                                                     " does not have: " + unknown + (count > 3 ? ", …" : "") + ". " + advice());
  }

 private:
  std::string advice() const {
    return gguf_ ? "Do metadata and weights come from the same model? Convert it again"
                 : "Do config.json and the weights come from the same model?";
  }

  // The name that a multimodal model's file has for it: model.language_model.X for model.X, or language_model.X for any X.
  std::string in_file(const std::string& name) const {
    constexpr std::string_view kOwn = "model.";
    if (!language_.starts_with(kOwn)) return std::string(language_) + name;
    return name.starts_with(kOwn) ? std::string(language_) + name.substr(kOwn.size()) : name;
  }
  // Some files have the head beside the language model.
  const StoredTensor* stored(const std::string& name) const {
    const StoredTensor* const inside = opened_.checkpoint.find(in_file(name));
    return inside != nullptr ? inside : opened_.checkpoint.find(name);
  }
  bool is_left_out(const std::string& name) const {
    return std::any_of(left_out_.begin(), left_out_.end(), [&](const std::string& left) { return in_file(left) == name; });
  }
  // Of a multimodal model: what is no part of its language model.
  bool is_beside(const std::string& name) const {
    return !language_.empty() && !name.starts_with(language_) && !name.ends_with(family_.head);
  }

  const StoredTensor& find(const TensorLine& line) {
    const std::string& wanted = line.file_name(gguf_);
    const StoredTensor* t = stored(wanted);
    std::string tried = "\"" + in_file(wanted) + "\"";
    for (const std::string_view prefix : family_.optional_prefixes) {  // files of the bare model lack it
      if (t != nullptr || gguf_ || !wanted.starts_with(prefix)) continue;
      t = opened_.checkpoint.find(wanted.substr(prefix.size()));
      bare_ = bare_ || t != nullptr;
      tried += " or \"" + wanted.substr(prefix.size()) + "\"";
    }
    // Of two names for one matrix, safetensors' save_model() keeps one.
    if (t == nullptr && line.ours == "W_E" && !gguf_ && opened_.model->shape().tied) t = stored(family_.head);
    if (t == nullptr && line.ours == "W_U" && opened_.files.untied) t = embedding_;
    const std::vector<int64_t> expected = line.file_shape(gguf_);
    const std::string should =
        shape_text(expected) + " = " + line.file_formula(gguf_) + " from " + (gguf_ ? "the file's metadata" : "config.json");
    if (t == nullptr)
      throw FileError(opened_.checkpoint.path(),
                      "lacks the tensor " + tried + " (" + line.ours + "), expected " + should + ". " + advice());
    if (t->shape != expected)
      throw FileError(*t->file, "tensor \"" + t->name + "\" is " + shape_text(t->shape) + " (header byte " +
                                    std::to_string(t->described_at) + "); expected " + should + ".\n  " + advice());
    used_.insert(t->name);
    return *t;
  }

  static bool has_further_layers(const OpenedModel& opened, const Family& family) {
    if (opened.gguf == nullptr) return count_further_layers(ConfigReader(opened.files.config, opened.files.config_path)) > 0;
    return opened.gguf->has(std::string(family.gguf) + "." + kFurtherLayersInGguf);
  }

  // Of layers that predict the tokens after the next one.
  bool of_a_further_layer(const std::string& name) const {
    const std::string_view layers = gguf_ ? "blk." : "model.layers.";
    return has_further_layers_ && name.starts_with(layers) &&
           std::atoll(name.c_str() + layers.size()) >= opened_.model->shape().n_layers;
  }

  bool may_be_ignored(const std::string& name) const {
    if (of_a_further_layer(name)) return true;
    if (std::any_of(family_.ignored_prefixes.begin(), family_.ignored_prefixes.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); }))
      return true;
    return std::any_of(family_.ignored_suffixes.begin(), family_.ignored_suffixes.end(),
                       [&](std::string_view suffix) { return name.ends_with(suffix); });
  }

  OpenedModel& opened_;
  const Family& family_;
  bool gguf_;
  std::string_view language_;  // language_prefix() of the file
  std::set<std::string, std::less<>> left_out_;
  bool has_further_layers_;  // beyond those of the model
  const StoredTensor* embedding_ = nullptr;
  bool bare_ = false;  // names lack the prefix of the whole model's
  std::set<std::string, std::less<>> used_;
};

// The number of parameters, or nothing if their bytes cannot be counted.
std::optional<int64_t> count_parameters(const Model& model) {
  int64_t count = 0;
  for (const TensorLine& line : model.tensors()) {
    if (line.layout.constant || (line.weight != nullptr && line.weight->absent)) continue;
    int64_t size = 0;
    if (__builtin_mul_overflow(line.out.size, std::max<int64_t>(line.in.size, 1), &size) ||
        __builtin_add_overflow(count, size, &count) || count > INT64_MAX / 16)
      return {};
  }
  return count;
}

// A tensor of GGUF that divides RoPE's frequencies, one for each pair of a head's components; null: the file has none.
const float* rope_tensor(const Checkpoint& checkpoint, const ConfigReader& keys, const std::string& name) {
  const StoredTensor* divisors = checkpoint.find(name);
  if (divisors == nullptr) return nullptr;
  const auto head_dim = keys.find_positive("attention.key_length");
  const int64_t rotating =
      keys.find_positive("rope.dimension_count")
          .value_or(head_dim ? *head_dim : keys.positive("embedding_length") / keys.positive("attention.head_count"));
  if (divisors->dtype != DType::f32 || divisors->shape != std::vector<int64_t>{rotating / 2})
    throw FileError(*divisors->file, "tensor \"" + name + "\" is " + shape_text(divisors->shape) + " of " +
                                         std::string(name_of(divisors->dtype)) + "; expected [" + std::to_string(rotating / 2) +
                                         "] of f32, one for each pair of a head's components");
  const auto* const numbers = reinterpret_cast<const float*>(divisors->data);
  for (int64_t i = 0; i < rotating / 2; ++i)
    if (const float divisor = numbers[i]; !(divisor > 0) || !std::isfinite(divisor))
      throw FileError(*divisors->file, "tensor \"" + name + "\" holds " + std::to_string(divisor) + " at " + std::to_string(i) +
                                           "; expected a finite number above 0. Is the file damaged?");
  return numbers;
}

// A size that may be listed for each layer: one number where all are the same.
Json size_of_layers(const std::string& key, const Json& value) {
  if (key != "attention.head_count" && key != "attention.head_count_kv" && key != "feed_forward_length") return value;
  const bool same = value.is_array() && !value.empty() &&
                    std::all_of(value.begin(), value.end(), [&](const Json& one) { return one == value.front(); });
  return same ? value.front() : value;
}

// Whether a layer has a matrix of keys and none of values.
bool has_keys_as_values(const Checkpoint& checkpoint) {
  constexpr std::string_view kKeys = "attn_k.weight", kValues = "attn_v.weight";
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) {
    const std::string_view name = t.first;
    return name.ends_with(kKeys) &&
           checkpoint.find(std::string(name.substr(0, name.size() - kKeys.size())) + std::string(kValues)) == nullptr;
  });
}

constexpr const char* kWindowKey = "attention.sliding_window";

// GGUF metadata as a configuration: "llama.block_count" becomes "block_count"; the rest of the file's keys are not the
// family's business. The vocabulary's size is the embedding's.
ModelConfig gguf_config(const GgufMetadata& metadata, const Checkpoint& checkpoint, const ModelFiles& files) {
  const std::string architecture(metadata.string("general.architecture"));
  const Json flat = metadata.config();
  Json config = Json::object();
  for (const auto& [key, value] : flat.items())
    if (key.starts_with(architecture + ".")) {
      const std::string name = key.substr(architecture.size() + 1);
      config[name] = size_of_layers(name, value);
    }
  config["model_type"] = architecture;
  if (const StoredTensor* embedding = checkpoint.find("token_embd.weight"); embedding != nullptr && embedding->shape.size() == 2)
    config["vocab_size"] = embedding->shape[0];
  config["attention_bias"] = checkpoint.find("blk.0.attn_q.bias") != nullptr;
  config["head_bias"] = checkpoint.find("output.bias") != nullptr;
  config["mlp_bias"] = std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                                   [](const auto& t) { return t.first.ends_with(".ffn_up.bias"); });
  config["joined_projections"] = std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                                             [](const auto& t) { return t.first.ends_with(".ssm_in.weight"); });
  config["use_qk_norm"] = checkpoint.find("blk.0.attn_q_norm.weight") != nullptr;
  config["use_ssm_norm"] = checkpoint.find("blk.0.ssm_norm.weight") != nullptr;
  config["num_ln_in_parallel_attn"] = checkpoint.find("blk.0.attn_norm_2.weight") != nullptr ? 2 : 1;
  config["tie_word_embeddings"] = checkpoint.find("output.weight") == nullptr && !files.untied;
  config["attention_k_eq_v"] = has_keys_as_values(checkpoint);
  if (const Json& named = config.value(kWindowKey, Json()); files.window > 0 && named.is_number() && named != 0)
    throw FileError(metadata.path(), "names a window of its own, " + named.dump() + " positions; leave --window out");
  if (files.window > 0) config[kWindowKey] = files.window;
  ModelConfig result{.keys = ConfigReader(config, metadata.path()), .gguf = true};
  result.rope_divisors = rope_tensor(checkpoint, result.keys, "rope_freqs.weight");
  result.rope_short = rope_tensor(checkpoint, result.keys, "rope_factors_short.weight");
  result.rope_long = rope_tensor(checkpoint, result.keys, "rope_factors_long.weight");
  return result;
}

ModelConfig huggingface_config(const ModelFiles& files) {
  return {
      .keys = ConfigReader(files.config, files.config_path), .stacked_experts = files.stacked_experts, .rewards = files.rewards};
}

// A model without weights yet.
struct Made {
  std::unique_ptr<Model> model;
  const Family* family = nullptr;
  // Tensors of the family that this model does without. Its file may hold them all the same: that of the model which learning
  // started from.
  std::set<std::string, std::less<>> left_out;
};

// Layers that read another's keys and values need no matrices for their own, which published files hold all the same.
void leave_out_unread_keys(const Model& model, bool gguf, std::set<std::string, std::less<>>& left_out) {
  const auto count = [&](std::string_view name) {
    return std::count_if(model.tensors().begin(), model.tensors().end(),
                         [&](const TensorLine& line) { return split_layer(line.ours).second == name; });
  };
  if (count("attn.W_Q") == count("attn.W_K")) return;  // every layer that attends has its own
  const ModelRecord record(model);
  for (const TensorLine& line : model.tensors()) {
    const auto [giver, name] = split_layer(line.ours);
    if (giver < 0 || (name != "attn.W_K" && name != "attn.W_V" && name != "attn.k_norm.w")) continue;
    for (int64_t layer = giver + 1; layer < model.shape().n_layers; ++layer) {
      if (record.layers[static_cast<size_t>(layer)].keys_of != giver) continue;
      std::string theirs = line.file_name(gguf);
      const std::string at = "." + std::to_string(giver) + ".";
      left_out.insert(theirs.replace(theirs.find(at), at.size(), "." + std::to_string(layer) + "."));
    }
  }
}

// Errors: FileError if a GGUF file says that experts are scored in another way than by its family.
void check_gating(const ConfigReader& gguf, const Model& model) {
  for (int64_t layer = 0; gguf.has(kGatingInGguf) && layer < model.shape().n_layers; ++layer) {
    const std::optional<ExpertSpec>& experts = model.layer(layer).experts;
    if (experts && gguf.count(kGatingInGguf) != gguf_gating(*experts))
      gguf.fail(kGatingInGguf, "is not how models of this family score experts; expected " +
                                   std::to_string(gguf_gating(*experts)) +
                                   " (1: a softmax, 2: sigmoids, 3: a softmax over the chosen). Convert the model again");
  }
}

// All but the check that each key is known.
Made read(const ModelConfig& config) {
  const Family& family = find_family(config.keys, config.gguf, config.rewards);
  Made made{family.make(config), &family, {}};
  if (!count_parameters(*made.model))
    throw FileError(config.keys.path(), "asks for more parameters than can be counted; its sizes cannot be right");
  leave_out_unread_keys(*made.model, config.gguf, made.left_out);
  if (!config.gguf && family.norm_order_key == nullptr) {
    if (const Form form = read_form(config.keys); !form.is_own()) {
      if (!family.has_forms)
        throw FileError(config.keys.path(),
                        "moves or leaves out parts (vitrine_norms, vitrine_residual, vitrine_mlp, "
                        "vitrine_affine, vitrine_positions, vitrine_causal, vitrine_rotary_value), which the "
                        "family " +
                            std::string(family.name) + " has no other form for; leave these keys out");
      check_form(*made.model, form, config.keys);
      for (const TensorLine& line : made.model->tensors()) made.left_out.insert(line.huggingface);
      made.model = std::make_unique<Rearranged>(std::move(made.model), form);
    }
  }
  if (config.rewards) {
    for (const TensorLine& line : made.model->tensors()) made.left_out.insert(line.huggingface);
    made.left_out.insert(family.head);
    made.model = std::make_unique<RewardModel>(std::move(made.model));
  }
  if (!config.gguf) ignore_common_keys(config.keys);
  if (config.gguf) ignore_gguf_keys(config.keys);
  if (config.gguf) check_gating(config.keys, *made.model);
  return made;
}

Made make(const ModelConfig& config) {
  Made made = read(config);
  config.keys.refuse_unread(made.family->name);
  return made;
}

}  // namespace

bool holds_stacked_experts(const Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const auto& t) {
    return t.first.ends_with(".mlp.experts.down_proj") || t.first.ends_with(".feed_forward.experts.down_proj") ||
           t.first.ends_with(".mixer.experts.down_proj");
  });
}

namespace {

bool has_window(const Model& model, int64_t window) {
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer)
    if (model.layer(layer).attention.window == window) return true;
  return false;
}

// read_packed: whether packed weights are unpacked.
OpenedModel open(ModelFiles files, bool read_packed) {
  OpenedModel opened;
  opened.files = std::move(files);
  Made made;
  if (opened.files.rewards && opened.files.kind == ModelFiles::Kind::gguf)
    throw FileError(opened.files.weights,
                    "is a GGUF file, and a reward model is a directory of transformers. Convert it first "
                    "(vitrine convert)");
  if (opened.files.kind == ModelFiles::Kind::gguf) {
    Gguf gguf = open_gguf(opened.files.weights);
    opened.gguf = std::make_unique<GgufMetadata>(std::move(gguf.metadata));
    opened.checkpoint = std::move(gguf.checkpoint);
    const int64_t window = opened.files.window;
    made = make(gguf_config(*opened.gguf, opened.checkpoint, opened.files));
    if (window > 0 && !has_window(*made.model, window))
      throw FileError(opened.gguf->path(), std::string("is a ") + made.family->title +
                                               ", whose layers read no window from a GGUF file; leave --window out");
  } else {
    if (opened.files.window > 0)
      throw FileError(opened.files.config_path, "says itself which layers have a window; --window is for GGUF files without one");
    made = make(huggingface_config(opened.files));
    opened.checkpoint = open_weights(opened.files);
    unpack_weights(opened.checkpoint, ConfigReader(opened.files.config, opened.files.config_path), read_packed);
    if (holds_stacked_experts(opened.checkpoint)) {
      opened.files.stacked_experts = true;
      made = make(huggingface_config(opened.files));
    }
  }
  opened.model = std::move(made.model);
  Loader loader(opened, *made.family, std::move(made.left_out));
  for (const TensorLine& line : opened.model->tensors()) loader.load(line);
  loader.check_tied_head();
  loader.refuse_unknown();
  return opened;
}

}  // namespace

OpenedModel open_model(std::string_view name) { return open_model(resolve_model(name)); }
OpenedModel open_model(ModelFiles files) { return open(std::move(files), true); }
OpenedModel open_headers(ModelFiles files) { return open(std::move(files), false); }

std::unique_ptr<Model> model_from_config(const ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::gguf) {
    const Gguf gguf = open_gguf(files.weights);
    return make(gguf_config(gguf.metadata, gguf.checkpoint, files)).model;
  }
  return make(huggingface_config(files)).model;
}

std::vector<std::string> drop_unknown_keys(ModelFiles& files) {
  if (files.kind == ModelFiles::Kind::gguf) return {};
  const ModelConfig config = huggingface_config(files);
  read(config);
  std::vector<std::string> names = config.keys.unread();
  for (const std::string& name : names) {
    Json* object = &files.config;
    std::string_view key = name;
    for (size_t dot = key.find('.'); !object->contains(key) && dot != std::string_view::npos; dot = key.find('.')) {
      object = &object->at(std::string(key.substr(0, dot)));
      key.remove_prefix(dot + 1);
    }
    object->erase(std::string(key));
  }
  return names;
}

std::unique_ptr<Model> model_from_gguf_keys(const std::string& architecture, Json keys, const GgufRopeTensors& rope,
                                            const std::string& path) {
  keys["model_type"] = architecture;
  const auto held = [](const std::vector<float>& values) { return values.empty() ? nullptr : values.data(); };
  return make({.keys = ConfigReader(keys, path),
               .gguf = true,
               .rope_divisors = held(rope.frequencies),
               .rope_short = held(rope.short_factors),
               .rope_long = held(rope.long_factors)})
      .model;
}

int64_t parameter_count(const Model& model) { return count_parameters(model).value(); }

int64_t FileTensor::rows() const {
  int64_t n = 1;
  for (size_t i = 0; i + 1 < std::max<size_t>(shape.size(), 2); ++i) n *= shape[i];
  return n;
}

std::vector<FileTensor> file_tensors(const Model& model, bool gguf) {
  std::vector<FileTensor> list;
  const auto name_of_turn = [&](const TensorLine& line, int64_t turn) { return turn > 0 ? line.gguf_odd : line.file_name(gguf); };
  for (const TensorLine& line : model.tensors())
    for (int64_t turn = 0, turns = line.turns(gguf); line.is_first(gguf) && turn < turns; ++turn)
      list.push_back({name_of_turn(line, turn), line.file_shape(gguf), line.layout.by_columns, {}, turn, turns});
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < list.size(); ++i) places[list[i].name] = i;
  for (const TensorLine& line : model.tensors())
    for (int64_t turn = 0; turn < line.turns(gguf); ++turn) list[places.at(name_of_turn(line, turn))].parts.push_back(&line);
  return list;
}

Gradients::Gradients(const Model& model, bool gguf, DType dtype) : model_(model) {
  for (const FileTensor& tensor : file_tensors(model, gguf)) {
    if (tensor.is_constant()) continue;
    size_t count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<size_t>(size);
    buffers_[tensor.name] = {tensor.shape, std::vector<std::byte>(row_bytes(dtype, count))};
  }
  for (const TensorLine& line : model.tensors()) {  // each parameter's gradient goes into the buffer of its file tensor
    if (line.layout.constant) continue;
    Buffer& buffer = buffers_.at(line.file_name(gguf));
    const auto first = static_cast<size_t>(line.first_row(gguf));
    if (line.weight != nullptr) {
      const auto row = static_cast<size_t>(buffer.shape.back());
      line.weight->grad = {buffer.data.data() + row_bytes(dtype, first * row + static_cast<size_t>(line.first_column(gguf))),
                           row};
    } else {
      line.vector->grad = {buffer.data.data() + row_bytes(dtype, first), 1};
    }
  }
}

Gradients::~Gradients() {
  for (const TensorLine& line : model_.tensors()) (line.weight != nullptr ? line.weight->grad : line.vector->grad) = {};
}

void Gradients::zero() {
  for (auto& [name, buffer] : buffers_) std::fill(buffer.data.begin(), buffer.data.end(), std::byte{0});
}

}  // namespace vitrine
