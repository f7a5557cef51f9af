// Processors read from folders laid out as Linux lays out /sys/devices/system, and which of them threads are given.
#include "base/cpu_topology.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

class FakeSystem {
 public:
  void write(const std::string& name, const std::string& text) { scratch_.write(name, text + "\n"); }
  void siblings(int cpu, const std::string& list) {
    write("cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", list);
  }
  std::vector<Cpu> cpus() const { return read_cpus(scratch_.path()); }

 private:
  Scratch scratch_;
};

// Two nodes of four cores with two hyperthreads: 0-3 and 8-11 on node 0, 4-7 and 12-15 on node 1, as Intel numbers them.
struct TwoNodes : FakeSystem {
  TwoNodes() {
    write("cpu/online", "0-15");
    for (int core = 0; core < 8; ++core)
      for (const int cpu : {core, core + 8}) siblings(cpu, std::to_string(core) + "," + std::to_string(core + 8));
    write("node/node0/cpulist", "0-3,8-11");
    write("node/node1/cpulist", "4-7,12-15");
    write("node/online", "0-1");  // no node
  }
};

std::vector<int> numbers(int n) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

std::vector<int> chosen(const FakeSystem& system, const std::vector<int>& allowed, int threads) {
  std::vector<int> result;
  for (const Cpu& cpu : cpus_for_threads(system.cpus(), allowed, threads)) result.push_back(cpu.number);
  return result;
}

TEST(CpuTopology, ListsAreReadAsTheSystemWritesThem) {
  EXPECT_EQ(parse_cpu_list("0-2,5,8-9"), (std::vector<int>{0, 1, 2, 5, 8, 9}));
  EXPECT_EQ(parse_cpu_list("7"), (std::vector<int>{7}));
  for (const char* wrong : {"", "x", "3-1", "1-", "-1", "0,,1", "1 2", "0-999999999", "99999999999999999999"})
    EXPECT_TRUE(parse_cpu_list(wrong).empty()) << wrong;
}

TEST(CpuTopology, NodesAndHyperthreadsAreRead) {
  const std::vector<Cpu> cpus = TwoNodes().cpus();
  ASSERT_EQ(cpus.size(), 16u);
  EXPECT_EQ(cpus[3].node, 0);
  EXPECT_EQ(cpus[4].node, 1);
  EXPECT_EQ(cpus[11].node, 0);
  EXPECT_EQ(cpus[3].core, 3);
  EXPECT_EQ(cpus[11].core, 3);
}

TEST(CpuTopology, WholeCoresOfAllNodesComeBeforeHyperthreads) {
  const TwoNodes system;
  EXPECT_EQ(chosen(system, numbers(16), 2), (std::vector<int>{0, 4}));
  EXPECT_EQ(chosen(system, numbers(16), 4), (std::vector<int>{0, 1, 4, 5}));
  EXPECT_EQ(chosen(system, numbers(16), 8), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(chosen(system, numbers(16), 10), (std::vector<int>{0, 1, 2, 3, 8, 4, 5, 6, 7, 12}));
  EXPECT_EQ(chosen(system, numbers(16), 16), (std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15}));
}

TEST(CpuTopology, OnlyAllowedProcessorsAreTaken) {
  const TwoNodes system;
  EXPECT_EQ(chosen(system, {2, 3, 10, 11, 5}, 3), (std::vector<int>{2, 3, 5}));
  EXPECT_EQ(chosen(system, {9, 1}, 2), (std::vector<int>{1, 9}));
  EXPECT_EQ(chosen(system, {9, 10, 2}, 2), (std::vector<int>{2, 9}));  // a core whose first processor is not allowed is whole
  try {
    chosen(system, {2, 3}, 3);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "--pin cores: 3 threads, but this process may run on 2 processors; ask for fewer with --threads, or take --pin "
                 "none");
  }
}

TEST(CpuTopology, WhatIsMissingCountsAsOneNodeOfCores) {
  FakeSystem system;
  system.write("cpu/online", "0,2-3");
  system.siblings(2, "two");
  system.write("node/nodeX/cpulist", "0");
  system.write("node/node1/cpulist", "everything");
  const std::vector<Cpu> cpus = system.cpus();
  ASSERT_EQ(cpus.size(), 3u);
  for (const Cpu& cpu : cpus) {
    EXPECT_EQ(cpu.node, 0);
    EXPECT_EQ(cpu.core, cpu.number);
  }
  const FakeSystem unknown;  // as in a sandbox without /sys
  EXPECT_TRUE(unknown.cpus().empty());
  EXPECT_EQ(chosen(unknown, {3, 5, 9}, 2), (std::vector<int>{3, 5}));
  EXPECT_THROW(chosen(unknown, {3}, 2), UsageError);
}

TEST(CpuTopology, ThisProcessMayRunSomewhere) {
  const std::vector<int> allowed = allowed_cpus();
  if (allowed.empty()) GTEST_SKIP() << "this system has no masks";
  EXPECT_EQ(cpus_for_threads(read_cpus(), allowed, 1).size(), 1u);
}

}  // namespace
}  // namespace vitrine
