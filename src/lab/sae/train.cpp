#include "sae/train.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/permutation.h"
#include "base/stopwatch.h"
#include "io/atomic_file.h"
#include "io/folder_lock.h"
#include "io/safetensors.h"
#include "kernels/table.h"
#include "sae/autoencoder.h"
#include "sae/circuit_tracer.h"
#include "sae/cross_layer_trainer.h"
#include "sae/sae_file.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr size_t kForScale = 1 << 16;  // tokens from which the mean norm is estimated
constexpr size_t kTogether = 64;       // rows of a task

const char* name_of(SaeLearning::Architecture a) {
  switch (a) {
    case SaeLearning::Architecture::topk: return "topk";
    case SaeLearning::Architecture::batchtopk: return "batchtopk";
    case SaeLearning::Architecture::jumprelu: return "jumprelu";
    case SaeLearning::Architecture::standard: return "standard";
    case SaeLearning::Architecture::gated: return "gated";
  }
  return "";
}

/// Which token comes next: all of them once in an order drawn by the seed, then in another.
class Order {
 public:
  Order(const Activations& activations, uint64_t seed, int64_t skip_positions)
      : activations_(activations), seed_(seed), skip_(skip_positions) {
    if (skip_ <= 0) return;
    for (uint64_t t = 0; t < activations.tokens(); ++t)
      if (activations.position(t) >= skip_) return;
    throw InputError(activations.path() + ": no context has more than " + std::to_string(skip_) +
                     " tokens, so leaving out that many leaves nothing");
  }
  void next(size_t n, std::vector<uint64_t>& tokens) {
    tokens.clear();
    while (tokens.size() < n) {
      const uint64_t all = activations_.tokens();
      const Permutation order(all, seed_ + 0x9E3779B97F4A7C15u * (drawn / all + 1));
      for (uint64_t i = drawn % all; i < all && tokens.size() < n; ++i, ++drawn) {
        const uint64_t token = order(i);
        if (skip_ <= 0 || activations_.position(token) >= skip_) tokens.push_back(token);
      }
    }
  }
  uint64_t drawn = 0;

 private:
  const Activations& activations_;
  uint64_t seed_;
  int64_t skip_;
};

/// Their values, multiplied by `scale`, as rows that begin `stride` numbers apart.
void read_rows(ThreadPool& pool, const Activations& activations, size_t hook, const std::vector<uint64_t>& tokens, double scale,
               float* x, size_t stride) {
  const auto d = static_cast<size_t>(activations.manifest().hooks[hook].numbers());
  const auto widen = kernels().widen[static_cast<int>(activations.manifest().type)];
  pool.run(static_cast<int64_t>((tokens.size() + kTogether - 1) / kTogether), [&](int64_t task, int) {
    const size_t begin = static_cast<size_t>(task) * kTogether, end = std::min(tokens.size(), begin + kTogether);
    for (size_t i = begin; i < end; ++i) {
      float* const row = x + i * stride;
      widen(activations.stored(hook, tokens[i]), d, row);
      if (scale != 1) kernels().scale(row, static_cast<float>(scale), d, row);
    }
  });
}

// What makes the mean norm of the hook's values the root of their width.
double scale_of(ThreadPool& pool, const Activations& activations, size_t hook, const SaeTrainOptions& o) {
  Order order(activations, o.learning.seed, o.skip_positions);
  std::vector<uint64_t> tokens;
  order.next(static_cast<size_t>(std::min<uint64_t>(kForScale, activations.tokens())), tokens);
  const auto d = static_cast<size_t>(activations.manifest().hooks[hook].numbers());
  FloatVector x(tokens.size() * d);
  read_rows(pool, activations, hook, tokens, 1, x.data(), d);
  double norms = 0;
  for (size_t i = 0; i < tokens.size(); ++i) norms += std::sqrt(kernels().sum_of_squares(x.data() + i * d, d));
  if (!std::isfinite(norms) || norms <= 0)
    throw RunError(activations.path() + ": the activations' mean norm is " + std::to_string(norms) +
                   ", so they cannot be scaled");
  return std::sqrt(static_cast<double>(d)) / (norms / static_cast<double>(tokens.size()));
}

/// Everything that decides what comes out, apart from how long it goes on.
nlohmann::ordered_json settings(const Activations& activations, const std::string& hook, const SaeTrainOptions& o) {
  const SaeLearning& l = o.learning;
  nlohmann::ordered_json s{{"architecture", name_of(l.architecture)},
                           {"features", l.features},
                           {"batch", o.batch},
                           {"lr", l.lr},
                           {"lr_warm_up", l.lr_warm_up},
                           {"lr_decay", l.lr_decay},
                           {"beta1", l.beta1},
                           {"beta2", l.beta2},
                           {"eps", l.eps},
                           {"seed", l.seed},
                           {"decoder_norm", l.decoder_norm},
                           {"dead_window", l.dead_window},
                           {"normalize", o.normalize},
                           {"skip_positions", o.skip_positions},
                           {"hook", hook},
                           {"tokens", activations.tokens()},
                           {"checksum", activations.manifest().checksum}};
  if (l.lr_decay > 0) s["steps"] = l.steps;
  if (!o.target.empty()) {
    s["transcoder"] = o.target;
    s["skip"] = l.skip;
    if (o.cross_layer) s["cross_layer"] = true;
  }
  if (takes_k(l)) {
    s["k"] = l.k;
    s["aux_coefficient"] = l.aux_coefficient;
    if (l.architecture == SaeLearning::Architecture::batchtopk) {
      s["widths"] = l.widths;
      s["threshold_lr"] = l.threshold_lr;
    }
    return s;
  }
  s["sparsity_coefficient"] = l.sparsity_coefficient;
  s["sparsity_warm_up"] = l.sparsity_warm_up;
  if (l.architecture == SaeLearning::Architecture::jumprelu) {
    s["sparsity"] = l.sparsity == SaeLearning::Sparsity::tanh ? "tanh" : "step";
    s["threshold"] = l.threshold;
    s["bandwidth"] = l.bandwidth;
    s["tanh_scale"] = l.tanh_scale;
    s["ste_to_input"] = l.ste_to_input;
  }
  return s;
}

/// Calls f(name, numbers) for everything that a trainer keeps as f32.
template <class F>
void each_state(SaeTrainer& trainer, F&& f) {
  struct Kind {
    const char* prefix;
    SaeParameters* values;
  };
  for (const Kind& kind : {Kind{"", &trainer.parameters}, Kind{"first_moment.", &trainer.first_moment},
                           Kind{"second_moment.", &trainer.second_moment}})
    for (size_t i = 0; i < SaeParameters::kCount; ++i)
      if (!(*kind.values)[i].empty()) f(std::string(kind.prefix) + SaeParameters::kNames[i], (*kind.values)[i]);
}

/// Refuses what does not fit before anything is allocated: parameters, their gradients and moments, and what a step has of its
/// rows. d_out: 0 of an autoencoder. layers: of a cross-layer transcoder, each of which writes d_out numbers into half of them on
/// average.
const SaeLearning& require_room(const SaeTrainOptions& o, int64_t d_in, int64_t d_out, size_t layers) {
  const SaeLearning& l = o.learning;
  const auto each = static_cast<double>(layers);
  const auto in = static_cast<double>(d_in), out = static_cast<double>(d_out > 0 ? d_out : d_in) * (each + 1) / 2;
  const auto features = static_cast<double>(l.features), rows = static_cast<double>(o.batch), k = static_cast<double>(l.k);
  const bool gated = l.architecture == SaeLearning::Architecture::gated, dense = !takes_k(l) && !gated;
  // Where k does not say it, all features may be active at first. Entries and their uses by feature take 40 bytes together.
  const double candidates = l.architecture == SaeLearning::Architecture::batchtopk ? 5 * k : k;
  const double active = takes_k(l) ? std::min(candidates, features) + out / 2 : gated ? 2 * features : features;
  const double of_row = 2 * in + (d_out > 0 ? 3 : 2) * out + static_cast<double>(l.widths.size()) * out + 10 * active;
  const double numbers = features * (5 * in + (dense ? 6 : 4) * out) + (l.skip ? 5 * in * out : 0) + rows * of_row;
  const double bytes = numbers * each * sizeof(float), left = static_cast<double>(o.memory > 0 ? o.memory : available_memory());
  if (left > 0 && bytes > left)
    throw InputError("training " + std::to_string(l.features) + " features on " + std::to_string(o.batch) +
                     " tokens a step would take " + bytes_text(bytes) + " of memory; " + bytes_text(left) +
                     " are left. Take fewer features, or a smaller batch");
  return l;
}

// The hooks of one option: of a cross-layer transcoder those of each layer.
std::vector<size_t> hooks_of(const Activations& activations, const SaeTrainOptions& o, const std::string& name,
                             const char* option) {
  if (!o.cross_layer) return {activations.hook(name)};
  const size_t star = name.find('*');
  if (star == std::string::npos || name.find('*', star + 1) != std::string::npos)
    throw InputError(std::string(option) + " is \"" + name +
                     "\"; of a cross-layer transcoder it holds one * for the layer, such as blocks.*.hook_mlp_out");
  const auto of_layer = [&](size_t layer) { return name.substr(0, star) + std::to_string(layer) + name.substr(star + 1); };
  const auto& all = activations.manifest().hooks;
  const auto is_there = [&](const std::string& wanted) {
    return std::any_of(all.begin(), all.end(), [&](const ActivationManifest::Hook& hook) { return hook.name == wanted; });
  };
  std::vector<size_t> hooks{activations.hook(of_layer(0))};
  while (is_there(of_layer(hooks.size()))) hooks.push_back(activations.hook(of_layer(hooks.size())));
  return hooks;
}

// Where what is learned writes: of an autoencoder where it reads.
std::vector<size_t> targets_of(const Activations& activations, const SaeTrainOptions& o, const std::vector<size_t>& hooks) {
  if (o.target.empty()) {
    if (o.cross_layer) throw UsageError("cross_layer is of transcoders: name where it writes, such as blocks.*.hook_mlp_out");
    return hooks;
  }
  std::vector<size_t> targets = hooks_of(activations, o, o.target, "what a transcoder writes at");
  const auto& all = activations.manifest().hooks;
  if (targets.size() != hooks.size())
    throw InputError(activations.path() + ": holds " + o.hook + " of " + std::to_string(hooks.size()) + " layers and " +
                     o.target + " of " + std::to_string(targets.size()) + "; a cross-layer transcoder takes both of each layer");
  for (size_t i = 0; i < hooks.size(); ++i) {
    if (targets[i] == hooks[i])
      throw InputError("a transcoder reads one hook and writes at another; " + all[hooks[i]].name +
                       " is both. Name what it reads, such as blocks.3.ln2.hook_normalized, and where it writes, such as "
                       "blocks.3.hook_mlp_out");
    for (const size_t hook : {hooks[i], targets[i]})
      if (o.cross_layer && all[hook].numbers() != all[hooks[0]].numbers())
        throw InputError(all[hook].name + " has " + std::to_string(all[hook].numbers()) + " numbers a token and " +
                         all[hooks[0]].name + " " + std::to_string(all[hooks[0]].numbers()) +
                         "; a cross-layer transcoder reads and writes rows of one width");
  }
  return targets;
}

// The learned parameters as SAELens's inference model has them: of topk and batchtopk with decoder rows of norm 1 before the
// scales are undone; batchtopk as jumprelu. target_scales: of each layer that it writes into.
SparseAutoencoder trained_autoencoder(const SaeTrainer& trainer, double scale, std::span<const double> target_scales) {
  const SaeLearning& l = trainer.learning();
  const SaeParameters& q = trainer.parameters;
  const auto F = static_cast<size_t>(l.features), D = static_cast<size_t>(trainer.d_in()),
             O = static_cast<size_t>(trainer.d_out());
  const size_t width = O / target_scales.size();
  using enum SaeLearning::Architecture;
  using Activation = SparseAutoencoder::Activation;
  SparseAutoencoder sae;
  sae.activation = l.architecture == topk       ? Activation::topk
                   : l.architecture == gated    ? Activation::gated
                   : l.architecture == standard ? Activation::relu
                                                : Activation::jumprelu;
  sae.transcoder = trainer.is_transcoder();
  sae.apply_b_dec_to_input = !sae.transcoder;
  sae.d_in = trainer.d_in();
  sae.d_out = trainer.d_out();
  sae.d_sae = l.features;
  sae.k = l.architecture == topk ? l.k : 0;
  sae.W_dec = q.W_dec;
  sae.W_enc.resize(F * D);
  sae.b_enc = q.b_enc;
  sae.b_dec = q.b_dec;
  sae.b_dec.resize(O, 0.0F);  // of a later layer none
  sae.threshold = q.threshold;
  for (float& t : sae.threshold) t = std::max(t, 0.0f);
  if (l.architecture == batchtopk) sae.threshold.assign(F, static_cast<float>(trainer.batch_threshold));
  for (size_t f = 0; f < F; ++f) {
    double norm = 1;  // of those that choose by h · norm, which becomes the feature
    if (takes_k(l)) norm = std::max(std::sqrt(kernels().sum_of_squares(q.W_dec.data() + f * O, O)), 1e-8);
    const auto enc = static_cast<float>(norm * scale);
    for (size_t i = 0; i < D; ++i) sae.W_enc[i * F + f] = q.W_enc[f * D + i] * enc;
    for (size_t i = 0; i < O; ++i) sae.W_dec[f * O + i] *= static_cast<float>(1 / (norm * target_scales[i / width]));
    sae.b_enc[f] *= static_cast<float>(norm);
  }
  for (size_t i = 0; i < O; ++i) sae.b_dec[i] = static_cast<float>(static_cast<double>(sae.b_dec[i]) / target_scales[i / width]);
  sae.W_skip = q.W_skip;
  for (float& w : sae.W_skip) w = static_cast<float>(static_cast<double>(w) * scale / target_scales[0]);
  if (l.architecture == gated) {
    sae.b_gate = std::move(sae.b_enc);
    sae.b_enc.clear();
    sae.r_mag = q.r_mag;
    sae.b_mag = q.b_mag;
  }
  return sae;
}

// What a run trains.
class Trainee {
 public:
  Trainee(const SaeTrainOptions& o, int64_t d_in, int64_t d_out, size_t layers) {
    const SaeLearning& l = require_room(o, d_in, d_out, layers);
    if (!o.cross_layer) {
      one_ = std::make_unique<SaeTrainer>(l, d_in, d_out);
      trainers_ = {one_.get()};
      return;
    }
    all_ = std::make_unique<CrossLayerTrainer>(l, static_cast<int64_t>(layers), d_in, d_out);
    for (size_t i = 0; i < layers; ++i) trainers_.push_back(&all_->layer(i));
  }

  SaeStep step(ThreadPool& pool, const std::vector<FloatVector>& x, size_t rows, const FloatVector& target) {
    if (one_) return one_->step(pool, x[0].data(), rows, one_->is_transcoder() ? target.data() : nullptr);
    std::vector<const float*> inputs;
    for (const FloatVector& of_layer : x) inputs.push_back(of_layer.data());
    return all_->step(pool, inputs, rows, target.data());
  }

  /// One, or that of each layer.
  const std::vector<SaeTrainer*>& trainers() const { return trainers_; }
  SaeTrainer& first() const { return *trainers_[0]; }

 private:
  std::unique_ptr<SaeTrainer> one_;
  std::unique_ptr<CrossLayerTrainer> all_;
  std::vector<SaeTrainer*> trainers_;
};

// One number as such, several as a list.
template <class T>
Json one_or_list(const std::vector<T>& values) {
  return values.size() == 1 ? Json(values[0]) : Json(values);
}

class Run {
 public:
  Run(ThreadPool& pool, const Activations& activations, const SaeTrainOptions& options)
      : pool_(pool),
        activations_(activations),
        options_(options),
        hooks_(hooks_of(activations, options, options.hook, "what a transcoder reads")),
        targets_(targets_of(activations, options, hooks_)),
        trainee_(options, width(hooks_[0]), options.target.empty() ? 0 : width(targets_[0]), hooks_.size()),
        order_(activations, options.learning.seed, options.skip_positions),
        settings_(settings(activations, options.cross_layer ? options.hook : name(hooks_[0]), options).dump()) {
    if (options.batch < 1) throw UsageError("a batch needs at least one token");
    if (options.learning.steps < 1) throw UsageError("training needs at least one step");
    if (options.learning.lr_warm_up + options.learning.lr_decay > options.learning.steps)
      throw UsageError("warm-up and decay of the rate are " + std::to_string(options.learning.lr_warm_up) + " and " +
                       std::to_string(options.learning.lr_decay) + " steps, more than the run's " +
                       std::to_string(options.learning.steps));
    open_folder();
  }

  SaeTrained go(const std::function<bool(const SaeProgress&)>& see) {
    SaeTrained result;
    result.first_step = taken() + 1;
    result.scales = scales_;
    result.target_scales = target_scales_;
    std::vector<uint64_t> tokens;
    uint64_t rows = 0;
    bool on = true;
    while (on && taken() < options_.learning.steps) {
      const Stopwatch watch;
      SaeProgress progress;
      progress.lr = trainee_.first().lr_now();
      order_.next(static_cast<size_t>(options_.batch), tokens);
      read(tokens);
      progress.now = result.last = trainee_.step(pool_, x_, tokens.size(), target_);
      rows += tokens.size();
      result.seconds += watch.ms() / 1000;
      progress.step = taken();
      progress.activations_per_s = static_cast<double>(rows) / std::max(result.seconds, 1e-9);
      progress.saved = options_.save_every > 0 && taken() % options_.save_every == 0 && taken() < options_.learning.steps;
      if (see) on = see(progress);  // before the state is saved, from which no earlier step is seen again
      if (progress.saved && on) save();
    }
    save();  // also of a run that was killed between its last state and the weights
    result.steps = taken();
    for (const SaeTrainer* trainer : trainee_.trainers())
      for (const int64_t silent : trainer->silent) result.dead += silent > options_.learning.dead_window ? 1 : 0;
    return result;
  }

 private:
  int64_t taken() const { return trainee_.first().steps; }
  bool is_transcoder() const { return !options_.target.empty(); }
  bool takes_batch() const { return options_.learning.architecture == SaeLearning::Architecture::batchtopk; }
  const std::string& name(size_t hook) const { return activations_.manifest().hooks[hook].name; }
  int64_t width(size_t hook) const { return activations_.manifest().hooks[hook].numbers(); }
  std::string path(const char* file) const { return (fs::path(options_.out) / file).string(); }
  // Of a layer's numbers in the state.
  std::string prefix(size_t layer) const { return options_.cross_layer ? "layers." + std::to_string(layer) + "." : ""; }

  // Into x_ of each layer, and side by side into target_.
  void read(const std::vector<uint64_t>& tokens) {
    x_.resize(hooks_.size());
    for (size_t i = 0; i < hooks_.size(); ++i) {
      const auto d = static_cast<size_t>(width(hooks_[i]));
      x_[i].resize(tokens.size() * d);
      read_rows(pool_, activations_, hooks_[i], tokens, scales_[i], x_[i].data(), d);
    }
    if (!is_transcoder()) return;
    const auto d = static_cast<size_t>(width(targets_[0]));
    const size_t stride = d * targets_.size();
    target_.resize(tokens.size() * stride);
    for (size_t i = 0; i < targets_.size(); ++i)
      read_rows(pool_, activations_, targets_[i], tokens, target_scales_[i], target_.data() + i * d, stride);
  }

  void open_folder() {
    std::error_code error;
    const std::string& out = options_.out;
    if (fs::exists(out, error) && !fs::is_directory(out, error))
      throw InputError(out + ": is a file; an autoencoder is a folder");
    fs::create_directories(out, error);
    if (error) throw InputError(out + ": cannot be made: " + error.message());
    lock_.emplace(out, out + ": another process trains here. Wait for it, or name another folder");
    if (options_.resume) remove_leftovers(out);
    if (options_.resume && fs::exists(path(kSaeTrainerState), error)) return load();
    for (const auto& entry : fs::directory_iterator(out, error)) {
      if (!options_.resume)
        throw InputError(out + ": exists and holds something. Name another folder, or resume the run that made it");
      if (entry.path().filename() != kSaeMetrics)  // of a run that was killed before its first state
        throw InputError(out + ": holds no " + kSaeTrainerState + " to resume from; leave resume away to begin a run");
    }
    const auto scales = [&](const std::vector<size_t>& hooks) {
      std::vector<double> found;
      for (const size_t hook : hooks) found.push_back(options_.normalize ? scale_of(pool_, activations_, hook, options_) : 1);
      return found;
    };
    scales_ = scales(hooks_);
    target_scales_ = is_transcoder() ? scales(targets_) : scales_;
  }

  void load() {
    const std::string file = path(kSaeTrainerState);
    const Checkpoint state = open_safetensors(file);
    const auto word = [&](const char* key) {
      const auto found = state.metadata().find(key);
      if (found == state.metadata().end()) throw FileError(file, std::string("has no \"") + key + "\" in its metadata");
      return found->second;
    };
    const Json before = parse_json(word("settings"), file), now = parse_json(settings_, file);
    for (const auto& [key, value] : now.items())
      if (!before.contains(key) || before.at(key) != value)
        throw InputError(options_.out + ": its run has " + key + " " + (before.contains(key) ? before.at(key).dump() : "not") +
                         ", this one " + value.dump() + ". Resume with what it was begun with, or name another folder");
    const Json counts = parse_json(word("counts"), file);
    const auto count = [&](const char* key) {
      if (!counts.is_object() || !counts.contains(key) || !counts.at(key).is_number_unsigned())
        throw FileError(file, std::string("\"") + key + "\" is missing in its counts");
      return counts.at(key).get<uint64_t>();
    };
    const auto numbers = [&](const char* key) {  // of each layer
      const Json found = counts.value(key, Json());
      std::vector<double> values;
      for (const Json& one : found.is_array() ? found : Json::array({found}))
        if (one.is_number()) values.push_back(one.get<double>());
      if (values.size() != hooks_.size()) throw FileError(file, std::string("\"") + key + "\" is missing in its counts");
      return values;
    };
    order_.drawn = count("drawn");
    scales_ = numbers("scale");
    target_scales_ = is_transcoder() ? numbers("target_scale") : scales_;
    const std::vector<double> thresholds = takes_batch() ? numbers("batch_threshold") : std::vector<double>(hooks_.size());
    for (size_t layer = 0; layer < hooks_.size(); ++layer) {
      SaeTrainer& trainer = *trainee_.trainers()[layer];
      trainer.steps = static_cast<int64_t>(count("steps"));
      trainer.rows_seen = count("rows_seen");
      trainer.batch_threshold = thresholds[layer];
      each_state(trainer, [&](const std::string& name, FloatVector& values) {
        std::memcpy(values.data(), tensor(state, prefix(layer) + name, DType::f32, values.size() * sizeof(float)),
                    values.size() * sizeof(float));
      });
      for (auto [name, values] : {std::pair{"silent", &trainer.silent}, std::pair{"activations", &trainer.activations}})
        std::memcpy(values->data(), tensor(state, prefix(layer) + name, DType::i64, values->size() * 8), values->size() * 8);
    }
    if (taken() > options_.learning.steps)
      throw InputError(options_.out + ": has taken " + std::to_string(taken()) + " steps already; give more than " +
                       std::to_string(options_.learning.steps) + " to go on");
  }

  const std::byte* tensor(const Checkpoint& state, const std::string& name, DType type, size_t bytes) const {
    const StoredTensor* found = state.find(name);
    if (found == nullptr || found->dtype != type || found->bytes != bytes)
      throw FileError(path(kSaeTrainerState), "holds no tensor \"" + name + "\" of " + std::to_string(bytes) + " bytes");
    return found->data;
  }

  void save() {
    save_state();
    if (options_.cross_layer) return save_cross_layer();
    const SaeTrainer& trainer = trainee_.first();
    const int64_t features = options_.learning.features;
    std::vector<float> sparsity(static_cast<size_t>(features));
    double active = 0;
    for (size_t f = 0; f < sparsity.size(); ++f) {
      const double share =
          static_cast<double>(trainer.activations[f]) / static_cast<double>(std::max<uint64_t>(trainer.rows_seen, 1));
      active += share;
      sparsity[f] = static_cast<float>(std::log10(share + 1e-10));
    }
    write_safetensors(path("sparsity.safetensors"), {{"sparsity", DType::f32, {features}, sparsity.data()}});
    const ActivationManifest& m = activations_.manifest();
    const SaeLearning& l = options_.learning;
    write_sae(options_.out, named(trained_autoencoder(trainer, scales_[0], target_scales_), 0),
              {{"context_size", m.context},
               {"prepend_bos", m.lead >= 0},
               {"l0", active},
               {"training_tokens", trainer.rows_seen},
               {"training_architecture", (l.widths.empty() ? "" : "matryoshka_") + std::string(name_of(l.architecture))}});
  }

  void save_state() {
    const std::vector<SaeTrainer*>& trainers = trainee_.trainers();
    nlohmann::ordered_json counts{
        {"steps", taken()}, {"rows_seen", trainee_.first().rows_seen}, {"drawn", order_.drawn}, {"scale", one_or_list(scales_)}};
    if (is_transcoder()) counts["target_scale"] = one_or_list(target_scales_);
    if (takes_batch()) {
      std::vector<double> thresholds;
      for (const SaeTrainer* trainer : trainers) thresholds.push_back(trainer->batch_threshold);
      counts["batch_threshold"] = one_or_list(thresholds);
    }
    std::vector<TensorToWrite> tensors;
    for (size_t layer = 0; layer < trainers.size(); ++layer) {
      SaeTrainer& trainer = *trainers[layer];
      each_state(trainer, [&](const std::string& name, FloatVector& numbers) {
        const auto n = static_cast<int64_t>(numbers.size());
        const bool reads = name.ends_with("W_enc") || name.ends_with("W_skip");
        const int64_t columns = reads ? trainer.d_in() : name.ends_with("W_dec") ? trainer.d_out() : 0;
        tensors.push_back({prefix(layer) + name, DType::f32,
                           columns > 0 ? std::vector<int64_t>{n / columns, columns} : std::vector<int64_t>{n}, numbers.data()});
      });
      const int64_t features = options_.learning.features;
      tensors.push_back({prefix(layer) + "silent", DType::i64, {features}, trainer.silent.data()});
      tensors.push_back({prefix(layer) + "activations", DType::i64, {features}, trainer.activations.data()});
    }
    write_safetensors(path(kSaeTrainerState), tensors, {{"settings", settings_}, {"counts", counts.dump()}});
  }

  void save_cross_layer() const {
    CrossLayerTranscoder t;
    t.n_layers = static_cast<int64_t>(hooks_.size());
    t.d_model = width(hooks_[0]);
    t.d_sae = options_.learning.features;
    const auto d = static_cast<ptrdiff_t>(t.d_model);
    for (size_t i = 0; i < hooks_.size(); ++i) {
      SparseAutoencoder layer =
          named(trained_autoencoder(*trainee_.trainers()[i], scales_[i], std::span(target_scales_).subspan(i)), i);
      for (ptrdiff_t l = 0; i == 0 && l < t.n_layers; ++l)  // that of all layers
        t.b_dec.emplace_back(layer.b_dec.begin() + l * d, layer.b_dec.begin() + (l + 1) * d);
      layer.b_dec.assign(layer.b_dec.size(), 0.0F);
      t.layers.push_back(std::move(layer));
    }
    write_cross_layer(options_.out, t);
  }

  SparseAutoencoder named(SparseAutoencoder&& sae, size_t layer) const {
    sae.hook_name = name(hooks_[layer]);
    sae.hook_name_out = name(targets_[layer]);
    sae.model_name = activations_.manifest().model;
    return std::move(sae);
  }

  ThreadPool& pool_;
  const Activations& activations_;
  const SaeTrainOptions& options_;
  std::optional<FolderLock> lock_;
  std::vector<size_t> hooks_, targets_;  // of each layer; of an autoencoder the same
  Trainee trainee_;
  Order order_;
  std::string settings_;
  std::vector<double> scales_, target_scales_;  // of each layer
  std::vector<FloatVector> x_;
  FloatVector target_;
};

}  // namespace

SaeTrained train_sae(ThreadPool& pool, const Activations& activations, const SaeTrainOptions& options,
                     const std::function<bool(const SaeProgress&)>& see) {
  return Run(pool, activations, options).go(see);
}

}  // namespace vitrine
