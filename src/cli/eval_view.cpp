#include "cli/eval_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plural.h"
#include "cli/heat_map.h"
#include "cli/output.h"
#include "cli/session.h"
#include "picture/page/text_page.h"
#include "picture/svg/front.h"

namespace vitrine::cli {
namespace {

constexpr double kFullLoss = 10, kFullDifference = 4;  // nats that take the full colour
constexpr size_t kMostOnPage = 50000;                  // spans of a passage: a page of some MB

// A span of the text with what is shown of it. share: positive is surprising, or surprises the second model more.
struct ShownSpan {
  std::string text, number;
  double share = 0;
};

ShownSpan shown_loss(std::string_view text, const LossSpan& span) {
  const std::string words(text.substr(span.begin, span.end - span.begin));
  if (std::isnan(span.nll)) return {words, "not scored", span.nll};
  return {words, fmt::format("-ln p {:.2f}, p {}", span.nll, percent(std::exp(-span.nll))), span.nll / kFullLoss};
}

std::vector<ShownSpan> shown_losses(const PerplexityResult& result, size_t t, std::string_view text) {
  std::vector<ShownSpan> shown;
  for (const LossSpan& span : spans_of(result.texts[t], text)) shown.push_back(shown_loss(text, span));
  return shown;
}

std::vector<ShownSpan> shown_differences(const EvalView& view, size_t t) {
  const std::string& text = view.texts[t];
  const std::vector<LossSpan> of_a = spans_of(view.result.texts[t], text), of_b = spans_of(view.second->texts[t], text);
  std::vector<ShownSpan> shown;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const double difference = of_b[i].nll - of_a[i].nll;
    ShownSpan& span = shown.emplace_back(shown_loss(text, of_a[i]));
    span.share = difference / kFullDifference;
    if (!std::isnan(difference)) span.number = fmt::format("-ln p {:.2f} against {:.2f}", of_a[i].nll, of_b[i].nll);
  }
  return shown;
}

bool same_tokens(const EvalView& view) { return view.second != nullptr && difference_of(view.result, *view.second).has_value(); }

void print_spans(const std::vector<ShownSpan>& spans) {
  for (const ShownSpan& span : spans) {
    if (!terminal().colours) {
      print("{}  {}\n", pad_right(visible(span.text), 20), span.number);
    } else if (const size_t end = span.text.find('\n'); end == std::string::npos) {
      print("{}", std::isnan(span.share) ? dim(visible(span.text)) : coloured(visible(span.text), -span.share));
    } else {  // the colour ends with the line
      const std::string shown = span.text.substr(0, end) + "⏎";
      print("{}{}", std::isnan(span.share) ? dim(shown) : coloured(shown, -span.share), span.text.substr(end));
    }
  }
  print("\n\n");
}

ColouredPage::Passage passage_of(std::string heading, const std::vector<ShownSpan>& spans) {
  ColouredPage::Passage passage{std::move(heading), {}};
  for (const ShownSpan& span : spans) {
    if (passage.pieces.size() == kMostOnPage) {
      passage.heading += fmt::format(" (the first {} tokens)", grouped(static_cast<int64_t>(kMostOnPage)));
      break;
    }
    passage.pieces.push_back({span.text, span.share, span.number});
  }
  return passage;
}

FrontChart::Curve curve_of(const std::string& name, const std::vector<LossBucket>& buckets) {
  FrontChart::Curve curve{name, {}};
  for (const LossBucket& b : buckets)
    curve.points.push_back({b.from == 0 ? 0.5 : std::sqrt(static_cast<double>(b.from) * static_cast<double>(b.to)), b.nll,
                            fmt::format("{} to {}: {:.3f}, {}", b.from, b.to, b.nll, plural(b.tokens, "token"))});
  return curve;
}

ColouredPage::Chart chart_of(const EvalView& view, const std::string& title, const std::string& x_label,
                             std::vector<LossBucket> PerplexityResult::* buckets) {
  FrontChart chart;
  chart.title = title;
  chart.description = "Mean of -ln p of the tokens, in ranges that double";
  chart.x_label = x_label;
  chart.y_label = "-ln p";
  chart.log_x = true;
  chart.curves.push_back(curve_of(view.engine.name(), view.result.*buckets));
  if (view.second != nullptr) chart.curves.push_back(curve_of(view.other->name(), view.second->*buckets));
  std::string alt = title + ":";
  for (const LossBucket& b : view.result.*buckets) alt += fmt::format(" {} to {}: {:.3f};", b.from, b.to, b.nll);
  return {front_svg(chart), alt};
}

std::string facts_of(const Engine& engine, const PerplexityResult& r) {
  return fmt::format("{}: perplexity {:.4f} ± {:.2g}, {:.4f} nats a token, {:.4f} bits a byte; {} scored, {}.", engine.name(),
                     r.perplexity, r.perplexity_error, r.nll, r.bits_per_byte, plural(grouped(r.tokens), "token"),
                     plural(grouped(r.bytes), "byte"));
}

}  // namespace

void print_tokens(const EvalView& view) {
  const bool difference = same_tokens(view);
  for (size_t t = 0; t < view.texts.size(); ++t)
    print_spans(difference ? shown_differences(view, t) : shown_losses(view.result, t, view.texts[t]));
}

std::string eval_page(const EvalView& view) {
  ColouredPage page;
  page.title = "How well a text is predicted";
  page.lines = {facts_of(view.engine, view.result)};
  if (view.second != nullptr) page.lines.push_back(facts_of(*view.other, *view.second));
  page.lines.push_back(view.result.definition.text(view.engine));
  page.none = "expected";
  page.high = fmt::format("surprising: -ln p {} and more", kFullLoss);
  const bool difference = same_tokens(view);
  if (difference) page.low = "second model is better, where both are compared";
  for (size_t t = 0; t < view.texts.size(); ++t) {
    const std::string number = view.texts.size() > 1 ? fmt::format("text {}: ", t + 1) : "";
    if (difference)
      page.passages.push_back(passage_of(number + "second model against first (orange: worse)", shown_differences(view, t)));
    page.passages.push_back(passage_of(number + view.engine.name(), shown_losses(view.result, t, view.texts[t])));
    if (view.second != nullptr)
      page.passages.push_back(passage_of(number + view.other->name(), shown_losses(*view.second, t, view.texts[t])));
  }
  page.charts.push_back(chart_of(view, "By position in the window", "tokens in front", &PerplexityResult::by_position));
  page.charts.push_back(chart_of(view, "By frequency", "occurrences of the token in the text", &PerplexityResult::by_frequency));
  return coloured_text_page(page);
}

}  // namespace vitrine::cli
