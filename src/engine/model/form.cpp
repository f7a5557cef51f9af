#include "model/form.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "model/registry.h"

namespace vitrine {
namespace {

constexpr const char *kNorms = "vitrine_norms", *kResidual = "vitrine_residual", *kMlp = "vitrine_mlp",
                     *kAffine = "vitrine_affine", *kPositions = "vitrine_positions", *kCausal = "vitrine_causal",
                     *kRotaryValue = "vitrine_rotary_value";

// A flag that is left out where it says what models do anyway.
void set_flag(Json& config, const char* key, const std::optional<bool>& value, bool usual) {
  if (!value) return;
  if (*value == usual)
    config.erase(key);
  else
    config[key] = *value;
}

}  // namespace

bool Form::is_ordinary() const {
  Form form = *this;
  form.affine = true;
  return form.is_own();
}

Form read_form(const ConfigReader& keys) {
  Form form;
  form.residual = keys.flag(kResidual, {}, true);
  form.mlp = keys.flag(kMlp, {}, true);
  form.affine = keys.flag(kAffine, {}, true);
  form.positions = keys.flag(kPositions, {}, true);
  form.causal = keys.flag(kCausal, {}, true);
  form.rotary_value = keys.flag(kRotaryValue, {}, false);
  const std::string norms = keys.string(kNorms, {}, "");
  if (norms == "off")
    form.norms = Form::Norms::off;
  else if (norms == "pre")
    form.norms = Form::Norms::pre;
  else if (norms == "post")
    form.norms = Form::Norms::post;
  else if (!norms.empty())
    keys.fail(kNorms, "is not a place for norms; expected off, pre or post, or leave the key out");
  return form;
}

void set_form(Json& config, const FormChanges& changes, const std::string& where) {
  const Family* family = family_of(config);
  if (family != nullptr && family->norm_order_key != nullptr && changes.any())
    throw InputError(where +
                     ": \"model.norms\", \"model.residual\" and the other parts that can be switched off are not for the "
                     "family " +
                     family->name + ", whose own configuration says \"" + family->norm_order_key +
                     "\": pre or post. Set that, or train a gpt2");
  if (family != nullptr && family->norms == Form::Norms::pre && changes.norms == "pre")
    config.erase(kNorms);
  else if (!changes.norms.empty())
    config[kNorms] = changes.norms;
  set_flag(config, kResidual, changes.residual, true);
  set_flag(config, kMlp, changes.mlp, true);
  set_flag(config, kAffine, changes.affine, true);
  set_flag(config, kPositions, changes.positions, true);
  set_flag(config, kCausal, changes.causal, true);
  set_flag(config, kRotaryValue, changes.rotary_value, false);
}

void check_form(const Model& model, const Form& form, const ConfigReader& keys) {
  const ModelRecord& record = model.record();
  const auto any = [&](auto&& of) { return std::any_of(record.layers.begin(), record.layers.end(), of); };
  const std::string family = "the family " + model.shape().family;
  const bool rotates = any([](const LayerRecord& layer) { return layer.rope.has_value(); });
  if (!form.positions && !rotates && record.positions == AddedPositions::none)
    keys.fail(kPositions, "leaves out positions, of which " + family + " has none; leave the key out");
  if (form.rotary_value && (!rotates || !form.positions))
    keys.fail(kRotaryValue, "rotates values as RoPE rotates queries and keys, and " +
                                (rotates ? std::string("vitrine_positions leaves RoPE out") : family + " has no RoPE") +
                                "; leave the key out");
  if (form.rotary_value && any([](const LayerRecord& layer) { return !layer.has_attention() || layer.gated_heads; }))
    keys.fail(kRotaryValue, "rotates values of plain attention, which not all layers of " + family + " have; leave the key out");
  if (!form.causal && any([](const LayerRecord& layer) { return !layer.has_attention(); }))
    keys.fail(kCausal, "takes off the mask of attention, and " + family +
                           " has layers without attention, which only read backwards; leave the key out");
  if (!form.causal && any([](const LayerRecord& layer) { return layer.attention.window != kNoWindow; }))
    keys.fail(kCausal, "takes off the mask, and layers of " + family +
                           " see a window of earlier positions; leave the key out, or " + "set the window to null");
  if (!form.affine && form.norms == Form::Norms::off)
    keys.fail(kAffine, "takes scale and shift from norms, which \"" + std::string(kNorms) +
                           "\": \"off\" leaves out; leave one of " + "the keys out");
}

void require_residual(const Model& model, const std::string& name, const std::string& what) {
  if (!model.form().residual)
    throw InputError(what + " needs sub-layers that add to the stream, and in " + name + " (\"" + kResidual +
                     "\": false in its config.json) they replace it");
}

void require_mlp(const Model& model, const std::string& name, const std::string& what) {
  if (!model.form().mlp)
    throw InputError(what + " needs layers with an MLP, and those of " + name + " are attention alone (\"" + kMlp +
                     "\": false in its config.json)");
}

void require_family_form(const Model& model, const std::string& name, const std::string& what) {
  require_residual(model, name, what);
  require_mlp(model, name, what);
  if (model.form().norms != Form::Norms::own)
    throw InputError(what + " is written for models with the norms of their family, and " + name + " has \"" + kNorms +
                     "\" in its config.json. Look at it with picture, trace or predict");
}

}  // namespace vitrine
