#pragma once
// What write_gguf writes into: a GGUF file from its first byte to its last, and the estimate of how long that takes.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/gguf_writer.h"
#include "io/resumable_file.h"

namespace vitrine {

/// Takes the pieces of all tensors in the order of the file. Those that a run before wrote need not be made again.
class GgufOutput {
 public:
  /// Errors: as gguf_layout and ResumableFile.
  GgufOutput(const std::string& path, const GgufKeys& keys, const std::vector<TensorPlan>& tensors, const std::string& made_from);

  /// Whether these bytes of a tensor are there; if not, whatever is there of them and behind them is dropped.
  bool has(size_t tensor, uint64_t offset, uint64_t bytes);
  /// Puts `data` at byte `offset` of a tensor, which has no bytes behind it yet.
  void write(size_t tensor, std::span<const std::byte> data, uint64_t offset = 0);
  /// Gives the file its name, once it has been opened again. Errors: as check_written, and the file is gone.
  void finish();

  uint64_t written() const { return file_.written(); }
  /// Bytes that were there from a run before; and whether others were thrown away.
  uint64_t kept() const { return kept_; }
  bool began_anew() const { return began_anew_; }
  void discard() { file_.discard(); }

 private:
  void pad_to(uint64_t at);

  GgufLayout layout_;
  std::string path_;
  ResumableFile file_;
  uint64_t kept_ = 0;
  bool began_anew_ = false;
};

/// The share of the work that is done. Tensors differ in what a number costs, by their types.
class WorkEstimate {
 public:
  /// numbers[i] of tensor i, each of which takes seconds_each[i].
  WorkEstimate(std::vector<double> numbers, std::vector<double> seconds_each);
  void done(size_t tensor, double numbers) { done_ += numbers * seconds_each_[tensor]; }
  double share() const { return all_ > 0 ? done_ / all_ : 1; }
  double seconds_left() const { return all_ - done_; }

 private:
  std::vector<double> seconds_each_;
  double all_ = 0, done_ = 0;
};

}  // namespace vitrine
