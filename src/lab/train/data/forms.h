#pragma once
// The forms of the JSON objects that people keep their data for fine-tuning in, recognized by their keys.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "io/text_reader.h"
#include "train/data/token_data.h"

namespace vitrine {

struct DataForm {
  const char* name;
  DataContent content;   // what an object becomes
  const char* keys[3];   // that it has; null after the last
  const char* expected;  // the object, for messages
};
inline constexpr DataForm kDataForms[] = {
    // where several fit an object, the first is meant
    {"unpaired preferences",
     DataContent::unpaired,
     {"prompt", "completion", "label"},
     R"({"prompt": …, "completion": …, "label": true})"},
    {"messages", DataContent::conversations, {"messages"}, R"({"messages": [{"role": "user", "content": "…"}, …]})"},
    {"prompt and completion", DataContent::conversations, {"prompt", "completion"}, R"({"prompt": …, "completion": …})"},
    {"Alpaca", DataContent::conversations, {"instruction", "output"}, R"({"instruction": "…", "input": "…", "output": "…"})"},
    {"ShareGPT", DataContent::conversations, {"conversations"}, R"({"conversations": [{"from": "human", "value": "…"}, …]})"},
    {"preferences", DataContent::preferences, {"chosen", "rejected"}, R"({"prompt": …, "chosen": …, "rejected": …})"},
    {"preferences", DataContent::unpaired, {"chosen", "rejected"}, R"({"prompt": …, "chosen": …, "rejected": …})"},
    {"prompts", DataContent::prompts, {"prompt"}, R"({"prompt": …})"},
};
inline constexpr const DataForm &kUnpairedForm = kDataForms[0], &kMessagesForm = kDataForms[1], &kCompletionForm = kDataForms[2],
                                &kAlpacaForm = kDataForms[3], &kShareGptForm = kDataForms[4];

/// An object. Errors: InputError for what is none, with the forms of that content.
OrderedJson object_of(std::string_view json, DataContent content);

/// The form of that content which has its keys in the object; the first of several. Null: none.
const DataForm* find_form(const OrderedJson& object, DataContent content);

/// The same. Errors: InputError with the object's keys and the forms of that content.
const DataForm& form_of(const OrderedJson& object, DataContent content);

/// The first object of the files, as JSON lines or a list of objects, and where it stands; nothing if they are empty.
/// Errors: as TextReader.
struct FirstObject {
  std::string json, where;
};
std::optional<FirstObject> first_object(const std::vector<std::string>& files, InvalidText invalid = InvalidText::refuse);

/// "the keys \"a\", \"b\"", for messages.
std::string named_keys(const OrderedJson& object);

}  // namespace vitrine
