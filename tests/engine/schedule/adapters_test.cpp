// Streams of different adapters in the same steps: each as if it were alone with its own.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "collector.h"
#include "generate/generate.h"
#include "models.h"
#include "ops/recorder.h"
#include "schedule/scheduler.h"

namespace vitrine {
namespace {

std::string adapter_folder(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/lora/" + name; }

struct Expected {
  std::vector<int32_t> prompt;
  ScaledAdapters adapters;
  Generation alone;
};

std::shared_ptr<Collector> submitted(Scheduler& scheduler, const Expected& e, const GenerateOptions& options) {
  auto heard = std::make_shared<Collector>();
  scheduler.submit({.prompt = e.prompt, .options = options, .adapters = e.adapters}, heard);
  return heard;
}

// Five kinds of stream over the same few prompts, in both rounds beside each other; the second finds what the first left.
void expect_as_alone(const std::string& model, const std::vector<std::string>& folders, SchedulerOptions scheduling) {
  SCOPED_TRACE(model);
  Engine engine(Golden::open(model).model(), {2, {.f32 = true, .exact = true}});
  std::vector<ScaledAdapters> kinds = {{}};
  ScaledAdapters all;
  for (const std::string& folder : folders) {
    const std::shared_ptr<const Adapter> adapter = read_adapter(engine.opened(), adapter_folder(folder));
    kinds.push_back({{adapter}});
    kinds.push_back({{adapter, -0.5}});
    all.push_back({adapter, 0.75});
  }
  kinds.push_back(all);
  GenerateOptions options{.max_tokens = 10};
  options.sampling.temperature = 1.5;
  options.sampling.seed = 3;
  std::vector<Expected> expected;
  const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
  for (uint64_t i = 0; i < 30; ++i) {
    Expected& e = expected.emplace_back();
    e.prompt = random_ids(i % 2, 10 + static_cast<size_t>(i * 5 % 17), ids);
    e.adapters = kinds[i % kinds.size()];
    engine.adapt(e.adapters);
    e.alone = generate(engine, e.prompt, options);
  }
  engine.adapt({});
  EXPECT_NE(generate(engine, expected[1].prompt, options).logprobs, expected[1].alone.logprobs) << "the adapter changes nothing";
  Scheduler scheduler(engine, scheduling);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Collector>> heard;
    for (const Expected& e : expected) heard.push_back(submitted(scheduler, e, options));
    for (size_t i = 0; i < expected.size(); ++i) {
      heard[i]->wait();
      EXPECT_EQ(heard[i]->end.error, "") << i;
      EXPECT_EQ(heard[i]->tokens, expected[i].alone.tokens) << i;
      EXPECT_EQ(heard[i]->logprobs, expected[i].alone.logprobs) << i;
    }
  }
  EXPECT_GT(scheduler.stats().cached_tokens, 0u);
  EXPECT_GT(scheduler.stats().step_streams.sum, 1.5 * static_cast<double>(scheduler.stats().steps))
      << "they had no steps together";
}

TEST(SchedulerAdapters, StreamsHaveTheBitsTheyHaveAlone) {
  expect_as_alone("llama", {"llama/adapter", "mixed/second"}, {.running = 12});
  expect_as_alone("gpt2_a", {"gpt2_a/adapter"}, {.running = 12});
  expect_as_alone("gemma2", {"gemma2/adapter"}, {.running = 12});
  expect_as_alone("qwen3_moe", {"qwen3_moe/adapter"}, {.running = 12});
}

TEST(SchedulerAdapters, StreamsThatLoseTheirCacheKeepTheirAdapter) {
  const Scratch scratch;
  Engine engine(with_context(scratch, "llama", 2048), {2, {.f32 = true, .exact = true}});
  const std::shared_ptr<const Adapter> adapter = read_adapter(engine.opened(), adapter_folder("llama/adapter"));
  const GenerateOptions options{.max_tokens = 560};  // three pages each, and room for about seven
  std::vector<Expected> expected;
  for (uint64_t i = 0; i < 4; ++i) {
    Expected& e = expected.emplace_back(Expected{random_ids(i, 5 + i, 60), {}, {}});
    if (i > 0) e.adapters = {{adapter, 0.5 * static_cast<double>(i)}};
    engine.adapt(e.adapters);
    e.alone = generate(engine, e.prompt, options);
  }
  engine.adapt({});
  Scheduler scheduler(engine, {.cache_bytes = 7 * engine.make_cache(0)->bytes_for(256)});
  std::vector<std::shared_ptr<Collector>> heard;
  {
    const Gate gate(scheduler);
    for (const Expected& e : expected) heard.push_back(submitted(scheduler, e, options));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    heard[i]->wait();
    EXPECT_EQ(heard[i]->logprobs, expected[i].alone.logprobs) << i;
  }
  EXPECT_GT(scheduler.stats().preempted, 0u);
}

TEST(SchedulerAdapters, KeysAndValuesOfOneAdapterServeNoOther) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  const std::shared_ptr<const Adapter> first = read_adapter(engine.opened(), adapter_folder("llama/adapter")),
                                       again = read_adapter(engine.opened(), adapter_folder("llama/adapter"));
  const std::vector<int32_t> prompt = random_ids(1, 30, 60);
  Scheduler scheduler(engine, {});
  const auto cached = [&](const ScaledAdapters& adapters) {
    const auto heard = submitted(scheduler, {prompt, adapters, {}}, {.max_tokens = 2});
    heard->wait();
    return heard->end.cached_tokens;
  };
  EXPECT_EQ(cached({}), 0);
  EXPECT_EQ(cached({{first}}), 0);
  EXPECT_EQ(cached({{first, 0.5}}), 0);
  EXPECT_EQ(cached({{again}}), 0);
  EXPECT_GT(cached({}), 20);
  EXPECT_GT(cached({{first, 0}}), 20) << "none of it is none";
  EXPECT_GT(cached({{first}}), 20);
  EXPECT_GT(cached({{first, 0.5}}), 20);
  // Nor do they wait for each other's prompt.
  Gate gate(scheduler);
  const std::vector<int32_t> other = random_ids(2, 30, 60);
  const auto plain = submitted(scheduler, {other, {}, {}}, {.max_tokens = 2}),
             adapted = submitted(scheduler, {other, {{first}}, {}}, {.max_tokens = 2});
  gate.open();
  plain->wait();
  adapted->wait();
  EXPECT_EQ(plain->end.cached_tokens + adapted->end.cached_tokens, 0);
}

TEST(SchedulerAdapters, LiveAsLongAsTheirStreams) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  std::shared_ptr<const Adapter> adapter = read_adapter(engine.opened(), adapter_folder("llama/adapter"));
  const std::weak_ptr<const Adapter> watched = adapter;
  Scheduler scheduler(engine, {});
  const GenerateOptions options{.max_tokens = 20};
  const auto before = submitted(scheduler, {{3, 4, 5}, {{adapter}}, {}}, options);
  before->wait();
  Gate gate(scheduler);
  const auto heard = submitted(scheduler, {{3, 4, 5}, {{std::exchange(adapter, nullptr)}}, {}}, options);
  EXPECT_FALSE(watched.expired());
  gate.open();
  heard->wait();
  EXPECT_EQ(heard->tokens, before->tokens);
  EXPECT_EQ(heard->end.error, "");
  while (!scheduler.idle()) std::this_thread::yield();
  EXPECT_TRUE(watched.expired()) << "what is kept for later prompts holds no adapter";
}

TEST(SchedulerAdapters, AListenerSeesTheAdaptedModel) {
  Engine engine(Golden::open("llama").model(), {2, {.f32 = true, .exact = true}});
  const ScaledAdapters adapters = {{read_adapter(engine.opened(), adapter_folder("llama/adapter"))}};
  const std::vector<int32_t> prompt = random_ids(1, 12, 60);
  const std::vector<HookRequest> wanted = {{"ln_final.hook_normalized"}};
  Recorder alone(wanted);
  engine.adapt(adapters);
  engine.context().listen(&alone);
  const GenerateOptions options{.max_tokens = 1};
  generate(engine, prompt, options);
  engine.context().listen(nullptr);
  engine.adapt({});
  const auto seen = std::make_shared<Recorder>(wanted);
  {
    Scheduler scheduler(engine, {});
    const auto plain = submitted(scheduler, {random_ids(5, 9, 60), {}, {}}, {.max_tokens = 20});
    const auto heard = std::make_shared<Collector>();
    scheduler.submit({.prompt = prompt, .options = options, .adapters = adapters, .listener = [seen] { return seen; }}, heard);
    heard->wait();
    plain->wait();
  }
  const auto& values = seen->values().at("ln_final.hook_normalized").values;
  const auto& reference = alone.values().at("ln_final.hook_normalized").values;
  EXPECT_TRUE(std::ranges::equal(values, reference));
}

TEST(SchedulerAdapters, ScalesAreFinite) {
  Engine engine(Golden::open("llama").model(), {1, {}});
  const std::shared_ptr<const Adapter> adapter = read_adapter(engine.opened(), adapter_folder("llama/adapter"));
  Scheduler scheduler(engine, {});
  EXPECT_THROW(scheduler.submit({.prompt = {3}, .adapters = {{adapter, std::numeric_limits<double>::quiet_NaN()}}},
                                std::make_shared<Collector>()),
               UsageError);
}

}  // namespace
}  // namespace vitrine
