// vitrine graph: the attribution graph of a prompt through transcoders.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "graph/attribution_graph.h"
#include "graph/influence.h"
#include "graph/json.h"
#include "inspect/features.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "picture/page/graph_page.h"
#include "sae/transcoder_set.h"

namespace vitrine::cli {
namespace {

constexpr int64_t kNoteTokens = 6;  // of a feature's logits, raised and lowered each

struct GraphArguments {
  ModelOptions model;
  PromptOptions prompt;
  std::string transcoders, out, page, slug = "graph";
  std::vector<std::string> targets;
  GraphOptions options;
  double node_threshold = 0.8, edge_threshold = 0.98;
  int64_t memory_mib = 0, top = 10;
};

// --out names a folder if it is one or ends with a slash: the viewer's, with its list of graphs.
bool names_folder(const std::string& out) { return out.ends_with('/') || is_folder(out); }

std::string graph_path(const GraphArguments& o) {
  return names_folder(o.out) ? (std::filesystem::path(o.out) / (o.slug + ".json")).string() : o.out;
}

std::string graph_text(const OrderedJson& document) {
  return document.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

void write_graph(const GraphArguments& o, const OrderedJson& document) {
  write_file_atomically(graph_path(o), graph_text(document));
  if (!names_folder(o.out)) return;
  const std::string list = (std::filesystem::path(o.out) / "graph-metadata.json").string();
  OrderedJson before;
  if (present(list)) {
    std::ifstream in(list, std::ios::binary);
    before = OrderedJson::parse(in, nullptr, false);
    if (before.is_discarded()) throw FileError(list, "is no JSON; the graph itself was written");
  }
  write_file_atomically(list, graph_text(graph_list(before, document)));
}

// The tokens that each kept feature's direction raises and lowers; a cross-layer feature's is the sum of all that it writes.
FeatureNotes notes_of(Engine& engine, const TranscoderSet& set, const AttributionGraph& graph, const PrunedGraph& pruned) {
  const auto d = static_cast<size_t>(engine.shape().d_model);
  std::vector<int64_t> nodes;
  std::vector<float> directions;
  for (const int64_t node : pruned.nodes) {
    if (node >= graph.first_error()) break;
    const GraphFeature& f = graph.active[static_cast<size_t>(graph.selected[static_cast<size_t>(node)])];
    const std::span<const float> written = set.layers[static_cast<size_t>(f.layer)]->direction(f.feature);
    nodes.push_back(node);
    for (size_t i = 0; i < d; ++i) {
      float sum = 0;
      for (size_t j = i; j < written.size(); j += d) sum += written[j];
      directions.push_back(sum);
    }
  }
  FeatureNotes notes;
  const std::vector<FeatureLogits> logits = direction_logits(engine, directions, kNoteTokens);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto line = [&](std::string text, const std::vector<TokenLogit>& tokens) {
      for (const TokenLogit& one : tokens)
        text += fmt::format("  {} {:+.3f}", visible(shown_piece(engine, one.token)), one.logit);
      return text;
    };
    notes[nodes[i]] = {line("raises", logits[i].raised), line("lowers", logits[i].lowered)};
  }
  return notes;
}

std::string node_name(const AttributionGraph& graph, int64_t node) {
  if (node < graph.first_error()) {
    const GraphFeature& f = graph.active[static_cast<size_t>(graph.selected[static_cast<size_t>(node)])];
    return fmt::format("layer {} feature {}", f.layer, f.feature);
  }
  if (node < graph.first_token()) return fmt::format("layer {} error", (node - graph.first_error()) / graph.positions());
  return "token";
}

int64_t position_of(const AttributionGraph& graph, int64_t node) {
  if (node < graph.first_error()) return graph.active[static_cast<size_t>(graph.selected[static_cast<size_t>(node)])].position;
  return (node - graph.first_error()) % graph.positions();
}

void print_graph(const AttributionGraph& graph, const PrunedGraph& pruned, int64_t top) {
  const GraphScores scores = graph_scores(graph);
  print("{} active features, {} of them nodes; {} of {} nodes and {} edges kept\n", grouped(std::ssize(graph.active)),
        grouped(graph.features()), grouped(std::ssize(pruned.nodes)), grouped(graph.nodes()), grouped(std::ssize(pruned.edges)));
  print("replacement score {:.3f}, completeness score {:.3f}\n", scores.replacement, scores.completeness);
  std::string line;
  for (const GraphLogit& logit : graph.logits) line += fmt::format("  {} {}", visible(logit.text), percent(logit.probability));
  print("logits{}\n", line);
  std::vector<int64_t> order;
  for (const int64_t node : pruned.nodes)
    if (node < graph.first_logit()) order.push_back(node);
  std::ranges::sort(order, [&](int64_t a, int64_t b) {
    const double p = pruned.influence[static_cast<size_t>(a)], q = pruned.influence[static_cast<size_t>(b)];
    return p > q || (p == q && a < b);
  });
  order.resize(std::min(order.size(), static_cast<size_t>(top)));
  int widest = 4;
  for (const int64_t node : order) widest = std::max(widest, width_of(node_name(graph, node)));
  print("{}\n", dim(fmt::format("{}  influence  position", pad_right("node", widest))));
  for (const int64_t node : order) {
    const int64_t position = position_of(graph, node);
    print("{}  {}  {} {}\n", pad_right(node_name(graph, node), widest),
          pad_left(fmt::format("{:.4f}", pruned.influence[static_cast<size_t>(node)]), 9), pad_left(std::to_string(position), 8),
          visible(graph.token_texts[static_cast<size_t>(position)]));
  }
}

void run_graph(GraphArguments& o) {
  if (o.slug.empty() || o.slug.find_first_of("/\\\"") != std::string::npos || o.slug.starts_with('.'))
    throw UsageError("--slug names a file; it may hold no slash and not begin with a point.");
  if (o.out.ends_with('/')) {
    std::error_code error;
    std::filesystem::create_directories(o.out, error);
    if (error) throw UsageError("--out: " + o.out + " cannot be made: " + error.message());
  }
  if (!o.out.empty()) check_writable("--out", graph_path(o));
  if (!o.page.empty()) check_writable("--page", o.page);
  const TranscoderSet set = read_transcoders(o.transcoders);
  Engine engine = open_engine(o.model);
  for (const std::string& out : {o.out.empty() ? o.out : graph_path(o), o.page})
    if (!out.empty()) check_output(engine, out);
  const std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  if (prompts.size() != 1) throw UsageError("--tokens: graph takes one sequence.");
  const std::vector<int32_t> ids =
      prompts[0].from_text && !o.prompt.no_special ? graph_ids(engine, prompts[0].ids) : prompts[0].ids;
  for (const std::string& target : o.targets)
    o.options.targets.push_back(single_token(engine.tokenizer(), unescape(target, "--target")));
  o.options.memory = static_cast<size_t>(o.memory_mib) << 20;
  const AttributionGraph graph = attribution_graph(engine, set, ids, o.options);
  const PrunedGraph pruned = prune(graph, o.node_threshold, o.edge_threshold);
  const OrderedJson document = graph_document(graph, pruned, o.slug);
  if (!o.out.empty()) write_graph(o, document);
  if (!o.page.empty()) write_file_atomically(o.page, graph_page(graph, pruned, notes_of(engine, set, graph, pruned)));
  if (o.model.json) return print_json(document);
  print_graph(graph, pruned, o.top);
}

Action define_graph(CLI::App& app) {
  auto o = std::make_shared<GraphArguments>();
  add_prompt_options(app, o->prompt, false);
  app.add_option(
         "--transcoders", o->transcoders,
         "A folder with a transcoder for each layer: circuit-tracer's files (also of a cross-layer transcoder), or SAELens "
         "or Gemma Scope folders")
      ->type_name("DIR")
      ->required()
      ->check(not_empty());
  app.add_option(
         "--out,-o", o->out,
         "Write the pruned graph as JSON for circuit-tracer's viewer (replaced if it exists). With a folder (DIR/ if it is "
         "new), writes --slug's file and graph-metadata.json for the viewer's list")
      ->type_name("FILE.json")
      ->check(not_empty());
  app.add_option("--page", o->page, "Write the pruned graph as a page (replaced if it exists)")
      ->type_name("PAGE.html")
      ->check(not_empty());
  app.add_option("--slug", o->slug, "The graph's name in the document (default graph)")->type_name("NAME");
  app.add_option("--target", o->targets, "A token whose logit to explain, instead of the most likely ones. May be repeated")
      ->type_name("TOKEN")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
  add_count(app, "--max-features", o->options.max_features, 1, 1 << 20,
            "Maximum features that become nodes, those with the largest influence (default 7500)");
  add_count(app, "--max-logits", o->options.max_logits, 1, 1000, "Maximum logits that become nodes (default 10)");
  add_number(app, "--logit-share", o->options.logit_share, 0, 1,
             "The most likely tokens become nodes until their probabilities add up to this (default 0.95)", true);
  add_number(app, "--node-threshold", o->node_threshold, 0, 1, "Share of the influence that the kept nodes have (default 0.8)");
  add_number(app, "--edge-threshold", o->edge_threshold, 0, 1,
             "Share of the influence between them that the kept edges carry (default 0.98)");
  add_count(
      app, "--ignore-positions", o->options.ignored_positions, 0, 1 << 20,
      "Positions at the beginning without features and errors: 1 for BOS, more for the start of a chat template (default 1)");
  add_count(app, "--top", o->top, 0, 1 << 20, "Nodes to list (default 10)");
  add_count(app, "--memory", o->memory_mib, 1, int64_t{1} << 30,
            "Maximum MiB for the effects; a larger graph is refused before it is computed (default: the free memory)");
  add_model_options(app, o->model);
  return [o] { run_graph(*o); };
}

}  // namespace

const Command graph_command = {
    "graph",
    "Make the attribution graph of a prompt through transcoders",
    "Direct effects of transcoder features, tokens and reconstruction errors on each other and on the logits of the most "
    "likely tokens, with attention patterns and norms frozen: circuit-tracer's definition and values. The graph is pruned "
    "to the most important nodes and edges. Shows the nodes with the largest influence; --out writes JSON for "
    "circuit-tracer's viewer, --page writes an HTML page. See docs/attribution-graphs.md.",
    "vitrine graph --transcoders my-transcoders \"The old king had a\" --out graphs/ --page graph.html",
    define_graph,
    "transcoders"};

}  // namespace vitrine::cli
