// GET /openapi.json: the API described from the tables of routes and fields.
#include <algorithm>
#include <cmath>
#include <map>

#include "serve/endpoints.h"
#include "serve/routes.h"
#include "vitrine/version.h"

namespace vitrine::serve {
namespace {

OrderedJson schema_of(const Field& field) {
  OrderedJson kinds = OrderedJson::array();
  const auto with_range = [&](const char* type) {
    OrderedJson schema = {{"type", type}};
    const bool whole = std::string(type) == "integer";
    const auto limit = [&](double x) { return whole ? OrderedJson(static_cast<int64_t>(x)) : OrderedJson(x); };
    if (std::isfinite(field.low)) schema["minimum"] = limit(field.low);
    if (std::isfinite(field.high)) schema["maximum"] = limit(field.high);
    return schema;
  };
  const auto list_of = [](OrderedJson items) { return OrderedJson{{"type", "array"}, {"items", std::move(items)}}; };
  if ((field.types & type::boolean) != 0) kinds.push_back({{"type", "boolean"}});
  if ((field.types & type::number) != 0)
    kinds.push_back(with_range("number"));
  else if ((field.types & type::integer) != 0)
    kinds.push_back(with_range("integer"));
  if ((field.types & type::text) != 0) kinds.push_back({{"type", "string"}});
  if ((field.types & type::object) != 0) kinds.push_back({{"type", "object"}});
  if ((field.types & type::list) != 0) kinds.push_back(list_of(OrderedJson::object()));
  if ((field.types & type::texts) != 0) kinds.push_back(list_of({{"type", "string"}}));
  if ((field.types & type::integers) != 0) kinds.push_back(list_of({{"type", "integer"}}));
  OrderedJson schema;
  if (kinds.size() == 1 && field.required) {
    schema = kinds[0];
  } else {
    if (!field.required) kinds.push_back({{"type", "null"}});
    schema["anyOf"] = kinds;
  }
  schema["description"] = field.about;
  return schema;
}

OrderedJson body_schema(const std::vector<Field>& fields) {
  OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
  for (const Field& field : fields) {
    if (field.use == Use::honored) {
      properties[field.name] = schema_of(field);
    } else if (field.use == Use::ignored) {
      properties[field.name] = {{"description", "Ignored. " + field.about}};
    } else {
      OrderedJson harmless = OrderedJson::parse(field.harmless);
      harmless.push_back(nullptr);
      properties[field.name] = {{"enum", harmless}, {"description", "Not supported: " + field.about}};
    }
    if (field.required) required.push_back(field.name);
  }
  OrderedJson schema = {{"type", "object"}, {"properties", properties}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

OrderedJson error_answer(const char* what) {
  return {{"description", what}, {"content", {{"application/json", {{"schema", {{"$ref", "#/components/schemas/Error"}}}}}}}};
}

OrderedJson document(const Service& service) {
  OrderedJson paths = OrderedJson::object();
  for (const Route& route : routes()) {
    OrderedJson operation = {{"summary", route.summary}, {"operationId", std::string(route.method) + route.path}};
    const std::string path = route.path;
    if (const size_t brace = path.find('{'); brace != std::string::npos)
      operation["parameters"] = OrderedJson::array({{{"name", path.substr(brace + 1, path.size() - brace - 2)},
                                                     {"in", "path"},
                                                     {"required", true},
                                                     {"schema", {{"type", "string"}}}}});
    if (route.fields != nullptr) {
      OrderedJson schema = body_schema(route.fields());
      if (route.list) schema = {{"type", "array"}, {"items", std::move(schema)}};
      operation["requestBody"] = {{"required", true}, {"content", {{"application/json", {{"schema", std::move(schema)}}}}}};
    }
    const bool text = path == "/metrics" || path == "/" || path == "/explain";
    const bool list = path == "/slots" || (path == "/lora-adapters" && std::string(route.method) == "GET");
    const OrderedJson schema = {{"schema", {{"type", text ? "string" : list ? "array" : "object"}}}};
    OrderedJson content = {
        {path == "/" || path == "/explain" ? "text/html"
         : text                            ? "text/plain"
                                           : "application/json",
         path == "/completion" || path == "/completions" ? OrderedJson{{"schema", OrderedJson::object()}} : schema}};
    // Version 3.1 has no words for what an event or a line holds.
    if (route.fields != nullptr && std::string(route.path).find("token") == std::string::npos)
      content[route.form == ErrorForm::ollama ? "application/x-ndjson" : "text/event-stream"] = OrderedJson::object();
    operation["responses"] = {{"200", {{"description", "The answer."}, {"content", content}}},
                              {"400", error_answer("The request is wrong: which field, what was found and what was expected.")},
                              {"401", error_answer("A key is missing or wrong.")},
                              {"403", error_answer("The request's Host or Origin is not allowed.")},
                              {"404", error_answer("Unknown path or model.")},
                              {"413", error_answer("The body is too large.")},
                              {"415", error_answer("The body is not JSON.")},
                              {"429", error_answer("The queue is full; Retry-After is when to retry.")},
                              {"501", error_answer("The request is not supported.")},
                              {"503", error_answer("The server is shutting down.")}};
    if (route.fields != nullptr && std::ranges::find(route.fields(), "timeout", &Field::name) != route.fields().end())
      operation["responses"]["408"] = error_answer("The text was not complete when the time of the request was over.");
    if (!route.open) operation["security"] = OrderedJson::array({OrderedJson{{"key", OrderedJson::array()}}});
    std::string method = route.method;
    std::ranges::transform(method, method.begin(), [](unsigned char c) { return static_cast<char>(c - 'A' + 'a'); });
    paths[route.path][method] = std::move(operation);
  }
  const OrderedJson error = {{"type", "object"},
                             {"properties", {{"error", {{"type", OrderedJson::array({"object", "string"})}}}}},
                             {"required", OrderedJson::array({"error"})}};
  return {
      {"openapi", "3.1.0"},
      {"info", {{"title", "vitrine"}, {"version", version()}, {"description", "The model " + service.name() + " over HTTP."}}},
      {"paths", paths},
      {"components",
       {{"schemas", {{"Error", error}}}, {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace

void openapi(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  exchange->respond(json_response(document(service)));
}

}  // namespace vitrine::serve
