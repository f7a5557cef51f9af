#pragma once
// Near which processors weights shall lie: on a machine with several nodes of memory, near the threads that read them.
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "base/cpu_topology.h"
#include "model/thread_plan.h"

namespace vitrine {

class WeightPlaces {
 public:
  /// pieces: as read_pieces gives them. of_threads: the processor of each thread. cpus: those that may be used, of all nodes.
  WeightPlaces(std::vector<ReadPiece> pieces, std::vector<Cpu> of_threads, const std::vector<Cpu>& cpus);

  /// The processors of the node whose threads read most of these bytes; empty where no piece is. Valid as long as this.
  std::span<const int> near(std::span<const std::byte> bytes) const;

 private:
  std::vector<ReadPiece> pieces_;  // by address
  std::vector<Cpu> of_threads_;
  std::map<int, std::vector<int>> of_node_;  // the processors of each
};

}  // namespace vitrine
