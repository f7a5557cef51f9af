#include "model/gguf_keys.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numbers>

#include "base/error.h"
#include "model/registry.h"
#include "model/same_model.h"

namespace vitrine {
namespace {

constexpr const char* kNoForm = "such a model has no form as a GGUF file. Keep it as a Hugging Face directory";
constexpr uint32_t kQuantizationVersion = 2;  // of ggml's block formats, since 2023

// A JSON value with the type that the readers of GGUF expect: u32, f32, and i32 in lists. Nothing: null.
std::optional<GgufValue> value_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return static_cast<uint32_t>(value.get<int64_t>());
  if (value.is_number_float()) return value.get<float>();
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() || value.empty()) return {};
  if (value[0].is_boolean()) return value.get<std::vector<bool>>();
  if (value[0].is_number_integer()) return value.get<std::vector<int32_t>>();
  if (value[0].is_number_float()) return value.get<std::vector<float>>();
  return value.get<std::vector<std::string>>();
}

// "9.4M": two digits at least, as in the names of published files.
std::string size_label(int64_t parameters) {
  const auto n = static_cast<double>(parameters);
  const auto [unit, suffix] = n > 1e12  ? std::pair{1e12, 'T'}
                              : n > 1e9 ? std::pair{1e9, 'B'}
                              : n > 1e6 ? std::pair{1e6, 'M'}
                                        : std::pair{1e3, 'K'};
  const double scaled = n / unit, whole = std::nearbyint(scaled);
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, scaled, std::chars_format::fixed,
                                 whole < 1    ? 2
                                 : whole < 10 ? 1
                                              : 0)
                       .ptr;
  return std::string(text, end) + suffix;
}

// With experts "8x7B": their number, and how many parameters one of them has together with all that is no expert's matrix.
std::string size_label(const Model& model, int64_t more) {
  int64_t alone = more, of_experts = 0, tensors = 0, experts = 0;
  for (const FileTensor& tensor : file_tensors(model, true)) {
    const int64_t parameters = tensor.rows() * tensor.width();
    if (tensor.shape.size() < 3) {
      alone += parameters;
      continue;
    }
    of_experts += parameters / tensor.shape.front();
    experts += tensor.shape.front();
    ++tensors;
  }
  return (tensors > 0 ? std::to_string(experts / tensors) + "x" : std::string()) + size_label(alone + of_experts);
}

std::string name_of_model(const ModelFiles& files) {
  std::filesystem::path path = std::filesystem::path(files.name).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty() || path == "." || path == "..") path = std::filesystem::absolute(path).lexically_normal().parent_path();
  return path.filename().string();
}

// What the model's publisher says of sampling, under the keys that llama.cpp takes as defaults.
void add_sampling(const Json& generation, GgufKeys& keys) {
  if (!generation.is_object()) return;
  const auto find = [&](const char* name) {
    const auto it = generation.find(name);
    return it != generation.end() && it->is_number() ? &*it : nullptr;
  };
  if (const Json* k = find("top_k"); k != nullptr && k->is_number_integer())
    keys.emplace_back("general.sampling.top_k", k->get<int32_t>());
  for (const auto& [from, to] :
       {std::pair{"top_p", "top_p"}, {"min_p", "min_p"}, {"temperature", "temp"}, {"repetition_penalty", "penalty_repeat"}})
    if (const Json* value = find(from)) keys.emplace_back(std::string("general.sampling.") + to, value->get<float>());
}

bool has_tensor(const Model& model, std::string_view gguf) {
  for (const TensorLine& line : model.tensors())
    if (line.gguf == gguf) return true;
  return false;
}

// Whether a layer has a matrix of keys and none of values.
bool has_keys_as_values(const Model& model) {
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + ".";
    if (has_tensor(model, at + "attn_k.weight") && !has_tensor(model, at + "attn_v.weight")) return true;
  }
  return false;
}

// Reads the keys back. Errors: FileError naming what they do not say.
void check_keys(const OpenedModel& opened, const std::string& architecture, Json keys, const GgufRopeTensors& rope) {
  const Model& model = *opened.model;
  const std::string path = opened.files.config_path.empty() ? opened.files.name : opened.files.config_path;
  keys["tie_word_embeddings"] = model.shape().tied;
  keys["attention_bias"] = has_tensor(model, "blk.0.attn_q.bias");
  keys["head_bias"] = has_tensor(model, "output.bias");
  keys["mlp_bias"] = std::any_of(model.tensors().begin(), model.tensors().end(),
                                 [](const TensorLine& line) { return line.gguf.ends_with(".ffn_up.bias"); });
  keys["joined_projections"] = std::any_of(model.tensors().begin(), model.tensors().end(),
                                           [](const TensorLine& line) { return line.gguf.ends_with(".ssm_in.weight"); });
  keys["use_qk_norm"] = has_tensor(model, "blk.0.attn_q_norm.weight");
  keys["use_ssm_norm"] = has_tensor(model, "blk.0.ssm_norm.weight");
  keys["num_ln_in_parallel_attn"] = has_tensor(model, "blk.0.attn_norm_2.weight") ? 2 : 1;
  keys["attention_k_eq_v"] = has_keys_as_values(model);
  const std::unique_ptr<Model> read = model_from_gguf_keys(architecture, std::move(keys), rope, path);
  const bool scaled = std::any_of(model.tensors().begin(), model.tensors().end(),
                                  [](const TensorLine& line) { return bool(line.layout.gguf_factors); });
  check_same_model(model, *read, {path, "GGUF's metadata can only say", kNoForm, scaled});
  const std::vector<FileTensor> has = file_tensors(model, true), gets = file_tensors(*read, true);
  for (size_t i = 0; i < std::max(has.size(), gets.size()); ++i) {
    const auto text = [&](const std::vector<FileTensor>& list) {
      return i < list.size() ? list[i].name + " " + shape_text(list[i].shape) : std::string("nothing");
    };
    if (text(has) != text(gets))
      throw FileError(path, "describes a model with the tensor " + text(has) + " where the GGUF architecture " + architecture +
                                " has " + text(gets) + "; " + kNoForm);
  }
}

// Errors: FileError naming a tensor that would say how the model rotates, and that the architecture does not have.
void check_rope_tensors(const OpenedModel& opened, const Family& family, const GgufRopeTensors& rope) {
  for (const auto& [name, values] :
       {std::pair<std::string_view, const std::vector<float>&>{"rope_freqs.weight", rope.frequencies},
        {"rope_factors_short.weight", rope.short_factors}}) {
    const std::vector<std::string_view>& known = family.ignored_suffixes;
    if (!values.empty() && std::find(known.begin(), known.end(), name) == known.end())
      throw FileError(opened.files.config_path, "scales RoPE in a way that a GGUF file stores in the tensor " +
                                                    std::string(name) + ", which the architecture " + family.gguf +
                                                    " does not have; " + kNoForm);
  }
}

// The RoPE of the first layer that has one of this kind.
std::optional<RopeSpec> rope_of_kind(const Model& model, RopeSpec::Scaling scaling) {
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer)
    if (const std::optional<RopeSpec> rope = model.layer(layer).rope; rope && rope->scaling == scaling) return rope;
  return {};
}

// Where nothing rotates they are so large that no angle is left.
std::vector<float> proportional_divisors(const Model& model) {
  const std::optional<RopeSpec> rope = rope_of_kind(model, RopeSpec::Scaling::proportional);
  if (!rope) return {};
  std::vector<float> divisors(static_cast<size_t>(rope->rotary_dim / 2), 1e30f);
  std::fill_n(divisors.begin(), rope->turning, static_cast<float>(rope->factor));
  return divisors;
}

std::vector<float> llama3_divisors(const Model& model) {
  const std::optional<RopeSpec> rope = rope_of_kind(model, RopeSpec::Scaling::llama3);
  if (!rope) return {};
  // In f32 and in this order, as llama.cpp's converter computes them.
  const auto context = static_cast<float>(rope->original_context), factor = static_cast<float>(rope->factor);
  const auto low = static_cast<float>(rope->low_freq_factor), high = static_cast<float>(rope->high_freq_factor);
  const auto dim = static_cast<float>(rope->rotary_dim), theta = static_cast<float>(rope->theta);
  std::vector<float> divisors;
  for (int64_t i = 0; i < rope->rotary_dim; i += 2) {
    const float frequency = 1 / std::pow(theta, static_cast<float>(i) / dim);
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength < context / high) {
      divisors.push_back(1);
    } else if (wavelength > context / low) {
      divisors.push_back(factor);
    } else if (high == low) {
      divisors.push_back(1);
    } else {
      const float smooth = (context / wavelength - low) / (high - low);
      divisors.push_back(1 / ((1 - smooth) / factor + smooth));
    }
  }
  return divisors;
}

}  // namespace

GgufRopeTensors gguf_rope_tensors(const Model& model) {
  GgufRopeTensors tensors;
  tensors.frequencies = llama3_divisors(model);
  if (tensors.frequencies.empty()) tensors.frequencies = proportional_divisors(model);
  if (const std::optional<RopeSpec> rope = rope_of_kind(model, RopeSpec::Scaling::longrope)) {
    tensors.short_factors.assign(rope->divisors, rope->divisors + rope->rotary_dim / 2);
    tensors.long_factors.assign(rope->long_divisors, rope->long_divisors + rope->rotary_dim / 2);
  }
  return tensors;
}

GgufKeys gguf_model_keys(const OpenedModel& opened, uint32_t file_type) {
  const Model& model = *opened.model;
  const Family& family = family_of(model);
  if (family.gguf == nullptr)
    throw FileError(opened.files.config_path, "is of the family " + std::string(family.name) +
                                                  ", which has no GGUF form; name a directory as OUT instead of a .gguf file");
  if (!model.form().is_ordinary() && family.norm_order_key == nullptr)
    throw FileError(opened.files.config_path,
                    "moves or leaves out parts (vitrine_norms, vitrine_residual, vitrine_mlp, vitrine_positions, vitrine_causal, "
                    "vitrine_rotary_value), which GGUF has no words for; name a directory as OUT instead of a .gguf file");
  for (const TensorLine& line : model.tensors())
    if (line.gguf.empty())
      throw FileError(opened.files.config_path, "is of the family " + std::string(family.name) + ", whose tensor " +
                                                    line.huggingface +
                                                    " GGUF holds in another form, which is not written; name a directory as "
                                                    "OUT, or begin with a .gguf file of the model");
  const Json config = model.config(ConfigFormat::gguf);
  const GgufRopeTensors rope = gguf_rope_tensors(model);
  check_rope_tensors(opened, family, rope);
  check_keys(opened, family.gguf, config, rope);

  GgufKeys keys = {{"general.architecture", std::string(family.gguf)}, {"general.type", std::string("model")}};
  add_sampling(opened.files.generation_config, keys);
  if (const std::string name = name_of_model(opened.files); !name.empty()) keys.emplace_back("general.name", name);
  keys.emplace_back("general.size_label",
                    size_label(model, static_cast<int64_t>(rope.frequencies.size() + 2 * rope.long_factors.size())));
  for (const auto& [key, value] : config.items())
    if (std::optional<GgufValue> held = value_of(value))
      keys.emplace_back(std::string(family.gguf) + "." + key, *std::move(held));
  keys.emplace_back("general.file_type", file_type);
  keys.emplace_back("general.quantization_version", kQuantizationVersion);
  return keys;
}

GgufKeys gguf_kept_keys(const GgufMetadata& metadata, uint32_t file_type) {
  GgufKeys keys;
  for (const auto& [key, value] : metadata.values()) {
    if (key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment") continue;
    if (key.starts_with("split.") || key.starts_with("quantize.imatrix.")) continue;  // of files it was cut into, of other bytes
    keys.emplace_back(std::string(key), value);
  }
  keys.emplace_back("general.file_type", file_type);
  keys.emplace_back("general.quantization_version", kQuantizationVersion);
  return keys;
}

}  // namespace vitrine
