#include "generate/chat.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

namespace vitrine {
namespace {

std::string template_of(const Engine& engine) {
  std::optional<std::string> found = chat_template_of(engine.opened());
  if (!found)
    throw InputError(
        engine.name() +
        " has no chat template (chat_template.jinja, \"chat_template\" in tokenizer_config.json or "
        "tokenizer.chat_template in GGUF); it continues text: use `vitrine generate`, or give a template with --template");
  return *std::move(found);
}

// Tokens that tokenizer_config.json names beside those that every tokenizer may have: templates print them by these names.
void add_further_names(const OpenedModel& opened, OrderedJson& names) {
  const std::string path = opened.files.directory + "/tokenizer_config.json";
  if (opened.gguf != nullptr || !std::filesystem::exists(path)) return;
  const Json config = read_json(path);
  if (!config.is_object()) return;
  const auto add = [&](const std::string& name, const Json& token) {  // "<sep>", or {"content": "<sep>", …}
    const Json& content = token.is_object() && token.contains("content") ? token["content"] : token;
    if (content.is_string()) names[name] = content.get<std::string>();
  };
  for (const char* key : {"sep_token", "cls_token", "mask_token"})
    if (config.contains(key)) add(key, config[key]);
  if (!config.contains("extra_special_tokens") || !config["extra_special_tokens"].is_object()) return;
  for (const auto& [name, token] : config["extra_special_tokens"].items()) add(name, token);
}

bool inside(const std::vector<TextSpan>& input, size_t begin, size_t end) {
  return std::any_of(input.begin(), input.end(), [&](const TextSpan& s) { return s.begin <= begin && end <= s.end; });
}

}  // namespace

ChatFormat::ChatFormat(const Engine& engine, const std::optional<std::string>& source, const std::string& called)
    : engine_(engine),
      template_(source ? *source : template_of(engine),
                source && !called.empty() ? called : "chat template of " + engine.name()) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    if (id) trusted_[key] = tokenizer.piece(*id);
  };
  trusted_ = OrderedJson::object();
  add_further_names(engine.opened(), trusted_);
  name("bos_token", tokenizer.bos());
  name("eos_token", tokenizer.eos());
  name("unk_token", tokenizer.unknown());
  name("pad_token", tokenizer.padding());
}

Rendered ChatFormat::text(const std::vector<ChatMessage>& messages, bool answer) const {
  OrderedJson input = OrderedJson::object(), trusted = trusted_;
  input["messages"] = OrderedJson::array();
  for (const ChatMessage& m : messages) input["messages"].push_back({{"role", m.role}, {"content", m.content}});
  trusted["tools"] = nullptr;  // none are given, and `tools is not none` must say so
  trusted["documents"] = nullptr;
  trusted["add_generation_prompt"] = answer;
  return template_.render(input, trusted);
}

std::vector<int32_t> ChatFormat::ids(const std::vector<ChatMessage>& messages, bool answer) const {
  const Tokenizer& tokenizer = engine_.tokenizer();
  const Rendered rendered = text(messages, answer);
  const std::vector<TokenPiece> parsed = tokenizer.encode_with_offsets(rendered.text, false, Special::parse);
  const auto typed = [&](const TokenPiece& p) {
    return tokenizer.is_control(p.id) && p.begin < p.end && inside(rendered.input, p.begin, p.end);
  };
  std::vector<int32_t> ids;
  if (std::none_of(parsed.begin(), parsed.end(), typed)) {
    for (const TokenPiece& p : parsed) ids.push_back(p.id);
  } else {
    // Somebody typed a control token. The template's own ones cut the text; what lies between them is read as text.
    const std::string_view whole = rendered.text;
    size_t begin = 0;
    const auto plain = [&](size_t end) {
      const std::vector<int32_t> part = tokenizer.encode(whole.substr(begin, end - begin), false, Special::text);
      ids.insert(ids.end(), part.begin(), part.end());
    };
    for (const TokenPiece& p : parsed) {
      if (!tokenizer.is_control(p.id) || p.begin >= p.end || typed(p)) continue;
      if (p.begin > begin) plain(p.begin);
      ids.push_back(p.id);
      begin = p.end;
    }
    if (begin < whole.size()) plain(whole.size());
  }
  if (tokenizer.adds_bos() && tokenizer.bos() && (ids.empty() || ids[0] != *tokenizer.bos()))
    ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

}  // namespace vitrine
