#include "schedule/scheduler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "schedule/queue.h"
#include "schedule/running.h"

namespace vitrine {
namespace {

constexpr std::chrono::milliseconds kLookAtConstraints{1};
constexpr Clock::duration kLeastTurn = std::chrono::milliseconds(1);  // of a job, before streams have theirs
constexpr int kTimesOfJobs = 3;                                       // that streams have, where they run

void check_options(const SchedulerOptions& o) {
  const auto check = [](int64_t value, int64_t least, const char* name) {
    if (value < least)
      throw UsageError(std::string(name) + " of the scheduler is " + std::to_string(value) + "; expected " +
                       std::to_string(least) + " or more");
  };
  check(o.running, 1, "running");
  check(o.waiting, 1, "waiting");
  check(o.running_per_owner, 0, "running_per_owner");
  check(o.waiting_per_owner, 0, "waiting_per_owner");
  check(o.prefill_rows, 0, "prefill_rows");
  check(o.positions, 0, "positions");
}

}  // namespace

class Scheduler::Loop {
  struct Job {
    std::function<bool(Engine&)> work;  // true: there is more to do
    std::promise<void> done;
  };

 public:
  Loop(Engine& engine, const SchedulerOptions& options)
      : engine_(engine),
        options_(options),
        running_(engine, options, meter_),
        positions_(running_.positions()),
        places_(running_.places()) {
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    {
      const std::lock_guard lock(mutex_);
      draining_ = stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  Ticket submit(Work work, std::shared_ptr<Sink> sink) {
    const auto prompt = std::ssize(work.prompt);
    if (prompt > positions_)
      throw InputError("the prompt has " + std::to_string(prompt) + " tokens; a sequence may have " + std::to_string(positions_) +
                       " here. Shorten it; nothing is cut silently");
    work.options.max_tokens = std::min(work.options.max_tokens, positions_ - prompt + 1);
    const std::string owner = work.owner;
    {
      const std::lock_guard lock(mutex_);
      check_place(owner);  // before the prompt is looked at
    }
    auto stream = std::make_unique<Stream>(engine_, std::move(work), std::move(sink), ++tickets_);
    const Ticket ticket = stream->ticket();
    {
      const std::lock_guard lock(mutex_);
      check_place(owner);
      queue_.push(owner, std::move(stream));
      meter_.change([](SchedulerStats& s) { ++s.submitted; });
    }
    wake_.notify_one();
    return ticket;
  }

  std::future<void> run_job(std::function<bool(Engine&)> work, const std::string& owner, bool goes_on) {
    Job job{std::move(work), {}};
    std::future<void> done = job.done.get_future();
    {
      const std::lock_guard lock(mutex_);
      if (!goes_on) check_place(owner);
      if (stopping_) throw Draining("the server ends");
      jobs_.push(owner, std::move(job));
    }
    wake_.notify_one();
    return done;
  }

  std::future<void> run_on_kept(std::function<bool(const KeptSequences&)> part, const std::string& owner) {
    return run_job([this, part = std::move(part)](Engine&) { return part(running_.kept()); }, owner, false);
  }

  void cancel(Ticket ticket) {
    {
      const std::lock_guard lock(mutex_);
      cancelled_.push_back(ticket);
    }
    wake_.notify_one();
  }

  void cancel_all() {
    {
      const std::lock_guard lock(mutex_);
      all_cancelled_ = true;
    }
    wake_.notify_one();
  }

  void drain() {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }

  bool idle() const {
    const std::lock_guard lock(mutex_);
    return asleep_ && nothing_to_do();
  }

  int64_t positions() const { return positions_; }

  SchedulerStats stats() const {
    SchedulerStats stats = meter_.read();
    const std::lock_guard lock(mutex_);
    stats.waiting = waiting();
    stats.draining = draining_;
    if (busy_since_ != Clock::time_point()) stats.busy_seconds_now = seconds_between(busy_since_, Clock::now());
    return stats;
  }

 private:
  // With the mutex held -------------------------------------------------------------------------------------------
  int64_t waiting() const { return queue_.size() + jobs_.size(); }
  bool nothing_to_do() const { return queue_.empty() && jobs_.empty() && cancelled_.empty() && !all_cancelled_; }

  void check_place(const std::string& owner) {
    if (draining_) throw Draining("the server is about to end and takes no new work");
    const auto full = [&](int64_t found, const std::string& whose) {
      meter_.change([](SchedulerStats& s) { ++s.refused; });
      const double seconds =
          std::max(1.0, std::ceil(stream_seconds_ * static_cast<double>(found + 1) / static_cast<double>(options_.running)));
      throw QueueFull("the queue" + whose + " is full: " + std::to_string(found) + " requests wait. Try again in about " +
                          std::to_string(static_cast<int64_t>(seconds)) + " s",
                      seconds);
    };
    // Streams that are about to run need no place in the queue.
    const auto in_queue = [&](int64_t streams) { return std::max<int64_t>(streams - places_, 0); };
    const int64_t all = in_queue(queue_.size()) + jobs_.size();
    if (all >= options_.waiting) full(all, "");
    const int64_t own = in_queue(queue_.size_of(owner)) + jobs_.size_of(owner);
    if (options_.waiting_per_owner > 0 && own >= options_.waiting_per_owner)
      full(own, " of " + (owner.empty() ? "this client" : owner));
  }

  // In the thread -------------------------------------------------------------------------------------------------
  void run() {
    for (;;) {
      bool job_may_run = false;
      {
        std::unique_lock lock(mutex_);
        busy_since_ = {};
        asleep_ = running_.empty();
        if (asleep_ || steps_)
          wake_.wait(lock, [&] { return stopping_ || job_ || !nothing_to_do() || !running_.empty(); });
        else
          wake_.wait_for(lock, kLookAtConstraints, [&] { return stopping_ || job_ || !nothing_to_do(); });
        asleep_ = false;
        if (stopping_) break;
        busy_since_ = Clock::now();
        job_may_run = running_.empty() || !steps_ || busy_since_ >= jobs_rest_until_;
        if (job_may_run && !job_ && !jobs_.empty()) job_ = jobs_.pop();
      }
      end_early();
      if (job_ && job_may_run) {
        job_since_ = Clock::now();
        if (!runs_on(*job_)) job_.reset();
        const Clock::time_point now = Clock::now();
        jobs_rest_until_ = now + kTimesOfJobs * (now - job_since_);
      }
      step();
    }
    end_all();
  }

  // Those who left, and those whose time is over.
  void end_early() {
    std::vector<std::unique_ptr<Stream>> turned_away;
    std::vector<Ticket> cancelled;
    bool all = false;
    const Clock::time_point now = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      while (auto late = queue_.take_if([&](const auto& stream) { return now >= stream->deadline(); }))
        late_.push_back(std::move(*late));
      cancelled = std::exchange(cancelled_, {});
      for (const Ticket ticket : cancelled)
        if (auto waiting = queue_.take_if([&](const auto& stream) { return stream->ticket() == ticket; }))
          turned_away.push_back(std::move(*waiting));
      all = std::exchange(all_cancelled_, false);
      while (all && !queue_.empty()) turned_away.push_back(queue_.pop());
    }
    running_.end_late(now);
    for (auto& stream : std::exchange(late_, {})) running_.turn_away_late(std::move(stream));
    for (auto& stream : turned_away) running_.turn_away(std::move(stream));
    for (const Ticket ticket : cancelled) running_.cancel(ticket);
    if (all) running_.cancel_all();
  }

  void step() {
    try {
      admit();
      steps_ = running_.step();
    } catch (...) {  // no stream is known to be at fault: memory for lists, a broken promise
      running_.fail_all(std::current_exception());
    }
    estimate();
  }

  // Between two ops of the job.
  void streams_go_on(const RunSettings& settings) {
    const Clock::time_point now = Clock::now();
    const Clock::duration had = now - job_since_;
    if (had < job_turn_) return;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      busy_since_ = now;
    }
    const Context::Aside aside(engine_.context(), settings);
    Clock::duration last;
    do {
      const Clock::time_point begun = Clock::now();
      end_early();
      step();
      job_since_ = Clock::now();
      last = job_since_ - begun;
    } while (steps_ && !running_.empty() && job_since_ < now + kTimesOfJobs * had);
    job_turn_ = std::max(kLeastTurn, last / kTimesOfJobs);  // of one step: that of all of them would only grow
  }

  // Whether the job has more to do.
  bool runs_on(Job& job) {
    bool more = false;
    std::exception_ptr error;
    Context& ctx = engine_.context();
    const std::function<void()> between = [this, settings = RunSettings(ctx)] { streams_go_on(settings); };
    ctx.call_between(&between);
    try {
      more = job.work(engine_);
    } catch (...) {
      error = std::current_exception();
    }
    ctx.call_between(nullptr);
    meter_.change([](SchedulerStats& s) { ++s.jobs; });
    if (more) return true;
    if (error)
      job.done.set_exception(error);
    else
      job.done.set_value();
    return false;
  }

  void admit() {
    if (!running_.readmit()) return;
    for (;;) {
      std::unique_ptr<Stream> next;
      {
        const std::lock_guard lock(mutex_);
        const auto may = [&](const std::string& owner) {
          return options_.running_per_owner == 0 || running_.of(owner) < options_.running_per_owner;
        };
        if (!queue_.turn_to(may) || !running_.has_room_for(*queue_.front())) return;
        next = queue_.pop();
        places_ = std::max<int64_t>(places_ - 1, 0);
      }
      running_.admit(std::move(next));
    }
  }

  // How many streams may begin, and how long one takes once it runs: what those who are turned away are told goes by it.
  void estimate() {
    double seconds = 1;
    meter_.change([&](const SchedulerStats& s) {
      if (s.stream_seconds.count > 0)
        seconds = (s.stream_seconds.sum - s.queue_seconds.sum) / static_cast<double>(s.stream_seconds.count);
    });
    const std::lock_guard lock(mutex_);
    stream_seconds_ = std::max(seconds, 0.0);
    places_ = running_.places();
  }

  void end_all() {
    running_.cancel_all();
    if (job_) job_->done.set_exception(std::make_exception_ptr(Draining("the server ended before this was done")));
    job_.reset();
    for (;;) {
      std::unique_ptr<Stream> stream;
      std::optional<Job> job;
      {
        const std::lock_guard lock(mutex_);
        if (!queue_.empty()) stream = queue_.pop();
        if (!jobs_.empty()) job = jobs_.pop();
      }
      if (stream == nullptr && !job) return;
      if (stream != nullptr) running_.turn_away(std::move(stream));
      if (job) job->done.set_exception(std::make_exception_ptr(Draining("the server ended before this was begun")));
    }
  }

  Engine& engine_;
  const SchedulerOptions options_;
  Meter meter_;
  Running running_;                   // the thread's alone
  std::optional<Job> job_;            // the thread's alone, as what follows: the one that is under way
  Clock::time_point job_since_ = {};  // when it began, or the streams' last turn in it ended
  Clock::duration job_turn_ = kLeastTurn;
  Clock::time_point jobs_rest_until_ = {};
  bool steps_ = true;                          // the last step was one: not every stream waits for its constraint
  std::vector<std::unique_ptr<Stream>> late_;  // that waited in the queue until their deadline
  const int64_t positions_;
  std::atomic<Ticket> tickets_ = 0;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  FairQueue<std::unique_ptr<Stream>> queue_;
  FairQueue<Job> jobs_;
  std::vector<Ticket> cancelled_;
  bool draining_ = false, stopping_ = false, asleep_ = false, all_cancelled_ = false;
  Clock::time_point busy_since_ = {};
  double stream_seconds_ = 1;
  int64_t places_;  // free ones, to run in

  std::thread thread_;
};

Scheduler::Scheduler(Engine& engine, SchedulerOptions options) {
  check_options(options);
  loop_ = std::make_unique<Loop>(engine, options);
}

Scheduler::~Scheduler() = default;

Scheduler::Ticket Scheduler::submit(Work work, std::shared_ptr<Sink> sink) {
  return loop_->submit(std::move(work), std::move(sink));
}

void Scheduler::cancel(Ticket ticket) { loop_->cancel(ticket); }

std::future<void> Scheduler::run(std::function<void(Engine&)> job, std::string owner, bool goes_on) {
  const auto whole = [job = std::move(job)](Engine& engine) {
    job(engine);
    return false;
  };
  return loop_->run_job(whole, owner, goes_on);
}

std::future<void> Scheduler::run_in_parts(std::function<bool(Engine&)> part, std::string owner, bool goes_on) {
  return loop_->run_job(std::move(part), owner, goes_on);
}

std::future<void> Scheduler::run_on_kept(std::function<bool(const KeptSequences&)> part, std::string owner) {
  return loop_->run_on_kept(std::move(part), owner);
}

void Scheduler::cancel_all() { loop_->cancel_all(); }
void Scheduler::drain() { loop_->drain(); }

bool Scheduler::idle() const { return loop_->idle(); }

int64_t Scheduler::positions() const { return loop_->positions(); }

SchedulerStats Scheduler::stats() const { return loop_->stats(); }

}  // namespace vitrine
