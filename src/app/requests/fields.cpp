#include "requests/fields.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
namespace vitrine {
namespace {

std::string figure(double x) {
  OrderedJson json = x;
  if (x == std::floor(x) && std::abs(x) < 1e15) json = static_cast<int64_t>(x);
  return json.dump();
}

// Numbers such as 16.0 are whole too.
bool is_whole(const OrderedJson& value) {
  if (value.is_number_integer()) return true;
  return value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
         std::abs(value.get<double>()) < 9e15;
}

bool all(const OrderedJson& value, bool (*is)(const OrderedJson&)) {
  return value.is_array() && std::all_of(value.begin(), value.end(), is);
}

bool has_type(const OrderedJson& value, unsigned types) {
  return ((types & type::boolean) != 0 && value.is_boolean()) || ((types & type::integer) != 0 && is_whole(value)) ||
         ((types & type::number) != 0 && value.is_number()) || ((types & type::text) != 0 && value.is_string()) ||
         ((types & type::object) != 0 && value.is_object()) ||
         ((types & type::texts) != 0 && all(value, [](const OrderedJson& v) { return v.is_string(); })) ||
         ((types & type::integers) != 0 && all(value, is_whole)) || ((types & type::list) != 0 && value.is_array());
}

int64_t whole(const OrderedJson& value) {
  if (value.is_number_unsigned()) return static_cast<int64_t>(value.get<uint64_t>());  // seeds use all 64 bits
  if (value.is_number_integer()) return value.get<int64_t>();
  return static_cast<int64_t>(value.get<double>());
}

// Short enough for a message.
std::string shown(const OrderedJson& value) {
  std::string text = json_text(value);
  if (text.size() <= 60) return text;
  text.resize(57);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();
  if (!text.empty() && static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
  return text + "...";
}

}  // namespace

RequestError invalid(const std::string& field, const std::string& message, std::string code) {
  return {message, std::move(code), field};
}

Field Field::ignored(std::string name, std::string about) { return {std::move(name), ~0U, std::move(about), Use::ignored}; }

Field Field::refused(std::string name, std::string about, std::string harmless) {
  Field field{std::move(name), ~0U, std::move(about), Use::refused};
  field.harmless = std::move(harmless);
  return field;
}

std::vector<Field> joined(const std::vector<std::vector<Field>>& tables) {
  std::vector<Field> all;
  for (const std::vector<Field>& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

std::string kind_of(const OrderedJson& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "a list" : "an object";
}

void refuse_others(const OrderedJson& object, const std::string& where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += (names.empty() ? "" : ", ") + std::string(name);
    throw invalid(where + "." + key, "\"" + where + "." + key + "\" is not known; expected " + names, "unknown_parameter");
  }
}

std::string json_text(const OrderedJson& json) { return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace); }

std::string expected(const Field& field) {
  std::vector<std::string> words;
  const bool low = std::isfinite(field.low), high = std::isfinite(field.high);
  const std::string range = low && high ? " from " + figure(field.low) + " to " + figure(field.high)
                            : low       ? " of at least " + figure(field.low)
                            : high      ? " of at most " + figure(field.high)
                                        : "";
  if ((field.types & type::boolean) != 0) words.emplace_back("true or false");
  if ((field.types & type::number) != 0)
    words.push_back("a number" + range);
  else if ((field.types & type::integer) != 0)
    words.push_back("a whole number" + range);
  if ((field.types & type::text) != 0) words.emplace_back("a string");
  if ((field.types & type::object) != 0) words.emplace_back("an object");
  if ((field.types & type::list) != 0) {
    words.emplace_back("a list");
  } else {
    if ((field.types & type::texts) != 0) words.emplace_back("a list of strings");
    if ((field.types & type::integers) != 0) words.emplace_back("a list of whole numbers");
  }
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

OrderedJson parse_body(const std::string& body) {
  try {
    return parse_ordered_json(body, "the request's body");
  } catch (const InputError& e) {
    throw RequestError(e.what(), "invalid_json");
  }
}

Fields::Fields(const std::string& body, const std::vector<Field>& table, bool strict) : table_(table), body_(parse_body(body)) {
  if (!body_.is_object()) throw RequestError("the request's body is " + kind_of(body_) + "; expected an object", "invalid_json");
  for (const auto& [name, value] : body_.items()) {
    if (value.is_null()) continue;
    const Field* field = known(name);
    if (field == nullptr) {
      if (strict)
        throw invalid(name, "\"" + name + "\" is not a field of this endpoint; /openapi.json lists those that are",
                      "unknown_parameter");
      ignored_.insert(name);
      continue;
    }
    check(name, value, *field);
  }
  for (const Field& field : table_)
    if (field.required && find(field.name) == nullptr)
      throw invalid(field.name, "\"" + field.name + "\" is missing; expected " + expected(field), "missing_required_parameter");
}

void Fields::check(const std::string& name, const OrderedJson& value, const Field& field) {
  if (field.use == Use::refused) {
    const OrderedJson harmless = OrderedJson::parse(field.harmless);
    if (std::find(harmless.begin(), harmless.end(), value) != harmless.end()) return;
    throw invalid(name, "\"" + name + "\" is " + shown(value) + ", which is not supported: " + field.about,
                  "unsupported_parameter");
  }
  if (field.use == Use::ignored) {
    ignored_.insert(name);
    return;
  }
  if (!has_type(value, field.types))
    throw invalid(name, "\"" + name + "\" is " + shown(value) + "; expected " + expected(field), "invalid_type");
  if (!value.is_number()) return;
  const auto x = value.get<double>();
  if (!(x >= field.low && x <= field.high))
    throw invalid(name, "\"" + name + "\" is " + shown(value) + "; expected " + expected(field));
}

const Field* Fields::known(const std::string& name) const {
  const auto found = std::find_if(table_.begin(), table_.end(), [&](const Field& field) { return field.name == name; });
  return found == table_.end() ? nullptr : &*found;
}

const OrderedJson* Fields::find(const std::string& name) const {
  const Field* field = known(name);
  if (field == nullptr) throw std::logic_error("no table has the field " + name);
  asked_.insert(name);
  const auto found = body_.find(name);
  const OrderedJson* value = found == body_.end() || found->is_null() ? nullptr : &*found;
  for (const Field& other : table_) {  // its other names
    if (other.same_as != name) continue;
    asked_.insert(other.name);
    const auto again = body_.find(other.name);
    if (again == body_.end() || again->is_null()) continue;
    if (value != nullptr && *value != *again)
      throw invalid(other.name, "\"" + name + "\" is " + shown(*value) + " and \"" + other.name + "\", its other name, is " +
                                    shown(*again) + "; give one of them");
    value = &*again;
  }
  return value;
}

std::optional<double> Fields::number(const std::string& name) const {
  const OrderedJson* value = find(name);
  return value == nullptr ? std::nullopt : std::optional(value->get<double>());
}

std::optional<int64_t> Fields::integer(const std::string& name) const {
  const OrderedJson* value = find(name);
  return value == nullptr ? std::nullopt : std::optional(whole(*value));
}

std::optional<std::string> Fields::text(const std::string& name) const {
  const OrderedJson* value = find(name);
  return value == nullptr ? std::nullopt : std::optional(value->get<std::string>());
}

bool Fields::boolean(const std::string& name, bool fallback) const {
  const OrderedJson* value = find(name);
  return value == nullptr ? fallback : value->get<bool>();
}

std::vector<std::string> Fields::texts(const std::string& name) const {
  const OrderedJson* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  return value->get<std::vector<std::string>>();
}

std::vector<int64_t> Fields::integers(const std::string& name) const {
  const OrderedJson* value = find(name);
  std::vector<int64_t> numbers;
  if (value != nullptr)
    for (const OrderedJson& each : *value) numbers.push_back(whole(each));
  return numbers;
}

void Fields::ignore_others(const OrderedJson& object, const std::string& where, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : object.items())
    if (!value.is_null() && std::find(known.begin(), known.end(), key) == known.end()) ignore(where + "." + key);
}

const std::set<std::string>& Fields::ignored() const {
  for (const auto& [name, value] : body_.items()) {
    const Field* field = value.is_null() ? nullptr : known(name);
    if (field != nullptr && field->use == Use::honored && !asked_.contains(name))
      throw std::logic_error("the endpoint's table has the field " + name + ", and nobody read it");
  }
  return ignored_;
}

void Fields::add_ignored(OrderedJson& json) const {
  if (!ignored().empty()) json["ignored_fields"] = ignored();
}

}  // namespace vitrine
