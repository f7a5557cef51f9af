#include "train/data/conversations.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "generate/chat.h"

namespace vitrine {
namespace {

constexpr const char* kRewardKeys[] = {"completion", "finish_reason"};  // of train/rollouts.h
constexpr const char* kMessages = "a list of messages such as [{\"role\": \"user\", \"content\": \"…\"}]";

OrderedJson object_of(std::string_view line, const char* expected) {
  OrderedJson json;
  try {
    json = parse_ordered_json(line, "the JSON");
  } catch (const FileError& error) {
    throw InputError(std::string(error.what()) + "; expected " + expected);
  }
  if (!json.is_object()) throw InputError("is " + std::string(json.type_name()) + "; expected " + expected);
  return json;
}

// Errors: InputError if `messages` is no list of messages.
const OrderedJson& checked(const OrderedJson& messages, const std::string& key) {
  if (!messages.is_array() || messages.empty())
    throw InputError("\"" + key + "\" is " + (messages.is_array() ? "empty" : messages.type_name()) + "; expected " + kMessages);
  for (const OrderedJson& message : messages)
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string())
      throw InputError("\"" + key + "\" holds " +
                       message.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).substr(0, 60) + "; expected " +
                       kMessages);
  return messages;
}

OrderedJson tools_of(const OrderedJson& json) { return json.contains("tools") ? json.at("tools") : OrderedJson(); }

MaskedDocument document(MaskedIds&& masked) { return {std::move(masked.ids), std::move(masked.said)}; }

void require_template(const ChatFormat* format) {
  if (format == nullptr)
    throw InputError("holds messages, and the model has no chat template. Give one with --template, or write texts");
}

// Of texts.
MaskedDocument text_pair(const Tokenizer& tokenizer, const std::string& prompt, const std::string& answer) {
  MaskedDocument pair;
  if (tokenizer.adds_bos() && tokenizer.bos()) pair.ids.push_back(*tokenizer.bos());
  pair.scored.assign(pair.ids.size(), 0);
  for (const TokenPiece& p : tokenizer.encode_with_offsets(prompt + answer, false, Special::text)) {
    pair.ids.push_back(p.id);
    pair.scored.push_back(p.end > prompt.size() ? 1 : 0);
  }
  if (tokenizer.eos()) pair.ids.push_back(*tokenizer.eos());
  pair.scored.resize(pair.ids.size(), 1);
  return pair;
}

// For lines of texts, which need no template, or of messages, which do.
LineEncoder encoder_with_template(std::vector<MaskedDocument> (*documents)(const Tokenizer&, const ChatFormat*, std::string_view),
                                  std::shared_ptr<const Engine> engine, const std::optional<std::string>& source,
                                  const std::string& called) {
  std::shared_ptr<const ChatFormat> format;
  if (source || chat_template_of(engine->opened())) format = std::make_shared<const ChatFormat>(*engine, source, called);
  return [documents, engine = std::move(engine), format](std::string_view line) {
    return documents(engine->tokenizer(), format.get(), line);
  };
}

}  // namespace

std::vector<MaskedDocument> conversation_documents(const ChatFormat& format, std::string_view line) {
  const OrderedJson json = object_of(line, "{\"messages\": [{\"role\": \"user\", \"content\": \"…\"}, …]}");
  if (!json.contains("messages")) throw InputError(std::string("has no \"messages\"; expected ") + kMessages + " under it");
  const OrderedJson& messages = checked(json.at("messages"), "messages");
  if (std::none_of(messages.begin(), messages.end(), [](const OrderedJson& m) { return m.at("role") == "assistant"; }))
    throw InputError("no message has the role \"assistant\", so there is nothing to learn");
  std::vector<MaskedDocument> documents;
  for (MaskedIds& masked : format.masked(messages, tools_of(json))) documents.push_back(document(std::move(masked)));
  return documents;
}

std::vector<MaskedDocument> preference_documents(const Tokenizer& tokenizer, const ChatFormat* format, std::string_view line) {
  const OrderedJson json = object_of(line, "{\"prompt\": …, \"chosen\": …, \"rejected\": …}");
  for (const char* key : {"chosen", "rejected"})
    if (!json.contains(key)) throw InputError(std::string("has no \"") + key + "\"; expected a text or " + kMessages);
  const OrderedJson &chosen = json.at("chosen"), &rejected = json.at("rejected");
  const OrderedJson prompt = json.contains("prompt") ? json.at("prompt") : OrderedJson();
  std::vector<MaskedDocument> pair;
  if (chosen.is_string() || rejected.is_string()) {
    if (!chosen.is_string() || !rejected.is_string() || !prompt.is_string())
      throw InputError(
          "\"prompt\", \"chosen\" and \"rejected\" are of different kinds; expected three texts, or lists of messages");
    for (const OrderedJson* answer : {&chosen, &rejected})
      pair.push_back(text_pair(tokenizer, prompt.get<std::string>(), answer->get<std::string>()));
  } else {
    checked(chosen, "chosen");
    checked(rejected, "rejected");
    require_template(format);
    OrderedJson before = OrderedJson::array();
    size_t common = 0;
    if (prompt.is_array()) {
      before = checked(prompt, "prompt");
    } else {
      while (common + 1 < std::min(chosen.size(), rejected.size()) && chosen[common] == rejected[common])
        before.push_back(chosen[common++]);
      if (common == 0)
        throw InputError(
            "\"chosen\" and \"rejected\" begin with different messages, and \"prompt\" is no list of messages, so "
            "there is no prompt that they answer");
    }
    for (const OrderedJson* answer : {&chosen, &rejected}) {
      OrderedJson own = OrderedJson::array();
      for (size_t i = common; i < answer->size(); ++i) own.push_back((*answer)[i]);
      pair.push_back(document(format->answered(before, own, tools_of(json))));
    }
  }
  for (size_t i = 0; i < pair.size(); ++i)
    if (std::find(pair[i].scored.begin() + (pair[i].scored.empty() ? 0 : 1), pair[i].scored.end(), 1) == pair[i].scored.end())
      throw InputError(std::string("\"") + (i == 0 ? "chosen" : "rejected") + "\" has no token after the prompt's");
  return pair;
}

std::vector<MaskedDocument> prompt_documents(const Tokenizer& tokenizer, const ChatFormat* format, std::string_view line) {
  const OrderedJson json = object_of(line, "{\"prompt\": …}");
  if (!json.contains("prompt")) throw InputError(std::string("has no \"prompt\"; expected a text or ") + kMessages);
  for (const char* key : kRewardKeys)
    if (json.contains(key))
      throw InputError(std::string("has \"") + key + "\", under which a reward gets what the model wrote. Rename it");
  const OrderedJson& prompt = json.at("prompt");
  MaskedDocument one;
  if (prompt.is_string()) {
    if (tokenizer.adds_bos() && tokenizer.bos()) one.ids.push_back(*tokenizer.bos());
    for (const TokenPiece& p : tokenizer.encode_with_offsets(prompt.get<std::string>(), false, Special::text))
      one.ids.push_back(p.id);
  } else {
    checked(prompt, "prompt");
    require_template(format);
    one.ids = format->ids_of(format->rendered({.messages = prompt, .tools = tools_of(json)}));
  }
  if (one.ids.empty()) throw InputError("\"prompt\" gives no token, so there is nothing to continue");
  one.scored.assign(one.ids.size(), 0);
  return {std::move(one)};
}

LineEncoder conversation_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source,
                                 const std::string& called) {
  const auto format = std::make_shared<const ChatFormat>(*engine, source, called);
  return [engine = std::move(engine), format](std::string_view line) { return conversation_documents(*format, line); };
}

LineEncoder preference_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source,
                               const std::string& called) {
  return encoder_with_template(&preference_documents, std::move(engine), source, called);
}

LineEncoder prompt_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source,
                           const std::string& called) {
  return encoder_with_template(&prompt_documents, std::move(engine), source, called);
}

}  // namespace vitrine
