#pragma once
// The learning rate over the steps of a run.
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace vitrine {

struct Schedule {
  enum class Decay : uint8_t { constant, linear, cosine, wsd };
  Decay decay = Decay::cosine;
  double peak = 1e-3, minimum = 0;
  int64_t warmup = 0;    // steps that rise to the peak
  int64_t length = 1;    // steps until the minimum: the first at this rate is the one after them
  int64_t cooldown = 0;  // wsd: the last steps before `length`, during which the rate falls
  int64_t cycles = 1;    // cosine, linear: falls of the same length, each of which begins at the peak

  /// The rate of the step after `done` steps: peak (done + 1) / (warmup + 1) while it rises; then from peak to minimum along
  /// half a cosine wave (arXiv:1608.03983, equation 5, with its restarts where there are cycles) or a line; the minimum from
  /// `length` on. wsd (warmup, stable, decay:
  /// arXiv:2404.06395, section 4) stays at the peak and falls along a line during the last `cooldown` steps alone.
  double at(int64_t done) const {
    constexpr double kPi = 3.141592653589793;
    if (done < warmup) return peak * static_cast<double>(done + 1) / static_cast<double>(warmup + 1);
    if (decay == Decay::constant) return peak;
    if (done >= length) return minimum;
    const int64_t begin = decay == Decay::wsd ? std::max(warmup, length - cooldown) : warmup;  // of the fall
    if (done < begin) return peak;
    const double share = static_cast<double>((done - begin) * cycles % (length - begin)) / static_cast<double>(length - begin);
    const double left = decay == Decay::cosine ? 0.5 * (1 + std::cos(kPi * share)) : 1 - share;
    return minimum + left * (peak - minimum);
  }
};

}  // namespace vitrine
