// POST /v1/completions over a socket: what the offline program makes, field by field.
#include <algorithm>
#include <numeric>

#include "serve/token_text.h"
#include "support.h"

namespace vitrine::serve {
namespace {

class Completions : public testing::Test {
 protected:
  Served served;
  const OrderedJson greedy = {{"prompt", "Once upon a time"}, {"max_tokens", 12}, {"temperature", 0}, {"return_token_ids", true}};
  std::vector<int32_t> ids(const std::string& text) const { return served.alone.prompt_ids(text); }
};

TEST_F(Completions, GreedyIdsAndTextAreThoseOfGenerate) {
  const Generation made = served.greedy(ids("Once upon a time"), 12);
  const OrderedJson json = served.made("/v1/completions", greedy);
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_TRUE(json["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(json["model"], "tales9m");
  EXPECT_TRUE(json["system_fingerprint"].get<std::string>().starts_with("vitrine-"));
  ASSERT_EQ(json["choices"].size(), 1U);
  const OrderedJson& choice = json["choices"][0];
  EXPECT_EQ(choice["text"], made.text);
  EXPECT_EQ(choice["index"], 0);
  EXPECT_EQ(choice["logprobs"], nullptr);
  EXPECT_EQ(choice["finish_reason"], made.finish_reason);
  EXPECT_EQ(choice["token_ids"], made.tokens);
  EXPECT_EQ(choice["prompt_token_ids"], ids("Once upon a time"));
  EXPECT_EQ(json["usage"]["prompt_tokens"], ids("Once upon a time").size());
  EXPECT_EQ(json["usage"]["completion_tokens"], made.tokens.size());
  EXPECT_EQ(json["usage"]["total_tokens"], ids("Once upon a time").size() + made.tokens.size());
  EXPECT_FALSE(json.contains("ignored_fields"));
}

TEST_F(Completions, EveryFormOfPrompt) {
  const std::vector<int32_t> a = ids("Once upon a time"), b = ids("The dog");
  const std::string text_a = served.greedy(a, 12).text, text_b = served.greedy(b, 12).text;
  OrderedJson request = greedy;
  request["prompt"] = {"Once upon a time", "The dog"};
  OrderedJson json = served.made("/v1/completions", request);
  ASSERT_EQ(json["choices"].size(), 2U);
  EXPECT_EQ(json["choices"][0]["text"], text_a);
  EXPECT_EQ(json["choices"][1]["text"], text_b);
  EXPECT_EQ(json["choices"][1]["index"], 1);
  EXPECT_EQ(json["usage"]["prompt_tokens"], a.size() + b.size());
  request["prompt"] = a;
  EXPECT_EQ(served.made("/v1/completions", request)["choices"][0]["text"], text_a);
  request["prompt"] = OrderedJson::array({a, b});
  EXPECT_EQ(served.made("/v1/completions", request)["choices"][1]["text"], text_b);
}

TEST_F(Completions, StreamedIsWhatIsNotStreamed) {
  for (const bool sampled : {false, true}) {
    OrderedJson request = greedy;
    request["n"] = 3;
    request["seed"] = 5;
    request["logprobs"] = 2;
    request["echo"] = true;
    if (sampled) request["temperature"] = 1.2;
    const OrderedJson whole = served.made("/v1/completions", request);
    request["stream_options"] = {{"include_usage", true}};
    const std::vector<Event> events = served.events("/v1/completions", request);
    ASSERT_EQ(events.back().data, "[DONE]");
    std::vector<std::string> texts(3), reasons(3);
    std::vector<OrderedJson> logprobs(3, OrderedJson::array());
    for (size_t i = 0; i + 2 < events.size(); ++i) {
      const OrderedJson json = events[i].json();
      EXPECT_EQ(json["id"], events[0].json()["id"]);
      EXPECT_EQ(json["object"], "text_completion");
      EXPECT_EQ(json["usage"], nullptr);
      const OrderedJson& choice = json["choices"][0];
      const auto index = choice["index"].get<size_t>();
      texts[index] += choice["text"].get<std::string>();
      if (!choice["finish_reason"].is_null()) reasons[index] = choice["finish_reason"];
      if (!choice["logprobs"].is_null())
        for (const OrderedJson& x : choice["logprobs"]["token_logprobs"]) logprobs[index].push_back(x);
    }
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(OrderedJson(texts[i]), whole["choices"][i]["text"]);
      EXPECT_EQ(OrderedJson(reasons[i]), whole["choices"][i]["finish_reason"]);
      EXPECT_EQ(logprobs[i], whole["choices"][i]["logprobs"]["token_logprobs"]);
    }
    const OrderedJson last = events[events.size() - 2].json();
    EXPECT_EQ(last["choices"], OrderedJson::array());
    EXPECT_EQ(last["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    EXPECT_EQ(last["usage"]["prompt_tokens"], whole["usage"]["prompt_tokens"]);
    if (sampled) {
      EXPECT_NE(texts[0], texts[1]);
    }  // choices of one seed differ
  }
}

TEST_F(Completions, SeedsRepeatAndAreDrawnWhereNoneIsGiven) {
  OrderedJson request = greedy;
  request["temperature"] = 1.5;
  request["max_tokens"] = 24;
  request["seed"] = 7;
  const std::string text = served.made("/v1/completions", request)["choices"][0]["text"];
  EXPECT_EQ(served.made("/v1/completions", request)["choices"][0]["text"], text);
  GenerateOptions options;
  options.sampling.temperature = 1.5;
  options.sampling.seed = 7;
  EXPECT_EQ(text, served.greedy(ids("Once upon a time"), 24, options).text);
  for (const char* path : {"/v1/completions", "/completion"}) {
    const auto texts = [&](const OrderedJson& json) {
      const OrderedJson& list = json.is_array() ? json : json.contains("choices") ? json["choices"] : OrderedJson::array({json});
      std::vector<std::string> all;
      for (const OrderedJson& one : list) all.push_back(one.contains("text") ? one["text"] : one["content"]);
      return all;
    };
    OrderedJson batch = request;
    batch["prompt"] = OrderedJson::array({"The dog", "Once upon a time", "Once upon a time"});
    const std::vector<std::string> seeded = texts(served.made(path, batch));  // each as it is alone
    EXPECT_EQ(seeded[1], texts(served.made(path, request))[0]) << path;
    EXPECT_EQ(seeded[2], seeded[1]) << path;
    for (const OrderedJson& drawn : {OrderedJson(nullptr), OrderedJson(-1)}) {
      request["seed"] = batch["seed"] = drawn;
      EXPECT_NE(texts(served.made(path, request)), texts(served.made(path, request))) << path;
      const std::vector<std::string> drawn_texts = texts(served.made(path, batch));
      EXPECT_NE(drawn_texts[1], drawn_texts[2]) << path;
    }
    request["seed"] = 7;
  }
}

TEST_F(Completions, EveryRuleOfSamplingIsHonored) {
  GenerateOptions options;
  options.sampling.temperature = 1.3;
  options.sampling.top_k = 50;
  options.sampling.top_p = 0.97;
  options.sampling.min_p = 0.001;
  options.sampling.typical_p = 0.98;
  options.sampling.repetition_penalty = 1.1;
  options.sampling.frequency_penalty = 0.4;
  options.sampling.presence_penalty = -0.3;
  options.sampling.logit_bias = {{300, 3.5}};
  options.sampling.seed = 11;
  const OrderedJson request = {{"prompt", "Once upon a time"},
                               {"max_tokens", 24},
                               {"temperature", 1.3},
                               {"top_k", 50},
                               {"top_p", 0.97},
                               {"min_p", 0.001},
                               {"typical_p", 0.98},
                               {"repetition_penalty", 1.1},
                               {"frequency_penalty", 0.4},
                               {"presence_penalty", -0.3},
                               {"logit_bias", {{"300", 3.5}}},
                               {"seed", 11},
                               {"return_token_ids", true}};
  const std::vector<int32_t> all = served.greedy(ids("Once upon a time"), 24, options).tokens;
  EXPECT_EQ(served.made("/v1/completions", request)["choices"][0]["token_ids"], all);
  // And each of them has a part in it.
  for (const char* field : {"temperature", "repetition_penalty", "frequency_penalty", "presence_penalty", "logit_bias"}) {
    OrderedJson without = request;
    without.erase(field);
    EXPECT_NE(served.made("/v1/completions", without)["choices"][0]["token_ids"], all) << field;
  }
}

// The fields of every sampling option give what the same options give by themselves, alone and in one request.
TEST_F(Completions, EachSamplingOptionHasItsField) {
  const std::vector<int32_t> prompt = ids("Once upon a time there was a king, and the king");
  const OrderedJson plain = {{"prompt", prompt}, {"max_tokens", 16}, {"seed", 3}, {"return_token_ids", true}};
  const std::map<std::string, double> values = {{"top_k", 3},
                                                {"mirostat", 2},
                                                {"mirostat_tau", 1},
                                                {"mirostat_eta", 0.5},
                                                {"top_n_sigma", 0.7},
                                                {"dry_base", 3},
                                                {"dry_multiplier", 2},
                                                {"xtc_probability", 1},
                                                {"xtc_threshold", 0.05},
                                                {"dry_allowed_length", 1},
                                                {"dry_penalty_last_n", 9}};
  const auto all_of = [&](const SamplingOption& option) { return values.contains(option.name) ? values.at(option.name) : 0.6; };
  const OrderedJson usual = served.made("/v1/completions", plain)["choices"][0]["token_ids"];
  for (const SamplingOption& changed : sampling_options()) {
    GenerateOptions options;
    options.sampling.temperature = 1;  // OpenAI's default
    options.sampling.seed = 3;
    OrderedJson request = plain;
    for (const SamplingOption& option : sampling_options()) {
      if (option.rule != changed.rule) continue;
      option.set(options.sampling, all_of(option));
      request[option.name] = all_of(option);
      if (option.is_whole()) request[option.name] = static_cast<int>(all_of(option));
    }
    const OrderedJson made = served.made("/v1/completions", request)["choices"][0]["token_ids"];
    EXPECT_EQ(made, served.greedy(prompt, 16, options).tokens) << changed.name;
    EXPECT_NE(made, usual) << changed.name << " has no part in it";
  }
}

TEST_F(Completions, StopStringsAndEndTokens) {
  const Generation made = served.greedy(ids("Once upon a time"), 12);
  ASSERT_GT(made.text.size(), 12U);
  const std::string stop = made.text.substr(7, 4);  // wherever token borders lie
  const std::string before = made.text.substr(0, made.text.find(stop));
  OrderedJson request = greedy;
  request["stop"] = stop;
  OrderedJson json = served.made("/v1/completions", request);
  EXPECT_EQ(json["choices"][0]["text"], before);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  request["stop"] = {"never seen", stop};
  request["include_stop_str_in_output"] = true;
  json = served.made("/v1/completions", request);
  EXPECT_EQ(json["choices"][0]["text"], before + stop);
  std::string streamed;
  for (const Event& event : served.events("/v1/completions", request))
    if (event.data != "[DONE]") streamed += event.json()["choices"][0]["text"].get<std::string>();
  EXPECT_EQ(streamed, before + stop);

  request = greedy;
  request["stop_token_ids"] = {made.tokens[3]};
  json = served.made("/v1/completions", request);
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(json["choices"][0]["token_ids"], std::vector<int32_t>(made.tokens.begin(), made.tokens.begin() + 4));
  EXPECT_TRUE(made.text.starts_with(json["choices"][0]["text"].get<std::string>()));
  request["min_tokens"] = 6;  // then that token cannot come so early
  json = served.made("/v1/completions", request);
  EXPECT_GE(json["choices"][0]["token_ids"].size(), 6U);
  EXPECT_NE(json["choices"][0]["token_ids"][3], made.tokens[3]);

  GenerateOptions on;
  on.ignore_eos = true;
  request = greedy;
  request["max_tokens"] = 400;
  request["ignore_eos"] = true;
  EXPECT_EQ(served.made("/v1/completions", request)["choices"][0]["token_ids"],
            served.greedy(ids("Once upon a time"), 400, on).tokens);
}

TEST_F(Completions, LogprobsAreLogSoftmaxOfTheUnmodifiedLogits) {
  OrderedJson request = greedy;
  request["logprobs"] = 3;
  request["echo"] = true;
  request["logit_bias"] = {{"300", -4}};
  request["temperature"] = 0.7;
  request["seed"] = 2;
  const OrderedJson json = served.made("/v1/completions", request);
  const OrderedJson& choice = json["choices"][0];
  std::vector<int32_t> all = choice["prompt_token_ids"];
  for (const OrderedJson& id : choice["token_ids"]) all.push_back(id);
  const std::vector<float> expected = served.alone.token_logprobs(all);  // of all but the first
  const std::vector<Prediction> predictions = served.alone.predict(all, 3, true);
  const OrderedJson& logprobs = choice["logprobs"];
  ASSERT_EQ(logprobs["tokens"].size(), all.size());
  ASSERT_EQ(logprobs["token_logprobs"].size(), all.size());
  ASSERT_EQ(logprobs["top_logprobs"].size(), all.size());
  ASSERT_EQ(logprobs["text_offset"].size(), all.size());
  EXPECT_EQ(logprobs["token_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_EQ(logprobs["token_logprobs"][i].get<float>(), expected[i - 1]) << i;
    EXPECT_EQ(logprobs["tokens"][i], token_text(served.alone, all[i]));
    const OrderedJson& top = logprobs["top_logprobs"][i];
    EXPECT_LE(top.size(), 4U);  // the token itself may be a further one
    for (const TokenLogprob& t : predictions[i - 1].top)
      EXPECT_EQ(top[token_text(served.alone, t.token)].get<float>(), t.logprob) << i;
    EXPECT_EQ(top[token_text(served.alone, all[i])], logprobs["token_logprobs"][i]);
  }
  const std::string text = choice["text"];
  EXPECT_TRUE(text.starts_with("Once upon a time"));
  for (size_t i = 1; i < all.size(); ++i) {
    const auto at = logprobs["text_offset"][i].get<size_t>();
    const std::string piece = token_bytes(served.alone, all[i]);
    if (i == 1) continue;  // the first word has no space in the text
    EXPECT_EQ(text.substr(at, piece.size()), piece) << i;
  }
}

// What lm-evaluation-harness sends and reads (local-completions): the last entry is dropped, and a token is greedy if its
// log-probability is the largest in top_logprobs as the same number.
TEST_F(Completions, EchoedLogprobsSayWhatIsGreedy) {
  std::vector<int32_t> prompt = ids("Once upon a time");
  const std::vector<int32_t> made = served.greedy(prompt, 6).tokens;
  const size_t context = prompt.size();
  prompt.insert(prompt.end(), made.begin(), made.end());
  std::vector<int32_t> other = prompt;
  other[context + 2] = other[context + 2] == 300 ? 301 : 300;
  const OrderedJson json = served.made("/v1/completions", {{"prompt", OrderedJson::array({prompt, other})},
                                                           {"temperature", 0},
                                                           {"max_tokens", 1},
                                                           {"logprobs", 1},
                                                           {"seed", 1234},
                                                           {"echo", true}});
  std::vector<bool> greedy_texts;
  for (size_t c = 0; c < 2; ++c) {
    const OrderedJson& logprobs = json["choices"][c]["logprobs"];
    ASSERT_EQ(logprobs["token_logprobs"].size(), prompt.size() + 1);
    const std::vector<float> expected = served.alone.token_logprobs(c == 0 ? prompt : other);
    bool all = true;
    for (size_t i = context; i < prompt.size(); ++i) {
      EXPECT_EQ(logprobs["token_logprobs"][i].get<float>(), expected[i - 1]);
      double best = -1e9;
      for (const auto& [name, value] : logprobs["top_logprobs"][i].items()) best = std::max(best, value.get<double>());
      all = all && best == logprobs["token_logprobs"][i].get<double>();
    }
    greedy_texts.push_back(all);
  }
  EXPECT_EQ(greedy_texts, (std::vector<bool>{true, false}));
}

TEST_F(Completions, EchoWithoutNewTokensScoresThePrompt) {
  const std::vector<int32_t> prompt = ids("Once upon a time there was a dog");
  const OrderedJson json =
      served.made("/v1/completions", {{"prompt", prompt}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 0}});
  const OrderedJson& choice = json["choices"][0];
  ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), prompt.size());
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["completion_tokens"], 0);
  const std::vector<float> expected = served.alone.token_logprobs(prompt);
  for (size_t i = 1; i < prompt.size(); ++i) EXPECT_EQ(choice["logprobs"]["token_logprobs"][i].get<float>(), expected[i - 1]);
}

TEST_F(Completions, BestOfGivesTheLikeliest) {
  OrderedJson request = greedy;
  request.update(OrderedJson{{"temperature", 1.5}, {"seed", 3}, {"n", 6}, {"logprobs", 0}});
  const OrderedJson all = served.made("/v1/completions", request);
  std::vector<std::pair<double, std::string>> scored;
  for (const OrderedJson& choice : all["choices"]) {
    const std::vector<double> x = choice["logprobs"]["token_logprobs"];
    scored.emplace_back(std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()), choice["text"]);
  }
  std::sort(scored.rbegin(), scored.rend());
  request["n"] = 2;
  request["best_of"] = 6;
  const OrderedJson best = served.made("/v1/completions", request);
  ASSERT_EQ(best["choices"].size(), 2U);
  EXPECT_EQ(best["choices"][0]["text"], scored[0].second);
  EXPECT_EQ(best["choices"][1]["text"], scored[1].second);
  EXPECT_EQ(best["usage"]["completion_tokens"], all["usage"]["completion_tokens"]);
}

TEST_F(Completions, RefusalsNameTheField) {
  const auto refuses = [&](const OrderedJson& change, int status, const std::string& param, const std::string& words) {
    OrderedJson request = greedy;
    request.update(change);
    expect_error(served.post("/v1/completions", request), status, param, words);
  };
  refuses({{"prompt", nullptr}}, 400, "prompt", "is missing");
  refuses({{"prompt", OrderedJson::array()}}, 400, "prompt", "empty list");
  refuses({{"prompt", OrderedJson::array({OrderedJson::array()})}}, 400, "prompt", "empty list of ids");
  refuses({{"prompt", {1, "a"}}}, 400, "prompt", "mixes");
  refuses({{"prompt", {6144}}}, 400, "prompt", "0 to 6143");
  refuses({{"prompt", {-1}}}, 400, "prompt", "0 to 6143");
  refuses({{"prompt", {9223372036854775807}}}, 400, "prompt", "0 to 6143");
  refuses({{"prompt", std::vector<int>(1025, 300)}}, 400, "prompt", "1025 tokens, and the context holds 1024");
  refuses({{"suffix", "end"}}, 400, "suffix", "only at its end");
  refuses({{"temperature", -1}}, 400, "temperature", "from 0");
  refuses({{"temperature", "hot"}}, 400, "temperature", "expected a number");
  refuses({{"top_p", 1.5}}, 400, "top_p", "from 0 to 1");
  refuses({{"n", 0}}, 400, "n", "from 1 to 128");
  refuses({{"n", 3}, {"best_of", 2}}, 400, "best_of", "less than");
  refuses({{"best_of", 2}, {"stream", true}}, 400, "best_of", "streamed");
  refuses({{"stream_options", {{"include_usage", true}}}}, 400, "stream_options", "without");
  refuses({{"logit_bias", {{"9999", 1}}}}, 400, "logit_bias", "0 to 6143");
  refuses({{"logit_bias", {{"300", "x"}}}}, 400, "logit_bias", "expected a number");
  refuses({{"stop_token_ids", {-2}}}, 400, "stop_token_ids", "0 to 6143");
  refuses({{"stop", ""}}, 400, "", "stop string");
  refuses({{"stop", std::vector<std::string>(129, "a")}}, 400, "stop", "129 entries");
  refuses({{"stop", std::vector<std::string>(3, std::string(30'000, 'a'))}}, 400, "stop", "90000 bytes");
  refuses({{"stop_token_ids", std::vector<int>(1025, 3)}}, 400, "stop_token_ids", "1025 entries");
  refuses({{"logit_bias", std::vector<std::pair<int, int>>(4097, {3, 1})}}, 400, "logit_bias", "4097 entries");
  refuses({{"logit_bias", {{"99999999999999999999", 1}}}}, 400, "logit_bias", "0 to 6143");
  refuses({{"min_tokens", 13}}, 400, "", "more than max_tokens");
  refuses({{"use_beam_search", true}}, 400, "use_beam_search", "beams");
  refuses({{"mirostat", 3}}, 400, "mirostat", "from 0 to 2");
  refuses({{"typical_p", 0}}, 400, "typical_p", "above 0");
  refuses({{"dry_base", 0.5}}, 400, "dry_base", "from 1");
  refuses({{"dynatemp_range", 0.5}}, 400, "dynatemp_range", "temperature");
  refuses({{"model", "gpt-4"}}, 404, "model", "this server runs \"tales9m\"");
  expect_error(served.ask("POST", "/v1/completions", R"({"prompt": "Once)"), 400, "", "JSON: it is truncated after 16 bytes");
  expect_error(served.ask("POST", "/v1/completions", R"({"prompt": "Once"}})"), 400, "", "JSON at byte 19 of 19");
}

TEST_F(Completions, IgnoredFieldsAreNamed) {
  OrderedJson request = greedy;
  request.update(OrderedJson{{"user", "me"}, {"wish", 1}, {"use_beam_search", false}, {"stream_options", nullptr}});
  EXPECT_EQ(served.made("/v1/completions", request)["ignored_fields"], (OrderedJson{"user", "wish"}));
  const std::vector<Event> events = served.events("/v1/completions", request);
  EXPECT_EQ(events[0].json()["ignored_fields"], (OrderedJson{"user", "wish"}));
  EXPECT_FALSE(events[1].json().contains("ignored_fields"));
}

TEST(CompletionsStrict, RefuseUnknownFieldsAndTakeAliases) {
  ServiceOptions options;
  options.strict_fields = true;
  options.name = "tales";
  options.aliases = {"gpt-4"};
  const Served served(options);
  expect_error(served.post("/v1/completions", {{"prompt", "a"}, {"wish", 1}}), 400, "wish", "not a field");
  EXPECT_EQ(served.made("/v1/completions", {{"prompt", "a"}, {"max_tokens", 1}, {"model", "gpt-4"}})["model"], "tales");
}

TEST(CompletionsLeaving, AClientThatLeavesEndsItsStreams) {
  const Served served;
  for (const bool streamed : {false, true}) {
    Connection connection(served.server->port());
    connection.send(
        "POST", "/v1/completions",
        OrderedJson{{"prompt", "Once"}, {"max_tokens", 1000}, {"ignore_eos", true}, {"stream", streamed}, {"n", 4}}.dump());
    if (streamed) {
      EXPECT_NE(connection.some(), "");
    } else {
      while (served.service->scheduler().stats().running + served.service->scheduler().stats().waiting == 0)
        std::this_thread::yield();
    }
    connection.close();
    for (int i = 0; i < 10000 && !served.service->scheduler().idle(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const SchedulerStats stats = served.service->scheduler().stats();
    EXPECT_TRUE(served.service->scheduler().idle());
    EXPECT_EQ(stats.cancelled, streamed ? 8U : 4U);
  }
  EXPECT_EQ(served.made("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 2}})["choices"].size(), 1U);
}

// A stream sends the most likely tokens at once; a whole answer holds them all.
TEST(CompletionLimits, AnAnswerHoldsSoManyLikeliestTokensAndAStreamAnyNumber) {
  ServiceOptions options;
  options.most_likeliest = 90;
  const Served served(options);
  const auto request = [](OrderedJson more) {
    OrderedJson json = {{"prompt", std::vector<int>(11, 300)}, {"temperature", 0}, {"logprobs", 3}, {"ignore_eos", true}};
    json.update(more);
    return json;
  };
  for (const OrderedJson& fits :
       std::vector<OrderedJson>{{{"max_tokens", 30}}, {{"max_tokens", 15}, {"n", 2}}, {{"max_tokens", 20}, {"echo", true}}})
    EXPECT_EQ(served.post("/v1/completions", request(fits)).status, 200) << fits;
  for (const OrderedJson& fails : std::vector<OrderedJson>{
           {{"max_tokens", 31}}, {{"max_tokens", 16}, {"n", 2}}, {{"max_tokens", 21}, {"echo", true}}, {{"max_tokens", -1}}})
    expect_error(served.post("/v1/completions", request(fails)), 400, "", "more than 90 most likely tokens");
  size_t told = 0;
  for (const Event& event : served.events("/v1/completions", request({{"max_tokens", 40}}))) {
    const OrderedJson logprobs = event.data == "[DONE]" ? nullptr : event.json()["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const OrderedJson& top : logprobs["top_logprobs"]) told += top.size();
  }
  EXPECT_GE(told, 120U);
}

}  // namespace
}  // namespace vitrine::serve
