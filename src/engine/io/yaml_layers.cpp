#include "io/yaml_layers.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "base/error.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMostFiles = 16;
constexpr const char* kExtends = "extends";

// chain: the files that extend this one, the outermost first.
YamlValue read_layer(const std::string& path, std::vector<std::string>& chain) {
  chain.push_back(path);
  YamlValue own = YamlValue::read(path);
  if (!own.is_object()) return own;
  const auto extends = own.find(kExtends);
  if (!extends) return own.without(kExtends);
  if (extends->text().empty()) extends->fail("expected the path of a YAML file, relative to this one");
  const std::string base = (fs::path(path).parent_path() / extends->text()).lexically_normal().string();
  std::error_code error;
  for (const std::string& file : chain)
    if (fs::equivalent(file, base, error))
      extends->fail("the file extends itself, by way of " + base + ". Remove one \"extends\"");
  if (chain.size() == kMostFiles)
    extends->fail("expected at most " + std::to_string(kMostFiles) + " files that extend each other");
  if (!fs::exists(base, error)) extends->fail("there is no file " + base + "; expected a path relative to this file");
  const YamlValue under = read_layer(base, chain);
  if (!under.is_object()) under.fail("expected an object of named values");
  return under.merged_with(own.without(kExtends));
}

bool is_word(const std::string& text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text[0])) == 0 && std::all_of(text.begin(), text.end(), fits);
}

std::string key_text(const std::string& key) { return is_word(key) ? key : yaml_quoted(key); }

void write_block(const YamlValue& object, const std::string& indent, std::string& to) {
  for (const auto& [key, value] : object.members()) {
    to += indent + key_text(key) + ":";
    if (value.is_object() && !value.members().empty()) {
      to += "\n";
      write_block(value, indent + "  ", to);
    } else {
      to += " " + yaml_flow(value) + "\n";
    }
  }
}

}  // namespace

YamlValue read_yaml_layers(const std::string& path, std::span<const std::string> settings) {
  std::vector<std::string> chain;
  YamlValue value = read_layer(path, chain);
  for (const std::string& setting : settings) value = value.merged_with(YamlValue::setting(setting, "--set"));
  return value;
}

std::string yaml_flow(const YamlValue& value) {
  if (value.is_null()) return "null";
  std::string text;
  if (value.is_object()) {
    for (const auto& [key, child] : value.members()) text += (text.empty() ? "" : ", ") + key_text(key) + ": " + yaml_flow(child);
    return "{" + text + "}";
  }
  if (value.is_list()) {
    for (const YamlValue& item : value.items()) text += (text.empty() ? "" : ", ") + yaml_flow(item);
    return "[" + text + "]";
  }
  text = value.text();
  return !value.is_quoted() && (is_word(text) || value.as_number()) ? text : yaml_quoted(text);
}

std::string yaml_text(const YamlValue& value) {
  if (!value.is_object() || value.members().empty()) return yaml_flow(value) + "\n";
  std::string text;
  write_block(value, "", text);
  return text;
}

}  // namespace vitrine
