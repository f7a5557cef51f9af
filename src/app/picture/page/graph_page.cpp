#include "picture/page/graph_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "picture/data/values.h"

namespace vitrine {
namespace {

constexpr double kNodeStep = 17, kRow = 52, kLeft = 70, kTop = 34, kLargestNode = 7;
constexpr size_t kEdgesListed = 12;  // for each direction of a node

struct GraphNode {
  int64_t node = 0, row = 0, position = 0;  // row 0: tokens, 1 …: layers, above them logits
  double x = 0, y = 0, radius = 3;
  std::string name, kind;
  std::vector<const GraphEdge*> in, out;  // largest first
};

class GraphPage {
 public:
  GraphPage(const AttributionGraph& graph, const PrunedGraph& pruned, const FeatureNotes& notes)
      : graph_(graph), pruned_(pruned), notes_(notes), place_(static_cast<size_t>(graph.nodes()), -1) {
    for (const int64_t node : pruned.nodes) add(node);
    for (const GraphEdge& e : pruned.edges) {
      at(e.source).out.push_back(&e);
      at(e.target).in.push_back(&e);
    }
    const auto larger = [](const GraphEdge* a, const GraphEdge* b) { return std::abs(a->effect) > std::abs(b->effect); };
    for (GraphNode& n : nodes_) {
      std::ranges::sort(n.in, larger);
      std::ranges::sort(n.out, larger);
    }
    std::erase_if(nodes_, [&](const GraphNode& n) {  // errors and features whose edges are all gone
      return n.node < graph.first_token() && n.in.empty() && n.out.empty();
    });
    for (size_t i = 0; i < nodes_.size(); ++i) place_[static_cast<size_t>(nodes_[i].node)] = static_cast<int64_t>(i);
    lay_out();
  }

  std::string html() const {
    const GraphScores scores = graph_scores(graph_);
    std::string page =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light "
        "dark\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        "<title>Attribution graph</title>\n<style>" +
        style() + "</style>\n</head>\n<body>\n<h1>Attribution graph</h1>\n<p>" + markup_text(graph_.prompt) + "</p>\n";
    page += fmt::format(
        "<p>{} of {} nodes and {} edges: the nodes that carry {:.0f} % of the influence on the logits, and {:.0f} % of what "
        "flows "
        "between them. Replacement score {:.3f}, completeness score {:.3f}.</p>\n",
        nodes_.size(), graph_.nodes(), pruned_.edges.size(), 100 * pruned_.node_threshold, 100 * pruned_.edge_threshold,
        scores.replacement, scores.completeness);
    page +=
        "<p class=\"legend\"><span class=\"dot\">●</span> feature &ensp; <span class=\"dot\">◆</span> what a transcoder does not "
        "explain &ensp; "
        "<span class=\"up\">━</span> raises &ensp; <span class=\"down\">━</span> lowers. Point at a node for its edges; click to "
        "keep "
        "its text.</p>\n<div class=\"g\">\n" +
        drawing();
    for (const GraphNode& n : nodes_) page += details(n);
    return page + "</div>\n</body>\n</html>\n";
  }

 private:
  GraphNode& at(int64_t node) { return nodes_[static_cast<size_t>(place_[static_cast<size_t>(node)])]; }
  const GraphNode& at(int64_t node) const { return nodes_[static_cast<size_t>(place_[static_cast<size_t>(node)])]; }

  std::string token(int64_t position) const { return graph_.token_texts[static_cast<size_t>(position)]; }

  void add(int64_t node) {
    GraphNode n;
    n.node = node;
    if (node < graph_.first_error()) {
      const GraphFeature& f = graph_.active[static_cast<size_t>(graph_.selected[static_cast<size_t>(node)])];
      n.row = 1 + f.layer;
      n.position = f.position;
      n.kind = "feature";
      n.name = fmt::format("feature {} of layer {}", f.feature, f.layer);
    } else if (node < graph_.first_token()) {
      const int64_t layer = (node - graph_.first_error()) / graph_.positions();
      n.row = 1 + layer;
      n.position = (node - graph_.first_error()) % graph_.positions();
      n.kind = "error";
      n.name = fmt::format("error of layer {}", layer);
    } else if (node < graph_.first_logit()) {
      n.position = node - graph_.first_token();
      n.kind = "token";
      n.name = "token \"" + token(n.position) + "\"";
    } else {
      const GraphLogit& logit = graph_.logits[static_cast<size_t>(node - graph_.first_logit())];
      n.row = 1 + graph_.n_layers;
      n.position = graph_.positions() - 1;
      n.kind = "logit";
      n.name = fmt::format("logit \"{}\", p = {:.3f}", logit.text, logit.probability);
    }
    place_[static_cast<size_t>(node)] = std::ssize(nodes_);
    nodes_.push_back(std::move(n));
  }

  void lay_out() {
    const int64_t rows = graph_.n_layers + 2;
    std::vector<std::vector<GraphNode*>> cells(static_cast<size_t>(rows * graph_.positions()));
    for (GraphNode& n : nodes_) cells[static_cast<size_t>(n.row * graph_.positions() + n.position)].push_back(&n);
    double largest = 0;
    for (const GraphNode& n : nodes_) largest = std::max(largest, pruned_.influence[static_cast<size_t>(n.node)]);
    double x = kLeft;
    for (int64_t p = 0; p < graph_.positions(); ++p) {
      size_t most = 2;
      for (int64_t r = 0; r < rows; ++r) most = std::max(most, cells[static_cast<size_t>(r * graph_.positions() + p)].size());
      const double width = kNodeStep * static_cast<double>(most) + 14;
      columns_.push_back(x + width / 2);
      for (int64_t r = 0; r < rows; ++r) {
        const auto& cell = cells[static_cast<size_t>(r * graph_.positions() + p)];
        for (size_t i = 0; i < cell.size(); ++i) {
          GraphNode& n = *cell[i];
          n.x = columns_.back() + kNodeStep * (static_cast<double>(i) - static_cast<double>(cell.size() - 1) / 2);
          n.y = row_y(r);
          const double share = largest > 0 ? pruned_.influence[static_cast<size_t>(n.node)] / largest : 0;
          n.radius = n.kind == "logit" ? 5 : 2.5 + (kLargestNode - 2.5) * std::sqrt(share);
        }
      }
      x += width;
    }
    width_ = x + 10;
  }

  double row_y(int64_t row) const { return kTop + kRow * static_cast<double>(graph_.n_layers + 1 - row); }

  std::string style() const {
    std::string css =
        "body{font:15px/1.5 "
        "system-ui,sans-serif;margin:1.5em;--up:#2166ac;--down:#b35806;--ink:#1b1f24;--muted:#57606a;--faint:#d0d7de;"
        "--page:#fff}"
        "@media(prefers-color-scheme:dark){body{--up:#92c5de;--down:#fdb863;--ink:#e6edf3;--muted:#9da7b1;--faint:#30363d;--page:"
        "#0d1117}}"
        "body{background:var(--page);color:var(--ink);overflow-wrap:anywhere}.up{color:var(--up)}.down{color:var(--down)}"
        ".legend,.m{color:var(--muted)}.scroll{overflow-x:auto}svg text{fill:var(--muted);font-size:12px}svg "
        ".rule{stroke:var(--faint)}"
        ".e{stroke:var(--up);opacity:.05;fill:none}.e.neg{stroke:var(--down)}"
        ".n{fill:var(--muted);stroke:var(--page);cursor:pointer}.n.feature,.n.logit{fill:var(--ink)}.n:hover,a:focus "
        ".n{fill:var(--up)}"
        ".d{display:none;max-width:70em}.d:target{display:block}.d "
        "table{display:inline-table;vertical-align:top;margin-right:3em}"
        ".d td{padding:0 .6em 0 0}.d td.v{text-align:right;font-variant-numeric:tabular-nums}h2{font-size:1.1em}"
        // While one node is pointed at, the text that was kept gives way.
        ".g:has(.n:hover) .d{display:none}";
    for (const GraphNode& n : nodes_)
      css += fmt::format(".g:has(.n{0}:hover) #d{0}{{display:block}}.g:has(.n{0}:hover) :is(.s{0},.t{0}){{opacity:.9}}", n.node);
    return css;
  }

  std::string drawing() const {
    const double height = row_y(0) + 40;
    std::string svg = fmt::format(
        "<div class=\"scroll\"><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 "
        "{0:.0f} "
        "{1:.0f}\" role=\"img\" aria-label=\"Nodes by layer and position, and the edges between them\">\n",
        width_, height);
    for (int64_t r = 0; r < graph_.n_layers + 2; ++r) {
      const std::string label = r == 0 ? "tokens" : r == graph_.n_layers + 1 ? "logits" : fmt::format("layer {}", r - 1);
      svg += fmt::format(
          "<line class=\"rule\" x1=\"{0}\" x2=\"{1:.0f}\" y1=\"{2:.0f}\" y2=\"{2:.0f}\"/><text x=\"4\" "
          "y=\"{3:.0f}\">{4}</text>\n",
          kLeft, width_, row_y(r) + kRow / 2, row_y(r) + 4, label);
    }
    for (int64_t p = 0; p < graph_.positions(); ++p)
      svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", columns_[static_cast<size_t>(p)],
                         row_y(0) + 24, markup_text(token(p)));
    for (const GraphNode& n : nodes_) {  // edges lie below the nodes
      const double largest = n.in.empty() ? 1 : std::abs(static_cast<double>(n.in.front()->effect));
      for (const GraphEdge* e : n.in) {
        const GraphNode& from = at(e->source);
        svg += fmt::format("<path class=\"e{} s{} t{}\" stroke-width=\"{:.2f}\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n",
                           e->effect < 0 ? " neg" : "", e->source, e->target,
                           0.6 + 2.4 * std::abs(static_cast<double>(e->effect)) / largest, from.x, from.y, n.x, n.y);
      }
    }
    for (const GraphNode& n : nodes_) {
      const std::string title = markup_text(n.name);
      svg += fmt::format("<a href=\"#d{}\">", n.node);
      if (n.kind == "error")
        svg += fmt::format(
            "<path class=\"n n{} error\" d=\"M{:.1f} {:.1f}l{r:.1f} {r:.1f}l-{r:.1f} {r:.1f}l-{r:.1f} "
            "-{r:.1f}z\"><title>{}</title></path>",
            n.node, n.x, n.y - n.radius, title, fmt::arg("r", n.radius));
      else
        svg += fmt::format("<circle class=\"n n{} {}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"><title>{}</title></circle>",
                           n.node, n.kind, n.x, n.y, n.radius, title);
      svg += "</a>\n";
    }
    return svg + "</svg></div>\n";
  }

  std::string edge_table(const char* heading, const std::vector<const GraphEdge*>& edges, bool of_source) const {
    if (edges.empty()) return "";
    std::string html = fmt::format("<table><caption class=\"m\">{}</caption>", heading);
    for (size_t i = 0; i < std::min(edges.size(), kEdgesListed); ++i) {
      const GraphNode& other = at(of_source ? edges[i]->source : edges[i]->target);
      html += fmt::format("<tr><td class=\"v {}\">{:+.4f}</td><td>{}</td><td class=\"m\">{}</td></tr>",
                          edges[i]->effect < 0 ? "down" : "up", edges[i]->effect, markup_text(other.name),
                          markup_text(place_text(other)));
    }
    if (edges.size() > kEdgesListed)
      html += fmt::format("<tr><td></td><td class=\"m\">and {} more</td></tr>", edges.size() - kEdgesListed);
    return html + "</table>";
  }

  std::string place_text(const GraphNode& n) const { return fmt::format("at {} \"{}\"", n.position, token(n.position)); }

  std::string details(const GraphNode& n) const {
    std::string html = fmt::format("<section class=\"d\" id=\"d{}\"><h2>{} <span class=\"m\">{}</span></h2><p>", n.node,
                                   markup_text(n.name), markup_text(place_text(n)));
    if (n.kind == "feature")
      html +=
          fmt::format("value {:.4g}, ", graph_.active[static_cast<size_t>(graph_.selected[static_cast<size_t>(n.node)])].value);
    html += fmt::format("influence {:.4f}</p>", pruned_.influence[static_cast<size_t>(n.node)]);
    if (const auto found = notes_.find(n.node); n.kind == "feature" && found != notes_.end())
      for (const std::string& line : found->second) html += "<p>" + markup_text(line) + "</p>";
    return html + edge_table("what acts on it", n.in, true) + edge_table("what it acts on", n.out, false) + "</section>\n";
  }

  const AttributionGraph& graph_;
  const PrunedGraph& pruned_;
  const FeatureNotes& notes_;
  std::vector<GraphNode> nodes_;
  std::vector<int64_t> place_;  // of a node in nodes_
  std::vector<double> columns_;
  double width_ = 0;
};

}  // namespace

std::string graph_page(const AttributionGraph& graph, const PrunedGraph& pruned, const FeatureNotes& notes) {
  return GraphPage(graph, pruned, notes).html();
}

}  // namespace vitrine
