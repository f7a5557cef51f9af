// vitrine data with conversations and preferences, and training on them, from the files to the metrics.
#include <filesystem>

#include "cli/program.h"
#include "support/tar.h"
#include "train/run_support.h"

namespace vitrine {
namespace {

class ChatData : public testing::Test {
 protected:
  ChatData() {
    scratch.write(
        "chat.jinja",
        "{% for m in messages %}{{ m.role }}:\n{{ m.content }}<eos>\n{% endfor %}{% if add_generation_prompt %}assistant:\n"
        "{% endif %}");
    std::string chats, pairs;
    for (int i = 0; i < 6; ++i) {
      chats += R"({"messages": [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Good day."}]})"
               "\n";
      pairs += R"({"prompt": "The fox", "chosen": " ran.", "rejected": " slept."})"
               "\n";
    }
    scratch.write("chats.jsonl", chats);
    scratch.write("pairs.jsonl", pairs);
    scratch.write("quiz.jsonl", R"({"context": "The fox", "choices": [" ran", "ning of blue"], "gold": 0})"
                                "\n");
  }
  std::vector<std::string> chat_words() const {
    return {"data", scratch / "chats.jsonl", "--chat", "--template", scratch / "chat.jinja", "--out", scratch / "chats"};
  }
  std::string config(const std::string& out, const std::string& train, const std::string& extra) const {
    return scratch.write(out + ".yaml", "model: " + std::string(VITRINE_SOURCE) + "/models/tales9m\ndata: {train: " + train +
                                            "}\nsequence_length: 32\nbatch: 1\nsteps: 2\noptimizer: {lr: 1e-3}\nout: " +
                                            scratch / out + "\n" + extra);
  }
  Scratch scratch;
};

TEST_F(ChatData, ShowsWhatIsLearned) {
  const Outcome made = vitrine(chat_words());
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_CONTAINS(made.out, " tokens in 6 documents, ");
  EXPECT_CONTAINS(made.out, " of them scored (");
  const Outcome shown = vitrine({"data", "--show", scratch / "chats/train", "--count", "2"});
  ASSERT_EQ(shown.code, 0) << shown.err;
  EXPECT_CONTAINS(shown.out, "document 1: ");
  EXPECT_EQ(shown.out.find("document 2: "), std::string::npos);
  EXPECT_CONTAINS(shown.out, "⟦Good day.<eos>");
  const Json json = vitrine({"data", "--show", scratch / "chats/train", "--json"}).json();
  EXPECT_EQ(json["content"], "conversations");
  EXPECT_EQ(json["documents"].size(), 3u);
  EXPECT_EQ(json["documents"][0]["tokens"].size(), json["documents"][0]["scored"].size());
  EXPECT_CONTAINS(vitrine({"data", "--check", scratch / "chats/train"}).out, " of them scored (");

  const Outcome pairs = vitrine({"data", scratch / "pairs.jsonl", "--preferences", "--out", scratch / "pairs", "--json"});
  ASSERT_EQ(pairs.code, 0) << pairs.err;
  EXPECT_EQ(pairs.json()["train"]["documents"], 12);
  EXPECT_CONTAINS(vitrine({"data", "--show", scratch / "pairs/train"}).out, "pair 0, rejected: ");
}

TEST_F(ChatData, ReadsTheFormsOfFineTuning) {
  const auto shown = [&](const std::string& name, const std::string& lines, const std::vector<std::string>& flags) {
    std::vector<std::string> words = {"data", scratch.write(name, lines), "--chat", "--out", scratch / "forms"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome made = vitrine(words);
    EXPECT_EQ(made.code, 0) << made.err;
    return vitrine({"data", "--show", scratch / "forms/train"}).out;
  };
  const std::vector<std::string> with_template = {"--template", scratch / "chat.jinja"};
  const std::string alpaca =
      "[\n  {\"instruction\": \"Why?\",\n   \"output\": \"So.\"},\n  {\"instruction\": \"How?\", \"output\": \"By foot.\"}\n]\n";
  EXPECT_CONTAINS(shown("alpaca.json", alpaca, {}), "### Response:\n⟦By foot.<eos>⟧");
  EXPECT_CONTAINS(read_file(scratch / "forms/chat_template.jinja"), "### Instruction:");
  EXPECT_CONTAINS(shown("alpaca.json", alpaca, with_template), "assistant:\n⟦By foot.<eos>");
  EXPECT_CONTAINS(shown("completions.jsonl", R"({"prompt": "The fox", "completion": " ran."})", {}), "The fox⟦ ran.<eos>⟧");
  EXPECT_CONTAINS(shown("completions.jsonl", R"({"prompt": "The fox", "completion": "ran."})",
                        {"--as-messages", "--template", scratch / "chat.jinja"}),
                  "user:\nThe fox<eos>\nassistant:\n⟦ran.<eos>");
  const std::string sharegpt = R"({"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]})";
  EXPECT_CONTAINS(shown("sharegpt.jsonl", sharegpt, with_template), "user:\nWhy?<eos>\nassistant:\n⟦So.<eos>");

  const std::string mixed = scratch.write("mixed.jsonl", sharegpt + "\n\n" + R"({"instruction": "a", "output": "b"})" + "\n");
  expect_refused({"data", mixed, "--chat", "--template", scratch / "chat.jinja", "--out", scratch / "no"},
                 {"mixed.jsonl line 3: has the keys \"instruction\", \"output\", the form",
                  "the files begin with the form {\"conversations\""});
  expect_refused({"data", mixed, "--out", scratch / "no"},
                 {"mixed.jsonl line 1: has the keys \"conversations\"", "Read it with --chat"});
  expect_refused({"data", scratch / "pairs.jsonl", "--out", scratch / "no"}, {"Read it with --preferences"});
  expect_refused({"data", scratch.write("one.jsonl", "{\"a\": 1}"), "--chat", "--out", scratch / "no"},
                 {"one.jsonl line 1: has the keys \"a\"; expected one of these forms"});
  expect_refused({"data", scratch / "pairs.jsonl", "--as-messages", "--out", scratch / "no"}, {"--chat"});
}

TEST_F(ChatData, ReadsUnpairedPreferences) {
  const std::string lines = R"({"prompt": "The fox", "completion": " ran.", "label": true})"
                            "\n"
                            R"({"prompt": "The fox", "completion": " sat.", "label": false})"
                            "\n";
  const std::string file = scratch.write("labels.jsonl", lines);
  const Outcome made = vitrine({"data", file, "--unpaired-preferences", "--out", scratch / "labels", "--json"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome shown = vitrine({"data", "--show", scratch / "labels/train", "--json"});
  EXPECT_EQ(shown.json()["documents"][0]["label"], true);
  EXPECT_EQ(shown.json()["documents"][1]["label"], false);
  EXPECT_EQ(vitrine({"data", "--check", scratch / "labels/train", "--json"}).json()["scored"], made.json()["train"]["scored"]);
  const std::string text = vitrine({"data", "--show", scratch / "labels/train"}).out;
  EXPECT_CONTAINS(text, "example 0, desirable: ");
  EXPECT_CONTAINS(text, "The fox⟦ ran.<eos>⟧");
  EXPECT_CONTAINS(text, "example 1, undesirable: ");
  expect_refused({"data", file, "--out", scratch / "no"}, {"Read it with --unpaired-preferences"});
  expect_refused({"data", file, "--unpaired-preferences", "--prompts", "--out", scratch / "no"}, {"--unpaired-preferences"});
  ASSERT_EQ(vitrine({"data", scratch / "pairs.jsonl", "--unpaired-preferences", "--out", scratch / "unpaired"}).code, 0);
  EXPECT_CONTAINS(vitrine({"data", "--show", scratch / "unpaired/train"}).out, "example 1, undesirable: ");
  const Outcome kto = vitrine({"train", config("kto", scratch / "unpaired/train", "kto: {beta: 0.5}\naccumulate: 2\n")});
  ASSERT_EQ(kto.code, 0) << kto.err;
  EXPECT_TRUE(metrics_of(scratch / "kto")[0].contains("kl"));
}

TEST_F(ChatData, TrainsARewardModelAndReadsItsRewards) {
  scratch.write("better.jsonl", R"({"prompt": "The fox", "chosen": " ran.", "rejected": " 12 34"})"
                                "\n");
  ASSERT_EQ(vitrine({"data", scratch / "better.jsonl", "--preferences", "--out", scratch / "better"}).code, 0);
  const Outcome made = vitrine({"train", config("reward", scratch / "better/train", "reward_model: {}\n")});
  ASSERT_EQ(made.code, 0) << made.err;
  const std::string model = scratch / "reward/last";
  const std::string answers = scratch.write("answers.jsonl", R"({"prompt": "The fox", "completion": " ran."})"
                                                             "\n"
                                                             R"({"prompt": "The fox", "completion": " 12 34"})"
                                                             "\n");
  const Outcome read = vitrine({"reward", answers, "--model", model, "--json"});
  ASSERT_EQ(read.code, 0) << read.err;
  ASSERT_EQ(read.json()["rewards"].size(), 2u);
  EXPECT_GT(read.json()["rewards"][0].get<double>(), read.json()["rewards"][1].get<double>());
  const std::string printed = vitrine({"reward", answers, "--model", model}).out;
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 2);
  // Messages that a text answers, as rewards of grpo get them.
  const std::string chat = scratch.write("asked.jsonl", R"({"prompt": [{"role": "user", "content": "a"}], "completion": "b"})");
  EXPECT_EQ(vitrine({"reward", chat, "--model", model, "--template", scratch / "chat.jinja", "--json"}).json()["rewards"].size(),
            1u);
  expect_refused({"generate", "a", "--model", model}, {"has no next token: `vitrine reward` reads its rewards"});
  expect_refused({"reward", answers}, {"--model is missing"});
  // An adapter beside the language model that it learned from.
  const Outcome adapter =
      vitrine({"train", config("adapter", scratch / "better/train", "reward_model: {}\nlora: {rank: 2, targets: [q_proj]}\n")});
  ASSERT_EQ(adapter.code, 0) << adapter.err;
  const std::string base = std::string(VITRINE_SOURCE) + "/models/tales9m";
  EXPECT_EQ(
      vitrine({"reward", answers, "--model", base, "--adapter", scratch / "adapter/last", "--json"}).json()["rewards"].size(),
      2u);
  expect_refused({"reward", answers, "--model", std::string(VITRINE_SOURCE) + "/models/tales9m"}, {"is not a reward model"});
  expect_refused({"reward", scratch.write("bad.jsonl", "{\"a\": 1}"), "--model", model},
                 {"bad.jsonl line 1: has the keys \"a\""});
}

TEST_F(ChatData, ReadsShards) {
  const auto line = [](const std::string& completion) {
    return R"({"prompt": "The fox", "completion": ")" + completion + "\"}\n";
  };
  scratch.write("shards/data-000000.tar", tar_member("0.txt", "no object") + tar_member("0.json", line(" ran.")) +
                                              tar_member("1.json", line(" slept.")) + tar_end());
  scratch.write("shards/data-000001.jsonl", line(" saw."));
  const auto completions = [&](const std::string& from) {
    const Outcome made = vitrine({"data", from, "--chat", "--out", scratch / "made"});
    EXPECT_EQ(made.code, 0) << made.err;
    return vitrine({"data", "--show", scratch / "made/train"}).out;
  };
  const std::string shown = completions(scratch / "shards");
  for (const char* completion : {"⟦ ran.", "⟦ slept.", "⟦ saw."}) EXPECT_CONTAINS(shown, completion);
  EXPECT_LT(shown.find(" ran."), shown.find(" slept."));
  EXPECT_LT(shown.find(" slept."), shown.find(" saw."));
  EXPECT_EQ(completions(scratch / "shards/data-*"), shown);
  EXPECT_EQ(vitrine({"data", scratch / "shards/data-000000.tar", "--format", "text", "--out", scratch / "texts", "--json"})
                .json()["train"]["documents"],
            1);
  scratch.write("shards/data-000001.jsonl", "{\"text\": \"a\"}\n");
  expect_refused({"data", scratch / "shards", "--chat", "--out", scratch / "no"},
                 {"data-000001.jsonl line 1: has the keys \"text\""});
  expect_refused({"data", scratch / "shards/*.csv", "--out", scratch / "no"}, {"matches no file"});
  scratch.write("shards/data-000000.tar", tar_member("0.json", "{\"a\": 1}") + tar_end());
  expect_refused({"data", scratch / "shards", "--chat", "--out", scratch / "no"},
                 {"data-000000.tar: 0.json line 1: has the keys \"a\""});
}

TEST_F(ChatData, RefusesWhatDoesNotGoTogether) {
  const std::string chats = scratch / "chats.jsonl", out = scratch / "no";
  expect_refused({"data", chats, "--chat", "--out", out}, {"has no chat template"});
  expect_refused({"data", chats, "--chat", "--preferences", "--out", out}, {"--preferences"});
  expect_refused({"data", chats, "--chat", "--key", "x", "--out", out}, {"--key"});
  expect_refused({"data", chats, "--chat", "--tokenizer", "characters", "--out", out}, {"--chat goes with a model's tokenizer"});
  expect_refused({"data", chats, "--template", scratch / "chat.jinja", "--out", out}, {"--template goes with --chat"});
  expect_refused({"data", "--show", scratch / "nothing"}, {"index.json"});
  expect_refused({"data", scratch / "pairs.jsonl", "--chat", "--template", scratch / "chat.jinja", "--out", out},
                 {"pairs.jsonl line 1: has the keys \"prompt\", \"chosen\", \"rejected\"; expected one of these forms"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(ChatData, TrainsOnAMixtureWithTasks) {
  ASSERT_EQ(vitrine(chat_words()).code, 0);
  const std::string fables = std::string(VITRINE_SOURCE) + "/examples/fables.txt";
  ASSERT_EQ(vitrine({"data", fables, "--document", "\\n\\n\\n", "--out", scratch / "fables"}).code, 0);
  const Outcome run = vitrine(
      {"train", config("run", "[{path: " + scratch / "fables/train" + ", weight: 3}, {path: " + scratch / "chats/train" + "}]",
                       "tasks: " + scratch / "quiz.jsonl" + "\ntasks_every: 1\n")});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_CONTAINS(run.err, "data: 25.0 % of the sequences from " + scratch / "chats/train");
  EXPECT_CONTAINS(run.err, "accuracy_quiz ");
  const std::vector<Json> lines = metrics_of(scratch / "run");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].contains("accuracy_quiz"));
  EXPECT_TRUE(lines[1].contains("accuracy_norm_quiz"));

  ASSERT_EQ(vitrine({"data", scratch / "pairs.jsonl", "--preferences", "--out", scratch / "pairs"}).code, 0);
  const Outcome dpo = vitrine({"train", config("dpo", scratch / "pairs/train", "dpo: {beta: 0.5}\n")});
  ASSERT_EQ(dpo.code, 0) << dpo.err;
  EXPECT_TRUE(metrics_of(scratch / "dpo")[1].contains("reward_margin"));
  scratch.write("other/quiz.jsonl", read_file(scratch / "quiz.jsonl"));
  expect_refused(
      {"train", config("no", scratch / "chats/train",
                       "tasks: [" + scratch / "quiz.jsonl" + ", " + scratch / "other/quiz.jsonl" + "]\ntasks_every: 1\n")},
      {"are both called \"quiz\""});
}

}  // namespace
}  // namespace vitrine
