// Ollama's API over a socket; bench/clients/ollama_client.py asks the same with Ollama's own client.
#include "grammar/grammar.h"
#include "scripted_model.h"
#include "support.h"

namespace vitrine::serve {
namespace {

ServiceOptions ollama_template() {
  ServiceOptions options;
  options.name = "tales";
  options.chat_template = kChatTemplate;
  return options;
}

// The lines of an answer that is streamed.
std::vector<OrderedJson> ollama_lines(const Served& served, const std::string& path, const OrderedJson& request) {
  const Reply reply = served.post(path, request);
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.header("Content-Type"), "application/x-ndjson");
  std::vector<OrderedJson> lines;
  for (size_t at = 0; at < reply.body.size();) {
    const size_t end = reply.body.find('\n', at);
    if (end == std::string::npos) throw std::runtime_error("a line has no end: " + reply.body.substr(at));
    lines.push_back(OrderedJson::parse(reply.body.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

void expect_ollama_error(const Reply& reply, int status, const std::string& words) {
  EXPECT_EQ(reply.status, status) << reply.body;
  const OrderedJson json = reply.json();
  ASSERT_EQ(json.size(), 1U) << reply.body;
  EXPECT_NE(json["error"].get<std::string>().find(words), std::string::npos) << reply.body;
}

class Ollama : public testing::Test {
 protected:
  Served served{ollama_template()};
  const OrderedJson chat = {{"model", "tales"},
                            {"messages", {{{"role", "user"}, {"content", "Tell a tale"}}}},
                            {"options", {{"temperature", 0}, {"num_predict", 12}}}};
  const OrderedJson text = {
      {"model", "tales:latest"}, {"prompt", "Once upon a time"}, {"options", {{"temperature", 0}, {"num_predict", 12}}}};

  static OrderedJson with(const OrderedJson& request, const OrderedJson& change) {
    OrderedJson changed = request;
    changed.update(change);
    return changed;
  }
  Generation greedy(const std::vector<int32_t>& prompt) {
    GenerateOptions options;
    options.alone = true;
    return served.greedy(prompt, 12, options);
  }
};

TEST_F(Ollama, ChatsAreThoseOfTheOfflineProgram) {
  const std::vector<int32_t> prompt =
      ChatFormat(served.alone, std::string(kChatTemplate)).ids(std::vector<ChatMessage>{{"user", "Tell a tale"}});
  const Generation made = greedy(prompt);
  const OrderedJson whole = served.made("/api/chat", with(chat, {{"stream", false}}));
  EXPECT_EQ(whole["model"], "tales");
  EXPECT_EQ(whole["message"], (OrderedJson{{"role", "assistant"}, {"content", made.text}}));
  EXPECT_EQ(whole["done"], true);
  EXPECT_EQ(whole["done_reason"], made.finish_reason);
  EXPECT_EQ(whole["prompt_eval_count"], prompt.size());
  EXPECT_EQ(whole["eval_count"], made.tokens.size());
  EXPECT_FALSE(whole.contains("ignored_fields"));
  for (const char* name : {"total_duration", "load_duration", "prompt_eval_duration", "eval_duration"})
    EXPECT_GE(whole[name].get<int64_t>(), 1) << name;

  const std::vector<OrderedJson> lines = ollama_lines(served, "/api/chat", chat);
  ASSERT_GT(lines.size(), 2U);
  std::string streamed;
  for (const OrderedJson& line : lines) {
    EXPECT_EQ(line["model"], "tales");
    EXPECT_EQ(line["message"]["role"], "assistant");
    EXPECT_EQ(line["done"], &line == &lines.back());
    streamed += line["message"]["content"].get<std::string>();
  }
  EXPECT_EQ(streamed, made.text);
  EXPECT_EQ(lines.back()["message"]["content"], "");
  EXPECT_EQ(lines.back()["done_reason"], whole["done_reason"]);
  EXPECT_EQ(lines.back()["eval_count"], whole["eval_count"]);

  // An answer that is begun goes on.
  OrderedJson begun = with(chat, {{"stream", false}});
  begun["messages"].push_back({{"role", "assistant"}, {"content", made.text.substr(0, 5)}});
  OrderedJson same = {{"messages", begun["messages"]}, {"continue_final_message", true}, {"temperature", 0}, {"max_tokens", 12}};
  EXPECT_EQ(served.made("/api/chat", begun)["message"]["content"],
            served.made("/v1/chat/completions", same)["choices"][0]["message"]["content"]);
}

TEST_F(Ollama, GenerateAnswersAPromptOrContinuesARawOne) {
  const ChatFormat format(served.alone, std::string(kChatTemplate));
  const std::vector<int32_t> prompt = format.ids(std::vector<ChatMessage>{{"system", "Be brief"}, {"user", "Once upon a time"}});
  const Generation made = greedy(prompt);
  const OrderedJson request = with(text, {{"system", "Be brief"}, {"stream", false}});
  const OrderedJson whole = served.made("/api/generate", request);
  EXPECT_EQ(whole["model"], "tales:latest");
  EXPECT_EQ(whole["response"], made.text);
  std::vector<int32_t> context = prompt;
  for (const int32_t id : made.tokens)
    if (id != served.alone.tokenizer().eos()) context.push_back(id);
  EXPECT_EQ(whole["context"], context);
  // The next prompt stands behind the context, with BOS once.
  const OrderedJson next = served.made("/api/generate", with(text, {{"context", whole["context"]}, {"stream", false}}));
  const size_t more = format.ids(std::vector<ChatMessage>{{"user", "Once upon a time"}}).size() - 1;
  EXPECT_EQ(next["prompt_eval_count"], context.size() + more);

  const std::vector<int32_t> raw = served.alone.prompt_ids("Once upon a time");
  const std::vector<OrderedJson> lines = ollama_lines(served, "/api/generate", with(text, {{"raw", true}}));
  std::string streamed;
  for (const OrderedJson& line : lines) streamed += line["response"].get<std::string>();
  EXPECT_EQ(streamed, served.greedy(raw, 12).text);
  EXPECT_FALSE(lines.back().contains("context"));
  expect_ollama_error(served.post("/api/generate", with(text, {{"raw", true}, {"system", "a"}})), 400, "raw mode does not");
}

TEST_F(Ollama, OptionsAreThoseOfSamplingWithOllamasDefaults) {
  GenerateOptions options;
  options.sampling.temperature = 0.8;
  options.sampling.top_k = 40;
  options.sampling.top_p = 0.9;
  options.sampling.seed = 9;
  options.sampling.order = parse_sampling_order(
      "bias,repetition,frequency,presence,dry,top_n_sigma,top_k,typical,top_p,min_p,xtc,temperature,mirostat");
  const std::vector<int32_t> prompt = served.alone.prompt_ids("Once upon a time");
  const auto made = [&](const OrderedJson& more) {
    OrderedJson request = with(text, {{"raw", true}, {"stream", false}});
    request["options"] = with({{"seed", 9}, {"num_predict", 20}}, more);
    return served.made("/api/generate", request);
  };
  EXPECT_EQ(made(OrderedJson::object())["response"], served.greedy(prompt, 20, options).text);
  options.sampling.repetition_penalty = 1.3;
  options.sampling.min_p = 0.2;
  EXPECT_EQ(made({{"repeat_penalty", 1.3}, {"min_p", 0.2}})["response"], served.greedy(prompt, 20, options).text);
  // What changes nothing is named.
  EXPECT_EQ(made({{"num_ctx", 4096}, {"no_such_option", 1}})["ignored_fields"],
            OrderedJson::array({"options.no_such_option", "options.num_ctx"}));
  const std::string all = made({{"temperature", 0}})["response"];
  const OrderedJson stopped = made({{"temperature", 0}, {"stop", {all.substr(6, 3)}}});
  EXPECT_EQ(stopped["response"], all.substr(0, all.find(all.substr(6, 3))));
  EXPECT_EQ(stopped["done_reason"], "stop");
}

TEST_F(Ollama, LogprobsAreThoseOfTheTokens) {
  const OrderedJson request = with(text, {{"raw", true}, {"stream", false}, {"logprobs", true}, {"top_logprobs", 2}});
  const OrderedJson whole = served.made("/api/generate", request);
  const Generation made = served.greedy(served.alone.prompt_ids("Once upon a time"), 12);
  ASSERT_EQ(whole["logprobs"].size(), made.tokens.size());
  for (size_t i = 0; i < made.tokens.size(); ++i) {
    EXPECT_EQ(whole["logprobs"][i]["logprob"].get<float>(), made.logprobs[i]);
    EXPECT_EQ(whole["logprobs"][i]["top_logprobs"].size(), 2U);
  }
  OrderedJson streamed = OrderedJson::array();
  for (const OrderedJson& line : ollama_lines(served, "/api/generate", with(request, {{"stream", true}})))
    if (line.contains("logprobs"))
      for (const OrderedJson& entry : line["logprobs"]) streamed.push_back(entry);
  EXPECT_EQ(streamed, whole["logprobs"]);
  expect_ollama_error(served.post("/api/generate", with(text, {{"top_logprobs", 2}})), 400, "without \"logprobs\"");
}

TEST_F(Ollama, FormatConstrainsTheText) {
  if (!has_grammars()) GTEST_SKIP() << "this build has no llguidance";
  const OrderedJson schema = {
      {"type", "object"}, {"properties", {{"age", {{"enum", {7, 70}}}}}}, {"required", {"age"}}, {"additionalProperties", false}};
  OrderedJson request = with(chat, {{"stream", false}, {"format", schema}});
  request["options"]["num_predict"] = 100;
  const OrderedJson person = OrderedJson::parse(served.made("/api/chat", request)["message"]["content"].get<std::string>());
  EXPECT_TRUE(person["age"] == 7 || person["age"] == 70) << person;
  OrderedJson object = with(text, {{"stream", false}, {"format", "json"}});
  EXPECT_EQ(served.made("/api/generate", object)["response"].get<std::string>().find('{'), 0U);
  expect_ollama_error(served.post("/api/chat", with(chat, {{"format", "yaml"}})), 400, "expected \"json\" or a JSON schema");
  expect_ollama_error(served.post("/api/chat", with(chat, {{"format", {{"type", "no such"}}}})), 400, "\"format\"");
}

TEST_F(Ollama, EmbeddingsAreThoseOfTheOtherEndpoint) {
  const OrderedJson expected = served.made("/v1/embeddings", {{"input", {"The dog", "A cat"}}})["data"];
  const OrderedJson json = served.made("/api/embed", {{"model", "tales"}, {"input", {"The dog", "A cat"}}});
  ASSERT_EQ(json["embeddings"].size(), 2U);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(json["embeddings"][i], expected[i]["embedding"]);
  EXPECT_EQ(json["prompt_eval_count"], served.alone.prompt_ids("The dog").size() + served.alone.prompt_ids("A cat").size());
  EXPECT_EQ(served.made("/api/embed", {{"model", "tales"}, {"input", "A cat"}})["embeddings"][0], expected[1]["embedding"]);
  EXPECT_EQ(served.made("/api/embeddings", {{"model", "tales"}, {"prompt", "A cat"}})["embedding"], expected[1]["embedding"]);
  EXPECT_EQ(served.made("/api/embed", {{"model", "tales"}, {"input", ""}})["embeddings"], OrderedJson::array());
  std::string tale;
  for (int i = 0; i < 400; ++i) tale += " the king and the queen";
  expect_ollama_error(served.post("/api/embed", {{"input", tale}}), 400, "nothing is cut");
  EXPECT_EQ(served.made("/api/embed", {{"input", tale}, {"truncate", true}})["prompt_eval_count"], 1024);
  expect_ollama_error(served.post("/api/embed", {{"input", "a"}, {"dimensions", 64}}), 400, "have 256");
}

TEST_F(Ollama, TheModelIsListedAndShown) {
  EXPECT_FALSE(served.get("/api/version").json()["version"].get<std::string>().empty());
  const OrderedJson listed = served.get("/api/tags").json()["models"];
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0]["name"], "tales:latest");
  EXPECT_EQ(listed[0]["details"]["family"], "gemma2");
  EXPECT_EQ(listed[0]["details"]["format"], "safetensors");
  EXPECT_EQ(listed[0]["details"]["parameter_size"], "9.4M");
  EXPECT_EQ(listed[0]["details"]["quantization_level"], "BF16");
  const OrderedJson running = served.get("/api/ps").json()["models"][0];
  EXPECT_EQ(running["digest"], listed[0]["digest"]);
  EXPECT_EQ(running["context_length"], 1024);
  for (const char* field : {"model", "name"}) {
    const OrderedJson shown = served.made("/api/show", {{field, listed[0]["name"]}});
    EXPECT_EQ(shown["template"], kChatTemplate);
    EXPECT_EQ(shown["capabilities"], OrderedJson::array({"completion", "tools"}));
    EXPECT_EQ(shown["model_info"]["general.parameter_count"], 9445632);
    EXPECT_EQ(shown["model_info"]["gemma2.context_length"], 1024);
  }
  // Where nothing is asked, the model is loaded.
  EXPECT_EQ(served.made("/api/generate", {{"model", "tales"}, {"keep_alive", 0}})["done_reason"], "load");
  const OrderedJson loaded = served.made("/api/chat", {{"model", "tales"}, {"messages", OrderedJson::array()}});
  EXPECT_EQ(loaded["message"], (OrderedJson{{"role", "assistant"}, {"content", ""}}));
}

TEST_F(Ollama, ErrorsSayWhatIsWrongInOllamasForm) {
  expect_ollama_error(served.post("/api/chat", with(chat, {{"model", "llama3:latest"}})), 404, "model 'llama3' not found");
  expect_ollama_error(served.post("/api/show", {{"model", "llama3"}}), 404, "this server runs \"tales\"");
  // One tag is taken off. Were it all of them, a name of tags alone would keep the server busy for minutes.
  expect_ollama_error(served.post("/api/show", {{"model", "tales:latest:latest"}}), 404, "model 'tales:latest' not found");
  expect_ollama_error(served.post("/api/chat", with(chat, {{"options", {{"temperature", "hot"}}}})), 400,
                      "in \"options\": \"temperature\" is \"hot\"; expected a number");
  expect_ollama_error(served.post("/api/chat", with(chat, {{"options", 7}})), 400, "\"options\" is 7");
  expect_ollama_error(served.post("/api/chat", with(chat, {{"think", true}})), 400, "\"tales\" does not support thinking");
  EXPECT_EQ(served.made("/api/chat", with(chat, {{"think", false}, {"stream", false}}))["done"], true);
  OrderedJson images = chat;
  images["messages"][0]["images"] = OrderedJson::array();
  EXPECT_EQ(served.made("/api/chat", with(images, {{"stream", false}}))["done"], true);
  images["messages"][0]["images"].push_back("aGk=");
  expect_ollama_error(served.post("/api/chat", images), 400, "\"messages[0].images\" is not supported");
  expect_ollama_error(served.post("/api/chat", with(chat, {{"messages", {7}}})), 400, "\"messages[0]\" is a number");
  expect_ollama_error(served.post("/api/generate", with(text, {{"images", {"aGk="}}})), 400, "only text");
  expect_ollama_error(served.post("/api/generate", with(text, {{"template", "{{ .Prompt }}"}})), 400, "--template FILE");
  expect_ollama_error(served.post("/api/generate", with(text, {{"suffix", "end"}})), 400, "only at its end");
  expect_ollama_error(served.post("/api/generate", with(text, {{"context", {-1}}})), 400, "context");
  expect_ollama_error(served.ask("POST", "/api/chat", "{"), 400, "JSON");
  expect_ollama_error(served.get("/api/chat"), 405, "takes POST");
  expect_ollama_error(served.get("/api/nothing"), 404, "/openapi.json lists");
  expect_ollama_error(served.post("/api/pull", {{"model", "ada/model"}}), 501, "`vitrine pull NAME` downloads a model");
  for (const char* path : {"/api/push", "/api/create", "/api/copy"})
    expect_ollama_error(served.post(path, {{"model", "llama3"}}), 501, "serves one model, \"tales\". Instead, ");
  expect_ollama_error(served.ask("DELETE", "/api/delete", R"({"model": "tales"})"), 501, "end the server");
  ApiError full(429, "queue_full", "the queue is full");
  full.retry_after = 2;
  EXPECT_EQ(error_response(full, ErrorForm::ollama).status, 503);
  EXPECT_EQ(OrderedJson::parse(http_error_body("/api/chat", 401, "invalid_api_key", "no key")),
            (OrderedJson{{"error", "no key"}}));
}

TEST(OllamaPull, TellsHowFarItIs) {
  std::vector<std::string> pulled;
  ServiceOptions options;
  options.pull = [&](const std::string& name, const std::function<void(const PullStep&)>& progress) {
    pulled.push_back(name);
    if (name == "ada/none") throw InputError("ada/none is not on the hub");
    for (uint64_t n = 0; n <= 1000; ++n) progress({n, 2000, "model.safetensors"});
    progress({2000, 2000, "config.json"});
    if (name == "ada/late") throw RunError("the disk is full");
  };
  const Served served(options, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, {{"ada", "a-key"}, {"bob", "b-key", false}});
  const auto lines = [&](const std::string& name) {
    const Reply reply = served.ask("POST", "/api/pull", OrderedJson{{"model", name}}.dump(), "a-key");
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.header("Content-Type"), "application/x-ndjson");
    std::vector<OrderedJson> read;
    for (size_t at = 0; at < reply.body.size();) {
      const size_t end = reply.body.find('\n', at);
      read.push_back(OrderedJson::parse(reply.body.substr(at, end - at)));
      at = end + 1;
    }
    return read;
  };
  const std::vector<OrderedJson> told = lines("hf.co/ada/model:Q8_0");
  EXPECT_EQ(told.front(), (OrderedJson{{"status", "pulling model.safetensors"}, {"total", 2000}, {"completed", 0}}));
  EXPECT_EQ(told.at(told.size() - 2), (OrderedJson{{"status", "pulling config.json"}, {"total", 2000}, {"completed", 2000}}));
  EXPECT_EQ(told.back(), (OrderedJson{{"status", "success"}}));
  EXPECT_LT(told.size(), 110U) << "a line for each piece would be too many";
  EXPECT_EQ(lines("ada/late").back()["error"], "the disk is full");
  const auto ask = [&](OrderedJson body, const std::string& key = "a-key") {
    return served.ask("POST", "/api/pull", body.dump(), key);
  };
  EXPECT_EQ(ask({{"name", "ada/model:latest"}, {"stream", false}}).json(), (OrderedJson{{"status", "success"}}));
  EXPECT_EQ(pulled, (std::vector<std::string>{"ada/model:Q8_0", "ada/late", "ada/model"}));
  const auto refused = [](const Reply& reply, int status, const std::string& words) {
    EXPECT_EQ(reply.status, status) << reply.body;
    EXPECT_NE(reply.json()["error"].get<std::string>().find(words), std::string::npos) << reply.body;
  };
  refused(ask({{"model", "ada/none"}}), 400, "not on the hub");
  refused(ask({{"model", "llama3.2"}}), 400, "expected a model of the Hugging Face hub");
  refused(ask(OrderedJson::object()), 400, "missing");
  refused(ask({{"model", "ada/model"}}, "b-key"), 403, "");
}

TEST(OllamaTools, CallsHaveArgumentsAsObjects) {
  const OrderedJson tool = {
      {"type", "function"},
      {"function", {{"name", "weather"}, {"description", "Tells it."}, {"parameters", {{"type", "object"}}}}}};
  const Engine vocabulary{std::string(VITRINE_SOURCE) + "/models/tales9m"};
  const ChatFormat format(vocabulary, std::string(kChatTemplate));
  Conversation conversation;
  conversation.messages = {{{"role", "user"}, {"content", "hi"}}};
  conversation.tools = OrderedJson::array({tool});
  const Scratch folder;
  write_scripted_model(folder, vocabulary, format.ids_of(format.rendered(conversation)).size(),
                       "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}\n</tool_call>\n"
                       "<tool_call>{\"name\": \"weather\"}</tool_call>");
  const Served served(ollama_template(), folder.path());
  const OrderedJson request = {
      {"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"options", {{"temperature", 0}}}, {"tools", {tool}}};
  OrderedJson once = request;
  once["stream"] = false;
  const OrderedJson message = served.made("/api/chat", once)["message"];
  EXPECT_EQ(message["content"], "I look.");
  ASSERT_EQ(message["tool_calls"].size(), 2U);
  EXPECT_EQ(message["tool_calls"][0]["function"],
            (OrderedJson{{"index", 0}, {"name", "weather"}, {"arguments", {{"city", "Ulm"}}}}));
  EXPECT_EQ(message["tool_calls"][1]["function"]["index"], 1);
  std::string content;
  OrderedJson calls = OrderedJson::array();
  const std::vector<OrderedJson> lines = ollama_lines(served, "/api/chat", request);
  for (const OrderedJson& line : lines) {
    content += line["message"]["content"].get<std::string>();
    if (line["message"].contains("tool_calls"))
      for (const OrderedJson& call : line["message"]["tool_calls"]) calls.push_back(call["function"]);
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(calls, OrderedJson::array({message["tool_calls"][0]["function"], message["tool_calls"][1]["function"]}));
  EXPECT_EQ(lines.back()["done_reason"], "stop");

  // The calls and their results in the next request.
  const OrderedJson messages = {{{"role", "user"}, {"content", "hi"}},
                                {{"role", "assistant"}, {"content", ""}, {"tool_calls", message["tool_calls"]}},
                                {{"role", "tool"}, {"tool_name", "weather"}, {"content", "rain"}}};
  const OrderedJson next = served.made("/api/chat", {{"messages", messages}, {"stream", false}});
  EXPECT_FALSE(next.contains("ignored_fields")) << next;
}

// Without a template messages are joined by blank lines in every format, and a prompt is the beginning of the text.
TEST(OllamaWithoutTemplate, PromptsAreContinuedAndMessagesJoined) {
  Served served;
  const OrderedJson options = {{"temperature", 0}, {"num_predict", 8}};
  const OrderedJson text =
      served.made("/api/generate", {{"prompt", "Once upon a time"}, {"options", options}, {"stream", false}});
  EXPECT_EQ(text["response"], served.greedy(served.alone.prompt_ids("Once upon a time"), 8).text);
  const OrderedJson chat =
      served.made("/api/chat",
                  {{"messages", {{{"role", "system"}, {"content", "Tell a tale"}}, {{"role", "user"}, {"content", "Of a king"}}}},
                   {"options", options},
                   {"stream", false}});
  GenerateOptions alone;
  alone.alone = true;
  EXPECT_EQ(chat["message"]["content"], served.greedy(served.alone.prompt_ids("Tell a tale\n\nOf a king\n\n"), 8, alone).text);
  EXPECT_EQ(served.made("/api/show", OrderedJson::object())["capabilities"], OrderedJson::array({"completion"}));
}

}  // namespace
}  // namespace vitrine::serve
