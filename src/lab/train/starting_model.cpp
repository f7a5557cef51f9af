#include "train/starting_model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "io/file_checks.h"
#include "model/config_file.h"
#include "model/from_gguf.h"
#include "model/reward_model.h"
#include "train/initialize.h"

namespace vitrine {
namespace {

// A model's configuration with the dropout and the form that were asked for. checkpoint: what a run goes on from, or nothing.
Json shaped(Json model_config, const TrainConfig& config, const std::string& checkpoint) {
  model_config = with_dropout(std::move(model_config), config);
  Json formed = with_form(model_config, config);
  if (!checkpoint.empty() && formed != model_config)
    throw InputError(config.path +
                     ": model.norms, model.residual and the other parts of the model must not change when a run is resumed. " +
                     checkpoint + " was trained with others; begin a new run from it with model: and another out:");
  return formed;
}

// The files of the model that learning starts from.
ModelFiles files_of(const TrainConfig& config, const std::string& checkpoint) {
  ModelFiles files;
  // An adapter's checkpoint holds the adapter alone.
  const std::string start = !checkpoint.empty() && !config.lora ? checkpoint : config.model;
  if (start.empty() && !config.config.is_null()) {  // written out in the YAML file
    files.name = files.config_path = config.config_path;
    files.config = config.config;
  } else {
    files = resolve_model(start.empty() ? config.config_path : start);
  }
  if (!config.tokenizer.empty() && (checkpoint.empty() || config.lora)) {
    const bool folder = is_folder(config.tokenizer);
    if (!folder || !has_tokenizer_files(config.tokenizer))
      throw InputError(config.path + ": model.tokenizer is " + config.tokenizer + ", which " +
                       (folder ? "holds no tokenizer" : "is no folder") +
                       "; expected a folder with tokenizer.json, tokenizer.model or vocab.json and merges.txt");
    files.directory = config.tokenizer;
  }
  return files;
}

// Checkpoints are Hugging Face directories, so a GGUF model that learns takes that form from the start.
OpenedModel opened_from_gguf(ModelFiles files, const TrainConfig& config) {
  OpenedModel gguf = open_model(std::move(files));
  Json model_config = shaped(huggingface_config(gguf), config, "");
  OpenedModel opened = as_huggingface(std::move(gguf), std::move(model_config));
  if (!config.tokenizer.empty()) {
    opened.gguf = nullptr;
    opened.files.directory = config.tokenizer;
  }
  return opened;
}

}  // namespace

OpenedModel open_starting_model(const TrainConfig& config, const std::string& checkpoint) {
  ModelFiles files = files_of(config, checkpoint);
  if (config.rewards()) open_for_rewards(files, config.path + ": reward_model");
  if (files.kind == ModelFiles::Kind::gguf) {
    if (!config.lora) return opened_from_gguf(std::move(files), config);
    if (std::max({config.dropout_embedding.value_or(0), config.dropout_attention.value_or(0),
                  config.dropout_residual.value_or(0)}) > 0)
      throw InputError(config.path + ": dropout is set, and " + files.weights +
                       " is a GGUF file, whose models have none beside an adapter. Set lora.dropout instead");
    if (!config.tokenizer.empty())
      throw InputError(config.path + ": model.tokenizer is set, and an adapter beside a GGUF file reads with the vocabulary in " +
                       files.weights + ". Leave it out");
    return open_model(std::move(files));
  }
  files.config = shaped(std::move(files.config), config, checkpoint);
  if (checkpoint.empty() && config.model.empty()) {
    OpenedModel opened;
    set_config_unpacked(files.config);  // fresh weights are not packed
    opened.model = model_from_config(files);
    opened.files = std::move(files);
    return opened;
  }
  OpenedModel opened = open_model(std::move(files));
  if (opened.files.fresh_score) initialize_score(opened, config.seed);
  return config.lora ? std::move(opened) : as_huggingface(std::move(opened));
}

Json given_model_config(const TrainConfig& config, bool goes_on) {
  if (!config.model.empty()) return nullptr;
  if (!config.config.is_null()) return config.config;
  try {
    return resolve_model(config.config_path).config;
  } catch (const InputError&) {
    if (!goes_on) throw;
    return nullptr;
  }
}

}  // namespace vitrine
