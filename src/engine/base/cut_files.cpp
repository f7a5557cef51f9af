#include "base/cut_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <vector>

namespace vitrine {
namespace {

struct MappedRange {
  const std::byte* data;
  size_t size;
  std::string path;
};

// Of all mapped files. A handler may read the list: who holds the lock maps or unmaps a file and touches none, so it is another
// thread, which goes on. Never destroyed, since files may be read while a process ends.
std::vector<MappedRange>& mapped_ranges() {
  static auto* const ranges = new std::vector<MappedRange>;
  return *ranges;
}
std::atomic_flag ranges_busy;

void lock_ranges() {
  while (ranges_busy.test_and_set(std::memory_order_acquire)) {
  }
}

// The rest is called by a signal handler, which may only do what is safe in one.
void say(std::string_view text) { static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size())); }

void say(uint64_t number) {
  char digits[20];
  size_t first = sizeof digits;
  do {
    digits[--first] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number > 0);
  say({digits + first, sizeof digits - first});
}

[[noreturn]] void end_without(const MappedRange& range, const std::byte* byte) {
  struct stat info{};
  const bool is_cut = ::stat(range.path.c_str(), &info) == 0 && static_cast<uint64_t>(info.st_size) < range.size;
  say("vitrine: ");
  for (const char c : range.path) say({static_cast<unsigned char>(c) < ' ' ? "?" : &c, 1});  // char has no sign on Arm
  say(is_cut ? ": became shorter while it was read: it had " : ": cannot be read any more: of its ");
  say(range.size);
  say(is_cut ? " bytes, and has " : " bytes, byte ");
  say(is_cut ? static_cast<uint64_t>(info.st_size) : static_cast<uint64_t>(byte - range.data));
  say(is_cut ? ". Leave a model's files alone while a program runs them: write a new file under another name and rename it. Then "
               "start again\n"
             : " could not be had from the disk, or the file was cut for a moment. Check the disk, and start again\n");
  ::_exit(1);
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto* const byte = static_cast<const std::byte*>(info->si_addr);
  if (info->si_code > 0) {  // of a read, not of a kill
    lock_ranges();          // until the process ends: one thread speaks
    for (const MappedRange& range : mapped_ranges())
      if (byte >= range.data && byte < range.data + range.size) end_without(range, byte);
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // is held back until the handler returns, and has its default action by then
}

}  // namespace

void file_is_mapped(const std::byte* data, size_t size, const std::string& path) {
  MappedRange range{data, size, path};
  std::vector<MappedRange>& ranges = mapped_ranges();
  lock_ranges();
  ranges.push_back(std::move(range));
  ranges_busy.clear(std::memory_order_release);
}

void file_is_unmapped(const std::byte* data) {
  std::vector<MappedRange>& ranges = mapped_ranges();
  lock_ranges();
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const MappedRange& range) { return range.data == data; });
  if (found != ranges.end()) ranges.erase(found);
  ranges_busy.clear(std::memory_order_release);
}

void report_cut_files() {
  struct sigaction before = {}, action = {};
  if (::sigaction(SIGBUS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace vitrine
