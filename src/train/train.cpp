#include "train/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <functional>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/memory.h"
#include "generate/generate.h"
#include "generate/model_tokenizer.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "model/from_gguf.h"
#include "ops/product_peak.h"
#include "tokenizer/tokenizer.h"
#include "train/data/prepare.h"
#include "train/fingerprint.h"
#include "train/guidance.h"
#include "train/layer_watch.h"
#include "train/one_step.h"
#include "train/step_cost.h"

namespace vitrine {
namespace {

using Line = nlohmann::ordered_json;  // of metrics.jsonl

constexpr char kFirstTokens[] = "; the first token of a document is never scored, and documents of one token hold no other";

std::string mib(double bytes) { return std::to_string(static_cast<int64_t>(std::ceil(bytes / 0x1p20))) + " MiB"; }

void check_memory(const TrainConfig& config, double bytes, const std::string& what, const std::string& advice) {
  const auto left = static_cast<double>(available_memory());
  if (left > 0 && bytes > left)
    throw InputError(config.path + ": " + what + " take about " + mib(bytes) + " of memory, and the machine has " + mib(left) +
                     " left. " + advice);
}

// A model's configuration with the dropout and the form that were asked for. checkpoint: what a run goes on from, or nothing.
Json shaped(Json model_config, const TrainConfig& config, const std::string& checkpoint) {
  model_config = with_dropout(std::move(model_config), config);
  Json formed = with_form(model_config, config);
  if (!checkpoint.empty() && formed != model_config)
    throw InputError(config.path + ": model.norms and model.residual must stay as they were when a run goes on. " + checkpoint +
                     " was trained with others; begin a new run from it with model: and another out:");
  return formed;
}

// The files of the model that learning starts from.
ModelFiles files_of(const TrainConfig& config, const std::string& checkpoint) {
  ModelFiles files;
  // An adapter's checkpoint holds the adapter alone.
  const std::string start = !checkpoint.empty() && !config.lora ? checkpoint : config.model;
  if (start.empty() && !config.config.is_null()) {  // written out in the YAML file
    files.name = files.config_path = config.config_path;
    files.config = config.config;
  } else {
    files = resolve_model(start.empty() ? config.config_path : start);
  }
  if (!config.tokenizer.empty() && (checkpoint.empty() || config.lora)) {
    const bool folder = is_folder(config.tokenizer);
    if (!folder || !has_tokenizer_files(config.tokenizer))
      throw InputError(config.path + ": model.tokenizer is " + config.tokenizer + ", which " +
                       (folder ? "holds no tokenizer" : "is no folder") +
                       "; expected a folder with tokenizer.json, tokenizer.model or vocab.json and merges.txt");
    files.directory = config.tokenizer;
  }
  return files;
}

// What the configuration says about the model of fresh weights. Null for a model to go on from, and for a run that goes on when
// what said it can be read no more: the checkpoint is enough.
Json given_model_config(const TrainConfig& config, bool goes_on) {
  if (!config.model.empty()) return nullptr;
  if (!config.config.is_null()) return config.config;
  try {
    return resolve_model(config.config_path).config;
  } catch (const InputError&) {
    if (!goes_on) throw;
    return nullptr;
  }
}

// Checkpoints are Hugging Face directories, so a GGUF model that learns takes that form from the start.
OpenedModel opened_from_gguf(ModelFiles files, const TrainConfig& config) {
  OpenedModel gguf = open_model(std::move(files));
  Json model_config = shaped(huggingface_config(gguf), config, "");
  OpenedModel opened = as_huggingface(std::move(gguf), std::move(model_config));
  if (!config.tokenizer.empty()) {
    opened.gguf = nullptr;
    opened.files.directory = config.tokenizer;
  }
  return opened;
}

OpenedModel opened_for(const TrainConfig& config, const std::string& checkpoint) {
  ModelFiles files = files_of(config, checkpoint);
  if (files.kind == ModelFiles::Kind::gguf) {
    if (!config.lora) return opened_from_gguf(std::move(files), config);
    if (std::max({config.dropout_embedding.value_or(0), config.dropout_attention.value_or(0),
                  config.dropout_residual.value_or(0)}) > 0)
      throw InputError(config.path + ": dropout is set, and " + files.weights +
                       " is a GGUF file, whose models have none beside an adapter. Set lora.dropout instead");
    if (!config.tokenizer.empty())
      throw InputError(config.path + ": model.tokenizer is set, and an adapter beside a GGUF file reads with the vocabulary in " +
                       files.weights + ". Leave it out");
    return open_model(std::move(files));
  }
  files.config = shaped(std::move(files.config), config, checkpoint);
  if (checkpoint.empty() && config.model.empty()) {
    OpenedModel opened;
    opened.model = model_from_config(files);
    opened.files = std::move(files);
    return opened;
  }
  return open_model(std::move(files));
}

// Steps per second of late, and what that means for the rest.
class Clock {
 public:
  /// peak: FLOP per second that the machine reaches at most.
  explicit Clock(double peak) : peak_(peak) {}
  TrainEvents::Rate step(int64_t tokens, double flop, int64_t steps_left) {
    using Seconds = std::chrono::duration<double>;
    const auto now = std::chrono::steady_clock::now();
    seconds_.push_back(Seconds(now - last_).count());
    tokens_.push_back(tokens);
    flop_.push_back(flop);
    last_ = now;
    if (seconds_.size() > kSteps) {
      seconds_.pop_front();
      tokens_.pop_front();
      flop_.pop_front();
    }
    double time = 0, all = 0, work = 0;
    for (const double s : seconds_) time += s;
    for (const int64_t t : tokens_) all += static_cast<double>(t);
    for (const double f : flop_) work += f;
    time = std::max(time, 1e-9);
    return {all / time, time / static_cast<double>(seconds_.size()) * static_cast<double>(steps_left), work / time / peak_};
  }
  void restart() { last_ = std::chrono::steady_clock::now(); }

 private:
  static constexpr size_t kSteps = 20;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double peak_;
  std::deque<double> seconds_, flop_;
  std::deque<int64_t> tokens_;
};

// What may not change about the adapter of a run.
std::string lora_text(const TrainConfig& config, uint64_t base) {
  const AdapterOptions& o = *config.lora;
  std::string targets;
  for (const std::string& target : o.targets) targets += (targets.empty() ? "" : ", ") + target;
  return "rank " + std::to_string(o.rank) + ", alpha " + Json(o.alpha).dump() + ", dropout " + Json(o.dropout).dump() +
         (o.rslora ? ", rslora" : "") + ", of " + targets + ", beside a model with the numbers " + hexadecimal(base);
}

class Run {
 public:
  Run(const TrainConfig& config, bool resume, const TrainEvents& events, Comm& comm)
      : config_(config),
        events_(events),
        comm_(comm),
        folder_(config.out, first()),
        checkpoint_(checkpoint_of(resume)),
        learner_(make_learner()),
        companions_(config.lora ? Companions() : companions_of(learner_.engine().opened())) {
    if (checkpoint_ < 0 && config_.model.empty()) name_special_tokens();
    open_data();
    check_sizes();
    restore();
    check_ranks();
  }

  TrainResult go();

 private:
  bool first() const { return comm_.rank() == 0; }
  // Whether any rank says so.
  bool any(bool here) {
    double ranks = here ? 1 : 0;
    comm_.all_reduce({&ranks, 1});
    return ranks > 0;
  }
  bool stop_here() const { return events_.stop && events_.stop(); }
  // The step to go on from, as rank 0 finds it; -1: a new run.
  int64_t checkpoint_of(bool resume) {
    double step = first() ? static_cast<double>(find_checkpoint(resume)) : -1;
    comm_.all_reduce({&step, 1}, Comm::Fold::largest);
    return static_cast<int64_t>(step);
  }
  int64_t find_checkpoint(bool resume) const {
    const std::vector<int64_t> steps = folder_.steps();
    if (!resume && folder_.used())
      throw InputError(config_.path + ": out: " + config_.out + " holds a run already" +
                       (steps.empty() ? "" : ", up to step " + std::to_string(steps.back())) +
                       ". Go on with it by --resume, or name another folder");
    if (steps.empty()) {
      check_history();
      return -1;
    }
    folder_.verify(steps.back());
    return steps.back();
  }

  // A run that was killed before its first checkpoint begins again; one whose checkpoints are gone has a history to lose.
  void check_history() const {
    const RunFolder::History history = folder_.history();
    if (history.measured >= 0 && history.saved >= 0)
      throw InputError(config_.path + ": out: " + config_.out + " has no checkpoint, and its metrics.jsonl goes up to step " +
                       std::to_string(history.measured) + ", although that of step " + std::to_string(history.saved) +
                       " was saved. Put the checkpoints back, remove metrics.jsonl to begin anew, or name another folder");
  }

  Learner make_learner();
  void name_special_tokens();
  void open_data();
  double state_bytes(double numbers) const;
  void check_sizes();
  void restore();
  void check_ranks();
  std::vector<Batch> next_batches();
  void measure_what_is_due();
  bool evaluate(Line& line);
  void sample();
  void save();
  void add_layers(const StepReport& report, const LayerWatch& watch, Line& line) const;

  const TrainConfig& config_;
  const TrainEvents& events_;
  Comm& comm_;
  RunFolder folder_;
  int64_t checkpoint_;
  uint64_t base_ = 0;  // of an adapter: the fingerprint of the model that it stands beside; make_learner() sets it
  Learner learner_;
  const Companions companions_;  // read at once: the checkpoint that a run goes on from is removed when newer ones are there
  std::optional<TokenData> data_, validation_;
  std::optional<BatchSource> source_;
  std::optional<Guidance> guidance_;
  TrainIdentity identity_;
  std::vector<std::vector<int32_t>> prompts_;
  Schedule schedule_;
  int64_t steps_ = 0;
  TrainProgress progress_;
  int64_t unsaid_ = 0;  // a checkpoint's step that no line of metrics.jsonl tells of yet
  TrainResult result_;
};

// A rank's, for so many parameters: weights, gradients, moments, average.
double Run::state_bytes(double numbers) const {
  return Optimiser::bytes(config_.optimiser, numbers, comm_.size()) + (config_.ema ? numbers * sizeof(float) : 0);
}

Learner Run::make_learner() {
  if (config_.batch % comm_.size() != 0)
    throw InputError(config_.path + ": batch is " + std::to_string(config_.batch) + "; expected a multiple of the " +
                     std::to_string(comm_.size()) + " processes that share it");
  const std::string checkpoint = checkpoint_ < 0 ? "" : folder_.step_path(checkpoint_);
  if (checkpoint_ >= 0 && folder_.of_adapter(checkpoint_) != config_.lora.has_value())
    throw InputError(config_.path + ": the run in " + config_.out +
                     (config_.lora ? " learns a whole model" : " learns an adapter") + ", and the configuration has " +
                     (config_.lora ? "" : "no ") + "lora. Set it back, or begin a new run with another out:");
  OpenedModel opened = opened_for(config_, checkpoint);
  if (config_.lora) base_ = fingerprint_of(opened);
  if (config_.lora && checkpoint_ < 0) {
    try {
      add_fresh_adapter(opened, *config_.lora, config_.seed);
    } catch (const InputError& error) {
      throw InputError(config_.path + ": " + error.what());
    }
  }
  if (config_.lora && checkpoint_ >= 0) open_adapter(opened, checkpoint);
  const int64_t count = config_.lora ? opened.adapter->parameter_count() : parameter_count(*opened.model);
  check_memory(config_, state_bytes(static_cast<double>(count)) * comm_.on_this_machine(),
               "weights, gradients and the optimiser's state",
               config_.lora ? "Lower lora.rank or name fewer targets"
                            : "Train a smaller model, set optimiser.moments: bf16, use sgd without momentum, or learn an adapter "
                              "beside it: lora");
  LearnerOptions options{.optimiser = config_.optimiser,
                         .clip = config_.clip,
                         .recompute = config_.recompute,
                         .seed = config_.seed,
                         .threads = config_.threads > 0 ? static_cast<int>(config_.threads) : cores_of_rank(comm_),
                         .bf16 = config_.bf16,
                         .comm = &comm_,
                         .ema = config_.ema};
  if (checkpoint_ < 0 && config_.model.empty()) {
    options.init = config_.init;
    const ConfigReader keys(opened.files.config, opened.files.config_path);
    options.init->std = keys.number("initializer_range", {}, 0.02);
    if (options.init->std < 0 || options.init->std > 1e30)
      keys.fail("initializer_range", "is the standard deviation of fresh weights; expected a number from 0 to 1e30");
  }
  return Learner(std::move(opened), options);
}

// What a configuration leaves out, other programs fill in with their family's ids, which are not this vocabulary's.
void Run::name_special_tokens() {
  Engine& engine = learner_.engine();
  Json& config = engine.opened().files.config;
  const auto name = [&](const char* key, std::optional<int32_t> id) {
    if (!config.contains(key)) config[key] = id ? Json(*id) : Json(nullptr);
  };
  const bool known = engine.has_tokenizer();
  name("bos_token_id", known ? engine.tokenizer().bos() : std::nullopt);
  name("eos_token_id", known ? engine.tokenizer().eos() : std::nullopt);
  static_cast<void>(engine.end_tokens());  // what the checkpoints would be refused for is refused now
}

void Run::open_data() {
  const Engine& engine = learner_.engine();
  const ModelShape shape = engine.shape();
  const auto open = [&](const std::string& path) {
    if (!present(path + "/" + kIndexName))
      throw InputError(
          config_.path + ": " + path + " holds no token data (no " + kIndexName + "). " +
          (present(path + "/train/" + kIndexName) ? "Give " + path + "/train" : "`vitrine data` makes it from text"));
    TokenData data = TokenData::open(path);
    if (data.vocab_size() > shape.vocab_size)
      throw InputError(config_.path + ": " + path + " has token ids below " + std::to_string(data.vocab_size()) +
                       ", and the model's vocabulary has " + std::to_string(shape.vocab_size) +
                       ". Prepare the data with this model's tokenizer");
    if (engine.has_tokenizer() && data.tokenizer() != tokenizer_fingerprint(engine.tokenizer()))
      throw InputError(config_.path + ": " + path + " was made with another tokenizer than the model's, so its ids stand for " +
                       "other pieces. Prepare it again: vitrine data … --tokenizer " +
                       (engine.opened().gguf != nullptr ? engine.name() : engine.opened().files.directory));
    return data;
  };
  data_ = open(config_.train_data);
  source_.emplace(*data_, BatchOptions{.sequence_length = config_.sequence_length,
                                       .batch = config_.batch / comm_.size(),
                                       .seed = config_.seed,
                                       .documents = config_.documents,
                                       .rank = comm_.rank(),
                                       .ranks = comm_.size()});
  if (Guidance::wanted(config_)) guidance_.emplace(config_, learner_, *data_);
  if (config_.eval_every > 0) validation_ = open(config_.validation_data);
  if (config_.sample_every > 0 && !engine.has_tokenizer())
    throw InputError(config_.path + ": sample_prompts are texts, and the model has no tokenizer. " +
                     (config_.model.empty() ? "Set model.tokenizer, or leave them out" : "Leave them out"));
  if (config_.sample_every > 0)
    for (const std::string& prompt : config_.sample_prompts) {
      try {
        prompts_.push_back(engine.prompt_ids(prompt));
        engine.check_ids(prompts_.back());
      } catch (const InputError& error) {
        throw InputError(config_.path + ": sample_prompts: " + error.what());
      }
    }
}

void Run::check_sizes() {
  const ModelShape shape = learner_.engine().shape();
  if (shape.context_length > 0 && config_.sequence_length > shape.context_length)
    throw InputError(config_.path + ": sequence_length is " + std::to_string(config_.sequence_length) +
                     "; the context of the model holds " + std::to_string(shape.context_length));
  const int64_t rows = config_.batch / comm_.size() * config_.sequence_length;
  double activations = learner_.activation_bytes(rows, config_.sequence_length, config_.accumulate);
  // Tokens and labels of all batches of a step, and of one again in parts.
  double by_row = 8.0 * static_cast<double>(config_.accumulate + 1);
  if (config_.distill && !config_.distill->cache.empty())  // a token and a number for each of the teacher's likeliest
    by_row += static_cast<double>(std::min(config_.distill->top_k, shape.vocab_size)) *
              (8.0 * static_cast<double>(config_.accumulate + 1) + 20);
  if (config_.distill && config_.distill->on_policy > 0)  // keys and values of the sequences that the model continues
    by_row += 8.0 * static_cast<double>(shape.n_layers * shape.n_kv_heads * shape.head_dim);
  activations += static_cast<double>(rows) * by_row;
  check_memory(config_, activations * comm_.on_this_machine(),
               "the activations and tokens of batches of " + std::to_string(config_.batch) + " sequences of " +
                   std::to_string(config_.sequence_length) + " tokens",
               std::string("Lower batch or sequence_length") + (config_.recompute ? "" : ", or set recompute: true"));
  steps_ = config_.steps;
  if (steps_ == 0)
    steps_ = std::max<int64_t>(1, std::llround(config_.epochs * static_cast<double>(source_->windows_per_epoch()) /
                                               static_cast<double>(config_.batch * config_.accumulate)));
  if (guidance_) guidance_->check_space(static_cast<uint64_t>(steps_) * static_cast<uint64_t>(config_.accumulate));
  schedule_ = config_.schedule;
  if (schedule_.length == 0) schedule_.length = steps_;
  if (schedule_.warmup >= schedule_.length && schedule_.decay != Schedule::Decay::constant)
    throw InputError(config_.path + ": schedule.warmup is " + std::to_string(schedule_.warmup) + "; expected fewer than the " +
                     std::to_string(schedule_.length) + " steps of the schedule");
  if (first() && events_.started)
    events_.started({.parameters = learner_.parameters().count(),
                     .steps = steps_,
                     .first_step = std::max<int64_t>(0, checkpoint_),
                     .state_bytes = state_bytes(static_cast<double>(learner_.parameters().size())),
                     .activation_bytes = activations,
                     .data_tokens = data_->tokens(),
                     .ranks = comm_.size(),
                     .threads = learner_.engine().context().pool().threads()});
}

void Run::restore() {
  identity_ = {.seed = config_.seed,
               .sequence_length = config_.sequence_length,
               .batch = config_.batch,
               .accumulate = config_.accumulate,
               .documents = config_.documents,
               .data_tokens = data_->tokens(),
               .data_checksum = data_->checksum(),
               .data_path = config_.train_data,
               .optimiser = config_.optimiser.kind == OptimiserOptions::Kind::adamw ? "adamw" : "sgd",
               .lora = config_.lora ? lora_text(config_, base_) : "",
               .model_path = config_.model,
               .model_config = given_model_config(config_, checkpoint_ >= 0)};
  if (checkpoint_ >= 0) {
    progress_ = folder_.restore(checkpoint_, learner_, identity_);
    source_->seek(progress_.position);
    result_.checkpoint = folder_.step_path(checkpoint_);
    unsaid_ = checkpoint_;
  }
  if (validation_) {
    std::string measured = hexadecimal(validation_->checksum()) + "/" + std::to_string(config_.eval_batches);
    if (!progress_.best_on.empty() && progress_.best_on != measured) progress_.best_step = 0;
    progress_.best_on = std::move(measured);
  }
  if (!first()) return;
  folder_.rewind_metrics(checkpoint_);
  // The run may have been killed between a checkpoint and its links.
  if (checkpoint_ >= 0) folder_.settle(checkpoint_, config_.best ? progress_.best_step : 0, config_.keep);
}

// Machines may see other files under the same names; then the ranks would learn different things, and none would say so.
void Run::check_ranks() {
  if (comm_.size() == 1) return;
  const std::pair<const char*, double> seen[] = {
      {"the text of the configuration (a checksum)", static_cast<double>(std::hash<std::string>{}(config_.text) >> 12)},
      {"the model beside the adapter (a checksum)", static_cast<double>(base_ >> 12)},
      {"teacher and anchor (a checksum)", static_cast<double>((guidance_ ? guidance_->fingerprint() : 0) >> 12)},
      {"the data (a checksum)", static_cast<double>(data_->checksum() >> 12)},
      {"tokens of validation data", validation_ ? static_cast<double>(validation_->tokens()) : 0},
      {"the step to go on from", static_cast<double>(progress_.step)}};
  std::vector<double> range;  // the largest, and minus the smallest
  for (const auto& [what, value] : seen) range.insert(range.end(), {value, -value});
  comm_.all_reduce(range, Comm::Fold::largest);
  for (size_t i = 0; i < std::size(seen); ++i) {
    const double largest = range[2 * i], smallest = -range[2 * i + 1];
    if (largest != smallest)
      throw InputError(
          config_.path + ": " + seen[i].first + ": one process has " + fmt::format("{:.0f}", smallest) + ", another " +
          fmt::format("{:.0f}", largest) +
          ". Every process must see the same configuration, model, data and folder `out`, as on a shared file system");
  }
}

// Before the first step, or where a stop kept the validation of the checkpoint's step from being done.
void Run::measure_what_is_due() {
  Line line = {{"step", 0}, {"tokens", 0}};
  if (checkpoint_ >= 0) line = Line::parse(std::exchange(progress_.validation_due, ""), nullptr, false);
  if (!validation_ || line.is_discarded()) return;
  result_.stopped = !evaluate(line);
  if (result_.stopped || !first()) return;
  folder_.rewind_metrics(progress_.step - 1);  // the step has a line without its validation
  folder_.add_metrics(line.dump());
  if (config_.best && checkpoint_ >= 0 && progress_.best_step == checkpoint_)
    folder_.settle(checkpoint_, checkpoint_, config_.keep);
}

// Returns false if it was stopped before the end; then nothing is known.
bool Run::evaluate(Line& line) {
  BatchSource source(*validation_, {.sequence_length = config_.sequence_length,
                                    .batch = config_.batch / comm_.size(),
                                    .seed = config_.seed,
                                    .documents = config_.documents,
                                    .rank = comm_.rank(),
                                    .ranks = comm_.size(),
                                    .shuffle = false});
  const auto all = static_cast<int64_t>(source.batches_per_epoch());
  const int64_t batches = config_.eval_batches > 0 ? std::min(config_.eval_batches, all) : all;
  double sums[4] = {};  // loss and scored tokens; of the averaged weights
  for (int64_t i = 0; i < batches; ++i) {
    if (any(stop_here())) return false;
    const Batch batch = source.next();
    for (const bool averaged : {false, true}) {
      if (averaged && !config_.ema) continue;
      const Learner::Sum part = learner_.evaluate(batch, averaged);
      sums[averaged ? 2 : 0] += part.loss;
      sums[averaged ? 3 : 1] += static_cast<double>(part.tokens);
    }
  }
  comm_.all_reduce(sums);
  if (sums[1] == 0)
    throw InputError(config_.validation_data + ": no token of the validation data is scored, so it has no loss" + kFirstTokens);
  const double loss = sums[0] / sums[1];
  const bool best = progress_.best_step == 0 || loss < progress_.best_loss;
  line["val_loss"] = loss;
  if (validation_->text_bytes() > 0) {
    const uint64_t first_ones = config_.documents ? validation_->documents() : 1;  // which are never scored
    line["val_bits_per_byte"] = loss / std::numbers::ln2 * static_cast<double>(validation_->tokens() - first_ones) /
                                static_cast<double>(validation_->text_bytes());
  }
  if (config_.ema) line["val_loss_ema"] = sums[2] / std::max(1.0, sums[3]);
  result_.validation_loss = loss;
  if (best && progress_.step > 0) {
    progress_.best_step = progress_.step;
    progress_.best_loss = loss;
  }
  if (first() && events_.evaluated) events_.evaluated(progress_.step, loss, best);
  return true;
}

void Run::sample() {
  if (!first()) return;
  Engine& engine = learner_.engine();
  for (size_t i = 0; i < prompts_.size() && !stop_here(); ++i) {
    GenerateOptions options;
    options.max_tokens = config_.sample_tokens;
    options.sampling.temperature = config_.sample_temperature;
    options.sampling.seed = config_.seed + static_cast<uint64_t>(progress_.step);
    options.eos = engine.end_tokens();
    const Generation made = generate(engine, prompts_[i], options);
    if (events_.sampled) events_.sampled(progress_.step, config_.sample_prompts[i], made.text);
  }
}

void Run::save() {
  result_.checkpoint = folder_.step_path(progress_.step);
  unsaid_ = progress_.step;
  if (!first()) return learner_.each_state();
  TrainProgress kept = progress_;
  if (!config_.best) kept.best_step = 0;
  folder_.save(learner_, companions_, kept, identity_);
  const std::string unlinked = folder_.settle(kept.step, kept.best_step, config_.keep);
  if (events_.saved) events_.saved(progress_.step, result_.checkpoint, unlinked);
}

// Gradient norm and |change| / |weight| of every block, and of what lies outside the blocks.
// Then what the pass showed: gradients of the stream, activations around each norm.
void Run::add_layers(const StepReport& report, const LayerWatch& watch, Line& line) const {
  for (const OneStep::Part& part : parts_of(learner_.parameters(), report)) {
    line["layer_grad_norm"][part.name] = part.gradient;
    line["layer_update_ratio"][part.name] = part.update_ratio;
  }
  const std::vector<double>& stream = watch.stream_gradients();
  for (size_t i = 0; i < stream.size(); ++i)
    line["layer_stream_grad_norm"][i + 1 < stream.size() ? "blocks." + std::to_string(i) : "end"] = stream[i];
  const auto json = [](const ActivationMoments& m) { return Line{{"mean", m.mean}, {"variance", m.variance}}; };
  for (const LayerWatch::Norm& norm : watch.norms())
    line["layer_activation"][norm.name] = {{"before", norm.before ? json(*norm.before) : Line()}, {"after", json(norm.after)}};
}

// The batches of a step. Those in which nothing is scored (documents of one token) are passed over, on all ranks alike.
std::vector<Batch> Run::next_batches() {
  const auto limit = static_cast<int64_t>(source_->batches_per_epoch()) + config_.accumulate;
  for (int64_t passed = 0; passed <= limit; passed += config_.accumulate) {
    std::vector<Batch> batches;
    double scored = 0;
    for (int64_t i = 0; i < config_.accumulate; ++i) {
      const auto number = static_cast<uint64_t>(progress_.step * config_.accumulate + i);
      batches.push_back(guidance_ ? guidance_->next(*source_, number) : source_->next());
      scored += static_cast<double>(scored_in(batches.back().labels));
    }
    comm_.all_reduce({&scored, 1});
    if (scored > 0) return batches;
  }
  throw InputError(config_.train_data + ": no token of a whole epoch is scored, so there is nothing to learn from" +
                   kFirstTokens);
}

TrainResult Run::go() {
  const auto due = [](int64_t every, int64_t step) { return every > 0 && step % every == 0; };
  measure_what_is_due();
  const ModelShape shape = learner_.engine().shape();
  const OpenedModel& opened = learner_.engine().opened();
  const bool residual = !opened.files.config.is_object() || opened.files.config.value("vitrine_residual", true);
  double frozen = 0;  // norms and positions, which are few, included
  if (opened.adapter != nullptr)
    frozen = static_cast<double>(parameter_count(*opened.model) - (shape.tied ? 0 : shape.vocab_size * shape.d_model));
  Clock clock(product_flops_per_s(learner_.engine().context()));
  double step_seconds = 0, comm_seconds = 0;
  while (progress_.step < steps_ && !result_.stopped) {
    const std::vector<Batch> batches = next_batches();
    const bool layers = due(config_.layers_every, progress_.step + 1);
    std::optional<LayerWatch> watch;
    if (layers) watch.emplace(learner_.engine().model(), residual);
    const auto begin = std::chrono::steady_clock::now();
    const double comm_before = comm_.seconds();
    const StepReport report = learner_.step(batches, schedule_.at(progress_.step), layers, watch ? &*watch : nullptr);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
                 waited = comm_.seconds() - comm_before;
    step_seconds += took;
    comm_seconds += waited;
    double flop = 0;
    for (const Batch& batch : batches) flop += step_flop(learner_.parameters(), shape, batch.lengths, frozen);
    progress_.step = report.step;
    progress_.tokens += report.tokens;
    progress_.position = source_->position();
    result_.loss = report.loss;
    const TrainEvents::Rate rate = clock.step(report.tokens, flop, steps_ - progress_.step);
    Line line = {{"step", report.step},
                 {"tokens", progress_.tokens},
                 {"loss", report.loss},
                 {"lr", report.lr},
                 {"grad_norm", report.gradient_norm},
                 {"tokens_per_s", rate.tokens_per_s},
                 {"peak_share", rate.peak_share}};
    if (unsaid_ > 0) line["saved"] = std::exchange(unsaid_, 0);
    if (comm_.size() > 1) line["comm_share"] = waited / took;
    if (guidance_) guidance_->describe(report, batches, line);
    if (watch) add_layers(report, *watch, line);
    if (first() && events_.stepped) events_.stepped(report, rate);
    const bool last = progress_.step == steps_;
    bool measured = true;
    try {
      if (due(config_.eval_every, progress_.step) || (last && config_.eval_every > 0)) measured = evaluate(line);
    } catch (const RunError&) {
      if (first()) folder_.add_metrics(line.dump());  // the step was learned
      throw;
    }
    if (first()) folder_.add_metrics(line.dump());  // before the checkpoint: a resumed run keeps the lines up to it
    progress_.validation_due = measured ? "" : line.dump();
    const bool saved =
        !measured || last || due(config_.save_every, progress_.step) || (config_.best && progress_.best_step == progress_.step);
    if (saved) save();
    if (due(config_.sample_every, progress_.step)) sample();
    result_.stopped = !measured || any(!last && stop_here());
    if (result_.stopped && !saved) save();
    clock.restart();  // validation, samples and checkpoints are no part of the rate
  }
  result_.step = progress_.step;
  result_.tokens = progress_.tokens;
  result_.best_step = config_.best ? progress_.best_step : 0;
  result_.best_loss = progress_.best_loss;
  result_.comm_share = comm_seconds / std::max(step_seconds, 1e-9);
  return result_;
}

}  // namespace

TrainResult train(const TrainConfig& config, bool resume, const TrainEvents& events, Comm* comm) {
  Comm alone;
  return Run(config, resume, events, comm != nullptr ? *comm : alone).go();
}

}  // namespace vitrine
