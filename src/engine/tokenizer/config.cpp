#include "tokenizer/config.h"

#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

Json parse_object(std::string_view text, const std::string& path) {
  Json json = parse_json(text, path);
  if (!json.is_object()) throw FileError(path, std::string("holds a JSON ") + json.type_name() + ", expected an object");
  return json;
}

void add_declared(TokenizerConfig& config, const std::string& path, std::string field, AddedToken token) {
  if (token.content.size() > 4096)
    throw FileError(path, fmt::format("{}: the token has {} bytes, more than 4096", field, token.content.size()));
  if (!token.content.empty()) config.added.push_back({std::move(token), path, std::move(field)});
}

// {"32000": {"content": "<tool>", "special": false, …}, …}
void read_decoder(TokenizerConfig& config, const Json& decoder) {
  const std::string& path = config.path;
  if (!decoder.is_object())
    throw FileError(path, std::string("added_tokens_decoder is a JSON ") + decoder.type_name() + ", expected an object");
  for (const auto& [key, value] : decoder.items()) {
    const Json& entry = value;
    const std::string field = "added_tokens_decoder[\"" + key + "\"]";
    AddedToken token;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (error != std::errc() || end != key.data() + key.size() || token.id < 0)
      throw FileError(path, fmt::format("{} stands under \"{}\", expected a token id from 0 to {}", field, key, INT32_MAX));
    if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string())
      throw FileError(path, field + " has no string \"content\"");
    token.content = entry["content"];
    const auto flag = [&](const char* name, bool otherwise) {
      const auto it = entry.find(name);
      if (it == entry.end() || it->is_null()) return otherwise;
      if (!it->is_boolean())
        throw FileError(path, fmt::format("{}: \"{}\" is a JSON {}, expected true or false", field, name, it->type_name()));
      return it->get<bool>();
    };
    token.single_word = flag("single_word", false);
    token.lstrip = flag("lstrip", false);
    token.rstrip = flag("rstrip", false);
    token.special = flag("special", false);
    token.normalized = flag("normalized", !token.special);
    add_declared(config, path, field, std::move(token));
  }
}

// {"<tool>": 32000, …}
void read_added_tokens(TokenizerConfig& config, std::string_view text, const std::string& path,
                       const std::set<std::string>& special) {
  const Json json = parse_object(text, path);
  for (const auto& [content, id] : json.items()) {
    const std::string field = "\"" + content + "\"";
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
      throw FileError(path, fmt::format("{} is {}, expected a token id from 0 to {}", field,
                                        id.is_number() ? id.dump() : std::string("a JSON ") + id.type_name(), INT32_MAX));
    AddedToken token;
    token.id = id.get<int32_t>(), token.content = content, token.special = special.contains(content);
    token.normalized = !token.special;
    add_declared(config, path, field, std::move(token));
  }
}

}  // namespace

TokenizerConfig read_tokenizer_config(const std::string& folder, bool added_file) {
  std::map<std::string, std::string> files;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"}) {
    const std::string path = (fs::path(folder) / name).string();
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) files[name] = read_file(path, size_t{256} << 20);
  }
  return parse_tokenizer_config(files, folder, added_file);
}

TokenizerConfig parse_tokenizer_config(const std::map<std::string, std::string>& files, const std::string& folder,
                                       bool added_file) {
  TokenizerConfig config;
  const auto path_of = [&](const char* name) { return (fs::path(folder) / name).string(); };
  const std::string path = path_of("tokenizer_config.json"), added_path = path_of("added_tokens.json");
  Json json = Json::object();
  if (const auto file = files.find("tokenizer_config.json"); file != files.end()) {
    config.path = path;
    json = parse_object(file->second, path);
  }
  const std::string map_path = path_of("special_tokens_map.json");
  Json map = Json::object();  // as in transformers it goes before the configuration where that has no added_tokens_decoder
  if (const auto file = files.find("special_tokens_map.json"); file != files.end() && !json.contains("added_tokens_decoder"))
    map = parse_object(file->second, map_path);
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return std::nullopt;
    if (!it->is_boolean())
      throw FileError(path, std::string(key) + " is a JSON " + it->type_name() + ", expected true, false or null");
    return it->get<bool>();
  };
  const auto naming = [&](const char* key) -> const Json& { return map.contains(key) ? map : json; };
  const auto said_null = [&](const char* key) { return naming(key).contains(key) && naming(key)[key].is_null(); };
  const auto token = [&](const char* key) -> std::optional<std::string> {
    const Json& from = naming(key);
    const auto it = from.find(key);
    if (it == from.end() || it->is_null()) return std::nullopt;
    if (it->is_string()) return it->get<std::string>();
    if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) return (*it)["content"].get<std::string>();
    throw FileError(&from == &map ? map_path : path,
                    std::string(key) + " is a JSON " + it->type_name() + ", expected a string, or an object with \"content\"");
  };
  if (const auto it = json.find("tokenizer_class"); it != json.end() && it->is_string()) config.tokenizer_class = *it;
  config.add_bos = flag("add_bos_token");
  config.add_eos = flag("add_eos_token");
  config.add_prefix_space = flag("add_prefix_space");
  config.splits_special = flag("split_special_tokens").value_or(false);
  config.legacy = flag("legacy");
  config.bos = token("bos_token");
  config.eos = token("eos_token");
  config.unknown = token("unk_token");
  config.padding = token("pad_token");
  config.separator = token("sep_token");
  config.classifier = token("cls_token");
  config.mask = token("mask_token");
  config.lower_case = flag("do_lower_case");
  config.space_ideographs = flag("tokenize_chinese_chars");
  config.strip_accents = flag("strip_accents");
  config.no_bos = said_null("bos_token");
  config.no_eos = said_null("eos_token");

  for (const auto& content :
       {config.bos, config.eos, config.unknown, config.separator, config.padding, config.classifier, config.mask})
    if (content) config.named.push_back(*content);
  const std::set<std::string> named(config.named.begin(), config.named.end());  // special, whatever the token's flags say
  for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
    const auto list = naming(key).find(key);
    if (list == naming(key).end() || !list->is_array()) continue;
    for (const Json& entry : *list) {
      const Json& content = entry.is_object() && entry.contains("content") ? entry["content"] : entry;
      if (content.is_string()) config.named.push_back(content.get<std::string>());
    }
  }
  // As in transformers, added_tokens.json counts only where there is no added_tokens_decoder.
  if (const auto it = json.find("added_tokens_decoder"); it != json.end() && !it->is_null()) {
    read_decoder(config, *it);
  } else if (const auto file = files.find("added_tokens.json"); added_file && file != files.end()) {
    read_added_tokens(config, file->second, added_path, {config.named.begin(), config.named.end()});
  }
  for (DeclaredToken& declared : config.added)
    declared.token.special = declared.token.special || named.contains(declared.token.content);
  return config;
}

std::string class_that_cuts(const std::string& folder, const TokenizerConfig& config) {
  std::string type;
  const std::string model_path = (fs::path(folder) / "config.json").string();
  std::error_code ignored;
  if (fs::is_regular_file(model_path, ignored)) {
    const Json model = read_json(model_path);
    if (model.is_object() && model.contains("model_type") && model["model_type"].is_string()) type = model["model_type"];
  }
  if (type == "qwen2") return "Qwen2Tokenizer";
  std::string name = config.tokenizer_class.value_or(type == "gpt2"       ? "GPT2Tokenizer"
                                                     : type == "roformer" ? "RoFormerTokenizer"
                                                                          : "");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

}  // namespace vitrine
