#pragma once
#include <cstdint>
#include <string>

#include "base/error.h"

namespace vitrine {

/// Steps of an analysis whose worst cases are far too long.
class StepBudget {
 public:
  StepBudget(uint64_t steps, std::string source) : left_(steps), source_(std::move(source)) {}
  /// Errors: InputError where no steps are left.
  void spend(uint64_t steps = 1) {
    if (steps > left_) throw InputError(source_ + ": is too large or too ambiguous a grammar to be analyzed");
    left_ -= steps;
  }

 private:
  uint64_t left_;
  std::string source_;
};

}  // namespace vitrine
