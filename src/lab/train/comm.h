#pragma once
// The processes ("ranks") that train one model together, and the little they ask of each other. What is here is one process
// alone; train/mpi/module.cpp is the same over MPI (docs/parallel-training.md).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace vitrine {

/// Every rank must make the same calls in the same order. What the ranks give is joined in the order of ranks, so the
/// same values come out on every rank and in every run. A rank that is lost ends all others.
class Comm {
 public:
  enum class Fold : uint8_t { sum, largest };
  static constexpr int kAll = -1;

  Comm() = default;
  virtual ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Ranks on this machine, this one included.
  int on_this_machine() const { return on_this_machine_; }
  /// Time that this process spent in the calls below, waiting for others included.
  double seconds() const { return seconds_; }

  /// Each number becomes the sum, or the largest, over ranks. Waits for all of them; with no values that is a barrier.
  virtual void all_reduce(std::span<double> /*numbers*/, Fold /*fold*/ = Fold::sum) {}

  /// Rank r's part of `values` is [cuts[r], cuts[r + 1]); `cuts` has size() + 1 places. Begins to sum over ranks; after
  /// wait() this rank's part holds its sums, and the other parts what they held. `values` may not be touched before.
  virtual void start_reduce_scatter(float* /*numbers*/, std::span<const size_t> /*cuts*/) {}
  /// Begins to send this rank's part to rank `to` or to all; after wait() those hold every rank's part.
  virtual void start_gather(float* /*numbers*/, std::span<const size_t> /*cuts*/, int /*to*/ = kAll) {}
  /// Lets what was started go on, without waiting.
  virtual void advance() {}
  /// Until all that was started is done.
  virtual void wait() {}

  /// To be called by a rank that failed, before it says why. Returns on one rank alone: the first, which says why and calls
  /// abort(). Every other waits here until that ends it, so what is wrong for all is said once.
  virtual void begin_abort() {}
  /// Ends every rank now; the launcher's exit code is this one. The process's own message must have been written.
  virtual void abort(int /*code*/) {}

 protected:
  int rank_ = 0, size_ = 1, on_this_machine_ = 1;
  double seconds_ = 0;
};

/// Joins the other processes if an MPI launcher (mpirun) started this one; otherwise nothing of MPI is loaded.
/// Errors: InputError if it did and this vitrine cannot: vitrine_mpi.so, which only builds with MPI have, lies neither
/// beside the program nor in its library folder, or belongs to another version, or to another MPI than the launcher.
std::unique_ptr<Comm> join_ranks();

/// The cores for each rank of this machine: all that it may use, divided among the ranks here.
int cores_of_rank(const Comm& comm);

}  // namespace vitrine
