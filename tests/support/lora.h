#pragma once
// The adapters that PEFT made (tests/golden/lora/make.py), and the golden models and variants that they belong to.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "support/golden.h"

namespace vitrine {

inline std::string lora_folder(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/lora/" + name; }

/// All that have numbers of runs, but lora_bias: written again it is a bias of another name.
inline std::vector<std::string> golden_adapters() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(lora_folder("")))
    if (std::filesystem::exists(entry.path() / "losses.json") && entry.path().filename() != "lora_bias")
      names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// What the adapter's configuration calls the model below it.
inline std::string lora_base_name(const std::string& adapter) {
  return read_json(lora_folder(adapter) + "/adapter/adapter_config.json").at("base_model_name_or_path");
}
inline bool of_variant(const std::string& adapter) {
  return std::filesystem::exists(std::string(VITRINE_GOLDEN) + "/variants/" + lora_base_name(adapter));
}
inline std::string lora_base(const std::string& adapter) {
  const std::string name = lora_base_name(adapter);
  return of_variant(adapter) ? std::string(VITRINE_GOLDEN) + "/variants/" + name : Golden::open(name).model();
}
inline Tolerance lora_tolerance(const std::string& adapter) {
  return of_variant(adapter) ? Tolerance(2e-5, 1e-4) : Golden::open(lora_base_name(adapter)).tolerance();
}

}  // namespace vitrine
