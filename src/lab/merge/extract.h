#pragma once
// The difference of two models as a LoRA adapter in the files of PEFT: the reverse of a model with an adapter (docs/lora.md).
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "merge/input.h"

namespace vitrine {

/// Names and defaults are those of mergekit-extract-lora.
struct ExtractOptions {
  int64_t max_rank = 128;
  bool distribute_scale = true;                         // the roots of the singular values in A and in B; else all of them in A
  bool embed_lora = false;                              // embeddings and output matrix as A and B too; else whole
  std::vector<std::string> save_modules = {};           // whole, changed or not: names, in full or their last parts
  std::vector<std::string> include = {}, exclude = {};  // regular expressions, looked for in the modules' names
  double sv_epsilon = 0;                                // singular values up to it are left out
  bool skip_undecomposable = false;                     // leave out what cannot be A and B, such as norms; else it is saved whole
  bool write_model_card = true;
};

/// A module of the adapter.
struct ExtractedModule {
  enum class Kind : uint8_t { matrix, embedding, saved };
  std::string name;  // "model.layers.0.self_attn.q_proj"
  Kind kind = Kind::matrix;
  std::vector<int64_t> shape;  // of its weight in the file
  int64_t rank = 0;            // of A and B; 0: the difference has no singular value above the threshold, so it is left out
  double norm = 0;             // Frobenius norm of the difference
  double kept = 1;             // the share of its square that B A holds
};

struct ExtractResult {
  std::vector<ExtractedModule> modules;
  int64_t rank = 0;        // the largest
  int64_t parameters = 0;  // numbers in the adapter
  uint64_t bytes = 0;      // of its weights
  std::vector<std::string> notes;
};

/// Told of each module that is done, from several threads, one at a time: how many of how many there are.
using WatchExtract = std::function<void(size_t done, size_t all, const std::string& name)>;

/// Writes `directory` with adapter_config.json and adapter_model.safetensors, such that base + B A is the nearest to `model` that
/// the rank allows: under the name ".extracting-<its name>" beside it until it is whole, then renamed. Each thread of the pool
/// holds the difference of one matrix.
/// Errors: InputError for models that do not fit each other and a directory that is there already; UsageError for options that
/// name nothing; RunError naming model, tensor and element for NaN or infinity, and from the disk.
ExtractResult extract_lora(const MergeInput& model, const MergeInput& base, const std::string& directory,
                           const ExtractOptions& options, ThreadPool& pool, const WatchExtract& watch = {});

}  // namespace vitrine
