#pragma once
// Which rank keeps which values. Every rank has all weights and gradients; the optimizer's state of a number is on one rank
// alone, which sums its gradient over ranks, takes the step for it, and sends the weight to the others (the first stage of
// ZeRO, arXiv:1910.02054, section 5.1). A rank then holds 1 / ranks of the state, and sends no more than plain summing does.
#include <vector>

#include "base/thread_pool.h"
#include "ops/tape.h"
#include "train/comm.h"
#include "train/parameters.h"

namespace vitrine {

/// The values of all parameters lie in buckets, in the order in which a backward pass completes their gradients; each bucket
/// is cut into a part for every rank, so that all links are used all the time. What one rank must keep whole is a bucket of its
/// own, all of it that rank's.
class Shards final : public BackwardWatch {
 public:
  /// whole: the parameters that one rank keeps entirely; empty: none.
  Shards(const Parameters& parameters, Comm& comm, const std::vector<bool>& whole = {});

  Comm& comm() const { return comm_; }
  struct Range {
    size_t begin, end;  // in every buffer of the parameters
  };
  /// What this rank keeps, rising; all there is if it is alone.
  const std::vector<Range>& mine() const { return mine_; }

  // While a backward pass runs, buckets whose blocks are done are summed.
  void node_done() override { comm_.advance(); }
  void block_done(int layer) override;
  /// After the pass: sums what is left, and sets the gradients of others' values to zero. Then this rank's are those of the
  /// whole batch.
  void finish_gradients(ThreadPool& pool);

  /// Gives every rank the weights that their keepers have changed.
  void share_weights();
  /// `whole` holds the values of mine() in their places. Rank 0's becomes everybody's; those of other ranks may be
  /// overwritten, too.
  void gather(float* whole) const;

 private:
  struct Bucket {
    int64_t layer;             // the gradients are complete when this block's are; -1: at the end
    std::vector<size_t> cuts;  // rank r's part is [cuts[r], cuts[r + 1])
  };

  const Parameters& parameters_;
  Comm& comm_;
  std::vector<Bucket> buckets_;
  std::vector<Range> mine_;
  size_t next_ = 0;  // the first bucket of this step that is not being summed yet
};

}  // namespace vitrine
