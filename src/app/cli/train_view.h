#pragma once
// What a run of `vitrine train` shows on standard error while it goes: on a terminal a few lines drawn again in place, with
// curves of loss, learning rate and gradient norm; elsewhere, and where NO_COLOR or TERM=dumb asks for it, a plain line now
// and then.
#include <chrono>
#include <string>
#include <vector>

#include "train/train.h"

namespace vitrine::cli {

class TrainView {
 public:
  explicit TrainView(int64_t steps);
  ~TrainView() { clear(); }
  TrainView(const TrainView&) = delete;
  TrainView& operator=(const TrainView&) = delete;

  void step(const StepReport& report, const TrainEvents::Rate& rate);
  void evaluated(int64_t step, double loss);
  /// Whether standard error is a terminal that may be drawn on.
  bool live() const { return live_; }
  /// Takes the drawing away, before anything else is written.
  void clear();

 private:
  // A curve of bounded length: when it is full, neighbors are joined, and from then on more steps share a point.
  struct History {
    static constexpr size_t kMost = 1024;
    std::vector<double> x, y;
    int64_t per_point = 1, waiting = 0;
    double sum_x = 0, sum_y = 0;
    void add(double at, double value);
  };
  void draw(const StepReport& report, const TrainEvents::Rate& rate);

  int64_t steps_;
  bool live_, shown_ = false;
  int drawn_ = 0;  // lines that stand on the terminal
  std::chrono::steady_clock::time_point last_;
  History loss_, validation_, rate_, norm_;
};

}  // namespace vitrine::cli
