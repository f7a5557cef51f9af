#include "cli/train_view.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "cli/braille_chart.h"
#include "cli/output.h"
#include "cli/progress.h"

namespace vitrine::cli {
namespace {

constexpr const char kTrain[] = "36", kValidation[] = "33";
constexpr int kLabel = 15, kNarrowest = 40;  // columns: of the labels before the curves; of a window that curves fit into

bool plain_wanted() {
  const char *no_color = std::getenv("NO_COLOR"), *term = std::getenv("TERM");
  return (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
}

// Asked before each drawing: windows change.
struct Window {
  int columns = 80, rows = 24;
};
Window window() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {size.ws_col, size.ws_row > 0 ? size.ws_row : 24};
}

// The loss, with its parts where it has some.
std::string losses(const StepReport& report) {
  std::string text = fmt::format("loss {:.4f}", report.loss);
  if (report.reward) text += fmt::format("  reward {:.4f}", *report.reward);
  if (report.cross_entropy) text += fmt::format("  ce {:.4f}", *report.cross_entropy);
  for (const double divergence : report.divergences) text += fmt::format("  divergence {:.4f}", divergence);
  return text;
}

std::string peak_text(const TrainEvents::Rate& rate) {
  return rate.peak_share ? fmt::format("{} of peak", percent(*rate.peak_share)) : "peak not known";
}

}  // namespace

void TrainView::History::add(double at, double value) {
  if (!std::isfinite(value)) return;
  sum_x += at;
  sum_y += value;
  if (++waiting < per_point) return;
  x.push_back(sum_x / static_cast<double>(per_point));
  y.push_back(sum_y / static_cast<double>(per_point));
  sum_x = sum_y = 0;
  waiting = 0;
  if (x.size() < kMost) return;
  for (size_t i = 0; i < kMost / 2; ++i) {
    x[i] = (x[2 * i] + x[2 * i + 1]) / 2;
    y[i] = (y[2 * i] + y[2 * i + 1]) / 2;
  }
  x.resize(kMost / 2);
  y.resize(kMost / 2);
  per_point *= 2;
}

TrainView::TrainView(int64_t steps) : steps_(steps), live_(::isatty(STDERR_FILENO) == 1 && !plain_wanted()) {}

void TrainView::step(const StepReport& report, const TrainEvents::Rate& rate) {
  const auto at = static_cast<double>(report.step);
  loss_.add(at, report.loss);
  rate_.add(at, report.lr);
  norm_.add(at, report.gradient_norm);
  const auto now = std::chrono::steady_clock::now();
  const auto pause = std::chrono::milliseconds(live_ ? 200 : 10'000);
  if (report.step != steps_ && shown_ && now - last_ < pause) return;
  last_ = now;
  shown_ = true;
  if (live_) return draw(report, rate);
  log("step {}/{}  {}  lr {:.2e}  norm {:.3g}  {} tokens/s  {}  {} left", report.step, steps_, losses(report), report.lr,
      report.gradient_norm, grouped(static_cast<int64_t>(rate.tokens_per_s)), peak_text(rate), duration_text(rate.seconds_left));
}

void TrainView::evaluated(int64_t step, double loss) { validation_.add(static_cast<double>(step), loss); }

void TrainView::clear() {
  if (drawn_ > 0) write_err(fmt::format("\r{}\x1b[J", drawn_ > 1 ? fmt::format("\x1b[{}A", drawn_ - 1) : ""));
  drawn_ = 0;
}

void TrainView::draw(const StepReport& report, const TrainEvents::Rate& rate) {
  const Window size = window();
  std::vector<std::string> lines;
  // Words go, from the end, where the window is too narrow for all.
  std::string head = fmt::format("step {}/{}", report.step, steps_);
  for (const std::string& word : {fmt::format("{} left", duration_text(rate.seconds_left)), losses(report),
                                  fmt::format("{} tokens/s", grouped(static_cast<int64_t>(rate.tokens_per_s))), peak_text(rate),
                                  fmt::format("lr {:.2e}", report.lr), fmt::format("norm {:.3g}", report.gradient_norm)})
    if (width_of(head) + 2 + width_of(word) < size.columns) head += "  " + word;
  const int room = size.columns - 2 - width_of(head);
  if (room >= 10) {
    const int cells = std::min(room, 24);
    head = pad_right(bar(static_cast<double>(report.step) / static_cast<double>(steps_), cells), cells) + " " + head;
  }
  lines.push_back(head);

  const int columns = std::min(size.columns - kLabel - 1, 120), tall = size.rows >= 16 ? 5 : 3, low = 2;
  if (size.columns >= kNarrowest && size.rows >= tall + 2 * low + 3) {
    const auto add = [&](const char* name, std::vector<ChartCurve> curves, int rows, bool logarithmic) {
      const Chart chart = braille_chart(curves, 1, std::max(2.0, static_cast<double>(report.step)), columns, rows, logarithmic);
      for (size_t r = 0; r < chart.lines.size(); ++r) {
        const bool first = r == 0, last = r + 1 == chart.lines.size();
        const std::string end = first || last ? fmt::format("{:.3g}", first ? chart.high : chart.low) : "";
        lines.push_back(pad_right(first ? name : "", 5) + pad_left(end, kLabel - 6) + " " + chart.lines[r]);
      }
    };
    add("loss", {{loss_.x, loss_.y, kTrain}, {validation_.x, validation_.y, kValidation}}, tall, false);
    add("lr", {{rate_.x, rate_.y, kTrain}}, low, false);
    add("norm", {{norm_.x, norm_.y, kTrain}}, low, true);
  }
  clear();
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) text += (i > 0 ? "\n" : "") + lines[i];
  write_err(text);
  drawn_ = static_cast<int>(lines.size());
}

}  // namespace vitrine::cli
