// The fields edits and inspect of completions and chat: tokens and values are those of the offline functions, bit for bit.
#include <functional>
#include <thread>

#include "hooks/spliced_model.h"
#include "hooks/trace.h"
#include "ops/listening.h"
#include "requests/shared.h"
#include "serve/inside.h"
#include "support.h"

namespace vitrine::serve {
namespace {

ServiceOptions chat_options() {
  ServiceOptions options;
  options.chat_template = kChatTemplate;
  return options;
}

class Watched : public testing::Test {
 protected:
  Served served{chat_options()};
  const std::string text = "Once upon a time there was an old king, and the old king sat on";  // a prefix that would be kept
  const OrderedJson edits = OrderedJson::parse(
      R"([{"hook": "resid_post.2", "do": "add", "vector": {"plus": "The queen", "minus": "The king"}, "times": 3},
          {"head": 4.1, "do": "zero"}])");
  std::vector<int32_t> ids() const { return served.alone.prompt_ids(text); }
  OrderedJson request(const OrderedJson& change = OrderedJson::object()) const {
    OrderedJson json = {{"prompt", text}, {"max_tokens", 8}, {"temperature", 0}, {"return_token_ids", true}};
    json.update(change);
    return json;
  }
  // What the offline program makes with the edits switched on.
  Generation edited(const std::vector<int32_t>& prompt, GenerateOptions options) {
    options.eos = served.alone.end_tokens();
    const std::unique_ptr<Interventions> planned = planned_edits(served.alone, &edits, prompt);
    const Listening listening(served.alone.context(), *planned);
    return generate(served.alone, prompt, options);
  }
  Recorder traced(const OrderedJson& inspected, const std::vector<std::string>& hooks, Listener* changes = nullptr) {
    return trace_to_memory(served.alone, inspected["tokens"].get<std::vector<int32_t>>(), hooks, changes);
  }
};

std::vector<float> flat(const OrderedJson& values) {
  std::vector<float> numbers;
  const std::function<void(const OrderedJson&)> add = [&](const OrderedJson& part) {
    if (!part.is_array()) return numbers.push_back(part.is_null() ? -INFINITY : part.get<float>());
    for (const OrderedJson& inner : part) add(inner);
  };
  add(values);
  return numbers;
}

void expect_values(const OrderedJson& inspected, const Recorder& offline) {
  ASSERT_EQ(inspected["hooks"].size(), offline.values().size());
  for (const OrderedJson& one : inspected["hooks"]) {
    const std::string name = one["name"];
    ASSERT_TRUE(offline.values().contains(name)) << name;
    const Recorder::Value& value = offline.values().at(name);
    ASSERT_EQ(one["shape"], value.shape) << name;
    const std::vector<float> told = flat(one["values"]);
    ASSERT_EQ(told.size(), value.values.size()) << name;
    const auto different = std::ranges::mismatch(told, value.values);
    if (different.in1 != told.end())
      ADD_FAILURE() << name << " at " << different.in1 - told.begin() << ": " << *different.in1 << " for " << *different.in2;
  }
}

TEST_F(Watched, EditsAreOnForOneRequest) {
  const Generation plain = served.greedy(ids(), 8), changed = edited(ids(), {.max_tokens = 8});
  ASSERT_NE(changed.tokens, plain.tokens);
  const OrderedJson asked = request({{"edits", edits}, {"logprobs", 2}});
  for (int round = 0; round < 2; ++round) {  // no prefix of an edited text is kept, nor used for one
    EXPECT_EQ(served.made("/v1/completions", request())["choices"][0]["token_ids"], plain.tokens);
    const OrderedJson json = served.made("/v1/completions", asked);
    const OrderedJson& choice = json["choices"][0];
    EXPECT_EQ(choice["token_ids"], changed.tokens);
    EXPECT_EQ(choice["text"], changed.text);
    EXPECT_EQ(flat(choice["logprobs"]["token_logprobs"]), changed.logprobs);
    EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    EXPECT_FALSE(json.contains("inspect"));
    EXPECT_FALSE(json.contains("ignored_fields")) << json;
  }
  std::vector<int32_t> streamed;
  for (const Event& event : served.events("/v1/completions", asked)) {
    if (event.data == "[DONE]") break;
    for (const OrderedJson& id : event.json()["choices"][0].value("token_ids", OrderedJson::array())) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, changed.tokens);
  const OrderedJson steered =
      served.made("/v1/steer", {{"prompt", text}, {"max_tokens", 8}, {"temperature", 0}, {"edits", edits}});
  EXPECT_EQ(steered["after"]["tokens"], changed.tokens);
}

TEST_F(Watched, SamplingFieldsActBesideEdits) {
  GenerateOptions options{.max_tokens = 24};
  options.sampling = {.temperature = 0.9, .top_k = 40, .top_p = 0.95, .repetition_penalty = 1.2, .seed = 11};
  const Generation whole = edited(ids(), options);
  const std::string stop = whole.text.substr(whole.text.size() / 2, 4);
  options.stops = {stop};
  const Generation stopped = edited(ids(), options);
  ASSERT_LT(stopped.text.size(), whole.text.size());
  const OrderedJson json = served.made("/v1/completions", request({{"edits", edits},
                                                                   {"max_tokens", 24},
                                                                   {"temperature", 0.9},
                                                                   {"top_k", 40},
                                                                   {"top_p", 0.95},
                                                                   {"repetition_penalty", 1.2},
                                                                   {"seed", 11},
                                                                   {"stop", stop}}));
  EXPECT_EQ(json["choices"][0]["token_ids"], stopped.tokens);
  EXPECT_EQ(json["choices"][0]["text"], stopped.text);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST_F(Watched, SeveralTextsHaveTheEditsOfTheirPrompts) {
  const std::string other = "Once upon a time there was a king, and the king";
  const OrderedJson json = served.made("/v1/completions", request({{"prompt", {text, other}}, {"n", 2}, {"edits", edits}}));
  ASSERT_EQ(json["choices"].size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    const auto prompt = i < 2 ? ids() : served.alone.prompt_ids(other);
    EXPECT_EQ(json["choices"][i]["token_ids"], edited(prompt, {.max_tokens = 8}).tokens) << i;
  }
}

TEST_F(Watched, AnEchoedPromptIsScoredWithTheEdits) {
  const OrderedJson json =
      served.made("/v1/completions", request({{"edits", edits}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}}));
  const std::vector<float> scores = flat(json["choices"][0]["logprobs"]["token_logprobs"]);
  ASSERT_EQ(scores.size(), ids().size());
  const std::unique_ptr<Interventions> planned = planned_edits(served.alone, &edits, ids());
  const std::vector<std::string> hooks = {"hook_logits"};
  const Recorder offline = trace_to_memory(served.alone, ids(), hooks, planned.get());
  const auto& logits = offline.values().at("hook_logits");
  const auto vocab = static_cast<size_t>(logits.shape[1]);
  for (size_t i = 1; i < scores.size(); ++i) {
    const std::span<const float> row(logits.values.data() + (i - 1) * vocab, vocab);
    EXPECT_EQ(scores[i], static_cast<float>(static_cast<double>(row[static_cast<size_t>(ids()[i])]) - log_sum_exp(row))) << i;
  }
}

TEST_F(Watched, InspectGivesTheValuesOfTrace) {
  const std::vector<std::string> hooks = {"blocks.*.hook_resid_post", "pattern.1[heads=2]", "attn_scores.5",
                                          "q.0[heads=1,positions=2:]"};
  const OrderedJson json = served.made("/v1/completions", request({{"inspect", hooks}}));
  const Generation plain = served.greedy(ids(), 8);
  EXPECT_EQ(json["choices"][0]["token_ids"], plain.tokens);
  std::vector<int32_t> read = ids();
  read.insert(read.end(), plain.tokens.begin(), plain.tokens.end() - 1);
  const OrderedJson& inspected = json["inspect"];
  EXPECT_EQ(inspected["tokens"], read);
  EXPECT_EQ(inspected["pieces"].size(), read.size());
  expect_values(inspected, traced(inspected, hooks));
  const OrderedJson offline = served.made("/v1/inspect", {{"prompt", read}, {"hooks", hooks}});
  for (const char* key : {"hooks", "command", "tokens", "pieces"}) EXPECT_EQ(inspected[key], offline[key]) << key;

  const std::vector<Event> events = served.events("/v1/completions", request({{"inspect", hooks}}));
  const OrderedJson last = events.at(events.size() - 2).json();
  EXPECT_EQ(events.back().data, "[DONE]");
  EXPECT_EQ(last["choices"], OrderedJson::array());
  EXPECT_EQ(last["inspect"], inspected);
  EXPECT_FALSE(last.contains("usage"));
  const std::vector<Event> counted =
      served.events("/v1/completions", request({{"inspect", "hook_embed"}, {"stream_options", {{"include_usage", true}}}}));
  EXPECT_EQ(counted.size(), events.size());
  EXPECT_EQ(counted.at(counted.size() - 2).json()["usage"]["completion_tokens"], 8);
  EXPECT_TRUE(counted.at(counted.size() - 2).json().contains("inspect"));
}

TEST_F(Watched, NegativePositionsCountFromTheEndOfThePrompt) {
  const auto last = std::to_string(ids().size() - 1);
  const OrderedJson json =
      served.made("/v1/completions",
                  request({{"inspect", {"resid_post.3[positions=-1]", "z.2[positions=-1:]", "hook_logits[positions=-1:]"}}}));
  expect_values(json["inspect"], traced(json["inspect"], {"resid_post.3[positions=" + last + "]", "z.2[positions=" + last + ":]",
                                                          "hook_logits[positions=" + last + ":]"}));
  EXPECT_FALSE(json["inspect"].contains("command"));
  // The logits at a place are those its next token was taken from.
  const OrderedJson& logits = json["inspect"]["hooks"][2];
  ASSERT_EQ(logits["shape"][0], 8);
  for (size_t i = 0; i < 8; ++i) {
    const std::vector<float> row = flat(logits["values"][i]);
    EXPECT_EQ(std::ranges::max_element(row) - row.begin(), json["choices"][0]["token_ids"][i].get<int64_t>());
  }
}

TEST_F(Watched, InspectSeesWhatTheEditsMade) {
  const std::vector<std::string> hooks = {"z.4[heads=1]", "resid_post.2", "hook_logits"};
  const OrderedJson json = served.made("/v1/completions", request({{"inspect", hooks}, {"edits", edits}}));
  const std::unique_ptr<Interventions> planned = planned_edits(served.alone, &edits, ids());
  expect_values(json["inspect"], traced(json["inspect"], hooks, planned.get()));
  ASSERT_EQ(json["inspect"]["hooks"][1]["name"], "blocks.4.attn.hook_z");
  for (const float x : flat(json["inspect"]["hooks"][1]["values"])) EXPECT_EQ(x, 0.0f);
  EXPECT_FALSE(json["inspect"].contains("command"));
}

TEST_F(Watched, PromptsLongerThanAWindowAndAStep) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 700; ++i) prompt.push_back(300 + i * 7 % 1000);
  const std::vector<std::string> hooks = {"pattern.0[heads=0,positions=690:]", "pattern.7[heads=3,positions=500:530]",
                                          "resid_post.7[positions=690:]", "hook_logits[positions=500:530]"};
  const OrderedJson json =
      served.made("/v1/completions", request({{"prompt", prompt}, {"inspect", hooks}, {"ignore_eos", true}}));
  ASSERT_EQ(json["inspect"]["tokens"].size(), 707U);
  expect_values(json["inspect"], traced(json["inspect"], hooks));
}

TEST_F(Watched, ChatHasBoth) {
  const OrderedJson chat = {{"messages", {{{"role", "user"}, {"content", "Tell a tale of a king"}}}},
                            {"max_tokens", 8},
                            {"temperature", 0},
                            {"return_token_ids", true}};
  OrderedJson asked = chat;
  asked["edits"] = edits;
  asked["inspect"] = "resid_post.2";
  const OrderedJson json = served.made("/v1/chat/completions", asked);
  const auto prompt = json["prompt_token_ids"].get<std::vector<int32_t>>();
  const Generation changed = edited(prompt, {.max_tokens = 8, .alone = true});
  EXPECT_EQ(json["choices"][0]["token_ids"], changed.tokens);
  EXPECT_EQ(json["choices"][0]["message"]["content"], changed.text);
  EXPECT_NE(served.made("/v1/chat/completions", chat)["choices"][0]["token_ids"], changed.tokens);
  const std::unique_ptr<Interventions> planned = planned_edits(served.alone, &edits, prompt);
  expect_values(json["inspect"], traced(json["inspect"], {"resid_post.2"}, planned.get()));

  std::string content;
  OrderedJson inspected;
  for (const Event& event : served.events("/v1/chat/completions", asked)) {
    if (event.data == "[DONE]") break;
    const OrderedJson chunk = event.json();
    if (chunk.contains("inspect")) inspected = chunk["inspect"];
    for (const OrderedJson& choice : chunk["choices"]) content += choice["delta"].value("content", "");
  }
  EXPECT_EQ(content, changed.text);
  EXPECT_EQ(inspected, json["inspect"]);
}

TEST_F(Watched, ResponsesAndMessagesHaveBoth) {
  const OrderedJson said = {{{"role", "user"}, {"content", "Tell a tale of a king"}}};
  const OrderedJson both = {{"temperature", 0}, {"edits", edits}, {"inspect", "resid_post.2"}};
  OrderedJson chat = both, response = both, message = both;
  chat.update({{"messages", said}, {"max_tokens", 8}});
  response.update({{"input", said}, {"max_output_tokens", 8}});
  message.update({{"model", "tales9m"}, {"messages", said}, {"max_tokens", 8}});
  const OrderedJson expected = served.made("/v1/chat/completions", chat);
  const OrderedJson& content = expected["choices"][0]["message"]["content"];

  const OrderedJson responded = served.made("/v1/responses", response), told = served.made("/v1/messages", message);
  EXPECT_EQ(responded["output"][0]["content"][0]["text"], content);
  EXPECT_EQ(told["content"][0]["text"], content);
  for (const OrderedJson& json : {responded, told}) {
    EXPECT_EQ(json["inspect"], expected["inspect"]);
    EXPECT_FALSE(json.contains("ignored_fields")) << json;
  }
  const std::vector<Event> of_response = served.events("/v1/responses", response);
  EXPECT_EQ(of_response.back().name, "response.incomplete");
  EXPECT_EQ(of_response.back().json()["response"]["inspect"], expected["inspect"]);
  EXPECT_EQ(of_response.back().json()["sequence_number"], of_response.size() - 1);
  const std::vector<Event> of_message = served.events("/v1/messages", message);
  EXPECT_EQ(of_message.at(of_message.size() - 2).name, "message_delta");
  EXPECT_EQ(of_message.at(of_message.size() - 2).json()["inspect"], expected["inspect"]);

  response["inspect"] = message["inspect"] = "hook_logits";
  response["max_output_tokens"] = message["max_tokens"] = 2000;
  expect_error(served.post("/v1/responses", response), 400, "inspect", "a smaller \"max_output_tokens\"");
  const Reply refused = served.post("/v1/messages", message);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("a smaller \\\"max_tokens\\\""), std::string::npos) << refused.body;
}

TEST_F(Watched, NothingIsSeenWhereNothingWasAsked) {
  const OrderedJson json = served.made("/v1/completions", request({{"edits", OrderedJson::array()}, {"inspect", nullptr}}));
  EXPECT_EQ(json["choices"][0]["token_ids"], served.greedy(ids(), 8).tokens);
  EXPECT_FALSE(json.contains("inspect"));
}

TEST_F(Watched, FeaturesOfAutoencodersAreHooks) {
  SparseAutoencoder random;
  random.d_in = random.d_out = served.alone.shape().d_model;
  random.d_sae = 32;
  random.hook_name = random.hook_name_out = "blocks.2.hook_resid_post";
  auto numbers = [next = uint32_t{1}](int64_t count) mutable {
    FloatVector values(static_cast<size_t>(count));
    for (float& value : values) {
      next = next * 1664525U + 1013904223U;
      value = static_cast<float>(next >> 8) / static_cast<float>(1U << 24) - 0.5F;
    }
    return values;
  };
  random.W_enc = numbers(random.d_in * random.d_sae);
  random.W_dec = numbers(random.d_in * random.d_sae);
  random.b_enc = numbers(random.d_sae);
  random.b_dec = numbers(random.d_in);
  const auto sae = std::make_shared<const SparseAutoencoder>(random);
  for (Engine* engine : {&served.engine, &served.alone})
    engine->run_through(std::make_shared<const SplicedModel>(*engine->opened().model, std::vector<SplicedSae>{{sae, true}}));

  const std::string at = "blocks.2.hook_resid_post.hook_sae_acts_post";
  const OrderedJson edit = {{{"hook", at}, {"features", {"3+=40", "5=0"}}}};
  const std::unique_ptr<Interventions> planned = planned_edits(served.alone, &edit, ids());
  const OrderedJson inspected = served.made("/v1/inspect", {{"prompt", text}, {"hooks", {at, "blocks.2.hook_resid_post"}}});
  EXPECT_FALSE(inspected.contains("command"));  // which names files of the server
  expect_values(inspected, traced(inspected, {at, "blocks.2.hook_resid_post"}));
  const OrderedJson plain = served.made("/v1/completions", request());
  const OrderedJson changed = served.made("/v1/completions", request({{"edits", edit}, {"inspect", {at}}}));
  EXPECT_NE(changed["choices"][0]["token_ids"], plain["choices"][0]["token_ids"]);
  expect_values(changed["inspect"], traced(changed["inspect"], {at}, planned.get()));

  expect_error(served.post("/v1/completions", request({{"inspect", "blocks.3.hook_resid_post.hook_sae_acts_post"}})), 400, "",
               "Its autoencoders have blocks.2.hook_resid_post.hook_sae_input, ");
  const OrderedJson unknown = {{{"hook", at}, {"features", {"32=0"}}}};
  expect_error(served.post("/v1/completions", request({{"edits", unknown}})), 400, "", "has features 0 to 31");
}

TEST_F(Watched, RefusalsNameTheField) {
  const auto refuses = [&](const OrderedJson& change, const std::string& field, const std::string& words) {
    expect_error(served.post("/v1/completions", request(change)), 400, field, words);
    OrderedJson streamed = change;
    streamed["stream"] = true;  // before its head
    expect_error(served.post("/v1/completions", request(streamed)), 400, field, words);
  };
  const OrderedJson unknown = served.post("/v1/inspect", {{"prompt", text}, {"hooks", "blocks.0.hook_resid_pots"}}).json();
  refuses({{"inspect", "blocks.0.hook_resid_pots"}}, "", unknown["error"]["message"]);
  refuses({{"inspect", OrderedJson::array()}}, "inspect", "empty");
  refuses({{"inspect", 3}}, "inspect", "3");
  refuses({{"inspect", "hook_embed"}, {"n", 2}}, "n", "\"n\" is 2");
  refuses({{"inspect", "hook_embed"}, {"prompt", {"a", "b"}}}, "prompt", "holds 2");
  refuses({{"inspect", "hook_embed"}, {"max_tokens", 0}}, "max_tokens", "/v1/inspect");
  refuses({{"inspect", "hook_embed"}, {"echo", true}, {"logprobs", 1}}, "echo", "scored");
  refuses({{"inspect", "hook_logits"}, {"max_tokens", 2000}}, "inspect", "a smaller \"max_tokens\"");
  refuses({{"inspect", "resid_post.0[positions=99]"}}, "", "selects one that does not exist");
  refuses({{"edits", {{{"sae", "/etc"}, {"features", {"1=0"}}}}}}, "sae", "read no files");
  refuses({{"inspect", "blocks.0.hook_resid_post.hook_sae_acts_post"}}, "", "It runs without autoencoders");
  refuses({{"edits", {{{"positions", std::vector<std::string>(1025, "0")}, {"do", "zero"}}}}}, "", "1025 changes");
  refuses({{"edits", {{{"head", 77.1}, {"do", "zero"}}}}}, "", "77");
  refuses({{"edits", "zero"}}, "edits", "a list");
  expect_error(served.post("/v1/completions", request({{"inspect", "hook_embed"}, {"best_of", 3}})), 400, "best_of", "is 3");
  const OrderedJson large = request({{"inspect", "resid_post"}, {"max_tokens", 300}});  // for a stream, not for an answer
  OrderedJson streamed = large;
  streamed["stream"] = true;
  expect_error(served.post("/v1/completions", streamed), 400, "inspect", "leave \"stream\" out");
  EXPECT_EQ(served.post("/v1/completions", large).status, 200);
  expect_error(
      served.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"inspect", "hook_logits"}}),
      400, "inspect", "asks for");
}

TEST_F(Watched, WhoLeavesLeavesNothing) {
  for (int i = 0; i < 12; ++i) {
    Connection connection(served.server->port());
    connection.send(
        "POST", "/v1/completions",
        request({{"stream", true}, {"inspect", "hook_embed"}, {"edits", edits}, {"max_tokens", 400}, {"ignore_eos", true}})
            .dump());
    std::string heard;
    while (heard.find("data:") == std::string::npos) {
      const std::string some = connection.some();
      ASSERT_NE(some, "") << heard;  // it has ended
      heard += some;
    }
    connection.close();
    while (!served.service->scheduler().idle() || served.service->inside() > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(served.service->scheduler().stats().cancelled, 12U);
  EXPECT_EQ(served.made("/v1/completions", request())["choices"][0]["token_ids"], served.greedy(ids(), 8).tokens);
}

TEST_F(Watched, OthersGoOnBesideIt) {
  const Connection plain(served.server->port()), watched(served.server->port());
  const OrderedJson many = {{"max_tokens", 60}, {"ignore_eos", true}};
  GenerateOptions options{.max_tokens = 60, .ignore_eos = true};
  plain.send("POST", "/v1/completions", request(many).dump());
  OrderedJson asked = request(many);
  asked["edits"] = edits;
  watched.send("POST", "/v1/completions", asked.dump());
  EXPECT_EQ(plain.reply().json()["choices"][0]["token_ids"], served.greedy(ids(), 60, options).tokens);
  EXPECT_EQ(watched.reply().json()["choices"][0]["token_ids"], edited(ids(), options).tokens);
}

}  // namespace
}  // namespace vitrine::serve
