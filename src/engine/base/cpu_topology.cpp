#include "base/cpu_topology.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr int kMostCpus = 1 << 16;  // more than any system has: a wrong list must not take memory

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> parse_number(std::string_view text) {
  int n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < 0 || n >= kMostCpus) return {};
  return n;
}

// "node12" is 12.
std::optional<int> number_behind(std::string_view prefix, std::string_view name) {
  if (!name.starts_with(prefix)) return {};
  return parse_number(name.substr(prefix.size()));
}

}  // namespace

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> numbers;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    const size_t dash = part.find('-');
    const std::optional<int> first = parse_number(part.substr(0, dash)),
                             last = dash == part.npos ? first : parse_number(part.substr(dash + 1));
    if (!first || !last || *last < *first || numbers.size() > kMostCpus) return {};
    for (int n = *first; n <= *last; ++n) numbers.push_back(n);
    begin = end + 1;
  }
  return numbers;
}

std::vector<Cpu> read_cpus(const std::string& folder) {
  std::vector<Cpu> cpus;
  for (const int number : parse_cpu_list(first_line(folder + "/cpu/online"))) {
    const std::string topology = folder + "/cpu/cpu" + std::to_string(number) + "/topology";
    const std::vector<int> siblings = parse_cpu_list(first_line(topology + "/thread_siblings_list"));
    cpus.push_back({number, 0, siblings.empty() ? number : *std::min_element(siblings.begin(), siblings.end())});
  }
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder + "/node", error), end; !error && entry != end; entry.increment(error)) {
    const std::optional<int> node = number_behind("node", entry->path().filename().string());
    if (!node) continue;
    const std::vector<int> of_node = parse_cpu_list(first_line(entry->path().string() + "/cpulist"));
    for (Cpu& cpu : cpus)
      if (std::find(of_node.begin(), of_node.end(), cpu.number) != of_node.end()) cpu.node = *node;
  }
  return cpus;
}

std::vector<int> allowed_cpus() {
  std::vector<int> allowed;
#ifdef __linux__
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
#endif
  return allowed;
}

std::vector<Cpu> only_allowed(const std::vector<Cpu>& cpus, const std::vector<int>& allowed) {
  std::vector<Cpu> usable;
  if (cpus.empty())
    for (const int number : allowed) usable.push_back({number, 0, number});
  for (const Cpu& cpu : cpus)
    if (std::find(allowed.begin(), allowed.end(), cpu.number) != allowed.end()) usable.push_back(cpu);
  return usable;
}

bool stay_on(std::span<const int> cpus) {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus)
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
#else
  static_cast<void>(cpus);
  return false;
#endif
}

std::vector<Cpu> cpus_for_threads(const std::vector<Cpu>& cpus, const std::vector<int>& allowed, int threads) {
  std::vector<Cpu> usable = only_allowed(cpus, allowed);
  if (std::ssize(usable) < threads)
    throw UsageError("--pin cores: " + std::to_string(threads) + " threads, but this process may run on " +
                     std::to_string(usable.size()) + " processors; ask for fewer with --threads, or take --pin none");
  std::sort(usable.begin(), usable.end(), [](const Cpu& a, const Cpu& b) { return a.number < b.number; });
  struct Candidate {
    Cpu cpu;
    int place, turn;  // among those of its core, and among those of its node with that place
  };
  std::vector<Candidate> candidates;
  std::map<int, int> of_core;
  std::map<std::pair<int, int>, int> of_node;  // by place and node
  for (const Cpu& cpu : usable) {
    const int place = of_core[cpu.core]++;
    candidates.push_back({cpu, place, of_node[{place, cpu.node}]++});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.place, a.turn, a.cpu.node) < std::tie(b.place, b.turn, b.cpu.node);
  });
  candidates.resize(static_cast<size_t>(threads));
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return std::tie(a.cpu.node, a.place, a.cpu.number) < std::tie(b.cpu.node, b.place, b.cpu.number);
  });
  std::vector<Cpu> chosen;
  chosen.reserve(candidates.size());
  for (const Candidate& candidate : candidates) chosen.push_back(candidate.cpu);
  return chosen;
}

}  // namespace vitrine
