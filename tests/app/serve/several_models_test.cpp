// Several models in one server.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "serve/model_routes.h"
#include "serve/process.h"
#include "support.h"
#include "support/scratch.h"

namespace vitrine::serve {
namespace {

using namespace std::chrono_literals;

// A sanitizer keeps freed memory, to find who still uses it.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFreesMemory = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kFreesMemory = false;
#else
constexpr bool kFreesMemory = true;
#endif
#else
constexpr bool kFreesMemory = true;
#endif

std::string golden(const std::string& name) { return std::string(VITRINE_SOURCE) + "/tests/golden/models/" + name + "/model"; }

std::unique_ptr<LoadedModel> load_exact(const ModelToServe& model) {
  return std::make_unique<LoadedModel>([&] { return Engine(model.path, {.threads = 2, .numerics = {.exact = true}}); },
                                       SchedulerOptions{.cache_bytes = 16 << 20},
                                       [&](Engine&) {
                                         ServiceOptions options;
                                         options.name = model.name;
                                         return options;
                                       });
}

ServedModelsOptions two_models() {
  ServedModelsOptions options;
  options.models = {{"llama", golden("llama")}, {"qwen", golden("qwen3")}};
  options.load = load_exact;
  return options;
}

class SeveralServed {
 public:
  explicit SeveralServed(ServedModelsOptions options = two_models()) : models(std::move(options)) {
    http::ServerOptions http;
    http.port = 0;
    http.request_threads = 4;
    http.open_paths = open_paths();
    http.quick_paths = quick_paths();
    http.error_body = http_error_body;
    server = std::make_unique<http::Server>(
        std::move(http), [this](const std::shared_ptr<http::Exchange>& exchange) { answer(models, exchange); });
  }
  Reply ask(const std::string& method, const std::string& path, const std::string& body = "") const {
    const Connection connection(server->port());
    connection.send(method, path, body);
    return connection.reply();
  }
  Reply post(const std::string& path, const OrderedJson& json) const { return ask("POST", path, json.dump()); }
  Reply complete(const std::string& model, int64_t tokens = 4) const {
    return post("/v1/completions", {{"model", model},
                                    {"prompt", {3, 5, 7}},
                                    {"max_tokens", tokens},
                                    {"temperature", 0},
                                    {"return_token_ids", true},
                                    {"ignore_eos", true}});
  }
  std::vector<std::string> loaded() {
    std::vector<std::string> names;
    for (const ServedModel& model : models.list())
      if (model.service) names.push_back(model.name);
    return names;
  }
  /// Waits until these are loaded and no others.
  void expect_loaded(const std::vector<std::string>& names) {
    for (int i = 0; i < 3000 && loaded() != names; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(loaded(), names);
  }

  /// Waits until no request has a part in a model: for options with keep_seconds, of which some have passed then.
  void wait_until_idle() {
    const auto in_use = [this](const ServedModel& model) {
      return model.service != nullptr && model.seconds_left == models.options().keep_seconds;
    };
    for (int i = 0; i < 3000 && std::ranges::any_of(models.list(), in_use); ++i) std::this_thread::sleep_for(1ms);
  }

  ServedModels models;
  std::unique_ptr<http::Server> server;
};

using Names = std::vector<std::string>;

TEST(SeveralModels, AreLoadedByTheirNames) {
  SeveralServed served;
  EXPECT_EQ(served.loaded(), Names{"llama"});
  EXPECT_EQ(served.complete("").json()["model"], "llama");
  EXPECT_EQ(served.loaded(), Names{"llama"});
  const Reply second = served.complete("qwen");
  EXPECT_EQ(second.status, 200) << second.body;
  EXPECT_EQ(second.json()["model"], "qwen");
  EXPECT_EQ(served.loaded(), (Names{"llama", "qwen"}));
  const Reply unknown = served.complete("mistral");
  expect_error(unknown, 404, "model", "the model \"mistral\" is not here");
  const Reply ollama = served.post("/api/show", {{"name", "qwen:latest"}});
  EXPECT_EQ(ollama.json()["model_info"]["general.basename"], "qwen") << ollama.body;
  EXPECT_EQ(served.ask("GET", "/v1/models/qwen").json()["id"], "qwen");
  EXPECT_EQ(served.ask("GET", "/props?model=qwen").json()["model_alias"], "qwen");
  EXPECT_EQ(served.ask("GET", "/props").json()["model_alias"], "llama");
  EXPECT_EQ(served.ask("POST", "/v1/completions", "{\"model\": \"qwen\", ").status, 400);
}

TEST(SeveralModels, AreListedWithTheirStates) {
  SeveralServed served;
  const OrderedJson list = served.ask("GET", "/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 2U) << list;
  EXPECT_EQ(list[0]["id"], "llama");
  EXPECT_EQ(list[0]["loaded"], true);
  EXPECT_EQ(list[1]["id"], "qwen");
  EXPECT_EQ(list[1]["loaded"], false);
  EXPECT_GT(list[1]["meta"]["size"].get<size_t>(), 0U);
  EXPECT_EQ(served.ask("GET", "/api/tags").json()["models"].size(), 2U);
  EXPECT_EQ(served.ask("GET", "/api/ps").json()["models"].size(), 1U);
  const std::string before = served.ask("GET", "/metrics").body;
  EXPECT_NE(before.find("vitrine_model_loaded{model=\"llama\"} 1\nvitrine_model_loaded{model=\"qwen\"} 0\n"), std::string::npos)
      << before;
  served.complete("qwen");
  EXPECT_EQ(served.ask("GET", "/api/ps").json()["models"].size(), 2U);
  const std::string metrics = served.ask("GET", "/metrics").body;
  EXPECT_NE(metrics.find("vitrine_new_tokens_total{model=\"qwen\"} 4\n"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("vitrine_step_seconds_bucket{le=\"+Inf\",model=\"qwen\"}"), std::string::npos) << metrics;
  const size_t type = metrics.find("# TYPE vitrine_new_tokens_total ");
  EXPECT_EQ(metrics.find("# TYPE vitrine_new_tokens_total ", type + 1), std::string::npos) << "a metric has one type line";
  EXPECT_EQ(served.ask("GET", "/health").status, 200);
  EXPECT_EQ(served.ask("GET", "/ready").status, 200);
}

TEST(SeveralModels, TheLeastRecentlyUsedOneMakesRoom) {
  ServedModelsOptions options = two_models();
  options.models.push_back({"gemma", golden("gemma")});
  options.most = 2;
  options.keep_seconds = 1000;
  SeveralServed served(std::move(options));
  for (const char* name : {"qwen", "llama", "gemma"}) {
    EXPECT_EQ(served.complete(name).status, 200);
    served.wait_until_idle();
  }
  EXPECT_EQ(served.loaded(), (Names{"llama", "gemma"}));
}

TEST(SeveralModels, MakeRoomWhereMemoryIsShort) {
  ServedModelsOptions options = two_models();
  options.free_memory = [] { return size_t{1}; };
  SeveralServed served(std::move(options));
  EXPECT_EQ(served.complete("qwen").status, 200);
  EXPECT_EQ(served.loaded(), Names{"qwen"});
  EXPECT_EQ(served.complete("llama").status, 200);
  EXPECT_EQ(served.loaded(), Names{"llama"});
}

TEST(SeveralModels, OneThatIsInUseIsNotUnloaded) {
  ServedModelsOptions options = two_models();
  options.most = 1;
  SeveralServed served(std::move(options));
  std::shared_ptr<Service> held;
  served.models.use(0, {}, [&](const std::shared_ptr<Service>& service) { held = service; }, [](const std::exception_ptr&) {});
  ASSERT_NE(held, nullptr);
  std::future<Reply> second = std::async(std::launch::async, [&] { return served.complete("qwen"); });
  // A request for the first model now waits behind the one for the second: else its clients could keep it for ever.
  std::promise<std::string> again;
  for (bool waits = false; !waits;) {
    auto back = std::make_shared<std::promise<void>>();
    bool at_once = false;
    served.models.use(
        0, {},
        [&, back](const std::shared_ptr<Service>& service) {
          held == service ? void(at_once = true) : again.set_value(service->name());
        },
        [](const std::exception_ptr&) {});
    waits = !at_once;
  }
  EXPECT_EQ(served.loaded(), Names{"llama"});
  EXPECT_EQ(held->name(), "llama");
  held = nullptr;
  EXPECT_EQ(second.get().json()["model"], "qwen");
  EXPECT_EQ(again.get_future().get(), "llama");
  served.expect_loaded({"llama"});
}

TEST(SeveralModels, AreUnloadedAfterAWhile) {
  ServedModelsOptions options = two_models();
  options.keep_seconds = 0.02;
  SeveralServed served(std::move(options));
  served.expect_loaded({});
  EXPECT_EQ(served.ask("GET", "/health").status, 200);
  EXPECT_EQ(served.ask("GET", "/v1/models").json()["data"][0]["loaded"], false);
  EXPECT_EQ(served.complete("llama").status, 200);
  served.expect_loaded({});
}

TEST(SeveralModels, KeepAliveOfARequest) {
  SeveralServed served;
  const auto ask = [&](const std::string& model, const OrderedJson& keep) {
    return served.post("/api/generate", {{"model", model}, {"prompt", ""}, {"keep_alive", keep}});
  };
  const Reply kept = ask("llama", -1);
  EXPECT_EQ(kept.status, 200);
  EXPECT_FALSE(kept.json().contains("ignored_fields")) << kept.body;
  EXPECT_EQ(ask("qwen:latest", "10m").status, 200);
  EXPECT_EQ(served.loaded(), (Names{"llama", "qwen"}));
  const OrderedJson ps = served.ask("GET", "/api/ps").json()["models"];
  EXPECT_EQ(ps[0]["expires_at"], "9999-12-31T23:59:59Z");
  EXPECT_NE(ps[1]["expires_at"], "9999-12-31T23:59:59Z");
  EXPECT_EQ(ask("qwen", 1e300).status, 200);  // more than a clock can count
  EXPECT_EQ(served.complete("qwen").status, 200);
  EXPECT_EQ(served.loaded(), (Names{"llama", "qwen"}));
  EXPECT_EQ(ask("qwen", 0).status, 200);
  served.expect_loaded({"llama"});
  const Reply wrong = ask("llama", "soon");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_NE(wrong.body.find("keep_alive"), std::string::npos) << wrong.body;
  EXPECT_NE(wrong.body.find("1h30m"), std::string::npos) << wrong.body;
}

TEST(SeveralModels, OneThatCannotBeLoadedFailsByNameAndIsTriedAgain) {
  ServedModelsOptions options = two_models();
  std::atomic<int> tries{0};
  std::string said;
  options.say = [&](const std::string& what) { said += what + "\n"; };
  options.load = [&](const ModelToServe& model) {
    if (model.name == "qwen" && ++tries == 1) throw FileError("/secret/qwen", "is cut");
    return load_exact(model);
  };
  SeveralServed served(std::move(options));
  const Reply failed = served.complete("qwen");
  expect_error(failed, 500, "model", "the model \"qwen\" cannot be loaded");
  EXPECT_EQ(failed.body.find("secret"), std::string::npos) << failed.body;
  EXPECT_NE(said.find("/secret/qwen: is cut"), std::string::npos) << said;
  EXPECT_EQ(served.complete("llama").status, 200);
  EXPECT_EQ(served.complete("qwen").status, 200);
}

TEST(SeveralModels, OthersGoOnWhileOneIsLoaded) {
  ServedModelsOptions options = two_models();
  std::promise<void> begun, may_end;
  options.load = [&](const ModelToServe& model) {
    if (model.name == "qwen") {
      begun.set_value();
      may_end.get_future().wait();
    }
    return load_exact(model);
  };
  SeveralServed served(std::move(options));
  std::vector<std::future<Reply>> waiting;
  for (int i = 0; i < 6; ++i)  // more than there are request threads
    waiting.push_back(std::async(std::launch::async, [&] { return served.complete("qwen"); }));
  begun.get_future().wait();
  EXPECT_EQ(served.complete("llama").status, 200);
  EXPECT_EQ(served.loaded(), Names{"llama"});
  may_end.set_value();
  for (std::future<Reply>& reply : waiting) EXPECT_EQ(reply.get().status, 200);
}

TEST(SeveralModels, DrainTogether) {
  SeveralServed served;
  EXPECT_EQ(served.complete("qwen").status, 200);
  served.models.drain();
  EXPECT_EQ(served.complete("qwen").status, 503);
  EXPECT_EQ(served.complete("llama").status, 503);
  EXPECT_EQ(served.ask("GET", "/health").status, 503);
  EXPECT_EQ(served.ask("GET", "/ready").status, 503);
}

TEST(SeveralModels, OneThatIsNotLoadedIsNotLoadedWhileTheServerDrains) {
  SeveralServed served;
  served.models.drain();
  EXPECT_EQ(served.complete("qwen").status, 503);
  EXPECT_EQ(served.loaded(), Names{"llama"});
}

TEST(SeveralModels, TwoAtOnceGiveTheIdsOfTheOfflineProgram) {
  SeveralServed served;
  std::vector<std::vector<int32_t>> expected;
  for (const char* name : {"llama", "qwen3"}) {
    Engine alone(golden(name), {.threads = 1, .numerics = {.exact = true}});
    GenerateOptions options;
    options.max_tokens = 20;
    expected.push_back(generate(alone, std::vector<int32_t>{3, 5, 7}, options).tokens);
  }
  std::vector<std::thread> clients;
  for (int client = 0; client < 6; ++client)
    clients.emplace_back([&, client] {
      for (int i = 0; i < 4; ++i) {
        const bool second = (client + i) % 2 == 1;
        const OrderedJson json = served.complete(second ? "qwen" : "llama", 20).json();
        EXPECT_EQ(json["choices"][0]["token_ids"].get<std::vector<int32_t>>(), expected[second ? 1 : 0]) << json;
      }
    });
  for (std::thread& client : clients) client.join();
}

TEST(SeveralModels, SwappingLeavesNothingBehind) {
  ServedModelsOptions options = two_models();
  options.most = 1;
  SeveralServed served(std::move(options));
  const auto swap = [&] {
    EXPECT_EQ(served.complete("qwen").status, 200);
    EXPECT_EQ(served.complete("llama").status, 200);
  };
  for (int i = 0; i < 5; ++i) swap();
  const ProcessStats before = process_stats();
  for (int i = 0; i < 20; ++i) swap();
  EXPECT_EQ(served.models.list()[1].loads, 25U);
  // The last connection may be closing still, then as now; each swap would leave one more.
  ProcessStats after = process_stats();
  for (int i = 0; i < 6000 && (after.threads > before.threads || after.open_files > before.open_files); ++i) {
    std::this_thread::sleep_for(10ms);
    after = process_stats();
  }
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.open_files, before.open_files);
  if (kFreesMemory) {
    EXPECT_LT(after.resident_bytes - before.resident_bytes, 16 << 20);
  }
}

TEST(SeveralModels, TheModelsOfAFolder) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("vitrine_models_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "b");
  std::filesystem::create_directories(folder / "empty");
  for (const char* file : {"b/config.json", "a.gguf", "c-00001-of-00002.gguf", "c-00002-of-00002.gguf", "notes.txt"})
    std::ofstream(folder / file) << "{}";
  Names names;
  for (const ModelToServe& model : models_in(folder.string())) names.push_back(model.name);
  EXPECT_EQ(names, (Names{"a.gguf", "b", "c-00001-of-00002.gguf"}));
  EXPECT_THROW(models_in((folder / "empty").string()), FileError);
  EXPECT_THROW(models_in((folder / "none").string()), FileError);
  std::filesystem::remove_all(folder);
}

TEST(SeveralModels, AreReplacedWhileTheServerRuns) {
  SeveralServed served;
  std::shared_ptr<Service> held;
  served.models.use(0, {}, [&](const std::shared_ptr<Service>& service) { held = service; }, [](const std::exception_ptr&) {});
  const ModelToServe llama{"llama", golden("llama")}, qwen{"qwen", golden("qwen3")}, gemma{"gemma", golden("gemma")};
  served.models.set_models({gemma, qwen});
  EXPECT_EQ(served.complete("llama").status, 404);
  EXPECT_EQ(served.complete("").json()["model"], "gemma") << "the first of them";
  EXPECT_EQ(served.ask("GET", "/v1/models").json()["data"].size(), 2U);
  EXPECT_EQ(held->name(), "llama") << "it is in use";
  std::promise<bool> ended;
  held->scheduler().run([&](Engine&) { ended.set_value(true); }, "").get();
  EXPECT_TRUE(ended.get_future().get()) << "and works";
  EXPECT_THROW(served.models.set_models({llama, {"llama", golden("qwen3")}}), UsageError);
  EXPECT_THROW(served.models.set_models({}), UsageError);
  EXPECT_EQ(served.complete("qwen").status, 200) << "as before";
  served.expect_loaded({"gemma", "qwen"});
  served.models.set_models({llama, qwen});
  EXPECT_EQ(served.models.list()[0].loads, 1U) << "it never left";
  held = nullptr;
  EXPECT_EQ(served.complete("llama").status, 200);
  served.models.set_models({{"llama", golden("gemma")}, qwen});
  EXPECT_EQ(served.ask("GET", "/props?model=llama").json()["model_path"], "llama");
  EXPECT_EQ(served.models.list()[0].path, golden("gemma")) << "the name stands for another one now";
  served.expect_loaded({"llama", "qwen"});
}

TEST(SeveralModels, OneWithOtherFilesIsAnotherOne) {
  const Scratch scratch;
  const auto put = [&](const std::string& name) {
    std::filesystem::remove_all(scratch / "m");
    std::filesystem::copy(golden(name), scratch / "m", std::filesystem::copy_options::recursive);
  };
  put("llama");
  ServedModelsOptions options = two_models();
  options.models = {{"m", scratch / "m"}};
  SeveralServed served(std::move(options));
  const auto family = [&] { return served.ask("GET", "/v1/models/m").json()["meta"]["family"].get<std::string>(); };
  EXPECT_EQ(family(), "llama");
  served.models.set_models({{"m", scratch / "m"}});
  EXPECT_EQ(served.models.list()[0].loads, 1U) << "nothing has changed";
  put("qwen3");
  served.models.set_models({{"m", scratch / "m"}});
  EXPECT_EQ(family(), "qwen3");
}

TEST(SeveralModels, ANameIsGivenOnce) {
  ServedModelsOptions options = two_models();
  options.models[1].name = "llama";
  EXPECT_THROW(ServedModels{std::move(options)}, UsageError);
}

// The model that the body names is the one to fetch, not one that answers.
TEST(SeveralModels, APullNeedsNoModelOfThatName) {
  std::vector<std::string> pulled;
  ServedModelsOptions options = two_models();
  options.load = [&](const ModelToServe& model) {
    return std::make_unique<LoadedModel>([&] { return Engine(model.path, {.threads = 1}); },
                                         SchedulerOptions{.cache_bytes = 16 << 20},
                                         [&](Engine&) {
                                           ServiceOptions answers;
                                           answers.pull = [&](const std::string& name, const auto&) { pulled.push_back(name); };
                                           return answers;
                                         });
  };
  const SeveralServed served(options);
  const Reply reply = served.post("/api/pull", {{"model", "ada/model:Q8_0"}, {"stream", false}});
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(pulled, std::vector<std::string>{"ada/model:Q8_0"});
}

}  // namespace
}  // namespace vitrine::serve
