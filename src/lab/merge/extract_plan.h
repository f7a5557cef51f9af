#pragma once
// What becomes of each module of two models whose difference is to be an adapter (merge/extract.h).
#include <map>
#include <string>
#include <vector>

#include "merge/extract.h"

namespace vitrine {

struct ExtractPlan {
  /// A tensor of both models.
  struct Part {
    std::string name;  // in the adapter's files: "model.norm.weight"
    const InputTensor* model = nullptr;
    const InputTensor* base = nullptr;  // null: the base has none, as an output matrix that is its embedding
  };
  struct Module {
    ExtractedModule::Kind kind = ExtractedModule::Kind::matrix;
    std::string name;
    bool by_columns = false;  // the file holds [in, out]
    std::vector<Part> parts;  // of A and B: the weight, then the bias if there is one
  };
  std::vector<Module> modules;
  std::vector<std::string> names;  // of all modules of the models, those that are left out as well
  bool biases = false;             // of matrices: some differ
  std::vector<std::string> notes;
};

/// Reads what is compared: norms, biases, embeddings. Errors: as extract_lora.
ExtractPlan plan_extraction(const MergeInput& model, const MergeInput& base, const ExtractOptions& options);

/// adapter_config.json. `ranks`: of the modules of A and B that are there.
Json adapter_config(const ExtractPlan& plan, const std::map<std::string, int64_t>& ranks, const std::string& base);

}  // namespace vitrine
