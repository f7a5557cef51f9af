// vitrine merge: models merged by a recipe, into a Hugging Face directory.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/commands.h"
#include "cli/merge_preview.h"
#include "cli/merge_sweep.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "io/temporary_folder.h"
#include "merge/output.h"
#include "merge/plan.h"
#include "merge/plan_json.h"
#include "merge/recipe_file.h"
#include "merge/report.h"
#include "merge/run.h"
#include "picture/page/page.h"

namespace vitrine::cli {
namespace {

namespace fs = std::filesystem;

struct MergeArguments {
  std::string config, out, shard_size = "5B", intermediate, report;
  PreviewOptions preview_options;
  bool preview = false, dry_run = false, resume = false, force = false, json = false, lazy = true;
  bool safe = true;
  bool is_part = false;  // a merge that another one of the file uses: nothing is printed of it
  int64_t threads = 0, seed = 0;
  MergeOptions options;
  SweepArguments sweep;
  std::set<std::string> ignored;  // options of mergekit's that were given
};

std::string value_text(double value) { return fmt::format("{:.6g}", value); }

// "t 0.35", "weight 0.3, 0.9": the parameters that the recipe or the method sets.
std::string parameters_text(const PlannedTensor& tensor) {
  std::string text;
  for (const auto& [name, value] : tensor.parameters.shared) text += (text.empty() ? "" : "; ") + name + " " + value_text(value);
  for (const auto& [name, values] : tensor.parameters.per_input) {
    text += (text.empty() ? "" : "; ") + name;
    for (size_t i = 0; i < values.size(); ++i)
      text += (i == 0 ? " " : ", ") + (values[i] == values[i] ? value_text(values[i]) : "-");
  }
  return text;
}

std::string source_text(const MergePlan& plan, const PlannedTensor& tensor, const PlannedTensor::Source& source) {
  const std::string model = plan.inputs[source.input]->name();
  return source.name == tensor.name ? model : model + ":" + source.name;
}

void print_plan(const MergePlan& plan) {
  for (const PlannedTensor& tensor : plan.tensors) {
    std::string sources;
    for (const PlannedTensor::Source& source : tensor.sources)
      sources += (sources.empty() ? "" : " + ") + source_text(plan, tensor, source);
    print("{}  {} {}\n    {} of {}{}\n", bold(tensor.name), shape_text(tensor.shape), name_of(tensor.dtype),
          tensor.copied ? "copy" : plan.method->name, sources,
          tensor.copied || parameters_text(tensor).empty() ? "" : "; " + parameters_text(tensor));
  }
}

void log_plan(const MergePlan& plan, int threads) {
  log("{}: {} of {}, {} tensors", plan.recipe.name.empty() ? plan.recipe.path : plan.recipe.name, plan.method->title,
      fmt::format("{} model{}", plan.inputs.size(), plan.inputs.size() == 1 ? "" : "s"), plan.tensors.size());
  log("reads {}, writes {} in {} file{}; {} of memory besides the mapped files",
      bytes_text(static_cast<double>(plan.bytes_read())), bytes_text(static_cast<double>(plan.bytes_written())),
      plan.shards.size(), plan.shards.size() == 1 ? "" : "s", bytes_text(static_cast<double>(merge_memory(plan, threads))));
  for (const std::string& note : plan.notes) log("note: {}", note);
}

// What the tokenizer of the merge makes of a few texts, for the eye.
void show_tokenizer(const MergePlan& plan, const std::string& prompt) {
  const std::shared_ptr<const Tokenizer> tokenizer = merged_tokenizer(plan);
  if (tokenizer == nullptr) return;
  for (const std::string& text : {prompt, std::string("The answer is 42.\n")}) {
    std::string pieces;
    for (const int32_t id : tokenizer->encode(text)) pieces += (pieces.empty() ? "" : " ") + visible(tokenizer->piece(id));
    log("tokenizer: \"{}\" is {}", visible(text), pieces);
  }
}

// One document of the recipe file, its named inputs already in their directories.
void run_one(const MergeRecipe& recipe, const std::string& out, const MergeArguments& o, ThreadPool& pool) {
  const MergePlan plan = plan_merge(recipe, o.options);
  if (o.dry_run) {
    if (o.json) {
      if (!o.is_part) print_json(plan_json(plan, pool.threads()));
    } else {
      print_plan(plan);
    }
    log_plan(plan, pool.threads());
    for (const std::string& problem : plan.problems) log("problem: {}", problem);
    refuse_problems(plan);
    static_cast<void>(merged_chat_template(plan));  // refuses one that is none
    show_tokenizer(plan, o.preview_options.prompt);
    return;
  }
  refuse_problems(plan);
  if (o.preview) return preview_merge(plan, o.preview_options);
  log_plan(plan, pool.threads());
  show_tokenizer(plan, o.preview_options.prompt);
  MergeReporter reporter(plan);
  const MeasureMerge measure =
      o.report.empty() ? MeasureMerge() : [&](size_t tensor, const TensorMeasure& m) { reporter.add(tensor, m); };
  const auto write_report = [&] {
    if (o.report.empty()) return;
    write_file_atomically(o.report, merge_report_page(reporter.report()));
    log("report: {}", o.report);
  };
  if (out.empty()) {
    Progress progress("measuring");
    measure_merge(plan, pool, measure, [&](const MergeProgress& done) {
      progress.show(static_cast<double>(done.bytes) / static_cast<double>(std::max<uint64_t>(1, done.all)), *done.tensor);
    });
    return write_report();
  }
  const std::string title = fs::path(out).lexically_normal().filename().string();
  const auto companions = merge_companions(plan, title.empty() ? "merge" : title);
  const std::string folder = merge_work_folder(out);
  const LastWords words(
      fmt::format("stopped: {} is not written. What is done is kept in {}. Go on with the same command and --resume", out,
                  folder),
      folder);
  Progress progress("merging");
  const Stopwatch watch;
  const size_t before = write_merge(
      plan, companions, out, pool, {o.resume, o.force},
      [&](const MergeProgress& done) {
        progress.show(static_cast<double>(done.bytes) / static_cast<double>(std::max<uint64_t>(1, done.all)),
                      bytes_text(static_cast<double>(done.bytes) / (watch.ms() / 1000)) + "/s");
      },
      measure);
  write_report();
  if (before > 0) log("{} tensors were there from the run before", before);
  const double seconds = (watch.ms() / 1000);
  const std::string done =
      fmt::format("{} tensors in {}, {:.1f} s, {}/s read and written", grouped(static_cast<int64_t>(plan.tensors.size())), out,
                  seconds, bytes_text(static_cast<double>(plan.bytes_read() + plan.bytes_written()) / seconds));
  if (o.is_part) return log("{}", done);
  if (!o.json) return print("{}\n", done);
  OrderedJson document = plan_json(plan, pool.threads());
  document["out"] = out;
  document["seconds"] = seconds;
  print_json(document);
}

void run_merge(MergeArguments o) {
  for (const std::string& flag : o.ignored) log("note: {} has no effect here", flag);
  if (!o.safe) throw UsageError("--no-safe-serialization asks for pickled weights, which are not written; leave it out");
  o.options.shard_bytes = parse_shard_size(o.shard_size, "--out-shard-size");
  o.options.random_seed = static_cast<uint64_t>(o.seed);
  if (!o.preview_options.text.empty() && !o.preview && !o.sweep.wanted())
    throw UsageError("--text requires --preview or --sweep, which score models on it");
  const auto note_unwritten = [&](const char* option) {
    if (!o.out.empty()) log("note: nothing is written to {}: {} merges in memory", o.out, option);
  };
  std::vector<MergeRecipe> recipes = read_merge_recipes(o.config);
  if (o.sweep.wanted()) {
    if (recipes.size() > 1) throw UsageError(o.config + " holds several merges; --sweep takes a file of one");
    if (o.dry_run || o.preview || !o.report.empty()) throw UsageError("--sweep goes without --dry-run, --preview and --report");
    note_unwritten("--sweep");
    return run_sweep(recipes.front(), o.options, o.sweep, o.preview_options.text, o.json, static_cast<int>(o.threads));
  }
  if (o.out.empty() && !o.dry_run && !o.preview && o.report.empty()) throw UsageError("OUT is missing: the directory to make");
  if (o.dry_run && !o.report.empty()) throw UsageError("--report measures the merge, which --dry-run does not do; leave one out");
  if (!o.report.empty()) check_writable("--report", o.report);
  if (o.preview && !o.dry_run) note_unwritten("--preview");
  o.preview_options.threads = static_cast<int>(o.threads);
  o.preview_options.json = o.json;
  ThreadPool pool(static_cast<int>(o.threads));
  // Of several merges those that others use are written in any case, and of a preview removed afterwards.
  std::optional<TemporaryFolder> scratch;
  std::string parts = o.intermediate.empty() ? o.out + ".parts" : o.intermediate;
  if (recipes.size() > 1 && o.out.empty() && o.intermediate.empty()) parts = scratch.emplace().path();
  MergeArguments of_parts = o;
  of_parts.is_part = true;
  of_parts.preview = false;
  of_parts.report.clear();
  const std::vector<MergeStep> steps = merge_steps(std::move(recipes), o.out, parts);
  const bool writes = !o.dry_run && !o.preview && !o.out.empty();
  if (writes && o.resume && !o.force && is_whole(steps)) {
    if (!o.report.empty()) run_one(steps.back().recipe, "", o, pool);
    if (o.json) return print_json({{"out", o.out}, {"whole", true}});
    return print("{} is whole: an earlier run of this recipe has finished it\n", o.out);
  }
  if (writes) check_merge_directory(o.out, o.force);  // before the merges that others use are made
  if (steps.size() > 1 && !o.dry_run) check_merges(steps, o.options, o.lazy);
  for (const MergeStep& step : steps) {
    if (o.lazy && is_made(step)) {
      log("{} is there already", step.directory);
      continue;
    }
    if (const std::string missing = o.dry_run ? first_missing(step) : ""; !missing.empty()) {
      log("note: {} is planned when {} is there, which --dry-run does not make", step.directory, missing);
      continue;
    }
    if (!step.is_wanted && !o.dry_run) fs::create_directories(parts);
    run_one(step.recipe, step.directory, step.is_wanted ? o : of_parts, pool);
  }
}

Action define_merge(CLI::App& app) {
  auto o = std::make_shared<MergeArguments>();
  app.add_option("CONFIG", o->config, "The recipe, a YAML file")->type_name("")->required()->check(not_empty());
  app.add_option("OUT", o->out, "The Hugging Face directory to write")->type_name("");
  app.add_flag("--dry-run", o->dry_run, "List every tensor with its sources and parameters, and missing ones; write nothing");
  app.add_flag(
      "--preview", o->preview,
      "Merge in memory; print how the models and the merge continue --prompt, and their perplexity on --text; write nothing");
  app.add_option("--prompt", o->preview_options.prompt,
                 "For --preview, and to show a merged tokenizer (default \"Once upon a time\")")
      ->type_name("TEXT")
      ->check(not_empty());
  app.add_option("--text", o->preview_options.text, "For --preview and --sweep: a text file to score the models on")
      ->type_name("FILE")
      ->check(not_empty());
  add_sweep_options(app, o->sweep);
  app.add_option("--report", o->report,
                 "Write a page that shows what the merge does to every tensor; without OUT, only the page is written")
      ->type_name("PAGE.html")
      ->check(not_empty());
  app.add_flag("--resume", o->resume, "Continue a stopped run");
  app.add_flag("--force", o->force, "Replace OUT, the directory of a model, and remove everything in it");
  app.add_flag("--allow-missing", o->options.allow_missing, "Merge a tensor that some models lack from the others");
  app.add_flag("--allow-nan", o->options.allow_nan, "Allow NaN and infinities");
  app.add_flag("--allow-crimes,!--no-allow-crimes", o->options.allow_crimes, "Merge models of different families");
  app.add_flag("--unsafe-truncate-embeddings,!--no-unsafe-truncate-embeddings", o->options.truncate_embeddings,
               "Truncate embeddings to the smallest vocabulary");
  app.add_option("--out-shard-size", o->shard_size, "Maximum bytes of a file (5B, 500M; default 5B)")->type_name("SIZE");
  app.add_option("--random-seed", o->seed, "Seed of methods that prune at random (default 0)")->type_name("N");
  app.add_flag("--copy-tokenizer,!--no-copy-tokenizer", o->options.copy_tokenizer,
               "Copy the tokenizer of the base model (default)");
  app.add_flag("--write-model-card,!--no-write-model-card", o->options.write_model_card,
               "Write README.md and mergekit_config.yml (default)");
  app.add_option("-I,--intermediate-dir", o->intermediate,
                 "For a file with several merges: the folder of the named ones (default OUT.parts)")
      ->type_name("FOLDER");
  app.add_flag("--lazy,!--no-lazy", o->lazy, "For a file with several merges: reuse existing named results (default)");
  add_count(app, "-j,--threads,--num-threads", o->threads, 0, 4096, "Threads (default: all cores)");
  add_json(app, o->json);

  app.add_option("--out-path", o->out, "")->group("");  // of mergekit-multi
  // mergekit's options that concern other machines or libraries.
  app.add_flag("--safe-serialization,!--no-safe-serialization", o->safe, "")->group("");
  for (const char* flag : {"cuda", "low-cpu-memory", "read-to-gpu", "multi-gpu", "trust-remote-code", "clone-tensors",
                           "lazy-unpickle", "async-write", "quiet"}) {
    const std::string name = std::string("--") + flag;
    app.add_flag_callback(name, [o, name] { o->ignored.insert(name); }, "")->group("");
    app.add_flag_callback("--no-" + std::string(flag), [] {}, "")->group("");
  }
  app.add_flag_callback("--gpu-rich", [o] { o->ignored.insert("--gpu-rich"); }, "")->group("");
  app.add_flag_callback(
         "-v", [o] { o->ignored.insert("-v"); }, "")
      ->group("")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const char* option : {"device", "transformers-cache", "lora-merge-cache", "lora-merge-dtype", "write-threads"}) {
    const std::string name = std::string("--") + option;
    app.add_option_function<std::string>(name, [o, name](const std::string&) { o->ignored.insert(name); }, "")->group("");
  }
  return [o] { run_merge(*o); };
}

}  // namespace

const Command merge_command = {
    "merge", "Merge models by a recipe (mergekit's YAML)",
    "The recipe is a mergekit YAML file: merge_method, models or slices, base_model, parameters with gradients and "
    "filters. Paths of models are relative to the working directory. OUT becomes a Hugging Face directory; it gets its "
    "final name when it is complete. --resume continues a stopped run. mergekit-yaml's options are accepted; a note lists "
    "those that have no effect here. docs/merge.md explains the methods and every key.",
    "vitrine merge examples/merge-slerp.yml merged --dry-run\nvitrine merge examples/merge-slerp.yml merged", define_merge};

}  // namespace vitrine::cli
