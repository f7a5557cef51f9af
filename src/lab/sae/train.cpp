#include "sae/train.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/permutation.h"
#include "base/stopwatch.h"
#include "io/safetensors.h"
#include "kernels/table.h"
#include "sae/autoencoder.h"
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

/// Their values, multiplied by `scale`.
void read_rows(ThreadPool& pool, const Activations& activations, size_t hook, const std::vector<uint64_t>& tokens, float scale,
               FloatVector& x) {
  const auto d = static_cast<size_t>(activations.manifest().hooks[hook].numbers());
  const auto widen = kernels().widen[static_cast<int>(activations.manifest().type)];
  x.resize(tokens.size() * d);
  pool.run(static_cast<int64_t>((tokens.size() + kTogether - 1) / kTogether), [&](int64_t task, int) {
    const size_t begin = static_cast<size_t>(task) * kTogether, end = std::min(tokens.size(), begin + kTogether);
    for (size_t i = begin; i < end; ++i) {
      widen(activations.stored(hook, tokens[i]), d, x.data() + i * d);
      if (scale != 1) kernels().scale(x.data() + i * d, scale, d, x.data() + i * d);
    }
  });
}

// What makes the mean norm of the hook's values the root of their width.
double scale_of(ThreadPool& pool, const Activations& activations, size_t hook, const SaeTrainOptions& o) {
  Order order(activations, o.learning.seed, o.skip_positions);
  std::vector<uint64_t> tokens;
  order.next(static_cast<size_t>(std::min<uint64_t>(kForScale, activations.tokens())), tokens);
  FloatVector x;
  read_rows(pool, activations, hook, tokens, 1, x);
  const size_t d = x.size() / tokens.size();
  double norms = 0;
  for (size_t i = 0; i < tokens.size(); ++i) norms += std::sqrt(kernels().sum_of_squares(x.data() + i * d, d));
  if (!std::isfinite(norms) || norms <= 0)
    throw RunError(activations.path() + ": the activations' mean norm is " + std::to_string(norms) +
                   ", so they cannot be scaled");
  return std::sqrt(static_cast<double>(d)) / (norms / static_cast<double>(tokens.size()));
}

/// Everything that decides what comes out, apart from how long it goes on.
nlohmann::ordered_json settings(const Activations& activations, size_t hook, const SaeTrainOptions& o) {
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
                           {"hook", activations.manifest().hooks[hook].name},
                           {"tokens", activations.tokens()},
                           {"checksum", activations.manifest().checksum}};
  if (l.lr_decay > 0) s["steps"] = l.steps;
  if (!o.target.empty()) {
    s["transcoder"] = o.target;
    s["skip"] = l.skip;
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

/// Calls f(name, numbers) for everything that the trainer keeps as f32.
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
/// rows. d_out: 0 of an autoencoder.
const SaeLearning& require_room(const SaeTrainOptions& o, int64_t d_in, int64_t d_out) {
  const SaeLearning& l = o.learning;
  const auto in = static_cast<double>(d_in), out = static_cast<double>(d_out > 0 ? d_out : d_in);
  const auto features = static_cast<double>(l.features), rows = static_cast<double>(o.batch), k = static_cast<double>(l.k);
  const bool gated = l.architecture == SaeLearning::Architecture::gated, dense = !takes_k(l) && !gated;
  // Where k does not say it, all features may be active at first. Entries and their uses by feature take 40 bytes together.
  const double candidates = l.architecture == SaeLearning::Architecture::batchtopk ? 5 * k : k;
  const double active = takes_k(l) ? std::min(candidates, features) + out / 2 : gated ? 2 * features : features;
  const double of_row = 2 * in + (d_out > 0 ? 3 : 2) * out + static_cast<double>(l.widths.size()) * out + 10 * active;
  const double numbers = features * (5 * in + (dense ? 6 : 4) * out) + (l.skip ? 5 * in * out : 0) + rows * of_row;
  const double bytes = numbers * sizeof(float), left = static_cast<double>(o.memory > 0 ? o.memory : available_memory());
  if (left > 0 && bytes > left)
    throw InputError("training " + std::to_string(l.features) + " features on " + std::to_string(o.batch) +
                     " tokens a step would take " + bytes_text(bytes) + " of memory; " + bytes_text(left) +
                     " are left. Take fewer features, or a smaller batch");
  return l;
}

// Where what is learned writes: of an autoencoder where it reads.
size_t target_of(const Activations& activations, const SaeTrainOptions& o, size_t hook) {
  if (o.target.empty()) return hook;
  const size_t target = activations.hook(o.target);
  if (target == hook)
    throw InputError("a transcoder reads one hook and writes at another; " + o.target +
                     " is both. Name what it reads, such as blocks.3.ln2.hook_normalized, and where it writes, such as "
                     "blocks.3.hook_mlp_out");
  return target;
}

// The learned parameters as SAELens's inference model has them: of topk and batchtopk with decoder rows of norm 1 before the
// scales are undone; batchtopk as jumprelu.
SparseAutoencoder trained_autoencoder(const SaeTrainer& trainer, double scale, double target_scale) {
  const SaeLearning& l = trainer.learning();
  const SaeParameters& q = trainer.parameters;
  const auto F = static_cast<size_t>(l.features), D = static_cast<size_t>(trainer.d_in()),
             O = static_cast<size_t>(trainer.d_out());
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
  sae.threshold = q.threshold;
  for (float& t : sae.threshold) t = std::max(t, 0.0f);
  if (l.architecture == batchtopk) sae.threshold.assign(F, static_cast<float>(trainer.batch_threshold));
  for (size_t f = 0; f < F; ++f) {
    double norm = 1;  // of those that choose by h · norm, which becomes the feature
    if (takes_k(l)) norm = std::max(std::sqrt(kernels().sum_of_squares(q.W_dec.data() + f * O, O)), 1e-8);
    const auto enc = static_cast<float>(norm * scale), dec = static_cast<float>(1 / (norm * target_scale));
    for (size_t i = 0; i < D; ++i) sae.W_enc[i * F + f] = q.W_enc[f * D + i] * enc;
    for (size_t i = 0; i < O; ++i) sae.W_dec[f * O + i] *= dec;
    sae.b_enc[f] *= static_cast<float>(norm);
  }
  for (float& b : sae.b_dec) b = static_cast<float>(static_cast<double>(b) / target_scale);
  sae.W_skip = q.W_skip;
  for (float& w : sae.W_skip) w = static_cast<float>(static_cast<double>(w) * scale / target_scale);
  if (l.architecture == gated) {
    sae.b_gate = std::move(sae.b_enc);
    sae.b_enc.clear();
    sae.r_mag = q.r_mag;
    sae.b_mag = q.b_mag;
  }
  return sae;
}

class Run {
 public:
  Run(ThreadPool& pool, const Activations& activations, const SaeTrainOptions& options)
      : pool_(pool),
        activations_(activations),
        options_(options),
        hook_(activations.hook(options.hook)),
        target_(target_of(activations, options, hook_)),
        trainer_(require_room(options, width(hook_), d_out()), width(hook_), d_out()),
        order_(activations, options.learning.seed, options.skip_positions),
        settings_(settings(activations, hook_, options).dump()) {
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
    result.first_step = trainer_.steps + 1;
    result.scale = scale_;
    result.target_scale = target_scale_;
    std::vector<uint64_t> tokens;
    FloatVector x, target;
    uint64_t rows = 0;
    bool on = true;
    while (on && trainer_.steps < options_.learning.steps) {
      const Stopwatch watch;
      SaeProgress progress;
      progress.lr = trainer_.lr_now();
      order_.next(static_cast<size_t>(options_.batch), tokens);
      read_rows(pool_, activations_, hook_, tokens, static_cast<float>(scale_), x);
      if (trainer_.is_transcoder()) read_rows(pool_, activations_, target_, tokens, static_cast<float>(target_scale_), target);
      progress.now = result.last =
          trainer_.step(pool_, x.data(), tokens.size(), trainer_.is_transcoder() ? target.data() : nullptr);
      rows += tokens.size();
      result.seconds += watch.ms() / 1000;
      progress.step = trainer_.steps;
      progress.activations_per_s = static_cast<double>(rows) / std::max(result.seconds, 1e-9);
      if (options_.save_every > 0 && trainer_.steps % options_.save_every == 0 && trainer_.steps < options_.learning.steps) {
        save();
        progress.saved = true;
      }
      if (see) on = see(progress);
    }
    if (rows > 0) save();
    result.steps = trainer_.steps;
    for (const int64_t silent : trainer_.silent) result.dead += silent > options_.learning.dead_window ? 1 : 0;
    return result;
  }

 private:
  int64_t width(size_t hook) const { return activations_.manifest().hooks[hook].numbers(); }
  int64_t d_out() const { return options_.target.empty() ? 0 : width(target_); }
  std::string path(const char* name) const { return (fs::path(options_.out) / name).string(); }

  void open_folder() {
    std::error_code error;
    const std::string& out = options_.out;
    if (fs::exists(out, error) && !fs::is_directory(out, error))
      throw InputError(out + ": is a file; an autoencoder is a folder");
    if (options_.resume) {
      if (!fs::exists(path(kSaeTrainerState), error))
        throw InputError(out + ": holds no " + kSaeTrainerState + " to resume from; leave resume away to begin a run");
      return load();
    }
    if (fs::exists(out, error) && !fs::is_empty(out, error))
      throw InputError(out + ": exists and holds something. Name another folder, or resume the run that made it");
    fs::create_directories(out, error);
    if (error) throw InputError(out + ": cannot be made: " + error.message());
    scale_ = options_.normalize ? scale_of(pool_, activations_, hook_, options_) : 1;
    target_scale_ = options_.normalize && target_ != hook_ ? scale_of(pool_, activations_, target_, options_) : scale_;
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
    trainer_.steps = static_cast<int64_t>(count("steps"));
    trainer_.rows_seen = count("rows_seen");
    order_.drawn = count("drawn");
    const auto number = [&](const char* key) {
      if (!counts.contains(key) || !counts.at(key).is_number())
        throw FileError(file, "\"" + std::string(key) + "\" is missing in its counts");
      return counts.at(key).get<double>();
    };
    scale_ = target_scale_ = number("scale");
    if (trainer_.is_transcoder()) target_scale_ = number("target_scale");
    if (options_.learning.architecture == SaeLearning::Architecture::batchtopk)
      trainer_.batch_threshold = number("batch_threshold");
    each_state(trainer_, [&](const std::string& name, FloatVector& numbers) {
      std::memcpy(numbers.data(), tensor(state, name, DType::f32, numbers.size() * sizeof(float)),
                  numbers.size() * sizeof(float));
    });
    for (auto [name, numbers] : {std::pair{"silent", &trainer_.silent}, std::pair{"activations", &trainer_.activations}})
      std::memcpy(numbers->data(), tensor(state, name, DType::i64, numbers->size() * 8), numbers->size() * 8);
    if (trainer_.steps >= options_.learning.steps)
      throw InputError(options_.out + ": has taken " + std::to_string(trainer_.steps) + " steps already; give more than " +
                       std::to_string(options_.learning.steps) + " to go on");
  }

  const std::byte* tensor(const Checkpoint& state, const std::string& name, DType type, size_t bytes) const {
    const StoredTensor* found = state.find(name);
    if (found == nullptr || found->dtype != type || found->bytes != bytes)
      throw FileError(path(kSaeTrainerState), "holds no tensor \"" + name + "\" of " + std::to_string(bytes) + " bytes");
    return found->data;
  }

  void save() {
    nlohmann::ordered_json counts{
        {"steps", trainer_.steps}, {"rows_seen", trainer_.rows_seen}, {"drawn", order_.drawn}, {"scale", scale_}};
    if (trainer_.is_transcoder()) counts["target_scale"] = target_scale_;
    if (options_.learning.architecture == SaeLearning::Architecture::batchtopk)
      counts["batch_threshold"] = trainer_.batch_threshold;
    std::vector<TensorToWrite> tensors;
    each_state(trainer_, [&](const std::string& name, FloatVector& numbers) {
      const auto n = static_cast<int64_t>(numbers.size());
      const int64_t columns = name.ends_with("W_dec")                               ? trainer_.d_out()
                              : name.ends_with("W_enc") || name.ends_with("W_skip") ? trainer_.d_in()
                                                                                    : 0;
      tensors.push_back(
          {name, DType::f32, columns > 0 ? std::vector<int64_t>{n / columns, columns} : std::vector<int64_t>{n}, numbers.data()});
    });
    const int64_t features = options_.learning.features;
    tensors.push_back({"silent", DType::i64, {features}, trainer_.silent.data()});
    tensors.push_back({"activations", DType::i64, {features}, trainer_.activations.data()});
    write_safetensors(path(kSaeTrainerState), tensors, {{"settings", settings_}, {"counts", counts.dump()}});

    std::vector<float> sparsity(static_cast<size_t>(features));
    double active = 0;
    for (size_t f = 0; f < sparsity.size(); ++f) {
      const double share =
          static_cast<double>(trainer_.activations[f]) / static_cast<double>(std::max<uint64_t>(trainer_.rows_seen, 1));
      active += share;
      sparsity[f] = static_cast<float>(std::log10(share + 1e-10));
    }
    write_safetensors(path("sparsity.safetensors"), {{"sparsity", DType::f32, {features}, sparsity.data()}});
    const ActivationManifest& m = activations_.manifest();
    SparseAutoencoder sae = trained_autoencoder(trainer_, scale_, target_scale_);
    sae.hook_name = m.hooks[hook_].name;
    sae.hook_name_out = m.hooks[target_].name;
    sae.model_name = m.model;
    const bool matryoshka = !options_.learning.widths.empty();
    write_sae(
        options_.out, sae,
        {{"context_size", m.context},
         {"prepend_bos", m.lead >= 0},
         {"l0", active},
         {"training_tokens", trainer_.rows_seen},
         {"training_architecture", (matryoshka ? "matryoshka_" : "") + std::string(name_of(options_.learning.architecture))}});
  }

  ThreadPool& pool_;
  const Activations& activations_;
  const SaeTrainOptions& options_;
  size_t hook_, target_;  // of an autoencoder the same
  SaeTrainer trainer_;
  Order order_;
  std::string settings_;
  double scale_ = 1, target_scale_ = 1;
};

}  // namespace

SaeTrained train_sae(ThreadPool& pool, const Activations& activations, const SaeTrainOptions& options,
                     const std::function<bool(const SaeProgress&)>& see) {
  return Run(pool, activations, options).go(see);
}

}  // namespace vitrine
