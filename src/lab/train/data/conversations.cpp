#include "train/data/conversations.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "generate/chat.h"

namespace vitrine {
namespace {

constexpr const char* kRewardKeys[] = {"completion", "finish_reason"};  // of train/rollouts.h
constexpr const char* kMessages = "a list of messages such as [{\"role\": \"user\", \"content\": \"…\"}]";
constexpr const char* kTurns = "a list of turns such as [{\"from\": \"human\", \"value\": \"…\"}]";

// Whom turns of ShareGPT are from, and the roles that chat templates know.
constexpr std::pair<const char*, const char*> kRoles[] = {
    {"human", "user"},      {"user", "user"},     {"gpt", "assistant"}, {"chatgpt", "assistant"}, {"assistant", "assistant"},
    {"model", "assistant"}, {"system", "system"}, {"tool", "tool"},     {"observation", "tool"},
};

// https://github.com/tatsu-lab/stanford_alpaca, with a line end after "### Response:", as alpaca-lora and those after it have it.
constexpr const char* kAlpaca =
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ m['content'] + '\\n\\n' }}{% elif m['role'] == 'user' %}"
    "{% if loop.first %}{{ 'Below is an instruction that describes a task' }}"
    "{% if m['input'] %}{{ ', paired with an input that provides further context' }}{% endif %}"
    "{{ '. Write a response that appropriately completes the request.\\n\\n' }}{% endif %}"
    "{{ '### Instruction:\\n' + m['content'] + '\\n\\n' }}"
    "{% if m['input'] %}{{ '### Input:\\n' + m['input'] + '\\n\\n' }}{% endif %}{{ '### Response:\\n' }}"
    "{% else %}{{ m['content'] }}{{ eos_token }}{% if not loop.last %}{{ '\\n\\n' }}{% endif %}{% endif %}{% endfor %}";

std::string some_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace).substr(0, 60);
}

// Errors: InputError for anything but a list of objects with a text under `role`.
const OrderedJson& checked(const OrderedJson& messages, const std::string& key, const char* role = "role",
                           const char* expected = kMessages) {
  if (!messages.is_array() || messages.empty())
    throw InputError("\"" + key + "\" is " + (messages.is_array() ? "empty" : messages.type_name()) + "; expected " + expected);
  for (const OrderedJson& message : messages)
    if (!message.is_object() || !message.contains(role) || !message.at(role).is_string())
      throw InputError("\"" + key + "\" holds " + some_of(message) + "; expected " + expected);
  return messages;
}

const std::string& text_of(const OrderedJson& json, const char* key) {
  if (!json.at(key).is_string())
    throw InputError(std::string("\"") + key + "\" is " + json.at(key).type_name() + "; expected a text");
  return json.at(key).get_ref<const std::string&>();
}

// A list, or the list as JSON in a text, as data sets of one type a column have it.
OrderedJson tools_of(const OrderedJson& json) {
  if (!json.contains("tools")) return {};
  const OrderedJson& tools = json.at("tools");
  if (!tools.is_string()) return tools;
  if (tools == "") return {};
  try {
    return parse_ordered_json(tools.get_ref<const std::string&>(), "\"tools\"");
  } catch (const FileError& error) {
    throw InputError(error.what());
  }
}

OrderedJson message(const char* role, const std::string& content) { return {{"role", role}, {"content", content}}; }

OrderedJson messages_of_sharegpt(const OrderedJson& json) {
  const OrderedJson& turns = json.at("conversations");
  if (turns.is_array() && !turns.empty() && turns[0].is_object() && turns[0].contains("role"))
    return checked(turns, "conversations");
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson& turn : checked(turns, "conversations", "from", kTurns)) {
    if (!turn.contains("value")) throw InputError("\"conversations\" holds " + some_of(turn) + "; expected " + kTurns);
    const std::string& from = text_of(turn, "from");
    const auto* const role =
        std::find_if(std::begin(kRoles), std::end(kRoles), [&](const auto& one) { return from == one.first; });
    if (role == std::end(kRoles)) {
      std::string known;
      for (const auto& one : kRoles) known += (known.empty() ? "\"" : ", \"") + std::string(one.first) + "\"";
      throw InputError("\"conversations\" has a turn from \"" + from + "\"; expected one of " + known);
    }
    messages.push_back(message(role->second, text_of(turn, "value")));
  }
  if (json.contains("system") && !json.at("system").is_null() && messages[0].at("role") != "system") {
    const std::string& system = text_of(json, "system");
    if (!system.empty()) messages.insert(messages.begin(), message("system", system));
  }
  return messages;
}

class Lines {
 public:
  Lines(std::shared_ptr<const Engine> engine, const LineOptions& options)
      : engine_(std::move(engine)), tokenizer_(engine_->tokenizer()), options_(options) {
    if (options.chat_template || chat_template_of(engine_->opened()))
      format_ = std::make_shared<const ChatFormat>(*engine_, options.chat_template, options.called);
    alpaca_ = options.chat_template || options.as_messages
                  ? format_
                  : std::make_shared<const ChatFormat>(*engine_, alpaca_template(tokenizer_), "Alpaca's template");
  }

  std::vector<MaskedDocument> documents(std::string_view line) const {
    const OrderedJson json = object_of(line, options_.content);
    const DataForm& form = form_of(json, options_.content);
    if (options_.form != nullptr && &form != options_.form)
      throw InputError("has " + named_keys(json) + ", the form " + form.expected + "; the files begin with the form " +
                       options_.form->expected + ". Prepare each form by itself; training mixes several folders");
    if (options_.content == DataContent::preferences) return preferences(json);
    if (&form == &kUnpairedForm) return {labeled(completion(json), label_of(json))};
    if (options_.content == DataContent::unpaired) {
      std::vector<MaskedDocument> both = answers(json);
      return {labeled(std::move(both[0]), true), labeled(std::move(both[1]), false)};
    }
    if (options_.content == DataContent::prompts) return {prompt(json)};
    if (&form == &kMessagesForm) return conversation(checked(json.at("messages"), "messages"), json);
    if (&form == &kShareGptForm) return conversation(messages_of_sharegpt(json), json);
    return {&form == &kAlpacaForm ? alpaca(json) : completion(json)};
  }

  std::string chat_template() const {
    const ChatFormat* const format = (options_.form == &kAlpacaForm ? alpaca_ : format_).get();
    return format == nullptr ? "" : format->source();
  }

 private:
  static const ChatFormat& there(const std::shared_ptr<const ChatFormat>& format) {
    if (format == nullptr)
      throw InputError("holds messages, and the model has no chat template. Give one with --template, or write texts");
    return *format;
  }

  std::vector<MaskedDocument> conversation(const OrderedJson& messages, const OrderedJson& json) const {
    if (std::none_of(messages.begin(), messages.end(), [](const OrderedJson& m) { return m.at("role") == "assistant"; }))
      throw InputError("no message has the role \"assistant\", so there is nothing to learn");
    std::vector<MaskedDocument> all;
    for (MaskedIds& masked : there(format_).masked(messages, tools_of(json)))
      all.push_back({std::move(masked.ids), std::move(masked.said)});
    return all;
  }

  MaskedDocument answered(const ChatFormat& format, const OrderedJson& prompt, const OrderedJson& answer,
                          const OrderedJson& tools) const {
    MaskedIds masked = format.answered(prompt, answer, tools);
    return {std::move(masked.ids), std::move(masked.said)};
  }

  std::vector<int32_t> text_ids(const std::string& text) const {
    std::vector<int32_t> ids = tokenizer_.encode(text, false, Special::text);
    if (tokenizer_.adds_bos() && tokenizer_.bos()) ids.insert(ids.begin(), *tokenizer_.bos());
    return ids;
  }

  MaskedDocument text_answer(const std::string& prompt, std::string answer) const {
    if (tokenizer_.eos()) {
      const std::string eos = tokenizer_.piece(*tokenizer_.eos());
      if (answer.ends_with(eos)) answer.resize(answer.size() - eos.size());
    }
    MaskedDocument whole{text_ids(prompt + answer), {}};
    if (tokenizer_.eos()) whole.ids.push_back(*tokenizer_.eos());
    whole.scored = said_after(text_ids(prompt), whole.ids);
    return whole;
  }

  MaskedDocument completion(const OrderedJson& json) const {
    const OrderedJson &prompt = json.at("prompt"), &completion = json.at("completion");
    MaskedDocument one;
    if (prompt.is_string() && completion.is_string() && options_.as_messages) {
      one = answered(there(format_), OrderedJson::array({message("user", prompt.get<std::string>())}),
                     OrderedJson::array({message("assistant", completion.get<std::string>())}), tools_of(json));
    } else if (prompt.is_string() && completion.is_string()) {
      one = text_answer(prompt.get<std::string>(), completion.get<std::string>());
    } else if (prompt.is_array() && completion.is_array()) {
      checked(prompt, "prompt");
      one = answered(there(format_), prompt, checked(completion, "completion"), tools_of(json));
    } else {
      throw InputError(std::string("\"prompt\" is ") + prompt.type_name() + " and \"completion\" is " + completion.type_name() +
                       "; expected two texts, or two lists of messages");
    }
    require_answer(one, "completion");
    return one;
  }

  MaskedDocument alpaca(const OrderedJson& json) const {
    for (const char* key : {"history", "system"})
      if (json.contains(key) && !json.at(key).empty() && json.at(key) != "")
        throw InputError(std::string("has \"") + key + "\", which this form is not read with. Write such lines as " +
                         kMessagesForm.expected);
    OrderedJson user = message("user", text_of(json, "instruction"));
    if (json.contains("input") && !json.at("input").is_null() && !text_of(json, "input").empty()) {
      if (alpaca_ == format_)
        user["content"] = text_of(json, "instruction") + "\n" + text_of(json, "input");
      else
        user["input"] = text_of(json, "input");
    }
    MaskedDocument one = answered(there(alpaca_), OrderedJson::array({user}),
                                  OrderedJson::array({message("assistant", text_of(json, "output"))}), {});
    require_answer(one, "output");
    return one;
  }

  static bool label_of(const OrderedJson& json) {
    const OrderedJson& label = json.at("label");
    if (!label.is_boolean())
      throw InputError("\"label\" is " + some_of(label) + "; expected true for a desirable completion, false for another");
    return label.get<bool>();
  }

  // With all of the answer marked, and the label (ShardHeader).
  static MaskedDocument labeled(MaskedDocument one, bool desirable) {
    std::fill(std::find(one.scored.begin() + 1, one.scored.end(), 1), one.scored.end(), 1);
    one.scored[0] = desirable ? 1 : 0;
    return one;
  }

  // The prompt with the chosen answer, and with the rejected one.
  std::vector<MaskedDocument> answers(const OrderedJson& json) const {
    const OrderedJson &chosen = json.at("chosen"), &rejected = json.at("rejected");
    const OrderedJson prompt = json.contains("prompt") ? json.at("prompt") : OrderedJson();
    std::vector<MaskedDocument> pair;
    if (chosen.is_string() || rejected.is_string()) {
      if (!chosen.is_string() || !rejected.is_string() || !prompt.is_string())
        throw InputError(
            "\"prompt\", \"chosen\" and \"rejected\" are of different kinds; expected three texts, or lists of messages");
      for (const OrderedJson* answer : {&chosen, &rejected})
        pair.push_back(text_answer(prompt.get<std::string>(), answer->get<std::string>()));
    } else {
      checked(chosen, "chosen");
      checked(rejected, "rejected");
      OrderedJson before = OrderedJson::array();
      size_t common = 0;
      if (prompt.is_array()) {
        before = checked(prompt, "prompt");
      } else {
        while (common + 1 < std::min(chosen.size(), rejected.size()) && chosen[common] == rejected[common])
          before.push_back(chosen[common++]);
        if (common == 0)
          throw InputError(
              "\"chosen\" and \"rejected\" begin with different messages, and \"prompt\" is not a list of messages, so "
              "the prompt that they answer is unknown");
      }
      for (const OrderedJson* answer : {&chosen, &rejected}) {
        OrderedJson own = OrderedJson::array();
        for (size_t i = common; i < answer->size(); ++i) own.push_back((*answer)[i]);
        pair.push_back(answered(there(format_), before, own, tools_of(json)));
      }
    }
    require_answer(pair[0], "chosen");
    require_answer(pair[1], "rejected");
    return pair;
  }

  // Both are compared from the same token on.
  std::vector<MaskedDocument> preferences(const OrderedJson& json) const {
    std::vector<MaskedDocument> pair = answers(json);
    const auto first = [](const MaskedDocument& d) { return std::find(d.scored.begin(), d.scored.end(), 1) - d.scored.begin(); };
    const std::ptrdiff_t from = std::min(first(pair[0]), first(pair[1]));
    for (MaskedDocument& one : pair) std::fill(one.scored.begin() + from, one.scored.end(), 1);
    return pair;
  }

  // Errors: InputError if nothing that is scored is predicted.
  static void require_answer(const MaskedDocument& one, const char* key) {
    if (one.scored.empty() || std::find(one.scored.begin() + 1, one.scored.end(), 1) == one.scored.end())
      throw InputError(std::string("\"") + key + "\" has no token after the prompt's");
  }

  MaskedDocument prompt(const OrderedJson& json) const {
    for (const char* key : kRewardKeys)
      if (json.contains(key))
        throw InputError(std::string("has \"") + key + "\", under which a reward gets what the model wrote. Rename it");
    const OrderedJson& prompt = json.at("prompt");
    MaskedDocument one;
    if (prompt.is_string()) {
      one.ids = text_ids(prompt.get<std::string>());
    } else {
      checked(prompt, "prompt");
      const ChatFormat& format = there(format_);
      one.ids = format.ids_of(format.rendered({.messages = prompt, .tools = tools_of(json)}));
    }
    if (one.ids.empty()) throw InputError("\"prompt\" gives no token, so there is nothing to continue");
    one.scored.assign(one.ids.size(), 0);
    return one;
  }

  std::shared_ptr<const Engine> engine_;
  const Tokenizer& tokenizer_;
  LineOptions options_;
  std::shared_ptr<const ChatFormat> format_;  // null: the model has no template
  std::shared_ptr<const ChatFormat> alpaca_;
};

}  // namespace

LineReading read_lines(std::shared_ptr<const Engine> engine, const LineOptions& options) {
  const auto lines = std::make_shared<const Lines>(std::move(engine), options);
  return {[lines](std::string_view line) { return lines->documents(line); }, lines->chat_template()};
}

std::string alpaca_template(const Tokenizer& tokenizer) {
  return (tokenizer.adds_bos() ? "{{ bos_token }}" : "") + std::string(kAlpaca);
}

}  // namespace vitrine
