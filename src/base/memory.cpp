// How much memory is left, as Linux says it: /proc/meminfo of the machine and the limit of the container (cgroup v2).
#include "base/memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace vitrine {
namespace {

// The number in a file's line that begins with `key`; of a file that holds one number alone, `key` is empty.
std::optional<size_t> number_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    if (digit == std::string::npos) return {};  // "max"
    return std::stoull(line.substr(digit, 18));
  }
  return {};
}

// What the container may still take. Pages of mapped files count as used there, and can be dropped.
std::optional<size_t> left_in_container() {
  const std::optional<size_t> limit = number_in("/sys/fs/cgroup/memory.max", "");
  const std::optional<size_t> used = number_in("/sys/fs/cgroup/memory.current", "");
  if (!limit || !used) return {};
  const size_t droppable = number_in("/sys/fs/cgroup/memory.stat", "file ").value_or(0);
  const size_t held = *used - std::min(*used, droppable);
  return *limit - std::min(*limit, held);
}

}  // namespace

size_t available_memory() {
  const std::optional<size_t> machine_kib = number_in("/proc/meminfo", "MemAvailable:");
  if (!machine_kib) return 0;
  const size_t machine = *machine_kib * 1024;
  return std::min(machine, left_in_container().value_or(machine));
}

}  // namespace vitrine
