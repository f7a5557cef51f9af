#include "serve/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace vitrine::serve {
namespace {
const std::time_t kStarted = std::time(nullptr);
}

std::time_t process_started() { return kStarted; }

ProcessStats process_stats() {
  ProcessStats stats;
  rusage usage = {};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; };
    stats.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  int64_t total = 0, resident = 0;
  if (std::ifstream("/proc/self/statm") >> total >> resident) {
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    stats.virtual_bytes = total * page;
    stats.resident_bytes = resident * page;
  }
  const auto entries = [](const char* folder) {
    std::error_code error;
    int64_t count = 0;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) ++count;
    return count;
  };
  stats.open_files = entries("/proc/self/fd");
  stats.threads = entries("/proc/self/task");
  rlimit files = {};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) stats.most_files = static_cast<int64_t>(files.rlim_cur);
  return stats;
}

}  // namespace vitrine::serve
