#pragma once
// From files to a model that runs.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/gguf.h"
#include "io/huggingface.h"
#include "model/model.h"

namespace vitrine {

class Adapter;

/// A model with the files its weights lie in.
struct OpenedModel {
  ModelFiles files;
  std::unique_ptr<GgufMetadata> gguf;  // of a GGUF file: also its vocabulary and chat template
  Checkpoint checkpoint{""};
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<float[]>> widened;  // vectors stored in 16 bit, as f32 (a few KB a layer)
  std::shared_ptr<Adapter> adapter;               // what stands beside the matrices (model/adapter.h), or null
};

/// Maps and checks a model's files: every tensor of the family's table is there in its shape, and nothing else is.
/// Nothing is read but headers and the small vectors. Errors: FileError.
OpenedModel open_model(std::string_view name);
/// The same for files that were resolved before, whose configuration may have been changed since.
OpenedModel open_model(ModelFiles files);
/// As open_model, for who looks at names, types and sizes alone: packed weights (model/packed_weights.h) are not unpacked.
OpenedModel open_headers(ModelFiles files);

/// Whether a Hugging Face directory has a tensor that holds a matrix of all experts, as transformers 5 may write them; else each
/// expert has tensors of its own. The family's list of tensors follows it (ModelFiles::stacked_experts).
bool holds_stacked_experts(const Checkpoint& checkpoint);

/// The family and its sizes from a configuration alone; weights are not looked for.
std::unique_ptr<Model> model_from_config(const ModelFiles& files);

/// Divisors of RoPE's frequencies that GGUF holds as tensors; empty: the model has none.
struct GgufRopeTensors {
  std::vector<float> frequencies;                  // rope_freqs.weight: Llama 3.1's rule
  std::vector<float> short_factors, long_factors;  // rope_factors_short.weight, rope_factors_long.weight: LongRoPE
};

/// The model that GGUF metadata describe: `keys` without the architecture's prefix, and its tensors of RoPE's divisors,
/// which must outlive it. Whether the head is tied and where biases are, which a file shows by its tensors, `keys` say as
/// tie_word_embeddings, attention_bias and mlp_bias.
std::unique_ptr<Model> model_from_gguf_keys(const std::string& architecture, Json keys, const GgufRopeTensors& rope,
                                            const std::string& path);

/// Families by the names in their files, for messages: "gemma, gemma2, gpt2, …".
std::string known_families();

/// Parameters of a model: every number of every tensor once (tied ones once).
int64_t parameter_count(const Model& model);

/// A tensor of the model's own file, where gradients and fresh weights go. Stacked tensors (GPT-2's c_attn) are one entry.
struct FileTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool by_columns = false;               // the Hugging Face file stores [in, out]
  std::vector<const TensorLine*> parts;  // what it holds, in the order of its outputs
  int64_t turn = 0, turns = 1;           // of these only the outputs turn, turn + turns, turn + 2 turns, …

  /// Seen as rows of its last axis; a vector is one column.
  int64_t rows() const;
  int64_t width() const { return shape.size() > 1 ? shape.back() : 1; }
  /// No parameter.
  bool is_constant() const { return parts.front()->layout.constant; }
};
/// In the order of the run. The lines are the model's.
std::vector<FileTensor> file_tensors(const Model& model, bool gguf);

/// Buffers for the gradients of all parameters, each in the shape and layout of the model's own file, bound to the model
/// while this lives. dtype: the activations' (f32 or f64).
class Gradients {
 public:
  Gradients(const Model& model, bool gguf, DType dtype = DType::f32);
  ~Gradients();
  Gradients(const Gradients&) = delete;
  Gradients& operator=(const Gradients&) = delete;

  void zero();
  struct Buffer {
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
  };
  /// By the name in the model's own file.
  const std::map<std::string, Buffer>& buffers() const { return buffers_; }

 private:
  const Model& model_;
  std::map<std::string, Buffer> buffers_;
};

}  // namespace vitrine
