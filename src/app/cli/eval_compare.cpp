// vitrine eval compare: a quantized file against its original, over a text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/plural.h"
#include "cli/commands.h"
#include "cli/eval_input.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shard_flags.h"
#include "cli/text_table.h"
#include "evaluate/compare.h"

namespace vitrine::cli {
namespace {

struct EvalCompareArguments {
  ModelOptions model;
  std::string other;
  EvalTextOptions text;
  ShardFlags sharing;
};

constexpr std::pair<const char*, double> kQuantiles[] = {{"median", 0.5}, {"p90", 0.9},    {"p95", 0.95},
                                                         {"p99", 0.99},   {"p999", 0.999}, {"most", 1}};

OrderedJson comparison_json(const Engine& a, const Engine& b, const TextComparison& c) {
  OrderedJson kl = json_of(c.kl);
  for (const auto& [name, share] : kQuantiles) kl[name] = c.kl_quantile(share);
  const auto side = [](const Engine& engine, const std::vector<std::string>& dtypes, const MeanOfTokens& nll) {
    return OrderedJson{{"model", engine.name()}, {"dtypes", dtypes}, {"nll", nll.mean}, {"perplexity", std::exp(nll.mean)}};
  };
  return {
      {"a", side(a, c.dtypes_a, c.nll_a)},
      {"b", side(b, c.dtypes_b, c.nll_b)},
      {"tokens", c.tokens},
      {"windows", c.windows},
      {"definition", definition_json(a, c.definition)},
      {"kl", std::move(kl)},
      {"top1_agreement", c.same_top.mean},
      {"top1_agreement_error", c.same_top.error},
      {"nll_difference", json_of(c.nll_difference)},
      {"perplexity_ratio", std::exp(c.nll_difference.mean)},
      {"prob_difference", {{"mean", c.prob_difference.mean}, {"error", c.prob_difference.error}, {"rms", c.prob_difference_rms}}},
      {"layers", json_of(c.layers)},
      {"timings", json_of(c.timings)}};
}

std::string type_list(const std::vector<std::string>& dtypes) {
  std::string text;
  for (const std::string& dtype : dtypes) text += (text.empty() ? "" : ", ") + dtype;
  return text;
}

void print_comparison(const Engine& a, const Engine& b, const TextComparison& c) {
  TextTable summary{{{"", true}, {"", true}}, {}};
  const auto line = [&](const std::string& what, const std::string& value) { summary.rows.push_back({what, value}); };
  const auto with_error = [](const MeanOfTokens& m) { return fmt::format("{:.4g} ± {:.1g}", m.mean, m.error); };
  line("original", fmt::format("{} ({}): perplexity {:.4f}", a.name(), type_list(c.dtypes_a), std::exp(c.nll_a.mean)));
  line("compared with it", fmt::format("{} ({}): perplexity {:.4f}", b.name(), type_list(c.dtypes_b), std::exp(c.nll_b.mean)));
  line("perplexity ratio",
       fmt::format("{:.5f}; -ln p grows by {}", std::exp(c.nll_difference.mean), with_error(c.nll_difference)));
  line("KL (original || other)", bold(with_error(c.kl)) + " nats a token");
  std::string quantiles;
  for (const auto& [name, share] : kQuantiles)
    quantiles += fmt::format("{}{} {:.3g}", quantiles.empty() ? "" : ", ", name, c.kl_quantile(share));
  line("", quantiles);
  line("same most likely token", fmt::format("{} ± {:.2f}", percent(c.same_top.mean), 100 * c.same_top.error));
  line("probability of the text",
       fmt::format("changes by {:.3f} % ± {:.3f} in the mean, {:.3f} % as root mean square", 100 * c.prob_difference.mean,
                   100 * c.prob_difference.error, 100 * c.prob_difference_rms));
  print_table(summary);
  print("\n");
  TextTable layers{{{"stream after", true}, {"relative"}, {"1 - cosine"}, {"largest"}, {"", true}}, {}};
  const auto rounded = [](double value) { return fmt::format("{:.3g}", value); };
  double most = 0;
  for (const TextComparison::Layer& layer : c.layers) most = std::max(most, layer.relative);
  for (const TextComparison::Layer& layer : c.layers)
    layers.rows.push_back({layer.point, rounded(layer.relative), rounded(1 - layer.cosine), rounded(layer.distance),
                           bar(most > 0 ? layer.relative / most : 0, 24)});
  print_table(layers);
  print("\n{}\n", c.definition.text(a));
  print("{}\n", dim(fmt::format("{} in {}; {} tokens/s", plural(grouped(c.tokens), "token"), plural(grouped(c.windows), "window"),
                                rate_text(c.timings.tokens_per_s()))));
}

void run_eval_compare(const EvalCompareArguments& o) {
  ModelOptions other = o.model;
  other.model = o.other;
  other.adapter.clear();
  Engine a = open_engine(o.model), b = open_engine(other);
  const std::vector<std::string> texts = read_eval_texts(o.text);
  SharedWork work = shared_work(o.sharing, {&a, &b});
  TextComparison result;
  {
    Progress bar("comparing");
    result = compare_on_texts(
        a, b, texts, o.text.windows, [&](double share, double rate) { bar.show(share, rate_text(rate) + " tokens/s"); }, &work);
  }
  if (finish_part(work, o.model.json)) return;
  if (o.model.json) return print_json(comparison_json(a, b, result));
  print_comparison(a, b, result);
}

Action define_eval_compare(CLI::App& app) {
  auto o = std::make_shared<EvalCompareArguments>();
  app.add_option("OTHER", o->other, "The file to compare with --model, the original: quantized, rounded or merged from it")
      ->type_name("")
      ->required();
  add_eval_text_options(app, o->text);
  add_model_options(app, o->model);
  add_shard_flags(app, o->sharing);
  return [o] { run_eval_compare(*o); };
}

}  // namespace

const Command eval_compare_command = {
    "eval compare", "Compare a quantized file with its original over a text",
    "OTHER is compared with --model: the KL divergence of the predictions (mean and percentiles), how often the most likely "
    "token is "
    "the same, both perplexities, the change of the probabilities of the text's tokens, and the error of the residual stream "
    "after "
    "every layer. `vitrine compare` shows one prompt token by token.",
    "vitrine eval compare tests/golden/gguf/llama_q8_0.gguf --model tests/golden/models/llama/model --file "
    "examples/fables.txt",
    define_eval_compare};

}  // namespace vitrine::cli
