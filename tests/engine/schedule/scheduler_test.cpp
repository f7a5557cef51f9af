// Streams that run together: each as it is by itself, whatever comes, goes and fails beside it.
#include "schedule/scheduler.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/philox.h"
#include "collector.h"
#include "generate/generate.h"
#include "models.h"
#include "ops/head.h"
#include "ops/listener_chain.h"
#include "ops/listening.h"
#include "ops/recorder.h"

namespace vitrine {
namespace {

using Heard = std::shared_ptr<Collector>;

void wait_until_idle(const Scheduler& scheduler) {
  while (!scheduler.idle()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// Nothing runs, nothing waits, and each stream had one end.
void expect_nothing_left(const Scheduler& scheduler) {
  wait_until_idle(scheduler);
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_TRUE(stats.streams.empty());
  EXPECT_EQ(stats.submitted, stats.stopped + stats.length + stats.cancelled + stats.failed);
  EXPECT_LE(stats.cache_bytes, stats.cache_bytes_most);
}

void expect_same(const Collector& heard, const Generation& alone, const std::string& which) {
  EXPECT_EQ(heard.tokens, alone.tokens) << which;
  EXPECT_EQ(heard.text, alone.text) << which;
  EXPECT_EQ(heard.end.end, alone.finish_reason == "stop" ? End::stop : End::length) << which << ": " << heard.end.error;
  EXPECT_EQ(heard.times_ended, 1) << which;
  EXPECT_EQ(heard.after_end, 0) << which;
}

TEST(Scheduler, StreamsHaveTheBitsOfGenerateUnderExact) {
  for (const std::string& family : Golden::all()) {
    Engine engine(Golden::open(family).model(), {2, {.f32 = true, .exact = true}});
    const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
    GenerateOptions options{.max_tokens = 8};
    options.sampling.temperature = 1.5;
    options.sampling.seed = 3;
    std::vector<std::vector<int32_t>> prompts;
    std::vector<Generation> alone;
    for (uint64_t i = 0; i < 24; ++i) {
      prompts.push_back(random_ids(i % 3, 1 + static_cast<size_t>(i * 5 % 37), ids));
      alone.push_back(generate(engine, prompts.back(), options));
    }
    Scheduler scheduler(engine, {.running = 10});
    for (int round = 0; round < 2; ++round) {  // the second finds all of its prompts
      std::vector<Heard> heard;
      for (const auto& prompt : prompts) {
        heard.push_back(std::make_shared<Collector>());
        scheduler.submit({.prompt = prompt, .options = options, .owner = "a"}, heard.back());
      }
      for (size_t i = 0; i < prompts.size(); ++i) {
        heard[i]->wait();
        expect_same(*heard[i], alone[i], family + " " + std::to_string(i));
        EXPECT_EQ(heard[i]->logprobs, alone[i].logprobs) << family << " " << i;
      }
    }
    EXPECT_GT(scheduler.stats().cached_tokens, 0u) << family;
    expect_nothing_left(scheduler);
  }
}

TEST(Scheduler, GreedyTokensAreThoseOfGenerateWhateverRunsBeside) {
  for (const std::string& family : Golden::all()) {
    Engine engine(Golden::open(family).model(), {2, {}});
    const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
    const GenerateOptions options{.max_tokens = 12};
    std::vector<std::vector<int32_t>> prompts;
    std::vector<Generation> alone;
    for (uint64_t i = 0; i < 30; ++i) {
      prompts.push_back(random_ids(i % 20, 1 + static_cast<size_t>(i * 7 % 40), ids));
      alone.push_back(generate(engine, prompts.back(), options));
    }
    Scheduler scheduler(engine, {.running = 20});
    std::vector<Heard> heard;
    for (const auto& prompt : prompts) {
      heard.push_back(std::make_shared<Collector>());
      scheduler.submit({.prompt = prompt, .options = options}, heard.back());
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
      heard[i]->wait();
      expect_same(*heard[i], alone[i], family + " " + std::to_string(i));
    }
    expect_nothing_left(scheduler);
  }
}

// Hundreds of streams of a few kinds of text, many of which begin alike, at random times, some of which leave at random times.
void random_schedule(const std::string& model, SchedulerOptions options, uint64_t seed, size_t longest, uint64_t streams) {
  Engine engine(model, {2, {.f32 = true, .exact = true}});
  const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
  struct Asked {
    std::vector<int32_t> prompt;
    GenerateOptions options;
    Heard heard = std::make_shared<Collector>();
    Scheduler::Ticket ticket = 0;
    bool leaves = false;
  };
  std::vector<Asked> asked;
  uint64_t drawn = 0;
  const auto draw = [&](uint64_t below) { return philox(seed, drawn++, 7)[0] % static_cast<uint32_t>(below); };
  std::vector<std::vector<int32_t>> told;  // texts so far: a conversation goes on from its answer
  for (uint64_t i = 0; i < streams; ++i) {
    Asked& a = asked.emplace_back();
    if (!told.empty() && draw(3) > 0) {
      a.prompt = told[draw(told.size())];
      a.prompt.resize(1 + draw(a.prompt.size()));
    }
    const std::vector<int32_t> more = random_ids(seed + i, 1 + draw(draw(8) == 0 ? longest : 12), ids);
    a.prompt.insert(a.prompt.end(), more.begin(), more.end());
    if (a.prompt.size() > longest) a.prompt.resize(longest);
    a.options.max_tokens = static_cast<int64_t>(draw(10));
    a.options.sampling.temperature = 1;
    a.options.sampling.seed = i;
    a.leaves = draw(4) == 0;
    told.push_back(a.prompt);
  }
  {
    Scheduler scheduler(engine, options);
    std::vector<size_t> leaving;
    for (size_t i = 0; i < asked.size(); ++i) {
      Asked& a = asked[i];
      a.ticket = scheduler.submit({.prompt = a.prompt, .options = a.options, .owner = std::to_string(draw(4))}, a.heard);
      if (a.leaves) leaving.push_back(i);
      if (draw(5) == 0) std::this_thread::sleep_for(std::chrono::microseconds(draw(3000)));
      if (!leaving.empty() && draw(2) == 0) {
        const size_t at = draw(leaving.size());
        scheduler.cancel(asked[leaving[at]].ticket);
        leaving.erase(leaving.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    for (const size_t i : leaving) scheduler.cancel(asked[i].ticket);
    for (Asked& a : asked) a.heard->wait();
    expect_nothing_left(scheduler);
  }
  for (size_t i = 0; i < asked.size(); ++i) {
    const Asked& a = asked[i];
    const std::string which = model + " seed " + std::to_string(seed) + " stream " + std::to_string(i);
    const Generation alone = generate(engine, a.prompt, a.options);
    if (a.heard->end.end != End::cancelled) {
      expect_same(*a.heard, alone, which);
      EXPECT_EQ(a.heard->logprobs, alone.logprobs) << which;
      continue;
    }
    EXPECT_TRUE(a.leaves) << which;
    ASSERT_LE(a.heard->tokens.size(), alone.tokens.size()) << which;
    EXPECT_TRUE(std::equal(a.heard->tokens.begin(), a.heard->tokens.end(), alone.tokens.begin())) << which;
    EXPECT_EQ(a.heard->times_ended, 1) << which;
  }
}

TEST(Scheduler, RandomSchedulesChangeNoStream) {
  const Scratch scratch;
  for (const char* family : {"llama", "gemma2", "gemma3", "lfm2", "qwen3_5", "phi3", "glm4", "gpt_neox", "bloom", "exaone4"}) {
    const std::string model = with_context(scratch, family, 4096);
    random_schedule(model, {.running = 12}, 1, 60, 200);
    random_schedule(model, {.running = 5, .prefill_rows = 7}, 2, 300, 60);
  }
}

TEST(Scheduler, StreamsThatGiveTheirCacheBackGoOn) {
  const Scratch scratch;
  for (const char* family : {"llama", "gemma2", "lfm2"}) {
    const std::string model = with_context(scratch, family, 2048);
    Engine engine(model, {2, {.f32 = true, .exact = true}});
    const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
    // Three pages each, and room for about seven.
    const GenerateOptions options{.max_tokens = 560};
    const size_t bytes = 7 * engine.make_cache(0)->bytes_for(256);
    std::vector<std::vector<int32_t>> prompts;
    std::vector<Heard> heard;
    Scheduler scheduler(engine, {.cache_bytes = bytes});
    {
      const Gate gate(scheduler);
      for (uint64_t i = 0; i < 4; ++i) {
        prompts.push_back(random_ids(i, 5 + i, ids));
        heard.push_back(std::make_shared<Collector>());
        scheduler.submit({.prompt = prompts.back(), .options = options}, heard.back());
      }
    }
    for (const Heard& h : heard) h->wait();
    wait_until_idle(scheduler);
    EXPECT_GT(scheduler.stats().preempted, 0u) << family;
    EXPECT_LE(scheduler.stats().cache_bytes, bytes) << family;
    scheduler
        .run(
            [&](Engine& e) {
              for (size_t i = 0; i < prompts.size(); ++i)
                expect_same(*heard[i], generate(e, prompts[i], options), std::string(family) + " " + std::to_string(i));
            },
            "")
        .get();
    expect_nothing_left(scheduler);
  }
}

TEST(Scheduler, StreamsBeginThatFitWithAllTheirNewTokens) {
  const Scratch scratch;
  Engine engine(with_context(scratch, "llama", 2048), {2, {}});
  Scheduler scheduler(engine, {.cache_bytes = 4 * engine.make_cache(0)->bytes_for(256)});
  const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
  std::vector<Heard> heard;
  {
    const Gate gate(scheduler);
    for (uint64_t i = 0; i < 4; ++i) {  // a page each
      heard.push_back(std::make_shared<Collector>());
      scheduler.submit({.prompt = random_ids(i, 20, ids), .options = {.max_tokens = 20}}, heard.back());
    }
  }
  for (const Heard& h : heard) h->wait();
  wait_until_idle(scheduler);
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.preempted, 0u);
  ASSERT_EQ(stats.step_streams.bounds[2], 4);
  EXPECT_GT(stats.step_streams.counts[2], 0u) << "never more than two at once";
}

TEST(Scheduler, PrefixesAreKeptWithinTheirBytes) {
  const Scratch scratch;
  Engine engine(with_context(scratch, "llama", 2048), {2, {}});
  const size_t page = engine.make_cache(0)->bytes_for(256);
  Scheduler scheduler(engine, {.cache_bytes = 100 * page, .kept_bytes = 3 * page});
  const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
  const auto run = [&](uint64_t first, uint64_t n) {
    std::vector<Heard> heard;
    {
      const Gate gate(scheduler);
      for (uint64_t i = first; i < first + n; ++i) {
        heard.push_back(std::make_shared<Collector>());
        scheduler.submit({.prompt = random_ids(i, 20, ids), .options = {.max_tokens = 20}}, heard.back());
      }
    }
    for (const Heard& h : heard) h->wait();
    wait_until_idle(scheduler);
  };
  for (uint64_t i = 0; i < 5; ++i) run(i, 1);
  EXPECT_EQ(scheduler.stats().prefixes, 3);
  EXPECT_EQ(scheduler.stats().cache_bytes, 3 * page);
  run(4, 1);  // the latest is there
  EXPECT_EQ(scheduler.stats().prefix_hits, 1u);
  run(10, 8);  // running streams may take more
  const SchedulerStats stats = scheduler.stats();
  ASSERT_EQ(stats.step_streams.bounds[3], 8);
  EXPECT_GT(stats.step_streams.counts[3], 0u);
  EXPECT_EQ(stats.preempted, 0u);
  EXPECT_LE(stats.cache_bytes, 3 * page);
}

// Turns the residual stream behind the first layer round, and keeps every hook.
class TurnsAndKeeps final : public Listener {
 public:
  bool wants(std::string_view) const override { return true; }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const bool here = turns && name == "blocks.0.hook_resid_post";
    Tensor turned;
    if (here) {
      turned = ctx.empty(value.shape());
      for (int64_t i = 0; i < value.count(); ++i) turned.data<float>()[i] = -value.data<float>()[i];
    }
    kept.see(ctx, name, here ? turned : value);
    return turned;
  }
  bool turns = true;
  Recorder kept{{HookRequest{"*", {}, {}}}};
};

// What one run over all of a text shows.
Recorder shown_at_once(Engine& engine, const std::vector<int32_t>& text, bool turns) {
  TurnsAndKeeps listener;
  listener.turns = turns;
  const Listening listening(engine.context(), listener);
  const auto frame = engine.context().frame();
  const Step step = Step::of(text);
  const Tensor x = engine.model().residual(engine.context(), step);
  const int64_t last = step.rows() - 1;
  logits(engine.context(), x, engine.model().head(), std::span(&last, 1));
  return std::move(listener.kept);
}

void expect_same_values(const Recorder& a, const Recorder& b, const std::string& which) {
  ASSERT_EQ(a.values().size(), b.values().size()) << which;
  for (const auto& [name, value] : a.values()) {
    const Recorder::Value& other = b.values().at(name);
    EXPECT_EQ(value.shape, other.shape) << which << " " << name;
    EXPECT_TRUE(value.values == other.values) << which << " " << name;
  }
}

TEST(Scheduler, StreamsThatListenAreAloneAndChangeNoOther) {
  for (const std::string& family : Golden::all()) {
    Engine engine(Golden::open(family).model(), {2, {.f32 = true, .exact = true}});
    const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
    const GenerateOptions options{.max_tokens = 6};
    const std::vector<int32_t> prompt = random_ids(7, 17, ids);
    const Generation plain = generate(engine, prompt, options);
    Generation turned;
    {
      TurnsAndKeeps listener;
      const Listening listening(engine.context(), listener);
      turned = generate(engine, prompt, options);
    }
    for (const int64_t prefill_rows : {0, 5}) {
      std::vector<Heard> heard;
      std::vector<std::shared_ptr<TurnsAndKeeps>> listeners(9);
      Scheduler scheduler(engine, {.prefill_rows = prefill_rows});
      {
        const Gate gate(scheduler);
        for (size_t i = 0; i < listeners.size(); ++i) {  // all have one prompt
          Work work{.prompt = prompt, .options = options};
          if (i % 3 == 1)
            work.listener = [&to = listeners[i], turns = i != 4] {
              to = std::make_shared<TurnsAndKeeps>();
              to->turns = turns;
              return to;
            };
          heard.push_back(std::make_shared<Collector>());
          scheduler.submit(std::move(work), heard.back());
        }
      }
      for (size_t i = 0; i < heard.size(); ++i) {
        heard[i]->wait();
        const bool turns = i == 1 || i == 7;
        const std::string which = family + " " + std::to_string(i);
        expect_same(*heard[i], turns ? turned : plain, which);
        if (i % 3 == 1) {
          EXPECT_EQ(heard[i]->end.cached_tokens, 0) << which;
        }
      }
      expect_nothing_left(scheduler);
      for (size_t i = 1; i < heard.size(); i += 3) {
        std::vector<int32_t> text = prompt;
        text.insert(text.end(), heard[i]->tokens.begin(), heard[i]->tokens.end() - 1);
        scheduler.run([&](Engine& e) { expect_same_values(listeners[i]->kept, shown_at_once(e, text, i != 4), family); }, "")
            .get();
      }
    }
  }
}

TEST(Scheduler, AStreamThatListensAndBeginsAgainIsShownAllAgain) {
  const Scratch scratch;
  const std::string model = with_context(scratch, "llama", 2048);
  Engine engine(model, {2, {.f32 = true, .exact = true}});
  const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
  const GenerateOptions options{.max_tokens = 560};
  const std::vector<HookRequest> request = {{"blocks.1.hook_resid_post", {}, {}}};
  std::vector<Heard> heard;
  std::vector<std::shared_ptr<Recorder>> recorders(4);
  std::vector<int> begun(4);
  Scheduler scheduler(engine, {.cache_bytes = 7 * engine.make_cache(0)->bytes_for(256)});
  {
    const Gate gate(scheduler);
    for (uint64_t i = 0; i < 4; ++i) {
      heard.push_back(std::make_shared<Collector>());
      Work work{.prompt = random_ids(i, 5 + i, ids), .options = options};
      work.listener = [&to = recorders[i], &times = begun[i], &request] {
        ++times;
        return to = std::make_shared<Recorder>(request);
      };
      scheduler.submit(std::move(work), heard.back());
    }
  }
  for (const Heard& h : heard) h->wait();
  wait_until_idle(scheduler);
  EXPECT_GT(scheduler.stats().preempted, 0u);
  EXPECT_GT(*std::ranges::max_element(begun), 1);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(std::ssize(heard[i]->tokens), 560) << heard[i]->end.error;
    EXPECT_EQ(recorders[i]->values().at("blocks.1.hook_resid_post").shape[0], 5 + static_cast<int64_t>(i) + 559);
  }
  expect_nothing_left(scheduler);
}

TEST(Scheduler, AListenerThatFailsEndsItsStreamAlone) {
  class Fails final : public Listener {
   public:
    bool wants(std::string_view name) const override { return name == "hook_embed"; }
    Tensor see(Context& ctx, std::string_view, const Tensor&) override {
      if (ctx.listening_position() > 4) throw ShapeError("the edit does not fit");
      return {};
    }
  };
  Engine engine(Golden::open("llama").model(), {2, {}});
  const GenerateOptions options{.max_tokens = 6};
  const std::vector<int32_t> prompt = {1, 2, 3};
  const Generation alone = generate(engine, prompt, options);
  Scheduler scheduler(engine, {});
  std::vector<Heard> heard;
  {
    const Gate gate(scheduler);
    for (int i = 0; i < 3; ++i) {
      Work work{.prompt = prompt, .options = options};
      if (i == 0) work.listener = []() -> std::shared_ptr<Listener> { throw InputError("nobody listens"); };
      if (i == 1) work.listener = [] { return std::make_shared<Fails>(); };
      heard.push_back(std::make_shared<Collector>());
      scheduler.submit(std::move(work), heard.back());
    }
  }
  for (const Heard& h : heard) h->wait();
  EXPECT_EQ(heard[0]->end.error, "nobody listens");
  EXPECT_EQ(heard[1]->end.error, "the edit does not fit");
  EXPECT_TRUE(heard[1]->end.error_is_input);
  EXPECT_EQ(heard[1]->tokens.size(), 3U);
  expect_same(*heard[2], alone, "");
  expect_nothing_left(scheduler);
}

TEST(Scheduler, AFailingStreamFailsAlone) {
  const Scratch scratch;
  Engine engine(with_nan_at(scratch, 50), {2, {}});
  const GenerateOptions options{.max_tokens = 6};
  const std::vector<int32_t> good = {1, 2, 3}, bad = {4, 50, 6};
  GenerateOptions none = options;  // its sampler has nothing to choose from
  for (int32_t id = 0; id < 100; ++id) none.sampling.logit_bias.emplace_back(id, -INFINITY);
  const Generation alone = generate(engine, good, options);
  ASSERT_EQ(std::count(alone.tokens.begin(), alone.tokens.end(), 50), 0);
  class Throws final : public Sink {
   public:
    void token(TokenEvent&&) override { throw std::runtime_error("the reader broke"); }
    void ended(EndEvent&& event) override { end.set_value(std::move(event)); }
    std::promise<EndEvent> end;
  };
  const auto throws = std::make_shared<Throws>();
  std::vector<Heard> heard;
  Scheduler scheduler(engine, {});
  {
    const Gate gate(scheduler);
    for (int i = 0; i < 12; ++i) {
      heard.push_back(std::make_shared<Collector>());
      scheduler.submit({.prompt = i == 5 ? bad : good, .options = i == 8 ? none : options}, heard.back());
    }
    scheduler.submit({.prompt = good, .options = options}, throws);
  }
  for (size_t i = 0; i < heard.size(); ++i) {
    heard[i]->wait();
    if (i != 5 && i != 8) expect_same(*heard[i], alone, std::to_string(i));
  }
  EXPECT_EQ(heard[5]->end.end, End::failed);
  EXPECT_NE(heard[5]->end.error.find("NaN or infinity appeared first in hook_embed at position 1 (token 50)"), std::string::npos)
      << heard[5]->end.error;
  EXPECT_FALSE(heard[5]->end.error_is_input);
  EXPECT_EQ(heard[8]->end.end, End::failed);
  EXPECT_TRUE(heard[8]->end.error_is_input);
  EXPECT_NE(heard[8]->end.error.find("bias forbids every token"), std::string::npos) << heard[8]->end.error;
  const EndEvent end = throws->end.get_future().get();
  EXPECT_EQ(end.end, End::failed);
  EXPECT_EQ(end.error, "the reader broke");
  expect_nothing_left(scheduler);
  EXPECT_EQ(scheduler.stats().failed, 3u);
}

TEST(Scheduler, ThousandsWhoLeaveLeaveNothing) {
  const Scratch scratch;
  Engine engine(with_context(scratch, "llama", 2048), {2, {}});
  const auto ids = static_cast<int32_t>(engine.shape().vocab_size - 1);
  Scheduler scheduler(engine, {.running = 8, .waiting = 64, .cache_bytes = 40 * engine.make_cache(0)->bytes_for(256)});
  uint64_t refused = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const auto heard = std::make_shared<Collector>();
    try {
      const auto ticket = scheduler.submit(
          {.prompt = random_ids(i % 50, 1 + i % 23, ids), .options = {.max_tokens = 200}, .owner = std::to_string(i % 3)}, heard);
      if (i % 7 == 0) heard->wait_for_tokens(1 + i % 3);
      scheduler.cancel(ticket);
      if (i % 11 == 0) {
        heard->wait();
        EXPECT_TRUE(heard->end.end == End::cancelled || heard->end.end == End::length);  // it may have been quicker
      }
    } catch (const QueueFull& e) {
      ++refused;
      EXPECT_GE(e.seconds, 1);
      std::this_thread::yield();
    }
  }
  expect_nothing_left(scheduler);
  const SchedulerStats stats = scheduler.stats();
  EXPECT_EQ(stats.submitted + refused, 10000u);
  EXPECT_EQ(stats.refused, refused);
  EXPECT_GT(stats.cancelled, 0u);
}

TEST(Scheduler, WhatIsLeftAtTheEndIsTold) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  std::vector<Heard> heard;
  {
    Scheduler scheduler(engine, {.running = 2});
    for (int i = 0; i < 6; ++i) {
      heard.push_back(std::make_shared<Collector>());
      scheduler.submit({.prompt = {1, 2, 3}, .options = {.max_tokens = 100}}, heard.back());
    }
  }
  for (const Heard& h : heard) {
    h->wait();
    EXPECT_EQ(h->times_ended, 1);
  }
}

TEST(Scheduler, DrainsAndThenTakesNothing) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  Scheduler scheduler(engine, {.running = 1});
  const auto first = std::make_shared<Collector>(), second = std::make_shared<Collector>();
  scheduler.submit({.prompt = {1, 2}, .options = {.max_tokens = 50}}, first);
  scheduler.submit({.prompt = {3, 4}, .options = {.max_tokens = 50}}, second);
  scheduler.drain();
  EXPECT_THROW(scheduler.submit({.prompt = {1}, .options = {}}, first), Draining);
  EXPECT_THROW(scheduler.run([](Engine&) {}, ""), Draining);
  bool ran = false;
  scheduler.run([&](Engine&) { ran = true; }, "", true).get();
  EXPECT_TRUE(ran);
  EXPECT_TRUE(scheduler.stats().draining);
  first->wait();
  second->wait();
  EXPECT_EQ(first->tokens.size(), 50u);
  EXPECT_EQ(second->tokens.size(), 50u);
  expect_nothing_left(scheduler);
}

TEST(Scheduler, RefusesBeyondItsLimits) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  Scheduler scheduler(engine, {.running = 1, .waiting = 5, .waiting_per_owner = 3});
  const auto sink = std::make_shared<Collector>();
  const Work work{.prompt = {1, 2}, .options = {.max_tokens = 3}, .owner = "a"};
  Work other = work;
  other.owner = "b";
  std::future<void> job;
  {
    const Gate gate(scheduler);
    while (scheduler.stats().waiting > 0) std::this_thread::yield();  // the gate's job runs
    for (int i = 0; i < 4; ++i) scheduler.submit(work, sink);         // one of them is about to run
    try {
      scheduler.submit(work, sink);
      FAIL() << "more of one owner than its limit";
    } catch (const QueueFull& e) {
      EXPECT_NE(std::string(e.what()).find("the queue of a is full: 3 requests wait"), std::string::npos) << e.what();
      EXPECT_GE(e.seconds, 1);
    }
    scheduler.submit(other, sink);
    job = scheduler.run([](Engine&) { throw RunError("the job broke"); }, "b");
    try {
      scheduler.submit(other, sink);
      FAIL() << "more than the queue's limit";
    } catch (const QueueFull& e) {
      EXPECT_NE(std::string(e.what()).find("the queue is full: 5 requests wait"), std::string::npos) << e.what();
    }
    EXPECT_THROW(scheduler.run([](Engine&) {}, "c"), QueueFull);
  }
  EXPECT_THROW(job.get(), RunError);
  expect_nothing_left(scheduler);
  EXPECT_EQ(scheduler.stats().refused, 3u);
  EXPECT_THROW(scheduler.submit({.prompt = {}, .options = {}}, sink), InputError);
  EXPECT_THROW(scheduler.submit({.prompt = {100000}, .options = {}}, sink), InputError);
  EXPECT_THROW(scheduler.submit({.prompt = {1}, .options = {}, .top = -1}, sink), UsageError);
  EXPECT_THROW(scheduler.submit({.prompt = random_ids(1, 200, 9), .options = {}}, sink), InputError);
  EXPECT_THROW(Scheduler(engine, {.running = 0}), UsageError);
  EXPECT_THROW(Scheduler(engine, {.cache_bytes = 10}), UsageError);
}

TEST(Scheduler, AJobInPartsLetsStreamsGoOnAndKeepsOtherJobsWaiting) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  Scheduler scheduler(engine, {.running = 1});
  const auto sink = std::make_shared<Collector>();
  std::vector<uint64_t> steps;
  bool other = false, other_between = false;
  std::future<void> parts, behind, broken;
  {
    const Gate gate(scheduler);
    scheduler.submit({.prompt = {1, 2}, .options = {.max_tokens = 20}}, sink);
    parts = scheduler.run_in_parts(
        [&](Engine&) {
          steps.push_back(scheduler.stats().steps);
          other_between = other_between || other;
          return steps.size() < 5;
        },
        "a");
    behind = scheduler.run([&](Engine&) { other = true; }, "b");
    broken = scheduler.run_in_parts([](Engine&) -> bool { throw RunError("the job broke"); }, "a");
  }
  parts.get();
  behind.get();
  EXPECT_THROW(broken.get(), RunError);
  sink->wait();
  ASSERT_EQ(steps.size(), 5u);
  for (size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i], steps[i - 1] + 1) << "a step between two parts";
  EXPECT_TRUE(other);
  EXPECT_FALSE(other_between);
  expect_nothing_left(scheduler);
}

TEST(Scheduler, AJobInPartsThatTheEndMeetsIsToldSo) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  std::promise<void> begun;
  std::future<void> endless;
  {
    Scheduler scheduler(engine, {.running = 1});
    endless = scheduler.run_in_parts(
        [&, told = false](Engine&) mutable {
          if (!std::exchange(told, true)) begun.set_value();
          return true;
        },
        "a");
    begun.get_future().wait();
  }
  EXPECT_THROW(endless.get(), Draining);
}

TEST(Scheduler, OwnersTakeTurns) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  Scheduler scheduler(engine, {.running = 1});
  std::mutex mutex;
  std::string order;
  std::vector<Heard> heard;
  {
    const Gate gate(scheduler);
    for (const char owner : std::string("aaaaabbc")) {
      heard.push_back(std::make_shared<Collector>([&, owner](const TokenEvent&) {
        const std::lock_guard lock(mutex);
        order += owner;
      }));
      scheduler.submit({.prompt = {1, 2}, .options = {.max_tokens = 1}, .owner = std::string(1, owner)}, heard.back());
    }
  }
  for (const Heard& h : heard) h->wait();
  EXPECT_EQ(order, "abcabaaa");
}

TEST(Scheduler, ChoicesOfOnePromptReadItOnce) {
  const Scratch scratch;
  for (const char* family : {"llama", "gemma3", "qwen3_5"}) {
    Engine engine(with_context(scratch, family, 2048), {2, {.f32 = true, .exact = true}});
    const std::vector<int32_t> prompt = random_ids(4, 700, static_cast<int32_t>(engine.shape().vocab_size - 1));
    GenerateOptions options{.max_tokens = 10};
    options.sampling.temperature = 1.5;
    const Generation alone = generate(engine, prompt, options);
    std::vector<Heard> heard;
    Scheduler scheduler(engine, {});
    {
      const Gate gate(scheduler);
      for (uint64_t i = 0; i < 5; ++i) {
        heard.push_back(std::make_shared<Collector>());
        scheduler.submit({.prompt = prompt, .options = options, .stream = i}, heard.back());
      }
    }
    for (const Heard& h : heard) h->wait();
    expect_same(*heard[0], alone, family);
    EXPECT_EQ(heard[0]->end.cached_tokens, 0) << family;
    for (size_t i = 1; i < heard.size(); ++i) {
      EXPECT_EQ(heard[i]->end.cached_tokens, 699) << family;
      EXPECT_NE(heard[i]->tokens, heard[0]->tokens) << family;  // another draw
    }
    EXPECT_EQ(scheduler.stats().cached_tokens, 4u * 699u) << family;
    expect_nothing_left(scheduler);
  }
}

TEST(Scheduler, PromptsAreScored) {
  for (const char* family : {"gpt2_a", "gemma2"}) {
    Engine engine(Golden::open(family).model(), {2, {.f32 = true, .exact = true}});
    const std::vector<int32_t> prompt = random_ids(4, 90, 500);
    const std::vector<float> logprobs = engine.token_logprobs(prompt);
    const std::vector<Prediction> top = engine.predict(prompt, 3, true);
    const Generation alone = generate(engine, prompt, {.max_tokens = 2});
    Scheduler scheduler(engine, {});
    for (const int64_t max_tokens : {2, 0}) {
      const auto beside = std::make_shared<Collector>(), heard = std::make_shared<Collector>();
      scheduler.submit({.prompt = prompt, .options = {.max_tokens = 5}}, beside);
      scheduler.submit({.prompt = prompt, .options = {.max_tokens = max_tokens}, .top = 2, .prompt_top = 3}, heard);
      heard->wait();
      beside->wait();
      ASSERT_EQ(heard->times_scored, 1);
      ASSERT_EQ(heard->scores.size(), prompt.size());
      EXPECT_FALSE(heard->scores[0].logprob);
      for (size_t i = 1; i < prompt.size(); ++i) {
        const PromptToken& token = heard->scores[i];
        EXPECT_EQ(token.token, prompt[i]);
        EXPECT_EQ(token.logprob, logprobs[i - 1]) << i;
        ASSERT_EQ(token.top.size(), 3u);
        for (size_t j = 0; j < 3; ++j) {
          EXPECT_EQ(token.top[j].token, top[i - 1].top[j].token);
          EXPECT_EQ(token.top[j].logprob, top[i - 1].top[j].logprob);
          if (token.top[j].token == token.token) {
            EXPECT_EQ(token.top[j].logprob, *token.logprob);  // the same float
          }
        }
      }
      if (max_tokens == 0) {
        EXPECT_TRUE(heard->tokens.empty());
        continue;
      }
      EXPECT_EQ(heard->tokens, alone.tokens);
      EXPECT_EQ(heard->tops[0].size(), 2u);
      EXPECT_EQ(heard->tops[0][0].token, alone.tokens[0]);
      EXPECT_EQ(heard->tops[0][0].logprob, alone.logprobs[0]);
    }
    const auto one = std::make_shared<Collector>();
    scheduler.submit({.prompt = {7}, .options = {.max_tokens = 0}, .prompt_top = 0}, one);
    one->wait();
    EXPECT_EQ(one->scores.size(), 1u);
    EXPECT_EQ(one->end.end, End::length);
    expect_nothing_left(scheduler);
    EXPECT_EQ(scheduler.stats().prompt_tokens, 4 * prompt.size() + 1) << "also of those that make no token";
  }
}

TEST(Scheduler, DraftsChangeNoToken) {
  Engine engine(Golden::open("llama").model(), {2, {}});
  std::vector<int32_t> prompt;
  for (int i = 0; i < 8; ++i) prompt.insert(prompt.end(), {5, 6, 7, 8});
  GenerateOptions options{.max_tokens = 60};
  const Generation alone = generate(engine, prompt, options);
  Scheduler scheduler(engine, {});
  std::vector<Heard> heard;
  for (int i = 0; i < 3; ++i) {
    options.drafter = i < 2 ? std::make_shared<LookupDrafter>(4) : nullptr;
    heard.push_back(std::make_shared<Collector>());
    scheduler.submit({.prompt = prompt, .options = options}, heard.back());
  }
  int64_t accepted = 0;
  for (const Heard& h : heard) {
    h->wait();
    expect_same(*h, alone, "drafts");
    accepted += h->end.timings.accepted_tokens;
  }
  EXPECT_GT(accepted, 0);
  EXPECT_EQ(scheduler.stats().accepted_tokens, static_cast<uint64_t>(accepted));
  options.drafter = std::make_shared<LookupDrafter>(4);
  Engine recurrent(Golden::open("qwen3_5").model(), {2, {}});
  Scheduler other(recurrent, {});
  EXPECT_THROW(other.submit({.prompt = prompt, .options = options}, heard[0]), InputError);
}

TEST(Scheduler, TellsStopStringsAndReadsOn) {
  Engine engine(Golden::open("gemma2").model(), {2, {}});
  const std::vector<int32_t> prompt = {2, 10, 20};
  const Generation plain = generate(engine, prompt, {.max_tokens = 12});
  ASSERT_GT(plain.text.size(), 4u);
  GenerateOptions options{.max_tokens = 12, .stops = {plain.text.substr(3, 2)}};
  const Generation alone = generate(engine, prompt, options);
  Scheduler scheduler(engine, {});
  const auto heard = std::make_shared<Collector>();
  scheduler.submit({.prompt = prompt, .options = options}, heard);
  heard->wait();
  expect_same(*heard, alone, "stop");
  EXPECT_EQ(heard->end.stop_string, options.stops[0]);
  ASSERT_FALSE(heard->prompts.empty());
  EXPECT_EQ(heard->prompts.back().done, 3);
  EXPECT_EQ(heard->prompts.back().total, 3);
  EXPECT_EQ(heard->end.timings.prompt_tokens, 3);
}

}  // namespace
}  // namespace vitrine
