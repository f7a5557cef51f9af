#include "model/config_file.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "io/config_reader.h"
#include "model/load.h"
#include "model/registry.h"

namespace vitrine {
namespace {

// The object that describes the language model: of a model with other inputs, the one inside.
template <class J>
J& text_part(J& config) {
  const auto inside = config.find("text_config");
  return inside != config.end() && inside->is_object() ? *inside : config;
}

constexpr const char* kLayerKeys[] = {"num_hidden_layers", "n_layer", "num_layers", "n_layers"};
constexpr const char* kPerLayerKeys[] = {"layer_types", "no_rope_layers", "layers_block_type",
                                         "attention_layers"};              // lists with an entry for each layer
constexpr const char* kOfSomeLayers[] = {"full_attn_idxs", "moe_layers"};  // lists of layers
// Those that go by a layer's place, or by other keys, where a file has none.
constexpr const char* kByPlace[] = {"no_rope_layers", "layers_block_type", "moe_layers"};

// What a configuration says of its layers: its lists, and those that its family gives it where it has none.
class LayerLists {
 public:
  /// Null: it says nothing under that key.
  const Json* of(const Json& config, const char* key) {
    const Json& text = text_part(config);
    const auto own = text.find(key);
    if (own != text.end() && own->is_array() && (!own->empty() || std::string_view(key) == "moe_layers")) return &*own;
    if (std::none_of(std::begin(kByPlace), std::end(kByPlace), [&](const char* one) { return std::string_view(one) == key; }))
      return nullptr;
    const auto [known, fresh] = written_.try_emplace(&config);
    if (fresh) known->second = written(config);
    const auto given = known->second.find(key);
    return given != known->second.end() && given->is_array() ? &*given : nullptr;
  }

 private:
  static Json written(const Json& config) {
    ModelFiles files;
    files.config = config;
    files.config_path = "config.json";
    try {
      return model_from_config(files)->config(ConfigFormat::huggingface);
    } catch (const InputError&) {
      return Json::object();  // of no family that is known
    }
  }
  std::map<const Json*, Json> written_;
};

// GPT-Neo's, which lists the types of layers once more, in short.
void set_attention_layers(Json& text, Json layers) {
  text["attention_types"] = Json::array({Json::array({layers, 1})});
  text["attention_layers"] = std::move(layers);
}

}  // namespace

const char* torch_name(DType dtype) {
  switch (dtype) {
    case DType::f32: return "float32";
    case DType::bf16: return "bfloat16";
    case DType::f16: return "float16";
    default: return nullptr;
  }
}

void set_config_dtype(Json& config, DType dtype) {
  if (config.contains("dtype")) config["dtype"] = torch_name(dtype);
  if (config.contains("torch_dtype") || !config.contains("dtype")) config["torch_dtype"] = torch_name(dtype);
  if (Json& text = text_part(config); &text != &config)
    for (const char* key : {"dtype", "torch_dtype"})
      if (text.contains(key)) text[key] = torch_name(dtype);
}

std::optional<int64_t> config_layers(const Json& config) {
  if (!config.is_object()) return {};
  const Json& text = text_part(config);
  for (const char* key : kLayerKeys)
    if (const auto found = text.find(key);
        found != text.end() && found->is_number_integer())  // signed, where it was written from GGUF metadata
      if (const int64_t layers = found->get<int64_t>(); layers >= 0 && layers < (1 << 20)) return layers;
  if (const auto kinds = text.find("layers_block_type"); kinds != text.end() && kinds->is_array()) return std::ssize(*kinds);
  if (const auto letters = text.find("hybrid_override_pattern"); letters != text.end() && letters->is_string())
    return std::ssize(letters->get_ref<const std::string&>());
  return {};
}

void set_config_layers(Json& config, const std::vector<ConfigLayer>& layers) {
  LayerLists lists;
  Json& text = text_part(config);
  bool found = false;
  for (const char* key : kLayerKeys)
    if (!found && text.contains(key)) {
      text[key] = layers.size();
      found = true;
    }
  if (!found && !text.contains("layers_block_type") && !text.contains("hybrid_override_pattern"))
    throw UsageError("the configuration has no key for the number of layers; expected num_hidden_layers or n_layer");
  for (const char* key : kPerLayerKeys) {
    Json list = Json::array();
    for (const ConfigLayer& layer : layers) {
      const Json* const of = lists.of(*layer.config, key);
      if (of == nullptr || static_cast<size_t>(layer.layer) >= of->size()) break;
      list.push_back((*of)[static_cast<size_t>(layer.layer)]);
    }
    if (!layers.empty() && list.size() == layers.size()) {
      text[key] = std::move(list);
    } else if (text.contains(key) && text[key].is_array()) {
      text.erase(key);  // a source has no such list
    }
  }
  if (text.contains("layers_block_type")) text.erase("hybrid_override_pattern");  // the same in letters
  if (const auto types = text.find("attention_layers"); types != text.end()) set_attention_layers(text, Json(*types));
  for (const char* key : kOfSomeLayers) {
    Json list = Json::array();
    bool known = !layers.empty();
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      const Json* const of = lists.of(*layers[layer].config, key);
      known = known && of != nullptr;
      if (known && std::find(of->begin(), of->end(), Json(layers[layer].layer)) != of->end()) list.push_back(layer);
    }
    if (known) {
      text[key] = std::move(list);
    } else if (text.contains(key) && text[key].is_array()) {
      text.erase(key);
    }
  }
}

std::optional<std::vector<int64_t>> config_windows(const Json& config) {
  ModelFiles files;
  files.config = config;
  files.config_path = "config.json";
  try {
    const std::unique_ptr<Model> model = model_from_config(files);
    std::vector<int64_t> windows;
    for (int64_t layer = 0; layer < model->shape().n_layers; ++layer) windows.push_back(model->layer(layer).attention.window);
    return windows;
  } catch (const InputError&) {
    return {};
  }
}

void set_config_windows(Json& config, const std::vector<int64_t>& windows) {
  if (Json& text = text_part(config); text.contains("attention_layers")) {
    Json layers = Json::array();
    for (const int64_t window : windows) layers.push_back(window > 0 ? "local" : "global");
    return set_attention_layers(text, std::move(layers));
  }
  Json types = Json::array();
  const char* const local = text_part(config).contains("attention_chunk_size") ? "chunked_attention" : "sliding_attention";
  for (const int64_t window : windows) types.push_back(window > 0 ? local : "full_attention");
  text_part(config)["layer_types"] = std::move(types);
}

void set_config_vocab_size(Json& config, int64_t vocab_size) { text_part(config)["vocab_size"] = vocab_size; }

std::optional<bool> config_tied(const Json& config) {
  if (!config.is_object()) return {};
  for (const Json* part : {&config, &text_part(config)})
    if (const auto found = part->find("tie_word_embeddings"); found != part->end() && found->is_boolean())
      return found->get<bool>();
  return {};
}

void set_config_unpacked(Json& config) { config.erase("quantization_config"); }

void set_config_tied(Json& config, bool tied) {
  config["tie_word_embeddings"] = tied;
  if (Json& text = text_part(config); &text != &config && text.contains("tie_word_embeddings"))
    text["tie_word_embeddings"] = tied;
}

std::vector<int64_t> config_token_ids(const ModelFiles& files, const std::string& key) {
  if (!files.config.is_object()) return {};
  return ConfigReader(files.config, files.config_path).counts(key);
}

void set_missing_token_id(ModelFiles& files, const std::string& key, std::optional<int64_t> id) {
  if (!files.config.contains(key)) files.config[key] = id ? Json(*id) : Json(nullptr);
}

double initializer_range(const ModelFiles& files) {
  const ConfigReader keys(files.config, files.config_path);
  const double std = keys.number("initializer_range", {}, 0.02);
  if (std < 0 || std > 1e30)
    keys.fail("initializer_range", "is the standard deviation of fresh weights; expected a number from 0 to 1e30");
  return std;
}

void set_dropout(Json& config, const DropoutRates& rates, const std::string& where) {
  const Family* family = family_of(config);  // the registry refuses an unknown one later
  const DropoutKeys keys = family != nullptr ? family->dropout : DropoutKeys();
  const std::string name = family != nullptr ? family->name : "";
  const bool one_rate = keys.embedding != nullptr && std::string_view(keys.embedding) == keys.attention;
  if (one_rate && (rates.embedding != rates.attention || rates.attention != rates.residual))
    throw InputError(where + ": \"dropout\" has several rates; models of the family " + name +
                     " have one for all places. Set dropout to one number");
  const bool shared = keys.embedding != nullptr && keys.residual != nullptr && std::string_view(keys.embedding) == keys.residual;
  if (shared && !one_rate && rates.embedding && rates.residual && rates.embedding != rates.residual)
    throw InputError(where + ": \"dropout.embedding\" and \"dropout.residual\" differ; models of the family " + name +
                     " have one rate for both. Set one of them");
  const auto set = [&](const std::optional<double>& p, const char* place, const char* key) {
    if (!p) return;
    if (key == nullptr && rates.everywhere) return;  // everywhere the family has it
    if (key == nullptr)
      throw InputError(where + ": \"dropout." + place + "\" is set, and models of the family " + name +
                       " have no dropout there; they have it on the attention pattern. Set dropout.attention, or one number");
    config[key] = *p;
  };
  set(rates.embedding, "embedding", keys.embedding);
  set(rates.attention, "attention", keys.attention);
  set(rates.residual, "residual", keys.residual);
}

}  // namespace vitrine
