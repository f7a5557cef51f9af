// How much memory is left, as Linux says it: /proc/meminfo of the machine and the limits of the control groups that this process
// is in (a container's, a batch job's), versions 1 and 2.
#include "base/memory.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

namespace vitrine {
namespace {

// The number in a file's line that begins with `key`; of a file that holds one number alone, `key` is empty.
std::optional<size_t> number_in(const std::string& path, const std::string& key) {
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

// The files of a version of control groups.
struct Groups {
  std::string root, limit, used, droppable;
};

// What the groups may still take in which this process is: each of them and those around it have a limit of their own.
// Pages of mapped files count as used there, and can be dropped.
size_t left_in(const Groups& groups, std::string path) {
  size_t left = SIZE_MAX;
  for (;; path.resize(path.rfind('/'))) {
    if (path == "/") path.clear();
    const std::string folder = groups.root + path;
    const std::optional<size_t> limit = number_in(folder + groups.limit, ""), used = number_in(folder + groups.used, "");
    if (limit && used) {
      const size_t droppable = number_in(folder + "/memory.stat", groups.droppable).value_or(0);
      const size_t held = *used - std::min(*used, droppable);
      left = std::min(left, *limit - std::min(*limit, held));
    }
    if (path.empty()) return left;
  }
}

size_t left_in_groups() {
  const Groups one = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_cache "};
  const Groups two = {"/sys/fs/cgroup", "/memory.max", "/memory.current", "file "};
  size_t left = SIZE_MAX;
  std::ifstream file("/proc/self/cgroup");  // "0::/user.slice", "4:memory:/job"
  std::string line;
  while (std::getline(file, line)) {
    const size_t names = line.find(':'), path = line.find(":/", names + 1);
    if (names == std::string::npos || path == std::string::npos) continue;
    const std::string controllers = "," + line.substr(names + 1, path - names - 1) + ",";
    if (controllers == ",,") left = std::min(left, left_in(two, line.substr(path + 1)));
    if (controllers.find(",memory,") != std::string::npos) left = std::min(left, left_in(one, line.substr(path + 1)));
  }
  return left;
}

}  // namespace

size_t available_memory() {
  const std::optional<size_t> machine_kib = number_in("/proc/meminfo", "MemAvailable:");
  if (!machine_kib) return 0;
  return std::min(*machine_kib * 1024, left_in_groups());
}

void give_back_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (bytes >= 1024 && unit < 5) {
    bytes /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s", unit == 0 ? 0 : 1, bytes, kUnits[unit]);
  return text;
}

std::optional<double> bytes_of(std::string_view text) {
  double number = 0;
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return {};
  std::string unit;
  for (const char c : text.substr(static_cast<size_t>(after - text.data())))
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.empty() || unit == "b") return number;
  static constexpr std::string_view kPrefixes = "kmgt";
  const size_t power = kPrefixes.find(unit[0]) + 1;
  const std::string_view rest = std::string_view(unit).substr(1);
  if (power == 0 || (!rest.empty() && rest != "b" && rest != "ib")) return {};
  return number * std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power));
}

}  // namespace vitrine
