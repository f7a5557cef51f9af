// vitrine circuits: what each attention head is made of, and what it attends to.
#include "inspect/circuits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "inspect/head_scores.h"

namespace vitrine::cli {
namespace {

constexpr size_t kShownValues = 3;  // singular values in the table; --json has all

struct CircuitsArguments {
  ModelOptions model;
  PromptOptions prompt;
  int64_t layer = -1, head = -1, offset = 0, compositions = 10, repeat = 0, seed = 0;
  bool has_seed = false;
};

// One way in which a head reads what an earlier one wrote.
struct Link {
  double score;
  const char* kind;
  const Composition* pair;
};

std::vector<Link> strongest(const std::vector<Composition>& all, int64_t n) {
  std::vector<Link> links;
  for (const Composition& c : all) {
    links.push_back({c.q, "queries", &c});
    links.push_back({c.k, "keys", &c});
    links.push_back({c.v, "values", &c});
  }
  const auto key = [](const Link& l) {
    return std::tuple(-l.score, l.pair->to_layer, l.pair->to_head, l.pair->from_layer, l.pair->from_head, *l.kind);
  };
  std::sort(links.begin(), links.end(), [&](const Link& a, const Link& b) { return key(a) < key(b); });
  links.resize(std::min(links.size(), static_cast<size_t>(n)));
  return links;
}

OrderedJson spectrum_json(const Spectrum& s) {
  return {{"rank", s.rank}, {"frobenius", s.frobenius}, {"singular_values", s.singular_values}};
}

// No query of this prompt may have keys of a role; a score of 0 would say that the head does not look at them.
OrderedJson score_json(const HeadScores& scores, const HeadScore& score, HeadRole role) {
  return scores.queries[static_cast<size_t>(role)] > 0 ? OrderedJson(score.at(role)) : OrderedJson(nullptr);
}
std::string score_text(const HeadScores& scores, const HeadScore& score, HeadRole role) {
  return scores.queries[static_cast<size_t>(role)] > 0 ? fmt::format("{:.3f}", score.at(role)) : "-";
}

OrderedJson document(const CircuitsArguments& o, const HeadScores& scores, const CircuitTable& table, bool repeated) {
  OrderedJson heads = OrderedJson::array();
  for (const HeadSpectra& h : table.heads) {
    const HeadScore& score = scores.of(h.layer, h.head);
    OrderedJson eigenvalues = OrderedJson::array();
    for (const std::complex<double>& value : h.eigenvalues) eigenvalues.push_back({value.real(), value.imag()});
    heads.push_back({{"layer", h.layer},
                     {"head", h.head},
                     {"previous_token", score_json(scores, score, HeadRole::previous)},
                     {"duplicate_token", score_json(scores, score, HeadRole::duplicate)},
                     {"induction", score_json(scores, score, HeadRole::induction)},
                     {"first_token", score_json(scores, score, HeadRole::first)},
                     {"copying", h.copying},
                     {"eigenvalues", std::move(eigenvalues)},
                     {"qk", spectrum_json(h.qk)},
                     {"ov", spectrum_json(h.ov)}});
  }
  OrderedJson composition = OrderedJson::array();
  for (const Composition& c : table.composition)
    composition.push_back(
        {{"from", {c.from_layer, c.from_head}}, {"to", {c.to_layer, c.to_head}}, {"q", c.q}, {"k", c.k}, {"v", c.v}});
  return {{"prompt", repeated ? "repeated random tokens" : "as given"},
          {"tokens", scores.ids},
          {"queries",
           {{"previous_token", scores.queries[0]},
            {"duplicate_token", scores.queries[1]},
            {"induction", scores.queries[2]},
            {"first_token", scores.queries[3]}}},
          {"offset", o.offset},
          {"heads", std::move(heads)},
          {"composition", std::move(composition)}};
}

std::string values_text(const Spectrum& s) {
  std::string text;
  for (size_t i = 0; i < std::min(kShownValues, s.singular_values.size()); ++i)
    text += fmt::format("{}{:#.3g}", i > 0 ? " " : "", s.singular_values[i]);
  return text;
}

struct RoleWords {
  HeadRole role;
  const char* looks;  // "looks at the previous token"
};
constexpr RoleWords kRoles[] = {
    {HeadRole::previous, "the previous token"},
    {HeadRole::induction, "what followed the last time (induction)"},
    {HeadRole::duplicate, "earlier copies of the same token"},
    {HeadRole::first, "the first token"},
};

// What a reader wants first: which heads do what, the strongest of each kind. A score is the share of a head's attention.
void print_sentences(const HeadScores& scores, const CircuitTable& table) {
  constexpr double kMostly = 0.3;  // less is said of the best head only
  constexpr size_t kNamed = 3;
  for (const RoleWords& words : kRoles) {
    if (scores.queries[static_cast<size_t>(words.role)] == 0 || table.heads.empty()) continue;
    std::vector<std::pair<double, const HeadSpectra*>> best;
    for (const HeadSpectra& h : table.heads) best.emplace_back(scores.of(h.layer, h.head).at(words.role), &h);
    std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) {
      return std::tuple(-a.first, a.second->layer, a.second->head) < std::tuple(-b.first, b.second->layer, b.second->head);
    });
    const auto named = [&](size_t i) { return fmt::format("{}.{}", best[i].second->layer, best[i].second->head); };
    if (best[0].first < kMostly) {
      print("No head looks mostly at {}; the most is {}, {}\n", words.looks, named(0), percent(best[0].first));
      continue;
    }
    print("{} looks at {}, {}", bold(named(0)), words.looks, percent(best[0].first));
    for (size_t i = 1; i < std::min(best.size(), kNamed) && best[i].first >= kMostly; ++i)
      print("; {}, {}", bold(named(i)), percent(best[i].first));
    print("\n");
  }
  if (table.heads.size() < 2) return;
  const auto [least, most] = std::minmax_element(
      table.heads.begin(), table.heads.end(), [](const HeadSpectra& a, const HeadSpectra& b) { return a.copying < b.copying; });
  if (most->copying > 0) print("{}.{} copies most what it looks at, {:+.3f}", most->layer, most->head, most->copying);
  if (least->copying < 0)
    print("{}{}.{} suppresses it most, {:+.3f}", most->copying > 0 ? "; " : "", least->layer, least->head, least->copying);
  print("\n");
}

void print_table(const CircuitsArguments& o, const HeadScores& scores, const CircuitTable& table) {
  print_sentences(scores, table);
  int widest = 0;
  double most_copied = 0;
  std::array<double, 4> most = {};
  for (const HeadSpectra& h : table.heads) {
    widest = std::max(widest, width_of(values_text(h.qk)));
    most_copied = std::max(most_copied, std::abs(h.copying));
    for (size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], scores.of(h.layer, h.head).at(kRoles[i].role));
  }
  print("\n{}\n",
        dim(fmt::format("{:>5} {:>4}  {:>8} {:>9} {:>9} {:>5}  {:>7}  {:>4}  {}  {:>4}  {}", "layer", "head", "previous",
                        "duplicate", "induction", "first", "copying", "rank", pad_right("QK", widest), "rank", "OV")));
  // The largest of each column stands out.
  const auto cell = [&](const HeadSpectra& h, size_t role, int width) {
    const HeadScore& s = scores.of(h.layer, h.head);
    const std::string text = pad_left(score_text(scores, s, kRoles[role].role), width);
    return table.heads.size() > 1 && most[role] > 0 && s.at(kRoles[role].role) == most[role] ? risen(bold(text)) : text;
  };
  for (const HeadSpectra& h : table.heads) {
    const std::string copying = fmt::format("{:>+7.3f}", h.copying);
    const bool extreme = table.heads.size() > 1 && most_copied > 0 && std::abs(h.copying) == most_copied;
    print("{:>5} {:>4}  {} {} {} {}  {}  {:>4}  {}  {:>4}  {}\n", h.layer, h.head, cell(h, 0, 8), cell(h, 2, 9), cell(h, 1, 9),
          cell(h, 3, 5),
          !extreme        ? copying
          : h.copying < 0 ? fallen(bold(copying))
                          : risen(bold(copying)),
          h.qk.rank, pad_right(values_text(h.qk), widest), h.ov.rank, values_text(h.ov));
  }
  const std::vector<Link> links = strongest(table.composition, o.compositions);
  if (links.empty()) return;
  print("\n{}\n", dim("strongest compositions"));
  for (const Link& link : links)
    print("{:.3f}  the {} of {}.{} read what {}.{} writes\n", link.score, link.kind, link.pair->to_layer, link.pair->to_head,
          link.pair->from_layer, link.pair->from_head);
}

void run_circuits(const CircuitsArguments& o) {
  Engine engine = open_engine(o.model);
  const bool given = o.prompt.has_text || o.prompt.has_tokens;
  if (given && o.repeat > 0) throw UsageError("--repeat makes a prompt of its own; leave out the text or --tokens.");
  if (given && o.has_seed) throw UsageError("--seed chooses random tokens; leave it out, or the text or --tokens.");
  const ModelShape& shape = engine.shape();
  std::vector<int32_t> ids;
  if (given) {
    std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
    if (prompts.size() > 1) throw UsageError("several sequences were given; heads are scored on one.");
    ids = std::move(prompts[0].ids);
  } else {
    const int64_t fits = shape.context_length > 0 ? (shape.context_length - 1) / 2 : 50;
    ids = repeated_random_ids(engine, o.repeat > 0 ? o.repeat : std::min<int64_t>(50, fits), static_cast<uint64_t>(o.seed));
  }
  CircuitOptions options;
  if (o.layer >= 0) options.layer = o.layer;
  if (o.head >= 0) options.head = o.head;
  options.offset = o.offset;
  options.composition = o.compositions > 0;
  const HeadScores scores = score_heads(engine, ids);  // first: it is quick, and refuses a prompt that cannot be run
  const CircuitTable table = circuit_table(engine, options);
  if (o.model.json) return print_json(document(o, scores, table, !given));
  print_table(o, scores, table);
  log("scores on {}{}; QK for keys {} back", plural(ids.size(), "token"),
      given ? "" : ", the second half of them the first again", plural(o.offset, "position"));
}

}  // namespace

Action define_circuits(CLI::App& app) {
  auto o = std::make_shared<CircuitsArguments>();
  add_prompt_options(app, o->prompt, false);
  add_count(
      app, "--repeat", o->repeat, 2, 1 << 20,
      "Score heads on this many random tokens, repeated once; default without a prompt: 50, or what fits into half the context");
  add_count(app, "--seed", o->seed, 0, int64_t{1} << 53, "Seed of the random tokens (default 0)")->each([o](const std::string&) {
    o->has_seed = true;
  });
  add_count(app, "--layer", o->layer, 0, 1 << 20, "This layer only; default: all");
  add_count(app, "--head", o->head, 0, 1 << 20, "This head only; default: all");
  add_count(app, "--offset", o->offset, 0, int64_t{1} << 40,
            "Distance from key to query, on which QK depends with rotary positions (default 0)");
  add_count(app, "--compositions", o->compositions, 0, 1 << 20,
            "How many of the strongest compositions to list; 0: none are computed (default 10; --json has all)");
  add_model_options(app, o->model);
  return [o] { run_circuits(*o); };
}

}  // namespace vitrine::cli
