
#include "intervene/plan.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

PicturePrompt prompt_of(const Host& host, const OrderedJson& prompt, bool special, const std::string& field) {
  PicturePrompt read;
  read.model = host.name;
  read.special = special;
  if (prompt.is_string()) {
    read.text = prompt.get<std::string>();
    read.ids = host.engine.prompt_ids(*read.text, special);
  } else {
    if (!prompt.is_array() || prompt.empty())
      throw invalid(field, "\"" + field + "\" is " + kind_of(prompt) + "; expected a text or a list of ids that is not empty",
                    "invalid_type");
    std::vector<int64_t> numbers;
    for (const OrderedJson& id : prompt) {
      if (!id.is_number_integer()) throw invalid(field, "\"" + field + "\" mixes ids with " + kind_of(id), "invalid_type");
      numbers.push_back(id.get<int64_t>());
    }
    read.ids = token_ids(host.engine, numbers, field);
  }
  host.engine.check_ids(read.ids);
  return read;
}

}  // namespace

const std::vector<Field>& prompt_fields() {
  using namespace type;
  static const std::vector<Field> table = {
      {"prompt", text | integers, "A text, or ids, which are used exactly as given."},
      {"messages", list, "A conversation instead of a prompt, rendered by the model's chat template."},
      {"add_special", boolean, "Add BOS and EOS to a text if the tokenizer does. Default: true."}};
  return table;
}

PicturePrompt read_prompt(const Host& host, Fields& fields) {
  const bool special = fields.boolean("add_special", true);
  const OrderedJson *prompt = fields.find("prompt"), *messages = fields.find("messages");
  if ((prompt == nullptr) == (messages == nullptr))
    throw invalid("prompt",
                  prompt == nullptr ? "\"prompt\" is missing; expected a text" +
                                          std::string(host.chat ? ", ids, or \"messages\" in its place" : " or ids")
                                    : "\"prompt\" and \"messages\" are both there; give one of them",
                  "missing_required_parameter");
  if (prompt != nullptr) return prompt_of(host, *prompt, special, "prompt");
  if (!host.chat) throw invalid("messages", "\"messages\" needs a server, which renders the chat template; give \"prompt\"");
  PicturePrompt read;
  read.model = host.name;
  read.ids = host.chat(*messages, fields);
  return read;
}

std::vector<std::vector<int32_t>> read_prompts(const Host& host, Fields& fields) {
  const OrderedJson* several = fields.find("prompts");
  if (several == nullptr) return {read_prompt(host, fields).ids};
  for (const char* name : {"prompt", "messages"})
    if (fields.has(name)) throw invalid(name, "\"" + std::string(name) + "\" and \"prompts\" are both there; give one of them");
  if (several->empty()) throw invalid("prompts", "\"prompts\" is an empty list; give texts or lists of ids");
  const bool special = fields.boolean("add_special", true);
  std::vector<std::vector<int32_t>> prompts;
  for (size_t i = 0; i < several->size(); ++i)
    prompts.push_back(prompt_of(host, (*several)[i], special, "prompts[" + std::to_string(i) + "]").ids);
  return prompts;
}

std::vector<int32_t> token_ids(const Engine& engine, const std::vector<int64_t>& numbers, const std::string& field) {
  std::vector<int32_t> ids;
  ids.reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number < 0 || number >= engine.shape().vocab_size)
      throw invalid(field, "\"" + field + "\" holds the token " + std::to_string(number) + "; the vocabulary has the ids 0 to " +
                               std::to_string(engine.shape().vocab_size - 1));
    ids.push_back(static_cast<int32_t>(number));
  }
  return ids;
}

std::optional<int32_t> token_field(const Fields& fields, const std::string& name, const Engine& engine) {
  const OrderedJson* value = fields.find(name);
  if (value == nullptr) return {};
  TokenSpec token;
  token.where = "\"" + name + "\"";
  if (value->is_string()) {
    token.text = value->get<std::string>();
  } else {
    const auto id = value->get<int64_t>();
    if (id < 0 || id >= engine.shape().vocab_size)
      throw invalid(name, "\"" + name + "\" is " + std::to_string(id) + "; the vocabulary has the ids 0 to " +
                              std::to_string(engine.shape().vocab_size - 1));
    return static_cast<int32_t>(id);
  }
  try {
    return id_of(engine, token);
  } catch (const InputError& error) {
    throw invalid(name, error.what());
  }
}

std::vector<int64_t> positions_field(const std::vector<int64_t>& given, size_t tokens, const std::string& field) {
  std::vector<int64_t> positions;
  for (const int64_t position : given) {
    const int64_t at = position < 0 ? position + static_cast<int64_t>(tokens) : position;
    if (at < 0 || at >= static_cast<int64_t>(tokens))
      throw invalid(field, "\"" + field + "\" names the position " + std::to_string(position) + "; the prompt has " +
                               std::to_string(tokens) + " tokens");
    positions.push_back(at);
  }
  return positions;
}

Field top_field(const char* about, double most) { return {"top", type::integer, about, Use::honored, 1, most}; }

}  // namespace vitrine
