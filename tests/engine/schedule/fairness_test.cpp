// What one stream, one owner or one job takes from the others: late constraints, deadlines, shares of places and of time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "collector.h"
#include "generate/generate.h"
#include "models.h"
#include "ops/head.h"
#include "ops/listening.h"
#include "ops/step.h"

namespace vitrine {
namespace {

using Heard = std::shared_ptr<Collector>;

Engine& engine() {
  static Engine shipped(std::string(VITRINE_SOURCE) + "/models/tales9m", {.threads = 1, .numerics = {.exact = true}});
  return shipped;
}

/// Allows every token that is text, once it is let go.
class Late final : public Constraint {
 public:
  explicit Late(std::shared_ptr<std::atomic<bool>> go) : go_(std::move(go)) {
    const auto vocab = static_cast<size_t>(engine().shape().vocab_size);
    mask_.resize((vocab + 31) / 32);
    for (size_t t = 0; t < vocab; ++t)
      if (!engine().tokenizer().token_bytes(static_cast<int32_t>(t)).empty()) mask_[t / 32] |= uint32_t{1} << t % 32;
  }
  void prepare() override {}
  bool ready(std::chrono::milliseconds) override { return *go_; }
  std::span<const uint32_t> allowed() override { return mask_; }
  void accept(int32_t) override {}
  bool may_end() const override { return true; }
  bool must_end() const override { return false; }
  std::unique_ptr<Constraint> clone() const override { return std::make_unique<Late>(*this); }

 private:
  std::shared_ptr<std::atomic<bool>> go_;
  std::vector<uint32_t> mask_;
};

const std::vector<int32_t>& prompt() {
  static const std::vector<int32_t> ids = engine().prompt_ids("Once upon a time there was");
  return ids;
}

TEST(Fairness, AStreamWhoseConstraintIsLateWaitsAlone) {
  const auto go = std::make_shared<std::atomic<bool>>(true);
  GenerateOptions constrained{.max_tokens = 12};
  constrained.constraint = std::make_shared<Late>(go);
  const Generation alone = generate(engine(), prompt(), constrained);
  *go = false;
  Scheduler scheduler(engine(), {});
  const auto late = std::make_shared<Collector>(), other = std::make_shared<Collector>();
  scheduler.submit({.prompt = prompt(), .options = constrained}, late);
  scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 40}}, other);
  other->wait();
  EXPECT_EQ(other->tokens.size(), 40u);
  EXPECT_TRUE(late->tokens.empty());
  EXPECT_EQ(late->times_ended, 0);
  bool ran = false;
  scheduler.run([&](Engine&) { ran = true; }, "").get();
  EXPECT_TRUE(ran) << "jobs do not wait for it either";
  *go = true;
  late->wait();
  EXPECT_EQ(late->tokens, alone.tokens);
  EXPECT_EQ(late->logprobs, alone.logprobs);
}

TEST(Fairness, AStreamThatWaitsForItsConstraintCanBeCancelled) {
  const auto go = std::make_shared<std::atomic<bool>>(false);
  GenerateOptions constrained{.max_tokens = 12};
  constrained.constraint = std::make_shared<Late>(go);
  Scheduler scheduler(engine(), {});
  const auto late = std::make_shared<Collector>();
  const auto ticket = scheduler.submit({.prompt = prompt(), .options = constrained}, late);
  scheduler.cancel(ticket);
  late->wait();
  EXPECT_EQ(late->end.end, End::cancelled);
}

TEST(Fairness, AnOwnerHasSoManyPlacesAtOnce) {
  Scheduler scheduler(engine(), {.running = 4, .running_per_owner = 2});
  std::atomic<int64_t> most = 0;
  std::vector<Heard> heard;
  {
    const Gate gate(scheduler);
    for (int i = 0; i < 8; ++i) {
      heard.push_back(std::make_shared<Collector>([&](const TokenEvent&) {
        int64_t its = 0;
        for (const StreamStats& stream : scheduler.stats().streams) its += stream.owner == "many";
        most = std::max(most.load(), its);
      }));
      scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 30}, .owner = i < 7 ? "many" : "one"}, heard.back());
    }
  }
  heard[7]->wait();
  EXPECT_EQ(heard[6]->times_ended, 0) << "the other owner did not wait for all of them";
  for (const Heard& h : heard) h->wait();
  EXPECT_EQ(most, 2);
}

// All once had a token of each step, and the step took as long as those of the many.
TEST(Fairness, OwnersShareTheTimeOfSteps) {
  Scheduler scheduler(engine(), {});
  std::vector<Heard> many;
  const auto one = std::make_shared<Collector>();
  {
    const Gate gate(scheduler);
    for (int i = 0; i < 12; ++i) {
      many.push_back(std::make_shared<Collector>());
      scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 200, .ignore_eos = true}, .owner = "many"}, many.back());
    }
    scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 200, .ignore_eos = true}, .owner = "one"}, one);
  }
  one->wait();
  EXPECT_EQ(one->tokens.size(), 200u);
  for (const Heard& h : many) EXPECT_EQ(h->times_ended, 0);
  for (const Heard& h : many) h->wait();
  for (const Heard& h : many) EXPECT_EQ(h->tokens, one->tokens);
}

TEST(Fairness, ALateStreamFailsByItsDeadline) {
  Scheduler scheduler(engine(), {.running = 1});
  const auto runs = std::make_shared<Collector>(), waits = std::make_shared<Collector>(), in_time = std::make_shared<Collector>();
  const auto now = std::chrono::steady_clock::now();
  scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 900}, .deadline = now + std::chrono::milliseconds(30)}, runs);
  scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 4}, .deadline = now}, waits);
  scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 4}, .deadline = now + std::chrono::hours(1)}, in_time);
  for (const Heard& late : {runs, waits}) {
    late->wait();
    EXPECT_EQ(late->end.end, End::failed);
    EXPECT_EQ(late->end.error_code, "timeout");
  }
  in_time->wait();
  EXPECT_EQ(in_time->end.end, End::length);
}

// Without a rest there was one step between two jobs.
TEST(Fairness, JobsLeaveMostOfTheTimeToStreams) {
  Scheduler scheduler(engine(), {});
  const auto heard = std::make_shared<Collector>();
  const auto ticket = scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 1000, .ignore_eos = true}}, heard);
  heard->wait_for_tokens(1);
  constexpr uint64_t kJobs = 5;
  uint64_t first = 0, last = 0;  // steps that had been taken
  for (uint64_t i = 0; i < kJobs; ++i)
    scheduler
        .run(
            [&](Engine&) {
              last = scheduler.stats().steps;
              if (i == 0) first = last;
              std::this_thread::sleep_for(std::chrono::milliseconds(5));  // what a job takes
            },
            "")
        .get();
  EXPECT_GT(last - first, 2 * (kJobs - 1));
  scheduler.cancel(ticket);
  heard->wait();
}

/// Adds 1 to every element of the stream behind the blocks.
class Shifts final : public Listener {
 public:
  bool wants(std::string_view name) const override { return name.ends_with("hook_resid_post"); }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    const Tensor shifted = ctx.empty(value.shape());
    for (int64_t i = 0; i < value.count(); ++i) shifted.data<float>()[i] = value.data<float>()[i] + 1;
    return shifted;
  }
};

// Those who came during a job waited until it was over.
TEST(Fairness, StreamsGoOnBetweenTheOpsOfAJobAndNoNumberChanges) {
  const std::vector<int32_t> text(300, prompt()[1]);
  const auto shifted_logits = [&](Engine& e) {
    Shifts shifts;
    const Listening listening(e.context(), shifts);
    const auto frame = e.context().frame();
    Step step;
    step.add(text);
    const Tensor x = e.model().residual(e.context(), step);
    const int64_t last = step.rows() - 1;
    const Tensor z = logits(e.context(), x, e.model().head(), std::span(&last, 1));
    return std::vector<float>(z.row<float>(0), z.row<float>(0) + z.row_size());
  };
  const std::vector<float> expected = shifted_logits(engine());
  const Generation alone = generate(engine(), prompt(), {.max_tokens = 30});
  std::atomic<int> tokens = 0;
  std::atomic<bool> begun = false;
  const auto heard = std::make_shared<Collector>([&](const TokenEvent&) { ++tokens; });
  Scheduler scheduler(engine(), {});
  bool same = true;
  std::future<void> job = scheduler.run(
      [&](Engine& e) {
        begun = true;
        for (int run = 0; run < 1000 && tokens < 30; ++run) same = same && shifted_logits(e) == expected;
      },
      "");
  while (!begun) std::this_thread::yield();
  scheduler.submit({.prompt = prompt(), .options = {.max_tokens = 30}}, heard);
  job.get();
  EXPECT_EQ(tokens, 30) << "they came while the job ran";
  heard->wait();
  EXPECT_EQ(heard->tokens, alone.tokens);
  EXPECT_EQ(heard->logprobs, alone.logprobs);
  EXPECT_TRUE(same);
}

}  // namespace
}  // namespace vitrine
