// vitrine predict: what the model expects next, as a table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/text_table.h"
#include "generate/sampler.h"
#include "model/abilities.h"
#include "runtime/token_json.h"

namespace vitrine::cli {
namespace {

constexpr int kBarCells = 40;

struct PredictOptions {
  ModelOptions model;
  PromptOptions prompt;
  int64_t top = 10;
  bool all_positions = false;
  bool score = false;
  SamplingOptions sampling;
};

/// The probability of each token of a prediction in a draw under the sampling flags, 0 for those that they cut; empty without
/// such flags. Takes the whole vocabulary in and leaves the first `top`.
class Draw {
 public:
  Draw(const Engine& engine, const PredictOptions& o)
      : vocab_(engine.shape().vocab_size), sampler_(o.sampling, vocab_), top_(o.top), on_(o.sampling.draws()) {}

  int64_t needed() const { return on_ ? vocab_ : std::min(top_, vocab_); }
  std::vector<double> kept(Prediction& prediction) {
    if (!on_) return {};
    std::vector<float> logprobs(static_cast<size_t>(vocab_));
    for (const TokenLogprob& entry : prediction.top) logprobs[static_cast<size_t>(entry.token)] = entry.logprob;
    const Candidates& left = sampler_.process(logprobs, {}, {});
    prediction.top.resize(static_cast<size_t>(std::min(top_, vocab_)));
    return drawn_probabilities(left, prediction.top);
  }

 private:
  int64_t vocab_;
  Sampler sampler_;
  int64_t top_;
  bool on_;
};

/// The predictions of each prompt: of what follows it, or, by a model in both directions, at its masks; none for a prompt without
/// a token.
std::vector<std::vector<Prediction>> predict_all(Engine& engine, const std::vector<Prompt>& prompts, const PredictOptions& o,
                                                 int64_t top) {
  std::vector<std::vector<Prediction>> all(prompts.size());
  std::vector<std::vector<int32_t>> batch;
  std::vector<size_t> place;
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].ids.empty()) continue;
    if (o.all_positions || prompts.size() == 1 || !predicts_next(engine.model())) {
      all[i] = engine.predict(prompts[i].ids, top, o.all_positions);
    } else {
      batch.push_back(prompts[i].ids);
      place.push_back(i);
    }
  }
  std::vector<Prediction> last = engine.predict_batch(batch, top);
  for (size_t i = 0; i < last.size(); ++i) all[place[i]].push_back(std::move(last[i]));
  return all;
}

OrderedJson document(const Engine& engine, const Prompt& prompt, std::vector<Prediction> predictions, Draw& draw) {
  OrderedJson list = OrderedJson::array();
  for (Prediction& prediction : predictions) {
    const std::vector<double> kept = draw.kept(prediction);
    list.push_back(json_of(prediction, speller_of(engine, prompt.from_text)));
    for (size_t i = 0; i < kept.size(); ++i) list.back()["top"][i]["kept"] = kept[i];
  }
  OrderedJson json = prompt_json(engine, prompt);
  json["predictions"] = std::move(list);
  return json;
}

/// One prediction as a column of pieces with bars.
void print_bars(const Engine& engine, Prediction prediction, Draw& draw) {
  const std::vector<double> kept = draw.kept(prediction);
  TextTable table{{{""}, {"", true}, {""}, {"", true}}, {}};
  if (!kept.empty()) table.columns.insert(table.columns.begin() + 3, {""});
  for (size_t i = 0; i < prediction.top.size(); ++i) {
    const double share = prediction.top[i].prob();
    const std::string name = shown_piece(engine, prediction.top[i].token);
    auto& row = table.rows.emplace_back();
    row = {fmt::format("{:>4}", i + 1), i == 0 ? bold(name) : name, pad_left(percent(share), 8)};
    if (!kept.empty()) row.push_back(pad_left(kept[i] > 0 ? percent(kept[i]) : "cut", 8));
    row.push_back(bar(share, kBarCells));
  }
  print_table(table);
}

/// Every position on a line of its own: the piece there, then what was expected after it (by a model in both directions: there),
/// most likely first. The piece that really came is in brackets.
void print_positions(const Engine& engine, const Prompt& prompt, const std::vector<Prediction>& predictions) {
  int widest = 5;
  for (const int32_t id : prompt.ids) widest = std::max(widest, width_of(shown_piece(engine, id)));
  const int64_t ahead = predicts_next(engine.model()) ? 1 : 0;  // in both directions what stands at a position is expected there
  print("{}\n", dim(fmt::format("{:>5}  {}  expected {}", "at", pad_right("piece", widest), ahead > 0 ? "next" : "there")));
  for (const Prediction& prediction : predictions) {
    const auto at = static_cast<size_t>(prediction.position);
    std::string line = fmt::format("{:>5}  {}", prediction.position, pad_right(shown_piece(engine, prompt.ids[at]), widest));
    int columns = width_of(line);
    for (const TokenLogprob& entry : prediction.top) {
      const size_t place = at + static_cast<size_t>(ahead);
      const bool came = place < prompt.ids.size() && prompt.ids[place] == entry.token;
      const std::string name = shown_piece(engine, entry.token);
      const std::string text = fmt::format("{} {}", came ? "[" + name + "]" : name, percent(entry.prob()));
      if (terminal().columns > 0 && columns + 2 + width_of(text) > terminal().columns) break;
      line += "  " + (came ? bold(text) : text);
      columns += 2 + width_of(text);
    }
    print("{}\n", line);
  }
}

void score(const PredictOptions& o) {
  if (o.all_positions || o.sampling.draws())
    throw UsageError("--score tells of the prompt's own tokens; leave --all-positions and the sampling flags out.");
  Engine engine = open_engine(o.model);
  require_next_token(engine.model(), engine.name(), "Scoring a prompt");
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> logprobs;
  for (const Prompt& prompt : read_prompts(engine, o.prompt)) {
    ids.push_back(prompt.ids);
    logprobs.push_back(engine.token_logprobs(prompt.ids));
  }
  const OrderedJson scored = scores_json(engine, ids, logprobs);
  if (o.model.json) return print_json(scored);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids.size() > 1) print("{}{}\n", i > 0 ? "\n" : "", bold(fmt::format("sequence {}", i)));
    TextTable table{{{"at"}, {"piece", true}, {"probability"}, {"-ln p"}}, {}};
    for (size_t at = 0; at < ids[i].size(); ++at) {
      auto& row = table.rows.emplace_back();
      row = {fmt::format("{}", at), shown_piece(engine, ids[i][at])};
      if (at == 0) continue;
      const double logprob = logprobs[i][at - 1];
      row.insert(row.end(), {percent(std::exp(logprob)), fmt::format("{:.4f}", -logprob)});
    }
    print_table(table);
    const OrderedJson& result = scored["results"][i];
    if (!result["nll"].is_null())
      print("mean of -ln p {:.4f}, perplexity {:.4f}\n", result["nll"].get<double>(), result["perplexity"].get<double>());
  }
}

void predict(const PredictOptions& o) {
  if (o.score) return score(o);
  if (o.sampling.draws() && o.all_positions)
    throw UsageError("--all-positions: a draw follows the last position; leave the sampling flags out.");
  Engine engine = open_engine(o.model);
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt, o.prompt.has_jsonl);
  Draw draw(engine, o);
  const auto predictions = predict_all(engine, prompts, o, draw.needed());
  if (o.prompt.has_jsonl) {
    for (size_t i = 0; i < prompts.size(); ++i) print_json(document(engine, prompts[i], predictions[i], draw));
    return;
  }
  if (o.model.json) {
    if (prompts.size() == 1) {
      print_json(document(engine, prompts[0], predictions[0], draw));
      return;
    }
    OrderedJson sequences = OrderedJson::array();
    for (size_t i = 0; i < prompts.size(); ++i) sequences.push_back(document(engine, prompts[i], predictions[i], draw));
    print_json({{"sequences", std::move(sequences)}});
    return;
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts.size() > 1) print("{}{}\n", i > 0 ? "\n" : "", bold(fmt::format("sequence {}", i)));
    if (o.all_positions) {
      print_positions(engine, prompts[i], predictions[i]);
    } else {
      for (const Prediction& prediction : predictions[i]) {
        if (predictions[i].size() > 1) print("{}\n", dim(fmt::format("position {}", prediction.position)));
        print_bars(engine, prediction, draw);
      }
    }
  }
}

Action define_predict(CLI::App& app) {
  auto o = std::make_shared<PredictOptions>();
  add_prompt_options(app, o->prompt, true);
  add_count(app, "--top", o->top, 1, 1 << 20, "Tokens to show for each position (default 10)");
  app.add_flag("--all-positions", o->all_positions, "Predict after every token of the prompt, not only after the last");
  app.add_flag("--score", o->score, "Show the log-probability of each token of the prompt itself, and the perplexity, instead");
  add_draw_flags(app, o->sampling);
  add_model_options(app, o->model);
  add_lora_option(app, o->model);
  add_cache_types(app, o->model);
  return [o] { predict(*o); };
}

}  // namespace

const Command predict_command = {
    "predict", "Predict the next token",
    "The prompt is a text, token ids or a file of texts. The table shows pieces as the vocabulary spells them, with their "
    "probabilities and bars. With --all-positions there is one line for each position, with the piece that actually "
    "follows in brackets. --score shows how likely the prompt's own tokens are. With sampling flags a column shows the "
    "probability that `vitrine generate` samples each token. "
    "A model in both directions fills masks: the table is of each [MASK] of the text, as in \"The [MASK] of France\", "
    "and with --all-positions of the token at each position itself. --compute, --exact, quantized weights and the number of "
    "tokens in one step round differently, so the last digits of a probability can differ between them (docs/numerics.md).",
    "vitrine predict \"In the middle of the forest there stood a house, and in the house lived\"\n"
    "vitrine predict --all-positions --top 3 \"Once upon a time there was a king\"",
    define_predict};

}  // namespace vitrine::cli
