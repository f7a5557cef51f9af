// Multiple choice: equal to lm-evaluation-harness item by item; items of other shapes are refused by line and field.
#include "evaluate/choices.h"

#include <sstream>

#include "evaluate/choice_tokens.h"
#include "evaluate/shared_prefix.h"
#include "evaluate/support.h"

namespace vitrine {
namespace {

const Json& golden() {
  static const Json json = read_json(evaluate_golden("choices.json"));
  return json;
}

std::vector<ChoiceItem> golden_items(const std::string& name, ChoiceTask* found = nullptr) {
  std::istringstream lines(read_file(evaluate_golden(name + ".jsonl")));
  std::vector<ChoiceItem> items;
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line, name);
    const ChoiceTask task = find_choice_task(json, name);
    if (found != nullptr) *found = task;
    items.push_back(read_choice_item(task, json, name));
  }
  return items;
}

class EveryTask : public testing::TestWithParam<const char*> {};

TEST_P(EveryTask, EqualsTheHarnessItemByItem) {
  const std::string name = GetParam();
  ChoiceTask task = ChoiceTask::general;
  const std::vector<ChoiceItem> items = golden_items(name, &task);
  EXPECT_EQ(name_of(task), name);
  Engine engine = open_f32(tales());
  const ChoicesResult result = answer_choices(engine, items);
  const Json &expected = golden()[name]["items"], &metrics = golden()[name]["metrics"];
  ASSERT_EQ(items.size(), expected.size());
  for (size_t i = 0; i < items.size(); ++i) {
    ASSERT_EQ(items[i].choices.size(), expected[i].size());
    for (size_t c = 0; c < items[i].choices.size(); ++c) {
      EXPECT_EQ(items[i].choices[c].context, expected[i][c][0].get<std::string>());
      EXPECT_EQ(items[i].choices[c].continuation, expected[i][c][1].get<std::string>());
      EXPECT_NEAR(result.answers[i].scores[c].logprob, expected[i][c][2].get<double>(), 2e-4) << i << " " << c;
      EXPECT_EQ(result.answers[i].scores[c].greedy, expected[i][c][3].get<bool>()) << i << " " << c;
    }
  }
  if (metrics.empty()) return;
  EXPECT_NEAR(result.accuracy.value, metrics["acc"].get<double>(), 1e-12);
  EXPECT_NEAR(result.accuracy.error, metrics["acc_stderr"].get<double>(), 1e-12);
  if (!norms_by_length(task)) return;
  EXPECT_NEAR(result.norm.value, metrics["acc_norm"].get<double>(), 1e-12);
  EXPECT_NEAR(result.norm.error, metrics["acc_norm_stderr"].get<double>(), 1e-12);
}

// What choices share is run once; each by itself gives the same.
TEST_P(EveryTask, SharingChangesNothing) {
  const std::vector<ChoiceItem> items = golden_items(GetParam());
  for (const std::string& model : {tales(), golden_llama()}) {
    Engine engine = open_f32(model);
    const ChoicesResult result = answer_choices(engine, items);
    EXPECT_LT(result.timings.tokens_read, result.tokens);
    for (size_t i = 0; i < items.size(); ++i)
      for (size_t c = 0; c < items[i].choices.size(); ++c) {
        const ScoredSequence alone = choice_tokens(engine, items[i].choices[c].context, items[i].choices[c].continuation);
        double sum = 0;
        for (const LabelScore& score : score_sequences(engine, std::span(&alone, 1))) sum += static_cast<double>(score.logprob);
        EXPECT_NEAR(result.answers[i].scores[c].logprob, sum, 2e-4) << model << " " << i << " " << c;
      }
  }
}
INSTANTIATE_TEST_SUITE_P(Evaluate, EveryTask, testing::Values("hellaswag", "arc", "piqa", "winogrande", "general"),
                         [](const auto& task) { return std::string(task.param); });

TEST(Choices, HellaSwagIsCleanedAsTheHarnessDoes) {
  for (const Json& pair : golden()["preprocess"])
    EXPECT_EQ(hellaswag_text(pair[0].get<std::string>()), pair[1].get<std::string>()) << pair[0];
  EXPECT_EQ(hellaswag_text(std::string(1 << 20, '[')).size(), size_t{1} << 20);  // in no quadratic time
}

TEST(Choices, CenteredAccuracy) {
  const std::vector<ChoiceItem> items = golden_items("general");  // 4, 2 and 3 choices, two of three right
  Engine engine = open_f32(tales());
  const ChoicesResult result = answer_choices(engine, items);
  const double random = (1.0 / 4 + 1.0 / 2 + 1.0 / 3) / 3;
  EXPECT_NEAR(result.random, random, 1e-12);
  EXPECT_NEAR(result.centered, (result.accuracy.value - random) / (1 - random), 1e-12);
  ChoicesResult other;
  other.centered = 1;
  EXPECT_NEAR(centered_mean(std::vector{result, other}), (result.centered + 1) / 2, 1e-12);
}

TEST(Choices, LongContextsAreCutAtTheLeft) {
  Engine engine = open_f32(golden_llama());  // 128 tokens
  std::string context;
  for (int i = 0; i < 200; ++i) context += "the old king ";
  const ScoredSequence sequence = choice_tokens(engine, context, " and the queen");
  EXPECT_EQ(sequence.read.size(), 128u);
  const ChoiceItem item{{{context, " and", "and"}, {context, " the queen", "the queen"}}, 0, "items line 1"};
  const ChoicesResult result = answer_choices(engine, std::span(&item, 1));
  for (const ChoiceScore& score : result.answers[0].scores) EXPECT_TRUE(std::isfinite(score.logprob));
  const ChoiceItem long_choice{{{"a", " b", "b"}, {"a", " " + context, context}}, 0, "items line 7"};
  EXPECT_CONTAINS(message_of<InputError>([&] { answer_choices(engine, std::span(&long_choice, 1)); }),
                  "items line 7: a choice has");
}

// White space at the end of the context goes to the continuation; an empty context is BOS.
TEST(Choices, TokensAreSplitAsTheHarnessSplitsThem) {
  Engine engine = open_f32(tales());
  const ScoredSequence plain = choice_tokens(engine, "The old", " king"), spaced = choice_tokens(engine, "The old ", "king");
  EXPECT_EQ(plain.read, spaced.read);
  EXPECT_EQ(plain.labels, spaced.labels);
  EXPECT_EQ(choice_tokens(engine, "", "king").read[0], 2);
  EXPECT_EQ(choice_tokens(engine, "<bos>The old", " king").read, plain.read);  // BOS once
  EXPECT_CONTAINS(message_of<InputError>([&] { choice_tokens(engine, "The old", ""); }), "has no token of its own");
}

TEST(Choices, ItemsOfOtherShapesAreRefused) {
  const auto refused = [](const std::string& text, const std::vector<std::string>& parts, const char* task = nullptr) {
    const std::string message = message_of<FileError>([&] {
      const Json json = parse_json(text, "f line 3");
      read_choice_item(task != nullptr ? choice_task_of(task) : find_choice_task(json, "f line 3"), json, "f line 3");
    });
    for (const std::string& part : parts) EXPECT_CONTAINS(message, part);
    EXPECT_CONTAINS(message, "f line 3");
  };
  refused(R"({"text": "a"})", {"no known task", "hellaswag: activity_label", "piqa: goal"});
  refused(R"([1])", {"no known task"});
  refused(R"([1])", {"is array; expected an object"}, "arc");
  refused(R"({"context": "a", "choices": ["b", "c"], "gold": 2})", {"\"gold\" is 2; expected 0 to 1"});
  refused(R"({"context": "a", "choices": ["b", "c"], "gold": -1})", {"\"gold\" is -1"});
  refused(R"({"context": "a", "choices": ["b", "c"], "gold": 18446744073709551615})", {"\"gold\" is 18446744073709551615"});
  refused(R"({"context": "a", "choices": ["b", "c"], "gold": 1.5})", {"\"gold\" is 1.5"});
  refused(R"({"context": "a", "choices": ["b", "c"], "gold": "x"})", {"\"gold\" is \"x\""});
  refused(R"({"context": "a", "choices": ["b"], "gold": 0})", {"has 1 choices; expected two or more"});
  refused(R"({"context": "a", "choices": ["b", 3], "gold": 0})", {"\"choices\" holds number; expected strings"});
  refused(R"({"context": "a", "choices": "b", "gold": 0})", {"\"choices\" is string; expected a list"});
  refused(R"({"choices": ["b", "c"], "gold": 0})", {"\"query\" is missing"});
  refused(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"})", {"2 texts and 1 labels"});
  refused(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"})", {"none of the labels"});
  refused(R"({"question": "q", "choices": ["a", "b"], "answerKey": "A"})", {"\"choices\" is array"});
  refused(R"({"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"})", {"has no _"});
  refused(R"({"sentence": "a _", "option1": "a", "option2": "b", "answer": ""})", {"\"answer\" is \"\"; expected 1 to 2"});
  refused(R"({"goal": "a", "sol1": "b", "sol2": "c", "label": 2})", {"\"label\" is 2; expected 0 to 1"});
  refused(R"({"goal": 1, "sol1": "b", "sol2": "c", "label": 0})", {"\"goal\" is number; expected a string"});
  EXPECT_CONTAINS(message_of<UsageError>([] { choice_task_of("mmlu"); }), "expected one of hellaswag, arc");
}

}  // namespace
}  // namespace vitrine
