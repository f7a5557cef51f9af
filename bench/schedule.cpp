// Streams through the scheduler: tokens per second beside generate_together, and how long streams wait when a long prompt comes.
//   bench_schedule MODEL [--streams N]... [--tokens N] [--prompt N] [--long N] [--threads N] [--repeat N]
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "generate/together.h"
#include "schedule/scheduler.h"

using namespace vitrine;

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Options {
  std::string model;
  std::vector<int64_t> streams;
  int64_t tokens = 64, prompt = 16, long_prompt = 4000;
  int threads = 0, repeat = 3;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? std::strtoll(argv[++i], nullptr, 10) : 0; };
    if (std::strcmp(argv[i], "--streams") == 0)
      o.streams.push_back(value());
    else if (std::strcmp(argv[i], "--tokens") == 0)
      o.tokens = value();
    else if (std::strcmp(argv[i], "--prompt") == 0)
      o.prompt = value();
    else if (std::strcmp(argv[i], "--long") == 0)
      o.long_prompt = value();
    else if (std::strcmp(argv[i], "--threads") == 0)
      o.threads = static_cast<int>(value());
    else if (std::strcmp(argv[i], "--repeat") == 0)
      o.repeat = static_cast<int>(value());
    else
      o.model = argv[i];
  }
  if (o.streams.empty()) o.streams = {1, 8, 32};
  return o;
}

std::vector<int32_t> random_prompt(const Engine& engine, uint64_t seed, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < length; ++i)
    ids.push_back(
        static_cast<int32_t>(philox(seed, static_cast<uint64_t>(i), 0)[0] % static_cast<uint32_t>(engine.shape().vocab_size)));
  return ids;
}

// Notes when its tokens come.
class Clocked final : public Sink {
 public:
  void token(TokenEvent&&) override {
    const std::lock_guard lock(mutex_);
    times.push_back(now_s());
    changed_.notify_all();
  }
  void ended(EndEvent&& event) override {
    const std::lock_guard lock(mutex_);
    if (event.end == End::failed) std::fprintf(stderr, "%s\n", event.error.c_str());
    ended_ = true;
    changed_.notify_all();
  }
  void wait(size_t tokens = SIZE_MAX) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || times.size() >= tokens; });
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return times.size();
  }
  std::vector<double> times;

 private:
  bool ended_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
};

GenerateOptions greedy(int64_t tokens) { return {.max_tokens = tokens, .ignore_eos = true}; }

double seconds_together(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, int64_t tokens) {
  const double began = now_s();
  generate_together(engine, prompts, greedy(tokens));
  return now_s() - began;
}

double seconds_scheduled(Engine& engine, const std::vector<std::vector<int32_t>>& prompts, int64_t tokens) {
  Scheduler scheduler(engine, {});
  std::vector<std::shared_ptr<Clocked>> sinks;
  const auto first = std::make_shared<Clocked>();  // a scheduler that has run knows how long steps take
  scheduler.submit({.prompt = random_prompt(engine, 1000, 64), .options = greedy(4)}, first);
  first->wait();
  const double began = now_s();
  for (const auto& prompt : prompts) {
    sinks.push_back(std::make_shared<Clocked>());
    scheduler.submit({.prompt = prompt, .options = greedy(tokens)}, sinks.back());
  }
  for (auto& sink : sinks) sink->wait();
  return now_s() - began;
}

void speed(Engine& engine, const Options& o) {
  std::printf("tokens per second, %lld new tokens behind %lld, the best of %d\n", static_cast<long long>(o.tokens),
              static_cast<long long>(o.prompt), o.repeat);
  for (const int64_t streams : o.streams) {
    std::vector<std::vector<int32_t>> prompts;
    for (int64_t i = 0; i < streams; ++i) prompts.push_back(random_prompt(engine, static_cast<uint64_t>(i), o.prompt));
    double together = 1e9, scheduled = 1e9;
    for (int round = 0; round < o.repeat; ++round) {
      together = std::min(together, seconds_together(engine, prompts, o.tokens));
      scheduled = std::min(scheduled, seconds_scheduled(engine, prompts, o.tokens));
    }
    const double made = static_cast<double>(streams * o.tokens);
    std::printf("  %3lld streams: together %8.1f, scheduled %8.1f (%.3f of the time)\n", static_cast<long long>(streams),
                made / together, made / scheduled, scheduled / together);
  }
}

void pause(Engine& engine, const Options& o) {
  constexpr int64_t kStreams = 16;
  Scheduler scheduler(engine, {.positions = o.long_prompt + 8000});
  std::vector<std::shared_ptr<Clocked>> sinks;
  std::vector<Scheduler::Ticket> tickets;
  for (int64_t i = 0; i < kStreams; ++i) {
    sinks.push_back(std::make_shared<Clocked>());
    tickets.push_back(scheduler.submit(
        {.prompt = random_prompt(engine, static_cast<uint64_t>(i), o.prompt), .options = greedy(o.long_prompt)}, sinks.back()));
  }
  for (auto& sink : sinks) sink->wait(60);
  const auto late = std::make_shared<Clocked>();
  const double came = now_s();
  scheduler.submit({.prompt = random_prompt(engine, 99, o.long_prompt), .options = greedy(1)}, late);
  late->wait();
  const double done = now_s();
  for (auto& sink : sinks) sink->wait(sink->count() + 60);
  for (const auto ticket : tickets) scheduler.cancel(ticket);
  for (auto& sink : sinks) sink->wait();
  struct Gap {
    double at, seconds;
  };
  std::vector<double> before, after;
  std::vector<Gap> during;
  for (const auto& sink : sinks)
    for (size_t i = 1; i < sink->times.size(); ++i) {
      const double from = sink->times[i - 1], to = sink->times[i], gap = to - from;
      if (to < came && i > 10) before.push_back(gap);
      if (to > came && from < done) during.push_back({std::clamp(from, came, done), gap});
      if (from > done) after.push_back(gap);
    }
  std::sort(before.begin(), before.end());
  std::sort(after.begin(), after.end());
  // The streams' contexts grow while the prompt is read, and their steps with them.
  const double first = before[before.size() / 2], last = after[after.size() / 2];
  std::vector<double> pauses;
  for (const Gap& gap : during) pauses.push_back(gap.seconds / (first + (last - first) * (gap.at - came) / (done - came)));
  std::sort(pauses.begin(), pauses.end());
  std::printf("a prompt of %lld tokens beside %lld streams: read in %.2f s; an ordinary step %.2f ms before, %.2f ms after\n",
              static_cast<long long>(o.long_prompt), static_cast<long long>(kStreams), done - came, 1e3 * first, 1e3 * last);
  std::printf("  between tokens meanwhile, in ordinary steps: median %.2f, 99 %% %.2f, longest %.2f (without it: longest %.2f)\n",
              pauses[pauses.size() / 2], pauses[pauses.size() * 99 / 100], pauses.back(),
              std::max(before.back() / first, after.back() / last));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options o = parse(argc, argv);
    if (o.model.empty())
      throw UsageError("usage: bench_schedule MODEL [--streams N]... [--tokens N] [--prompt N] [--long N] [--threads N]");
    Engine engine(o.model, {.threads = o.threads});
    speed(engine, o);
    if (o.long_prompt > 0) pause(engine, o);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
