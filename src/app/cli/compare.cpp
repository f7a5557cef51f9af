// vitrine compare: two files of one model, layer by layer.
#include "inspect/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

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
#include "picture/data/study.h"

namespace vitrine::cli {
namespace {

struct CompareArguments {
  std::string a, b, page;
  ModelOptions model;
  PromptOptions prompt;
  double threshold = 1e-3;
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

OrderedJson document(const CompareArguments& o, const Engine& a, const Prompt& prompt, const ModelComparison& c) {
  OrderedJson json = prompt_json(a, prompt);
  json.update(json_of(c, speller_of(a, prompt.from_text)));
  json["a"]["model"] = o.a;
  json["b"]["model"] = o.b;
  return json;
}

void print_report(const CompareArguments& o, const Engine& a, const ModelComparison& c) {
  TextTable layers{{{"", true}, {"1 - cosine"}, {"largest"}, {"relative"}, {"attention"}, {"most moved"}}, {}};
  for (const StreamDifference& d : c.layers) {
    const auto rounded = [](double value) { return fmt::format("{:.3g}", value); };
    auto& row = layers.rows.emplace_back();
    row = {d.point == c.first_beyond ? bold(d.point) : d.point, rounded(1 - d.cosine), rounded(d.distance), rounded(d.relative)};
    if (d.layer) row.insert(row.end(), {rounded(d.attention_mean), rounded(d.attention_most)});
  }
  print_table(layers);
  print("\n");
  TextTable next{{{"at"}, {"KL"}, {"most likely next", true}}, {}};
  for (const PredictionDifference& d : c.predictions) {
    const std::string of_a = shown_piece(a, d.a.token), of_b = shown_piece(a, d.b.token);
    next.rows.push_back(
        {std::to_string(d.position), fmt::format("{:.3g}", d.kl), of_a + (of_a == of_b ? "" : dim(" against ") + bold(of_b))});
  }
  print_table(next);
  print("\nKL {:.3g} mean, {:.3g} largest; the most likely token is the same at {} of positions\n", c.kl_mean, c.kl_most,
        percent(c.same_top));
  if (!c.first_beyond) print("no layer is beyond {:g}\n", c.threshold);
  for (const StreamDifference& d : c.layers)
    if (d.point == c.first_beyond)
      print("first beyond {:g}: {}, {:.3g} at position {}\n", c.threshold, d.point, d.distance, d.worst_position);
  log("a: {} ({}), b: {} ({})", o.a, joined(c.a.dtypes), o.b, joined(c.b.dtypes));
}

constexpr int64_t kShownTop = 6;  // most likely tokens that the page shows in the place of each

// The prompt as a reader sees it, with what this model says of each token. The first one is not predicted by anything.
LossesData::Run studied_losses(Engine& engine, const std::string& name, const Engine& speller, const Prompt& prompt) {
  LossesData::Run losses{.engine = &speller, .name = name};
  LossesData::Text& text = losses.texts.emplace_back();
  const size_t n = prompt.ids.size();
  for (const int32_t id : prompt.ids) text.words.push_back(shown_piece(speller, id));
  text.nll.resize(n);
  text.likely.resize(n);
  if (n > 1) {
    const std::vector<float> logprobs = engine.token_logprobs(prompt.ids);
    for (size_t i = 1; i < n; ++i) text.nll[i] = -static_cast<double>(logprobs[i - 1]);
  }
  // What would follow the last token is shown behind it.
  text.words.emplace_back("…");
  text.nll.emplace_back();
  text.likely.emplace_back();
  for (const Prediction& prediction : engine.predict(prompt.ids, kShownTop, true))
    text.likely[static_cast<size_t>(prediction.position) + 1] = likely_tokens(prediction.top);
  return losses;
}

void write_compare_page(Engine& a, Engine& b, const CompareArguments& o, const Prompt& prompt, const ModelComparison& c) {
  StudyHead head;
  head.kicker = "Two models side by side";
  head.title = fmt::format("{} and {}", short_name(o.a), short_name(o.b));
  head.lines.push_back(fmt::format("Both read the same {}. {} holds {}, {} holds {}.", plural(prompt.ids.size(), "token"), o.a,
                                   joined(c.a.dtypes), o.b, joined(c.b.dtypes)));
  head.lines.push_back(fmt::format("KL {:.3g} mean, {:.3g} largest; the most likely token is the same at {} of positions.",
                                   c.kl_mean, c.kl_most, percent(c.same_top)));
  ModelOptions run = o.model;
  const auto options_of = [&](const std::string& model) {
    run.model = model;
    return model_words(run);
  };
  const std::string words = prompt_words(o.prompt);
  head.command = "vitrine compare " + shell_word(o.a) + " " + shell_word(o.b) + model_words(o.model) + " --page " +
                 shell_word(o.page) + " " + words;
  std::vector<std::optional<double>> kl = {std::nullopt};
  for (const PredictionDifference& d : c.predictions) kl.push_back(d.kl);
  const StudiedHeads heads[] = {{o.a, options_of(o.a), {}, score_heads(a, prompt.ids), {}},
                                {o.b, options_of(o.b), {}, score_heads(b, prompt.ids), {}}};
  write_study_page(
      o.page, study_document(a, head,
                             {losses_section({studied_losses(a, o.a, a, prompt), studied_losses(b, o.b, a, prompt)}, true, kl),
                              LayersData{c.layers}, heads_section(heads, nullptr, 0, words)}));
}

void run_compare(const CompareArguments& o) {
  ModelOptions of_a = o.model, of_b = o.model;
  of_a.model = o.a;
  of_b.model = o.b;
  if (!o.page.empty()) check_writable("--page", o.page);
  Engine a = open_engine(of_a), b = open_engine(of_b);
  check_output(a, o.page);
  check_output(b, o.page);
  const std::vector<Prompt> prompts = read_prompts(a, o.prompt);
  if (prompts.size() > 1) throw UsageError("several sequences were given; two models are compared on one.");
  const ModelComparison c = compare_models(a, b, prompts[0].ids, o.threshold);
  if (!o.page.empty()) write_compare_page(a, b, o, prompts[0], c);
  if (o.model.json) return print_json(document(o, a, prompts[0], c));
  print_report(o, a, c);
}

Action define_compare(CLI::App& app) {
  auto o = std::make_shared<CompareArguments>();
  app.add_option("A", o->a, "A model, as for --model; its tokenizer is used for the text")->type_name("")->required();
  app.add_option("B", o->b, "The same model in another file")->type_name("")->required();
  add_prompt_options(app, o->prompt, false);
  add_number(app, "--threshold", o->threshold, 0, 2,
             "Show the first layer with 1 - cosine above this at some position (default 0.001)");
  add_page(app, o->page);
  add_run_options(app, o->model);
  return [o] { run_compare(*o); };
}

}  // namespace

const Command compare_command = {
    "compare", "Compare two files of one model, layer by layer",
    "Runs one prompt through both: cosine and relative distance of the residual stream after every layer, the share of "
    "attention that differs, the KL divergence of the predictions, and the first layer beyond --threshold. Use it for two "
    "types of weights, such as f32 and Q8_0, or for two checkpoints of one training run.",
    "vitrine compare tests/golden/models/llama/model tests/golden/gguf/llama_q8_0.gguf --tokens 5,3,7,9,11", define_compare};

}  // namespace vitrine::cli
