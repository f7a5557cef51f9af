#include "tokenizer/components.h"

#include <fmt/format.h>

#include "base/error.h"

namespace vitrine {

Component::Component(const Json& json, const std::string& path, std::string field, bool typed)
    : json_(&json), path_(&path), field_(std::move(field)) {
  if (!json.is_object()) throw FileError(path, fmt::format("{} is a JSON {}, expected an object", field_, json.type_name()));
  if (typed) type_ = text("type");
}

void Component::fail(const std::string& problem) const { throw FileError(*path_, fmt::format("{}: {}", field_, problem)); }

void Component::unknown(const char* what, std::string_view known) const {
  fail(fmt::format("unsupported {} \"{}\"; supported are {}", what, type_, known));
}

bool Component::has(const char* key) const {
  const auto it = json_->find(key);
  return it != json_->end() && !it->is_null();
}

const Json& Component::value(const char* key) const {
  const auto it = json_->find(key);
  if (it == json_->end() || it->is_null()) fail(fmt::format("has no \"{}\"", key));
  return *it;
}

std::string Component::text(const char* key) const {
  const Json& v = value(key);
  if (!v.is_string()) fail(fmt::format("\"{}\" is a JSON {}, expected a string", key, v.type_name()));
  return v.get<std::string>();
}

std::string Component::text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }

bool Component::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const Json& v = value(key);
  if (!v.is_boolean()) fail(fmt::format("\"{}\" is a JSON {}, expected true or false", key, v.type_name()));
  return v.get<bool>();
}

int64_t Component::integer(const char* key) const {
  const Json& v = value(key);
  if (!v.is_number_integer() || (v.is_number_unsigned() && v.get<uint64_t>() > uint64_t(INT64_MAX)))
    fail(fmt::format("\"{}\" is {}, expected a whole number", key, v.is_number() ? v.dump() : v.type_name()));
  return v.get<int64_t>();
}

Component Component::child(const char* key, bool typed) const { return {value(key), *path_, field_ + "." + key, typed}; }

std::vector<Component> Component::children(const char* key, bool typed) const {
  const Json& v = value(key);
  if (!v.is_array()) fail(fmt::format("\"{}\" is a JSON {}, expected an array", key, v.type_name()));
  std::vector<Component> out;
  out.reserve(v.size());
  for (size_t i = 0; i < v.size(); ++i) out.emplace_back(v[i], *path_, fmt::format("{}.{}[{}]", field_, key, i), typed);
  return out;
}

Pattern::Pattern(const Component& owner, const char* key) {
  const Component pattern = owner.child(key, false);
  if (pattern.has("String")) {
    literal_ = pattern.text("String");
  } else if (pattern.has("Regex")) {
    regexes_.emplace_back(pattern.text("Regex"), owner.path(), pattern.field());
  } else {
    pattern.fail("expected {\"String\": …} or {\"Regex\": …}");
  }
}

}  // namespace vitrine
