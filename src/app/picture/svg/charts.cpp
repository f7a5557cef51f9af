// Drawings of curves, dots and bars.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/plural.h"
#include "picture/data/soft_cap.h"
#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kLeft = 70, kWidth = 640, kRight = 610, kTop = 40, kBottom = 300, kHeight = 350;

// Two kinds of dots and what they are: {color, words}.
void legend(Svg& svg, const std::array<std::pair<const char*, const char*>, 2>& kinds) {
  double x = kLeft;
  for (const auto& [color, words] : kinds) {
    svg.circle(x + 12, 22, 4, color);
    svg.text(x + 22, 26, words);
    x += 90;
  }
}

std::vector<double> counted(size_t n) {
  std::vector<double> x(n);
  std::iota(x.begin(), x.end(), 0.0);
  return x;
}

void curve(Svg& svg, const SvgScale& x, const SvgScale& y, const std::vector<double>& xs, const std::vector<double>& ys,
           std::string_view color, double width = 1.5) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < xs.size(); ++i) {
    const bool there = std::isfinite(ys[i]) && (!y.log || ys[i] > 0);
    if (there) points.emplace_back(x.at(xs[i]), y.at(ys[i]));
    if (!there || i + 1 == xs.size()) {
      svg.path(points, color, width);
      points.clear();
    }
  }
}

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

Svg svg_of_update_scale(const PictureView& c) {
  Svg svg(kWidth, kHeight, c.title(), c.alt());
  const PictureJson& sublayers = c.picture.at("sublayers");
  const SvgScale x{-0.5, static_cast<double>(sublayers.size() / 2) - 0.5, kLeft, kRight}, y{0, 1, kBottom, kTop};
  svg.y_axis(y, kLeft, "update scale √(σr² / (σr² + σs²))", kRight);
  svg.x_axis(x, kBottom, "layer");
  for (const PictureJson& s : sublayers) {
    const bool attention = s.at("part") == "attention";
    const double layer = s.at("layer"), scale = s.at("scale");
    svg.circle(x.at(layer + (attention ? -0.12 : 0.12)), y.at(scale), 4, attention ? "accent" : "accent2",
               fmt::format("layer {} {}: {}", layer, s.at("part").get<std::string>(), short_number(scale)));
  }
  legend(svg, {{{"accent", "attention"}, {"accent2", "MLP"}}});
  return svg;
}

Svg svg_of_residual_scale(const PictureView& c) {
  Svg svg(kWidth, kHeight + 60, c.title(), c.alt());
  const std::vector<double> with = number_list(c.picture.at("withNorms")), without = number_list(c.picture.at("withoutNorms"));
  std::vector<double> all = with;
  all.insert(all.end(), without.begin(), without.end());
  const std::vector<double> x = counted(with.size());
  const SvgScale across = scale_over(x, kLeft, kRight - 90), up = scale_over(all, kBottom, kTop, true);
  svg.y_axis(up, kLeft, "σ of the stream (log)", kRight - 90);
  svg.x_axis(across, kBottom, "sub-layer (attention and MLP in turn)");
  curve(svg, across, up, x, with, "accent", 2);
  curve(svg, across, up, x, without, "accent2", 2);
  for (const auto& [values, color] : {std::pair{&with, "accent"}, std::pair{&without, "accent2"}})
    for (size_t i = 0; i < values->size(); ++i)
      if (std::isfinite((*values)[i]) && (*values)[i] > 0)
        svg.circle(across.at(x[i]), up.at((*values)[i]), 2.5, color,
                   c.picture.at("labels").at(i).get<std::string>() + ": " + short_number((*values)[i]));
  svg.text(kRight - 84, up.at(with.back()) + 4, "with norms");
  const auto lost = std::find_if(without.begin(), without.end(), [](double v) { return !std::isfinite(v); });
  const double last = lost == without.begin() ? up.high : *(lost - 1);
  svg.text(lost == without.end() ? kRight - 84 : across.at(static_cast<double>(lost - without.begin())),
           std::max(kTop + 12, up.at(last) + 4), "without norms");
  const std::vector<double> grows = number_list(c.picture.at("toy").at("without")),
                            adds = number_list(c.picture.at("toy").at("with"));
  svg.text(kLeft, kHeight + 30,
           fmt::format("Toy, 18 steps from 1:  x ← x + 2x gives {:.0f};  x ← x + 2 gives {:.0f}", grows.back(), adds.back()),
           Anchor::start, "muted");
  return svg;
}

Svg svg_of_embedding_rescaling(const PictureView& c) {
  Svg svg(kWidth, 140, c.title(), c.alt());
  const auto& p = c.picture;
  bars(svg, 30, {"attention, with factor", "attention, without", "MLP, with factor", "MLP, without"},
       {p.at("attention").at("with"), p.at("attention").at("without"), p.at("mlp").at("with"), p.at("mlp").at("without")});
  svg.text(20, 20, fmt::format("First layer's update scales; factor {}", short_number(p.at("factor"))), Anchor::start, "muted");
  return svg;
}

// One small panel for each kind of norm, over the layers, on one scale.
Svg svg_of_norm_statistics(const PictureView& c) {
  const std::vector<double> in = number_list(c.picture.at("inRms")), out = number_list(c.picture.at("outRms"));
  std::vector<std::pair<std::string, std::vector<size_t>>> kinds;  // "ln1", and its norms in the order of the layers
  for (size_t i = 0; i < in.size(); ++i) {
    const std::string name = c.picture.at("norms").at(i);
    const size_t dot = name.starts_with("blocks.") ? name.find('.', 7) + 1 : 0;
    const std::string kind = name.substr(dot);
    auto at = std::find_if(kinds.begin(), kinds.end(), [&](const auto& one) { return one.first == kind; });
    if (at == kinds.end()) at = kinds.insert(kinds.end(), {kind, {}});
    at->second.push_back(i);
  }
  constexpr double kPanel = 190, kPanelWidth = 230;
  Svg svg(kWidth, 30 + kPanel * std::ceil(static_cast<double>(kinds.size()) / 2), c.title(), c.alt());
  legend(svg, {{{"accent2", "entering"}, {"accent", "leaving"}}});
  std::vector<double> all = in;
  all.insert(all.end(), out.begin(), out.end());
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto& [kind, norms] = kinds[k];
    const double left = k % 2 == 0 ? kLeft : kLeft + kPanelWidth + 80, top = 50 + kPanel * std::floor(static_cast<double>(k) / 2);
    const SvgScale across = scale_over(counted(std::max<size_t>(2, norms.size())), left, left + kPanelWidth),
                   up = scale_over(all, top + kPanel - 70, top, true);
    svg.text(left, top - 6, kind + ", RMS (log)", Anchor::start, "muted");
    svg.y_axis(up, left, "", left + kPanelWidth);
    svg.x_axis(across, top + kPanel - 70, norms.size() > 1 ? "layer" : "");
    std::vector<double> entering, leaving;
    for (size_t n = 0; n < norms.size(); ++n) {
      const size_t i = norms[n];
      const std::string name = c.picture.at("norms").at(i);
      entering.push_back(in[i]);
      leaving.push_back(out[i]);
      if (!(in[i] > 0) || !(out[i] > 0)) continue;
      svg.circle(across.at(static_cast<double>(n)), up.at(in[i]), 3, "accent2", name + ", entering: " + short_number(in[i]));
      svg.circle(across.at(static_cast<double>(n)), up.at(out[i]), 3, "accent", name + ", leaving: " + short_number(out[i]));
    }
    curve(svg, across, up, counted(norms.size()), entering, "accent2");
    curve(svg, across, up, counted(norms.size()), leaving, "accent");
  }
  return svg;
}

Svg svg_of_final_norm(const PictureView& c) {
  const std::vector<double> before = number_list(c.picture.at("before")), after = number_list(c.picture.at("after"));
  const size_t shown = std::min<size_t>(before.size(), 48);
  Svg svg(kWidth, 50 + 20 * static_cast<double>(shown), c.title(), c.alt());
  svg.text(150, 24, "before", Anchor::start, "muted");
  svg.text(410, 24, "after", Anchor::start, "muted");
  const SvgScale left = scale_over(before, 150, 340, false, true), right = scale_over(after, 410, 600, false, true);
  for (size_t i = 0; i < shown; ++i) {
    const double y = 32 + 20 * static_cast<double>(i);
    svg.text(140, y + 12, c.token_at(i), Anchor::end);
    svg.rect(150, y + 3, left.at(before[i]) - 150, 12, "accent2");
    svg.text(left.at(before[i]) + 5, y + 13, short_number(before[i]), Anchor::start, "muted", 11);
    svg.rect(410, y + 3, right.at(after[i]) - 410, 12, "accent");
    svg.text(std::min(right.at(after[i]) + 5, 600.0), y + 13, short_number(after[i]), Anchor::start, "muted", 11);
  }
  return svg;
}

Svg svg_of_rope_wavelengths(const PictureView& c) {
  Svg svg(kWidth, kHeight, c.title(), c.alt());
  const std::vector<double> wavelengths = number_list(c.picture.at("wavelengths")), x = counted(wavelengths.size());
  std::vector<double> all = wavelengths;
  const double context = c.picture.at("contextLength");
  if (context > 0) all.push_back(context);
  const SvgScale across = scale_over(x, kLeft, kRight), up = scale_over(all, kBottom, kTop, true);
  svg.y_axis(up, kLeft, "wavelength in tokens (log)", kRight);
  svg.x_axis(across, kBottom, "pair of components");
  curve(svg, across, up, x, wavelengths, "accent", 2);
  for (size_t i = 0; i < x.size(); ++i)
    svg.circle(across.at(x[i]), up.at(wavelengths[i]), 2, "accent", fmt::format("pair {}: {}", i, short_number(wavelengths[i])));
  if (context > 0) {
    svg.line(kLeft, up.at(context), kRight, up.at(context), "accent2");
    svg.text(kLeft + 8, up.at(context) - 5, "context, " + plural(static_cast<int64_t>(context), "token"));
  }
  return svg;
}

Svg svg_of_activation_curves(const PictureView& c) {
  Svg svg(kWidth, kHeight, c.title(), c.alt());
  const std::vector<double> x = number_list(c.picture.at("x"));
  const SvgScale across{-2, 2, kLeft, kRight}, up{-0.5, 2, kBottom, kTop};
  svg.y_axis(up, kLeft, "f(x)", kRight);
  svg.x_axis(across, kBottom, "x");
  struct Named {
    const char *key, *label, *color;
  };
  double row = 60;
  for (const Named& f : {Named{"relu", "ReLU", "muted"}, Named{"silu", "SiLU", "accent2"},
                         Named{"geluExact", "GELU (exact and tanh form)", "accent"}, Named{"geluTanh", "", "accent"}}) {
    curve(svg, across, up, x, number_list(c.picture.at(f.key)), f.color, 2);
    if (f.label[0] == '\0') continue;
    svg.line(kLeft + 20, row - 4, kLeft + 40, row - 4, f.color, 2);
    svg.text(kLeft + 46, row, f.label);
    row += 18;
  }
  return svg;
}

Svg svg_of_soft_cap(const PictureView& c) {
  const PictureJson& attention = c.picture.at("attention");
  const size_t layers = attention.is_null() ? 0 : attention.at("changed").size(),
               heads = layers == 0 ? 0 : attention.at("changed")[0].size();
  Svg svg(kWidth, kHeight + (layers > 0 ? 80 + 14 * static_cast<double>(heads) : 0), c.title(), c.alt());
  const std::vector<double> x = number_list(c.picture.at("curve").at("x")), y = number_list(c.picture.at("curve").at("y"));
  const SvgScale across{-4, 4, kLeft, kRight}, up{-1.2, 1.2, kBottom, kTop};
  svg.y_axis(up, kLeft, "capped score / cap", kRight);
  svg.x_axis(across, kBottom, "score / cap");
  svg.path({{across.at(-1.2), up.at(-1.2)}, {across.at(1.2), up.at(1.2)}}, "faint", 1.5);
  curve(svg, across, up, x, y, "accent", 2);
  if (layers == 0) return svg;
  svg.text(kLeft, kHeight + 22, "Share of scores that the cap changes by more than 1 %: heads down, layers across", Anchor::start,
           "muted");
  const double cell = std::min(28.0, 540.0 / static_cast<double>(layers));
  const auto share = [&](size_t h, size_t l) { return attention.at("changed")[l][h].get<double>(); };
  svg.heat(kLeft, kHeight + 32, cell, 14, heads, layers, false, share, [&](size_t h, size_t l) {
    return fmt::format("layer {} head {}: {:.2f} %, largest {}", l, h, 100 * share(h, l),
                       at_least(short_number(attention.at("largest")[l][h]), attention.at("largest")[l][h], attention.at("cap")));
  });
  svg.legend(kLeft, kHeight + 40 + 14 * static_cast<double>(heads), "0", "all", false);
  return svg;
}

Svg svg_of_embedding_neighbors(const PictureView& c) {
  const PictureJson& neighbors = c.picture.at("neighbors");
  Svg svg(kWidth, 50 + 20 * static_cast<double>(neighbors.size()), c.title(), c.alt());
  std::string sum;
  for (const PictureJson& term : c.picture.at("terms"))
    sum += (sum.empty() && term.at("sign") == 1 ? "" : term.at("sign") == 1 ? " + " : " − ") + c.spelling(term.at("id"));
  svg.text(20, 20, sum, Anchor::start, "muted");
  std::vector<std::string> labels;
  std::vector<double> values;
  for (const PictureJson& n : neighbors) {
    labels.push_back(c.spelling(n.at("id")) + (n.at("term").get<bool>() ? " (in the sum)" : ""));
    values.push_back(n.at("cosine"));
  }
  bars(svg, 32, labels, values);
  return svg;
}

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
  int64_t receives = context - 1;
  for (size_t l = 0; l < layers.size(); ++l) {
    const double y = 30 + 16 * static_cast<double>(l);
    const int64_t window = layers[l].at("window"), sees = window == 0 ? 0 : std::max<int64_t>(0, context - window);
    receives = window == 0 ? 0 : std::max<int64_t>(0, receives - window + 1);
    svg.text(132, y + 11, window == 0 ? fmt::format("layer {} global", l) : fmt::format("layer {} window {}", l, window),
             Anchor::end, "ink", 11);
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

Svg svg_of_gradient_norms(const PictureView& c) {
  const PictureJson& parameters = c.picture.at("parameters");
  Svg svg(kWidth, kHeight * (parameters.is_null() ? 1 : 2), c.title(), c.alt());
  struct Line {
    std::vector<double> values;
    const char *color, *name;
  };
  // Lines over the layers, their names at their ends.
  const auto panel = [&](double down, const std::vector<Line>& lines, const char* left, const char* below) {
    std::vector<double> all;
    for (const Line& line : lines) all.insert(all.end(), line.values.begin(), line.values.end());
    const std::vector<double> x = counted(lines.front().values.size());
    const SvgScale across = scale_over(x, kLeft, kRight - 90), up = scale_over(all, kBottom + down, kTop + down, true);
    svg.y_axis(up, kLeft, left, kRight - 90);
    svg.x_axis(across, kBottom + down, below);
    double taken = std::nan("");  // by the name before
    for (const Line& line : lines) {
      curve(svg, across, up, x, line.values, line.color, 2);
      for (size_t i = 0; i < x.size(); ++i)
        if (std::isfinite(line.values[i]) && line.values[i] > 0)
          svg.circle(across.at(x[i]), up.at(line.values[i]), 2.5, line.color,
                     fmt::format("{} {}: {}", line.name, i, short_number(line.values[i])));
      if (!std::isfinite(line.values.back()) || line.values.back() <= 0) continue;
      double y = up.at(line.values.back()) + 4;
      if (std::abs(y - taken) < 14) y = y < taken ? taken - 14 : taken + 14;
      svg.text(kRight - 84, y, line.name);
      taken = y;
    }
  };
  std::vector<Line> stream = {{number_list(c.picture.at("norms")), "accent", "with norms"}};
  if (!c.picture.at("withoutNorms").is_null())
    stream.push_back({number_list(c.picture.at("withoutNorms")), "accent2", "without norms"});
  panel(0, stream, "|gradient| at the stream (log)", "layer that the stream enters");
  if (!parameters.is_null())
    panel(
        kHeight,
        {{number_list(parameters.at("attention")), "accent", "attention"}, {number_list(parameters.at("mlp")), "accent2", "MLP"}},
        "|gradient| of the parameters (log)", "layer");
  return svg;
}

Svg svg_of_gradient_hooks(const PictureView& c) {
  constexpr const char* kShown = "blocks.*.hook_resid_pre";
  const PictureJson* norms = nullptr;
  for (const PictureJson& hook : c.picture.at("hooks"))
    if (hook.at("hook") == kShown) norms = &hook.at("norms");
  const auto layers = norms->at("shape")[0].get<size_t>(), shown = norms->at("shape")[1].get<size_t>();
  const auto first = c.picture.at("first").get<size_t>();
  const std::vector<double> cells = unpacked(*norms);
  const double most = std::max(*std::max_element(cells.begin(), cells.end()), 1e-30);
  const double high = 16, wide = std::min(40.0, (kRight - kLeft) / static_cast<double>(shown));
  Svg svg(kWidth, 110 + high * static_cast<double>(layers), c.title(), c.alt());
  svg.text(kLeft, 22, fmt::format("|gradient| at {}: layers down, tokens across", kShown), Anchor::start, "muted");
  for (size_t l = 0; l < layers; ++l)
    svg.text(kLeft - 8, 32 + high * static_cast<double>(l) + 12, fmt::format("layer {}", l), Anchor::end, "ink", 11);
  svg.heat(
      kLeft, 32, wide, high, layers, shown, false,
      [&](size_t l, size_t t) { return std::isfinite(cells[l * shown + t]) ? cells[l * shown + t] / most : 0; },
      [&](size_t l, size_t t) {
        return fmt::format("layer {}, position {} {}: {}", l, first + t, c.token_at(first + t),
                           short_number(cells[l * shown + t]));
      });
  const double end = 32 + high * static_cast<double>(layers);
  svg.text(kLeft, end + 18, fmt::format("position {}", first), Anchor::start, "muted", 11);
  if (shown > 6)
    svg.text(kLeft + wide * static_cast<double>(shown), end + 18, std::to_string(first + shown - 1), Anchor::end, "muted", 11);
  svg.legend(kLeft, end + 34, "0", short_number(most), false);
  return svg;
}

Svg svg_of_input_attribution(const PictureView& c) {
  struct Column {
    std::vector<double> values;
    const char* name;
    double from, to;
  };
  const PictureJson& integrated = c.picture.at("integrated");
  std::vector<Column> columns = {{number_list(c.picture.at("saliency")), "saliency", 140, 230},
                                 {number_list(c.picture.at("gradientInput")), "gradient · embedding", 305, 400}};
  if (!integrated.is_null()) columns.push_back({number_list(integrated.at("parts")), "integrated", 475, 570});
  const size_t n = columns.front().values.size(), shown = std::min<size_t>(n, 48);
  Svg svg(kWidth, 50 + 20 * static_cast<double>(shown), c.title(), c.alt());
  for (const Column& column : columns) {
    svg.text(column.from, 24, column.name, Anchor::start, "muted");
    const SvgScale x = scale_over(column.values, column.from, column.to, false, true);
    for (size_t i = n - shown; i < n; ++i) {
      const double y = 32 + 20 * static_cast<double>(i - (n - shown)), zero = x.at(0), end = x.at(column.values[i]);
      svg.rect(std::min(zero, end), y + 3, std::abs(end - zero), 12, column.values[i] < 0 ? "accent2" : "accent");
      svg.text(std::max(zero, end) + 5, y + 13, short_number(column.values[i]), Anchor::start, "muted", 11);
    }
  }
  for (size_t i = n - shown; i < n; ++i)
    svg.text(130, 44 + 20 * static_cast<double>(i - (n - shown)), c.token_at(i), Anchor::end);
  return svg;
}

}  // namespace vitrine
