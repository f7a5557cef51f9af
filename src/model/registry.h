#pragma once
// The table of families.
#include <string_view>
#include <vector>

#include "model/families.h"

namespace vitrine {

struct FamilyEntry {
  const char* name;          // model_type in config.json
  const char* gguf;          // general.architecture; null: the family has no GGUF form
  const char* architecture;  // what config.json's "architectures" calls it
  std::unique_ptr<Model> (*make)(const ModelConfig&);
  std::vector<std::string_view> optional_prefixes;  // of tensor names, which files of the bare model lack
  std::vector<std::string_view> ignored_suffixes;   // of tensors that carry no weights (masks, cached frequencies)
};

/// The family a configuration names. Errors: FileError for an unknown one, listing those that are known.
const FamilyEntry& find_family(const ConfigReader& keys, bool gguf);

/// Marks keys as read that change no number of a forward pass. Errors: FileError for an encoder-decoder.
void ignore_common_keys(const ConfigReader& keys);
void ignore_gguf_keys(const ConfigReader& keys);

}  // namespace vitrine
