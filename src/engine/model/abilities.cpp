#include "model/abilities.h"

#include <algorithm>

#include "base/error.h"
#include "model/layer_name.h"
#include "model/model.h"

namespace vitrine {

bool is_causal(const Model& model) {
  const std::vector<LayerRecord>& layers = model.record().layers;
  return std::all_of(layers.begin(), layers.end(),
                     [](const LayerRecord& layer) { return !layer.has_attention() || layer.attention.causal; });
}

bool predicts_next(const Model& model) { return is_causal(model) || !model.form().causal; }

void require_causal(const Model& model, const std::string& name, const std::string& what) {
  if (is_causal(model)) return;
  if (predicts_next(model))
    throw InputError(what + " needs the causal mask, and " + name +
                     " is trained without it (\"vitrine_causal\": false in its config.json): what comes later changes every "
                     "position. Use `vitrine predict`, `vitrine generate` or `vitrine trace`, which run the whole text at once");
  require_next_token(model, name, what);
}

void require_next_token(const Model& model, const std::string& name, const std::string& what) {
  if (predicts_next(model)) return;
  throw InputError(
      what + " needs a causal model, and " + name + " (" + model.shape().family +
      ") reads a text in both directions: it fills masked tokens and has no next token. Use `vitrine predict` with a "
      "mask in the text, such as 'The [MASK] of France', or `vitrine trace` for what is inside");
}

void require_trainable(const Model& model, const std::string& name) {
  for (const LayerRecord& layer : model.record().layers)
    if (layer.experts && layer.experts->near)
      throw InputError(
          name + " (" + model.shape().family +
          ") is not trained: in training SparseMixer draws experts at random and estimates the gradient of its choice, "
          "and here experts are chosen as in any other run. Its gradients can be read (`vitrine trace --gradients-at`)");
}

bool has_attention(const Model& model) {
  const std::vector<LayerRecord>& layers = model.record().layers;
  return std::any_of(layers.begin(), layers.end(), [](const LayerRecord& layer) { return layer.has_attention(); });
}

void require_attention(const Model& model, const std::string& name, const std::string& what) {
  if (!has_attention(model)) throw InputError(what + " is about attention, and " + name + " has no layer with attention");
}

bool is_parallel(const Model& model, int64_t layer) {
  const std::string block = "blocks." + std::to_string(layer) + ".";
  const ModelRecord& record = model.record();
  return record.hook(block + "hook_mlp_out") != nullptr && record.hook(block + "hook_resid_mid") == nullptr;
}

void require_plain_head(const Model& model, const std::string& name, const std::string& what) {
  const std::vector<HookShape>& hooks = model.record().hooks;
  for (auto hook = hooks.rbegin(); hook != hooks.rend() && split_layer(hook->name).first < 0; ++hook) {
    if (hook->name == "hook_logits" || hook->name.starts_with("ln_final.")) continue;
    throw InputError(what + " needs logits that are read off the residual stream by a norm and a matrix, and " + name + " (" +
                     model.shape().family + ") has a head of more layers (" + hook->name +
                     "). Look at it with `vitrine trace` or `vitrine predict`");
  }
}

}  // namespace vitrine
