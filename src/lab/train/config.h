#pragma once
// What `vitrine train` is told: a YAML file, every key checked (docs/training.md).
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/yaml_reader.h"
#include "model/form.h"
#include "train/distill_options.h"
#include "train/learner.h"
#include "train/masking.h"
#include "train/metric_files.h"
#include "train/policy.h"
#include "train/schedule.h"

namespace vitrine {

struct TrainConfig {
  std::string path;  // of the file, named in errors
  std::string text;  // all that it says, in YAML: kept in the run's folder, compared by processes that train together

  // model
  std::string model;        // where learning starts: an existing model; empty: fresh weights
  std::string config_path;  // of fresh weights: config.json, or `path` where it stands in the file itself
  Json config;
  std::string tokenizer;  // folder; empty: the model's own
  InitRule init;
  FormChanges form;                    // norms moved, parts left out
  std::optional<AdapterOptions> lora;  // an adapter learns, and the model stays as it is
  std::string adapter;                 // the one that goes on learning; empty: a fresh one

  // data
  struct DataFolder {  // made by `vitrine data`
    std::string path;
    double weight = 1;  // beside the others, of its sequences
    bool operator==(const DataFolder&) const = default;
  };
  std::vector<DataFolder> train_data;  // one, or several that are mixed
  std::string validation_data;
  bool documents = true;  // attention does not cross from one document into the next

  int64_t sequence_length = 0, batch = 0, accumulate = 1;
  int64_t steps = 0;  // 0: `epochs`
  double epochs = 0;
  OptimizerOptions optimizer;
  Schedule schedule;        // length 0: all steps
  double warmup_ratio = 0;  // schedule.warmup as a share of the schedule's steps; 0: schedule.warmup says
  double clip = 1;
  std::optional<double> dropout_embedding, dropout_attention, dropout_residual;  // nothing: as the model's configuration says
  bool dropout_everywhere = false;  // one number for all the places that the family has
  bool recompute = false;           // every block runs again in backward
  double memory = 0;                // bytes of a machine within which as few blocks do as are needed; 0: recompute says
  bool bf16 = false;                // products round their operands to bf16
  uint64_t seed = 1;
  int64_t threads = 0;

  std::optional<double> ema;                    // decay of an average of the weights
  std::string kl_to;                            // "ema" or a model that learning is held to; empty: nothing
  double kl_weight = 0;                         // of the divergence from it
  std::optional<DistillOptions> distill;        // a teacher
  std::optional<PreferenceOptions> preference;  // the data are preferences
  std::optional<PolicyOptions> policy;          // the data are prompts, and what the model writes is rewarded
  std::optional<MaskingOptions> masked;         // tokens are hidden, and learned; nothing: the next tokens are

  int64_t eval_every = 0, eval_batches = 0, eval_tokens = 0;  // 0: never; 0: all of the validation data
  int64_t patience = 0;  // validations without a lower loss after which the run ends; 0: it goes on to its last step
  int64_t tasks_every = 0, tasks_limit = 0;  // 0: never; 0: all items
  std::vector<std::string> tasks;            // files of multiple-choice items
  int64_t sample_every = 0, sample_tokens = 64;
  double sample_temperature = 0.8;
  std::vector<std::string> sample_prompts;
  int64_t save_every = 0, keep = 2;  // 0: at the end only
  int64_t average_last = 0;          // so many newest checkpoints are averaged at the end; 0: none
  bool best = true;                  // also keep the checkpoint with the lowest validation loss
  int64_t layers_every = 0;          // steps between lines with norms for each layer; 0: never
  MetricFormats metrics;             // beside metrics.jsonl
  std::string out;

  /// Whether a reward model learns.
  bool rewards() const { return preference && preference->loss == PreferenceOptions::Loss::reward; }
};

/// Reads and checks a configuration, with what it extends and with settings ("optimizer.lr=1e-3") over it (io/yaml_layers.h).
/// Relative paths are relative to the working directory. path: a file, or the folder of a run, whose configuration is read.
/// Errors: FileError naming file, line, key, found and expected; for an unknown key the nearest one.
TrainConfig read_train_config(const std::string& path, std::span<const std::string> settings = {});
/// The same for an object; `where` is named in errors.
TrainConfig train_config(const YamlValue& object, const std::string& where);
/// The same for text.
TrainConfig parse_train_config(const std::string& text, const std::string& where);

/// The configuration of the model, with the dropout rates set that were asked for.
/// Errors: InputError for a place at which the family has no dropout.
Json with_dropout(Json model_config, const TrainConfig& config);

/// The configuration of the model, with the norms and parts that were asked for (docs/trainability.md).
/// Errors: InputError for a family that cannot do without.
Json with_form(Json model_config, const TrainConfig& config);

}  // namespace vitrine
