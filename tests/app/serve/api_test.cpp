// The other endpoints over a socket.
#include <cmath>
#include <cstring>
#include <thread>

#include "support.h"
#include "vitrine/version.h"

namespace vitrine::serve {
namespace {

ServiceOptions with_chat_template() {
  ServiceOptions options;
  options.chat_template = kChatTemplate;
  options.name = "tales";
  return options;
}

class Api : public testing::Test {
 protected:
  Served served{with_chat_template()};
  static constexpr const char* kPrompt = "Once upon a time";
};

TEST_F(Api, ModelsAndHealth) {
  EXPECT_EQ(served.get("/health").json(), (OrderedJson{{"status", "ok"}}));
  EXPECT_EQ(served.get("/v1/health").status, 200);
  const OrderedJson models = served.get("/v1/models").json();
  EXPECT_EQ(models["object"], "list");
  ASSERT_EQ(models["data"].size(), 1U);
  EXPECT_EQ(models["data"][0]["id"], "tales");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"][0]["type"], "model");
  EXPECT_EQ(models["data"][0]["display_name"], "tales");
  EXPECT_TRUE(models["data"][0]["created_at"].get<std::string>().ends_with("Z"));
  EXPECT_EQ(models["has_more"], false);
  EXPECT_EQ(models["last_id"], "tales");
  EXPECT_EQ(models["data"][0]["meta"]["n_vocab"], 6144);
  EXPECT_EQ(models["data"][0]["meta"]["n_ctx_train"], 1024);
  EXPECT_EQ(served.get("/v1/models/tales").json()["id"], "tales");
  expect_error(served.get("/v1/models/other"), 404, "model", "\"other\" is not here");
  expect_error(served.post("/v1/completions", {{"model", "gpt-4o"}, {"prompt", "a"}}), 404, "model", "--any-model");
  ServiceOptions options;
  options.name = "tales.gguf";
  EXPECT_EQ(Served(options).get("/v1/models/tales").json()["id"], "tales.gguf");
}

TEST_F(Api, WhatTheModelLacksIsRefusedByName) {
  expect_error(served.post("/rerank", {{"query", "a"}, {"documents", {"b"}}}), 501, "", "/v1/score");
  expect_error(served.post("/infill", {{"input_prefix", "a"}, {"input_suffix", "b"}}), 501, "", "<|fim_prefix|>");
}

TEST_F(Api, PathsMethodsAndTypesThatAreNotThere) {
  expect_error(served.get("/v2/models"), 404, "", "/openapi.json");
  EXPECT_EQ(served.get("/api/nothing").status, 404);
  const Reply reply = served.get("/v1/completions");
  expect_error(reply, 405, "", "takes POST, not GET");
  EXPECT_EQ(reply.header("Allow"), "POST, OPTIONS");
  for (const std::string method : {"TRACE", "QUERY"})
    expect_error(served.ask(method, "/health"), 405, "", "takes GET, not " + method);
  const Reply options = served.ask("OPTIONS", "/health");
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.header("Allow"), "GET, HEAD, OPTIONS");
  expect_error(served.ask("OPTIONS", "/nothing"), 404, "", "/openapi.json");
  EXPECT_EQ(served.post("/health", OrderedJson::object()).status, 405);
  const Connection connection(served.server->port());
  connection.send("POST", "/tokenize", R"({"content": "a"})", "text/plain");
  expect_error(connection.reply(), 415, "", "text/plain");
}

TEST_F(Api, TokenizeAndDetokenize) {
  const std::vector<int32_t> with_bos = served.alone.prompt_ids(kPrompt), without = served.alone.prompt_ids(kPrompt, false);
  EXPECT_EQ(served.made("/tokenize", {{"content", kPrompt}})["tokens"], without);
  EXPECT_EQ(served.made("/tokenize", {{"content", kPrompt}, {"add_special", true}})["tokens"], with_bos);
  const OrderedJson vllm = served.made("/tokenize", {{"prompt", kPrompt}, {"return_token_strs", true}});
  EXPECT_EQ(vllm["tokens"], with_bos);
  EXPECT_EQ(vllm["count"], with_bos.size());
  EXPECT_EQ(vllm["max_model_len"], 1024);
  EXPECT_EQ(vllm["token_strs"][0], "<bos>");
  EXPECT_EQ(served.made("/tokenize", {{"prompt", kPrompt}, {"add_special_tokens", false}})["tokens"], without);
  EXPECT_EQ(served.made("/tokenize", {{"content", ""}})["tokens"], OrderedJson::array());
  EXPECT_EQ(served.made("/tokenize", {{"content", "<eos>"}})["tokens"].size(), 1U);
  EXPECT_GT(served.made("/tokenize", {{"content", "<eos>"}, {"parse_special", false}})["tokens"].size(), 1U);
  std::string text;
  const OrderedJson pieces = served.made("/tokenize", {{"content", "a king \xe2\x82\xac and a dog"}, {"with_pieces", true}});
  for (const OrderedJson& token : pieces["tokens"]) {
    EXPECT_TRUE(token["id"].is_number_integer());
    if (token["piece"].is_string())
      text += token["piece"].get<std::string>();
    else
      for (const OrderedJson& byte : token["piece"]) text += static_cast<char>(byte.get<int>());
  }
  EXPECT_NE(text.find("a king \xe2\x82\xac and a dog"), std::string::npos) << text;
  const OrderedJson chat = served.made("/tokenize", {{"messages", {{{"role", "user"}, {"content", "hi"}}}}});
  EXPECT_EQ(chat["tokens"], ChatFormat(served.alone, std::string(kChatTemplate)).ids(std::vector<ChatMessage>{{"user", "hi"}}));
  EXPECT_EQ(served.made("/detokenize", {{"tokens", without}})["content"], kPrompt);
  EXPECT_EQ(served.made("/detokenize", {{"tokens", without}})["prompt"], kPrompt);
  expect_error(served.post("/detokenize", {{"tokens", {6144}}}), 400, "tokens", "0 to 6143");
  expect_error(served.post("/tokenize", OrderedJson::object()), 400, "content", "give either");
  const OrderedJson info = served.get("/tokenizer_info").json();
  EXPECT_EQ(info["bos_token"], "<bos>");
  EXPECT_EQ(info["eos_token_id"], 1);
  EXPECT_EQ(info["vocab_size"], 6144);
  EXPECT_EQ(info["chat_template"], kChatTemplate);
}

TEST_F(Api, PropsSlotsAndMetrics) {
  const OrderedJson props = served.get("/props").json();
  EXPECT_EQ(props["model_alias"], "tales");
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], 1024);
  EXPECT_EQ(props["default_generation_settings"]["params"]["top_k"], 40);
  const OrderedJson& defaults = props["default_generation_settings"]["params"];
  EXPECT_EQ(defaults["ignore_eos"], false);
  EXPECT_EQ(props["chat_template"], kChatTemplate);
  EXPECT_EQ(props["chat_template_reads_tools"], true);
  const OrderedJson slots = served.get("/slots").json();
  EXPECT_EQ(slots.size(), props["total_slots"]);
  EXPECT_EQ(slots[0]["is_processing"], false);
  served.made("/v1/completions", {{"prompt", kPrompt}, {"max_tokens", 5}, {"ignore_eos", true}});
  while (!served.service->scheduler().idle()) std::this_thread::yield();  // its counts follow the answer
  const Reply metrics = served.get("/metrics");
  EXPECT_EQ(metrics.header("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(metrics.header("Process-Start-Time-Unix"), std::to_string(served.service->started()));
  const size_t longest = served.alone.prompt_ids(kPrompt).size() + 5;
  EXPECT_NE(metrics.body.find("\nllamacpp:n_tokens_max " + std::to_string(longest) + "\n"), std::string::npos) << metrics.body;
  for (const char* line : {"\nvitrine_new_tokens_total 5\n", "\nllamacpp:tokens_predicted_total 5\n",
                           "\nvitrine_streams_ended_total{end=\"length\"} 1\n", "\nvitrine_first_token_seconds_count 1\n",
                           "\nvitrine_first_token_seconds_bucket{le=\"+Inf\"} 1\n", "# TYPE vitrine_step_seconds histogram\n",
                           "\nllamacpp:prompt_tokens_cached_total 0\n", "\nllamacpp:spec_decode_num_drafts_total 0\n"})
    EXPECT_NE(metrics.body.find(line), std::string::npos) << line << metrics.body;
  for (const char* name : {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_threads"}) {
    const size_t at = metrics.body.find("\n" + std::string(name) + " ");
    ASSERT_NE(at, std::string::npos) << name;
    EXPECT_GT(std::stod(metrics.body.substr(at + std::string(name).size() + 2)), 0) << name;
  }
  EXPECT_NE(metrics.body.find("\nvitrine_build_info{version=\"" + std::string(version()) + "\",kernels=\""), std::string::npos);
  // The names go round.
  const OrderedJson again =
      served.made("/completion", {{"prompt", kPrompt}, {"n_predict", 2}, {"samplers", defaults["samplers"]}, {"temperature", 0}});
  EXPECT_EQ(again["generation_settings"]["samplers"], defaults["samplers"]);
}

// The first token comes from the prompt's logits: it counts, and the rates leave it out.
TEST_F(Api, TimingsCountEveryToken) {
  OrderedJson request = {{"prompt", kPrompt}, {"n_predict", 1}, {"ignore_eos", true}};
  OrderedJson timings = served.made("/completion", request)["timings"];
  EXPECT_EQ(timings["predicted_n"], 1);
  EXPECT_EQ(timings["predicted_per_second"], 0.0);
  request["n_predict"] = 4;
  timings = served.made("/completion", request)["timings"];
  EXPECT_EQ(timings["predicted_n"], 4);
  EXPECT_NEAR(timings["predicted_per_token_ms"].get<double>() * 3, timings["predicted_ms"].get<double>(), 1e-9);
}

// Whoever counts wants to know how much too long a conversation is, and whoever looks at the template's text, why.
TEST_F(Api, WhatIsNotRunMayBeLongerThanTheContext) {
  std::string tale;
  for (int i = 0; i < 600; ++i) tale += "Once upon a time ";
  const OrderedJson messages = {{{"role", "user"}, {"content", tale}}};
  const size_t tokens = ChatFormat(served.alone, std::string(kChatTemplate)).ids(std::vector<ChatMessage>{{"user", tale}}).size();
  ASSERT_GT(tokens, 1024U);
  const OrderedJson request = {{"model", "tales"}, {"messages", messages}};
  EXPECT_EQ(served.made("/v1/messages/count_tokens", request), (OrderedJson{{"input_tokens", tokens}}));
  EXPECT_EQ(served.made("/v1/chat/completions/input_tokens", request), (OrderedJson{{"input_tokens", tokens}}));
  EXPECT_EQ(served.made("/v1/responses/input_tokens", {{"input", messages}}),
            (OrderedJson{{"object", "response.input_tokens"}, {"input_tokens", tokens}}));
  EXPECT_EQ(served.made("/apply-template", request)["tokens"].size(), tokens);
  EXPECT_EQ(served.made("/tokenize", request)["count"], tokens);
  const Reply reply = served.post("/v1/chat/completions", request);
  expect_error(reply, 400, "messages", "nothing is cut");
  EXPECT_EQ(reply.json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(reply.json()["error"]["type"], "exceed_context_size_error");
  EXPECT_EQ(reply.json()["error"]["n_prompt_tokens"], tokens);
  EXPECT_EQ(reply.json()["error"]["n_ctx"], 1024);
  expect_error(served.post("/v1/responses", {{"input", tale}}), 400, "input", "nothing is cut");
  expect_error(served.post("/v1/inspect", {{"messages", messages}, {"hooks", {"hook_embed"}}}), 400, "messages",
               "nothing is cut");
  OrderedJson anthropic = request;
  anthropic["max_tokens"] = 1;
  EXPECT_EQ(served.post("/v1/messages", anthropic).status, 400);
}

TEST_F(Api, AStreamedChatTellsHowFarItsPromptIsRead) {
  const OrderedJson request = {{"messages", {{{"role", "user"}, {"content", "Tell a tale of a king and a queen"}}}},
                               {"max_tokens", 2},
                               {"return_progress", true}};
  OrderedJson last = nullptr;
  std::vector<OrderedJson> processed;
  const std::vector<Event> events = served.events("/v1/chat/completions", request);
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const OrderedJson chunk = events[i].json();
    EXPECT_EQ(chunk["choices"][0]["delta"].contains("role"), i == 0) << chunk;
    if (!chunk.contains("prompt_progress")) continue;
    last = chunk["prompt_progress"];
    processed.push_back(last["processed"]);
  }
  ASSERT_EQ(processed.size(), 2U) << "before the first step and after it";
  EXPECT_EQ(processed[0], last["cache"]);
  ASSERT_FALSE(last.is_null());
  EXPECT_GT(last["total"], 1);
  EXPECT_EQ(last["processed"], last["total"]);
}

TEST_F(Api, SlotsMetricsAndPagesCanBeLeftOut) {
  ServiceOptions options;
  options.slots = options.metrics = options.page = false;
  const Served without(options);
  EXPECT_EQ(without.get("/slots").status, 501);
  EXPECT_EQ(without.get("/metrics").status, 501);
  expect_error(without.get("/"), 404, "", "--no-page");
  expect_error(without.get("/explain"), 404, "", "--no-page");
}

TEST_F(Api, VariablesOfTheTemplateForAllRequests) {
  ServiceOptions options;
  options.chat_template = kChatTemplate;
  options.template_variables = {{"mood", "merry"}};
  const Served merry(options);
  OrderedJson request = {{"messages", {{{"role", "user"}, {"content", "Tell"}}}}};
  const auto prompt = [&] { return merry.made("/apply-template", request)["prompt"].get<std::string>(); };
  EXPECT_NE(prompt().find("mood: merry"), std::string::npos) << prompt();
  request["chat_template_kwargs"] = {{"mood", "sad"}};
  EXPECT_NE(prompt().find("mood: sad"), std::string::npos) << prompt();
}

TEST_F(Api, TheAnswerOfNativeCompletionHasTheMembersThatAreAskedFor) {
  OrderedJson request = {{"prompt", kPrompt}, {"n_predict", 4}, {"temperature", 0}};
  const OrderedJson all = served.made("/completion", request);
  request["response_fields"] = {"content", "generation_settings/n_predict", "content/nothing", "nothing"};
  const OrderedJson expected = {{"content", all["content"]}, {"generation_settings/n_predict", 4}};
  EXPECT_EQ(served.made("/completion", request), expected);
  request["prompt"] = {kPrompt, kPrompt};
  EXPECT_EQ(served.made("/completion", request), OrderedJson::array({expected, expected}));
  request["prompt"] = kPrompt;
  request["response_fields"] = {"stop_type"};
  const std::vector<Event> events = served.events("/completion", request);
  EXPECT_EQ(events.front().json()["stop"], false) << "pieces are whole";
  EXPECT_EQ(events.back().json(), (OrderedJson{{"stop_type", "limit"}}));
}

// The embedding of a text by another way: without a cache, in one step.
std::vector<double> mean_residual(Engine& engine, const std::vector<int32_t>& ids) {
  const Step step = Step::of(ids);
  const auto frame = engine.context().frame();
  const Tensor residual = engine.model().residual(engine.context(), step);
  std::vector<double> mean(static_cast<size_t>(residual.dim(1)));
  double squares = 0;
  for (size_t i = 0; i < mean.size(); ++i) {
    for (int64_t row = 0; row < residual.dim(0); ++row) mean[i] += static_cast<double>(residual.row<float>(row)[i]);
    squares += mean[i] * mean[i];
  }
  for (double& x : mean) x /= std::sqrt(squares);
  return mean;
}

TEST_F(Api, EmbeddingsAreNormalizedMeansOfTheLastResidual) {
  const OrderedJson json = served.made("/v1/embeddings", {{"input", {kPrompt, "The dog"}}});
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["pooling"], "mean");
  ASSERT_EQ(json["data"].size(), 2U);
  EXPECT_EQ(json["usage"]["prompt_tokens"], served.alone.prompt_ids(kPrompt).size() + served.alone.prompt_ids("The dog").size());
  const std::vector<float> x = json["data"][0]["embedding"];
  ASSERT_EQ(x.size(), 256U);
  const std::vector<int32_t> ids = served.alone.prompt_ids(kPrompt);
  const std::vector<double> expected = mean_residual(served.alone, ids);
  for (size_t i = 0; i < 256; ++i) EXPECT_NEAR(x[i], expected[i], 1e-6);
  // The same from ids, and as bytes.
  EXPECT_EQ(served.made("/v1/embeddings", {{"input", ids}})["data"][0]["embedding"], json["data"][0]["embedding"]);
  const std::string base64 =
      served.made("/v1/embeddings", {{"input", kPrompt}, {"encoding_format", "base64"}})["data"][0]["embedding"];
  EXPECT_EQ(base64.size(), (256 * 4 + 2) / 3 * 4);
  std::string bytes;
  unsigned bits = 0;
  int n = 0;
  for (const char c : base64) {
    if (c == '=') break;
    const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bits = bits << 6 | static_cast<unsigned>(letters.find(c));
    if ((n += 6) >= 8) bytes += static_cast<char>(bits >> (n -= 8) & 255);
  }
  std::vector<float> y(256);
  ASSERT_EQ(bytes.size(), 1024U);
  std::memcpy(y.data(), bytes.data(), 1024);
  EXPECT_EQ(x, y);
  expect_error(served.post("/v1/embeddings", {{"input", ""}, {"dimensions", 64}}), 400, "dimensions", "have 256");
  expect_error(served.post("/v1/embeddings", {{"input", OrderedJson::array()}}), 400, "input", "empty list");
  expect_error(served.post("/v1/embeddings", {{"input", std::vector<std::string>(2049, "a")}}), 400, "input", "2049 texts");
  // llama.cpp's forms of a prompt.
  const OrderedJson parts = {{{"type", "text"}, {"text", "Once upon"}}, {{"type", "text"}, {"text", " a time"}}};
  OrderedJson mixed = {served.alone.tokenizer().bos().value(), kPrompt};
  const OrderedJson forms =
      served.made("/v1/embeddings", {{"input", {{{"prompt_string", kPrompt}}, {{"content", parts}}, mixed, kPrompt}}})["data"];
  ASSERT_EQ(forms.size(), 4U);
  for (const OrderedJson& form : forms) EXPECT_EQ(form["embedding"], json["data"][0]["embedding"]) << form["index"];
  EXPECT_EQ(served.made("/v1/embeddings", {{"input", mixed}})["data"].size(), 1U);
  EXPECT_EQ(served.made("/v1/embeddings", {{"input", {{"prompt_string", kPrompt}}}})["data"].size(), 1U);
  expect_error(served.post("/v1/embeddings", {{"input", {{"content", "a"}}}}), 400, "input", "without a string");
  expect_error(served.post("/v1/embeddings", {{"input", {{"content", {{{"type", "image_url"}}}}}}}), 400, "input", "only text");
  expect_error(served.post("/v1/embeddings", {{"input", {0, nullptr}}}), 400, "input", "mixes ids");
  expect_error(served.post("/v1/embeddings", {{"input", "a"}, {"encoding_format", "hex"}}), 400, "encoding_format", "base64");
}

TEST_F(Api, LongTextsAreEmbeddedInPartsBetweenWhichStreamsHaveTheirSteps) {
  std::vector<int32_t> ids(937);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = 300 + static_cast<int32_t>(i * i % 1000);
  const auto jobs = [&] { return served.service->scheduler().stats().jobs; };
  const auto before = jobs();
  const std::vector<float> x = served.made("/v1/embeddings", {{"input", ids}})["data"][0]["embedding"];
  EXPECT_GE(jobs() - before, 7U) << "a part of 128 tokens each; the last one's count may follow the answer";
  const std::vector<double> expected = mean_residual(served.alone, ids);
  ASSERT_EQ(x.size(), expected.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], expected[i], 1e-6);
}

TEST_F(Api, EmbeddingsThatWereBegunAreMadeWhileTheServerDrains) {
  const Connection client(served.server->port());
  client.send("POST", "/v1/embeddings",
              OrderedJson{{"input", std::vector<std::vector<int>>(60, std::vector<int>(300, 300))}}.dump());
  while (served.service->scheduler().stats().jobs == 0) std::this_thread::yield();
  served.service->scheduler().drain();
  const Reply reply = client.reply();
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["data"].size(), 60U);
}

TEST_F(Api, NativeCompletion) {
  const std::vector<int32_t> prompt = served.alone.prompt_ids(kPrompt);
  const Generation made = served.greedy(prompt, 10);
  const OrderedJson request = {
      {"prompt", kPrompt}, {"n_predict", 10}, {"temperature", 0}, {"return_tokens", true}, {"n_probs", 2}};
  const OrderedJson json = served.made("/completion", request);
  EXPECT_EQ(json["content"], made.text);
  EXPECT_EQ(json["tokens"], made.tokens);
  EXPECT_EQ(json["stop"], true);
  EXPECT_EQ(json["stop_type"], made.finish_reason == "length" ? "limit" : "eos");
  EXPECT_EQ(json["truncated"], false);
  EXPECT_EQ(json["tokens_evaluated"], prompt.size());
  EXPECT_EQ(json["tokens_predicted"], made.tokens.size());
  EXPECT_EQ(json["prompt"], kPrompt);
  EXPECT_EQ(json["generation_settings"]["n_predict"], 10);
  ASSERT_EQ(json["completion_probabilities"].size(), made.tokens.size());
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    EXPECT_EQ(json["completion_probabilities"][i]["id"], made.tokens[i]);
    EXPECT_EQ(json["completion_probabilities"][i]["logprob"].get<float>(), made.logprobs[i]);
    EXPECT_EQ(json["completion_probabilities"][i]["top_logprobs"].size(), 2U);
  }
  std::string text;
  std::vector<int32_t> ids;
  const std::vector<Event> events = served.events("/completion", request);
  for (const Event& event : events) {
    const OrderedJson part = event.json();
    text += part["content"].get<std::string>();
    for (const OrderedJson& id : part["tokens"]) ids.push_back(id);
    EXPECT_EQ(part["stop"], &event == &events.back());
  }
  EXPECT_EQ(text, made.text);
  EXPECT_EQ(ids, made.tokens);
  // Several prompts give a list; ids and text may be mixed.
  const OrderedJson two = served.made("/completion", {{"prompt", {kPrompt, "The dog"}}, {"n_predict", 3}, {"temperature", 0}});
  ASSERT_EQ(two.size(), 2U);
  EXPECT_EQ(two[1]["prompt"], "The dog");
  const OrderedJson mixed = served.made("/completion", {{"prompt", {2, kPrompt}}, {"n_predict", 10}, {"temperature", 0}});
  EXPECT_EQ(mixed["content"], made.text);
  // Its defaults are sampled, in llama.cpp's order.
  GenerateOptions options;
  options.sampling.temperature = 0.8;
  options.sampling.top_k = 40;
  options.sampling.top_p = 0.95;
  options.sampling.min_p = 0.05;
  options.sampling.seed = 9;
  options.sampling.order = parse_sampling_order(
      "bias,repetition,frequency,presence,dry,top_n_sigma,top_k,typical,top_p,min_p,xtc,temperature,mirostat");
  EXPECT_EQ(served.made("/completion", {{"prompt", kPrompt}, {"n_predict", 20}, {"seed", 9}, {"return_tokens", true}})["tokens"],
            served.greedy(prompt, 20, options).tokens);
  options.sampling.order = parse_sampling_order("bias,temperature,top_k");
  options.sampling.top_p.reset();
  options.sampling.min_p.reset();
  EXPECT_EQ(served.made("/completion", {{"prompt", kPrompt},
                                        {"n_predict", 20},
                                        {"seed", 9},
                                        {"return_tokens", true},
                                        {"samplers", {"temperature", "top_k"}}})["tokens"],
            served.greedy(prompt, 20, options).tokens);
  // Mirostat acts with the temperature alone, whatever else is asked for.
  options.sampling = {.temperature = 0.8, .mirostat = 2, .seed = 9, .order = parse_sampling_order("bias,temperature,mirostat")};
  const OrderedJson mirostat = served.made("/completion", {{"prompt", kPrompt},
                                                           {"n_predict", 20},
                                                           {"seed", 9},
                                                           {"mirostat", 2},
                                                           {"samplers", {"top_k", "temperature"}},
                                                           {"return_tokens", true}});
  EXPECT_EQ(mirostat["tokens"], served.greedy(prompt, 20, options).tokens);
  EXPECT_EQ(mirostat["generation_settings"]["mirostat"], 2);
  EXPECT_EQ(mirostat["generation_settings"]["top_k"].dump(), "0");
  expect_error(served.post("/completion", {{"prompt", kPrompt}, {"samplers", {"luck"}}}), 400, "samplers", "\"luck\"");
  expect_error(served.post("/completion", {{"prompt", kPrompt}, {"n_keep", 4}}), 400, "n_keep", "no context shift");
  // [id, false] forbids a token, whatever it is.
  const OrderedJson other =
      served.made("/completion", {{"prompt", kPrompt},
                                  {"n_predict", 1},
                                  {"temperature", 0},
                                  {"return_tokens", true},
                                  {"logit_bias", OrderedJson::array({OrderedJson::array({made.tokens[0], false})})}});
  EXPECT_NE(other["tokens"][0], made.tokens[0]);
}

TEST_F(Api, AnthropicMessages) {
  const ChatFormat format(served.alone, std::string(kChatTemplate));
  const std::vector<int32_t> prompt = format.ids(std::vector<ChatMessage>{{"system", "Be brief"}, {"user", "Tell a tale"}});
  GenerateOptions options;
  options.alone = true;
  const Generation made = served.greedy(prompt, 12, options);
  const OrderedJson request = {{"model", "tales"},
                               {"max_tokens", 12},
                               {"temperature", 0},
                               {"system", "Be brief"},
                               {"messages", {{{"role", "user"}, {"content", {{{"type", "text"}, {"text", "Tell a tale"}}}}}}}};
  const OrderedJson json = served.made("/v1/messages", request);
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["content"], OrderedJson::array({OrderedJson{{"type", "text"}, {"text", made.text}}}));
  EXPECT_EQ(json["stop_reason"], made.finish_reason == "length" ? "max_tokens" : "end_turn");
  EXPECT_EQ(json["stop_sequence"], nullptr);
  EXPECT_EQ(json["usage"]["output_tokens"], made.tokens.size());
  EXPECT_EQ(json["usage"]["input_tokens"].get<size_t>() + json["usage"]["cache_read_input_tokens"].get<size_t>(), prompt.size());

  const std::vector<Event> events = served.events("/v1/messages", request);
  std::string text;
  std::vector<std::string> names;
  for (const Event& event : events) {
    const OrderedJson part = event.json();
    EXPECT_EQ(part["type"], event.name);
    if (event.name == "ping") continue;
    if (event.name == "content_block_delta") text += part["delta"]["text"].get<std::string>();
    if (names.empty() || names.back() != event.name) names.push_back(event.name);
  }
  EXPECT_EQ(text, made.text);
  EXPECT_EQ(names, (std::vector<std::string>{"message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                             "message_delta", "message_stop"}));

  OrderedJson stops = request;
  stops["stop_sequences"] = {made.text.substr(4, 3)};
  const OrderedJson stopped = served.made("/v1/messages", stops);
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], made.text.substr(4, 3));

  OrderedJson count = request;
  count.erase("max_tokens"), count.erase("temperature");
  EXPECT_EQ(served.made("/v1/messages/count_tokens", count), (OrderedJson{{"input_tokens", prompt.size()}}));

  OrderedJson thinks = request;
  thinks["thinking"] = {{"type", "enabled"}, {"budget_tokens", 1024}};
  EXPECT_EQ(served.made("/v1/messages", thinks)["ignored_fields"], OrderedJson::array({"thinking"}));

  const auto refuses = [&](const OrderedJson& change, int status, const std::string& words) {
    OrderedJson wrong = request;
    wrong.update(change);
    const Reply reply = served.post("/v1/messages", wrong);
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.json()["type"], "error");
    EXPECT_NE(reply.json()["error"]["message"].get<std::string>().find(words), std::string::npos) << reply.body;
    return reply.json()["error"]["type"].get<std::string>();
  };
  EXPECT_EQ(refuses({{"max_tokens", nullptr}}, 400, "\"max_tokens\" is missing"), "invalid_request_error");
  EXPECT_EQ(refuses({{"model", "claude"}}, 404, "this server runs"), "not_found_error");
  refuses({{"messages", {{{"role", "system"}, {"content", "a"}}}}}, 400, "neither user nor assistant");
  refuses({{"messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}}}, 400, "\"image\" is not supported");
  refuses({{"messages", {{{"role", "user"}, {"content", OrderedJson::array()}}}}}, 400, "not an empty one");
  refuses({{"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}}, 400, "tool of the server's");
}

TEST_F(Api, AnthropicsFieldsInsideBlocksAreNamed) {
  const OrderedJson weather = {{"name", "weather"}, {"input_schema", {{"type", "object"}}}};
  const OrderedJson use = {{"type", "tool_use"},
                           {"id", "t1"},
                           {"name", "weather"},
                           {"input", OrderedJson::object()},
                           {"cache_control", {{"type", "ephemeral"}}}};
  const OrderedJson result = {{"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", "no network"}, {"is_error", true}};
  OrderedJson messages = OrderedJson::array();
  messages.push_back({{"role", "user"}, {"content", "How is it?"}});
  messages.push_back({{"role", "assistant"}, {"content", OrderedJson::array({use})}});
  messages.push_back({{"role", "user"}, {"content", OrderedJson::array({result})}});
  const OrderedJson json = served.made(
      "/v1/messages", {{"model", "tales"}, {"max_tokens", 2}, {"tools", OrderedJson::array({weather})}, {"messages", messages}});
  EXPECT_EQ(json["ignored_fields"],
            OrderedJson::array({"messages[1].content[0].cache_control", "messages[2].content[0].is_error"}));
}

TEST(ApiErrors, OfTheHttpServerHaveTheFormOfTheirPath) {
  EXPECT_EQ(OrderedJson::parse(http_error_body("/v1/messages/count_tokens", 401, "invalid_api_key", "no"))["type"], "error");
  EXPECT_EQ(OrderedJson::parse(http_error_body("/v1/completions", 401, "invalid_api_key", "no"))["error"]["code"],
            "invalid_api_key");
}

TEST_F(Api, Responses) {
  const ChatFormat format(served.alone, std::string(kChatTemplate));
  const std::vector<int32_t> prompt = format.ids(std::vector<ChatMessage>{{"system", "Be brief"}, {"user", "Tell a tale"}});
  GenerateOptions options;
  options.alone = true;
  const Generation made = served.greedy(prompt, 12, options);
  const OrderedJson request = {
      {"model", "tales"}, {"max_output_tokens", 12}, {"temperature", 0}, {"instructions", "Be brief"}, {"input", "Tell a tale"}};
  OrderedJson with_text = request;
  with_text["text"] = {{"verbosity", "low"}};
  const OrderedJson told = served.made("/v1/responses", with_text);
  EXPECT_EQ(told["ignored_fields"], OrderedJson::array({"text.verbosity"}));
  EXPECT_EQ(told["text"]["format"]["type"], "text");
  const OrderedJson json = served.made("/v1/responses", request);
  EXPECT_EQ(served.made("/responses", request)["output"][0]["content"], json["output"][0]["content"]);
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], made.finish_reason == "length" ? "incomplete" : "completed");
  ASSERT_EQ(json["output"].size(), 1U);
  EXPECT_EQ(json["output"][0]["type"], "message");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], made.text);
  EXPECT_EQ(json["usage"]["input_tokens"], prompt.size());
  EXPECT_EQ(json["usage"]["output_tokens"], made.tokens.size());
  std::string text;
  int64_t sequence = 0;
  const std::vector<Event> events = served.events("/v1/responses", request);
  for (const Event& event : events) {
    const OrderedJson part = event.json();
    EXPECT_EQ(part["type"], event.name);
    EXPECT_EQ(part["sequence_number"], sequence++);
    if (event.name == "response.output_text.delta") text += part["delta"].get<std::string>();
    if (event.name == "response.output_text.done") {
      EXPECT_EQ(part["text"], made.text);
    }
  }
  EXPECT_EQ(text, made.text);
  EXPECT_EQ(events.front().name, "response.created");
  EXPECT_EQ(events.back().json()["response"]["output"][0]["content"], json["output"][0]["content"]);
  OrderedJson items = request;
  items["input"] = {{{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "Tell a tale"}}}}}};
  EXPECT_EQ(served.made("/v1/responses", items)["output"][0]["content"], json["output"][0]["content"]);
  OrderedJson before = request;
  before["previous_response_id"] = "resp_1";
  expect_error(served.post("/v1/responses", before), 400, "previous_response_id", "nothing is stored");
  before = request;
  before["input"] = {{{"role", "assistant"}, {"content", "a"}, {"tool_calls", 7}},
                     {{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}, {"arguments", "{}"}}};
  expect_error(served.post("/v1/responses", before), 400, "input[1]", "no list");
  before = request;
  before["text"] = {{"format", {{"type", "json_schema"}}}};
  expect_error(served.post("/v1/responses", before), 400, "text.format", "no schema");
}

TEST_F(Api, TheOpenApiDocumentHasEveryRouteAndField) {
  const OrderedJson document = served.get("/openapi.json").json();
  EXPECT_EQ(document["openapi"], "3.1.0");
  size_t operations = 0;
  for (const auto& [path, methods] : document["paths"].items()) operations += methods.size();
  EXPECT_EQ(operations, routes().size());
  const OrderedJson& schema =
      document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(schema["required"], OrderedJson::array({"prompt"}));
  for (const Field& field : completion_fields()) EXPECT_TRUE(schema["properties"].contains(field.name)) << field.name;
  EXPECT_TRUE(document["paths"]["/v1/responses"]["post"]["responses"].contains("408")) << "it has a timeout";
  EXPECT_FALSE(document["paths"]["/tokenize"]["post"]["responses"].contains("408"));
  const auto type_of = [&](const char* method) {
    return document["paths"]["/lora-adapters"][method]["responses"]["200"]["content"]["application/json"]["schema"]["type"];
  };
  EXPECT_EQ(type_of("get"), "array");
  EXPECT_EQ(type_of("post"), "object");
  // An event is no string: clients read a schema there as that of each event.
  const OrderedJson& content = document["paths"]["/v1/completions"]["post"]["responses"]["200"]["content"];
  EXPECT_FALSE(content.at("text/event-stream").contains("schema"));
}

// A job that takes the model until it is released.
class HeldModel {
 public:
  explicit HeldModel(const Served& served) {
    job_ = served.service->scheduler().run(
        [this](Engine&) {
          begun_.set_value();
          go_.get_future().wait();
        },
        "");
    begun_.get_future().wait();
  }
  ~HeldModel() { release(); }
  void release() {
    if (!job_.valid()) return;
    go_.set_value();
    job_.get();
  }

 private:
  std::promise<void> begun_, go_;
  std::future<void> job_;
};

TEST(ApiQueue, AFullQueueIs429WithRetryAfter) {
  SchedulerOptions scheduling;
  scheduling.running = 1;
  scheduling.waiting = 1;
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", scheduling);
  const OrderedJson endless = {{"prompt", "Once"}, {"max_tokens", 1000}, {"ignore_eos", true}, {"stream", true}};
  const Connection a(served.server->port()), b(served.server->port());
  a.send("POST", "/v1/completions", endless.dump());
  EXPECT_NE(a.some(), "");
  while (served.service->scheduler().stats().running == 0) std::this_thread::yield();
  // The stream is held in its middle, however slow this machine is.
  HeldModel held(served);
  b.send("POST", "/v1/completions", endless.dump());
  while (served.service->scheduler().stats().waiting == 0) std::this_thread::yield();
  EXPECT_EQ(served.get("/health").status, 200);
  const Reply busy = served.get("/ready");
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy.json()["error"]["code"], "queue_full");
  const Reply reply = served.post("/v1/completions", endless);
  EXPECT_EQ(reply.status, 429) << reply.body;
  EXPECT_GE(std::stoi(reply.header("Retry-After")), 1);
  EXPECT_EQ(reply.json()["error"]["code"], "queue_full");
  expect_error(served.post("/v1/completions", {{"prompt", "a"}, {"n", 3}}), 400, "prompt", "asks for 3 texts at once");
  served.service->scheduler().drain();
  EXPECT_EQ(served.get("/health").status, 503);
  EXPECT_EQ(served.get("/ready").status, 503);
  EXPECT_EQ(served.post("/v1/completions", endless).status, 503);
}

TEST(ApiQueue, HealthFailsWhileTheModelIsStuck) {
  ServiceOptions options;
  options.stuck_seconds = 1e-9;
  const Served served(options);
  EXPECT_EQ(served.get("/health").status, 200);
  HeldModel held(served);
  const Reply stuck = served.get("/health");
  EXPECT_EQ(stuck.status, 503);
  EXPECT_EQ(stuck.json()["error"]["code"], "stuck");
  EXPECT_EQ(served.get("/ready").status, 200);
  held.release();
  while (!served.service->scheduler().idle()) std::this_thread::yield();
  EXPECT_EQ(served.get("/health").status, 200);
}

// Texts that run at once need no place in the queue.
TEST(ApiQueue, AnIdleServerTakesAsManyTextsAsItRunsAndQueues) {
  SchedulerOptions scheduling;
  scheduling.running = 1;
  scheduling.waiting = 4;
  scheduling.waiting_per_owner = 3;
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", scheduling);
  const auto ask = [&](int n) { return served.post("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 2}, {"n", n}}); };
  const Reply reply = ask(4);
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json()["choices"].size(), 4U);
  expect_error(ask(5), 400, "prompt", "asks for 5 texts at once; this server runs and queues 4 of one client");
}

}  // namespace
}  // namespace vitrine::serve
