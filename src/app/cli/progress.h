#pragma once
// How far a long run is, on stderr: a bar that is drawn again and again on a terminal, now and then a line elsewhere.
#include <chrono>
#include <string>

namespace vitrine::cli {

class Progress {
 public:
  /// what: "tokenizing". Nothing is written before show().
  explicit Progress(std::string what);
  ~Progress();  // takes the bar away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// share: of the work that is done, 0 to 1; with the time since the first call it gives the time left. detail: "81,000
  /// tokens/s". Writes at most ten times a second on a terminal, elsewhere every ten seconds.
  void show(double share, const std::string& detail);

  /// The run begins now, with a share that a run before has done.
  void begin(double share);

  double seconds() const;  // since the beginning

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  bool terminal_, drawn_ = false;
  double begin_share_ = 0;
  Clock::time_point begin_, last_;
};

/// "45 s", "12 min", "3.5 h".
std::string duration_text(double seconds);

}  // namespace vitrine::cli
