#pragma once
// A sweep: runs of one configuration with other values, by a YAML file (docs/training.md).
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "train/config.h"

namespace vitrine {

struct SweptRun {
  std::string name;                                         // its folder in the configuration's `out`
  std::vector<std::pair<std::string, std::string>> values;  // keys with dots between them, and what they are set to, in YAML
  TrainConfig config;                                       // its out: `folder`/name
};

struct TrainSweep {
  std::string folder;  // the configuration's `out`
  std::vector<SweptRun> runs;
};

/// The runs of a sweep, all of whose configurations are checked:
///   runs     a list of objects of keys and values, "optimizer.lr: 1e-3", each with a name if wanted
///   product  an object of keys and lists of values, each combination of which is a run; with `runs`, of each of them
/// config, settings: as read_train_config(). Names, where none is given, are made of keys and values.
/// Errors: FileError as read_train_config(), for the values with the sweep's file and line; for two runs of one name.
TrainSweep read_sweep(const std::string& config, std::span<const std::string> settings, const std::string& sweep);

}  // namespace vitrine
