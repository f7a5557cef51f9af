// vitrine features: what a sparse autoencoder or transcoder sees in a text, and what its features mean.
#include "inspect/features.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "io/atomic_file.h"
#include "picture/page/text_page.h"
#include "picture/svg/bars.h"
#include "sae/autoencoder.h"
#include "sae/sae_file.h"

namespace vitrine::cli {
namespace {

constexpr int kDensityCells = 24;
constexpr int64_t kMostFeatures = 4096;

struct FeaturesArguments {
  ModelOptions model;
  PromptOptions prompt;
  std::string sae, hook, out, trace;
  std::vector<std::string> files;
  std::vector<int64_t> features;
  int64_t top = 5, contexts = 10, logits = 0, context = 256;
};

OrderedJson head_json(const SparseAutoencoder& sae) {
  return {{"architecture", architecture_name(sae)},
          {"hook", sae.hook_name},
          {"hook_out", sae.hook_name_out},
          {"d_in", sae.d_in},
          {"d_sae", sae.d_sae},
          {"d_out", sae.d_out}};
}

// Windows of the files' tokens, side by side; each begins with BOS if the tokenizer adds one to a text.
std::vector<std::vector<int32_t>> windows_of(const Engine& engine, const FeaturesArguments& o) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const int64_t limit = engine.shape().context_length;
  const auto context = static_cast<size_t>(limit > 0 ? std::min(o.context, limit) : o.context);
  std::vector<std::vector<int32_t>> windows;
  for (const std::string& file : o.files) {
    std::vector<int32_t> window;
    const std::vector<int32_t> ids = tokenizer.encode(read_text(file), false);
    for (const int32_t id : ids) {
      if (window.empty() && tokenizer.adds_bos() && tokenizer.bos()) window.push_back(*tokenizer.bos());
      window.push_back(id);
      if (window.size() < context) continue;
      windows.push_back(std::move(window));
      window.clear();
    }
    if (!window.empty()) windows.push_back(std::move(window));
  }
  if (windows.empty()) throw InputError("--file: there is no token in " + o.files.front());
  return windows;
}

// The largest features of one row: places in `features`.
std::vector<size_t> largest_of(const SparseFeatures& features, int64_t row, int64_t top) {
  std::vector<size_t> order(
      static_cast<size_t>(features.begin[static_cast<size_t>(row) + 1] - features.begin[static_cast<size_t>(row)]));
  std::iota(order.begin(), order.end(), static_cast<size_t>(features.begin[static_cast<size_t>(row)]));
  const auto n = static_cast<std::ptrdiff_t>(std::min<size_t>(order.size(), static_cast<size_t>(top)));
  std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](size_t a, size_t b) {
    return features.value[a] > features.value[b] ||
           (features.value[a] == features.value[b] && features.index[a] < features.index[b]);
  });
  order.resize(static_cast<size_t>(n));
  return order;
}

void show_prompt_features(Engine& engine, const SparseAutoencoder& sae, const Prompt& prompt, const FeaturesArguments& o) {
  const SparseFeatures features = features_of(engine, sae, prompt.ids);
  const auto active = [&](int64_t r) {
    return features.begin[static_cast<size_t>(r) + 1] - features.begin[static_cast<size_t>(r)];
  };
  if (o.model.json) {
    OrderedJson rows = OrderedJson::array();
    for (int64_t r = 0; r < features.rows(); ++r) {
      OrderedJson list = OrderedJson::array();
      for (const size_t e : largest_of(features, r, o.top))
        list.push_back({{"feature", features.index[e]}, {"value", features.value[e]}});
      const int32_t id = prompt.ids[static_cast<size_t>(r)];
      rows.push_back(
          {{"position", r}, {"token", id}, {"piece", piece_json(engine, id)}, {"active", active(r)}, {"features", list}});
    }
    OrderedJson document = head_json(sae);
    document["positions"] = rows;
    print_json(document);
    return;
  }
  int widest = 5;
  for (const int32_t id : prompt.ids) widest = std::max(widest, width_of(shown_piece(engine, id)));
  print("{}\n", dim(fmt::format("{}  {}  largest features", pad_right("token", widest), pad_left("active", 6))));
  for (int64_t r = 0; r < features.rows(); ++r) {
    std::string line;
    for (const size_t e : largest_of(features, r, o.top))
      line += fmt::format("  {}: {:.3f}", features.index[e], features.value[e]);
    print("{}  {}{}\n", pad_right(shown_piece(engine, prompt.ids[static_cast<size_t>(r)]), widest),
          pad_left(std::to_string(active(r)), 6), line);
  }
}

void print_logits(const Engine& engine, const char* word, const std::vector<TokenLogit>& tokens) {
  std::string line;
  for (const TokenLogit& one : tokens) line += fmt::format("  {} {:+.3f}", shown_piece(engine, one.token), one.logit);
  print("  {}{}\n", word, line);
}

OrderedJson summary_json(const Engine& engine, const FeatureSummary& s, int64_t tokens) {
  OrderedJson json = json_of(s, speller_of(engine));
  json["density"] = tokens > 0 ? static_cast<double>(s.active) / static_cast<double>(tokens) : 0;
  return json;
}

void print_feature(const Engine& engine, const FeatureSummary& s, int64_t tokens) {
  print("{}\n", bold(fmt::format("feature {}", s.feature)));
  print("  active on {} of {} tokens ({}), mean {:.3f}, largest {:.3f}\n", grouped(s.active), grouped(tokens),
        percent(tokens > 0 ? static_cast<double>(s.active) / static_cast<double>(tokens) : 0), s.mean, s.largest);
  for (const FeatureContext& c : s.contexts) {
    std::string before, behind;
    for (size_t i = 0; i < c.tokens.size(); ++i)
      if (static_cast<int64_t>(i) != c.at) (static_cast<int64_t>(i) < c.at ? before : behind) += shown_piece(engine, c.tokens[i]);
    print("  {}  {}[{}]{}\n", pad_left(fmt::format("{:.3f}", c.value), 8), dim(before),
          bold(shown_piece(engine, c.tokens[static_cast<size_t>(c.at)])), dim(behind));
  }
}

// Without --feature: how the features share the text.
void print_densities(const FeatureTable& table, int64_t d_sae, int64_t top) {
  const auto dead = std::ranges::count(table.active, 0);
  print("{} tokens, {:.1f} features active on a token; {} of {} active nowhere ({})\n", grouped(table.tokens), table.l0,
        grouped(dead), grouped(d_sae), percent(static_cast<double>(dead) / static_cast<double>(d_sae)));
  std::vector<int64_t> order(table.active.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](int64_t a, int64_t b) {
    const int64_t p = table.active[static_cast<size_t>(a)], q = table.active[static_cast<size_t>(b)];
    return p > q || (p == q && a < b);
  });
  for (int64_t i = 0; i < std::min<int64_t>(top, d_sae); ++i) {
    const int64_t f = order[static_cast<size_t>(i)], n = table.active[static_cast<size_t>(f)];
    const double share = static_cast<double>(n) / static_cast<double>(std::max<int64_t>(table.tokens, 1));
    print("{}  {}  {}\n", pad_left(std::to_string(f), 8), pad_left(percent(share), 8), bar(share, kDensityCells));
  }
}

ColoredPage::Chart density_chart(const FeatureSummary& s, int64_t tokens) {
  BarChart chart;
  chart.title = fmt::format("feature {}: values", s.feature);
  chart.x_label = "tokens";
  const double step = static_cast<double>(s.largest) / static_cast<double>(s.histogram.size());
  for (size_t i = 0; i < s.histogram.size(); ++i) {
    const double from = step * static_cast<double>(i);
    chart.bars.push_back({fmt::format("{:.3g} to {:.3g}", from, from + step), static_cast<double>(s.histogram[i]),
                          plural(s.histogram[i], "token")});
  }
  chart.description = fmt::format("How often feature {} has which value, on the {} of {} on which it is active", s.feature,
                                  plural(s.active, "token"), grouped(tokens));
  return {bars_svg(chart), chart.description};
}

ColoredPage::Chart logits_chart(const Engine& engine, int64_t feature, const FeatureLogits& logits) {
  BarChart chart;
  chart.title = fmt::format("feature {}: logits", feature);
  chart.x_label = "direction · W_U";
  const auto add = [&](const TokenLogit& one) {
    chart.bars.push_back({visible(shown_piece(engine, one.token)), one.logit, fmt::format("{:+.3f}", one.logit)});
  };
  std::ranges::for_each(logits.raised, add);
  std::for_each(logits.lowered.rbegin(), logits.lowered.rend(), add);
  chart.description = fmt::format("The tokens that the direction of feature {} raises and lowers most", feature);
  return {bars_svg(chart), chart.description};
}

// Contexts with the tokens colored by the feature's value, and below them how its values spread and what it speaks for.
std::string features_page(const Engine& engine, const SparseAutoencoder& sae, const FeatureTable& table,
                          const std::vector<FeatureLogits>& logits) {
  ColoredPage page;
  page.title = "Features at " + sae.hook_name;
  page.lines = {fmt::format("{} autoencoder with {} features, {} of {}", architecture_name(sae), grouped(sae.d_sae),
                            sae.hook_name, engine.name()),
                fmt::format("{} tokens; {:.1f} features active on a token", grouped(table.tokens), table.l0)};
  page.none = "0";
  page.high = "the feature's largest value";
  for (size_t i = 0; i < table.features.size(); ++i) {
    const FeatureSummary& s = table.features[i];
    const double density = static_cast<double>(s.active) / static_cast<double>(std::max<int64_t>(table.tokens, 1));
    for (const FeatureContext& c : s.contexts) {
      ColoredPage::Passage passage;
      passage.heading = fmt::format("feature {}, active on {} of tokens: {:.3f} at token {}", s.feature, percent(density),
                                    c.value, grouped(c.position));
      for (size_t t = 0; t < c.tokens.size(); ++t)
        passage.pieces.push_back({shown_piece(engine, c.tokens[t]),
                                  s.largest > 0 ? std::clamp(static_cast<double>(c.values[t] / s.largest), -1.0, 1.0) : 0.0,
                                  fmt::format("{:.3f}", c.values[t])});
      page.passages.push_back(std::move(passage));
    }
    if (s.active > 0) page.charts.push_back(density_chart(s, table.tokens));
    if (i < logits.size()) page.charts.push_back(logits_chart(engine, s.feature, logits[i]));
  }
  return colored_text_page(page);
}

void show_features(Engine& engine, const SparseAutoencoder& sae, const FeaturesArguments& o) {
  FeatureTable table;
  if (!o.files.empty())
    table = feature_table(engine, sae, windows_of(engine, o), {.features = o.features, .contexts = o.contexts});
  std::vector<FeatureLogits> logits;
  if (o.logits > 0 || o.files.empty())
    for (const int64_t f : o.features) logits.push_back(feature_logits(engine, sae, f, o.logits > 0 ? o.logits : 10));

  if (!o.out.empty()) write_file_atomically(o.out, features_page(engine, sae, table, logits));
  if (o.model.json) {
    OrderedJson document = head_json(sae), list = OrderedJson::array();
    for (size_t i = 0; i < o.features.size(); ++i) {
      OrderedJson one =
          o.files.empty() ? OrderedJson{{"feature", o.features[i]}} : summary_json(engine, table.features[i], table.tokens);
      if (!logits.empty()) one.update(json_of(logits[i], speller_of(engine)));
      list.push_back(std::move(one));
    }
    if (!o.files.empty()) {
      document["tokens"] = table.tokens;
      document["l0"] = table.l0;
      document["active"] = table.active;
    }
    document["features"] = list;
    print_json(document);
    return;
  }
  if (o.features.empty()) print_densities(table, sae.d_sae, o.top);
  for (size_t i = 0; i < o.features.size(); ++i) {
    if (o.files.empty()) {
      print("{}\n", bold(fmt::format("feature {}", o.features[i])));
    } else {
      print_feature(engine, table.features[i], table.tokens);
    }
    if (logits.empty()) continue;
    print_logits(engine, "raises", logits[i].raised);
    print_logits(engine, "lowers", logits[i].lowered);
  }
}

void run_features(const FeaturesArguments& o) {
  const bool prompt = o.prompt.has_text || o.prompt.has_tokens;
  if (prompt && !o.files.empty()) throw UsageError("TEXT or --tokens, and --file: give one of them.");
  if (prompt && !o.features.empty())
    throw UsageError(
        "--feature goes with --file, whose contexts it shows, or stands alone, for logits; with a prompt --top says how "
        "many features each token shows.");
  if (!prompt && o.files.empty() && o.features.empty())
    throw UsageError("give a TEXT for the features of its tokens, --file for how often features are active, or --feature.");
  if (!o.out.empty() && (o.files.empty() || o.features.empty()))
    throw UsageError("--out draws contexts of features: it needs --feature and --file.");
  if (!o.out.empty()) check_writable("--out", o.out);
  if (!o.trace.empty() && !prompt) throw UsageError("--trace needs a TEXT or --tokens, whose features it writes.");
  if (!o.trace.empty()) check_writable("--trace", o.trace);
  const SparseAutoencoder sae = read_sae(o.sae, o.hook);
  Engine engine = open_engine(o.model);
  if (!o.out.empty()) check_output(engine, o.out);
  if (!o.trace.empty()) check_output(engine, o.trace);
  check_fits(engine, sae);
  if (!prompt) return show_features(engine, sae, o);
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  if (prompts.size() != 1) throw UsageError("--tokens: features takes one sequence.");
  if (!o.trace.empty()) trace_features(engine, sae, prompts[0].ids, o.trace);
  show_prompt_features(engine, sae, prompts[0], o);
}

Action define_features(CLI::App& app) {
  auto o = std::make_shared<FeaturesArguments>();
  add_prompt_options(app, o->prompt, false);
  app.add_option("--sae", o->sae,
                 "The directory of the autoencoder or transcoder: SAELens's (cfg.json, sae_weights.safetensors) or Gemma Scope's")
      ->type_name("DIR")
      ->required()
      ->check(not_empty());
  app.add_option("--hook", o->hook, "The hook it reads, instead of the one in its files, such as blocks.3.hook_resid_post")
      ->type_name("HOOK")
      ->check(not_empty());
  app.add_option("--file", o->files,
                 "A text: how often features are active, and --feature's contexts. May be repeated; - is stdin")
      ->type_name("FILE")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
  app.add_option(
         "--trace", o->trace,
         "Also write the features, the reconstruction and the error of a TEXT as tensors <hook>.hook_sae_acts_post, _recons "
         "and _error (replaced if it exists)")
      ->type_name("FILE.safetensors")
      ->check(not_empty());
  app.add_option("--feature", o->features,
                 "A feature to describe: its largest contexts in --file, and its logits. May be repeated")
      ->type_name("N")
      ->expected(1)
      ->take_all()
      ->check(CLI::Validator(
          [](const std::string& text) {
            const bool number = !text.empty() && text.size() < 10 && text.find_first_not_of("0123456789") == std::string::npos;
            return number ? std::string() : "\"" + text + "\" is no feature; features are numbers from 0";
          },
          ""));
  add_count(app, "--top", o->top, 1, kMostFeatures, "Features to show: for each token, or the most often active (default 5)");
  add_count(app, "--top-contexts", o->contexts, 0, kMostFeatures, "Contexts of each --feature (default 10)");
  add_count(app, "--logits", o->logits, 0, kMostFeatures,
            "Tokens whose logits each --feature raises and lowers most (default 10 without --file, otherwise none)");
  add_count(app, "--context", o->context, 2, 1 << 20, "Tokens of a context of --file (default 256)");
  app.add_option(
         "--out,-o", o->out,
         "Also write a page with the contexts colored by the feature, its density and its --logits (replaced if it exists)")
      ->type_name("PAGE.html")
      ->check(not_empty());
  add_model_options(app, o->model);
  return [o] { run_features(*o); };
}

}  // namespace

const Command features_command = {
    "features",
    "Show the features of a sparse autoencoder or transcoder",
    "With a TEXT: the largest features of each token. With --file: how often each feature is active, and for every "
    "--feature its largest contexts. --feature also shows the tokens whose logits its direction raises and lowers. "
    "Autoencoders can be in the formats of SAELens and Gemma Scope. See docs/sparse-autoencoders.md.",
    "vitrine features --sae my-autoencoder \"Once upon a time there was a king\"\n"
    "vitrine features --sae my-autoencoder --file examples/fables.txt --feature 12 --logits 5",
    define_features,
    "an autoencoder"};

}  // namespace vitrine::cli
