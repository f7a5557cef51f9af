// vitrine circuits: what each attention head is made of, and what it attends to.
#include "inspect/circuits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/plural.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/study.h"
#include "cli/text_table.h"
#include "inspect/head_scores.h"
#include "inspect/head_words.h"
#include "picture/data/study.h"

namespace vitrine::cli {
namespace {

constexpr size_t kShownValues = 3;  // singular values in the table, fewer where it would be too wide; --json has all

struct CircuitsArguments {
  ModelOptions model;
  PromptOptions prompt;
  int64_t layer = -1, head = -1, offset = 0, compositions = 10, repeat = 0, seed = 0;
  bool has_seed = false;
  std::string checkpoints, page;
};

bool given(const CircuitsArguments& o) { return o.prompt.has_text || o.prompt.has_tokens; }

constexpr HeadRole kScores[] = {HeadRole::previous, HeadRole::duplicate, HeadRole::induction, HeadRole::first};
constexpr const char* kRoleNames[] = {"previous_token", "duplicate_token", "induction", "first_token"};

// No query of this prompt may have keys of a role; a score of 0 would say that the head does not look at them.
void add_scores(OrderedJson& head, const HeadScores& scores) {
  const HeadScore& score = scores.of(head.at("layer"), head.at("head"));
  for (size_t i = 0; i < kHeadRoles; ++i)
    head[kRoleNames[i]] = scores.queries[i] > 0 ? OrderedJson(score.mean[i]) : OrderedJson(nullptr);
}
std::string score_text(const HeadScores& scores, const HeadScore& score, HeadRole role) {
  return scores.queries[static_cast<size_t>(role)] > 0 ? fmt::format("{:.3f}", score.at(role)) : "-";
}

OrderedJson document(const CircuitsArguments& o, const HeadScores& scores, const CircuitTable& table, bool repeated) {
  OrderedJson json = {{"prompt", repeated ? "repeated random tokens" : "as given"}, {"tokens", scores.ids}, {"offset", o.offset}};
  for (size_t i = 0; i < kHeadRoles; ++i) json["queries"][kRoleNames[i]] = scores.queries[i];
  json.update(json_of(table));
  for (OrderedJson& head : json["heads"]) add_scores(head, scores);
  return json;
}

std::string values_text(const Spectrum& s, size_t shown) {
  std::string text;
  for (size_t i = 0; i < std::min(shown, s.singular_values.size()); ++i)
    text += fmt::format("{}{:#.3g}", i > 0 ? " " : "", s.singular_values[i]);
  return text;
}

// What a reader wants first. What stands between backquotes is bold.
void print_sentences(const HeadScores& scores, const CircuitTable& table) {
  for (const std::string& sentence : head_sentences(scores, table.heads)) {
    std::string line;
    for (size_t begin = 0, part = 0; begin <= sentence.size(); ++part) {
      const size_t end = std::min(sentence.find('`', begin), sentence.size());
      const std::string text = sentence.substr(begin, end - begin);
      line += part % 2 == 1 ? bold(text) : text;
      begin = end + 1;
    }
    print("{}\n", line);
  }
}

// The largest of each column stands out.
std::vector<std::string> table_row(const HeadSpectra& h, const HeadScores& scores, const std::array<double, 4>& most,
                                   double most_copied, size_t values) {
  const HeadScore& score = scores.of(h.layer, h.head);
  std::vector<std::string> row = {std::to_string(h.layer), std::to_string(h.head)};
  for (size_t i = 0; i < most.size(); ++i) {
    const std::string text = score_text(scores, score, kScores[i]);
    row.push_back(most[i] > 0 && score.at(kScores[i]) == most[i] ? risen(bold(text)) : text);
  }
  const std::string copying = fmt::format("{:+.3f}", h.copying);
  row.push_back(most_copied == 0 || std::abs(h.copying) != most_copied ? copying
                : h.copying < 0                                        ? fallen(bold(copying))
                                                                       : risen(bold(copying)));
  for (const Spectrum* spectrum : {&h.qk, &h.ov}) {
    row.push_back(std::to_string(spectrum->rank));
    row.push_back(values_text(*spectrum, values));
  }
  return row;
}

void print_table(const CircuitsArguments& o, const HeadScores& scores, const CircuitTable& table) {
  print_sentences(scores, table);
  double most_copied = 0;
  std::array<double, 4> most = {};
  if (table.heads.size() > 1)
    for (const HeadSpectra& h : table.heads) {
      most_copied = std::max(most_copied, std::abs(h.copying));
      for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], scores.of(h.layer, h.head).at(kScores[i]));
    }
  const auto table_of = [&](size_t values, const char* gap) {
    TextTable heads;
    for (const char* name :
         {"layer", "head", "previous", "duplicate", "induction", "first", "copying", "rank", "QK", "rank", "OV"})
      heads.columns.push_back({name, name[1] >= 'A' && name[1] <= 'Z'});  // QK, OV: from the left
    for (const HeadSpectra& h : table.heads) heads.rows.push_back(table_row(h, scores, most, most_copied, values));
    heads.gap = gap;
    return heads;
  };
  const auto fits = [](const TextTable& heads) { return terminal().columns == 0 || table_width(heads) <= terminal().columns; };
  TextTable heads = table_of(kShownValues, "  ");
  for (size_t values = kShownValues - 1; values > 0 && !fits(heads); --values) heads = table_of(values, "  ");
  if (!fits(heads)) heads = table_of(1, " ");
  print("\n");
  print_table(heads);
  const std::vector<HeadLink> links = strongest_links(table.composition, static_cast<size_t>(o.compositions));
  if (links.empty()) return;
  print("\n{}\n", dim("strongest compositions"));
  for (const HeadLink& link : links) print("{:.3f}  {}\n", link.score, words_of(link));
}

// The tokens that heads are scored on. `o.repeat` becomes how many are repeated.
std::vector<int32_t> scored_ids(Engine& engine, CircuitsArguments& o) {
  if (given(o)) {
    std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
    if (prompts.size() > 1) throw UsageError("several sequences were given; heads are scored on one.");
    return std::move(prompts[0].ids);
  }
  const ModelShape& shape = engine.shape();
  const int64_t fits = shape.context_length > 0 ? (shape.context_length - 1) / 2 : 50;
  if (o.repeat == 0) o.repeat = std::min<int64_t>(50, fits);
  return repeated_random_ids(engine, o.repeat, static_cast<uint64_t>(o.seed));
}

CircuitOptions circuit_options(const CircuitsArguments& o) {
  CircuitOptions options;
  if (o.layer >= 0) options.layer = o.layer;
  if (o.head >= 0) options.head = o.head;
  options.offset = o.offset;
  options.composition = o.compositions > 0;
  return options;
}

std::string words_of_prompt(const CircuitsArguments& o) {
  if (given(o)) return prompt_words(o.prompt);
  return fmt::format("--repeat {}{}", o.repeat, o.has_seed ? fmt::format(" --seed {}", o.seed) : "");
}

StudiedHeads studied(Engine& engine, const ModelOptions& model, const std::string& name, HeadScores scores) {
  StudiedHeads heads{name, model_words(model), {}, std::move(scores), {}};
  if (heads.scores.ids.size() > 1) heads.logprobs = engine.token_logprobs(heads.scores.ids);
  return heads;
}

void write_heads_page(const Engine& engine, const CircuitsArguments& o, std::span<const StudiedHeads> runs,
                      const CircuitTable& table) {
  const std::string prompt = words_of_prompt(o);
  StudyHead head;
  head.kicker = "Attention heads";
  head.title = runs.size() > 1
                   ? fmt::format("What {} heads look at over {} checkpoints", runs[0].scores.heads.size(), runs.size())
                   : fmt::format("What the heads of {} look at", short_name(engine.name()));
  head.lines.push_back(
      given(o)
          ? fmt::format("Every head was scored on {} of a text.", plural(runs[0].scores.ids.size(), "token"))
          : fmt::format("Every head was scored on {} random tokens, repeated once: what came next the last time can be known "
                        "there only from the sequence itself.",
                        o.repeat));
  head.command = "vitrine circuits " + prompt +
                 (o.checkpoints.empty() ? model_words(o.model) : " --checkpoints " + shell_word(o.checkpoints)) + " --page " +
                 shell_word(o.page);
  write_study_page(o.page, study_document(engine, head, {heads_section(runs, &table, given(o) ? 0 : o.repeat, prompt)}));
}

// One line for each checkpoint: how well it predicts, and its strongest head of each kind.
void print_checkpoints(std::span<const StudiedHeads> runs, int64_t repeated) {
  print("{}\n", dim(fmt::format("{:>8}  {:>7}{}{:>16}{:>16}{:>16}{:>16}", "step", "loss", repeated > 0 ? "    again" : "",
                                "previous", "duplicate", "induction", "first")));
  for (const StudiedHeads& run : runs) {
    std::string line = fmt::format("{:>8}  {:>7}", *run.step, fmt::format("{:.3f}", run.loss(repeated, false)));
    if (repeated > 0) line += fmt::format("{:>9.3f}", run.loss(repeated, true));
    for (const HeadRole role : kScores) {
      const HeadScore& best = *std::max_element(run.scores.heads.begin(), run.scores.heads.end(),
                                                [&](const HeadScore& a, const HeadScore& b) { return a.at(role) < b.at(role); });
      line += pad_left(fmt::format("{}.{} {}", best.layer, best.head, score_text(run.scores, best, role)), 16);
    }
    print("{}\n", line);
  }
}

OrderedJson checkpoints_json(std::span<const StudiedHeads> runs, std::span<const RunCheckpoint> checkpoints, int64_t repeated) {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < runs.size(); ++i) {
    OrderedJson heads = OrderedJson::array();
    for (const HeadScore& score : runs[i].scores.heads) {
      heads.push_back({{"layer", score.layer}, {"head", score.head}});
      add_scores(heads.back(), runs[i].scores);
    }
    list.push_back({{"step", checkpoints[i].step},
                    {"model", checkpoints[i].path},
                    {"loss", runs[i].loss(repeated, false)},
                    {"loss_again", repeated > 0 ? OrderedJson(runs[i].loss(repeated, true)) : OrderedJson(nullptr)},
                    {"heads", std::move(heads)}});
  }
  return {{"tokens", runs[0].scores.ids}, {"checkpoints", std::move(list)}};
}

void run_checkpoints(CircuitsArguments o) {
  if (!o.model.model.empty() || !o.model.adapter.empty())
    throw UsageError("--checkpoints names models itself; leave out --model and --adapter.");
  if (o.layer >= 0 || o.head >= 0) throw UsageError("--checkpoints scores all heads; leave out --layer and --head.");
  const std::vector<RunCheckpoint> checkpoints = checkpoints_in(o.checkpoints);
  std::vector<StudiedHeads> runs;
  std::vector<int32_t> ids;
  for (const RunCheckpoint& checkpoint : checkpoints) {
    ModelOptions options = o.model;
    options.model = checkpoint.path;
    Engine engine = open_engine(options);
    check_output(engine, o.page);
    if (ids.empty()) ids = scored_ids(engine, o);
    runs.push_back(studied(engine, options, fmt::format("step {}", checkpoint.step), score_heads(engine, ids)));
    runs.back().step = checkpoint.step;
    if (o.page.empty() || &checkpoint != &checkpoints.back()) continue;
    write_heads_page(engine, o, runs, circuit_table(engine, circuit_options(o)));
  }
  const int64_t repeated = given(o) ? 0 : o.repeat;
  if (o.model.json) return print_json(checkpoints_json(runs, checkpoints, repeated));
  print_checkpoints(runs, repeated);
  log("scores on {}{}", plural(ids.size(), "token"), given(o) ? "" : ", the second half of them the first again");
}

void run_circuits(CircuitsArguments o) {
  if (given(o) && o.repeat > 0) throw UsageError("--repeat makes a prompt of its own; leave out the text or --tokens.");
  if (given(o) && o.has_seed) throw UsageError("--seed chooses random tokens; leave it out, or the text or --tokens.");
  if (!o.page.empty()) check_writable("--page", o.page);
  if (!o.checkpoints.empty()) return run_checkpoints(std::move(o));
  Engine engine = open_engine(o.model);
  check_output(engine, o.page);
  const std::vector<int32_t> ids = scored_ids(engine, o);
  const HeadScores scores = score_heads(engine, ids);  // first: it is quick, and refuses a prompt that cannot be run
  const CircuitTable table = circuit_table(engine, circuit_options(o));
  if (!o.page.empty()) {
    const StudiedHeads run = studied(engine, o.model, short_name(engine.name()), scores);
    write_heads_page(engine, o, std::span(&run, 1), table);
  }
  if (o.model.json) return print_json(document(o, scores, table, !given(o)));
  print_table(o, scores, table);
  log("scores on {}{}; QK for keys {} back", plural(ids.size(), "token"),
      given(o) ? "" : ", the second half of them the first again", plural(o.offset, "position"));
}

Action define_circuits(CLI::App& app) {
  auto o = std::make_shared<CircuitsArguments>();
  add_prompt_options(app, o->prompt, false);
  add_count(app, "--repeat", o->repeat, 2, 1 << 20,
            "Score heads on this many random tokens, repeated once; default without a prompt: 50, or half the context length");
  add_count(app, "--seed", o->seed, 0, int64_t{1} << 53, "Seed of the random tokens (default 0)")->each([o](const std::string&) {
    o->has_seed = true;
  });
  add_count(app, "--layer", o->layer, 0, 1 << 20, "This layer only; default: all");
  add_count(app, "--head", o->head, 0, 1 << 20, "This head only; default: all");
  add_count(app, "--offset", o->offset, 0, int64_t{1} << 40,
            "Distance from key to query, on which QK depends with rotary positions (default 0)");
  add_count(app, "--compositions", o->compositions, 0, 1 << 20,
            "Number of the strongest compositions to list; 0: do not compute them (default 10; --json has all)");
  app.add_option(
         "--checkpoints", o->checkpoints,
         "Score the heads of every checkpoint in the folder of a training run, one line each; with --page as an animation")
      ->type_name("RUN")
      ->check(not_empty());
  add_page(app, o->page);
  add_model_options(app, o->model);
  return [o] { run_circuits(*o); };
}

}  // namespace

const Command circuits_command = {
    "circuits", "Show what each attention head attends to, and its QK and OV circuits",
    "For every head: how much of its attention goes to the previous token, to earlier copies of the token, to what "
    "followed them (induction) and to the first token, as a mean over the queries that have such keys; the eigenvalue "
    "copying score of its full OV circuit; rank and largest singular values of QK and OV, with the norms' weights folded "
    "in. Then the strongest compositions: which later head reads what an earlier head writes. Without a prompt, heads are "
    "scored on a sequence of random tokens, repeated once.",
    "vitrine circuits\nvitrine circuits \"the old king and the old queen\" --layer 2 --compositions 0 --json", define_circuits};

}  // namespace vitrine::cli
