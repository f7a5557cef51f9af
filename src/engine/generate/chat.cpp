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

// What follows `announced`, the conversation up to where the assistant's turn begins.
TextSpan answer_in(const std::string& text, const std::string& announced, const char* advice) {
  if (text.starts_with(announced)) return {announced.size(), text.size()};
  const size_t at =
      static_cast<size_t>(std::mismatch(text.begin(), text.end(), announced.begin(), announced.end()).first - text.begin());
  throw InputError("the chat template writes \"" + text.substr(at, 40) + "\" at byte " + std::to_string(at) +
                   " of a conversation with the assistant's turn, and \"" + announced.substr(at, 40) +
                   "\" before that turn is there, so it cannot be told what the assistant said. " + advice);
}

}  // namespace

std::vector<uint8_t> said_after(std::span<const int32_t> prompt, std::span<const int32_t> whole) {
  const auto said = std::mismatch(whole.begin(), whole.end(), prompt.begin(), prompt.end()).first;
  std::vector<uint8_t> marks(static_cast<size_t>(said - whole.begin()), 0);
  marks.resize(whole.size(), 1);
  return marks;
}

ChatFormat::ChatFormat(const Engine& engine, const std::optional<std::string>& source, const std::string& called)
    : engine_(engine),
      source_(source ? *source : template_of(engine)),
      template_(source_, source && !called.empty() ? called : "chat template of " + engine.name()) {
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

Rendered ChatFormat::render(const OrderedJson& messages, const OrderedJson& tools, bool answer,
                            const OrderedJson& variables) const {
  OrderedJson input = variables, trusted = trusted_;
  input["messages"] = messages;
  if (tools.is_null())
    trusted["tools"] = nullptr;  // none are given, and `tools is not none` must say so
  else
    input["tools"] = tools;
  trusted["documents"] = nullptr;
  trusted["add_generation_prompt"] = answer;
  return template_.render(input, trusted);
}

Rendered ChatFormat::text(const std::vector<ChatMessage>& messages, bool answer) const {
  OrderedJson list = OrderedJson::array();
  for (const ChatMessage& m : messages) list.push_back({{"role", m.role}, {"content", m.content}});
  return render(list, nullptr, answer);
}

std::vector<int32_t> ChatFormat::ids(const std::vector<ChatMessage>& messages, bool answer) const {
  return ids_of(text(messages, answer));
}

Rendered ChatFormat::rendered(const Conversation& c) const {
  Rendered made = render(c.messages, c.tools, c.answer, c.variables);
  if (!c.begun.empty()) {
    const size_t begin = made.text.size();
    made.text += c.begun;
    if (!made.input.empty() && made.input.back().end == begin)
      made.input.back().end = made.text.size();  // a control token spelled across the border is typed as well
    else
      made.input.push_back({begin, made.text.size()});
  }
  return made;
}

std::vector<int32_t> ChatFormat::ids_of(const Rendered& rendered) const {
  std::vector<int32_t> ids;
  for (const TokenPiece& p : pieces(rendered)) ids.push_back(p.id);
  return ids;
}

bool ChatFormat::reads_tools() const {
  const OrderedJson tool = {
      {"type", "function"},
      {"function", {{"name", "a_tool"}, {"description", ""}, {"parameters", {{"type", "object"}, {"properties", {}}}}}}};
  const OrderedJson messages = OrderedJson::array({{{"role", "user"}, {"content", "text"}}});
  try {
    return render(messages, OrderedJson::array({tool}), true).text != render(messages, nullptr, true).text;
  } catch (const InputError&) {
    return false;  // it cannot render even this
  }
}

// With the places in the text that they stand for.
std::vector<TokenPiece> ChatFormat::pieces(const Rendered& rendered) const {
  const Tokenizer& tokenizer = engine_.tokenizer();
  std::vector<TokenPiece> parsed = tokenizer.encode_with_offsets(rendered.text, false, Special::parse);
  const auto typed = [&](const TokenPiece& p) {
    return tokenizer.is_control(p.id) && p.begin < p.end && inside(rendered.input, p.begin, p.end);
  };
  if (std::any_of(parsed.begin(), parsed.end(), typed)) {
    // Somebody typed a control token. The template's own ones cut the text; what lies between them is read as text.
    std::vector<TokenPiece> all;
    const std::string_view whole = rendered.text;
    size_t begin = 0;
    const auto plain = [&](size_t end) {
      for (TokenPiece p : tokenizer.encode_with_offsets(whole.substr(begin, end - begin), false, Special::text)) {
        p.begin += begin, p.end += begin;
        all.push_back(p);
      }
    };
    for (const TokenPiece& p : parsed) {
      if (!tokenizer.is_control(p.id) || p.begin >= p.end || typed(p)) continue;
      if (p.begin > begin) plain(p.begin);
      all.push_back(p);
      begin = p.end;
    }
    if (begin < whole.size()) plain(whole.size());
    parsed = std::move(all);
  }
  if (tokenizer.adds_bos() && tokenizer.bos() && (parsed.empty() || parsed[0].id != *tokenizer.bos()))
    parsed.insert(parsed.begin(), {*tokenizer.bos(), 0, 0});
  return parsed;
}

// A token that lies in a marked part, if only with a byte, is marked.
MaskedIds ChatFormat::marked(const Rendered& rendered, const std::vector<TextSpan>& said) const {
  MaskedIds masked;
  size_t next = 0;
  for (const TokenPiece& p : pieces(rendered)) {
    while (next < said.size() && said[next].end <= p.begin) ++next;
    masked.ids.push_back(p.id);
    masked.said.push_back(next < said.size() && p.begin < p.end && said[next].begin < p.end ? 1 : 0);
  }
  return masked;
}

std::vector<MaskedIds> ChatFormat::masked(const OrderedJson& messages, const OrderedJson& tools) const {
  const Rendered whole = render(messages, tools, false);
  if (!whole.generated.empty()) return {marked(whole, whole.generated)};
  struct Turn {
    Rendered text;  // up to its end
    TextSpan said;
  };
  std::vector<Turn> turns;
  bool rewritten = false;
  OrderedJson before = OrderedJson::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].value("role", "") == "assistant") {
      OrderedJson after = before;
      after.push_back(messages[i]);
      Turn turn{render(after, tools, false), {}};
      turn.said = answer_in(turn.text.text, render(before, tools, true).text,
                            "Put {% generation %} and {% endgeneration %} around its turns in the template");
      rewritten |= !whole.text.starts_with(turn.text.text);
      turns.push_back(std::move(turn));
    }
    before.push_back(messages[i]);
  }
  std::vector<MaskedIds> all;
  if (rewritten) {
    for (const Turn& turn : turns) all.push_back(marked(turn.text, {turn.said}));
    return all;
  }
  std::vector<TextSpan> said;
  for (const Turn& turn : turns) said.push_back(turn.said);
  return {marked(whole, said)};
}

MaskedIds ChatFormat::answered(const OrderedJson& prompt, const OrderedJson& answer, const OrderedJson& tools) const {
  OrderedJson all = prompt;
  for (const OrderedJson& message : answer) all.push_back(message);
  const Rendered whole = render(all, tools, false), announced = render(prompt, tools, true);
  answer_in(whole.text, announced.text, "Give another template with --template");
  MaskedIds masked{ids_of(whole), {}};
  masked.said = said_after(ids_of(announced), masked.ids);
  return masked;
}

}  // namespace vitrine
