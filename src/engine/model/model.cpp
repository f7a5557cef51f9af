#include "model/model.h"

namespace vitrine {

const ModelRecord& Model::record() const {
  std::call_once(recorded_, [&] { record_ = std::make_unique<ModelRecord>(*this); });
  return *record_;
}

std::vector<std::string> Model::hook_names() const {
  std::vector<std::string> names;
  for (const HookShape& hook : record().hooks) names.push_back(hook.name);
  return names;
}

}  // namespace vitrine
