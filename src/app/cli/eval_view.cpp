#include "cli/eval_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/plural.h"
#include "cli/heat_map.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/study.h"
#include "picture/data/study.h"

namespace vitrine::cli {
namespace {

constexpr double kFullLoss = 10, kFullDifference = 4;  // nats that take the full color

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
    if (!terminal().colors) {
      print("{}  {}\n", pad_right(visible(span.text), 20), span.number);
    } else if (const size_t end = span.text.find('\n'); end == std::string::npos) {
      print("{}", std::isnan(span.share) ? dim(visible(span.text)) : colored(visible(span.text), -span.share));
    } else {  // the color ends with the line
      const std::string shown = span.text.substr(0, end) + "⏎";
      print("{}{}", std::isnan(span.share) ? dim(shown) : colored(shown, -span.share), span.text.substr(end));
    }
  }
  print("\n\n");
}

std::string facts_of(const Engine& engine, const PerplexityResult& r) {
  return fmt::format("{}: perplexity {:.4g} ± {:.2g}, {:.4g} nats a token, {:.4g} bits a byte; {} scored, {}.",
                     short_name(engine.name()), r.perplexity, r.perplexity_error, r.nll, r.bits_per_byte,
                     plural(grouped(r.tokens), "token"), plural(grouped(r.bytes), "byte"));
}

LossesData::Run studied_losses(const Engine& engine, const std::vector<std::string>& texts, const PerplexityResult& result) {
  LossesData::Run losses{.engine = &engine, .name = short_name(engine.name()), .facts = {facts_of(engine, result)}};
  size_t shown = 0;
  for (size_t t = 0; t < texts.size(); ++t) {
    LossesData::Text& text = losses.texts.emplace_back();
    for (const LossSpan& span : spans_of(result.texts[t], texts[t])) {
      if (shown == kMostOnPage) {
        ++text.left_out;
        continue;
      }
      ++shown;
      text.words.push_back(texts[t].substr(span.begin, span.end - span.begin));
      text.nll.push_back(std::isnan(span.nll) ? std::nullopt : std::optional(span.nll));
      // Of several tokens that share a character, what stood in the place of the first.
      const bool kept = span.first < result.texts[t].likely.size();
      text.likely.push_back(kept ? likely_tokens(result.texts[t].likely[span.first]) : LikelyTokens());
    }
  }
  return losses;
}

CurvesData::Curve curve_of(const Engine& engine, const std::vector<LossBucket>& buckets) {
  CurvesData::Curve curve{short_name(engine.name()), {}};
  for (const LossBucket& b : buckets) curve.ranges.push_back({b.from, b.to, b.tokens, b.nll});
  return curve;
}

}  // namespace

void print_tokens(const EvalView& view) {
  const bool difference = same_tokens(view);
  for (size_t t = 0; t < view.texts.size(); ++t)
    print_spans(difference ? shown_differences(view, t) : shown_losses(view.result, t, view.texts[t]));
}

PictureJson eval_document(const EvalView& view, const std::string& command) {
  StudyHead head;
  head.kicker = "A text colored by its loss";
  head.title = "How well a text is predicted";
  head.lines = {view.result.definition.text(view.engine)};
  head.command = command;
  std::vector<LossesData::Run> runs = {studied_losses(view.engine, view.texts, view.result)};
  if (view.second != nullptr) runs.push_back(studied_losses(*view.other, view.texts, *view.second));
  const auto curves = [&](const std::string& title, const std::string& axis,
                          std::vector<LossBucket> PerplexityResult::* buckets) {
    CurvesData data{title, axis, {curve_of(view.engine, view.result.*buckets)}};
    if (view.second != nullptr) data.curves.push_back(curve_of(*view.other, view.second->*buckets));
    return data;
  };
  return study_document(view.engine, head,
                        {losses_section(runs, same_tokens(view)),
                         curves("By position in the window", "tokens in front", &PerplexityResult::by_position),
                         curves("By frequency", "occurrences of the token in the text", &PerplexityResult::by_frequency)});
}

}  // namespace vitrine::cli
