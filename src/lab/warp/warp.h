#pragma once
// WARP (Ramé et al., arXiv:2406.16768) as one recipe. A round trains children from one model, merges them on the sphere of their
// task vectors, and interpolates towards the model that they began from; a place on that line is where the next round begins.
//   θ_slerp = slerp(θ_init; θ¹, θ², …)        θ(η) = (1 - η) θ_init + η θ_slerp
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/yaml_reader.h"
#include "train/train.h"

namespace vitrine {

/// A recipe, checked (docs/warp.md).
struct WarpConfig {
  enum class Weights : uint8_t { last, best, ema };
  std::string path;      // of the file, named in errors
  std::string model;     // where the first round begins
  std::string out;       // the run's folder
  std::string identity;  // what may not change when a run goes on
  int64_t rounds = 1, threads = 0;
  /// Keys of `vitrine train` besides model, out and seed, as YAML that stands at the lines of the recipe.
  struct Child {
    YamlValue train;  // keys of `vitrine train` besides model, out and seed
    uint64_t seed = 1;
  };
  std::vector<Child> children;
  Weights weights = Weights::last;  // of each child
  double t = 0.5;                   // of two children: the place between them
  bool layer_wise = true;           // one angle for each layer, not for each tensor
  std::vector<double> etas;         // rising, `next` among them
  std::optional<double> next;       // the eta with which the next round begins; nothing: that of the lowest loss
  std::vector<double> written;      // etas whose models are written too
  std::string text, data;           // one of the two: a text file, or a folder made by `vitrine data`
  int64_t window = 1024, tokens = 0;
  bool divergence = false;  // measure KL(initial || model) too
};

/// Errors: FileError naming line, key, found and expected; the children's configurations are checked as `vitrine train` does.
WarpConfig read_warp_config(const std::string& path);
/// The same for text; `where` is named in errors.
WarpConfig parse_warp_config(const std::string& text, const std::string& where);

/// A model on the text.
struct WarpMeasure {
  double loss = 0, distance = 0;     // mean -ln p; ‖θ - θ0‖ from the model of the first round
  std::optional<double> divergence;  // mean KL(θ0 || θ)
};
struct WarpRound {
  struct Parent {
    std::string model;
    WarpMeasure measure;
  };
  struct Point {
    double eta = 0;
    WarpMeasure measure;
  };
  std::string init;  // the model that it began from
  std::vector<Parent> children;
  std::vector<Point> points;  // one for each eta
  double next = 0;            // the eta of the model below
  std::string model;
};
struct WarpResult {
  WarpMeasure initial;
  int64_t tokens = 0, window = 0;  // scored
  std::vector<WarpRound> rounds;
  bool stopped = false;
};

/// What a run tells while it goes. Every member may be empty.
struct WarpEvents {
  std::function<void(const std::string&)> say;  // a line for who watches
  /// Of a child that is about to learn; round and child count from 1.
  std::function<TrainEvents(int64_t round, int64_t child)> child;
  /// After the initial model was measured and after each round. Those of an earlier process are told first.
  std::function<void(const WarpResult&)> measured;
  std::function<bool()> stop;  // asked now and then; true ends the run, which `resume` goes on with
};

/// Runs a recipe. In `out`: round-N/child-M (runs of `vitrine train`) with child-M.yaml, round-N/slerp, round-N/liti-ETA as
/// Hugging Face directories, warp.json. resume: goes on where a run was stopped or killed, to the same bits. Errors: as train,
/// plan_merge and write_merge; UsageError if another process works in `out`, or if what is there was begun with another recipe.
WarpResult run_warp(const WarpConfig& config, bool resume, const WarpEvents& events = {});

}  // namespace vitrine
