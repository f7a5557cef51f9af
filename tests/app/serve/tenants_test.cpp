// Several clients of one server: what one of them does must neither show to another nor take what the other needs.
#include "grammar/grammar.h"
#include "support.h"

namespace vitrine::serve {
namespace {

const std::vector<http::ApiKey> kKeys = {{"alice", "a-key"}, {"bob", "b-key"}};

OrderedJson secret_prompt() {
  return {{"prompt", "The password of the old king is river stone and nobody else in the whole land may ever know it"},
          {"max_tokens", 1},
          {"temperature", 0}};
}

/// Tokens of the prompt that were found in the cache.
int64_t cached(const Served& served, const std::string& key, const std::string& path = "/v1/completions",
               const OrderedJson& request = secret_prompt()) {
  const Reply reply = served.ask("POST", path, request.dump(), key);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const OrderedJson json = reply.json();
  if (path == "/completion") return json["timings"]["cache_n"].get<int64_t>();
  return json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

TEST(Tenants, APrefixIsCachedForItsKeyAlone) {
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  EXPECT_EQ(cached(served, "a-key"), 0);
  EXPECT_EQ(cached(served, "b-key"), 0) << "bob learns what alice sent";
  EXPECT_GE(cached(served, "a-key"), 16);
  EXPECT_GE(cached(served, "b-key"), 16);
  EXPECT_GE(cached(served, "b-key", "/completion", {{"prompt", secret_prompt()["prompt"]}, {"n_predict", 1}}), 16);
}

TEST(Tenants, ASaltSeparatesThePrefixesOfAKey) {
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  OrderedJson salted = secret_prompt();
  salted["cache_salt"] = "user 1";
  EXPECT_EQ(cached(served, "a-key", "/v1/completions", salted), 0);
  EXPECT_EQ(cached(served, "a-key"), 0);
  EXPECT_EQ(cached(served, "b-key", "/v1/completions", salted), 0) << "a salt that was guessed opens nothing of others";
  EXPECT_GE(cached(served, "a-key", "/v1/completions", salted), 16);
  salted["cache_salt"] = "user 2";
  EXPECT_EQ(cached(served, "a-key", "/v1/completions", salted), 0);
  for (const std::string& wrong : {std::string(), std::string(257, 'x')}) {
    salted["cache_salt"] = wrong;
    expect_error(served.ask("POST", "/v1/completions", salted.dump(), "a-key"), 400, "cache_salt", "expected 1 to 256");
  }
}

TEST(Tenants, AServerMaySharePrefixesAmongAll) {
  ServiceOptions options;
  options.share_prefixes = true;
  const Served served(options, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  EXPECT_EQ(cached(served, "a-key"), 0);
  EXPECT_GE(cached(served, "b-key"), 16);
}

// Lists of tokens as JSON values took 2 GB for 600,000 such characters, and 13 GB in four requests of 2.5 million.
TEST(Tenants, AnAnswerThatGrowsWithTheTextIsBounded) {
  ServiceOptions options;
  options.answer_bytes = 1 << 20;
  const Served served(options);
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += "\u4e2d";  // three tokens each
  const Reply pieces = served.post("/tokenize", {{"content", text}, {"with_pieces", true}, {"return_token_strs", true}});
  expect_error(pieces, 400, "", "more than 1.0 MiB (--max-answer)");
  EXPECT_EQ(pieces.json()["error"]["code"], "answer_too_large");
  EXPECT_EQ(served.made("/tokenize", {{"content", text}})["count"], 90'000);
  expect_error(served.post("/apply-template", {{"messages", {{{"role", "user"}, {"content", text}}}}}), 400, "",
               "(--max-answer)");
  std::vector<int32_t> ids(200'000, served.engine.tokenizer().encode(" once", false, Special::text).back());
  expect_error(served.post("/detokenize", {{"tokens", ids}}), 400, "tokens", "(--max-answer)");
}

TEST(Tenants, WorkOfAllRequestsHasABudget) {
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, {}, 4 << 20);
  EXPECT_EQ(served.post("/tokenize", {{"content", std::string(50'000, 'x')}}).status, 200);
  const Reply large = served.post("/tokenize", {{"content", std::string(80'000, 'x')}});
  expect_error(large, 413, "", "--work-mb");
  EXPECT_EQ(large.json()["error"]["code"], "request_too_large");
}

// A few masks of this grammar take as long as a hundred steps of the model. Once they were computed within them.
TEST(Tenants, ASlowGrammarHasItsOwnTimeAndThatIsLimited) {
  if (!has_grammars()) GTEST_SKIP() << "this build has no llguidance";
  ServiceOptions options;
  options.mask_seconds = 0.2;
  const Served served(options);
  const OrderedJson slow = {
      {"prompt", "Once"}, {"max_tokens", 500}, {"seed", 1}, {"grammar", "root ::= (s s s s)*\ns ::= [a-z ]* | [a-z ]* s"}};
  const Reply reply = served.post("/v1/completions", slow);
  expect_error(reply, 400, "grammar", "--mask-seconds");
  EXPECT_EQ(reply.json()["error"]["code"], "grammar_too_slow") << reply.body;
}

TEST(Tenants, ARequestMaySayHowLongItWaits) {
  const Served served;
  OrderedJson request = {{"prompt", "Once"}, {"max_tokens", 900}, {"ignore_eos", true}, {"timeout", 0.001}};
  const Reply reply = served.post("/v1/completions", request);
  expect_error(reply, 408, "timeout", "ask for a shorter one");
  EXPECT_EQ(served.post("/v1/completions", {{"prompt", "Once"}, {"max_tokens", 4}, {"timeout", 600}}).status, 200);
}

TEST(Tenants, AUserMayNotManageTheServer) {
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, {{"alice", "a-key"}, {"bob", "b-key", false}});
  EXPECT_EQ(served.ask("POST", "/lora-adapters", "[]", "a-key").status, 200);
  EXPECT_EQ(served.ask("GET", "/metrics", "", "a-key").status, 200);
  for (const auto& [method, path, body] : {std::tuple{"POST", "/lora-adapters", "[]"},
                                           {"POST", "/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "b"})"},
                                           {"POST", "/v1/unload_lora_adapter", R"({"lora_name": "a"})"},
                                           {"GET", "/metrics", ""},
                                           {"POST", "/v1/live/train", R"({"prompt": "Once upon a time"})"}}) {
    const Reply refused = served.ask(method, path, body, "b-key");
    expect_error(refused, 403, "", "the key \"bob\" may not use");
    EXPECT_EQ(refused.json()["error"]["code"], "permission_denied");
  }
  EXPECT_EQ(served.ask("GET", "/v1/models", "", "b-key").status, 200);
}

TEST(Tenants, AKeyHasSoManyRequestsAndTokensAMinute) {
  ServiceOptions options;
  options.quotas = std::make_shared<Quotas>(std::vector<KeyQuota>{{"alice", 0, 20}, {"bob", 2, 0}});
  const Served served(options, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  EXPECT_EQ(served.ask("POST", "/v1/completions", secret_prompt().dump(), "a-key").status, 200);
  const Reply refused = served.ask("POST", "/v1/completions", secret_prompt().dump(), "a-key");
  expect_error(refused, 429, "", "has used its 20 tokens of a minute");
  EXPECT_NE(refused.header("Retry-After"), "");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(served.ask("POST", "/tokenize", R"({"content": "a"})", "b-key").status, 200);
  expect_error(served.ask("POST", "/tokenize", R"({"content": "a"})", "b-key"), 429, "", "has used its 2 requests of a minute");
}

TEST(Tenants, NoAnswerShowsAPathOfTheMachine) {
  const Served served;
  const std::string folder = VITRINE_SOURCE;
  const OrderedJson prompt = {{"prompt", "Once upon a time"}};
  OrderedJson inspect = prompt;
  inspect["hooks"] = {"blocks.0.hook_resid_post[positions=-1]"};
  for (const Reply& reply :
       {served.get("/props"), served.get("/v1/models"), served.get("/v1/model"), served.get("/lora-adapters"),
        served.get("/v1/live"), served.post("/v1/attribute", {{"prompt", "Once upon a time"}, {"steps", 1}}),
        served.post("/v1/inspect", inspect)})
    EXPECT_EQ(reply.body.find(folder), std::string::npos) << reply.body.substr(reply.body.find(folder), 200);
}

TEST(Tenants, WhereOnlyThisMachineHasAccessCommandsHavePaths) {
  ServiceOptions options;
  options.show_paths = true;
  const Served served(options);
  const std::string path = std::string(VITRINE_SOURCE) + "/models/tales9m";
  EXPECT_EQ(served.get("/props").json()["model_path"], path);
  EXPECT_EQ(served.get("/v1/live").json()["command_model"], "--model " + path);
  const OrderedJson made = served.post("/v1/attribute", {{"prompt", "Once upon a time"}, {"steps", 1}}).json();
  EXPECT_NE(made["command"].get<std::string>().find(" --model " + path), std::string::npos) << made["command"];
}

// Each property may be there or not, so that there are more ways to go on than the library follows.
TEST(Tenants, ASchemaOfTooManyWaysIsTheClientsError) {
  if (!has_grammars()) GTEST_SKIP() << "this build has no llguidance";
  const Served served;
  OrderedJson schema = {{"type", "object"}, {"properties", OrderedJson::object()}};
  for (int i = 0; i < 900; ++i) schema["properties"]["p" + std::to_string(i)] = {{"type", "string"}};
  OrderedJson request = {{"prompt", "Once"}, {"max_tokens", 50}, {"seed", 1}, {"json_schema", schema}};
  const Reply whole = served.post("/v1/completions", request);
  expect_error(whole, 400, "json_schema", "many optional properties");
  EXPECT_EQ(whole.json()["error"]["code"], "grammar_too_complex") << whole.body;
  const std::vector<Event> events = served.events("/v1/completions", request);
  const OrderedJson error = events.back().data == "[DONE]" ? events[events.size() - 2].json() : events.back().json();
  EXPECT_EQ(error["error"]["code"], "grammar_too_complex") << error;
  EXPECT_EQ(error["error"]["status"], 400);
}

TEST(Tenants, LimitsThatChangeKeepWhatWasCounted) {
  Quotas quotas({{"alice", 2, 0}, {"bob", 1, 0}, {"carol", 0, 0}});
  for (const char* owner : {"alice", "alice", "bob"}) quotas.begin(owner);
  quotas.set({{"alice", 50, 0}, {"carol", 1, 0}, {"dave", 1, 0}});
  EXPECT_THROW(quotas.begin("alice"), ApiError) << "it has used what it had";
  EXPECT_NO_THROW(quotas.begin("bob")) << "it has no limit now";
  EXPECT_NO_THROW(quotas.begin("carol"));
  EXPECT_THROW(quotas.begin("carol"), ApiError);
  EXPECT_NO_THROW(quotas.begin("dave"));
}

}  // namespace
}  // namespace vitrine::serve
