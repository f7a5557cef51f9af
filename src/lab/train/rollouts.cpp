#include "train/rollouts.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "base/philox.h"
#include "model/adapter.h"
#include "model/fingerprint.h"
#include "schedule/scheduler.h"
#include "train/reward_command.h"
#include "train/starting_model.h"

namespace vitrine {
namespace {

constexpr uint64_t kSampling = 0x6772;  // apart from what dropout and the order of the data draw
constexpr int64_t kRunning = 256;       // sequences that run at once

// The streams of one call, and who waits for them.
struct Counter {
  std::mutex mutex;
  std::condition_variable all_ended;
  size_t left = 0;
  std::string error;  // of the first that failed
};

// One completion, from the scheduler.
class Collector final : public Sink {
 public:
  Collector(Completion& to, Counter& counter) : to_(to), counter_(counter) {}
  void token(TokenEvent&& event) override {
    to_.ids.push_back(event.token);
    to_.text += event.text;
  }
  void ended(EndEvent&& event) override {
    to_.text += event.text;
    to_.cut = event.end == End::length;
    const std::lock_guard lock(counter_.mutex);
    if (event.end != End::stop && event.end != End::length && counter_.error.empty())
      counter_.error = event.error.empty() ? "it was cancelled" : event.error;
    if (--counter_.left == 0) counter_.all_ended.notify_all();
  }

 private:
  Completion& to_;
  Counter& counter_;
};

// Products of few rows by the kernels of many, so that no bit depends on what runs beside; until it goes.
class Exactly {
 public:
  explicit Exactly(Context& ctx) : ctx_(ctx), before_(std::exchange(ctx.numerics.exact, true)) {}
  ~Exactly() { ctx_.numerics.exact = before_; }
  Exactly(const Exactly&) = delete;
  Exactly& operator=(const Exactly&) = delete;

 private:
  Context& ctx_;
  bool before_;
};

int64_t longest_prompt(const DataMix& data) {
  int64_t longest = 0;
  for (const DataPart& part : data.parts()) {
    std::vector<uint64_t> starts = part.data.document_starts(0, part.data.tokens());
    starts.push_back(part.data.tokens());
    for (size_t i = 0; i + 1 < starts.size(); ++i) longest = std::max(longest, static_cast<int64_t>(starts[i + 1] - starts[i]));
  }
  return longest;
}

}  // namespace

Rollouts::Rollouts(const TrainConfig& config, Learner& learner, const DataMix& data)
    : config_(config), learner_(learner), data_(data) {
  const PolicyOptions& o = *config.policy;
  const std::string where = config.path + ": grpo";
  if (!learner.engine().has_tokenizer())
    throw InputError(where + ": rewards are of texts, and the model has no tokenizer. Set model.tokenizer");
  if (const int64_t longest = longest_prompt(data); longest + o.max_tokens > config.sequence_length)
    throw InputError(where + ": the longest prompt has " + std::to_string(longest) + " tokens and max_tokens is " +
                     std::to_string(o.max_tokens) + "; sequence_length is " + std::to_string(config.sequence_length) +
                     ", which does not hold both. Raise it, or lower max_tokens");
  if (o.beta > 0 && config.model.empty())
    throw InputError(where +
                     ".beta: there is no starting model: the weights are fresh. Leave it out, or set model to a trained one");
  if (o.beta > 0) open_start();
  learner.set_policy(o);
}

Rollouts::~Rollouts() = default;

int64_t Rollouts::prompts_of_batch(const TrainConfig& config, int ranks) {
  const int64_t group = config.policy->group;
  if (config.batch % (group * ranks) != 0)
    throw InputError(config.path + ": batch is " + std::to_string(config.batch) + "; expected a multiple of grpo.group, " +
                     std::to_string(group) + (ranks > 1 ? ", for each of the " + std::to_string(ranks) + " processes" : "") +
                     ": it counts completions");
  return config.batch / group / ranks;
}

// The model that learning began from: with its form, and with the adapter that goes on learning.
void Rollouts::open_start() {
  OpenedModel opened = open_starting_model(config_, "");
  fingerprint_ = fingerprint_of(opened);
  if (!config_.adapter.empty()) {
    continue_adapter(opened, config_.adapter);
    for (const Adapter::Module& m : opened.adapter->modules())
      fingerprint_ = add_to_fingerprint(fingerprint_, std::as_bytes(std::span(m.values)));
  }
  start_ = std::make_unique<Engine>(std::move(opened), EngineOptions{.threads = 1});
}

// A group of each prompt, in order.
std::vector<Completion> Rollouts::complete(std::span<const Batch> prompts, int64_t step) {
  const PolicyOptions& o = *config_.policy;
  Engine& engine = learner_.engine();
  const auto words = philox(config_.seed, static_cast<uint64_t>(step), kSampling);
  GenerateOptions options;
  options.max_tokens = o.max_tokens;
  options.sampling.temperature = o.temperature;
  options.sampling.seed = uint64_t{words[0]} << 32 | words[1];
  options.eos = engine.end_tokens();

  std::vector<Completion> all;
  for (const Batch& batch : prompts) {
    auto row = batch.tokens.begin();
    for (size_t i = 0; i < batch.prompts.size(); ++i, row += batch.lengths[i - 1])
      all.insert(all.end(), static_cast<size_t>(o.group),
                 {.document = batch.prompts[i], .prompt = {row, row + batch.lengths[i]}, .ids = {}});
  }
  Counter counter;
  counter.left = all.size();
  {
    const Exactly exactly(engine.context());
    Scheduler scheduler(engine, {.running = std::min(kRunning, std::ssize(all)),
                                 .waiting = std::ssize(all),
                                 .cache_bytes = available_memory() / 2 / static_cast<size_t>(learner_.comm().on_this_machine()),
                                 .positions = config_.sequence_length});
    // The number of a completion among those of the step, whoever makes it.
    const auto own = static_cast<uint64_t>(config_.batch / learner_.comm().size()),
               rank = static_cast<uint64_t>(learner_.comm().rank());
    const auto number = [&](size_t i) { return i / own * static_cast<uint64_t>(config_.batch) + rank * own + i % own; };
    for (size_t i = 0; i < all.size(); ++i) {
      if (i % static_cast<size_t>(o.group) == 0) options.alone = !line_of(all[i]).at("prompt").is_string();  // messages
      scheduler.submit({.prompt = all[i].prompt, .options = options, .stream = number(i)},
                       std::make_shared<Collector>(all[i], counter));
    }
    std::unique_lock lock(counter.mutex);
    counter.all_ended.wait(lock, [&] { return counter.left == 0; });
  }
  for (const Completion& completion : all)
    if (completion.ids.empty() && counter.error.empty()) counter.error = "it has no token";
  if (!counter.error.empty()) throw RunError(config_.path + ": grpo: a completion failed: " + counter.error);
  return all;
}

OrderedJson Rollouts::line_of(const Completion& completion) const {
  const OrderedJson line =
      parse_ordered_json(data_.line(completion.document), data_.path() + ": line " + std::to_string(completion.document + 1));
  if (!line.is_object() || !line.contains("prompt"))
    throw InputError(data_.path() + ": line " + std::to_string(completion.document + 1) +
                     " of its prompts holds no \"prompt\". Make the data again");
  return line;
}

void Rollouts::add_rewards() {
  const PolicyOptions& o = *config_.policy;
  std::vector<std::string> lines;
  OrderedJson line;
  for (size_t i = 0; i < completions_.size(); ++i) {
    const Completion& completion = completions_[i];
    if (i % static_cast<size_t>(o.group) == 0) line = line_of(completion);
    line["completion"] = completion.text;
    line["finish_reason"] = completion.cut ? "length" : "stop";
    lines.push_back(line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  }
  const std::vector<double> rewards = run_reward_command(o.reward, lines, o.reward_timeout, config_.path + ": grpo.reward");
  for (size_t i = 0; i < rewards.size(); ++i) completions_[i].reward = rewards[i];
}

std::vector<Batch> Rollouts::next(MixedSource& source, int64_t step) {
  const PolicyOptions& o = *config_.policy;
  if (!due(step)) return batches_;
  std::vector<Batch> prompts;
  for (int64_t i = 0; i < config_.accumulate; ++i) prompts.push_back(source.next());
  std::string failed;
  try {
    completions_ = complete(prompts, step);
    add_rewards();
  } catch (const RunError& error) {
    failed = error.what();
  }
  double failures = failed.empty() ? 0 : 1;  // all ranks end alike, and can save
  learner_.comm().all_reduce({&failures, 1});
  if (failures > 0) throw RunError(failed.empty() ? config_.path + ": grpo: a reward of another process failed" : failed);
  batches_.clear();
  const auto each = completions_.size() / prompts.size();
  for (size_t i = 0; i < prompts.size(); ++i) {
    Batch& batch = batches_.emplace_back(batch_of(std::span(completions_).subspan(i * each, each), o));
    batch.first_row =
        static_cast<uint64_t>(learner_.comm().rank() * (config_.batch / learner_.comm().size()) * config_.sequence_length);
    if (start_ != nullptr) batch.policy.reference = learner_.label_logprobs(batch, start_->model());
    // Of one step, the probabilities are those that the step itself computes.
    if (o.iterations > 1 || (o.loss == PolicyOptions::Loss::rloo && o.beta > 0))
      batch.policy.sampled_by = learner_.label_logprobs(batch, learner_.engine().model());
  }
  report_ = add_advantages(completions_, batches_, o, learner_.comm());
  return batches_;
}

void Rollouts::describe(const StepReport& report, nlohmann::ordered_json& line) const {
  line["reward"] = report_.reward;
  line["reward_std"] = report_.deviation;
  line["same_rewards"] = report_.same;
  line["completion_length"] = report_.length;
  line["completion_cut"] = report_.cut;
  if (!report.policy) return;
  line["entropy"] = report.policy->entropy;
  if (start_ != nullptr) line["kl"] = report.policy->kl;
  line["clipped"] = report.policy->clipped;
}

nlohmann::ordered_json Rollouts::samples() const {
  auto list = nlohmann::ordered_json::array();
  for (size_t i = 0; i < std::min(completions_.size(), static_cast<size_t>(config_.policy->group)); ++i) {
    const Completion& c = completions_[i];
    list.push_back(
        {{"prompt", line_of(c).at("prompt")}, {"completion", c.text}, {"reward", c.reward}, {"advantage", c.advantage}});
  }
  return list;
}

}  // namespace vitrine
