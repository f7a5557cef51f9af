// Drawings of bars and of rows of words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/plural.h"
#include "ops/attention.h"
#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kWidth = 640;

// One line of bars: a label, a bar from zero, its number.
void bars(Svg& svg, double y, const std::vector<std::string>& labels, const std::vector<double>& values, double left = 190) {
  const SvgScale x = scale_over(values, left, kWidth - 80, false, true);
  for (size_t i = 0; i < values.size(); ++i) {
    const double row = y + static_cast<double>(i) * 20, zero = x.at(0), end = x.at(values[i]);
    svg.text(left - 8, row + 12, labels[i], Anchor::end);
    svg.rect(std::min(zero, end), row + 3, std::max(0.5, std::abs(end - zero)), 12, values[i] < 0 ? "accent2" : "accent");
    svg.text(std::max(zero, end) + 6, row + 13, short_number(values[i]), Anchor::start, "muted", 11);
  }
}

}  // namespace

Svg svg_of_softmax(const PictureView& c) {
  const PictureJson& sources = c.picture.at("sources");
  const PictureJson& sink = c.picture.at("sink");
  Svg svg(kWidth, 60 + 20 * static_cast<double>(sources.size() + (sink.is_null() ? 0 : 1)), c.title(), c.alt());
  svg.text(20, 22,
           fmt::format("Layer {}, head {}, target {}: scores and the weights they become", c.picture.at("layer").dump(),
                       c.picture.at("head").dump(), c.token_at(c.picture.at("target"))),
           Anchor::start, "muted");
  std::vector<std::string> labels;
  for (size_t i = 0; i < sources.size(); ++i)
    labels.push_back(fmt::format("{}  {}", c.token_at(sources[i]), short_number(c.picture.at("scores")[i])));
  std::vector<double> weights = number_list(c.picture.at("weights"));
  if (!sink.is_null()) {
    labels.push_back("the sink  " + short_number(sink.at("score")));
    weights.push_back(sink.at("weight"));
  }
  bars(svg, 36, labels, weights);
  return svg;
}

Svg svg_of_splits(const PictureView& c) {
  constexpr double kRow = 17;
  const PictureJson& splits = c.picture.at("splits");
  // The pieces of each split, in as many rows as they need.
  std::vector<std::vector<std::string>> rows;
  double height = 40;
  for (const PictureJson& split : splits) {
    std::vector<std::string>& lines = rows.emplace_back(1);
    for (const PictureJson& id : split.at("ids")) {
      const std::string piece = c.spelling(id, std::string::npos), joined = (lines.back().empty() ? "" : " | ") + piece;
      if (lines.back().empty() || Svg::text_width(lines.back() + joined) <= kWidth - 50) {
        lines.back() += joined;
      } else {
        lines.back() += " |";
        lines.push_back(piece);
      }
    }
    height += kRow * static_cast<double>(lines.size()) + 28;
  }
  Svg svg(kWidth, height, c.title(), c.alt());
  svg.text(20, 22, "Each split with its probability; the tokenizer's own is marked", Anchor::start, "muted");
  double y = 48;
  for (size_t i = 0; i < rows.size(); ++i) {
    const double tall = kRow * static_cast<double>(rows[i].size());
    if (splits[i].at("chosen").get<bool>()) svg.rect(10, y - 12, 4, tall + 12, "accent");
    for (const std::string& line : rows[i]) {
      svg.text(20, y, line);
      y += kRow;
    }
    const double logprob = splits[i].at("logprob"), bits = splits[i].at("bitsPerByte");
    svg.text(20, y,
             fmt::format("{}, ln p {:.2f}, {:.2f} bits per byte", plural(splits[i].at("ids").size(), "token"), logprob, bits),
             Anchor::start, "muted", 11);
    y += 28;
  }
  return svg;
}

Svg svg_of_logit_attribution(const PictureView& c) {
  const PictureJson& target = c.picture.at("targets")[0];
  const std::vector<double> parts = number_list(target.at("parts"));
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return std::abs(parts[a]) > std::abs(parts[b]); });
  const size_t shown = std::min<size_t>(24, order.size());
  std::vector<std::string> labels;
  std::vector<double> values;
  double rest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i >= shown) {
      rest += parts[order[i]];
      continue;
    }
    labels.push_back(c.picture.at("components")[order[i]].at("label"));
    values.push_back(parts[order[i]]);
  }
  if (order.size() > shown) labels.push_back(plural(order.size() - shown, "other") + " together"), values.push_back(rest);
  labels.emplace_back("remainder");
  values.push_back(target.at("remainder"));
  Svg svg(kWidth, 60 + 20 * static_cast<double>(labels.size()), c.title(), c.alt());
  svg.text(20, 22,
           fmt::format("Logit of \"{}\": {} = the sum of", c.spelling(target.at("id")), short_number(target.at("uncapped"))),
           Anchor::start, "muted");
  bars(svg, 36, labels, values, 210);
  return svg;
}

// For the last token of a full context: a prompt that fits into every window would show nothing but full bars.
Svg svg_of_reach(const PictureView& c) {
  const PictureJson& layers = c.picture.at("layers");
  const int64_t length = c.picture.at("contextLength"), context = length > 0 ? length : 8192;
  const double n = static_cast<double>(context);
  Svg svg(kWidth, 90 + 16 * static_cast<double>(layers.size()), c.title(), c.alt());
  const SvgScale x{0, n, 140, 610};
  const bool chunked = c.picture.at("chunked");
  int64_t receives = context - 1;
  for (size_t l = 0; l < layers.size(); ++l) {
    const double y = 30 + 16 * static_cast<double>(l);
    const int64_t window = layers[l].at("window");
    const AttentionSpec spec{.window = window, .chunked = chunked};
    const int64_t sees = first_seen(spec, context - 1);
    receives = first_seen(spec, receives);
    const std::string seen = window == 0 ? "global" : fmt::format("{} {}", chunked ? "chunk" : "window", window);
    svg.text(132, y + 11, fmt::format("layer {} {}", l, seen), Anchor::end, "ink", 11);
    svg.rect(x.at(static_cast<double>(receives)), y, x.at(n) - x.at(static_cast<double>(receives)), 12, "s4",
             fmt::format("content from token {} on can have arrived", receives));
    svg.rect(x.at(static_cast<double>(sees)), y + 2, x.at(n) - x.at(static_cast<double>(sees)), 8, "accent",
             fmt::format("sees from token {} on; this prompt: {}", sees,
                         plural(layers[l].at("cached").get<int64_t>(), "cached position")));
  }
  svg.x_axis(x, 36 + 16 * static_cast<double>(layers.size()),
             fmt::format("position: seen by the last of {} (strong), within reach (pale)", plural(context, "token")));
  return svg;
}

}  // namespace vitrine
