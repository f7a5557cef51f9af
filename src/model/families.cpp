#include "model/families.h"

#include "base/error.h"

namespace vitrine {

std::vector<int64_t> read_windows(const ModelConfig& config, int64_t n_layers, int64_t if_absent,
                                  bool (*by_default)(int64_t layer)) {
  const ConfigReader& keys = config.keys;
  const int64_t window = keys.find_positive("sliding_window", {"sliding_window_size", "attention.sliding_window"})
                             .value_or(keys.mentions("sliding_window") ? kNoWindow : if_absent);
  const std::vector<std::string> types = keys.strings("layer_types");
  if (keys.has("layer_types") && static_cast<int64_t>(types.size()) != n_layers)
    keys.fail("layer_types", "has " + std::to_string(types.size()) + " entries; expected one for each of " +
                                 std::to_string(n_layers) + " layers");
  std::vector<int64_t> windows;
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    bool sliding = by_default(layer);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(layer)];
      if (type != "sliding_attention" && type != "full_attention")
        keys.fail("layer_types", "holds \"" + type + "\"; expected sliding_attention or full_attention");
      sliding = type == "sliding_attention";
      if (sliding && window == kNoWindow) keys.fail("layer_types", "names sliding layers, but sliding_window is missing or null");
    }
    windows.push_back(sliding ? window : kNoWindow);
  }
  return windows;
}

int64_t read_layers(const ConfigReader& keys, std::string_view key, std::initializer_list<std::string_view> older) {
  constexpr int64_t kMost = 16384;
  const int64_t n_layers = keys.positive(key, older);
  if (n_layers > kMost)
    throw FileError(keys.path(), "asks for " + std::to_string(n_layers) + " layers (" + std::string(key) +
                                     "); expected at most " + std::to_string(kMost) + ". Is the file damaged?");
  return n_layers;
}

double read_eps(const ModelConfig& config, std::string_view key, std::string_view gguf_key, double fallback) {
  const double eps = config.gguf ? config.keys.number(gguf_key) : config.keys.number(key, {}, fallback);
  if (!(eps >= 0))
    config.keys.fail(config.gguf ? gguf_key : key, "must not be negative: a norm takes the root of it plus a mean square");
  return eps;
}

double read_dropout(const ConfigReader& keys, std::string_view key, double fallback) {
  const double share = keys.number(key, {}, fallback);
  if (!(share >= 0 && share < 1)) keys.fail(key, "is no share of elements; expected a number from 0 to below 1");
  return share;
}

BlockForm read_block_form(const ModelConfig& config, bool second_norms) {
  const ConfigReader& keys = config.keys;
  BlockForm form;
  form.residual = keys.flag("vitrine_residual", {}, true);
  const std::string norms = keys.string("vitrine_norms", {}, "");
  form.second_norms = second_norms && norms.empty();
  form.norms_after = norms == "post";
  form.norms_before = norms.empty() || norms == "pre";
  form.final_norm = norms != "off";
  if (!norms.empty() && norms != "off" && norms != "pre" && norms != "post")
    keys.fail("vitrine_norms", "is no place for norms; expected off, pre or post, or leave the key out");
  return form;
}

void check_heads(const ConfigReader& keys, int64_t n_heads, int64_t n_kv_heads) {
  if (n_heads % n_kv_heads != 0)
    keys.fail("num_key_value_heads", "does not divide num_attention_heads (" + std::to_string(n_heads) + ")");
}

void refuse_flags(const ConfigReader& keys, std::initializer_list<std::string_view> flags) {
  for (const std::string_view flag : flags)
    if (keys.flag(flag, {}, false)) keys.fail(flag, "is not supported by this family; expected false");
}

}  // namespace vitrine
