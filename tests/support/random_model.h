#pragma once
// A model of any configuration with random weights, written to a directory. Needs vitrine_model.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "io/atomic_file.h"
#include "io/safetensors.h"
#include "model/load.h"

namespace vitrine {

/// Writes config.json and f32 weights: uniform of standard deviation 1 / sqrt(inputs) for matrices (embeddings: 0.5),
/// near 1 for norm weights that are not offset.
inline void write_random_model(const std::string& directory, const Json& config, uint64_t seed = 1) {
  write_file_atomically(directory + "/config.json", config.dump());
  ModelFiles files;
  files.config = config;
  files.config_path = directory + "/config.json";
  const std::unique_ptr<Model> model = model_from_config(files);
  std::vector<std::vector<float>> numbers;
  std::vector<TensorToWrite> tensors;
  for (const FileTensor& tensor : file_tensors(*model, false)) {
    int64_t count = 1;
    for (const int64_t size : tensor.shape) count *= size;
    const bool matrix = tensor.shape.size() == 2, embedding = tensor.name.find("embed") != std::string::npos;
    const bool norm = tensor.name.find("norm") != std::string::npos || tensor.name.find("ln_") != std::string::npos;
    const float spread = !matrix ? 0.2f : embedding ? 0.9f : 1.7f / std::sqrt(static_cast<float>(tensor.shape[1]));
    const std::string type = config.value("model_type", "");
    const bool offset = type.starts_with("gemma") && !type.starts_with("gemma4");  // the file's norms hold what is added to 1
    const float center = (norm && !tensor.name.ends_with("bias") && !offset) || tensor.is_constant() ? 1.0f : 0.0f;
    auto& values = numbers.emplace_back(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = center + spread * (2 * uniform_from(philox(seed, i, numbers.size())[0]) - 1);
    tensors.push_back({tensor.name, DType::f32, tensor.shape, nullptr});
  }
  for (size_t i = 0; i < tensors.size(); ++i) tensors[i].data = numbers[i].data();
  write_safetensors(directory + "/model.safetensors", tensors);
}

/// A Mistral of two layers with a window shorter than most prompts.
inline Json small_mistral(int64_t vocab_size) {
  return {{"architectures", {"MistralForCausalLM"}},
          {"model_type", "mistral"},
          {"vocab_size", vocab_size},
          {"hidden_size", 8},
          {"intermediate_size", 8},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"num_key_value_heads", 1},
          {"max_position_embeddings", 2048},
          {"sliding_window", 4},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false}};
}

}  // namespace vitrine
