#include "grammar/closed_objects.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/error.h"
#include "grammar/grammar.h"
#include "grammar/schemas.h"

namespace vitrine {
namespace {

constexpr size_t kMostParts = 4000;   // looked at, in all compositions
constexpr size_t kMostCopies = 1000;  // of references

bool holds_parts(const std::string& keyword) { return keyword == "allOf" || keyword == "anyOf" || keyword == "oneOf"; }

bool has_object(const OrderedJson& schema, const char* key) {
  const auto value = schema.find(key);
  return value != schema.end() && value->is_object();
}

// Whether several parts of a schema say which properties there may be.
bool is_composed(const OrderedJson& schema) {
  size_t parts = 0;
  for (const auto& [key, value] : schema.items()) {
    if (key == "properties" || key == "anyOf" || key == "oneOf" || key == "$ref") ++parts;
    if (key == "allOf" && value.is_array()) parts += value.size();
  }
  return parts > 1;
}

class Closer {
 public:
  Closer(const OrderedJson& schema, const std::string& source) : whole_(schema), source_(source) {}

  /// is_part: of a composed schema, which is closed instead.
  void close(OrderedJson& schema, bool is_part) {
    if (schema.is_array())
      for (OrderedJson& one : schema) close(one, is_part);
    if (!schema.is_object()) return;
    Names names;
    if (!is_part && is_composed(schema)) gather(schema, names);
    if (!names.all.empty()) {
      copy_references(schema);
      if (!names.open) name(schema, names);
      is_part = true;
    } else if (!is_part && (has_object(schema, "properties") || has_object(schema, "patternProperties"))) {
      gather(schema, names);
      if (!schema.contains("additionalProperties")) name(schema, names);
    }
    for (auto& [key, value] : schema.items()) {
      if (holds_value(key)) continue;
      if (holds_named_schemas(key) && value.is_object())
        for (OrderedJson& named : value) close(named, false);
      else
        close(value, is_part && holds_parts(key));
    }
  }

 private:
  struct Names {
    std::vector<std::string> all;      // in order
    std::set<std::string> known;       // the same
    std::set<const OrderedJson*> met;  // references
    bool open = false;                 // a part has its own rule for others
    void add(const std::string& name) {
      if (known.insert(name).second) all.push_back(name);
    }
  };

  [[noreturn]] void refuse(const char* why) const { throw InputError(source_ + ": " + why); }

  void gather_part(const OrderedJson& part, Names& names) {
    if (++parts_ > kMostParts) refuse("has too many parts in allOf, anyOf and oneOf of objects");
    gather(part, names);
  }

  void gather(const OrderedJson& schema, Names& names) {
    if (!schema.is_object()) return;
    for (const auto& [key, value] : schema.items()) {
      if (key == "properties" && value.is_object())
        for (const auto& [name, property] : value.items()) names.add(name);
      if (key == "patternProperties" || (key == "additionalProperties" && value != false)) names.open = true;
      if (holds_parts(key) && value.is_array())
        for (const OrderedJson& part : value) gather_part(part, names);
    }
    const OrderedJson* target = referenced(schema, whole_);
    if (target != nullptr && names.met.insert(target).second) gather_part(*target, names);
    if (const auto required = schema.find("required");
        required != schema.end() && required->is_array() && !names.all.empty() && !names.open)
      for (const OrderedJson& name : *required)
        if (name.is_string()) names.add(name.get<std::string>());
    if (names.all.size() > kMostOrderedKeys) refuse("has objects of too many properties");
  }

  // A definition is closed where it stands alone, so a part of others is a copy that stays open.
  void copy_references(OrderedJson& schema) {
    if (!schema.is_object()) return;
    if (const OrderedJson* target = referenced(schema, whole_)) {
      copied_bytes_ += target->dump().size();
      if (++copies_ > kMostCopies || copied_bytes_ > kMostGrammarBytes)
        refuse("is composed of too many references, or of itself: $ref in allOf, anyOf or oneOf beside other properties");
      schema.erase("$ref");
      OrderedJson& parts = schema["allOf"];
      if (!parts.is_array()) parts = OrderedJson::array();
      parts.push_back(*target);
    }
    for (auto& [key, value] : schema.items())
      if (holds_parts(key) && value.is_array())
        for (OrderedJson& part : value) copy_references(part);
  }

  static void name(OrderedJson& schema, const Names& names) {
    OrderedJson properties = OrderedJson::object();
    OrderedJson& own = schema["properties"];
    for (const std::string& name : names.all)
      properties[name] = own.is_object() && own.contains(name) ? own[name] : OrderedJson(true);
    own = std::move(properties);
    schema["additionalProperties"] = false;
  }

  const OrderedJson whole_;
  const std::string& source_;
  size_t parts_ = 0, copies_ = 0, copied_bytes_ = 0;
};

}  // namespace

void close_objects(OrderedJson& schema, const std::string& source) { Closer(schema, source).close(schema, false); }

}  // namespace vitrine
