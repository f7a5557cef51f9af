#pragma once
// The folder of a run: step-N/ as Hugging Face directories with what is needed to go on beside the weights, `last` and
// `best` as links to two of them, metrics.jsonl. Whatever moment the process dies at, every step-N that is there is whole.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/folder_lock.h"
#include "model/export.h"
#include "train/data/batch_source.h"
#include "train/learner.h"
#include "train/metric_files.h"

namespace vitrine {

/// Where a run stands, besides weights and moments.
struct TrainProgress {
  int64_t step = 0;                 // steps done
  int64_t tokens = 0;               // scored so far
  DataPosition position;            // of the next batch
  int64_t best_step = 0;            // 0: none yet
  double best_loss = 0;             // on the validation data
  std::string best_on = {};         // what was measured: losses on other data are not compared with it
  std::string validation_due = {};  // the step's line of metrics.jsonl, if a stop kept it from getting its validation
};

/// What may not change between a run and its continuation, since the position in the data would mean something else, or the
/// model would be another.
struct TrainIdentity {
  uint64_t seed = 0;
  int64_t sequence_length = 0, batch = 0, accumulate = 0;
  bool documents = true;
  uint64_t data_tokens = 0, data_checksum = 0;
  std::string data_path = {};     // named in errors; may change
  std::string data_weights = {};  // of a mixture's folders; empty: there is one
  std::string optimizer;
  std::string preference = {};     // the section that preferences are learned by; empty: they are not
  std::string preference_by = {};  // its settings
  std::string grpo = {};           // how rewards are learned from; empty: they are not
  std::string masked = {};         // how tokens are hidden; empty: next tokens are learned
  std::string lora = {};           // the adapter that learns; empty: the whole model
  std::string model_path = {};     // that learning began from; empty: fresh weights, or not known any more
  Json model_config = {};          // of fresh weights, as it was given; null: none was, or not known any more
  bool operator==(const TrainIdentity&) const = default;
};

/// A run's folder, held by this process alone while this lives.
class RunFolder {
 public:
  /// Makes the folder and clears away what a killed run left half-done. A folder that it made and that stays empty is removed
  /// at the end. Errors: UsageError if another process trains there; InputError if it cannot be made.
  /// holder: false for a rank that only reads; it does none of that, and may call nothing that writes.
  explicit RunFolder(const std::string& path, bool holder = true);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The steps that have a checkpoint, rising.
  std::vector<int64_t> steps() const;
  std::string step_path(int64_t step) const;
  /// Whether there is anything of an earlier run.
  bool used() const;

  /// Writes step-N, with the averaged weights as a model of their own in step-N/ema: under a temporary name, synced, then
  /// renamed. Errors: RunError from the disk, which leaves all that was there intact; also if a weight is NaN or infinite.
  /// Meanwhile other ranks must call Learner::each_state().
  /// `companions` go beside the weights; an adapter's are its chat template alone.
  void save(Learner& learner, const Companions& companions, const TrainProgress& progress, const TrainIdentity& identity);

  /// Points `last` at `step` and `best` at `best_step` (0: where it points already); then removes all but the newest `keep` and
  /// the best. Returns why a link could not be set, as on a file system without links; empty: both are.
  std::string settle(int64_t step, int64_t best_step, int64_t keep) const;

  /// Writes the mean of the newest `most` checkpoints as `average`, a model or an adapter as theirs, in place of one that is
  /// there. Returns their steps. Errors: as verify(); as average_checkpoints(); RunError from the disk.
  std::vector<int64_t> average(size_t most) const;
  std::string average_path() const { return path_ + "/average"; }

  /// Whether step-N is an adapter's.
  bool of_adapter(int64_t step) const;

  /// Compares step-N's files with the checksums that it was written with, and its number with its name. A checkpoint of an
  /// earlier version has no checksums. Reads the whole checkpoint.
  /// Errors: InputError naming the file, what is wrong with it and the checkpoint before.
  void verify(int64_t step) const;

  /// Reads the optimizer's state and the progress of step-N, whose weights the learner was opened with.
  /// `identity` comes back with the model_path and model_config that the checkpoint has. A checkpoint of an earlier version has
  /// none of them and no data_checksum; then these are not compared.
  /// Errors: FileError for a file that does not fit the learner; InputError if `identity` differs from the run's.
  TrainProgress restore(int64_t step, Learner& learner, TrainIdentity& identity) const;

  struct History {
    int64_t measured = -1;  // the last step in metrics.jsonl
    int64_t saved = -1;     // the last checkpoint that metrics.jsonl or `last` tell of, be it there or not
  };
  /// -1 where there is none.
  History history() const;
  static constexpr const char* kConfig = "config.yaml";
  /// The configuration of the run, in YAML, which takes the place of the one before with the first line of metrics or the first
  /// checkpoint: a run that is stopped before leaves nothing.
  void set_config(const std::string& text) { config_ = text; }
  /// Drops the lines of metrics.jsonl that came after `step`: they will be written again.
  void rewind_metrics(int64_t step);
  /// Appends a line. Errors: RunError from the disk.
  void add_metrics(const std::string& line);
  /// Other formats that hold the metrics from the next rewind_metrics() on.
  void also_write(const MetricFormats& formats) { formats_ = formats; }

 private:
  std::string point(const std::string& link, int64_t step) const;
  void remove_step(int64_t step) const;
  void keep_config();

  std::string path_;
  bool made_ = false;
  std::optional<FolderLock> lock_;
  std::string config_;  // not written yet
  int metrics_ = -1;
  MetricFormats formats_;
  std::optional<MetricFiles> others_;
};

}  // namespace vitrine
