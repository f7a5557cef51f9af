#include "cli/generate_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
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

/// The flag of a sampling option: "--top-k".
std::string flag_of(const SamplingOption& option) {
  std::string flag = std::string("--") + option.name;
  std::ranges::replace(flag, '_', '-');
  return option.rule == SamplingRule::temperature ? flag + ",-t" : flag;
}

CLI::Option* add_sampling_flag(CLI::App& app, const SamplingOption& option, SamplingOptions& s) {
  std::string help = option.help;  // names other options as they are named there
  for (const SamplingOption& other : sampling_options())
    if (std::string_view(other.name).find('_') != std::string_view::npos)
      for (size_t at = 0; (at = help.find(other.name, at)) != std::string::npos; at += 2 + std::strlen(other.name))
        help.replace(at, std::strlen(other.name), flag_of(other));
  if (help.starts_with("With ") && !help.starts_with("With --")) help.insert(5, "--");
  const auto set = [&s, option](const std::string& text) {
    option.set(s, std::strtod(text.c_str(), nullptr));  // checked before; unlike std::stod it takes the smallest numbers
  };
  if (option.is_whole()) {
    auto held = std::make_shared<int64_t>(0);
    return add_count(app, flag_of(option), *held, static_cast<int64_t>(option.low), static_cast<int64_t>(option.high), help)
        ->each([held, set](const std::string& text) { set(text); });
  }
  auto held = std::make_shared<double>(0);
  return add_number(app, flag_of(option), *held, option.low, option.high, help, !option.includes_low())
      ->each([held, set](const std::string& text) { set(text); });
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

void add_draw_flags(CLI::App& app, SamplingOptions& s) {
  for (const SamplingOption& option : sampling_options())
    if (option.rule >= SamplingRule::temperature && option.rule < SamplingRule::xtc) add_sampling_flag(app, option, s);
}

void add_sampling_flags(CLI::App& app, GenerateFlags& flags) {
  const auto rule = [&](CLI::Option* option) { flags.rules.push_back(option); };
  for (const SamplingOption& option : sampling_options()) rule(add_sampling_flag(app, option, flags.sampling));
  rule(app.add_option(
              "--dry-sequence-breaker", flags.dry_sequence_breakers,
              "With --dry-multiplier: repetitions are not followed across this string; default: line feed, :, \" and *. May "
              "be repeated; none: no strings")
           ->type_name("S")
           ->expected(1)
           ->take_all());
  rule(app.add_option("--logit-bias", flags.logit_bias, "Add X to a token's logit; -inf forbids it. May be repeated")
           ->type_name("ID=X")
           ->expected(1)
           ->take_all());
  std::string order = sampling_order_text(SamplingOptions().order);
  for (size_t at = 0; (at = order.find(',', at)) != std::string::npos; ++at) order.insert(at + 1, " ");
  app.add_option("--samplers", flags.samplers, "The rules in the order of their use, with commas between them; default: " + order)
      ->type_name("ORDER")
      ->check(not_empty());
  add_count(app, "--seed", flags.seed, 0, std::numeric_limits<int64_t>::max(),
            "Random seed; the same seed gives the same text (default 0)");
}

void add_beam_flags(CLI::App& app, GenerateFlags& flags) {
  add_count(app, "--beams", flags.beams, 1, 4096, "Search with this many beams");
  auto held = std::make_shared<double>(0);
  add_number(app, "--length-penalty", *held, -100, 100, "With --beams: a score is the log-probability / length^A (default 1)")
      ->each([held, &flags](const std::string& text) { flags.length_penalty = std::strtod(text.c_str(), nullptr); });
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
  if (!dry_sequence_breakers.empty()) s.dry_sequence_breakers = dry_sequence_breakers;
  if (dry_sequence_breakers == std::vector<std::string>{"none"}) s.dry_sequence_breakers.clear();
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
