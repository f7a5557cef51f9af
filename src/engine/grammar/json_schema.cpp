#include "grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "grammar/closed_objects.h"
#include "grammar/patterns.h"
#include "grammar/regex_cost.h"
#include "grammar/schemas.h"

namespace vitrine {
namespace {

// Between two parts of a JSON text: nothing, a space, or a line break and an indentation. Without a limit a model may write
// spaces until its context is full.
constexpr const char* kJsonSpace = " |\\n[ \\t]{0,20}";

// llguidance follows numbers by their remainder, one state for each, and does not count them against its limits. Numbers that
// must be multiples of several have a state for each pair of remainders.
constexpr uint64_t kMostRemainders = 20000;

// llguidance compares each name of "required" with all before it.
constexpr uint64_t kMostRequiredPairs = 8'000'000;  // a third of a second

// Integers that are not limited otherwise: those that every reader of JSON holds exactly (RFC 7493, section 2.2).
constexpr int64_t kMostInteger = (int64_t{1} << 53) - 1;

constexpr size_t kMostOrders = 100;  // of the values of a list with "uniqueItems"

[[noreturn]] void refuse(const Grammar& grammar, const std::string& why) { throw InputError(grammar.source + ": " + why); }

struct SchemaPairs {
  uint64_t optional = 0, required = 0;
};

// Of all patterns and all required names of a schema. What is no schema, such as an example, may hold such keys, too.
void count_pairs(const OrderedJson& schema, SchemaPairs& pairs) {
  if (schema.is_object() || schema.is_array())
    for (const OrderedJson& inside : schema) count_pairs(inside, pairs);
  if (!schema.is_object()) return;
  if (const auto pattern = schema.find("pattern"); pattern != schema.end() && pattern->is_string())
    pairs.optional += optional_pairs(pattern->get_ref<const std::string&>());
  if (const auto patterns = schema.find("patternProperties"); patterns != schema.end() && patterns->is_object())
    for (const auto& [pattern, value] : patterns->items()) pairs.optional += optional_pairs(pattern);
  if (const auto required = schema.find("required"); required != schema.end() && required->is_array())
    pairs.required += required->size() * required->size() / 2;
}

// The digits of a number without point and exponent, as 25 of 0.25; nothing if that is too large to be of use.
std::optional<uint64_t> digits_of(const OrderedJson& number) {
  const std::string text = number.dump();
  uint64_t value = 0;
  for (const char c : text.substr(0, text.find('e'))) {
    if (c < '0' || c > '9') continue;
    value = value * 10 + static_cast<uint64_t>(c - '0');
    if (value > kMostRemainders * 1000) return {};
  }
  if (number.is_number_float())
    while (value > 0 && value % 10 == 0) value /= 10;
  return value;
}

void check_multiples(const Grammar& grammar, const OrderedJson& schema, uint64_t& states) {
  if (schema.is_object() || schema.is_array())
    for (const OrderedJson& inside : schema) check_multiples(grammar, inside, states);
  if (!schema.is_object()) return;
  const auto multiple = schema.find("multipleOf");
  if (multiple == schema.end() || !multiple->is_number()) return;
  const std::optional<uint64_t> digits = digits_of(*multiple);
  if (digits && *digits > 0) states = std::lcm(states, *digits);  // both are small
  if (!digits || states > kMostRemainders)
    refuse(grammar,
           "multipleOf " + multiple->dump() +
               " is too costly: the smallest number that all of multipleOf divide, written without points, may have up to " +
               std::to_string(kMostRemainders));
}

// A format that llguidance does not know says nothing about the text: in JSON Schema 2020-12 formats are annotations.
void drop_unknown_format(OrderedJson& schema) {
  constexpr std::array kFormats = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"};
  const auto format = schema.find("format");
  if (format != schema.end() && std::ranges::none_of(kFormats, [&](const char* known) { return *format == known; }))
    schema.erase("format");
}

void limit_integer(OrderedJson& schema) {
  const auto type = schema.find("type");
  if (type == schema.end()) return;
  const OrderedJson types = type->is_array() ? *type : OrderedJson::array({*type});
  const auto has = [](const OrderedJson& list, const char* word) { return std::ranges::find(list, word) != list.end(); };
  if (!has(types, "integer") || has(types, "number")) return;
  for (const char* elsewhere : {"enum", "const", "allOf", "anyOf", "oneOf", "$ref"})
    if (schema.contains(elsewhere)) return;
  // A limit of one side may lie beyond that of the other.
  const auto limit = [&](const char* name, const char* exclusive) -> const OrderedJson* {
    for (const char* key : {name, exclusive})
      if (const auto value = schema.find(key); value != schema.end() && *value != false) return &*value;
    return nullptr;
  };
  const OrderedJson *low = limit("minimum", "exclusiveMinimum"), *high = limit("maximum", "exclusiveMaximum");
  const bool caps = high == nullptr && (low == nullptr || (low->is_number() && low->get<double>() < kMostInteger));
  const bool floors = low == nullptr && (high == nullptr || (high->is_number() && high->get<double>() > -kMostInteger));
  if (caps) schema["maximum"] = kMostInteger;
  if (floors) schema["minimum"] = -kMostInteger;
}

// The values that a schema lists; empty: it does not.
std::vector<OrderedJson> listed_values(const OrderedJson& schema, const OrderedJson& whole) {
  if (!schema.is_object()) return {};
  if (const OrderedJson* target = referenced(schema, whole); target != nullptr && !target->contains("$ref"))
    return listed_values(*target, whole);
  std::vector<OrderedJson> values;
  if (const auto one = schema.find("const"); one != schema.end()) values.push_back(*one);
  if (const auto list = schema.find("enum"); list != schema.end() && list->is_array() && values.empty())
    for (const OrderedJson& value : *list)
      if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  if (values.empty() && schema.value("type", OrderedJson()) == "boolean") values = {true, false};
  return values;
}

// Names that are listed, or that match a pattern, are properties; as pydantic writes dict[Literal["a", "b"], int].
void rewrite_property_names(OrderedJson& schema, const OrderedJson& whole) {
  if (!schema.contains("propertyNames") || schema.contains("properties") || schema.contains("patternProperties")) return;
  const OrderedJson names = schema["propertyNames"], value = schema.value("additionalProperties", OrderedJson(true));
  const std::vector<OrderedJson> listed = listed_values(names, whole);
  const OrderedJson pattern = names.is_object() ? names.value("pattern", OrderedJson()) : OrderedJson();
  if (!listed.empty() && std::ranges::all_of(listed, [](const OrderedJson& name) { return name.is_string(); })) {
    OrderedJson properties = OrderedJson::object();
    for (const OrderedJson& name : listed) properties[name.get<std::string>()] = value;
    schema["properties"] = std::move(properties);
  } else if (pattern.is_string()) {
    schema["patternProperties"] = {{pattern.get<std::string>(), value}};
  } else {
    return;
  }
  schema.erase("propertyNames");
  schema["additionalProperties"] = false;
}

// All lists of `low` to `high` of the values, each at most once; nothing: there are more than kMostOrders.
std::optional<OrderedJson> orders(const std::vector<OrderedJson>& values, size_t low, size_t high) {
  OrderedJson all = OrderedJson::array();
  std::vector<OrderedJson> lists = {OrderedJson::array()};
  for (size_t size = 0; size <= high && !lists.empty(); ++size) {
    if (size >= low)
      for (const OrderedJson& list : lists) all.push_back(list);
    std::vector<OrderedJson> longer;
    for (const OrderedJson& list : lists)
      for (const OrderedJson& value : values)
        if (std::ranges::find(list, value) == list.end()) {
          longer.push_back(list);
          longer.back().push_back(value);
        }
    if (all.size() > kMostOrders || longer.size() > kMostOrders) return {};
    lists = std::move(longer);
  }
  return all;
}

// A grammar cannot remember what a list has. Lists of few listed values are enumerated; longer ones have as many items as there
// are values at most.
void make_items_unique(OrderedJson& schema, const OrderedJson& whole) {
  const auto unique = schema.find("uniqueItems");
  if (unique == schema.end()) return;
  const bool wanted = *unique == true;
  schema.erase("uniqueItems");
  if (!wanted || !schema.contains("items") || schema.contains("prefixItems")) return;
  const std::vector<OrderedJson> values = listed_values(schema["items"], whole);
  if (values.empty()) return;
  const auto size = [&](const char* key, size_t otherwise) {
    const auto value = schema.find(key);
    return value != schema.end() && value->is_number_unsigned() ? value->get<size_t>() : otherwise;
  };
  const size_t low = size("minItems", 0), high = std::min(size("maxItems", values.size()), values.size());
  const std::optional<OrderedJson> all = low <= high ? orders(values, low, high) : std::nullopt;
  if (!all) {
    schema["maxItems"] = high;
    return;
  }
  for (const char* key : {"items", "minItems", "maxItems"}) schema.erase(key);
  schema["enum"] = *all;
}

void set_space(OrderedJson& schema, const std::optional<std::string>& space) {
  OrderedJson& options = schema["x-guidance"];
  if (!options.is_object()) options = OrderedJson::object();
  if (space && space->empty()) {
    options.erase("whitespace_pattern");
    options["whitespace_flexible"] = false;
  } else if (space) {
    options["whitespace_pattern"] = *space;
  } else if (!options.contains("whitespace_pattern") && !options.contains("whitespace_flexible")) {
    options["whitespace_pattern"] = kJsonSpace;
  }
  // Alternatives of oneOf that may overlap, such as those that pydantic tells apart by a property with a default.
  if (!options.contains("coerce_one_of")) options["coerce_one_of"] = true;
}

}  // namespace

std::string json_schema(const Grammar& grammar) {
  OrderedJson schema = parse_ordered_json(grammar.text, grammar.source);
  if (!schema.is_object() && !schema.is_boolean())
    refuse(grammar,
           std::string("is ") + schema.type_name() + "; a JSON schema is an object, such as {\"type\": \"object\"}, or true");
  uint64_t states = 1;
  check_multiples(grammar, schema, states);
  SchemaPairs pairs;
  count_pairs(schema, pairs);
  if (grammar.space) pairs.optional += optional_pairs(*grammar.space);
  check_optional_pairs(pairs.optional, grammar.source);
  if (pairs.required > kMostRequiredPairs) refuse(grammar, "has too many names in \"required\": thousands are too costly");
  if (schema == false) refuse(grammar, "the schema false allows no text");
  if (schema.is_boolean()) schema = OrderedJson::object();
  const OrderedJson whole = schema;
  each_schema(schema, [&](OrderedJson& one) {
    rewrite_property_names(one, whole);
    return true;
  });
  close_objects(schema, grammar.source);
  each_schema(schema, [&](OrderedJson& one) {
    drop_unknown_format(one);
    limit_integer(one);
    make_items_unique(one, whole);
    split_look_ahead(one);
    return true;
  });
  set_space(schema, grammar.space);
  return schema.dump();
}

}  // namespace vitrine
