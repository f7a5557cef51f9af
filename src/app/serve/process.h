#pragma once
// What the operating system tells of this process.
#include <cstdint>
#include <ctime>

namespace vitrine::serve {

struct ProcessStats {
  double cpu_seconds = 0;  // of all threads, in user and in kernel mode
  int64_t resident_bytes = 0, virtual_bytes = 0;
  int64_t open_files = 0, most_files = 0;  // descriptors; as many as it may have
  int64_t threads = 0;
};
/// When this program started.
std::time_t process_started();
/// What cannot be read is 0.
ProcessStats process_stats();

}  // namespace vitrine::serve
