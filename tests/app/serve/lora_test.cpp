// LoRA adapters over the API: chosen by request, listed, loaded and removed while the server runs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine::serve {
namespace {

std::string lora_golden(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/lora/" + name; }
std::string first_adapter() { return lora_golden("llama/adapter"); }
std::string second_adapter() { return lora_golden("mixed/second"); }

struct Adapted : Served {
  explicit Adapted(ServiceOptions options) : Served(std::move(options), Golden::open("llama").model()) {}

  // What the offline program makes of the prompt with these adapters.
  std::vector<int32_t> offline(const std::vector<std::pair<std::string, double>>& adapters) {
    ScaledAdapters scaled;
    for (const auto& [path, scale] : adapters) scaled.push_back({read_adapter(alone.opened(), path), scale});
    alone.adapt(std::move(scaled));
    const std::vector<int32_t> tokens = greedy(kPrompt, 12).tokens;
    alone.adapt({});
    return tokens;
  }

  // Of /completion, which also works without a tokenizer.
  std::vector<int32_t> native(OrderedJson more = OrderedJson::object()) const {
    OrderedJson request = {{"prompt", kPrompt}, {"n_predict", 12}, {"temperature", 0}, {"return_tokens", true}};
    request.update(more);
    return made("/completion", request)["tokens"].get<std::vector<int32_t>>();
  }
  std::vector<int32_t> openai(OrderedJson more = OrderedJson::object()) const {
    OrderedJson request = {{"prompt", kPrompt}, {"max_tokens", 12}, {"temperature", 0}, {"return_token_ids", true}};
    request.update(more);
    return made("/v1/completions", request)["choices"][0]["token_ids"].get<std::vector<int32_t>>();
  }

  static inline const std::vector<int32_t> kPrompt = {3, 17, 4, 5, 9, 12, 7, 21, 6, 8, 30};
};

ServiceOptions two_adapters(double first, double second) {
  ServiceOptions options;
  options.name = "base";
  options.adapters = {{"first", first_adapter(), first}, {"second", second_adapter(), second}};
  return options;
}

TEST(Lora, ARequestChoosesByNameAsVllmsDo) {
  Adapted served(two_adapters(0, 0));
  const auto plain = served.offline({}), first = served.offline({{first_adapter(), 1}}),
             second = served.offline({{second_adapter(), 1}});
  ASSERT_NE(plain, first);
  ASSERT_NE(plain, second);
  EXPECT_EQ(served.openai({{"model", "base"}}), plain);
  EXPECT_EQ(served.openai(), plain);
  EXPECT_EQ(served.openai({{"model", "first"}}), first);
  EXPECT_EQ(served.openai({{"model", "second"}}), second);
  EXPECT_EQ(served.native({{"model", "second"}}), second);
  EXPECT_EQ(served.made("/v1/completions", {{"model", "first"}, {"prompt", Adapted::kPrompt}, {"max_tokens", 1}})["model"],
            "first");
  const OrderedJson list = served.get("/v1/models").json()["data"];
  ASSERT_EQ(list.size(), 3U);
  EXPECT_EQ(list[1]["id"], "first");
  EXPECT_EQ(list[1]["parent"], "base");
  EXPECT_EQ(served.get("/v1/models/second").json()["id"], "second");
  EXPECT_EQ(served.get("/v1/models/third").status, 404);
}

TEST(Lora, ARequestChoosesByListAsLlamasDo) {
  Adapted served(two_adapters(1, 0));
  const auto plain = served.offline({}), first = served.offline({{first_adapter(), 1}}),
             both = served.offline({{first_adapter(), 0.5}, {second_adapter(), -1.5}});
  ASSERT_NE(first, both);
  EXPECT_EQ(served.native(), first) << "scales of the server hold where a request chooses none";
  EXPECT_EQ(served.native({{"lora", OrderedJson::array()}}), plain);
  const OrderedJson list = {{{"id", 1}, {"scale", -1.5}}, {{"id", 0}, {"scale", 0.5}}};
  EXPECT_EQ(served.native({{"lora", list}}), both);
  EXPECT_EQ(served.openai({{"lora", list}}), both);
  EXPECT_EQ(served.openai({{"lora", {{{"name", "first"}}}}}), first);
  const std::string chat =
      served.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}}, {"lora", {{{"id", 7}}}}}).body;
  EXPECT_NE(chat.find("error"), std::string::npos) << chat;
  // The inside of the adapted model, too.
  const OrderedJson hook = {{"prompt", Adapted::kPrompt}, {"hooks", {"ln_final.hook_normalized[positions=-1]"}}};
  const auto values = [&](const OrderedJson& more) {
    OrderedJson request = hook;
    request.update(more);
    return served.made("/v1/inspect", request)["hooks"].dump();
  };
  EXPECT_NE(values({{"lora", OrderedJson::array()}}), values(OrderedJson::object()));
  EXPECT_EQ(values({{"model", "first"}}), values(OrderedJson::object()));
  const OrderedJson scored = served.made("/v1/score", {{"prompt", Adapted::kPrompt}, {"model", "second"}});
  EXPECT_NE(scored["results"][0]["nll"], served.made("/v1/score", {{"prompt", Adapted::kPrompt}})["results"][0]["nll"]);
}

TEST(Lora, WrongChoicesAreRefusedByName) {
  const Adapted served(two_adapters(0, 0));
  const auto refused = [&](const OrderedJson& lora, const std::string& words) {
    expect_error(served.post("/completion", {{"prompt", Adapted::kPrompt}, {"n_predict", 1}, {"lora", lora}}), 400, "lora",
                 words);
  };
  refused("first", "expected a list");
  refused(OrderedJson::array({7}), "\"lora\"[0] is a number");
  refused(OrderedJson::array({OrderedJson::object()}), "expected an \"id\" or a \"name\"");
  refused(OrderedJson::array({{{"id", 0}, {"name", "first"}}}), "expected an \"id\" or a \"name\"");
  refused(OrderedJson::array({{{"id", "0"}}}), "expected a whole number");
  refused(OrderedJson::array({{{"id", -1}}}), "no such adapter is loaded");
  refused(OrderedJson::array({{{"id", 2}}}), "no such adapter is loaded");
  refused(OrderedJson::array({{{"name", "third"}}}), "no such adapter is loaded");
  refused(OrderedJson::array({{{"id", 0}}, {{"name", "first"}}}), "listed before");
  refused(OrderedJson::array({{{"id", 0}, {"scale", "much"}}}), "[0].scale is \"much\"");
  refused(OrderedJson::array({{{"id", 0}, {"scale", 1e9}}}), "from -1e6 to 1e6");
  expect_error(
      served.post("/completion", {{"prompt", Adapted::kPrompt}, {"model", "first"}, {"lora", OrderedJson::array({{{"id", 1}}})}}),
      400, "lora", "\"model\" names the adapter \"first\"");
  expect_error(served.post("/v1/attribute", {{"prompt", Adapted::kPrompt}, {"model", "first"}}), 400, "", "not differentiated");
}

TEST(Lora, ScalesAreSetForAll) {
  Adapted served(two_adapters(1, 0));
  EXPECT_EQ(served.get("/lora-adapters").json(),
            OrderedJson({{{"id", 0}, {"name", "first"}, {"path", last_part(first_adapter())}, {"scale", 1.0}},
                         {{"id", 1}, {"name", "second"}, {"path", last_part(second_adapter())}, {"scale", 0.0}}}));
  EXPECT_EQ(served.post("/lora-adapters", {{{"id", 1}, {"scale", 0.5}}}).json(), OrderedJson({{"success", true}}));
  EXPECT_EQ(served.native(), served.offline({{second_adapter(), 0.5}})) << "what is not listed gets 0";
  EXPECT_EQ(served.post("/lora-adapters", OrderedJson::array()).status, 200);
  EXPECT_EQ(served.native(), served.offline({}));
  expect_error(served.post("/lora-adapters", {{"id", 0}}), 400, "", "expected a list");
  expect_error(served.post("/lora-adapters", {{{"id", 0}}}), 400, "scale", "is missing");
  expect_error(served.post("/lora-adapters", {{{"id", 5}, {"scale", 1}}}), 400, "id", "no adapter has it");
  expect_error(served.post("/lora-adapters", {{{"id", 0}, {"scale", 1}}, {{"id", 0}, {"scale", 0}}}), 400, "id",
               "in two entries");
  EXPECT_EQ(served.ask("POST", "/lora-adapters", "[{").status, 400);
}

TEST(Lora, AdaptersComeAndGoWhileOthersRun) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch / "adapters");
  std::filesystem::copy(second_adapter(), scratch / "adapters/mine");
  ServiceOptions options = two_adapters(0, 0);
  options.adapter_limits.folders = {scratch / "adapters"};
  options.adapter_limits.most = 3;
  Adapted served(std::move(options));
  EXPECT_EQ(served.post("/v1/unload_lora_adapter", {{"lora_name", "second"}}).json(), OrderedJson({{"removed", "second"}}));
  EXPECT_EQ(served.post("/v1/completions", {{"model", "second"}, {"prompt", Adapted::kPrompt}}).status, 404);
  expect_error(served.post("/v1/unload_lora_adapter", {{"lora_name", "second"}}), 404, "lora_name",
               "no adapter called \"second\"");
  const Reply loaded = served.post("/v1/load_lora_adapter", {{"lora_name", "mine"}, {"lora_path", "mine"}});
  ASSERT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(loaded.json()["id"], 2) << "numbers are not used again";
  EXPECT_EQ(served.openai({{"model", "mine"}}), served.offline({{second_adapter(), 1}}));
  // Removed while a stream runs with it, which goes on.
  const Connection connection(served.server->port());
  connection.send(
      "POST", "/completion",
      OrderedJson({{"prompt", Adapted::kPrompt}, {"model", "mine"}, {"n_predict", 40}, {"temperature", 0}, {"stream", true}})
          .dump());
  const std::string begun = connection.some();
  EXPECT_EQ(served.post("/v1/unload_lora_adapter", {{"lora_name", "mine"}}).status, 200);
  std::string rest;
  for (std::string more = connection.some(); !more.empty(); more = connection.some()) rest += more;
  EXPECT_NE(rest.find("\"stop_type\":\"limit\""), std::string::npos) << begun << rest;
  // By its whole path, and again under another name.
  EXPECT_EQ(served.post("/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", scratch / "adapters/mine"}}).status, 200);
  expect_error(served.post("/v1/load_lora_adapter", {{"lora_name", "a"}, {"lora_path", "mine"}}), 400, "", "is loaded already");
  expect_error(served.post("/v1/load_lora_adapter", {{"lora_name", "base"}, {"lora_path", "mine"}}), 400, "", "the model is");
  EXPECT_EQ(served.post("/v1/load_lora_adapter", {{"lora_name", "b"}, {"lora_path", "mine"}}).status, 200);
  expect_error(served.post("/v1/load_lora_adapter", {{"lora_name", "c"}, {"lora_path", "mine"}}), 400, "", "no more may be");
  const std::string metrics = served.get("/metrics").body;
  EXPECT_NE(metrics.find("vitrine_adapters 3\n"), std::string::npos);
}

TEST(Lora, RequestsLoadOnlyFromBelowTheFoldersOfTheFlag) {
  const Scratch scratch;
  for (const char* place : {"in", "out"}) std::filesystem::create_directories(scratch / place);
  std::filesystem::copy(second_adapter(), scratch / "in/good");
  std::filesystem::copy(second_adapter(), scratch / "out/there");
  std::filesystem::create_directory_symlink(scratch / "out/there", scratch / "in/link");
  std::filesystem::create_directories(scratch / "in/files");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    std::filesystem::create_symlink(scratch / (std::string("out/there/") + file), scratch / (std::string("in/files/") + file));
  std::filesystem::create_directories(scratch / "in/empty");
  std::filesystem::create_directories(scratch / "inside");  // begins like the folder's name
  std::filesystem::copy(second_adapter(), scratch / "inside/there");
  ServiceOptions options;
  options.adapter_limits.folders = {scratch / "in"};
  const Adapted served(std::move(options));
  const auto load = [&](const std::string& path) {
    return served.post("/v1/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", path}});
  };
  const std::string elsewhere = "names no adapter below the folders";
  for (const std::string& path :
       {std::string("../out/there"), std::string("link"), std::string("files"), scratch / "out/there", std::string("/etc"),
        std::string("none"), std::string("."), std::string(""), scratch / "inside/there", scratch / "in",
        std::string("good\0/../../out/there", 21), std::string(5000, 'a')})
    expect_error(load(path), 400, "lora_path", elsewhere);
  const Reply empty = load("empty");
  EXPECT_EQ(empty.status, 400);
  EXPECT_NE(empty.body.find("holds no adapter_config.json"), std::string::npos) << empty.body;
  EXPECT_EQ(load("good").status, 200);
  expect_error(served.post("/v1/load_lora_adapter", {{"lora_name", ""}, {"lora_path", "good"}}), 400, "lora_name", "is empty");
  const Adapted closed(two_adapters(0, 0));
  expect_error(closed.post("/v1/load_lora_adapter", {{"lora_name", "x"}, {"lora_path", second_adapter()}}), 501, "lora_path",
               "--lora-folder");
}

TEST(Lora, BytesAreLimitedAndThoseOfRunningStreamsCount) {
  Engine engine(Golden::open("llama").model(), {.threads = 1});
  const size_t bytes = static_cast<size_t>(read_adapter(engine.opened(), second_adapter())->parameter_count()) * sizeof(float);
  AdapterList list(engine.opened(), {.bytes = 2 * bytes - 1, .folders = {}}, {});
  std::optional<AdapterList::Entry> held = list.load({"", second_adapter(), 0});
  EXPECT_EQ(held->name, "second");
  list.remove("second");
  EXPECT_EQ(list.size().adapters, 0);
  EXPECT_EQ(list.size().bytes, bytes);
  EXPECT_THROW(list.load({"", second_adapter(), 0}), FileError);
  held.reset();
  EXPECT_EQ(list.size().bytes, 0U);
  EXPECT_EQ(list.load({"", second_adapter(), 0}).id, 1);
}

TEST(Lora, WhatDoesNotFitTheModelIsRefusedAtTheStart) {
  ServiceOptions options;
  options.adapters = {{"gpt2", lora_golden("gpt2_a/adapter"), 1}};
  EXPECT_THROW(Adapted served(options), FileError);
  options.adapters = {{"a", first_adapter(), 1}, {"a", second_adapter(), 1}};
  EXPECT_THROW(Adapted served(options), InputError);
  options.adapters = {};
  options.adapter_limits.folders = {"/no/such/folder"};
  EXPECT_THROW(Adapted served(options), FileError);
}

}  // namespace
}  // namespace vitrine::serve
