// The endpoints that look inside the model: values are those of the offline functions, bit for bit.
#include "serve/inside.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include "hooks/trace.h"
#include "inspect/attribution.h"
#include "inspect/parts.h"
#include "inspect/tuned_lens.h"
#include "intervene/run.h"
#include "ops/stopping.h"
#include "requests/shared.h"
#include "support.h"

namespace vitrine::serve {
namespace {

/// A request whose client leaves when a test says so.
class Leaving final : public http::Exchange {
 public:
  const http::Request& request() const override { return request_; }
  void respond(http::Response) override {}
  std::shared_ptr<http::Stream> stream(http::Response) override { throw std::logic_error("this request has no stream"); }
  http::WorkCharge charge(size_t bytes) override { return http::WorkCharge(std::make_shared<http::WorkBudget>(bytes)); }
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }
  void name_model(const std::string&) override {}
  void count_tokens(int64_t, int64_t) override {}
  void leave() const { gone_(); }

 private:
  http::Request request_;
  std::function<void()> gone_;
};

class Inside : public testing::Test {
 protected:
  Served served;
  const std::string text = "Once upon a time there was a king";
  std::vector<int32_t> ids() const { return served.alone.prompt_ids(text); }
};

TEST(InsideCommands, NameThePrecisionOfTheServer) {
  ServiceOptions options;
  options.command_options = "--compute f32";
  Served served(std::move(options));
  const OrderedJson json = served.made("/v1/inspect", {{"prompt", "The king"}, {"hooks", {"hook_embed"}}});
  EXPECT_TRUE(json["command"].get<std::string>().ends_with(" --compute f32")) << json["command"];
}

TEST(InsideLens, LooksThroughTheTunedLensOfTheServer) {
  TunedLens lens{.d_model = 256, .translators = std::vector<TunedLens::Translator>(8)};
  for (TunedLens::Translator& t : lens.translators) {
    t.A.assign(256 * 256, 0.001f);
    t.b.assign(256, 0.1f);
  }
  ServiceOptions options;
  options.lens = std::make_shared<const TunedLens>(lens);
  options.lens_file = "my lens.safetensors";
  Served served(std::move(options));
  const std::vector<int32_t> ids = served.alone.prompt_ids("The king");
  const OrderedJson json = served.made("/v1/lens", {{"prompt", ids}, {"tuned", true}}),
                    plain = served.made("/v1/lens", {{"prompt", ids}});
  const LogitLens offline = logit_lens(served.alone, ids, {}, 5, 0, nullptr, &lens);
  for (size_t i = 0; i < offline.points.size(); ++i)
    EXPECT_EQ(json["layers"][i]["positions"][1]["kl"].get<double>(), offline.at(i, 1).kl);
  EXPECT_NE(json["layers"][2], plain["layers"][2]);
  EXPECT_EQ(json["layers"][8], plain["layers"][8]);
  EXPECT_TRUE(json["command"].get<std::string>().starts_with(
      "vitrine picture logit-lens --json --lens 'my lens.safetensors' --tokens 2,"));
}

TEST_F(Inside, InspectGivesTheValuesOfTrace) {
  const std::string hook = "blocks.3.attn.hook_pattern[heads=1,positions=-1]";
  const OrderedJson json =
      served.made("/v1/inspect", {{"prompt", text}, {"hooks", {hook, "blocks.*.hook_resid_post[positions=2:4]"}}});
  EXPECT_EQ(json["tokens"], ids());
  EXPECT_EQ(json["pieces"].size(), ids().size());
  EXPECT_TRUE(json["command"].get<std::string>().starts_with("vitrine trace --hooks "));
  EXPECT_NE(json["command"].get<std::string>().find(" --tokens 2,"), std::string::npos);
  ASSERT_EQ(json["hooks"].size(), 9U);
  const std::vector<std::string> hooks{hook, "blocks.*.hook_resid_post[positions=2:4]"};
  const Recorder offline = trace_to_memory(served.alone, ids(), hooks);
  for (const OrderedJson& one : json["hooks"]) {
    const Recorder::Value& value = offline.values().at(one["name"].get<std::string>());
    EXPECT_EQ(one["shape"], value.shape);
    std::vector<float> flat;
    const std::function<void(const OrderedJson&)> flatten = [&](const OrderedJson& part) {
      if (!part.is_array()) return flat.push_back(part.get<float>());
      for (const OrderedJson& inner : part) flatten(inner);
    };
    flatten(one["values"]);
    EXPECT_EQ(flat, std::vector<float>(value.values.begin(), value.values.end()));
  }
}

TEST_F(Inside, InspectGivesASafetensorsFile) {
  const Reply reply =
      served.post("/v1/inspect", {{"prompt", ids()}, {"hooks", "blocks.0.hook_resid_post"}, {"format", "safetensors"}});
  ASSERT_EQ(reply.status, 200);
  uint64_t length = 0;
  std::memcpy(&length, reply.body.data(), 8);
  const OrderedJson header = OrderedJson::parse(reply.body.substr(8, length));
  const std::vector<std::string> hooks{"blocks.0.hook_resid_post"};
  const Recorder offline = trace_to_memory(served.alone, ids(), hooks);
  const auto& values = offline.values().at(hooks[0]).values;
  EXPECT_EQ(header[hooks[0]]["shape"], offline.values().at(hooks[0]).shape);
  ASSERT_EQ(reply.body.size(), 8 + length + values.size() * sizeof(float));
  EXPECT_EQ(std::memcmp(reply.body.data() + 8 + length, values.data(), values.size() * sizeof(float)), 0);
}

TEST_F(Inside, InspectSeesEdits) {
  const OrderedJson request = {{"prompt", text},
                               {"hooks", {"blocks.1.attn.hook_z[heads=3,positions=-1]", "hook_logits[positions=-1]"}},
                               {"edits", {{{"head", "1.3"}, {"do", "zero"}}}}};
  const OrderedJson json = served.made("/v1/inspect", request);
  for (const OrderedJson& x : json["hooks"][0]["values"][0][0]) EXPECT_EQ(x, 0.0);
  OrderedJson plain = request;
  plain.erase("edits");
  EXPECT_NE(served.made("/v1/inspect", plain)["hooks"][1]["values"], json["hooks"][1]["values"]);
}

TEST_F(Inside, LensAndHeadsAreThoseOfTheOfflineFunctions) {
  const OrderedJson lens = served.made("/v1/lens", {{"prompt", text}, {"positions", {-1}}, {"top", 3}});
  const std::vector<int64_t> last{static_cast<int64_t>(ids().size()) - 1};
  const LogitLens offline = logit_lens(served.alone, ids(), last, 3);
  ASSERT_EQ(lens["layers"].size(), offline.points.size());
  for (size_t i = 0; i < offline.points.size(); ++i) {
    const OrderedJson& reading = lens["layers"][i]["positions"][0];
    EXPECT_EQ(lens["layers"][i]["name"], offline.points[i]);
    for (size_t k = 0; k < 3; ++k) {
      EXPECT_EQ(reading["top"][k]["token"], offline.at(i, 0).top[k].token);
      EXPECT_EQ(reading["top"][k]["logprob"].get<float>(), offline.at(i, 0).top[k].logprob);
    }
    EXPECT_EQ(reading["rank"], offline.at(i, 0).rank);
  }
  const std::vector<int32_t> pair{300, 301};
  const OrderedJson heads = served.made("/v1/heads", {{"prompt", text}, {"token", 300}, {"against", 301}});
  const LogitAttribution logits = attribute_logits(served.alone, ids(), pair, last);
  EXPECT_NEAR(heads["before_cap"].get<double>(), logits.logits[0].before_cap - logits.logits[1].before_cap, 1e-12);
  double sum = heads["embed"].get<double>() + heads["bias"].get<double>() + heads["rounding"].get<double>();
  ASSERT_EQ(heads["layers"].size(), 8U);
  for (const OrderedJson& layer : heads["layers"]) {
    ASSERT_EQ(layer["heads"].size(), 4U);
    for (const OrderedJson& head : layer["heads"]) sum += head.get<double>();
    sum += layer["mlp"].get<double>() + layer["other"].get<double>();
  }
  EXPECT_NEAR(sum, heads["before_cap"].get<double>(), 1e-6);
}

TEST_F(Inside, AttributeAndScore) {
  const auto jobs = [&] {
    while (!served.service->scheduler().idle()) std::this_thread::yield();  // its counts follow the answer
    return served.service->scheduler().stats().jobs;
  };
  const auto before = jobs();
  const OrderedJson found = served.made("/v1/attribute", {{"prompt", text}, {"steps", 8}});
  EXPECT_EQ(jobs() - before, 10) << "a job for each run, so that streams get their steps in between";
  AttributionOptions options;
  options.steps = 8;
  const Attribution offline = vitrine::attribute(served.alone, ids(), options);
  EXPECT_EQ(found["token"], offline.token);
  EXPECT_EQ(found["integrated"], OrderedJson(*offline.integrated));
  EXPECT_EQ(found["saliency"], OrderedJson(offline.saliency));

  const auto jobs_before_scores = jobs();
  const OrderedJson scores = served.made("/v1/score", {{"prompts", {text, ids()}}});
  EXPECT_EQ(jobs(), jobs_before_scores) << "streams of the scheduler, which others run beside";
  const std::vector<float> logprobs = served.alone.token_logprobs(ids());
  ASSERT_EQ(scores["results"].size(), 2U);
  for (const OrderedJson& result : scores["results"]) {
    ASSERT_EQ(result["logprobs"].size(), ids().size());
    EXPECT_EQ(result["logprobs"][0], nullptr);
    for (size_t i = 0; i < logprobs.size(); ++i) EXPECT_EQ(result["logprobs"][i + 1].get<float>(), logprobs[i]);
    EXPECT_NEAR(std::log(result["perplexity"].get<double>()), result["nll"].get<double>(), 1e-9);
  }
  const OrderedJson one = served.made("/v1/score", {{"prompt", std::vector<int>{300}}})["results"][0];
  EXPECT_EQ(one["logprobs"], OrderedJson::array({nullptr}));
  EXPECT_EQ(one["nll"], nullptr);
}

TEST_F(Inside, PatchIsARecipe) {
  const OrderedJson json = served.made("/v1/patch", {{"prompt", "The king sat on"},
                                                     {"corrupt", "The queen sat on"},
                                                     {"metric", {{"logit_difference", {" his", " her"}}}},
                                                     {"patch", {{"what", "resid_pre"}, {"layers", {0, 4}}}}});
  Recipe recipe = recipe_of(YamlValue::parse(json["yaml"].get<std::string>(), "yaml"), "yaml");
  const OrderedJson offline = to_json(intervene(served.alone, recipe), served.alone);
  EXPECT_EQ(json["grid"], offline["grid"]);
  EXPECT_EQ(json["metric"], offline["metric"]);
  ASSERT_FALSE(json["grid"].is_null());
}

TEST_F(Inside, SteerGivesBothAnswers) {
  const OrderedJson request = {
      {"prompt", "The old king sat on"},
      {"max_tokens", 6},
      {"temperature", 0},
      {"edits",
       {{{"hook", "resid_post.2"}, {"do", "add"}, {"vector", {{"plus", "The queen"}, {"minus", "The king"}}}, {"times", 3}}}}};
  const OrderedJson json = served.made("/v1/steer", request);
  EXPECT_EQ(json["before"]["tokens"], served.greedy(served.alone.prompt_ids("The old king sat on"), 6).tokens);
  EXPECT_NE(json["after"]["tokens"], json["before"]["tokens"]);
  OrderedJson nothing = request;
  nothing["edits"][0]["times"] = 0;
  EXPECT_EQ(served.made("/v1/steer", nothing)["after"], json["before"]);
}

TEST_F(Inside, PicturesAndTheModel) {
  EXPECT_GT(served.get("/v1/pictures").json()["pictures"].size(), 10U);
  const OrderedJson data = served.made("/v1/pictures/attention", {{"prompt", text}, {"layer", 1}});
  EXPECT_TRUE(data["pictures"]["attention"]["available"].get<bool>());
  const Reply svg = served.post("/v1/pictures/attention", {{"prompt", text}, {"format", "svg"}});
  EXPECT_EQ(svg.status, 200);
  EXPECT_TRUE(svg.body.starts_with("<svg") || svg.body.starts_with("<?xml")) << svg.body.substr(0, 40);
  expect_error(served.post("/v1/pictures/attentoin", {{"prompt", text}}), 404, "", "attention");
  const OrderedJson model = served.get("/v1/model").json();
  EXPECT_EQ(model["n_layers"], 8);
  EXPECT_EQ(model["n_heads"], 4);
  EXPECT_FALSE(model["hooks"].empty());
}

// 1.10 is 1.1 to a reader of JSON, and another head.
TEST(HeadNumbers, AreRefusedWhereTheyMeanTwoHeads) {
  const auto edits = [](const OrderedJson& head) { return OrderedJson::array({OrderedJson{{"head", head}, {"do", "zero"}}}); };
  EXPECT_NO_THROW(refuse_head_numbers(edits(1.1), 10));
  EXPECT_NO_THROW(refuse_head_numbers(edits("1.10"), 12));
  EXPECT_NO_THROW(refuse_head_numbers(edits(1.2), 12));
  EXPECT_NO_THROW(refuse_head_numbers(edits(3.0), 12));
  EXPECT_NO_THROW(refuse_head_numbers(edits(1.11), 12));
  EXPECT_THROW(refuse_head_numbers(edits(1.1), 11), RequestError);
  EXPECT_THROW(refuse_head_numbers(edits(OrderedJson::array({"2.1", 1.2})), 21), RequestError);
  EXPECT_THROW(refuse_head_numbers({{"path", {{"senders", {{"head", 3.1}}}}}}, 12), RequestError);
}

TEST_F(Inside, RefusalsNameTheField) {
  const auto refuses = [&](const std::string& path, const OrderedJson& request, const std::string& field,
                           const std::string& words) { expect_error(served.post(path, request), 400, field, words); };
  refuses("/v1/inspect", {{"prompt", text}, {"hooks", "blocks.0.hook_nothing"}}, "", "hook_nothing");
  refuses("/v1/inspect", {{"hooks", "hook_embed"}}, "prompt", "missing");
  refuses("/v1/inspect", {{"prompt", text}, {"hooks", OrderedJson::array()}}, "hooks", "empty");
  refuses("/v1/inspect", {{"prompt", text}, {"hooks", "hook_embed"}, {"format", "npz"}}, "format", "safetensors");
  refuses("/v1/inspect", {{"prompt", std::vector<int>(1000, 300)}, {"hooks", "hook_logits"}}, "hooks", "slices");
  refuses("/v1/lens", {{"prompt", text}, {"positions", {99}}}, "positions", "99");
  refuses("/v1/lens", {{"prompt", text}, {"tuned", true}}, "tuned", "--lens FILE");
  refuses("/v1/heads", {{"prompt", text}, {"against", 3}}, "against", "needs");
  refuses("/v1/heads", {{"prompt", text}, {"token", 1 << 20}}, "token", "0 to 6143");
  refuses("/v1/steer", {{"prompt", text}, {"edits", {{{"sae", "/etc"}, {"features", {"1=0"}}}}}}, "sae", "read no files");
  refuses("/v1/steer",
          {{"prompt", text},
           {"edits", {{{"hook", "resid_post.2"}, {"do", "set"}, {"vector", {{"file", "/etc/passwd"}, {"tensor", "x"}}}}}}},
          "vector.file", "read no files");
  refuses("/v1/steer", {{"prompt", text}, {"edits", {{{"head", "77.1"}, {"do", "zero"}}}}}, "", "77");
  refuses("/v1/patch", {{"prompt", text}, {"patch", "nothing"}}, "", "nothing");
  refuses("/v1/score", {{"prompts", OrderedJson::array()}}, "prompts", "empty list");
  for (const char* path : {"/v1/score", "/v1/live/score"})
    refuses(path, {{"prompts", std::vector<std::string>(577, "a b")}}, "prompts", "577 texts");
}

TEST_F(Inside, WorkEndsWhenItsClientLeaves) {
  const std::string yaml = R"({prompt: The king sat on, metric: {logit_difference: [" his", " her"]}, ablate: z})";
  const Recipe recipe = recipe_of(YamlValue::parse(yaml, "recipe"), "recipe");
  const std::function<void(Engine&)> works[] = {[&](Engine& engine) { engine.token_logprobs(ids()); },
                                                [&](Engine& engine) { vitrine::attribute(engine, ids()); },
                                                [&](Engine& engine) { intervene(engine, recipe); }};
  for (const auto& work : works) {
    const auto exchange = std::make_shared<Leaving>();
    InsideRun run(*served.service, exchange, {});
    run(work);
    bool complete = false;
    const auto left_by_the_client = [&](Engine& engine) {
      exchange->leave();
      work(engine);
      complete = true;
    };
    EXPECT_THROW(run(left_by_the_client), Stopped);
    EXPECT_FALSE(complete);
    EXPECT_THROW(run(work), Stopped);  // nor does it begin
  }
}

// Wherever a run is stopped, forward or backward, nothing of it is left.
TEST_F(Inside, TheEngineIsSoundBehindAStop) {
  AttributionOptions few;
  few.steps = 1;
  const Attribution expected = vitrine::attribute(served.alone, ids(), few);
  const std::vector<float> logprobs = served.alone.token_logprobs(ids());
  int stopped = 0;
  for (int i = 0; i < 24; ++i) {
    const auto exchange = std::make_shared<Leaving>();
    InsideRun run(*served.service, exchange, {});
    std::thread leaves([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(1700 * i));
      exchange->leave();
    });
    try {
      run([&](Engine& engine) { vitrine::attribute(engine, ids()); });
    } catch (const Stopped&) {
      ++stopped;
    }
    leaves.join();
    Attribution found;
    std::vector<float> again;
    InsideRun other(*served.service, std::make_shared<Leaving>(), {});
    other([&](Engine& engine) {
      again = engine.token_logprobs(ids());
      found = vitrine::attribute(engine, ids(), few);
    });
    EXPECT_EQ(again, logprobs);
    EXPECT_EQ(found.saliency, expected.saliency);
    EXPECT_EQ(found.integrated, expected.integrated);
  }
  EXPECT_GT(stopped, 0);
}

TEST_F(Inside, WorkEndsWithTheServer) {
  std::promise<void> begun;
  bool complete = false;
  http::ServerOptions options;
  options.port = 0;
  auto server = std::make_unique<http::Server>(options, [&](const std::shared_ptr<http::Exchange>& exchange) {
    InsideRun run(*served.service, exchange, {});
    run([&](Engine& engine) {
      begun.set_value();
      for (int i = 0; i < 3000; ++i) engine.token_logprobs(ids());
      complete = true;
    });
  });
  const Connection connection(server->port());
  connection.send("GET", "/", "");
  begun.get_future().wait();
  server.reset();
  EXPECT_FALSE(complete);
}

TEST_F(Inside, HealthAndMetricsAreToldWhileAllRequestThreadsWait) {
  std::promise<void> release;
  const std::future<void> held =
      served.service->scheduler().run([go = release.get_future().share()](Engine&) { go.wait(); }, "somebody");
  std::vector<std::unique_ptr<Connection>> waiting;
  for (int i = 0; i < 4; ++i) {  // the server's threads
    waiting.push_back(std::make_unique<Connection>(served.server->port()));
    waiting.back()->send("POST", "/v1/lens", OrderedJson{{"prompt", text}}.dump());
  }
  while (served.service->inside() < 4) std::this_thread::yield();
  EXPECT_EQ(served.get("/health").status, 200);
  EXPECT_EQ(served.get("/metrics").status, 200);
  release.set_value();
  for (const auto& connection : waiting) EXPECT_EQ(connection->reply().status, 200);
}

TEST(InsideLimit, IsTheServices) {
  ServiceOptions options;
  options.most_inside = 1;
  const Served served(options);
  InsideRun first(*served.service, std::make_shared<Leaving>(), {});
  first([](Engine&) {});
  expect_error(served.post("/v1/lens", {{"prompt", "a king"}}), 429, "", "at once");
  expect_error(served.post("/v1/lens", {{"prompt", OrderedJson::array()}}), 400, "prompt", "not empty");
}

TEST_F(Inside, StreamsGoOnBesideIt) {
  const Connection stream(served.server->port());
  stream.send(
      "POST", "/v1/completions",
      OrderedJson{{"prompt", text}, {"max_tokens", 60}, {"temperature", 0}, {"ignore_eos", true}, {"return_token_ids", true}}
          .dump());
  for (int i = 0; i < 3; ++i) served.made("/v1/inspect", {{"prompt", text}, {"hooks", "blocks.*.hook_resid_post"}});
  GenerateOptions options;
  options.ignore_eos = true;
  EXPECT_EQ(stream.reply().json()["choices"][0]["token_ids"], served.greedy(ids(), 60, options).tokens);
}

}  // namespace
}  // namespace vitrine::serve
