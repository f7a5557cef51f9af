#include "ops/region.h"

namespace vitrine {

TaskCost operator+(const TaskCost& a, const TaskCost& b) {
  return {a.data, a.bytes + b.bytes, a.multiply_adds + b.multiply_adds, a.elements + b.elements};
}

TaskCost operator*(int64_t times, const TaskCost& cost) {
  return {cost.data, times * cost.bytes, times * cost.multiply_adds, times * cost.elements};
}

void RegionRecord::add(const TaskCost& task) {
  if (!runs.empty()) {
    Run& last = runs.back();
    const TaskCost& each = last.each;
    const std::byte* const next = each.data == nullptr ? nullptr : each.data + last.tasks * each.bytes;
    if (task.data == next && task.bytes == each.bytes && task.multiply_adds == each.multiply_adds &&
        task.elements == each.elements) {
      ++last.tasks;
      return;
    }
  }
  runs.push_back({1, task});
}

int64_t RegionRecord::tasks() const {
  int64_t all = 0;
  for (const Run& run : runs) all += run.tasks;
  return all;
}

TaskCost RegionRecord::total() const {
  TaskCost all;
  for (const Run& run : runs) all = all + run.tasks * run.each;
  return all;
}

std::vector<TaskCost> RegionRecord::by_thread(int threads) const {
  std::vector<TaskCost> shares(static_cast<size_t>(threads));
  each_part(threads, [&](int thread, const Run& run, int64_t, int64_t n) {
    TaskCost& share = shares[static_cast<size_t>(thread)];
    share = share + n * run.each;
  });
  return shares;
}

}  // namespace vitrine
