#pragma once
// How many prompt tokens a step may read, so that those who wait for their next token hardly notice.
#include <cstdint>
#include <map>
#include <optional>

namespace vitrine {

/// Learns from the times of steps what a step without prompts takes with so many streams, and keeps those with prompts below
/// about kStretch times that. Not thread-safe.
class Pace {
 public:
  /// A step beside streams that decode takes this many times as long as one without prompts, at most: measured, so within the
  /// machine's noise.
  static constexpr double kStretch = 2.2;

  /// fixed: prompt tokens beside streams that decode; 0: chosen. most: in a step.
  Pace(int64_t fixed, int64_t most) : fixed_(fixed), most_(most) {}

  /// Prompt tokens of a step with `decoding` streams that have a token each. 0: run one without prompts first, to know its time.
  int64_t prompt_rows(int64_t decoding) const;

  void saw(int64_t decoding, int64_t prompt_rows, double ms);

 private:
  std::optional<double> ordinary_ms(int64_t decoding) const;

  int64_t fixed_, most_;
  std::map<int64_t, double> ordinary_;  // milliseconds of a step without prompts, by its streams
  double beside_ = 4;                   // prompt tokens beside streams that decode
  double cost_ms_ = 0;                  // of a prompt token beside them, smoothed; 0: not known
  double alone_ms_ = 0;                 // of a prompt token in a step of nothing else; 0: not known
  int64_t since_ordinary_ = 0;          // steps with prompts beside streams since the last one without
};

}  // namespace vitrine
