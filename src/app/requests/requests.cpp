#include <algorithm>
#include <utility>

#include "requests/request.h"

namespace vitrine {

// Each in the file of its name.
Request document_request(), next_request(), generate_request(), inspect_request(), units_request(), lens_request(),
    heads_request(), attribute_request(), score_request(), patch_request(), steer_request(), train_request();

const std::vector<Request>& requests() {
  static const std::vector<Request> all = {document_request(), next_request(),  generate_request(), inspect_request(),
                                           units_request(),    lens_request(),  heads_request(),    attribute_request(),
                                           score_request(),    patch_request(), steer_request(),    train_request()};
  return all;
}

std::string request_names() {
  std::string names;
  for (const Request& request : requests()) names += (names.empty() ? "" : ", ") + std::string(request.name);
  return names;
}

const Request& find_request(std::string_view name) {
  const auto found = std::ranges::find(requests(), name, &Request::name);
  if (found == requests().end())
    throw UsageError("there is no request \"" + std::string(name) + "\"; there are " + request_names());
  return *found;
}

void RequestAnswer::add_command(const Host& host, const std::vector<std::string>& words, const std::vector<int32_t>& ids) {
  if (host.command) json["command"] = host.command(words, ids);
}

std::string with_member(const OrderedJson& object, const std::string& name, const std::string& text) {
  std::string json = json_text(object);
  json.pop_back();
  return json + (object.empty() ? "" : ",") + json_text(name) + ":" + text + "}";
}

std::string RequestAnswer::text(const Fields& fields) && {
  fields.add_ignored(json);
  return hooks.empty() ? json_text(json) : with_member(json, "hooks", hooks);
}

}  // namespace vitrine
