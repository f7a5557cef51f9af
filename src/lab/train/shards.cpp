#include "train/shards.h"

#include <algorithm>
#include <cstring>

namespace vitrine {
namespace {

constexpr size_t kBucket = size_t{1} << 20;            // values: long enough for a link's full speed, short enough to begin early
constexpr size_t kPartAlignment = 64 / sizeof(float);  // parts begin on one

}  // namespace

Shards::Shards(const Parameters& parameters, Comm& comm, const std::vector<bool>& whole) : parameters_(parameters), comm_(comm) {
  if (comm.size() == 1) {
    mine_.push_back({0, parameters.size()});
    return;
  }
  struct Piece {
    Range range;
    int64_t layer;
    bool whole = false;
  };
  std::vector<Piece> pieces;
  for (const Parameter& p : parameters.list()) {
    if (!whole.empty() && whole[static_cast<size_t>(&p - parameters.list().data())]) {
      pieces.push_back({{p.begin, p.begin + p.count}, p.layer, true});
      continue;
    }
    const size_t end = p.begin + p.count;
    Piece* const last = pieces.empty() ? nullptr : &pieces.back();
    if (last != nullptr && !last->whole && (last->layer < 0) == (p.layer < 0) && end - last->range.begin <= kBucket) {
      last->range.end = end;
      last->layer = std::min(last->layer, p.layer);
      continue;
    }
    for (size_t begin = p.begin; begin < end; begin += kBucket)
      pieces.push_back({{begin, std::min(begin + kBucket, end)}, p.layer});
  }
  // Backward goes from the last block to the first, and what lies outside the blocks ends with the embedding.
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.layer != b.layer ? a.layer > b.layer : a.range.begin < b.range.begin;
  });
  const auto ranks = static_cast<size_t>(comm.size()), rank = static_cast<size_t>(comm.rank());
  std::vector<size_t> kept(ranks);  // numbers of whole parameters that each rank has
  for (const auto& [range, layer, is_whole] : pieces) {
    const size_t part = ((range.end - range.begin + ranks - 1) / ranks + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    Bucket bucket{layer, {}};
    if (is_whole) {  // to the rank that has least
      const auto owner = static_cast<size_t>(std::min_element(kept.begin(), kept.end()) - kept.begin());
      kept[owner] += range.end - range.begin;
      for (size_t r = 0; r <= ranks; ++r) bucket.cuts.push_back(r <= owner ? range.begin : range.end);
    } else {
      for (size_t r = 0; r <= ranks; ++r) bucket.cuts.push_back(std::min(range.begin + r * part, range.end));
    }
    if (bucket.cuts[rank] < bucket.cuts[rank + 1]) mine_.push_back({bucket.cuts[rank], bucket.cuts[rank + 1]});
    buckets_.push_back(std::move(bucket));
  }
  std::sort(mine_.begin(), mine_.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
}

void Shards::block_done(int layer) {
  for (; next_ < buckets_.size() && buckets_[next_].layer >= layer; ++next_)
    comm_.start_reduce_scatter(parameters_.gradients(), buckets_[next_].cuts);
}

void Shards::finish_gradients(ThreadPool& pool) {
  block_done(-1);
  next_ = 0;
  comm_.wait();
  const auto rank = static_cast<size_t>(comm_.rank());
  pool.run(static_cast<int64_t>(buckets_.size()), [&](int64_t i, int) {
    const std::vector<size_t>& cuts = buckets_[static_cast<size_t>(i)].cuts;
    float* const g = parameters_.gradients();
    std::fill(g + cuts.front(), g + cuts[rank], 0.0f);
    std::fill(g + cuts[rank + 1], g + cuts.back(), 0.0f);
  });
}

void Shards::share_weights() {
  for (const Bucket& bucket : buckets_) comm_.start_gather(parameters_.weights(), bucket.cuts);
  comm_.wait();
}

void Shards::gather(float* whole) const {
  for (const Bucket& bucket : buckets_) comm_.start_gather(whole, bucket.cuts, 0);
  comm_.wait();
}

}  // namespace vitrine
