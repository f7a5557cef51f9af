#include "model/form.h"

#include <cstring>

#include "base/error.h"
#include "model/registry.h"

namespace vitrine {
namespace {

constexpr const char *kNorms = "vitrine_norms", *kResidual = "vitrine_residual";

}  // namespace

Form read_form(const ConfigReader& keys) {
  Form form;
  form.residual = keys.flag(kResidual, {}, true);
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

void set_form(Json& config, const std::string& norms, std::optional<bool> residual, const std::string& where) {
  const Family* family = family_of(config);
  if (family != nullptr && family->norm_order_key != nullptr && (!norms.empty() || residual))
    throw InputError(where + ": \"model.norms\" and \"model.residual\" are not for the family " + family->name +
                     ", whose own configuration says \"" + family->norm_order_key + "\": pre or post. Set that");
  if (family != nullptr && family->norms == Form::Norms::pre && norms == "pre")
    config.erase(kNorms);
  else if (!norms.empty())
    config[kNorms] = norms;
  if (!residual) return;
  if (*residual)
    config.erase(kResidual);
  else
    config[kResidual] = false;
}

void require_residual(const Model& model, const std::string& name, const std::string& what) {
  if (!model.form().residual)
    throw InputError(what + " needs sub-layers that add to the stream, and in " + name + " (\"" + kResidual +
                     "\": false in its config.json) they replace it");
}

void require_family_form(const Model& model, const std::string& name, const std::string& what) {
  require_residual(model, name, what);
  if (model.form().norms != Form::Norms::own)
    throw InputError(what + " is written for models with the norms of their family, and " + name + " has \"" + kNorms +
                     "\" in its config.json. Look at it with picture, trace or predict");
}

}  // namespace vitrine
