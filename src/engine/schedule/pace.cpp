#include "schedule/pace.h"

#include <algorithm>

namespace vitrine {
namespace {

// A step that reads prompts alone delays those who come during it.
constexpr double kLongestAloneMs = 400;
constexpr int64_t kLeastAlone = 64, kLeastBeside = 4;
constexpr int64_t kOrdinaryEvery = 128;  // contexts grow, and with them what is ordinary

}  // namespace

std::optional<double> Pace::ordinary_ms(int64_t decoding) const {
  const auto above = ordinary_.lower_bound(decoding);
  const auto near = [&](int64_t n) { return 4 * n >= 3 * decoding && 3 * n <= 4 * decoding; };
  if (above != ordinary_.end() && (above->first == decoding || (above == ordinary_.begin() && near(above->first))))
    return above->second;
  if (above == ordinary_.begin()) return {};
  const auto below = std::prev(above);
  if (above != ordinary_.end() && above->first - decoding < decoding - below->first && near(above->first)) return above->second;
  if (near(below->first)) return below->second;
  return {};
}

int64_t Pace::prompt_rows(int64_t decoding) const {
  if (decoding == 0) {
    if (alone_ms_ == 0) return std::min(most_, kLeastAlone);
    return std::min(most_, std::max(kLeastAlone, static_cast<int64_t>(kLongestAloneMs / alone_ms_)));
  }
  if (fixed_ > 0) return std::min(fixed_, most_);
  if (!ordinary_ms(decoding) || since_ordinary_ >= kOrdinaryEvery) return 0;
  if (cost_ms_ == 0 && alone_ms_ > 0)  // the first time: they cost no more beside others than alone
    return std::clamp(static_cast<int64_t>((kStretch - 1) * *ordinary_ms(decoding) / alone_ms_), kLeastBeside, most_);
  return std::min(most_, static_cast<int64_t>(beside_));
}

void Pace::saw(int64_t decoding, int64_t prompt_rows, double ms) {
  const auto rows = static_cast<double>(prompt_rows);
  if (decoding == 0) {
    alone_ms_ = alone_ms_ == 0 ? ms / rows : 0.5 * (alone_ms_ + ms / rows);
    return;
  }
  if (prompt_rows == 0) {
    const auto [at, fresh] = ordinary_.try_emplace(decoding, ms);
    if (!fresh) at->second += 0.2 * (ms - at->second);
    since_ordinary_ = 0;
    return;
  }
  ++since_ordinary_;
  const std::optional<double> ordinary = ordinary_ms(decoding);
  if (!ordinary) return;
  // What a token costs besides, taken up faster than down: a step that is too long is noticed, one that is too short is not.
  const double cost = std::max(ms - *ordinary, 0.01 * *ordinary) / rows;
  cost_ms_ = cost_ms_ == 0 ? cost : cost_ms_ + (cost > cost_ms_ ? 0.5 : 0.2) * (cost - cost_ms_);
  const double fitting = (kStretch - 1) * *ordinary / cost_ms_;
  // Not much more than was tried: a few rows do not tell what many cost.
  beside_ = std::clamp(std::min(fitting, std::max(beside_, 1.3 * rows)), double{kLeastBeside}, static_cast<double>(most_));
}

}  // namespace vitrine
