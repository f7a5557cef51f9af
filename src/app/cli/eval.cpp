// vitrine eval perplexity: how well a model predicts a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/plural.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/eval_input.h"
#include "cli/eval_view.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shard_flags.h"
#include "cli/study.h"
#include "cli/text_table.h"
#include "evaluate/perplexity.h"

namespace vitrine::cli {
namespace {

constexpr int64_t kShownLikely = 5;  // tokens that the page shows in the place of each

struct PerplexityArguments {
  ModelOptions model;
  EvalTextOptions text;
  std::vector<std::string> ensemble;
  std::string against, out;
  bool per_token = false;
  ShardFlags sharing;
};

OrderedJson per_token_json(const Engine& engine, const PerplexityResult& result) {
  OrderedJson texts = OrderedJson::array();
  for (const ScoredText& text : result.texts) {
    std::vector<int32_t> ids;
    for (const TokenPiece& token : text.tokens) ids.push_back(token.id);
    texts.push_back(tokens_json(engine, ids));
    texts.back()["logprobs"] = json_of(text.logprobs);
  }
  return texts;
}

OrderedJson result_json(const Engine& engine, const PerplexityResult& r, bool per_token) {
  OrderedJson document = {
      {"model", engine.name()}, {"texts", r.texts.size()}, {"definition", definition_json(engine, r.definition)}};
  document.update(json_of(r));
  if (per_token) document["per_token"] = per_token_json(engine, r);
  return document;
}

OrderedJson against_json(const Engine& other, const PerplexityResult& first, const PerplexityResult& second, bool per_token) {
  OrderedJson document = result_json(other, second, per_token);
  document["difference"] = json_of(difference_of(first, second));
  return document;
}

std::string range_text(const LossBucket& b) { return b.from == b.to ? grouped(b.from) : grouped(b.from) + "-" + grouped(b.to); }

// The buckets of one model, beside those of another where there is one.
void print_buckets(const std::string& title, const std::vector<LossBucket>& of_a, const std::vector<LossBucket>* of_b) {
  constexpr int kCells = 24;
  double most = 0;
  for (const LossBucket& b : of_a) most = std::max(most, b.nll);
  TextTable table{{{title, true}, {"tokens"}, {"-ln p"}}, {}};
  if (of_b != nullptr) table.columns.push_back({"other"});
  table.columns.push_back({"", true});
  for (const LossBucket& b : of_a) {
    auto& row = table.rows.emplace_back();
    row = {range_text(b), grouped(b.tokens), fmt::format("{:.3f}", b.nll)};
    if (of_b != nullptr) {
      const auto same = std::find_if(of_b->begin(), of_b->end(), [&](const LossBucket& other) { return other.from == b.from; });
      row.push_back(same == of_b->end() ? "" : fmt::format("{:.3f}", same->nll));
    }
    row.push_back(bar(most > 0 ? b.nll / most : 0, kCells));
  }
  print("\n");
  print_table(table);
}

void print_line(const std::string& name, const PerplexityResult& r) {
  print("{}  perplexity {} ± {:.2g}, {:.4f} nats a token, {:.4f} bits a byte\n", name, bold(fmt::format("{:.4f}", r.perplexity)),
        r.perplexity_error, r.nll, r.bits_per_byte);
  print("{}\n", dim(fmt::format("{} scored in {}, {} of text; {} tokens/s", plural(grouped(r.tokens), "token"),
                                plural(grouped(r.windows), "window"), plural(grouped(r.bytes), "byte"),
                                rate_text(r.timings.tokens_per_s()))));
}

// Of several models the context that fits all.
WindowOptions windows_for(const Engine& engine, std::span<const Engine* const> others, const PerplexityArguments& o) {
  WindowOptions windows = o.text.windows;
  windows.like = protocol_of(o.text.like);
  if (others.empty() || windows.context > 0) return windows;
  int64_t context = define_windows(engine, windows).context;
  for (const Engine* other : others) context = std::min(context, define_windows(*other, windows).context);
  windows.context = context;
  return windows;
}

std::unique_ptr<Engine> open_other(const PerplexityArguments& o, const std::string& model) {
  ModelOptions options = o.model;
  options.model = model;
  options.adapter.clear();
  return std::unique_ptr<Engine>(new Engine(open_engine(options)));  // an engine stays where it is made
}

PerplexityResult run_one(Engine& engine, const std::vector<std::string>& texts, const WindowOptions& windows,
                         const LikelyOptions& likely, SharedWork& work) {
  Progress bar("scoring");
  return perplexity(
      engine, texts, windows, [&](double share, double rate) { bar.show(share, rate_text(rate) + " tokens/s"); }, likely, &work);
}

std::string command_of(const PerplexityArguments& o) {
  std::string command = "vitrine eval perplexity --file " + shell_word(o.text.file);
  if (o.text.jsonl) command += " --jsonl";
  if (o.text.has_key) command += " --key " + shell_word(o.text.key);
  if (o.text.windows.context > 0) command += fmt::format(" --context {}", o.text.windows.context);
  if (o.text.windows.stride > 0) command += fmt::format(" --stride {}", o.text.windows.stride);
  if (o.text.windows.no_special) command += " --no-special";
  if (o.text.like != "vitrine") command += " --like " + o.text.like;
  command += model_words(o.model);
  if (!o.against.empty()) command += " --against " + shell_word(o.against);
  return command + " --out " + shell_word(o.out);
}

void print_difference(const PerplexityResult& a, const PerplexityResult& b) {
  if (const std::optional<LossDifference> d = difference_of(a, b)) {
    print("the second one's -ln p is larger by {:.4f} ± {:.2g}; it finds {} of the tokens more likely\n", d->nll, d->nll_error,
          percent(d->better));
  } else {
    print("their tokens differ, so that only bits a byte can be compared\n");
  }
}

void run_perplexity(const PerplexityArguments& o) {
  if (!o.out.empty()) check_writable("--out", o.out);
  Engine engine = open_engine(o.model);
  std::vector<std::unique_ptr<Engine>> members;  // of the ensemble, but the first
  for (const std::string& member : o.ensemble) members.push_back(open_other(o, member));
  const std::unique_ptr<Engine> other = o.against.empty() ? nullptr : open_other(o, o.against);
  std::vector<const Engine*> others;
  for (const auto& member : members) others.push_back(member.get());
  if (other) others.push_back(other.get());
  if (!o.out.empty()) {
    check_output(engine, o.out, {o.text.file});
    for (const Engine* one : others) check_output(*one, o.out);
  }
  const std::vector<std::string> texts = read_eval_texts(o.text);
  const WindowOptions windows = windows_for(engine, others, o);
  const LikelyOptions likely{o.out.empty() ? 0 : kShownLikely, kMostOnPage};
  std::vector<const Engine*> all = {&engine};
  all.insert(all.end(), others.begin(), others.end());
  std::vector<std::pair<std::string, std::string>> also;
  if (!o.out.empty()) also.emplace_back("--out", "a page");  // it shows other tokens, which are kept too
  SharedWork work = shared_work(o.sharing, all, also);
  std::vector<PerplexityResult> alone = {run_one(engine, texts, windows, likely, work)};
  for (const auto& member : members) alone.push_back(run_one(*member, texts, windows, {}, work));
  std::optional<PerplexityResult> second;
  if (other) second = run_one(*other, texts, windows, likely, work);
  if (finish_part(work, o.model.json)) return;
  const PerplexityResult result = members.empty() ? alone.front() : ensemble_of(alone);
  const EvalView view{engine, texts, result, other.get(), second ? &*second : nullptr};
  if (!o.out.empty()) {
    write_study_page(o.out, eval_document(view, command_of(o)));
  }
  if (o.model.json) {
    OrderedJson document = result_json(engine, result, o.per_token);
    if (!members.empty()) {
      document["ensemble"] = OrderedJson::array();
      for (size_t m = 0; m < alone.size(); ++m)
        document["ensemble"].push_back({{"model", m == 0 ? engine.name() : others[m - 1]->name()},
                                        {"perplexity", alone[m].perplexity},
                                        {"nll", alone[m].nll},
                                        {"bits_per_byte", alone[m].bits_per_byte}});
    }
    if (second) document["against"] = against_json(*other, result, *second, o.per_token);
    return print_json(document);
  }
  if (o.per_token) print_tokens(view);
  if (!members.empty())
    for (size_t m = 0; m < alone.size(); ++m) print_line(m == 0 ? engine.name() : others[m - 1]->name(), alone[m]);
  print_line(members.empty() ? engine.name() : fmt::format("mean of the {} models' probabilities", alone.size()), result);
  if (second) {
    print_line(other->name(), *second);
    print_difference(result, *second);
  }
  print("{}\n", result.definition.text(engine));
  print_buckets("tokens in front", result.by_position, second ? &second->by_position : nullptr);
  print_buckets("occurrences in the text", result.by_frequency, second ? &second->by_frequency : nullptr);
}

Action define_eval_perplexity(CLI::App& app) {
  auto o = std::make_shared<PerplexityArguments>();
  add_eval_text_options(app, o->text);
  add_choice(app, "--like", o->text.like, "vitrine|transformers|harness|llama.cpp",
             "The definition of perplexity (default vitrine); docs/evaluation.md explains them");
  app.add_flag("--per-token", o->per_token, "Show every token, colored by its -ln p; with --json its log-probability");
  app.add_option("--ensemble", o->ensemble,
                 "Another model that predicts together with --model: the probability of each token is the mean of theirs. May be "
                 "repeated; all need the same tokenizer")
      ->type_name("MODEL")
      ->check(not_empty());
  app.add_option("--against", o->against,
                 "A second model, shown beside the first; differences are by token if the tokens are the same")
      ->type_name("MODEL")
      ->check(not_empty());
  app.add_option("--out,-o", o->out, "Write a page with the text, colored by token, and curves")
      ->type_name("PAGE.html")
      ->check(not_empty())
      ->excludes("--ensemble");
  add_model_options(app, o->model);
  add_cache_types(app, o->model);
  add_shard_flags(app, o->sharing);
  return [o] { run_perplexity(*o); };
}

}  // namespace

const Command eval_perplexity_command = {
    "eval perplexity", "Measure how well a model predicts a text",
    "Prints perplexity, the mean of -ln p, bits per byte and standard errors, with the definition that was used: what is "
    "tokenized, which tokens come first, the windows and the scored tokens. Perplexities of two models can be compared if "
    "definition and tokenizer are the same; bits per byte also across tokenizers. --like uses the definition of another "
    "program. See docs/evaluation.md.",
    "vitrine eval perplexity --file examples/fables.txt --context 256\n"
    "vitrine eval perplexity --file examples/fables.txt --context 256 --like llama.cpp --json",
    define_eval_perplexity};

}  // namespace vitrine::cli
