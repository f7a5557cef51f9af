// LoRA adapters over the API: the field lora, GET and POST /lora-adapters as llama.cpp's server has them, and loading and
// removing as vLLM's has it.
#include "serve/lora.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "serve/endpoints.h"

namespace vitrine::serve {
namespace {

constexpr double kLargestScale = 1e6;

OrderedJson entry_json(const AdapterList::Entry& entry) {
  return {{"id", entry.id}, {"name", entry.name}, {"path", last_part(entry.path)}, {"scale", entry.scale}};
}

double scale_of(const OrderedJson& choice, const std::string& where) {
  const auto scale = choice.find("scale");
  if (scale == choice.end()) return 1;
  if (!scale->is_number() || !(std::abs(scale->get<double>()) <= kLargestScale))
    throw invalid("lora", where + ".scale is " + json_text(*scale) + "; expected a number from -1e6 to 1e6");
  return scale->get<double>();
}

AdapterList::Entry chosen_entry(const OrderedJson& choice, const std::string& where, const std::vector<AdapterList::Entry>& all) {
  const auto id = choice.find("id"), name = choice.find("name");
  if ((id == choice.end()) == (name == choice.end()))
    throw invalid("lora", where + " is " + json_text(choice) + "; expected an \"id\" or a \"name\" of GET /lora-adapters");
  if (id != choice.end() ? !id->is_number_integer() : !name->is_string())
    throw invalid("lora", where + " is " + json_text(choice) + "; expected a whole number as \"id\" or a string as \"name\"");
  const auto at = std::ranges::find_if(all, [&](const AdapterList::Entry& e) {
    return id != choice.end() ? OrderedJson(e.id) == *id : OrderedJson(e.name) == *name;
  });
  if (at == all.end())
    throw invalid("lora", where + " is " + json_text(choice) + "; no such adapter is loaded. GET /lora-adapters lists them",
                  "adapter_not_found");
  return *at;
}

}  // namespace

const std::vector<Field>& lora_fields() {
  static const std::vector<Field> table = {{"lora", type::list,
                                            "LoRA adapters to use, as [{\"id\": 0, \"scale\": 0.5}], optionally with a "
                                            "\"name\" instead of the id; the default scale is 1, and unlisted adapters are "
                                            "not used. Without the field: the adapter in `model`, otherwise those of GET "
                                            "/lora-adapters with their scales.",
                                            Use::honored}};
  return table;
}

ScaledAdapters read_adapters(const Fields& fields, const Service& service) {
  const std::optional<std::string> model = fields.text("model");
  const std::optional<AdapterList::Entry> named = model ? service.adapters().named(*model) : std::nullopt;
  const OrderedJson* const list = fields.find("lora");
  if (list == nullptr) return named ? ScaledAdapters{{named->adapter, 1}} : service.adapters().chosen_by_default();
  if (named) throw invalid("lora", "\"model\" names the adapter \"" + *model + "\", and \"lora\" chooses, too; give one of them");
  const std::vector<AdapterList::Entry> all = service.adapters().all();
  std::vector<std::pair<AdapterList::Entry, double>> chosen;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = "\"lora\"[" + std::to_string(i) + "]";
    const OrderedJson& choice = (*list)[i];
    if (!choice.is_object())
      throw invalid("lora", where + " is " + kind_of(choice) + "; expected an object {\"id\": 0, \"scale\": 1}");
    const AdapterList::Entry entry = chosen_entry(choice, where, all);
    if (std::ranges::any_of(chosen, [&](const auto& c) { return c.first.id == entry.id; }))
      throw invalid("lora", where + " is " + json_text(choice) + ", which is listed before; expected each adapter once");
    chosen.emplace_back(entry, scale_of(choice, where));
  }
  // In one order whatever the request's: the sums, and what is kept of prompts, are then the same.
  std::ranges::sort(chosen, {}, [](const auto& c) { return c.first.id; });
  ScaledAdapters adapters;
  for (auto& [entry, scale] : chosen) adapters.push_back({std::move(entry.adapter), scale});
  return adapters;
}

// The endpoints ------------------------------------------------------------------------------------------------------

const std::vector<Field>& load_adapter_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field name{"lora_name", text, "The adapter's name in requests, as `model` or in `lora`."};
    Field path{"lora_path", text,
               "The adapter's folder: below one of the server's folders (`--lora-folder`), as a relative or absolute path."};
    name.required = path.required = true;
    return std::vector<Field>{name, path, Field::refused("load_inplace", "remove the adapter first", "[false]"),
                              Field::ignored("base_model_name", "There is only one model.")};
  }();
  return table;
}

const std::vector<Field>& remove_adapter_fields() {
  static const std::vector<Field> table = [] {
    Field name{"lora_name", type::text, "The adapter's name."};
    name.required = true;
    return std::vector<Field>{name, Field::ignored("lora_int_id", "Adapters are removed by name.")};
  }();
  return table;
}

const std::vector<Field>& adapter_scale_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    Field id{"id", integer, "The adapter's id in GET /lora-adapters."};
    Field scale{"scale", number, "Its scale in requests that choose no adapter.", Use::honored, -kLargestScale, kLargestScale};
    id.required = scale.required = true;
    return std::vector<Field>{id, scale, Field::ignored("path", "Adapters are identified by their id."),
                              Field::ignored("name", "Adapters are identified by their id.")};
  }();
  return table;
}

void list_adapters(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  OrderedJson list = OrderedJson::array();
  for (const AdapterList::Entry& entry : service.adapters().all()) list.push_back(entry_json(entry));
  exchange->respond(json_response(list));
}

void set_adapter_scales(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const OrderedJson body = parse_body(exchange->request().body);
  if (!body.is_array())
    throw ApiError(400, "invalid_json",
                   "the request's body is " + kind_of(body) + "; expected a list [{\"id\": 0, \"scale\": 1}]");
  std::vector<std::pair<int64_t, double>> scales;
  for (const OrderedJson& each : body) {
    const Fields fields(json_text(each), adapter_scale_fields(), service.options().strict_fields);
    const int64_t id = *fields.integer("id");
    if (std::ranges::any_of(scales, [&](const auto& s) { return s.first == id; }))
      throw invalid("id", "\"id\" is " + std::to_string(id) + " in two entries; expected each adapter once");
    scales.emplace_back(id, *fields.number("scale"));
  }
  service.adapters().set_scales(scales);
  exchange->respond(json_response({{"success", true}}));
}

void load_adapter(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Fields fields(exchange->request().body, load_adapter_fields(), service.options().strict_fields);
  OrderedJson json = entry_json(service.adapters().load_for_request(*fields.text("lora_name"), *fields.text("lora_path")));
  exchange->respond(json_response(std::move(json), fields));
}

void remove_adapter(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  const Fields fields(exchange->request().body, remove_adapter_fields(), service.options().strict_fields);
  const std::string name = *fields.text("lora_name");
  service.adapters().remove(name);
  OrderedJson json = {{"removed", name}};
  exchange->respond(json_response(std::move(json), fields));
}

}  // namespace vitrine::serve
