#pragma once
// From what a user calls a model to the files it consists of.
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "io/stored_tensor.h"

namespace vitrine {

/// The files of one model.
struct ModelFiles {
  enum class Kind { huggingface, gguf };
  Kind kind = Kind::huggingface;
  std::string name;                    // as the user gave it
  std::string directory;               // where tokenizer files lie: the model's folder, or the folder of the given file
  std::string weights;                 // for open_safetensors or open_gguf; empty if there is only a configuration
  std::string config_path;             // empty for GGUF, which holds its own
  Json config;                         // null for GGUF; of a model that reads more than text, what describes the text's part
  std::string generation_config_path;  // empty if there is none
  Json generation_config;              // null if there is none
  int64_t window = 0;                  // of a GGUF file's attention where its metadata name none, as asked for; 0: not asked for
  bool may_lack_head = false;          // who opens it does without logits: an embedding model's files hold no matrix for them
  bool rewards = false;                // who opens it reads rewards: it is a reward model (model/reward_model.h)
  bool fresh_score = false;            // the files of a language model that becomes one: its score is zeros
  bool untied = false;                 // of a tied model: the head is a matrix of its own with the embedding's numbers
  bool stacked_experts = false;        // its weights hold a matrix of all experts in one tensor, as transformers 5 may write them
};

/// The folder of what huggingface_hub keeps: $HF_HOME, else $XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface.
std::string hub_home();

/// The local Hugging Face cache: $HF_HUB_CACHE, else $HUGGINGFACE_HUB_CACHE, else the folder hub of hub_home().
std::string hub_cache();

/// The folder of "google/gemma-2b" in it: "models--google--gemma-2b". Errors: InputError for what is no id.
std::string cache_folder_name(std::string_view id);

/// The file or directory that `name` means: an existing path as it is, else an id such as "google/gemma-2b" in the cache,
/// at the revision that refs/main names (or at the only one that is there). Of a repository of GGUF files it is the only model
/// that is there; "OWNER/NAME:Q4_K_M" names the one with that type, "OWNER/NAME:FILE" a file. Needs no network and uses none.
/// Errors: FileError that says what was looked for and what to do.
std::string locate_model(std::string_view name, const std::string& cache = hub_cache());

/// Where "OWNER/NAME:FOLDER", such as the folder of an autoencoder, lies in the cache, at the revision that refs/main names
/// (or at the only one that is there); nothing for another form of name. Needs no network and uses none.
/// Errors: FileError that says how to download it.
std::optional<std::string> locate_folder(std::string_view name, const std::string& cache = hub_cache());

/// locate_model, then the files: a directory with config.json; a .gguf file; a .safetensors file with config.json beside
/// it; a bare .json configuration (then there are no weights). Reads the configurations, opens no weights.
/// Errors: FileError, also for a directory without config.json.
ModelFiles resolve_model(std::string_view name, const std::string& cache = hub_cache());

/// Opens the weights by their kind. Errors: FileError; where there are none it says what the directory lacks or holds.
Checkpoint open_weights(const ModelFiles& files);

}  // namespace vitrine
