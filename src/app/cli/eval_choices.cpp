// vitrine eval choices: multiple choice by log-likelihood.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/plural.h"
#include "cli/choice_file.h"
#include "cli/commands.h"
#include "cli/eval_input.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shard_flags.h"
#include "evaluate/choices.h"

namespace vitrine::cli {
namespace {

struct ChoicesArguments {
  ModelOptions model;
  std::vector<std::string> files;
  std::string task;
  int64_t limit = 0;
  bool show_items = false;
  ShardFlags sharing;
};

OrderedJson items_json(const ChoiceFile& file, const ChoicesResult& result) {
  OrderedJson items = OrderedJson::array();
  for (size_t i = 0; i < file.items.size(); ++i) {
    const ChoiceItem& item = file.items[i];
    const ChoiceAnswer& answer = result.answers[i];
    OrderedJson choices = OrderedJson::array();
    for (size_t c = 0; c < item.choices.size(); ++c) {
      choices.push_back({{"context", item.choices[c].context}, {"continuation", item.choices[c].continuation}});
      choices.back().update(json_of(answer.scores[c]));
    }
    OrderedJson line = {{"gold", item.gold}, {"pick", answer.pick}, {"correct", answer.pick == item.gold}};
    line["pick_norm"] = norms_by_length(file.task) ? OrderedJson(answer.pick_norm) : OrderedJson(nullptr);
    line["choices"] = std::move(choices);
    items.push_back(std::move(line));
  }
  return items;
}

OrderedJson choices_json(const ChoiceFile& file, const ChoicesResult& r) {
  const bool norms = norms_by_length(file.task);
  OrderedJson timings = json_of(r.timings);
  timings["tokens"] = r.tokens;
  const auto normed = [&](double value) { return norms ? OrderedJson(value) : OrderedJson(nullptr); };
  return {{"file", file.path},
          {"task", name_of(file.task)},
          {"count", file.items.size()},
          {"accuracy", r.accuracy.value},
          {"accuracy_error", r.accuracy.error},
          {"accuracy_norm", normed(r.norm.value)},
          {"accuracy_norm_error", normed(r.norm.error)},
          {"accuracy_bytes", normed(r.bytes.value)},
          {"accuracy_bytes_error", normed(r.bytes.error)},
          {"random", r.random},
          {"centered", r.centered},
          {"timings", std::move(timings)},
          {"items", items_json(file, r)}};
}

void print_items(const ChoiceFile& file, const ChoicesResult& result) {
  for (size_t i = 0; i < file.items.size(); ++i) {
    const ChoiceItem& item = file.items[i];
    print("\n{}\n", bold(visible_message(item.choices[0].context)));
    for (size_t c = 0; c < item.choices.size(); ++c) {
      const std::string text = visible_message(norms_by_length(file.task) ? item.choices[c].text : item.choices[c].context);
      const bool picked = c == result.answers[i].pick;
      print("{} {}{:>10.3f}  {}\n", picked ? ">" : " ", c == item.gold ? "right" : "     ", result.answers[i].scores[c].logprob,
            picked ? bold(text) : text);
    }
  }
  print("\n");
}

void print_summary(const ChoiceFile& file, const ChoicesResult& r) {
  print("{} ({}, {})\n", bold(file.path), name_of(file.task), plural(file.items.size(), "item"));
  const auto line = [](const char* what, const Accuracy& a) {
    print("  {}{:>9} ± {:.1f}\n", pad_right(what, 34), percent(a.value), 100 * a.error);
  };
  line("accuracy", r.accuracy);
  if (norms_by_length(file.task)) {
    line("accuracy, normed by characters", r.norm);
    line("accuracy, normed by bytes", r.bytes);
  }
  print("  {}{:>9}\n", pad_right("guessing", 34), percent(r.random));
  print("  {}{:>9.4f}\n", pad_right("centered (0 guessing, 1 all right)", 34), r.centered);
  print("{}\n", dim(fmt::format("  {} in {:.1f} s, {} tokens/s; {} read, since what choices share is read once",
                                plural(grouped(r.tokens), "token"), r.timings.seconds, rate_text(r.timings.tokens_per_s()),
                                grouped(r.timings.tokens_read))));
}

void run_choices(const ChoicesArguments& o) {
  Engine engine = open_engine(o.model);
  std::vector<ChoiceFile> files;
  for (const std::string& path : o.files) files.push_back(read_choice_file(path, o.task, o.limit));
  SharedWork work = shared_work(o.sharing, {&engine});
  std::vector<ChoicesResult> results;
  for (const ChoiceFile& file : files) {
    Progress bar(file.path);
    results.push_back(answer_choices(
        engine, file.items, [&](double share, double rate) { bar.show(share, rate_text(rate) + " tokens/s"); }, &work));
  }
  if (finish_part(work, o.model.json)) return;
  if (o.model.json) {
    if (files.size() == 1) return print_json(choices_json(files[0], results[0]));
    OrderedJson tasks = OrderedJson::array();
    for (size_t f = 0; f < files.size(); ++f) tasks.push_back(choices_json(files[f], results[f]));
    return print_json({{"centered_mean", centered_mean(results)}, {"tasks", std::move(tasks)}});
  }
  for (size_t f = 0; f < files.size(); ++f) {
    if (o.show_items) print_items(files[f], results[f]);
    print_summary(files[f], results[f]);
  }
  if (files.size() > 1) print("centered accuracy, mean of {} tasks: {:.4f}\n", files.size(), centered_mean(results));
}

Action define_eval_choices(CLI::App& app) {
  auto o = std::make_shared<ChoicesArguments>();
  app.add_option("--file,-f", o->files, "JSON lines, one item per line; several files are several tasks (also .gz and .zst)")
      ->type_name("FILE")
      ->required()
      ->check(not_empty());
  add_choice(app, "--task", o->task, "hellaswag|arc|piqa|winogrande|general",
             "The task of the items (default: detected from their fields)");
  add_count(app, "--limit", o->limit, 1, INT32_MAX, "Use only the first N items of each file");
  app.add_flag("--show-items", o->show_items, "Print every item with its choices and their log-likelihoods");
  add_model_options(app, o->model);
  add_shard_flags(app, o->sharing);
  return [o] { run_choices(*o); };
}

}  // namespace

const Command eval_choices_command = {
    "eval choices", "Answer multiple-choice questions by log-likelihood",
    "Reads the items of HellaSwag, ARC, PIQA and WinoGrande as JSON lines, or lines with context, choices and gold. A "
    "choice's score is the log-likelihood of its tokens, with the prompts of lm-evaluation-harness without examples "
    "(0-shot), and equal to its results item by item. Prints accuracy, length-normalized accuracy, standard errors, and "
    "centered accuracy, whose mean is the formula of DCLM's core score.",
    "vitrine eval choices --file examples/questions.jsonl --show-items\n"
    "vitrine eval choices --file examples/questions.jsonl --json",
    define_eval_choices};

}  // namespace vitrine::cli
