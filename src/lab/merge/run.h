#pragma once
// A planned merge, done: tensor by tensor, threads share the pieces of each, and nothing is held but these pieces.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "merge/plan.h"
#include "runtime/engine.h"

namespace vitrine {

/// How far a merge is.
struct MergeProgress {
  uint64_t bytes = 0, all = 0;  // read and written
  const std::string* tensor = nullptr;
};
using WatchMerge = std::function<void(const MergeProgress&)>;

/// Bytes that a merge takes besides the mapped files: buffers for the pieces of every thread.
uint64_t merge_memory(const MergePlan& plan, int threads);

/// Where the bytes of merged tensors go.
class TensorSink {
 public:
  virtual ~TensorSink() = default;
  /// Puts `n` bytes at byte `offset` of plan.tensors[tensor]; from several threads at once. Errors: RunError.
  virtual void write(size_t tensor, uint64_t offset, const void* data, size_t n) = 0;
  /// All of it was written.
  virtual void finished(size_t) {}
};

/// What a merge did to one tensor. Lists are of its sources; NaN: not there.
struct TensorMeasure {
  std::vector<double> norms;            // of what each source adds to the base, or of the sources themselves
  std::vector<double> cosines;          // of the pairs i < j of them
  double sign_conflict;                 // the share of elements at which they have both signs
  std::vector<double> kept;             // the share of each one's changes that was kept; empty: not pruned
  double result_norm, result_distance;  // of the result, and from the base or the first source
};

/// Merges plan.tensors[i] for each i that `wanted` allows. Errors: RunError naming tensor, model and element for NaN or infinity,
/// and from the sink; UsageError from a method that cannot work with its parameters.
/// `measure`, if given, is told what is done to each tensor, also to those that are not wanted; it takes a pass more over the
/// inputs.
using MeasureMerge = std::function<void(size_t tensor, const TensorMeasure&)>;
void merge_tensors(const MergePlan& plan, ThreadPool& pool, TensorSink& sink, const std::function<bool(size_t)>& wanted = {},
                   const WatchMerge& watch = {}, const MeasureMerge& measure = {});

/// The same for the measures alone: nothing is written.
void measure_merge(const MergePlan& plan, ThreadPool& pool, const MeasureMerge& measure, const WatchMerge& watch = {});

struct WriteOptions {
  bool resume = false;   // go on where a run that was killed stopped
  bool replace = false;  // a directory of a model that is there already, with all that is in it
};

/// Errors: InputError, as write_merge, for a directory that is there already or has no name of its own. A file, and a directory
/// that holds other files and no model, are not replaced.
void check_merge_directory(const std::string& directory, bool replace);

/// Where write_merge writes until `directory` is whole: ".merging-<its name>" beside it. Errors: InputError, as write_merge.
std::string merge_work_folder(const std::string& directory);

/// Writes `directory` as a Hugging Face directory: under the name ".merging-<its name>" beside it until it is whole, then
/// renamed. `companions`: the tokenizer's and other files. Returns how many tensors were there from before. Errors: as
/// merge_tensors; InputError for a directory that is there already, that another process is writing, that has no name of its own
/// (".", ".."), or that is to be replaced with inputs in it or without a model in it; UsageError if what is to be resumed was
/// begun with another recipe or other inputs.
size_t write_merge(const MergePlan& plan, const std::map<std::string, std::string>& companions, const std::string& directory,
                   ThreadPool& pool, const WriteOptions& options, const WatchMerge& watch = {}, const MeasureMerge& measure = {});

/// The tokenizer of a merge that makes a new one; null for others.
std::shared_ptr<const Tokenizer> merged_tokenizer(const MergePlan& plan);

/// The merged model in memory, ready to run. Errors: as merge_tensors; FileError for a family that vitrine does not know.
std::unique_ptr<Engine> merge_in_memory(const MergePlan& plan, const EngineOptions& options, const WatchMerge& watch = {});

}  // namespace vitrine
