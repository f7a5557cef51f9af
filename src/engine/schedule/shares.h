#pragma once
// Owners share the time of steps: one with many streams sits out while another is behind.
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

class Shares {
 public:
  /// Those who have streams now. Others are forgotten; who comes begins with what the owner has that had least.
  void keep(std::vector<std::string_view> owners) {
    std::ranges::sort(owners);
    double least = 0;
    if (!seconds_.empty()) least = std::ranges::min_element(seconds_, {}, [](const auto& had) { return had.second; })->second;
    std::erase_if(seconds_, [&](const auto& had) { return !std::ranges::binary_search(owners, had.first); });
    for (const std::string_view owner : owners)
      if (!seconds_.contains(owner)) seconds_.emplace(owner, least);
  }
  /// Whether it takes part in the next step. One of keep() always does.
  bool may_run(const std::string& owner) const {
    if (seconds_.size() < 2) return true;
    const double least = std::ranges::min_element(seconds_, {}, [](const auto& had) { return had.second; })->second;
    return seconds_.at(owner) <= least + kAhead;
  }
  void had(const std::string& owner, double seconds) { seconds_[owner] += seconds; }

 private:
  static constexpr double kAhead = 0.01;                // seconds
  std::map<std::string, double, std::less<>> seconds_;  // of steps, since it began
};

}  // namespace vitrine
