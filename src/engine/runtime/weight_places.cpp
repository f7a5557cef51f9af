#include "runtime/weight_places.h"

#include <algorithm>
#include <utility>

namespace vitrine {

WeightPlaces::WeightPlaces(std::vector<ReadPiece> pieces, std::vector<Cpu> of_threads, const std::vector<Cpu>& cpus)
    : pieces_(std::move(pieces)), of_threads_(std::move(of_threads)) {
  for (const Cpu& cpu : cpus) of_node_[cpu.node].push_back(cpu.number);
}

std::span<const int> WeightPlaces::near(std::span<const std::byte> bytes) const {
  const std::byte *const begin = bytes.data(), *const end = begin + bytes.size();
  auto piece =
      std::partition_point(pieces_.begin(), pieces_.end(), [&](const ReadPiece& p) { return p.data + p.bytes <= begin; });
  std::map<int, std::ptrdiff_t> read;  // bytes, by node
  for (; piece != pieces_.end() && piece->data < end; ++piece)
    read[of_threads_[static_cast<size_t>(piece->thread)].node] +=
        std::min(end, piece->data + piece->bytes) - std::max(begin, piece->data);
  const auto most = std::max_element(read.begin(), read.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto node = most == read.end() ? of_node_.end() : of_node_.find(most->first);
  return node == of_node_.end() ? std::span<const int>() : std::span<const int>(node->second);
}

}  // namespace vitrine
