#include "evaluate/choice_tasks.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "jinja/unicode.h"

namespace vitrine {
namespace {

struct TaskFields {
  ChoiceTask task;
  std::string_view name;
  std::vector<const char*> fields;  // by which an item is known
};

const std::vector<TaskFields>& tasks() {
  static const std::vector<TaskFields> all = {
      {ChoiceTask::hellaswag, "hellaswag", {"activity_label", "ctx_a", "ctx_b", "endings", "label"}},
      {ChoiceTask::arc, "arc", {"question", "choices", "answerKey"}},
      {ChoiceTask::piqa, "piqa", {"goal", "sol1", "sol2", "label"}},
      {ChoiceTask::winogrande, "winogrande", {"sentence", "option1", "option2", "answer"}},
      {ChoiceTask::general, "general", {"choices", "gold"}},
  };
  return all;
}

[[noreturn]] void refuse(const std::string& where, const std::string& field, const std::string& what) {
  throw FileError(where, "\"" + field + "\" " + what);
}

const Json& field(const Json& item, const std::string& name, const std::string& where) {
  const auto found = item.find(name);
  if (found == item.end()) refuse(where, name, "is missing");
  return *found;
}

std::string text_of(const Json& item, const std::string& name, const std::string& where) {
  const Json& value = field(item, name, where);
  if (!value.is_string()) refuse(where, name, "is " + std::string(value.type_name()) + "; expected a string");
  return value.get<std::string>();
}

std::vector<std::string> texts_of(const Json& item, const std::string& name, const std::string& where) {
  const Json& value = field(item, name, where);
  if (!value.is_array()) refuse(where, name, "is " + std::string(value.type_name()) + "; expected a list of strings");
  std::vector<std::string> texts;
  for (const Json& text : value) {
    if (!text.is_string()) refuse(where, name, "holds " + std::string(text.type_name()) + "; expected strings");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

// A place in a list, which data sets write as a number or as its digits.
size_t index_of(const Json& item, const std::string& name, size_t count, size_t first, const std::string& where) {
  const Json& value = field(item, name, where);
  int64_t index = -1;
  if (value.is_number_integer()) {
    index = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX ? -1 : value.get<int64_t>();
  } else if (value.is_string()) {
    const std::string text = value.get<std::string>();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    if (error != std::errc() || end != text.data() + text.size()) index = -1;
  }
  if (index < static_cast<int64_t>(first) || index >= static_cast<int64_t>(first + count))
    refuse(where, name,
           "is " + value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60) + "; expected " +
               std::to_string(first) + " to " + std::to_string(first + count - 1) + ", the right choice");
  return static_cast<size_t>(index) - first;
}

ChoiceItem item_of(const std::string& context, const std::vector<std::string>& choices, const std::string& where) {
  if (choices.size() < 2) throw FileError(where, "has " + std::to_string(choices.size()) + " choices; expected two or more");
  ChoiceItem item;
  item.where = where;
  for (const std::string& choice : choices) item.choices.push_back({context, " " + choice, choice});
  return item;
}

ChoiceItem read_hellaswag(const Json& item, const std::string& where) {
  const std::string context = text_of(item, "activity_label", where) + ": " + text_of(item, "ctx_a", where) + " " +
                              jinja::capitalized(text_of(item, "ctx_b", where));
  std::vector<std::string> endings = texts_of(item, "endings", where);
  for (std::string& ending : endings) ending = hellaswag_text(ending);
  ChoiceItem result = item_of(hellaswag_text(context), endings, where);
  result.gold = index_of(item, "label", endings.size(), 0, where);
  return result;
}

ChoiceItem read_arc(const Json& item, const std::string& where) {
  const Json& choices = field(item, "choices", where);
  if (!choices.is_object())
    refuse(where, "choices", "is " + std::string(choices.type_name()) + R"(; expected {"text", "label"})");
  const std::vector<std::string> texts = texts_of(choices, "text", where), labels = texts_of(choices, "label", where);
  if (texts.size() != labels.size())
    refuse(where, "choices",
           "has " + std::to_string(texts.size()) + " texts and " + std::to_string(labels.size()) + " labels; expected as many");
  ChoiceItem result = item_of("Question: " + text_of(item, "question", where) + "\nAnswer:", texts, where);
  const std::string key = text_of(item, "answerKey", where);
  const auto found = std::find(labels.begin(), labels.end(), key);
  if (found == labels.end()) refuse(where, "answerKey", "is \"" + key.substr(0, 60) + "\", which is none of the labels");
  result.gold = static_cast<size_t>(found - labels.begin());
  return result;
}

ChoiceItem read_piqa(const Json& item, const std::string& where) {
  const std::string context = "Question: " + text_of(item, "goal", where) + "\nAnswer:";
  ChoiceItem result = item_of(context, {text_of(item, "sol1", where), text_of(item, "sol2", where)}, where);
  result.gold = index_of(item, "label", 2, 0, where);
  return result;
}

ChoiceItem read_winogrande(const Json& item, const std::string& where) {
  const std::string sentence = text_of(item, "sentence", where);
  const size_t gap = sentence.find('_');
  if (gap == std::string::npos) refuse(where, "sentence", "has no _, the gap that an option fills");
  const std::string_view behind = std::string_view(sentence).substr(gap + 1);
  const jinja::Stripped stripped = jinja::strip_space(behind, true, true);
  const std::string continuation = " " + std::string(behind.substr(stripped.begin, stripped.end - stripped.begin));
  ChoiceItem result;
  result.where = where;
  for (const char* option : {"option1", "option2"}) {
    const std::string context = sentence.substr(0, gap) + text_of(item, option, where);
    result.choices.push_back({context, continuation, context});
  }
  result.gold = index_of(item, "answer", 2, 1, where);
  return result;
}

ChoiceItem read_general(const Json& item, const std::string& where) {
  const char* name = item.contains("context") ? "context" : "query";
  const std::vector<std::string> choices = texts_of(item, "choices", where);
  ChoiceItem result = item_of(text_of(item, name, where), choices, where);
  result.gold = index_of(item, "gold", choices.size(), 0, where);
  return result;
}

void replace_all(std::string& text, std::string_view old, std::string_view by) {
  std::string result;
  size_t at = 0;
  for (size_t found = text.find(old); found != std::string::npos; found = text.find(old, at)) {
    result.append(text, at, found - at).append(by);
    at = found + old.size();
  }
  text = result + text.substr(at);
}

// Without "[…]", the shortest from each "[" on; a line's end is not passed.
std::string without_brackets(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.find('[', at), text.size());
    result += text.substr(at, open - at);
    const size_t end = std::min(text.find_first_of("]\n", open), text.size());
    const bool closed = end < text.size() && text[end] == ']';
    if (!closed) result += text.substr(open, end - open);  // nothing up to there is closed
    at = closed ? end + 1 : end;
    if (!closed && at < text.size()) result += text[at++];
  }
  return result;
}

}  // namespace

std::string_view name_of(ChoiceTask task) {
  for (const TaskFields& known : tasks())
    if (known.task == task) return known.name;
  return "";
}

ChoiceTask choice_task_of(std::string_view word) {
  std::string names;
  for (const TaskFields& known : tasks()) {
    if (known.name == word) return known.task;
    names += (names.empty() ? "" : ", ") + std::string(known.name);
  }
  throw UsageError("\"" + std::string(word) + "\" is no task; expected one of " + names);
}

ChoiceTask find_choice_task(const Json& item, const std::string& where) {
  std::string expected;
  for (const TaskFields& known : tasks()) {
    if (item.is_object() &&
        std::all_of(known.fields.begin(), known.fields.end(), [&](const char* f) { return item.contains(f); }))
      return known.task;
    expected += "\n  " + std::string(known.name) + ":";
    for (const char* name : known.fields) expected += " " + std::string(name);
    if (known.task == ChoiceTask::general) expected += " and context or query";
  }
  throw FileError(where, "is an item of no known task. Expected an object with the fields of one of these:" + expected);
}

ChoiceItem read_choice_item(ChoiceTask task, const Json& item, const std::string& where) {
  if (!item.is_object()) throw FileError(where, "is " + std::string(item.type_name()) + "; expected an object");
  switch (task) {
    case ChoiceTask::hellaswag: return read_hellaswag(item, where);
    case ChoiceTask::arc: return read_arc(item, where);
    case ChoiceTask::piqa: return read_piqa(item, where);
    case ChoiceTask::winogrande: return read_winogrande(item, where);
    case ChoiceTask::general: return read_general(item, where);
  }
  return {};
}

std::string hellaswag_text(std::string_view text) {
  const jinja::Stripped stripped = jinja::strip_space(text, true, true);
  std::string result(text.substr(stripped.begin, stripped.end - stripped.begin));
  replace_all(result, " [title]", ". ");
  result = without_brackets(result);
  replace_all(result, "  ", " ");
  return result;
}

}  // namespace vitrine
