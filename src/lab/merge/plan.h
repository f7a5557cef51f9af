#pragma once
// Every tensor of the result with its sources and parameters, worked out and checked before anything is read or written.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "merge/input.h"
#include "merge/method.h"
#include "merge/recipe.h"
#include "merge/token_plan.h"

namespace vitrine {

struct MergeOptions {
  bool allow_crimes = false;         // merge models of different families, by the names of their tensors
  bool allow_missing = false;        // merge a tensor that some inputs lack from those that have it
  bool truncate_embeddings = false;  // cut embeddings to the smallest vocabulary
  bool allow_nan = false;            // do not refuse NaN and infinities in the inputs
  bool copy_tokenizer = true;
  bool write_model_card = true;
  uint64_t random_seed = 0;
  int64_t shard_bytes = 5'000'000'000;  // at most, but for larger tensors; 0: one file
};

/// A tensor of the result.
struct PlannedTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
  std::string stack;        // of layers; empty: outside the layers
  int64_t layer = -1;       // of the result
  double t = 0;             // place in its slice, for gradients
  bool vocabulary = false;  // its rows are tokens
  bool copied = false;      // the one source as it is: whole numbers, or a tensor that only one input has
  struct Source {
    size_t input;  // of MergePlan::inputs
    std::string name;
    const InputTensor* tensor;
  };
  std::vector<Source> sources;
  int base = -1;  // which source
  MethodParameters parameters;

  int64_t elements() const;
};

/// One file of the result.
struct PlannedShard {
  std::string file;
  std::vector<size_t> tensors;  // of MergePlan::tensors
  uint64_t bytes = 0;           // of the tensors
};

struct MergePlan {
  MergeRecipe recipe;
  MergeOptions options;
  const MergeMethod* method = nullptr;
  std::vector<std::unique_ptr<MergeInput>> inputs;
  size_t donor = 0;                    // the input that gives configuration and tokenizer: the base model, else the first
  std::vector<PlannedTensor> tensors;  // in the order they are written
  std::vector<PlannedShard> shards;
  std::optional<TokenPlan> tokens;
  Json config;                        // of the result
  std::vector<std::string> problems;  // why it cannot be run
  bool stacked = false;               // layers are put together anew, which the configuration of some families cannot express
  std::vector<std::string> notes;     // what the reader should know

  uint64_t bytes_read() const, bytes_written() const;
};

/// Opens the models and works everything out. Errors: FileError, UsageError for what the recipe says. Missing and misshapen
/// tensors are listed in `problems`.
MergePlan plan_merge(const MergeRecipe& recipe, const MergeOptions& options);

/// Errors: UsageError with the first problems, if there are any.
void refuse_problems(const MergePlan& plan);

}  // namespace vitrine
