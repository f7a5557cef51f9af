#include "tokenizer/config.h"

#include <filesystem>

#include "base/error.h"
#include "base/json.h"

namespace vitrine {

TokenizerConfig read_tokenizer_config(const std::string& folder) {
  TokenizerConfig config;
  const std::string path = (std::filesystem::path(folder) / "tokenizer_config.json").string();
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return config;
  config.path = path;
  const Json json = read_json(path);
  if (!json.is_object()) throw FileError(path, std::string("holds a JSON ") + json.type_name() + ", expected an object");
  const auto flag = [&](const char* key) -> std::optional<bool> {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return std::nullopt;
    if (!it->is_boolean())
      throw FileError(path, std::string(key) + " is a JSON " + it->type_name() + ", expected true, false or null");
    return it->get<bool>();
  };
  const auto token = [&](const char* key) -> std::optional<std::string> {
    const auto it = json.find(key);
    if (it == json.end() || it->is_null()) return std::nullopt;
    if (it->is_string()) return it->get<std::string>();
    if (it->is_object() && it->contains("content") && (*it)["content"].is_string()) return (*it)["content"].get<std::string>();
    throw FileError(path,
                    std::string(key) + " is a JSON " + it->type_name() + ", expected a string, or an object with \"content\"");
  };
  config.add_bos = flag("add_bos_token");
  config.add_eos = flag("add_eos_token");
  config.bos = token("bos_token");
  config.eos = token("eos_token");
  config.unknown = token("unk_token");
  config.padding = token("pad_token");
  if (const auto it = json.find("added_tokens_decoder"); it != json.end() && it->is_object()) {
    for (const auto& [id, entry] : it->items()) {
      if (!entry.is_object() || !entry.contains("content") || !entry["content"].is_string())
        throw FileError(path, "added_tokens_decoder[\"" + id + "\"] has no string \"content\"");
      const auto special = entry.find("special");
      if (special != entry.end() && special->is_boolean() && special->get<bool>()) config.special.push_back(entry["content"]);
    }
  }
  return config;
}

}  // namespace vitrine
