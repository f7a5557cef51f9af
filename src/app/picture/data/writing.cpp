// Pictures of how a text is written from one distribution after another: rules of sampling side by side, and beam search.
#include <algorithm>
#include <map>
#include <numeric>

#include "generate/generate.h"
#include "generate/sampler.h"
#include "picture/data/rows.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

struct Rule {
  std::string name, does;
  SamplingOptions options;
};

// Settings that are usual; `generate` takes others.
std::vector<Rule> usual_rules() {
  std::vector<Rule> rules = {{"as it is", "--temperature 1", {.temperature = 1.0}},
                             {"greedy", "--temperature 0", {.temperature = 0.0}},
                             {"T = 0.5", "--temperature 0.5", {.temperature = 0.5}},
                             {"T = 1.5", "--temperature 1.5", {.temperature = 1.5}},
                             {"top-k 5", "--top-k 5", {.top_k = 5}},
                             {"top-p 0.9", "--top-p 0.9", {.top_p = 0.9}},
                             {"min-p 0.1", "--min-p 0.1", {.min_p = 0.1}},
                             {"typical 0.9", "--typical-p 0.9", {.typical_p = 0.9}}};
  return rules;
}

// The tokens that a rule leaves with the probability that each is drawn with, by rising id.
std::map<int32_t, double> left_by(const Rule& rule, std::span<const float> logits, std::span<const int32_t> ids) {
  Sampler sampler(rule.options, static_cast<int64_t>(logits.size()));
  if (!rule.options.draws()) return {{sampler.pick(logits, ids, {}).token, 1.0}};
  const Candidates& left = sampler.process(logits, ids, {});
  std::vector<TokenLogprob> tokens;
  for (const int32_t token : left.token) tokens.push_back({token, 0});
  const std::vector<double> drawn = drawn_probabilities(left, tokens);
  std::map<int32_t, double> kept;
  for (size_t i = 0; i < tokens.size(); ++i) kept[tokens[i].token] = drawn[i];
  return kept;
}

}  // namespace

PictureJson data_of_sampling_rules(Studio& studio) {
  constexpr size_t kShown = 14;
  const std::vector<float> logits = last_logits(studio.engine, studio.prompt.ids);
  const std::vector<TokenLogprob> top = top_logprobs(logits, kShown);
  const double lse = log_sum_exp(logits);
  const std::vector<Rule> rules = usual_rules();
  PictureJson p = present(
      "One distribution, that of the token after this prompt, under the usual rules of sampling. Each column is one rule: the "
      "probability with which it draws each of the most likely tokens. 0: the rule never draws that token.",
      "");
  p["ids"] = p["probs"] = p["rules"] = p["kept"] = PictureJson::array();
  for (const TokenLogprob& t : top) {
    p["ids"].push_back(studio.mention(t.token));
    p["probs"].push_back(number(t.prob()));
    p["kept"].push_back(PictureJson::array());
  }
  std::string alt;
  for (const Rule& rule : rules) {
    const std::map<int32_t, double> left = left_by(rule, logits, studio.prompt.ids);
    double mass = 0, shown = 0;
    for (const auto& [token, drawn] : left) mass += std::exp(static_cast<double>(logits[static_cast<size_t>(token)]) - lse);
    for (size_t i = 0; i < top.size(); ++i) {
      const auto found = left.find(top[i].token);
      const double drawn = found == left.end() ? 0 : found->second;
      shown += drawn;
      p["kept"][i].push_back(number(drawn));
    }
    p["rules"].push_back({{"name", rule.name},
                          {"flags", rule.does},
                          {"tokens", left.size()},
                          {"mass", number(std::min(mass, 1.0))},
                          {"below", number(std::max(0.0, 1 - shown))}});
    alt += fmt::format("{}{} leaves {}", alt.empty() ? "" : "; ", rule.name, plural(left.size(), "token"));
  }
  p["alt"] = alt + ".";
  double entropy = 0;
  for (const float z : logits) {
    const double logprob = static_cast<double>(z) - lse;
    entropy -= std::exp(logprob) * logprob;
  }
  p["entropy"] = number(entropy);
  p["prose"] = {
      {"top_p", p["rules"][5].at("tokens")}, {"min_p", p["rules"][6].at("tokens")}, {"typical", p["rules"][7].at("tokens")}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "what each rule leaves", "columns": [["rule", "rules.*.name"], ["option", "rules.*.flags"], ["tokens left", "rules.*.tokens"],
       ["their probability before", "rules.*.mass", "%"], ["drawn below the table", "rules.*.below", "%"]]},
    {"note": "probability of each token under each rule",
     "grid": {"corner": "token \\ rule", "rows": "{ids.#0|token}", "columns": "{rules.#1.name}", "values": "kept.*.*", "middle": 0.5, "reach": 0.5, "as": "%"}}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "grid", "label": "Probability of the most likely tokens under each rule of sampling.", "values": "kept.*.*",
     "rows": "{ids.#0|token}", "columns": "{rules.#1.name}", "scale": "sequential", "most": 1, "cell": 64, "tall": 22, "write": "%",
     "hint": "{ids.#0|token}: {probs.#0|%} as the model has it\nunder {rules.#1.name}: {kept.*.*|%}\nthe rule leaves {rules.#1.tokens} tokens",
     "key": {"label": "probability of being drawn", "as": "%"}},
    {"kind": "bars", "title": "Tokens that each rule leaves", "label": "How many tokens each rule leaves.", "name": "{rules.*.name}", "value": "rules.*.tokens",
     "note": "{rules.*.tokens|count}", "hint": "{rules.*.name}\n{rules.*.tokens|count} tokens left\nwhich had {rules.*.mass|%} of the probability"},
    {"kind": "remark", "text": "The entropy of the distribution is {entropy} nats: typical sampling keeps the tokens whose −ln p is nearest to it."}
  ])json");
  return p;
}

namespace {

constexpr int kBeams = 3;
constexpr int64_t kLength = 6;

// The tree that a beam search looked at: every running beam's best continuations, whether or not they were kept.
class BeamTree {
 public:
  using Tokens = std::vector<int32_t>;

  BeamTree(Studio& studio, const BeamOptions& options) : studio_(studio) {
    found_ =
        generate_beams(studio.engine, studio.prompt.ids, options, nullptr,
                       [&](std::span<const BeamChoice> choices, std::span<const float> logprobs) { look(choices, logprobs); });
    for (const Hypothesis& hypothesis : found_) {
      const size_t last = node_of(hypothesis.tokens);
      nodes[last]["kept"] = true;
      if (&hypothesis != &found_.front()) continue;
      for (PictureJson at = last; !at.is_null(); at = nodes[at.get<size_t>()].at("parent"))
        nodes[at.get<size_t>()]["best"] = true;
    }
  }

  PictureJson nodes = PictureJson::array();  // parents before children
  const std::vector<Hypothesis>& found() const { return found_; }

 private:
  // The beams of the next step become the running ones, and the best tokens after each their continuations.
  void look(std::span<const BeamChoice> choices, std::span<const float> logprobs) {
    std::vector<Tokens> next;
    for (const BeamChoice& choice : choices) {
      Tokens tokens = running_[running_.size() == 1 ? 0 : static_cast<size_t>(choice.parent)];
      tokens.push_back(choice.token);
      nodes[node_of(tokens)]["kept"] = true;
      next.push_back(std::move(tokens));
    }
    if (choices.empty()) next.emplace_back();
    running_ = std::move(next);
    rows_.assign(logprobs.begin(), logprobs.end());
    for (const Tokens& beam : running_)
      for (const TokenLogprob& best : top_logprobs(row_of(beam), kBeams)) {
        Tokens tokens = beam;
        tokens.push_back(best.token);
        node_of(tokens);
      }
  }
  std::span<const float> row_of(const Tokens& beam) const {
    const size_t vocab = rows_.size() / running_.size();
    const auto at = static_cast<size_t>(std::find(running_.begin(), running_.end(), beam) - running_.begin());
    return std::span(rows_).subspan(at * vocab, vocab);
  }
  size_t node_of(const Tokens& tokens) {
    const auto [at, fresh] = known_.emplace(tokens, nodes.size());
    if (!fresh) return at->second;
    const Tokens before(tokens.begin(), tokens.end() - 1);
    const double own = static_cast<double>(row_of(before)[static_cast<size_t>(tokens.back())]);
    totals_.push_back(own + (before.empty() ? 0 : totals_[known_.at(before)]));
    nodes.push_back({{"step", tokens.size()},
                     {"id", studio_.mention(tokens.back())},
                     {"parent", before.empty() ? PictureJson(nullptr) : PictureJson(known_.at(before))},
                     {"text", studio_.spelled() ? studio_.engine.text_behind(studio_.prompt.ids, tokens) : std::string()},
                     {"logprob", number(own)},
                     {"total", number(totals_.back())},
                     {"kept", false},
                     {"best", false}});
    return nodes.size() - 1;
  }

  Studio& studio_;
  std::vector<Hypothesis> found_;
  std::vector<Tokens> running_ = {{}};
  std::vector<float> rows_;
  std::map<Tokens, size_t> known_;
  std::vector<double> totals_;  // of the nodes
};

}  // namespace

PictureJson data_of_beam_search(Studio& studio) {
  const ModelShape& shape = studio.facts.shape;
  if (shape.context_length > 0 && studio.tokens() + kLength > shape.context_length)
    return absent(fmt::format("The prompt leaves no room for {} more tokens in the context of {}. Give a shorter one.", kLength,
                              shape.context_length));
  BeamOptions options{.n_beams = kBeams, .n_return = kBeams, .max_new_tokens = kLength, .eos = studio.engine.end_tokens()};
  if (shape.vocab_size < static_cast<int64_t>(std::max<size_t>(2, 1 + options.eos.size())) * kBeams)
    return absent("The vocabulary is too small for three beams.");
  const BeamTree tree(studio, options);
  const Generation greedy =
      generate(studio.engine, studio.prompt.ids, {.max_tokens = kLength, .sampling = {.temperature = 0.0}, .eos = options.eos});
  const std::vector<int32_t>& made = greedy.tokens;
  for (const int32_t id : made) studio.mention(id);
  const double total = std::accumulate(greedy.logprobs.begin(), greedy.logprobs.end(), 0.0);
  const Hypothesis& best = tree.found().front();
  const auto text = [&](const std::vector<int32_t>& ids) {
    return studio.spelled() ? studio.engine.text_behind(studio.prompt.ids, ids) : std::string();
  };
  PictureJson p = present(
      fmt::format(
          "Beam search with {} beams over {} tokens. At each step every beam is continued with its {} most likely tokens, "
          "and the {} continuations with the highest sum of ln p stay; the others are dropped. The line is the text that "
          "won: the highest sum divided by its tokens.",
          kBeams, kLength, kBeams, kBeams),
      "");
  p["beams"] = kBeams;
  p["length"] = kLength;
  p["nodes"] = tree.nodes;
  for (const char* key : {"best", "others", "dropped"}) p[key] = PictureJson::array();
  for (const PictureJson& node : tree.nodes)
    p[node.at("best").get<bool>() ? "best" : node.at("kept").get<bool>() ? "others" : "dropped"].push_back(node);
  p["found"] = PictureJson::array();
  for (const Hypothesis& hypothesis : tree.found()) {
    for (const int32_t id : hypothesis.tokens) studio.mention(id);
    p["found"].push_back(
        {{"ids", hypothesis.tokens},
         {"text", text(hypothesis.tokens)},
         {"tokens", hypothesis.tokens.size()},
         {"score", number(static_cast<double>(hypothesis.score))},
         {"total", number(static_cast<double>(hypothesis.score) * static_cast<double>(hypothesis.tokens.size()))}});
  }
  p["greedy"] = {{"ids", made},
                 {"text", text(made)},
                 {"tokens", made.size()},
                 {"score", number(total / static_cast<double>(made.size()))},
                 {"total", number(total)}};
  p["same"] = made == best.tokens ? PictureJson(true) : PictureJson(nullptr);
  p["different"] = made == best.tokens ? PictureJson(nullptr) : PictureJson(true);
  p["alt"] = fmt::format("Of {} continuations that were looked at, the best has a mean ln p of {:.3f}; greedy reaches {:.3f}.",
                         tree.nodes.size(), best.score, total / static_cast<double>(made.size()));
  p["prose"] = {{"same", made == best.tokens},
                {"best", p["found"][0].at("total")},
                {"greedy", number(total)},
                {"looked_at", tree.nodes.size()}};
  p["tables"] = PictureJson::parse(R"json([
    {"note": "the beams at the end, and greedy decoding", "columns": [["by", {"cells": ["first beam", "second beam", "third beam", "greedy"]}],
       ["ln p", ["found.0.total", "found.1.total", "found.2.total", "greedy.total"], ".3f"],
       ["for each token", ["found.0.score", "found.1.score", "found.2.score", "greedy.score"], ".3f"],
       ["text", ["found.0.text", "found.1.text", "found.2.text", "greedy.text"], "piece"]]},
    {"note": "every continuation that was looked at", "detail": true, "columns": [["node", "#0"], ["after", "nodes.*.parent"], ["step", "nodes.*.step"],
       ["token", "nodes.*.id", "token"], ["ln p", "nodes.*.logprob"], ["sum", "nodes.*.total"], ["kept", "nodes.*.kept"]]}
  ])json");
  if (!studio.spelled()) {
    PictureJson& columns = p["tables"][0]["columns"];
    columns.erase(3);
    columns.push_back({"tokens", {"found.0.ids", "found.1.ids", "found.2.ids", "greedy.ids"}});
  }
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Sums of ln p of the continuations that beam search looked at.",
     "x": {"label": "tokens written", "whole": true, "pad": 0.3}, "y": {"label": "sum of ln p"},
     "series": [
       {"name": "dropped", "tone": "plain faint", "draw": "dots", "x": "dropped.*.step", "y": "dropped.*.total",
        "hint": "{dropped.*.id|token}: ln p {dropped.*.logprob}\n{dropped.*.text}\nsum {dropped.*.total}, dropped"},
       {"name": "kept", "tone": "attention", "draw": "dots", "x": "others.*.step", "y": "others.*.total",
        "hint": "{others.*.id|token}: ln p {others.*.logprob}\n{others.*.text}\nsum {others.*.total}, kept"},
       {"name": "the text that won", "tone": "mlp", "draw": "both", "x": "best.*.step", "y": "best.*.total",
        "hint": "{best.*.id|token}: ln p {best.*.logprob}\n{best.*.text}\nsum {best.*.total}"}]},
    {"kind": "remark", "if": "same", "text": "Here greedy decoding writes the same text: ln p {greedy.total} in all."},
    {"kind": "remark", "if": "different", "text": "Greedy decoding writes another text, with ln p {greedy.total} in all against {found.0.total}."}
  ])json");
  return p;
}

}  // namespace vitrine
