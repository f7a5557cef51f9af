#include "serve/hook_values.h"

namespace vitrine::serve {

std::string with_member(const OrderedJson& object, const std::string& name, const std::string& text) {
  std::string json = json_text(object);
  json.pop_back();
  return json + (object.empty() ? "" : ",") + json_text(name) + ":" + text + "}";
}

}  // namespace vitrine::serve
