#pragma once
// Which processors there are, which of them share a core and which memory is near them.
#include <span>
#include <string>
#include <vector>

namespace vitrine {

/// A processor as the system numbers it.
struct Cpu {
  int number = 0;
  int node = 0;  // of memory (NUMA)
  int core = 0;  // the first processor of its core; hyperthreads share it
};

/// The online processors in `folder`, in the form of Linux's /sys/devices/system: cpu/online, cpu/cpuN/topology/
/// thread_siblings_list, node/nodeN/cpulist. Where these are missing or not readable there is one node, and each processor is a
/// core; without cpu/online there are none.
std::vector<Cpu> read_cpus(const std::string& folder = "/sys/devices/system");

/// The numbers of a list such as "0-3,8,10-11", in its order; empty for text of any other form.
std::vector<int> parse_cpu_list(const std::string& text);

/// The numbers of the processors that this process may run on.
std::vector<int> allowed_cpus();
/// Those of `cpus` that are allowed. Where nothing is known of processors (no `cpus`), each allowed one is a core, of one node.
std::vector<Cpu> only_allowed(const std::vector<Cpu>& cpus, const std::vector<int>& allowed);

/// From now on the calling thread runs on these alone; false: the system refuses, and nothing changed.
bool stay_on(std::span<const int> cpus);

/// One processor for each thread: a core's first allowed one before its others (hyperthreads), and from all nodes in turn;
/// ordered by node, so that neighboring threads, which read neighboring weights, are near the same memory. Only `allowed` ones
/// are taken. Errors: UsageError naming both numbers if there are fewer than threads.
std::vector<Cpu> cpus_for_threads(const std::vector<Cpu>& cpus, const std::vector<int>& allowed, int threads);

}  // namespace vitrine
