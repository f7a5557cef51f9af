// vitrine sae train: a sparse autoencoder or a transcoder from collected activations.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/plural.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "io/atomic_file.h"
#include "sae/train.h"

namespace vitrine::cli {
namespace {

struct SaeTrainArguments {
  SaeTrainOptions train;
  std::string activations, architecture = "topk", sparsity = "step", normalize = "average";
  int64_t threads = 0, seed = 0, every = 10;
  bool json = false;
};

/// metrics.csv beside the autoencoder: a line every so many steps. A run that goes on keeps those before it.
class Metrics {
 public:
  Metrics(const std::string& folder, int64_t every) : path_(folder + "/" + kSaeMetrics), every_(every) {}

  void add(const SaeProgress& p, int64_t last) {
    if (p.step % every_ != 0 && p.step != last && p.step != 1) return;
    if (!file_.is_open()) open(p.step);
    const SaeStep& s = p.now;
    write(fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", p.step, s.loss, s.mse, s.sparsity, s.aux, s.explained_variance, s.l0,
                      s.dead, p.lr, s.gradient_norm, s.inner));
  }

 private:
  static constexpr char kHead[] = "step,loss,mse,sparsity,aux,explained_variance,l0,dead,lr,gradient_norm,inner";

  void open(int64_t step) {
    std::string kept = std::string(kHead) + "\n";
    if (std::ifstream before(path_); step > 1 && before) {
      std::string line;
      for (std::getline(before, line); std::getline(before, line);)
        if (std::strtoll(line.c_str(), nullptr, 10) > 0 && std::strtoll(line.c_str(), nullptr, 10) < step) kept += line + "\n";
    }
    write_file_atomically(path_, kept);
    file_.open(path_, std::ios::binary | std::ios::app);
  }
  void write(const std::string& text) {
    file_ << text << std::flush;
    if (!file_) throw RunError(path_ + ": cannot be written: " + std::strerror(errno));
  }

  std::string path_;
  int64_t every_;
  std::ofstream file_;
};

void run_sae_train(SaeTrainArguments o) {
  SaeLearning& l = o.train.learning;
  l.architecture = o.architecture == "jumprelu"    ? SaeLearning::Architecture::jumprelu
                   : o.architecture == "standard"  ? SaeLearning::Architecture::standard
                   : o.architecture == "gated"     ? SaeLearning::Architecture::gated
                   : o.architecture == "batchtopk" ? SaeLearning::Architecture::batchtopk
                                                   : SaeLearning::Architecture::topk;
  l.sparsity = o.sparsity == "tanh" ? SaeLearning::Sparsity::tanh : SaeLearning::Sparsity::step;
  l.seed = static_cast<uint64_t>(o.seed);
  o.train.normalize = o.normalize == "average";
  const Activations activations = Activations::open(o.activations);
  ThreadPool pool(static_cast<int>(o.threads));
  Progress progress("training");
  Metrics metrics(o.train.out, o.every);
  const StopSignals signals(true);
  double speed = 0;
  bool begun = false;
  const SaeTrained done = train_sae(pool, activations, o.train, [&](const SaeProgress& p) {
    const double steps = static_cast<double>(l.steps);
    if (!begun) progress.begin(static_cast<double>(p.step - 1) / steps);
    begun = true;
    speed = p.activations_per_s;
    metrics.add(p, l.steps);
    progress.show(static_cast<double>(p.step) / steps,
                  fmt::format("step {}, loss {:.4g}, explains {}, L0 {:.1f}, {} dead, {} activations/s", p.step, p.now.loss,
                              percent(std::max(0.0, p.now.explained_variance)), p.now.l0, p.now.dead,
                              grouped(static_cast<int64_t>(speed))));
    return !StopSignals::asked();
  });
  const SaeStep& s = done.last;
  const bool learned = done.first_step <= done.steps;  // else the run had all its steps
  if (o.json) {
    const auto told = [&](double value) { return learned ? Json(value) : Json(); };
    print_json({{"out", o.train.out},
                {"architecture", o.architecture},
                {"features", l.features},
                {"first_step", done.first_step},
                {"steps", done.steps},
                {"loss", told(s.loss)},
                {"mse", told(s.mse)},
                {"explained_variance", told(s.explained_variance)},
                {"l0", told(s.l0)},
                {"dead", done.dead},
                {"scale", done.scales.size() == 1 ? Json(done.scales[0]) : Json(done.scales)},
                {"seconds", done.seconds},
                {"activations_per_s", told(speed)}});
    return;
  }
  if (!learned)
    return log("{} has its {} already; its files are written again", o.train.out, plural(grouped(done.steps), "step"));
  print("loss {:.4f}, explained variance {:.4f}, L0 {:.1f}, {} of {} dead\n", s.loss, s.explained_variance, s.l0, done.dead,
        plural(grouped(l.features * static_cast<int64_t>(done.scales.size())), "feature"));
  log("{}{}, {} activations/s; written to {}", done.steps < l.steps ? "stopped after " : "", plural(grouped(done.steps), "step"),
      grouped(static_cast<int64_t>(speed)), o.train.out);
}

Action define_sae_train(CLI::App& app) {
  auto o = std::make_shared<SaeTrainArguments>();
  SaeTrainOptions& t = o->train;
  SaeLearning& l = t.learning;
  l.steps = 1000;
  app.add_option("ACTIVATIONS", o->activations, "The folder that `vitrine collect` made")
      ->type_name("")
      ->required()
      ->check(not_empty());
  app.add_option("--hook", t.hook, "The hook to train on, if several were collected")->type_name("HOOK")->check(not_empty());
  app.add_option("--out,-o", t.out, "The folder to create; if it exists, it must be empty")
      ->type_name("OUT")
      ->required()
      ->check(not_empty());
  app.add_option("--transcoder", t.target,
                 "Train a transcoder that reads --hook and reconstructs this hook, such as an MLP's output (hook_mlp_out)")
      ->type_name("HOOK")
      ->check(not_empty());
  app.add_flag("--cross-layer", t.cross_layer,
               "Transcoder: features of each layer write into it and all later ones. --hook and --transcoder then hold a * for "
               "the layer, as in 'blocks.*.hook_mlp_out', and --features counts those of a layer");
  app.add_flag("--skip", l.skip, "Transcoder: with a linear map from input to output besides (skip transcoder)");
  add_choice(app, "--architecture", o->architecture, "topk|batchtopk|jumprelu|standard|gated",
             "The architecture: how active features are chosen (default topk)");
  add_count(app, "--features", l.features, 1, 1 << 24,
            "Number of features (d_sae), for instance 8 times the width of the "
            "residual stream")
      ->required();
  add_count(app, "--k", l.k, 1, 1 << 24, "topk: active features of a token; batchtopk: on average (default 32)");
  app.add_option("--widths", l.widths, "batchtopk: widths of matryoshka's inner levels, ascending, such as 64,256")
      ->type_name("N,N,…")
      ->delimiter(',');
  add_number(app, "--threshold-lr", l.threshold_lr, 0, 1,
             "batchtopk: weight of a step in the moving average that becomes the threshold (default 0.01)", true);
  add_count(app, "--steps", l.steps, 1, int64_t{1} << 40, "Total steps (default 1000)");
  add_count(app, "--batch", t.batch, 1, 1 << 24, "Tokens of a step (default 4096)");
  add_number(app, "--lr", l.lr, 0, 10, "Learning rate of Adam (default 0.0003)", true);
  add_count(app, "--lr-warm-up", l.lr_warm_up, 0, int64_t{1} << 40, "Steps in which the learning rate grows from 0 (default 0)");
  add_count(app, "--lr-decay", l.lr_decay, 0, int64_t{1} << 40, "Steps at the end in which it falls to 0 (default 0)");
  add_number(app, "--sparsity-coefficient", l.sparsity_coefficient, 0, 1e9,
             "jumprelu, standard, gated: coefficient of the sparsity loss (default 1)");
  add_count(app, "--sparsity-warm-up", l.sparsity_warm_up, 0, int64_t{1} << 40, "Steps in which it grows from 0 (default 0)");
  add_choice(app, "--sparsity", o->sparsity, "step|tanh",
             "jumprelu: the number of active features, or the sum of tanh (default step)");
  add_number(app, "--threshold", l.threshold, 0, 1e6, "jumprelu: initial threshold (default 0.01)");
  add_number(app, "--bandwidth", l.bandwidth, 0, 1e6, "jumprelu: bandwidth of the straight-through estimator (default 0.05)",
             true);
  add_number(app, "--tanh-scale", l.tanh_scale, 0, 1e6, "jumprelu: scale inside tanh (default 4)", true);
  app.add_flag("--ste-to-input", l.ste_to_input, "jumprelu: the estimator also moves the encoder, as Anthropic's does");
  add_number(app, "--aux-coefficient", l.aux_coefficient, 0, 1e9,
             "topk, batchtopk: coefficient of the auxiliary loss of dead features "
             "(default 1)");
  add_count(app, "--dead-window", l.dead_window, 1, int64_t{1} << 40,
            "Steps without activity after which a feature is dead (default 1000)");
  add_choice(app, "--normalize,--normalise", o->normalize, "average|none",
             "Scale activations so that their mean norm is sqrt(width), and fold that into the weights (default average)");
  add_count(app, "--skip-positions", t.skip_positions, 0, 1 << 30, "Number of first tokens of each context to skip (default 0)");
  add_count(app, "--seed", o->seed, 0, INT64_MAX, "Seed of the initial weights and the order of tokens (default 0)");
  add_count(app, "--save-every", t.save_every, 0, int64_t{1} << 40, "Steps between saves; default: only at the end");
  add_count(app, "--metrics-every", o->every, 1, int64_t{1} << 40, "Steps between lines of OUT/metrics.csv (default 10)");
  app.add_flag("--resume", t.resume, "Continue the run in OUT");
  add_count(app, "--threads", o->threads, 1, 1024,
            "Threads; default: the cores this process may use. The result does not depend on it");
  add_json(app, o->json);
  return [o] { run_sae_train(*o); };
}

}  // namespace

const Command sae_train_command = {
    "sae train", "Train a sparse autoencoder or a transcoder on collected activations",
    "Losses, gradients and update are those of SAELens's trainer, and OUT loads in SAELens with the same values: "
    "cfg.json, sae_weights.safetensors, sparsity.safetensors (log10 of how often each feature was active). With topk and "
    "batchtopk, features that were inactive for --dead-window steps are trained on the residual error; batchtopk is written as "
    "jumprelu, as SAELens does. With --transcoder, values of one hook are reconstructed from those of another; a folder with one "
    "for each layer is what `vitrine graph --transcoders` takes, and so is the folder of --cross-layer, in circuit-tracer's "
    "files. "
    "OUT/metrics.csv has loss, "
    "explained variance, L0 and dead features. Ctrl-C saves and ends the run; --resume continues it, bit-identical to an "
    "uninterrupted run. See docs/collect.md.",
    "vitrine sae train fables-activations --features 512 --k 16 --steps 20 --batch 512 --out autoencoder-3", define_sae_train};

}  // namespace vitrine::cli
