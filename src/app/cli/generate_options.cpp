#include "cli/generate_options.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/plural.h"
#include "cli/options.h"
#include "cli/output.h"
#include "grammar/grammar.h"

namespace vitrine::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A number that may be left out. Its range is checked by check_sampling_options, which names it.
template <class Number>  // double, or one that may be absent
CLI::Option* add_optional(CLI::App& app, const std::string& name, Number& value, double low, double high,
                          const std::string& what) {
  auto held = std::make_shared<double>(0);
  return add_number(app, name, *held, low, high, what)->each([held, &value](const std::string& text) {
    value = std::strtod(text.c_str(), nullptr);  // checked before; unlike std::stod it takes the smallest numbers
  });
}

/// "264=-5" or "264=-inf".
std::pair<int32_t, double> parse_bias(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) throw UsageError(fmt::format("--logit-bias: \"{}\" is not ID=X, such as 264=-5.", text));
  const std::vector<int32_t> id = parse_ids(text.substr(0, equals), "--logit-bias");
  double x = 0;
  if (id.size() != 1 || !CLI::detail::lexical_cast(text.substr(equals + 1), x) || std::isnan(x) || x == kInfinity)
    throw UsageError(fmt::format("--logit-bias: \"{}\" is not ID=X with a number or -inf, such as 264=-5.", text));
  return {id[0], x};
}

std::vector<int32_t> end_ids(const GenerateFlags& flags, const Engine& engine) {
  if (flags.ignore_eos) return {};
  if (flags.eos.empty()) return engine.end_tokens();
  std::vector<int32_t> ids = parse_ids(flags.eos, "--eos");
  for (const int32_t id : ids)
    if (id >= engine.shape().vocab_size)
      throw InputError(fmt::format("--eos: token {} is outside the vocabulary (0 to {}).", id, engine.shape().vocab_size - 1));
  return ids;
}

}  // namespace

std::vector<CLI::Option*> add_draw_flags(CLI::App& app, SamplingOptions& s) {
  auto top_k = std::make_shared<int64_t>(0);
  return {add_optional(app, "--temperature,-t", s.temperature, 0, 1e6,
                       "Divide logits by this and sample; 0 is greedy. Without a sampling flag decoding is greedy"),
          add_count(app, "--top-k", *top_k, 0, int64_t{1} << 31, "Sample from the K most likely tokens; 0 is off")
              ->each([top_k, &s](const std::string& text) { s.top_k = std::stoll(text); }),
          add_optional(app, "--top-p", s.top_p, 0, 1, "Sample from the most likely tokens whose probabilities sum to P"),
          add_optional(app, "--min-p", s.min_p, 0, 1, "Sample from the tokens at least P times as likely as the most likely")};
}

void add_sampling_flags(CLI::App& app, GenerateFlags& flags) {
  SamplingOptions& s = flags.sampling;
  const auto rule = [&](CLI::Option* option) { flags.rules.push_back(option); };
  for (CLI::Option* option : add_draw_flags(app, s)) rule(option);
  rule(add_optional(app, "--typical-p", s.typical_p, 0, 1,
                    "Sample from the most typical tokens (locally typical sampling) whose probabilities sum to P"));
  rule(add_optional(app, "--repetition-penalty", s.repetition_penalty, 0, 1e6,
                    "Divide the positive logits of previous tokens by this, multiply negative ones (1 is off)"));
  rule(add_optional(app, "--frequency-penalty", s.frequency_penalty, -1e6, 1e6,
                    "Subtract this from a token's logit for each time it was generated"));
  rule(add_optional(app, "--presence-penalty", s.presence_penalty, -1e6, 1e6,
                    "Subtract this from a token's logit if it was generated"));
  rule(app.add_option("--logit-bias", flags.logit_bias, "Add X to a token's logit; -inf forbids it. May be repeated")
           ->type_name("ID=X")
           ->expected(1)
           ->take_all());
  app.add_option("--samplers", flags.samplers,
                 "The rules in the order of their use; default: " + sampling_order_text(SamplingOptions().order))
      ->type_name("ORDER")
      ->check(not_empty());
  add_count(app, "--seed", flags.seed, 0, std::numeric_limits<int64_t>::max(),
            "Random seed; the same seed gives the same text (default 0)");
}

void add_beam_flags(CLI::App& app, GenerateFlags& flags) {
  add_count(app, "--beams", flags.beams, 1, 4096, "Search with this many beams");
  add_optional(app, "--length-penalty", flags.length_penalty, -100, 100,
               "With --beams: a score is the log-probability / length^A (default 1)");
  app.add_flag("--early-stopping{yes}", flags.early_stopping,
               "With --beams: stop when K hypotheses are finished; --early-stopping=never waits for the best possible");
  add_count(app, "--return", flags.n_return, 1, 4096, "With --beams: hypotheses to return (default 1)");
}

void add_stop_flags(CLI::App& app, GenerateFlags& flags) {
  app.add_option("--stop", flags.stops, "End the text before this string. May be repeated")
      ->type_name("S")
      ->expected(1)
      ->take_all();
  app.add_option("--eos", flags.eos, "Token ids that end the text; default: the model's")->type_name("IDS")->check(not_empty());
  app.add_flag("--ignore-eos", flags.ignore_eos, "Continue after an end token");
}

void add_draft_flags(CLI::App& app, GenerateFlags& flags) {
  add_count(app, "--lookup", flags.lookup, 1, kMostDrafts,
            "Prompt lookup, faster where the text repeats itself: draft up to N tokens that followed the last tokens earlier in "
            "the text, and verify them in one step. The output is the same");
  app.add_option("--draft", flags.draft,
                 "Speculative decoding with a much smaller model of the same vocabulary: it drafts tokens that are verified "
                 "in one step. The output is the same")
      ->type_name("MODEL")
      ->check(not_empty());
  add_count(app, "--draft-tokens", flags.draft_tokens, 1, kMostDrafts,
            fmt::format("With --draft: tokens to draft for each step (default {})", kDefaultDrafts));
}

void add_grammar_flags(CLI::App& app, GenerateFlags& flags) {
  app.add_option("--json-schema", flags.json_schema,
                 "The text is JSON of this schema: a file, or the schema itself, "
                 "beginning with {")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--regex", flags.regex, "The text matches this regular expression (Rust's syntax) as a whole")
      ->type_name("REGEX")
      ->check(not_empty());
  app.add_option("--grammar", flags.gbnf, "The text conforms to this grammar in GBNF, llama.cpp's format")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--lark", flags.lark, "The text conforms to this grammar in llguidance's variant of Lark")
      ->type_name("FILE")
      ->check(not_empty());
}

void log_drafts(const Timings& timings) {
  if (timings.drafted_tokens == 0) return;
  log("drafts: {} of {} accepted", timings.accepted_tokens, plural(timings.drafted_tokens, "token"));
}

std::vector<const char*> GenerateFlags::given_grammars() const {
  std::vector<const char*> given;
  if (!json_schema.empty()) given.push_back("--json-schema");
  if (!regex.empty()) given.push_back("--regex");
  if (!gbnf.empty()) given.push_back("--grammar");
  if (!lark.empty()) given.push_back("--lark");
  return given;
}

std::string GenerateFlags::given_rule() const {
  for (const CLI::Option* option : rules)
    if (option->count() > 0) return option->get_name();
  return "";
}

void GenerateFlags::check() const {
  if (ignore_eos && !eos.empty()) throw UsageError("--eos and --ignore-eos contradict each other.");
  if (!early_stopping.empty() && early_stopping != "yes" && early_stopping != "no" && early_stopping != "never")
    throw UsageError(fmt::format("--early-stopping: \"{}\" is none of yes, no, never.", early_stopping));
  if (lookup > 0 && !draft.empty()) throw UsageError("--lookup and --draft contradict each other; give one of them.");
  if (draft_tokens > 0 && draft.empty()) throw UsageError("--draft-tokens needs --draft.");
  const std::vector<const char*> grammars = given_grammars();
  if (grammars.size() > 1)
    throw UsageError(fmt::format("{} and {} contradict each other; give one of them.", grammars[0], grammars[1]));
  if (beams == 1) {
    const char* flag = length_penalty            ? "--length-penalty"
                       : !early_stopping.empty() ? "--early-stopping"
                       : n_return > 1            ? "--return"
                                                 : nullptr;
    if (flag != nullptr) throw UsageError(fmt::format("{} needs --beams with two or more.", flag));
    if (!samplers.empty() && given_rule().empty()) {
      parse_sampling_order(samplers);  // a wrong name is told first
      throw UsageError("--samplers orders rules, and none is given, such as --temperature or --repetition-penalty.");
    }
    return;
  }
  std::string flag = given_rule();
  if (flag.empty()) flag = !samplers.empty() ? "--samplers" : !stops.empty() ? "--stop" : "";
  if (flag.empty()) flag = lookup > 0 ? "--lookup" : !draft.empty() ? "--draft" : "";
  if (flag.empty() && !grammars.empty()) flag = grammars[0];
  if (!flag.empty())
    throw UsageError(fmt::format("{} does not go together with --beams, which searches for the most likely text.", flag));
  if (n_return > beams) throw UsageError(fmt::format("--return: {} hypotheses cannot come from {} beams.", n_return, beams));
  if (max_tokens < 1) throw UsageError("--max-tokens: --beams needs at least 1.");
}

GenerateOptions GenerateFlags::options(const Engine& engine) const {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  options.ignore_eos = ignore_eos;
  options.eos = end_ids(*this, engine);
  options.stops = stops;
  SamplingOptions& s = options.sampling = sampling;
  for (const std::string& bias : logit_bias) s.logit_bias.push_back(parse_bias(bias));
  s.seed = static_cast<uint64_t>(seed);
  if (!samplers.empty()) s.order = parse_sampling_order(samplers);
  return options;
}

std::shared_ptr<Drafter> GenerateFlags::open_drafter(Engine& engine) const {
  if (lookup > 0) return std::make_shared<LookupDrafter>(lookup);
  if (draft.empty()) return nullptr;
  return std::make_shared<ModelDrafter>(engine, std::make_shared<Engine>(draft, EngineOptions{.threads = 1}),
                                        draft_tokens > 0 ? draft_tokens : kDefaultDrafts);
}

std::shared_ptr<const Constraint> GenerateFlags::open_constraint(const Engine& engine) const {
  if (given_grammars().empty()) return nullptr;
  const auto from_file = [](GrammarKind kind, const std::string& path) {
    return Grammar{.kind = kind, .text = read_file(path, kMostGrammarBytes), .source = path};
  };
  Grammar grammar;
  if (!regex.empty())
    grammar = {.kind = GrammarKind::regex, .text = regex, .source = "--regex"};
  else if (json_schema.starts_with("{"))
    grammar = {.kind = GrammarKind::json_schema, .text = json_schema, .source = "--json-schema"};
  else if (!json_schema.empty())
    grammar = from_file(GrammarKind::json_schema, json_schema);
  else
    grammar = gbnf.empty() ? from_file(GrammarKind::lark, lark) : from_file(GrammarKind::gbnf, gbnf);
  return GrammarCompiler(engine.tokenizer(), engine.shape().vocab_size).compile(grammar);
}

BeamOptions GenerateFlags::beam_options(const Engine& engine) const {
  BeamOptions options;
  options.n_beams = static_cast<int>(beams);
  options.n_return = static_cast<int>(n_return);
  options.max_new_tokens = max_tokens;
  options.length_penalty = length_penalty.value_or(1);
  options.early_stopping = early_stopping == "yes"     ? EarlyStopping::yes
                           : early_stopping == "never" ? EarlyStopping::never
                                                       : EarlyStopping::no;
  options.eos = end_ids(*this, engine);
  return options;
}

}  // namespace vitrine::cli
