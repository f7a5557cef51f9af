// vitrine train: learning, from a configuration.
#include "train/train.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "base/plural.h"
#include "base/shell_word.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "cli/one_step.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "cli/train_sweep.h"
#include "cli/train_tasks.h"
#include "cli/train_view.h"
#include "io/atomic_file.h"
#include "train/example.h"
#include "train/find_rate.h"

namespace vitrine::cli {
namespace {

struct TrainArguments {
  std::string config, sweep;
  std::vector<std::string> settings;
  bool resume = false, example = false, json = false, distill = false;
  OneStepOptions one_step;
  bool find_rate = false;
  RateSearch search;
  std::string curve;

  std::string command() const {
    std::string words = std::string("vitrine ") + (distill ? "distill " : "train ") + shell_word(config);
    for (const std::string& setting : settings) words += " --set " + shell_word(setting);
    if (!sweep.empty()) words += " --sweep " + shell_word(sweep);
    return words;
  }
};

void print_result(const TrainResult& r, const TrainArguments& o, const TrainConfig& config, int ranks) {
  if (o.json) {
    OrderedJson document;
    document["step"] = r.step;
    document["tokens"] = r.tokens;
    document["loss"] = r.loss ? OrderedJson(*r.loss) : OrderedJson();
    document["val_loss"] = r.validation_loss ? OrderedJson(*r.validation_loss) : OrderedJson();
    document["best_step"] = r.best_step > 0 ? OrderedJson(r.best_step) : OrderedJson();
    document["best_val_loss"] = r.best_step > 0 ? OrderedJson(r.best_loss) : OrderedJson();
    document["stopped"] = r.stopped;
    if (r.early) document["early"] = true;
    if (ranks > 1) document["processes"] = ranks;
    if (ranks > 1) document["comm_share"] = r.comm_share;
    document["checkpoint"] = r.checkpoint.empty() ? OrderedJson() : OrderedJson(r.checkpoint);
    if (!r.average.empty()) document["average"] = r.average;
    return print_json(document);
  }
  if (r.checkpoint.empty()) return print("stopped before step 1, so there is no checkpoint. Begin again with: {}\n", o.command());
  print("{} step {}, {} tokens{}{}\n",
        r.stopped ? "stopped after"
        : r.early ? "no lower validation loss: ended after"
                  : "done:",
        r.step, grouped(r.tokens), r.loss ? fmt::format(", loss {:.4f}", *r.loss) : "",
        r.best_step > 0 ? fmt::format("; best validation loss {:.4f} at step {}", r.best_loss, r.best_step) : "");
  if (ranks > 1) print("{} processes: {} of the steps' time went into communication\n", ranks, percent(r.comm_share));
  print("{}\n", r.checkpoint);
  if (!r.average.empty()) print("{}\n", r.average);
  if (r.stopped)  // the run's folder has the configuration with its settings
    print("Go on with: {} --resume\n",
          o.settings.empty() ? o.command()
                             : std::string("vitrine ") + (o.distill ? "distill " : "train ") + shell_word(config.out));
}

void run_config(const TrainArguments& o, Comm& comm);

void run_find_rate(const TrainArguments& o) {
  const TrainConfig config = read_train_config(o.config, o.settings);
  if (!(o.search.from < o.search.to))
    throw UsageError(fmt::format("--lr-from is {} and --lr-to {}; expected a rate that rises.", o.search.from, o.search.to));
  int64_t done = 0;
  std::optional<Progress> progress;
  progress.emplace("rates");
  const RateCurve curve = find_rate(config, o.search, [&](const RateCurve::Point& p) {
    ++done;
    progress->show(static_cast<double>(done) / static_cast<double>(o.search.steps),
                   fmt::format("lr {:.2e}, loss {:.4f}", p.rate, p.loss));
    return !StopSignals::asked();
  });
  progress.reset();
  const auto lowest = std::ranges::min_element(curve.points, {}, &RateCurve::Point::smoothed);
  if (!o.curve.empty()) {
    std::string text = "lr,loss,smoothed\n";
    for (const RateCurve::Point& p : curve.points) text += fmt::format("{},{},{}\n", p.rate, p.loss, p.smoothed);
    write_file_atomically(o.curve, text);
  }
  if (o.json) {
    OrderedJson document;
    document["suggestion"] = curve.suggestion ? OrderedJson(*curve.suggestion) : OrderedJson();
    document["lowest"] = curve.points.empty() ? OrderedJson() : OrderedJson(lowest->rate);
    document["diverged"] = curve.diverged;
    document["curve"] = OrderedJson::array();
    for (const RateCurve::Point& p : curve.points)
      document["curve"].push_back({{"lr", p.rate}, {"loss", p.loss}, {"smoothed", p.smoothed}});
    return print_json(document);
  }
  if (!curve.points.empty())
    print("{} rates from {:.2e} to {:.2e}{}; lowest smoothed loss {:.4f} at {:.2e}\n", curve.points.size(),
          curve.points.front().rate, curve.points.back().rate, curve.diverged ? ", where it diverged" : "", lowest->smoothed,
          lowest->rate);
  if (curve.suggestion)
    print("the loss falls fastest at {:.2e}: --set optimizer.lr={:.2e}\n", *curve.suggestion, *curve.suggestion);
  else
    print("the loss falls nowhere. Try other rates with --lr-from, --lr-to and --lr-steps\n");
}

// Where several processes train together, the one that fails says why and ends the others, which may be waiting for it.
void run_together(const TrainArguments& o, Comm& comm) {
  const auto end = [&](const std::string& message, int code) {
    comm.begin_abort();  // what is wrong for all is said once
    log("vitrine {}: {}{}", o.distill ? "distill" : "train",
        comm.rank() > 0 ? fmt::format("process {} of {}: ", comm.rank(), comm.size()) : "", visible_message(message));
    comm.abort(code);
  };
  try {
    run_config(o, comm);
    finish_output();
  } catch (const InputError& error) {
    end(error.what(), 2);
  } catch (const std::exception& error) {
    end(error.what(), 1);
  }
}

void run_train(const TrainArguments& o) {
  if (o.one_step.given) {
    OneStepOptions one_step = o.one_step;
    one_step.json = o.json;
    return run_one_step(one_step);
  }
  if (o.example) return write_out(example_train_config(shipped_model()));
  if (o.config.empty())
    throw UsageError("no configuration: give a YAML file; `vitrine train --example` prints one to begin with.");
  const std::unique_ptr<Comm> comm = join_ranks();
  if (comm->size() > 1)
    run_together(o, *comm);
  else
    run_config(o, *comm);
}

TrainResult run_one(const TrainConfig& config, const TrainArguments& o, Comm& comm) {
  if (o.distill && !config.distill)
    throw InputError(o.config +
                     ": has no \"distill\", so there is no teacher. Add distill: {teacher: MODEL}; docs/distillation.md " +
                     "explains its keys. Without a teacher the command is `vitrine train`");
  std::unique_ptr<TrainView> progress;
  TrainEvents events;
  events.started = [&](const TrainEvents::Start& s) {
    log("{} parameters: {} for weights, gradients and the optimizer's state, about {} for a batch; {} tokens of data",
        grouped(s.parameters), bytes_text(s.state_bytes), bytes_text(s.activation_bytes),
        grouped(static_cast<int64_t>(s.data_tokens)));
    if (config.memory > 0)
      log("memory: {}: {} again in backward", bytes_text(config.memory),
          s.recomputed_layers == 0   ? "no block runs"
          : s.recomputed_layers == 1 ? "1 block runs"
                                     : plural(s.recomputed_layers, "block") + " run");
    for (const TrainEvents::DataShare& d : s.data)
      if (s.data.size() > 1)
        log("data: {} of the sequences from {}, {} tokens, read {:.2f} times", percent(d.share), d.path,
            grouped(static_cast<int64_t>(d.tokens)), d.epochs);
    for (const TrainEvents::DataShare& d : s.data)
      if (d.cut > 0)
        log("{}: {} longer than sequence_length {} cut at the end", d.path, plural(static_cast<int64_t>(d.cut), "document"),
            d.cut == 1 ? "is" : "are");
    if (s.ranks > 1) log("{} processes of {} {}", s.ranks, s.threads, s.threads == 1 ? "thread" : "threads each");
    if (const int cores = usable_cores(); s.threads > 2 * cores)
      log("{} threads on {}: they will wait for each other. Leave threads: out, and there is one for each core", s.threads,
          plural(static_cast<int64_t>(cores), "core"));
    if (s.first_step >= s.steps)
      log("no step is left: the run has done {}, and the configuration asks for {}", s.first_step, s.steps);
    else if (s.first_step > 0)
      log("going on from step {}", s.first_step);
    if (o.resume && s.first_step == 0) log("{} has no checkpoint yet: from the beginning", config.out);
    progress = std::make_unique<TrainView>(s.steps);
  };
  std::unique_ptr<Progress> reference;
  events.referred = [&](double share) {
    if (!reference) reference = std::make_unique<Progress>("reference of dpo");
    reference->show(share, "");
  };
  events.stepped = [&](const StepReport& r, const TrainEvents::Rate& rate) {
    reference.reset();
    progress->step(r, rate);
  };
  events.evaluated = [&](int64_t step, double loss, bool best) {
    reference.reset();
    progress->evaluated(step, loss);
    progress->clear();
    log("step {}: validation loss {:.4f}{}", step, loss, best && step > 0 ? ", the best so far" : "");
  };
  std::optional<TrainTasks> tasks;
  if (config.tasks_every > 0) {
    tasks.emplace(config);
    events.measure = [&](Engine& engine) { return tasks->measure(engine); };
  }
  events.measured = [&](int64_t step, const std::vector<std::pair<std::string, double>>& values) {
    progress->clear();
    std::string text;
    for (const auto& [name, value] : values) text += fmt::format("{}{} {:.4f}", text.empty() ? "" : ", ", name, value);
    log("step {}: {}", step, text);
  };
  events.sampled = [&](int64_t step, const std::string& prompt, const std::string& text) {
    progress->clear();
    const std::string begin = visible_message(prompt);
    log("step {}: {}{}", step, progress->live() ? fmt::format("\x1b[1m{}\x1b[22m", begin) : begin, visible_message(text));
  };
  events.saved = [&](int64_t, const std::string& path, const std::string& unlinked) {
    progress->clear();
    log("saved {}{}", path, unlinked.empty() ? "" : "; " + unlinked);
  };
  events.averaged = [&](const std::vector<int64_t>& steps, const std::string& path) {
    if (progress) progress->clear();
    std::string text;
    for (const int64_t step : steps) text += (text.empty() ? "" : ", ") + std::to_string(step);
    log("saved {}: the mean of {} {}", path, steps.size() == 1 ? "step" : "steps", text);
  };
  events.stop = [] { return StopSignals::asked(); };
  return train(config, o.resume, events, &comm);
}

void run_config(const TrainArguments& o, Comm& comm) {
  const StopSignals signals(comm.rank() == 0);
  if (o.find_rate) {
    if (comm.size() > 1) throw UsageError("--find-lr runs in one process. Start it without mpirun.");
    return run_find_rate(o);
  }
  if (!o.sweep.empty())
    return run_train_sweep(
        read_sweep(o.config, o.settings, o.sweep),
        {.json = o.json, .writes = comm.rank() == 0, .goes_on = comm.size() == 1, .again = o.command() + " --resume"},
        [&](const TrainConfig& config) { return run_one(config, o, comm); });
  const TrainConfig config = read_train_config(o.config, o.settings);
  const TrainResult result = run_one(config, o, comm);
  if (comm.rank() == 0) print_result(result, o, config, comm.size());
}

// What train and distill have in common.
void add_config_options(CLI::App& app, TrainArguments& o, const char* config) {
  app.add_option("CONFIG", o.config, config)->type_name("FILE");
  app.add_option("--set", o.settings, "Set a key of the configuration (optimizer.lr=1e-3); may be repeated")
      ->type_name("KEY=VALUE");
  app.add_option("--sweep", o.sweep, "Train once for each set of values in this YAML file, and compare the runs")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_flag("--resume", o.resume, "Resume from the newest checkpoint; the result is bit-identical to an uninterrupted run");
}

Action define_train(CLI::App& app) {
  auto o = std::make_shared<TrainArguments>();
  add_config_options(app, *o, "The configuration, in YAML (docs/training.md), or with --resume the run's folder");
  app.add_flag("--example", o->example, "Print a commented configuration that runs as it is");
  add_one_step_options(app, o->one_step);
  CLI::Option *one_step = app.get_option("--one-step"), *example = app.get_option("--example");
  for (const char* name : {"--target", "--rate", "--steps", "--top", "--model"}) app.get_option(name)->needs(one_step);
  for (const char* name : {"CONFIG", "--set", "--sweep", "--resume"}) app.get_option(name)->excludes(one_step)->excludes(example);
  example->excludes(one_step);
  CLI::Option* find = app.add_flag(
      "--find-lr", o->find_rate,
      "Instead of a run: take steps on its data at rising learning rates, and print the rate at which the loss falls fastest. "
      "Nothing is written into the run's folder");
  add_number(app, "--lr-from", o->search.from, 1e-12, 1e6, "First rate of --find-lr (default 1e-8)")->needs(find);
  add_number(app, "--lr-to", o->search.to, 1e-12, 1e6, "Last rate of --find-lr (default 1)")->needs(find);
  add_count(app, "--lr-steps", o->search.steps, 10, 1 << 20, "Steps of --find-lr (default 100)")->needs(find);
  app.add_option("--curve", o->curve, "A CSV file for the curve of --find-lr: lr, loss and smoothed loss of each step")
      ->type_name("FILE")
      ->check(not_empty())
      ->needs(find);
  for (const char* name : {"--sweep", "--resume", "--one-step", "--example"}) find->excludes(app.get_option(name));
  add_json(app, o->json);
  example->excludes(app.get_option("--json"));  // it is YAML
  return [o] { run_train(*o); };
}

// The same run: a configuration with a teacher. `vitrine train` runs it, too.
Action define_distill(CLI::App& app) {
  auto o = std::make_shared<TrainArguments>();
  o->distill = true;
  add_config_options(app, *o,
                     "The configuration with a teacher, in YAML (docs/distillation.md), or with --resume the run's folder");
  app.get_option("CONFIG")->required();
  add_json(app, o->json);
  return [o] { run_train(*o); };
}

}  // namespace

const Command train_command = {
    "train", "Train a model, from fresh weights or from an existing one",
    "The configuration describes model, data, optimizer and schedule; docs/training.md explains every key. The run's "
    "folder contains metrics.jsonl and checkpoints as Hugging Face directories, which every command takes as --model; "
    "`last` and `best` are links to two of them. --resume continues a stopped run. Ctrl-C finishes the step and saves; a "
    "second Ctrl-C ends at once. The key lora trains an adapter instead of the model (docs/lora.md), ema keeps averaged "
    "weights, and kl_to keeps the model close to an anchor (docs/distillation.md). Processes started by mpirun share "
    "every batch (docs/parallel-training.md).",
    "vitrine train --example\n"
    "vitrine train --one-step \"the fat cat sat on the\" --target \" mat\"",
    define_train};

const Command distill_command = {
    "distill", "Train a model on the predictions of a teacher",
    "The configuration is that of `vitrine train` with a section for the teacher: any model with the same vocabulary, "
    "including quantized ones. Metrics, checkpoints, --resume and Ctrl-C work as in training. The example needs data made "
    "by `vitrine data`; docs/distillation.md explains the divergences, sampling by the student and the cache.",
    "vitrine distill examples/distill.yaml", define_distill};

}  // namespace vitrine::cli
