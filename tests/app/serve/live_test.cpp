// GET /explain, GET /v1/live, POST /v1/live/{request}: the page of the walk-through, and an engine that answers it as its own.
#include "requests/live.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "generate/generate.h"
#include "serve/page.h"
#include "support.h"

namespace vitrine::serve {
namespace {

class ServedLive : public testing::Test {
 protected:
  Served served;
  Live alone{std::string(VITRINE_SOURCE) + "/models/tales9m", {.threads = 1, .numerics = {.exact = true}}};
  const std::string text = "Once upon a time there was a king";

  /// The server's answer, which must be that of an engine of the page's own.
  OrderedJson same(const std::string& request, const OrderedJson& body) {
    const Reply reply = served.post("/v1/live/" + request, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    EXPECT_TRUE(reply.body == alone.answer(request, body.dump())) << request << ": " << reply.body.substr(0, 300);
    return reply.json();
  }
};

TEST_F(ServedLive, AnswersAreThoseOfAnEngineOfThePagesOwn) {
  const OrderedJson edits = {{{"head", "3.1"}, {"do", "zero"}}, {{"mlp", "2"}, {"positions", {1}}, {"do", "zero"}}};
  same("next", {{"prompt", text}});
  same("next", {{"prompt", served.alone.prompt_ids(text)}, {"top", 3}});
  const OrderedJson drawn = same("next", {{"prompt", text}, {"temperature", 0.7}, {"top_k", 9}, {"top_p", 0.9}, {"min_p", 0.01}});
  EXPECT_LE(drawn["left"], 9);
  const OrderedJson changed = same("next", {{"prompt", text}, {"edits", edits}, {"top", 5}, {"add_special", false}});
  EXPECT_NE(changed["next"], drawn["next"]);
  same("generate", {{"prompt", text}, {"max_tokens", 9}});
  same("generate", {{"prompt", text}, {"max_tokens", 9}, {"temperature", 1}, {"top_k", 20}, {"seed", 7}, {"edits", edits}});
  same("inspect",
       {{"prompt", text}, {"hooks", {"blocks.2.attn.hook_pattern[heads=1]", "blocks.*.hook_resid_post[positions=-1]"}}});
  same("inspect", {{"prompt", text}, {"hooks", {"hook_logits[positions=-1]"}}, {"edits", edits}});
  same("lens", {{"prompt", text}, {"positions", {-1}}, {"top", 3}});
  same("heads", {{"prompt", text}, {"token", 300}, {"against", 301}});
  same("attribute", {{"prompt", text}, {"steps", 2}});
  same("score", {{"prompts", {text, served.alone.prompt_ids(text)}}});
  same("steer", {{"prompt", text}, {"max_tokens", 4}, {"edits", edits}});
  same("units", {{"prompt", text}, {"layer", 6}, {"position", 3}, {"units", 3}, {"top", 2}});
  same("patch", {{"prompt", text}, {"interventions", edits}, {"top", 4}, {"all_positions", true}});
  same("patch", {{"prompt", text}, {"metric", {{"logprob", 300}}}, {"ablate", {{"what", "z"}, {"layers", {1}}}}});
  same("document", {{"prompt", text}, {"pictures", {"next-tokens", "logit-lens"}}, {"position", 2}});
  const OrderedJson all = same("document", {{"prompt", text}, {"gradients", false}});
  EXPECT_GT(all["steps"].size(), 10U);
  EXPECT_GT(all["pictures"].size(), 30U);
}

TEST_F(ServedLive, AStepOfTrainingIsTakenOnACopy) {
  const OrderedJson plain = same("next", {{"prompt", text}});
  const OrderedJson step = same("train", {{"prompt", text}, {"target", " who"}, {"rate", 0.01}});
  EXPECT_LT(step["loss_after"], step["loss_before"]);
  EXPECT_EQ(same("next", {{"prompt", text}}), plain);
  const std::lock_guard another(served.service->training());
  expect_error(served.post("/v1/live/train", {{"prompt", text}, {"target", " who"}}), 429, "", "one at a time");
}

TEST_F(ServedLive, StreamsGoOnBesideIt) {
  GenerateOptions options;
  options.ignore_eos = true;
  const OrderedJson request = {
      {"prompt", text}, {"max_tokens", 60}, {"temperature", 0}, {"ignore_eos", true}, {"return_token_ids", true}};
  const Connection stream(served.server->port());
  stream.send("POST", "/v1/completions", request.dump());
  for (const char* name : {"document", "generate", "train", "next"})
    served.made("/v1/live/" + std::string(name), {{"prompt", text}, {"target", " who"}, {"gradients", false}});
  EXPECT_EQ(stream.reply().json()["choices"][0]["token_ids"], served.greedy(served.alone.prompt_ids(text), 60, options).tokens);
}

TEST_F(ServedLive, PicturesAndTokensAreJobsOfTheirOwn) {
  const auto jobs = [&](const std::string& request, const OrderedJson& body) {
    const auto before = served.service->scheduler().stats().jobs;
    served.made("/v1/live/" + request, body);
    while (!served.service->scheduler().idle()) std::this_thread::yield();  // its counts follow the answer
    return static_cast<int64_t>(served.service->scheduler().stats().jobs - before);
  };
  const int64_t pictures = std::ssize(served.made("/v1/live/document", {{"prompt", text}, {"gradients", false}})["pictures"]);
  EXPECT_EQ(jobs("document", {{"prompt", text}, {"gradients", false}}), pictures + 2) << "the run, the pictures, the steps";
  EXPECT_GE(jobs("generate", {{"prompt", text}, {"max_tokens", 5}}), 5);
  EXPECT_EQ(jobs("next", {{"prompt", text}}), 1);
  const OrderedJson grid = {{"prompt", text}, {"metric", {{"logprob", 300}}}, {"ablate", {{"what", "z"}, {"layers", {1, 2}}}}};
  EXPECT_GE(jobs("patch", grid), 8) << "a cell of the grid each";
}

TEST_F(ServedLive, RefusalsNameWhatIsWrong) {
  const auto refuses = [&](const std::string& request, const OrderedJson& body, const std::string& field,
                           const std::string& words,
                           int status = 400) { expect_error(served.post("/v1/live/" + request, body), status, field, words); };
  refuses("nothing", OrderedJson::object(), "", "document, next, generate", 404);
  refuses("", OrderedJson::object(), "", "openapi.json", 404);
  expect_error(served.get("/v1/live/next"), 405, "", "POST");
  expect_error(served.ask("POST", "/v1/live/next", "{\"prompt\": \"a"), 400, "", "JSON");
  expect_error(served.ask("POST", "/v1/live/next", "[]"), 400, "", "object");
  refuses("next", OrderedJson::object(), "prompt", "missing");
  refuses("next", {{"prompt", ""}, {"add_special", false}}, "", "the prompt is empty");
  refuses("next", {{"prompt", OrderedJson::array({1 << 30})}}, "prompt", "0 to 6143");
  refuses("next", {{"prompt", OrderedJson::array({-1})}}, "prompt", "0 to 6143");
  refuses("next", {{"prompt", OrderedJson::array({"a"})}}, "prompt", "list");
  refuses("next", {{"prompt", {{"text", "a"}}}}, "prompt", "a string or a list");
  refuses("next", {{"prompt", std::vector<int>(5000, 300)}}, "", "5000");
  refuses("next", {{"prompt", "a"}, {"temperature", -1}}, "temperature", "0");
  refuses("next", {{"prompt", "a"}, {"top", 0}}, "top", "1");
  refuses("generate", {{"prompt", "a"}, {"max_tokens", 1 << 20}}, "max_tokens", "4096");
  refuses("generate", {{"prompt", "a"}, {"seed", -3}}, "seed", "0");
  refuses("inspect", {{"prompt", "a"}}, "hooks", "missing");
  refuses("inspect", {{"prompt", std::vector<int>(1000, 300)}, {"hooks", {"hook_logits"}}}, "hooks", "slices");
  refuses("document", {{"prompt", "a"}, {"pictures", {"no-such"}}}, "", "no-such");
  refuses("document", {{"prompt", "a"}, {"pictures", OrderedJson::array()}}, "pictures", "empty");
  refuses("document", {{"prompt", "a"}, {"layer", 99}, {"pictures", {"attention"}}}, "", "99");
  refuses("patch", {{"prompt", "a"}, {"interventions", {{{"head", "99.0"}, {"do", "zero"}}}}}, "", "99");
  refuses("units", {{"prompt", "a"}, {"layer", 99}}, "", "99");
  refuses("units", {{"prompt", "a"}, {"position", 99}}, "", "99");
  refuses("units", {{"prompt", "a"}, {"units", 1000}}, "units", "64");
  refuses("train", {{"prompt", "Onc"}, {"target", "e"}}, "", "target");
  refuses("train", {{"prompt", "a"}, {"target", " b"}, {"rate", -1}}, "rate", "0");
  refuses("next", {{"prompt", "a"}, {"model", "another"}}, "model", "another", 404);
  // No request reads a file of the server's machine.
  const OrderedJson reads = {{"hook", "resid_post.2"}, {"do", "set"}, {"vector", {{"file", "/etc/passwd"}, {"tensor", "x"}}}};
  for (const char* request : {"next", "generate"})
    refuses(request, {{"prompt", "a"}, {"edits", {reads}}}, "vector.file", "read no files");
  refuses("inspect", {{"prompt", "a"}, {"hooks", {"hook_embed"}}, {"edits", {reads}}}, "vector.file", "read no files");
  refuses("patch", {{"prompt", "a"}, {"interventions", {reads}}}, "vector.file", "read no files");
  refuses("next", {{"prompt", "a"}, {"edits", {{{"sae", "/etc"}, {"features", {"1=0"}}}}}}, "sae", "read no files");
  const OrderedJson off = {{"head", "0.0"}, {"do", "zero"}};
  refuses("next", {{"prompt", "a"}, {"edits", std::vector<OrderedJson>(1025, off)}}, "", "1025 changes");
  refuses("patch", {{"prompt", "a"}, {"interventions", std::vector<OrderedJson>(1025, off)}}, "", "1025 changes");
  // A field of another request changes nothing, and is named.
  EXPECT_EQ(served.made("/v1/live/next", {{"prompt", "a"}, {"hooks", {"hook_embed"}}, {"color", 1}})["ignored_fields"],
            OrderedJson({"color", "hooks"}));
}

TEST_F(ServedLive, SaysWhatThePageBeginsWith) {
  const OrderedJson about = served.get("/v1/live").json();
  EXPECT_EQ(about["model"], "tales9m");
  EXPECT_EQ(about["prompt"], text);
  EXPECT_EQ(about["command_model"], "--model tales9m");
  EXPECT_EQ(about["command_options"], "");
}

TEST(ServedLiveModels, WithoutATokenizerGoByIds) {
  ServiceOptions options;
  options.command_options = "--exact";
  const Served served(options, std::string(VITRINE_SOURCE) + "/tests/golden/models/classic_post/model");
  const OrderedJson about = served.get("/v1/live").json();
  EXPECT_EQ(about["command_options"], "--exact");
  const OrderedJson document = served.made("/v1/live/document", {{"prompt", about["prompt"]}, {"gradients", false}});
  EXPECT_EQ(document["prompt"]["ids"], about["prompt"]);
  EXPECT_EQ(served.made("/v1/live/next", {{"prompt", about["prompt"]}, {"top", 2}})["next"].size(), 2U);
  expect_error(served.post("/v1/live/next", {{"prompt", "a text"}}), 400, "", "tokenizer");
}

TEST(ServedLiveModels, QuantizedOnesRunAsTheyAre) {
  const std::string path = std::string(VITRINE_SOURCE) + "/tests/golden/gguf/llama_q8_0.gguf";
  const Served served({}, path);
  Live alone(path, {.threads = 1, .numerics = {.exact = true}});
  const OrderedJson prompt = {5, 3, 7, 9, 11};
  for (const char* request : {"next", "document"}) {
    const OrderedJson body = {{"prompt", prompt}, {"gradients", false}};
    const OrderedJson mine = served.made("/v1/live/" + std::string(request), body);
    EXPECT_EQ(mine, OrderedJson::parse(alone.answer(request, body.dump())));
  }
}

TEST(ServedLivePage, IsOneFileThatNeedsNoKeyAndHoldsNoNumbers) {
  const http::Response page = walk_page_response({});
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.body.starts_with("<!doctype html>")) << page.body.substr(0, 80);
  EXPECT_EQ(page.body.find("{{"), std::string::npos) << "a mark is left";
  EXPECT_EQ(page.body.find("<script src"), std::string::npos);
  std::string policy;
  for (const auto& [name, value] : page.headers)
    if (name == "Content-Security-Policy") policy = value;
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'sha256-")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
  EXPECT_TRUE(policy.ends_with("; frame-ancestors 'none'")) << policy;
  const std::vector<std::string> open = open_paths();
  EXPECT_NE(std::find(open.begin(), open.end(), "/explain"), open.end());
  for (const char* path : {"/v1/live", "/v1/live/{request}"}) EXPECT_EQ(std::find(open.begin(), open.end(), path), open.end());
}

}  // namespace
}  // namespace vitrine::serve
