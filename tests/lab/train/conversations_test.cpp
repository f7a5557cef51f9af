// Conversations as training data: masks against transformers (tests/golden/train/make_chat_masks.py), files, batches, runs.
#include "train/data/conversations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "base/mapped_file.h"
#include "generate/chat.h"
#include "support/scratch.h"
#include "train/data/batch_source.h"
#include "train/run_support.h"
#include "train/train.h"

namespace vitrine {
namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% for m in messages %}{{ m.role }}\n{{ m.content }}<eos>\n{% endfor %}"
    "{% if add_generation_prompt %}assistant\n{% endif %}";

class Conversations : public testing::Test {
 protected:
  Conversations()
      : engine(std::make_shared<Engine>(std::string(VITRINE_SOURCE) + "/models/tales9m", EngineOptions{.threads = 1})) {}
  const Tokenizer& tokenizer() const { return engine->tokenizer(); }
  // What is marked, one text for each run of marks.
  std::vector<std::string> marked(const MaskedDocument& document) const {
    std::vector<std::string> parts;
    for (size_t begin = 0, end = 0; begin < document.ids.size(); begin = end) {
      while (end < document.ids.size() && document.scored[end] == document.scored[begin]) ++end;
      if (document.scored[begin] != 0) parts.push_back(tokenizer().decode(std::span(document.ids).subspan(begin, end - begin)));
    }
    return parts;
  }
  std::vector<MaskedDocument> chat(const std::string& line, const std::string& source = kTemplate) const {
    return read_lines(engine, {.chat_template = source}).encode(line);
  }
  std::string refusal(const std::string& line, const std::string& source = kTemplate) const {
    return message_of<InputError>([&] { chat(line, source); });
  }
  Prepared prepare(const std::string& lines, const std::string& out) {
    PrepareOptions options{.files = {scratch.write("lines.jsonl", lines)},
                           .content = DataContent::conversations,
                           .encode_line = read_lines(engine, {.chat_template = kTemplate}).encode};
    ThreadPool pool(2);
    return prepare_data(tokenizer(), pool, options, scratch / out);
  }
  std::shared_ptr<Engine> engine;
  Scratch scratch;
};

TEST_F(Conversations, MasksAreThoseOfTransformers) {
  const OrderedJson cases = OrderedJson::parse(read_file(std::string(VITRINE_GOLDEN) + "/train/chat_masks.json"));
  ASSERT_EQ(cases.size(), 9u);
  size_t said = 0;
  for (const OrderedJson& one : cases) {
    SCOPED_TRACE(one.at("template").get<std::string>().substr(0, 60));
    const std::vector<MaskedDocument> got =
        chat(OrderedJson{{"messages", one.at("messages")}}.dump(), one.at("template").get<std::string>());
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].ids, one.at("ids").get<std::vector<int32_t>>());
    EXPECT_EQ(got[0].scored, one.at("mask").get<std::vector<uint8_t>>());
    said += static_cast<size_t>(std::count(got[0].scored.begin(), got[0].scored.end(), 1));
  }
  EXPECT_GT(said, 50u);
}

// Prompts with completions, Alpaca and ShareGPT, against TRL (tests/golden/train/make_forms.py).
TEST_F(Conversations, FormsBecomeTheIdsAndLabelsOfTrl) {
  const OrderedJson gold = OrderedJson::parse(read_file(std::string(VITRINE_GOLDEN) + "/train/forms.json"));
  ASSERT_EQ(gold.at("cases").size(), 16u);
  for (const OrderedJson& one : gold.at("cases")) {
    SCOPED_TRACE(one.at("line").dump());
    LineOptions options{.as_messages = one.at("as_messages").get<bool>()};
    // Alpaca has a template of its own, unless another is wanted.
    if (options.as_messages || !one.at("line").contains("instruction")) options.chat_template = gold.at("template");
    const std::vector<MaskedDocument> got = read_lines(engine, options).encode(one.at("line").dump());
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].ids, one.at("ids").get<std::vector<int32_t>>());
    EXPECT_EQ(got[0].scored, one.at("scored").get<std::vector<uint8_t>>());
  }
}

TEST_F(Conversations, FormsKeepTheirTemplate) {
  EXPECT_EQ(read_lines(engine, {.form = &kCompletionForm}).chat_template, "");
  EXPECT_EQ(read_lines(engine, {.form = &kShareGptForm, .chat_template = kTemplate}).chat_template, kTemplate);
  const std::string alpaca = read_lines(engine, {.form = &kAlpacaForm}).chat_template;
  EXPECT_EQ(alpaca, alpaca_template(tokenizer()));
  EXPECT_EQ(read_lines(engine, {.form = &kAlpacaForm, .chat_template = kTemplate}).chat_template, kTemplate);
  // A chat goes on in the form that was learned.
  const ChatFormat format(*engine, alpaca);
  EXPECT_EQ(format.text({{"user", "Why?"}, {"assistant", "So."}, {"user", "And then?"}}).text,
            "<bos>Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
            "### Instruction:\nWhy?\n\n### Response:\nSo.<eos>\n\n### Instruction:\nAnd then?\n\n### Response:\n");
  EXPECT_EQ(format.text({{"system", "Be brief."}, {"user", "Why?"}}).text,
            "<bos>Be brief.\n\n### Instruction:\nWhy?\n\n### Response:\n");
}

// Without {% generation %} the turns are found by what they add; the marks of both ways agree but for the line end.
TEST_F(Conversations, TurnsAreFoundWithoutMarksInTheTemplate) {
  const std::string line =
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why <eos>?"},
          {"role": "assistant", "content": "So."}, {"role": "user", "content": "assistant\n"},
          {"role": "assistant", "content": "It was late."}], "more": 1})";
  const std::vector<MaskedDocument> got = chat(line);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(marked(got[0]), (std::vector<std::string>{"So.<eos>\n", "It was late.<eos>\n"}));
  EXPECT_EQ(std::count(got[0].ids.begin(), got[0].ids.end(), tokenizer().eos().value()), 5);  // the typed one stays text
}

// As templates of models that think: thoughts are there in the last turn alone.
TEST_F(Conversations, TurnsThatAreRewrittenLaterBecomeDocuments) {
  const std::string thinks =
      "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' and loop.last %}[{{ m.thought }}] {% endif %}{{ "
      "m.content }}\n"
      "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}";
  const std::vector<MaskedDocument> got =
      chat(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "thought": "why"},
               {"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "thought": "how"}]})",
           thinks);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(marked(got[0]), std::vector<std::string>{"[why] b\n"});
  EXPECT_EQ(marked(got[1]), std::vector<std::string>{"[how] d\n"});
  EXPECT_CONTAINS(tokenizer().decode(got[1].ids), "assistant: b\n");
}

TEST_F(Conversations, ManyValuesOfALine) {  // each object was once compared with all before it
  std::string line = R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "notes": [{})";
  for (int i = 0; i < 400'000; ++i) line += ",{}";
  EXPECT_EQ(marked(chat(line + "]}").front()), std::vector<std::string>{"b<eos>\n"});
}

TEST_F(Conversations, NamesWhatIsWrong) {
  EXPECT_CONTAINS(refusal("{"),
                  "the JSON: is not valid JSON: it is truncated after 1 bytes; expected one of these forms: {\"messages\"");
  EXPECT_CONTAINS(refusal("[1]"), "is array; expected one of");
  EXPECT_CONTAINS(refusal("{\"text\": 1}"), "has the keys \"text\"; expected one of");
  EXPECT_CONTAINS(refusal("{\"messages\": []}"), "\"messages\" is empty");
  EXPECT_CONTAINS(refusal("{\"messages\": [{\"from\": \"human\"}]}"), "\"messages\" holds {\"from\":\"human\"}; expected a list");
  EXPECT_CONTAINS(refusal("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}"), "no message has the role \"assistant\"");
  EXPECT_CONTAINS(refusal("{\"messages\": " + std::string(1000, '[') + std::string(1000, ']') + "}"),
                  "nests deeper than 64 levels");
  EXPECT_CONTAINS(refusal(R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})",
                          "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}?{% endif %}"),
                  "Put {% generation %} and {% endgeneration %} around its turns");
  EXPECT_CONTAINS(
      message_of<InputError>([&] { read_lines(engine, {}).encode(R"({"messages": [{"role": "assistant", "content": "b"}]})"); }),
      "holds messages, and the model has no chat template");
}

TEST_F(Conversations, NamesWhatIsWrongWithAForm) {
  EXPECT_CONTAINS(refusal(R"({"instruction": "a", "response": "b"})"),
                  "has the keys \"instruction\", \"response\"; expected one of these forms: {\"messages\": [{\"role\"");
  EXPECT_CONTAINS(refusal("{}"), "has no key; expected one of");
  EXPECT_CONTAINS(refusal(R"({"prompt": "a", "completion": [1]})"), "\"prompt\" is string and \"completion\" is array");
  EXPECT_CONTAINS(refusal(R"({"prompt": [], "completion": []})"), "\"prompt\" is empty; expected a list of messages");
  EXPECT_CONTAINS(refusal(R"({"instruction": "a", "output": 1})"), "\"output\" is number; expected a text");
  EXPECT_CONTAINS(refusal(R"({"instruction": "a", "output": "b", "history": [["c", "d"]]})"), "has \"history\"");
  EXPECT_CONTAINS(refusal(R"({"conversations": [{"from": "narrator", "value": "a"}]})"),
                  "a turn from \"narrator\"; expected one of \"human\", \"user\", \"gpt\"");
  EXPECT_CONTAINS(refusal(R"({"conversations": [{"from": "human"}]})"), "\"conversations\" holds {\"from\":\"human\"}; expected");
  EXPECT_CONTAINS(refusal(R"({"conversations": [{"from": "human", "value": "a"}]})"), "no message has the role \"assistant\"");
  EXPECT_CONTAINS(refusal(R"({"messages": [{"role": "assistant", "content": "b"}], "tools": "["})"),
                  "\"tools\": is not valid JSON");
  const LineReading alpaca = read_lines(engine, {.form = &kAlpacaForm, .chat_template = kTemplate});
  EXPECT_CONTAINS(
      message_of<InputError>([&] { alpaca.encode(R"({"prompt": "a", "completion": "b"})"); }),
      "has the keys \"prompt\", \"completion\", the form {\"prompt\": …, \"completion\": …}; the files begin with the form "
      "{\"instruction\"");
}

TEST_F(Conversations, FilesKeepTheMasks) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += Json{{"messages",
                   {{{"role", "user"}, {"content", "number " + std::to_string(i)}},
                    {{"role", "assistant"}, {"content", std::string(static_cast<size_t>(1 + i % 7), 'a')}}}}}
                 .dump() +
             "\n\n";
  const Prepared made = prepare(lines, "chats");
  const TokenData data = TokenData::open(scratch / "chats/train");
  data.verify();
  EXPECT_EQ(data.content(), DataContent::conversations);
  EXPECT_EQ(data.documents(), 40u);
  EXPECT_EQ(made.train.documents, 40u);
  std::vector<uint8_t> scored(data.tokens());
  data.read_scored(0, scored);
  EXPECT_EQ(static_cast<uint64_t>(std::count(scored.begin(), scored.end(), 1)), made.train.scored);
  const std::vector<uint64_t> starts = data.document_starts(0, data.tokens());
  MaskedDocument third{std::vector<int32_t>(starts[4] - starts[3]), {}};
  data.read(starts[3], third.ids);
  third.scored.assign(scored.begin() + static_cast<std::ptrdiff_t>(starts[3]),
                      scored.begin() + static_cast<std::ptrdiff_t>(starts[4]));
  EXPECT_EQ(marked(third), std::vector<std::string>{"aaaa<eos>\n"});

  const std::string shard = read_file(scratch / "chats/train/00000.tokens"),
                    index = read_file(scratch / "chats/train/index.json");
  const auto damaged = [&](const std::string& file, const std::string& content) {
    scratch.write("chats/train/" + file, content);
    const std::string said = message_of([&] { TokenData::open(scratch / "chats/train").verify(); });
    scratch.write("chats/train/00000.tokens", shard);
    scratch.write("chats/train/index.json", index);
    return said;
  };
  std::string flipped = shard;
  flipped[flipped.size() - 9] = static_cast<char>(flipped[flipped.size() - 9] ^ 1);
  EXPECT_CONTAINS(damaged("00000.tokens", flipped), "does not fit the header's checksum");
  EXPECT_CONTAINS(damaged("00000.tokens", shard.substr(0, shard.size() - 8)), "Was it copied completely?");
  std::string other = index;
  other.replace(other.find("conversations"), 13, "monologues");
  EXPECT_CONTAINS(damaged("index.json", other),
                  "expected \"conversations\", \"preferences\", \"prompts\" or \"unpaired preferences\"");
  EXPECT_CONTAINS(message_of<InputError>([&] { prepare("{\"messages\": [1]}\n", "bad"); }),
                  "lines.jsonl line 1: \"messages\" holds 1");
  EXPECT_FALSE(std::filesystem::exists(scratch / "bad"));
}

TokenData masked_data(const Scratch& scratch, const std::vector<size_t>& lengths) {
  const std::string dir = scratch / "packed";
  std::filesystem::create_directories(dir);
  TokenDataWriter writer(dir, {.vocab_size = 61, .tokenizer = 1, .content = DataContent::conversations}, 30);
  int32_t next = 0;
  for (const size_t n : lengths) {
    std::vector<int32_t> ids;
    std::vector<uint8_t> scored;
    for (size_t i = 0; i < n; ++i) ids.push_back(next++ % 61), scored.push_back(i >= n / 2 ? 1 : 0);
    writer.add(ids, 0, scored);
    writer.end_document();
  }
  writer.finish();
  return TokenData::open(dir);
}

// The router of a mixture chooses experts for the last token, too, and transformers' load-balancing loss counts it.
TEST_F(Conversations, KeepTheirLastTokenWhereItIsWanted) {
  const TokenData data = masked_data(scratch, {5, 8, 3, 30, 1, 16});
  const BatchSource source(data, {.sequence_length = 16, .batch = 1, .shuffle = false, .whole = true});
  EXPECT_EQ(source.cut_documents(), 1u);
  std::vector<int64_t> lengths;
  std::vector<bool> last_scored;
  for (uint64_t w = 0; w < source.windows_per_epoch(); ++w) {
    Batch one;
    source.add_window({0, w}, one);
    size_t at = 0;
    for (const int64_t length : one.lengths) {
      lengths.push_back(length);
      at += static_cast<size_t>(length);
      last_scored.push_back(one.labels[at - 1] != kNotScored);
    }
    EXPECT_GT(at, 0u);
    EXPECT_LE(at, 16u);
    EXPECT_EQ(one.tokens.size(), at);
    EXPECT_EQ(one.labels.size(), at);
  }
  EXPECT_EQ(lengths, (std::vector<int64_t>{5, 8, 3, 16, 16}));
  EXPECT_EQ(last_scored, (std::vector<bool>{false, false, false, true, false}));  // the long one is cut
}

TEST_F(Conversations, ArePackedWholeAndNeverMixed) {
  const TokenData data = masked_data(scratch, {5, 8, 3, 30, 11, 6, 2, 16, 1, 4});
  const BatchSource order(data, {.sequence_length = 16, .batch = 1, .shuffle = false});
  EXPECT_EQ(order.cut_documents(), 1u);
  BatchSource source(data, {.sequence_length = 16, .batch = 2, .seed = 3});
  std::vector<std::vector<int32_t>> sequences;
  for (uint64_t w = 0; w < source.windows_per_epoch(); ++w) {
    Batch one;
    source.add_window({0, w}, one);
    int64_t rows = 0;
    size_t at = 0;
    for (const int64_t length : one.lengths) {
      rows += length;
      sequences.emplace_back(one.tokens.begin() + static_cast<std::ptrdiff_t>(at),
                             one.tokens.begin() + static_cast<std::ptrdiff_t>(at + static_cast<size_t>(length)));
      for (size_t i = at; i < at + static_cast<size_t>(length); ++i)
        if (one.labels[i] != kNotScored) {
          EXPECT_EQ(one.labels[i], (one.tokens[i] + 1) % 61);
        }
      at += static_cast<size_t>(length);
    }
    EXPECT_LE(rows, 16);
    EXPECT_EQ(one.tokens.size(), one.labels.size());
  }
  // Every document of more than a token once, from its first token on, the long one without its end.
  std::sort(sequences.begin(), sequences.end());
  std::vector<std::pair<int32_t, size_t>> got, want;
  for (const auto& s : sequences) got.emplace_back(s[0], s.size());
  for (const auto& [first, n] : std::vector<std::pair<int32_t, size_t>>{
           {0, 4}, {5, 7}, {13, 2}, {16, 16}, {46, 10}, {57, 5}, {63 % 61, 1}, {65 % 61, 15}, {82 % 61, 3}})
    want.emplace_back(first, n);
  std::sort(want.begin(), want.end());
  std::sort(got.begin(), got.end());
  EXPECT_EQ(got, want);
  const Batch batch = source.next();
  int64_t rows = 0;
  for (const Batch& part : parts_of(batch, 4)) rows += static_cast<int64_t>(part.tokens.size());
  EXPECT_EQ(rows, static_cast<int64_t>(batch.tokens.size()));
}

// Whole conversations in a run that is cut: the same bits.
TEST_F(Conversations, ARunGoesOnToTheSameBits) {
  std::vector<size_t> lengths;
  for (size_t i = 0; i < 90; ++i) lengths.push_back(2 + i * 7 % 19);
  masked_data(scratch, lengths);
  small_data(scratch, "valid", 6, 2);
  const auto config = [&](const std::string& out) {
    std::string text = small_config(scratch, scratch / out);
    text.replace(text.find(scratch / "data"), (scratch / "data").size(), scratch / "packed");
    return parse_train_config(text, "config.yaml");
  };
  uint64_t cut = 0;
  TrainEvents told;
  told.started = [&](const TrainEvents::Start& start) { cut = start.data.at(0).cut; };
  train(config("whole"), false, told);
  EXPECT_EQ(cut, static_cast<uint64_t>(std::count_if(lengths.begin(), lengths.end(), [](size_t n) { return n > 17; })));
  train_up_to(config("cut"), 5);
  train(config("cut"), true);
  EXPECT_EQ(weights_bytes(scratch / "cut/last"), weights_bytes(scratch / "whole/last"));
  EXPECT_EQ(metrics_of(scratch / "cut"), metrics_of(scratch / "whole"));
}

// The whole model and an adapter learn: the loss of the assistant's tokens falls.
TEST_F(Conversations, AreLearned) {
  std::string lines;
  for (int i = 0; i < 24; ++i)
    lines += Json{{"messages",
                   {{{"role", "user"}, {"content", "Who came " + std::to_string(i % 5) + "?"}},
                    {{"role", "assistant"}, {"content", "A fox and a crow."}}}}}
                 .dump() +
             "\n";
  prepare(lines, "chats");
  const std::string model = std::string(VITRINE_SOURCE) + "/models/tales9m";
  const auto run = [&](const std::string& out, const std::string& extra, bool resume, const TrainEvents& events = {}) {
    const std::string text =
        "model: " + model + "\ndata: {train: " + scratch / "chats/train" + ", validation: " + scratch / "chats/train" +
        "}\nsequence_length: 64\nbatch: 1\nsteps: 4\nseed: 2\nthreads: 2\noptimizer: {lr: 3e-3}\n" +
        "schedule: {decay: constant}\neval_every: 4\neval_batches: 1\ncheckpoint: {every: 2}\nout: " + scratch / out + "\n" +
        extra;
    return train(parse_train_config(text, "c.yaml"), resume, events);
  };
  for (const std::string extra : {"", "lora: {rank: 4, alpha: 8, targets: all-linear}\n"}) {
    const std::string out = extra.empty() ? "whole" : "adapter";
    run(out, extra, false);
    const std::vector<Json> told = metrics_of(scratch / out);
    EXPECT_LT(told.back().at("val_loss").get<double>(), 0.9 * told.front().at("val_loss").get<double>()) << out;
    EXPECT_FALSE(told.front().contains("val_bits_per_byte"));
  }
  EXPECT_CONTAINS(message_of<InputError>([&] { run("no", "dpo: {beta: 0.1}\n", false); }),
                  "holds conversations, and dpo learns from preferences");
}

}  // namespace
}  // namespace vitrine
