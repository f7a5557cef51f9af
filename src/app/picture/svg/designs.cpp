// Drawings of designs: models side by side to one scale, and ways to share keys and values.
#include <fmt/format.h>

#include <algorithm>

#include "base/plural.h"
#include "picture/svg/drawings.h"

namespace vitrine {
namespace {

constexpr double kDesignsWidth = 640, kTallest = 230;

// "1.07e+09" as "1.1 billion".
std::string in_words(double n) {
  if (n >= 1e9) return fmt::format("{:.1f} billion", n / 1e9);
  if (n >= 1e6) return fmt::format("{:.1f} million", n / 1e6);
  return fmt::format("{:.0f}", n);
}

}  // namespace

Svg svg_of_designs(const PictureView& c) {
  const PictureJson& designs = c.picture.at("designs");
  double wide = 0, tall = 0;
  for (const PictureJson& d : designs) {
    wide += d.at("dModel").get<double>();
    tall = std::max(tall,
                    d.at("layers").get<double>() + d.at("embeddingInLayers").get<double>() + d.at("headInLayers").get<double>());
  }
  const double gap = 10, across = (kDesignsWidth - 40 - gap * static_cast<double>(designs.size())) / wide, up = kTallest / tall;
  const double bottom = 40 + kTallest;
  Svg svg(kDesignsWidth, bottom + 190, c.title(), c.alt());
  svg.rect(20, 14, 12, 10, "accent");
  svg.text(38, 23, "attention");
  svg.rect(110, 14, 12, 10, "accent2");
  svg.text(128, 23, "MLP");
  svg.rect(176, 14, 12, 10, "faint");
  svg.text(194, 23, "embedding, head");
  svg.rect(310, 14, 12, 10, "s6");
  svg.text(328, 23, "attention within a window");
  svg.rect(496, 14, 12, 10, "muted");
  svg.text(514, 23, "recurrence");
  double x = 20;
  for (const PictureJson& d : designs) {
    const double w = std::max(1.5, d.at("dModel").get<double>() * across), attention = w * d.at("attentionShare").get<double>();
    const std::string title = d.at("title");
    double y = bottom;
    const auto slab = [&](const char* part, double layers) {
      if (layers <= 0) return;
      const double high = layers * up;
      y -= high;
      svg.rect(x, y, w, high, "faint",
               fmt::format("{}: {} {} parameters", title, part, in_words(d.at("parameters").at(part).get<double>())));
    };
    slab("embedding", d.at("embeddingInLayers"));
    for (size_t layer = 0; layer < d.at("windows").size(); ++layer) {
      const PictureJson& window = d.at("windows")[layer];
      const bool recurrent = window.is_null(), local = !recurrent && window.get<int64_t>() > 0;
      const double high = std::max(0.4, up * 0.82);
      y -= up;
      const std::string hint = fmt::format("{}, layer {}: {}", title, layer,
                                           recurrent ? "a recurrence or convolution"
                                           : local   ? fmt::format("sees {}", plural(window.get<int64_t>(), "position"))
                                                     : "sees all that came before");
      svg.rect(x, y, attention, high, recurrent ? "muted" : local ? "s6" : "accent", hint);
      svg.rect(x + attention, y, w - attention, high, "accent2", hint);
    }
    slab("head", d.at("headInLayers"));
    svg.text_up(x + std::max(w / 2, 4.0) + 4, bottom + 8,
                fmt::format("{}: {}", title, in_words(d.at("parameters").at("total").get<double>())), "ink", Anchor::end, 11);
    x += w + gap;
  }
  svg.line(16, bottom + 1, kDesignsWidth - 16, bottom + 1, "muted");
  return svg;
}

Svg svg_of_head_sharing(const PictureView& c) {
  const PictureJson& kinds = c.picture.at("kinds");
  constexpr double kHigh = 120, kLeft = 20, kHeads = 400, kBar = 450;
  Svg svg(kDesignsWidth, 16 + kHigh * static_cast<double>(kinds.size()), c.title(), c.alt());
  double most = 0;
  for (const PictureJson& kind : kinds) most = std::max(most, kind.at("bytes").get<double>());
  double y = 10;
  for (const PictureJson& kind : kinds) {
    const auto heads = kind.at("heads").get<int64_t>(), groups = kind.at("kvHeads").get<int64_t>(), each = heads / groups;
    const double step = std::min(30.0, kHeads / static_cast<double>(heads)), size = step * 0.7;
    svg.text(kLeft, y + 14,
             fmt::format("{}: {}, {}", kind.at("title").get<std::string>(), plural(heads, "query head"),
                         plural(groups, "key and value head")));
    for (int64_t g = 0; g < groups; ++g) {
      const double middle = kLeft + step * (static_cast<double>(g * each) + static_cast<double>(each) / 2);
      for (int64_t h = g * each; h < (g + 1) * each; ++h) {
        const double at = kLeft + step * (static_cast<double>(h) + 0.5);
        svg.line(at, y + 26 + size, middle, y + 72, "faint");
        svg.rect(at - size / 2, y + 26, size, size, "accent", fmt::format("query head {} reads key head {}", h, g));
      }
      svg.rect(middle - size / 2, y + 72, size, size, "accent2", fmt::format("key and value head {}", g));
    }
    const double bytes = kind.at("bytes");
    svg.rect(kBar, y + 40, std::max(1.0, bytes / most * (kDesignsWidth - kBar - 20)), 14, "accent2",
             fmt::format("{} bytes", kind.at("bytes").get<int64_t>()));
    svg.text(kBar, y + 72, fmt::format("{:.4g} MiB of cache", bytes / 1048576), Anchor::start, "muted", 11);
    y += kHigh;
  }
  return svg;
}

}  // namespace vitrine
