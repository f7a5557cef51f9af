// What a run opens and checks before its first step.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/memory.h"
#include "io/file_checks.h"
#include "model/abilities.h"
#include "model/config_file.h"
#include "model/fingerprint.h"
#include "model/reward_model.h"
#include "runtime/model_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "train/data/prepare.h"
#include "train/starting_model.h"
#include "train/train_run.h"

namespace vitrine {
namespace {

std::string mib(double bytes) { return std::to_string(static_cast<int64_t>(std::ceil(bytes / 0x1p20))) + " MiB"; }

void check_memory(const TrainConfig& config, double bytes, const std::string& what, const std::string& advice) {
  const auto left = static_cast<double>(available_memory());
  if (left > 0 && bytes > left)
    throw InputError(config.path + ": " + what + " take about " + mib(bytes) + " of memory, and the machine has " + mib(left) +
                     " left. " + advice);
}

}  // namespace

TrainRun::TrainRun(const TrainConfig& config, bool resume, const TrainEvents& events, Comm& comm)
    : config_(config),
      events_(events),
      comm_(comm),
      folder_(config.out, first()),
      checkpoint_(checkpoint_of(resume)),
      learner_(make_learner()),
      companions_(config.lora ? Companions() : companions_of(learner_.engine().opened())) {
  if (checkpoint_ < 0 && config_.model.empty()) name_special_tokens();
  if (config_.rewards() && !config_.lora) name_padding();
  open_data();
  keep_template();
  check_sizes();
  restore();
  check_ranks();
  announce();  // once all is checked
}

// A rank's, for so many parameters: weights, gradients, moments, average.
double TrainRun::state_bytes(double numbers) const {
  return Optimizer::bytes(config_.optimizer, numbers, comm_.size()) + (config_.ema ? numbers * sizeof(float) : 0);
}

Learner TrainRun::make_learner() {
  if (config_.batch % comm_.size() != 0)
    throw InputError(config_.path + ": batch is " + std::to_string(config_.batch) + "; expected a multiple of the " +
                     std::to_string(comm_.size()) + " processes that share it");
  const std::string checkpoint = checkpoint_ < 0 ? "" : folder_.step_path(checkpoint_);
  if (checkpoint_ >= 0 && folder_.of_adapter(checkpoint_) != config_.lora.has_value())
    throw InputError(config_.path + ": the run in " + config_.out +
                     (config_.lora ? " learns a whole model" : " learns an adapter") + ", and the configuration has " +
                     (config_.lora ? "" : "no ") + "lora. Set it back, or begin a new run with another out:");
  OpenedModel opened = open_starting_model(config_, checkpoint);
  require_trainable(*opened.model, config_.path + ": " + opened.files.name);
  if (config_.masked)
    require_fills_masks(*opened.model, opened.files.name, config_.path + ": masked");
  else if (!predicts_next(*opened.model))
    throw InputError(
        config_.path + ": " + opened.files.name + " (" + opened.model->shape().family +
        ") reads a text in both directions, so it cannot learn next tokens, which it sees. Set masked: {} to train it "
        "on masked tokens");
  if (config_.lora) base_ = fingerprint_of(opened);
  if (config_.lora && checkpoint_ < 0) {
    try {
      if (config_.adapter.empty())
        add_fresh_adapter(opened, *config_.lora, config_.seed);
      else
        continue_adapter(opened, config_.adapter);
    } catch (const InputError& error) {
      throw InputError(config_.path + ": " + error.what());
    }
  }
  if (config_.lora && checkpoint_ >= 0) open_adapter(opened, checkpoint);
  const int64_t count = config_.lora ? opened.adapter->parameter_count() : parameter_count(*opened.model);
  check_memory(
      config_, state_bytes(static_cast<double>(count)) * comm_.on_this_machine(), "weights, gradients and the optimizer's state",
      !config_.adapter.empty() ? "Train a smaller adapter"
      : config_.lora           ? "Lower lora.rank or name fewer targets"
                     : "Train a smaller model, set optimizer.moments: bf16, use sgd without momentum, or learn an adapter "
                       "beside it: lora");
  LearnerOptions options{.optimizer = config_.optimizer,
                         .clip = config_.clip,
                         .recomputed_layers = config_.recompute ? Tape::kAllBlocks : 0,
                         .seed = config_.seed,
                         .threads = config_.threads > 0 ? static_cast<int>(config_.threads) : cores_of_rank(comm_),
                         .bf16 = config_.bf16,
                         .comm = &comm_,
                         .ema = config_.ema,
                         .masked = config_.masked.has_value()};
  if (checkpoint_ < 0 && config_.model.empty()) {
    options.init = config_.init;
    options.init->std = initializer_range(opened.files);
  }
  return Learner(std::move(opened), options);
}

// What a configuration leaves out, other programs fill in with their family's ids, which are not this vocabulary's.
void TrainRun::name_special_tokens() {
  Engine& engine = learner_.engine();
  ModelFiles& files = engine.opened().files;
  const bool known = engine.has_tokenizer();
  set_missing_token_id(files, "bos_token_id", known ? engine.tokenizer().bos() : std::nullopt);
  set_missing_token_id(files, "eos_token_id", known ? engine.tokenizer().eos() : std::nullopt);
  static_cast<void>(engine.end_tokens());  // what the checkpoints would be refused for is refused now
}

BatchOptions TrainRun::data_options(bool validation) {
  BatchOptions options{
      .sequence_length = config_.sequence_length,
      .batch = config_.policy ? Rollouts::prompts_of_batch(config_, comm_.size()) : config_.batch / comm_.size(),
      .seed = config_.seed,
      .documents = config_.documents,
      .rank = comm_.rank(),
      .ranks = comm_.size(),
      .shuffle = !validation,
      .whole = config_.rewards() || (!validation && learner_.engine().shape().router_loss > 0 && !config_.distill)};
  if (config_.preference && config_.preference->loss == PreferenceOptions::Loss::kto)
    options.together =
        validation ? validation_->parts()[0].data.documents() : static_cast<uint64_t>(config_.batch * config_.accumulate);
  return options;
}

// Not EOS, with which a text ends.
void TrainRun::name_padding() {
  Engine& engine = learner_.engine();
  const std::optional<int32_t> padding = engine.has_tokenizer() ? engine.tokenizer().padding() : std::nullopt;
  if (padding && padding != engine.tokenizer().eos()) set_missing_padding(engine.opened().files, *padding);
}

void TrainRun::open_data() {
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
  std::vector<DataPart> parts;
  for (const TrainConfig::DataFolder& folder : config_.train_data) parts.push_back({open(folder.path), folder.weight});
  try {
    data_.emplace(std::move(parts));
  } catch (const InputError& error) {
    throw InputError(config_.path + ": data.train: " + error.what());
  }
  if (config_.eval_every > 0) validation_.emplace(std::vector<DataPart>{{open(config_.validation_data)}});
  check_contents();
  source_.emplace(*data_, data_options(false));
  if (Teachers::wanted(config_)) teachers_.emplace(config_, learner_, *data_);
  if (config_.preference) {
    if (config_.preference->reference)
      reference_.emplace(config_.out, data_options(false), validation_ ? data_options(true) : BatchOptions());
    PreferenceOptions options = *config_.preference;
    options.padding = padding_of(learner_.engine().opened().files);
    learner_.set_preference(options);
  }
  if (config_.policy) rollouts_.emplace(config_, learner_, *data_);
  if (config_.masked) find_mask();
  if (config_.tasks_every > 0 && !engine.has_tokenizer())
    throw InputError(config_.path + ": tasks are texts, and the model has no tokenizer. " +
                     (config_.model.empty() ? "Set model.tokenizer, or leave them out" : "Leave them out"));
  if (config_.tasks_every > 0 && first() && !events_.measure)
    throw UsageError(config_.path + ": tasks are answered where `vitrine train` runs the configuration. Leave them out");
  if (!config_.sample_prompts.empty() && !engine.has_tokenizer())
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

// A model that learned conversations is asked in the form that they had, with an adapter too: its folder has the template.
void TrainRun::keep_template() {
  const std::optional<std::string> own = chat_template_of(learner_.engine().opened());
  if (config_.lora && own) companions_[kTemplateName] = *own;
  for (const DataPart& part : data_->parts()) {
    const std::string path = part.data.path() + "/../" + kTemplateName;
    if (!part.data.masked() || !present(path)) continue;
    const std::string text = read_file(path, size_t{1} << 20);
    if (own != text) companions_[kTemplateName] = text;
    return;
  }
}

void TrainRun::find_mask() {
  const Engine& engine = learner_.engine();
  const Tokenizer* const tokenizer = engine.has_tokenizer() ? &engine.tokenizer() : nullptr;
  const int32_t mask = mask_for_training(*config_.masked, engine.opened(), tokenizer, config_.path + ": masked");
  std::vector<bool> special;
  for (int32_t id = 0; tokenizer != nullptr && id < tokenizer->vocab_size(); ++id) special.push_back(tokenizer->is_control(id));
  const int64_t known = tokenizer != nullptr ? tokenizer->vocab_size() : engine.shape().vocab_size;
  masker_.emplace(*config_.masked, mask, static_cast<int32_t>(std::min(known, engine.shape().vocab_size)), std::move(special),
                  config_.seed);
}

// What the data hold must be what the configuration learns from.
void TrainRun::check_contents() const {
  for (const DataMix* mix : {&*data_, validation_ ? &*validation_ : nullptr}) {
    if (mix == nullptr) continue;
    for (const DataPart& part : mix->parts()) {
      const std::string where = config_.path + ": " + part.data.path();
      const bool pairs = part.data.content() == DataContent::preferences, unpaired = part.data.content() == DataContent::unpaired;
      if ((pairs || unpaired) && !config_.preference)
        throw InputError(where + " holds " + (pairs ? "preferences. Set dpo" : "unpaired preferences. Set kto") +
                         ": {beta: 0.1} to learn from them, or name other data");
      if (config_.preference && !(config_.preference->unpaired() ? unpaired : pairs))
        throw InputError(where + " holds " + content_name(part.data.content()) + ", and " + config_.preference->section +
                         (config_.preference->unpaired()
                              ? " learns from unpaired preferences. `vitrine data --unpaired-preferences` makes them from "
                                "{\"prompt\", \"completion\", \"label\"} or {\"prompt\", \"chosen\", \"rejected\"} lines"
                              : " learns from preferences. `vitrine data --preferences` makes them from "
                                "{\"prompt\", \"chosen\", \"rejected\"} lines"));
      const bool prompts = part.data.content() == DataContent::prompts;
      if (prompts && !config_.policy)
        throw InputError(where +
                         " holds prompts. Set grpo: {reward: COMMAND, max_tokens: 64} to learn from rewards, or name other data");
      if (!prompts && config_.policy)
        throw InputError(where + " holds " + content_name(part.data.content()) +
                         ", and grpo learns from prompts. `vitrine data --prompts` makes them from {\"prompt\"} lines");
      if (part.data.masked() && config_.masked)
        throw InputError(where + " holds " + content_name(part.data.content()) +
                         ", and masked hides tokens of texts. `vitrine data` makes them");
      if (!part.data.masked()) continue;
      if (!config_.documents)
        throw InputError(where + " holds " + content_name(part.data.content()) +
                         ", which never run into each other. Leave data.documents out");
      if (config_.distill && (!config_.distill->cache.empty() || config_.distill->on_policy > 0))
        throw InputError(where +
                         " holds conversations, with which distill.cache and distill.on_policy do not go. Leave them out");
    }
  }
}

void TrainRun::check_sizes() {
  const ModelShape shape = learner_.engine().shape();
  if (shape.context_length > 0 && config_.sequence_length > shape.context_length)
    throw InputError(config_.path + ": sequence_length is " + std::to_string(config_.sequence_length) +
                     "; the context of the model holds " + std::to_string(shape.context_length));
  const int64_t rows = config_.batch / comm_.size() * source_->rows_per_window();
  // Tokens and labels of all batches of a step, and of one again in parts.
  double by_row = 8.0 * static_cast<double>(config_.accumulate + 1);
  if (config_.distill && !config_.distill->cache.empty())  // a token and a number for each of the teacher's most likely
    by_row += static_cast<double>(std::min(config_.distill->top_k, shape.vocab_size)) *
              (8.0 * static_cast<double>(config_.accumulate + 1) + 20);
  if (config_.policy ||
      (config_.distill && config_.distill->on_policy > 0))  // keys and values of the sequences that the model continues
    by_row += 8.0 * static_cast<double>(shape.n_layers * shape.n_kv_heads * shape.head_dim);
  const double tokens = static_cast<double>(rows) * by_row;
  const std::string what = "the activations and tokens of batches of " + std::to_string(config_.batch) +
                           (source_->rows_per_window() > config_.sequence_length ? " pairs of sequences of " : " sequences of ") +
                           std::to_string(config_.sequence_length) + " tokens";
  const int here = comm_.on_this_machine();
  if (config_.memory == 0) {
    activation_bytes_ = learner_.activation_bytes(rows, config_.sequence_length, config_.accumulate) + tokens;
  } else {
    const double state = state_bytes(static_cast<double>(learner_.parameters().size()));
    activation_bytes_ = tokens + learner_.recompute_within(config_.memory / here - state - tokens, rows, config_.sequence_length,
                                                           config_.accumulate);
    if ((state + activation_bytes_) * here > config_.memory)
      throw InputError(config_.path + ": memory is " + mib(config_.memory) + ", and the run takes " +
                       mib((state + activation_bytes_) * here) + " with every block recomputed: " + mib(state * here) +
                       " for weights, gradients and the optimizer's state, and " + mib(activation_bytes_ * here) + " for " +
                       what + ". Raise memory to that, or lower batch or sequence_length");
  }
  check_memory(config_, activation_bytes_ * here, what,
               std::string("Lower batch or sequence_length") +
                   (config_.recompute || config_.memory > 0 ? "" : ", or set recompute: true"));
  steps_ = config_.steps;
  if (steps_ == 0)
    steps_ = std::max<int64_t>(
        1, std::llround(config_.epochs * static_cast<double>(source_->windows_per_epoch()) / windows_of_step()));
  if (config_.policy && config_.steps == 0)  // all that the last completions are learned by
    steps_ = (steps_ + config_.policy->iterations - 1) / config_.policy->iterations * config_.policy->iterations;
  if (teachers_) teachers_->check_space(static_cast<uint64_t>(steps_) * static_cast<uint64_t>(config_.accumulate));
  schedule_ = config_.schedule;
  if (schedule_.length == 0) schedule_.length = steps_;
  if (config_.warmup_ratio > 0)
    schedule_.warmup = static_cast<int64_t>(std::ceil(config_.warmup_ratio * static_cast<double>(schedule_.length)));
  if (schedule_.warmup >= schedule_.length && schedule_.decay != Schedule::Decay::constant)
    throw InputError(config_.path + ": schedule.warmup is " + std::to_string(schedule_.warmup) + "; expected fewer than the " +
                     std::to_string(schedule_.length) + " steps of the schedule");
  if (schedule_.decay == Schedule::Decay::wsd && schedule_.cooldown > schedule_.length - schedule_.warmup)
    throw InputError(config_.path + ": schedule.cooldown is " + std::to_string(schedule_.cooldown) + "; expected at most the " +
                     std::to_string(schedule_.length - schedule_.warmup) + " steps that the schedule has after its warmup");
  if (schedule_.cycles > 1 && schedule_.cycles > schedule_.length - schedule_.warmup)
    throw InputError(config_.path + ": schedule.cycles is " + std::to_string(schedule_.cycles) + "; expected at most the " +
                     std::to_string(schedule_.length - schedule_.warmup) + " steps that the schedule has after its warmup");
}

void TrainRun::announce() {
  if (!first() || !events_.started) return;
  std::vector<TrainEvents::DataShare> shares;
  const double sequences = static_cast<double>(steps_) * windows_of_step();
  const std::vector<PartPosition> positions = source_->parts();
  for (size_t i = 0; i < positions.size(); ++i) {
    const TokenData& data = data_->parts()[i].data;
    shares.push_back({data.path(), data_->share(i), data.tokens(),
                      sequences * data_->share(i) / static_cast<double>(positions[i].windows), positions[i].cut});
  }
  events_.started({.parameters = learner_.parameters().count(),
                   .steps = steps_,
                   .first_step = std::max<int64_t>(0, checkpoint_),
                   .state_bytes = state_bytes(static_cast<double>(learner_.parameters().size())),
                   .activation_bytes = activation_bytes_,
                   .recomputed_layers = learner_.recomputed_layers(),
                   .data_tokens = data_->tokens(),
                   .data = std::move(shares),
                   .ranks = comm_.size(),
                   .threads = learner_.engine().context().pool().threads()});
}

// Machines may see other files under the same names; then the ranks would learn different things, and none would say so.
void TrainRun::check_ranks() {
  if (comm_.size() == 1) return;
  const std::pair<const char*, double> seen[] = {
      {"the text of the configuration (a checksum)", static_cast<double>(std::hash<std::string>{}(config_.text) >> 12)},
      {"the model beside the adapter (a checksum)", static_cast<double>(base_ >> 12)},
      {"teacher, anchor and starting model (a checksum)",
       static_cast<double>(((teachers_ ? teachers_->fingerprint() : 0) + (rollouts_ ? rollouts_->fingerprint() : 0)) >> 12)},
      {"the data (a checksum)", static_cast<double>(data_->checksum() >> 12)},
      {"tokens of validation data", validation_ ? static_cast<double>(validation_->tokens()) : 0.0},
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

}  // namespace vitrine
