#pragma once
// Multiple-choice items out of JSON lines, worded as lm-evaluation-harness words them.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace vitrine {

/// HellaSwag, ARC, PIQA, WinoGrande; general: a context, choices and the right one.
enum class ChoiceTask : uint8_t { hellaswag, arc, piqa, winogrande, general };
std::string_view name_of(ChoiceTask task);
/// The task with that name. Errors: UsageError.
ChoiceTask choice_task_of(std::string_view word);
/// The task whose fields an item has. Errors: FileError that lists the fields of all tasks.
ChoiceTask find_choice_task(const Json& item, const std::string& where);

/// One question. The model is asked for the continuation's log-likelihood behind the context, for each choice.
struct ChoiceItem {
  struct Choice {
    std::string context, continuation;
    std::string text;  // by whose length the normed accuracy divides
  };
  std::vector<Choice> choices;  // two or more
  size_t gold = 0;
  std::string where;  // "file line 7", for messages
};

/// hellaswag    {activity_label, ctx_a, ctx_b, endings, label}: "activity_label: ctx_a Ctx_b" and the endings, all cleaned of
///              the brackets that the data's origin left
/// arc          {question, choices{text, label}, answerKey}: "Question: …\nAnswer:"
/// piqa         {goal, sol1, sol2, label}: the same wording
/// winogrande   {sentence, option1, option2, answer}: what stands behind the gap is scored, given the sentence up to there with
///              each option in it
/// general      {context or query, choices, gold}
/// A continuation begins with a space.
/// Errors: FileError naming `where`, the field, what was found and what was expected.
ChoiceItem read_choice_item(ChoiceTask task, const Json& item, const std::string& where);

/// Whether the task's choices are the continuations, so that dividing by their length has a meaning.
inline bool norms_by_length(ChoiceTask task) { return task != ChoiceTask::winogrande; }

/// The text without HellaSwag's brackets: stripped, " [title]" becomes ". ", other brackets within a line go with what is in
/// them, and of two spaces one stays.
std::string hellaswag_text(std::string_view text);

}  // namespace vitrine
