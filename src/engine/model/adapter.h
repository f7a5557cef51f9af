#pragma once
// LoRA adapters beside a model's matrices, which stay where they lie (arXiv:2106.09685), in the files of PEFT
// (https://huggingface.co/docs/peft, "PEFT checkpoint format"): adapter_config.json and adapter_model.safetensors.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/load.h"
#include "ops/low_rank.h"

namespace vitrine {

/// What a fresh adapter is to be. Defaults are PEFT's.
struct AdapterOptions {
  int64_t rank = 8;
  double alpha = 8;
  bool rslora = false;  // scale alpha / sqrt(rank) (arXiv:2312.03732) instead of alpha / rank
  double dropout = 0;   // of what A reads, in training
  /// Modules of the Hugging Face file, each whole or the end of its name: "q_proj", "mlp.c_proj"; "all-linear": every matrix
  /// of every block. "experts.gate_up_proj" and "experts.down_proj": those matrices of all experts, each with an A and a B.
  std::vector<std::string> targets;
};

/// A and B for each adapted matrix of a model. The values are f32 in memory of its own, or where bind() said.
class Adapter {
 public:
  /// One matrix of the Hugging Face file. Stacked ones (GPT-2's c_attn) are one module of several parts.
  struct Module {
    std::string name;         // "transformer.h.0.attn.c_attn"
    std::string ours;         // of its first part
    int64_t layer = -1;       // of the block it belongs to
    int64_t in = 0, out = 0;  // of the whole matrix
    int64_t rank = 0;
    bool by_columns = false;          // the Hugging Face file stores [in, out]
    int64_t experts = 1;              // it holds so many matrices [out, in], each with an A and a B of its own
    bool of_parameter = false;        // PEFT adapts a parameter of a module instead of a module
    bool inner = false;               // of the two parameters of a module, the one whose tensors PEFT calls base_layer's
    std::vector<Weight*> weights;     // the parts, those of one expert after those of another
    std::vector<int64_t> part_sizes;  // outputs of each
    std::vector<LowRank> parts;       // one for each weight; those of one matrix share A
    /// A GGUF file may hold the rows of a matrix in another order: row i of B is row file_row[i] of the file. Empty: the same.
    std::vector<int64_t> file_row;
    std::vector<int64_t> file_column;  // the same of the columns of A
    std::vector<float> values;         // A [experts, rank, in], then B [experts, out, rank]; empty once bound elsewhere

    int64_t a_count() const { return experts * rank * in; }
    int64_t b_count() const { return experts * out * rank; }
    size_t parts_of_one() const { return parts.size() / static_cast<size_t>(experts); }

    const float* A() const { return reinterpret_cast<const float*>(parts.front().A.data); }
    const float* B() const { return reinterpret_cast<const float*>(parts.front().B.data); }
    std::string tensor_name(char which) const;  // "base_model.model.<name>.lora_A.weight"
  };

  /// directory: where it was read from; empty: nowhere.
  Adapter(AdapterOptions options, std::vector<Module> modules, std::string directory);
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const AdapterOptions& options() const { return options_; }
  /// Where it was read from; empty: a fresh one.
  const std::string& directory() const { return directory_; }
  /// The files it was read from; none for a fresh one.
  std::vector<std::string> files() const;
  const std::vector<Module>& modules() const { return modules_; }
  int64_t parameter_count() const;
  /// For Context::row_adapters.
  const LowRanks& parts() const { return by_weight_; }
  /// No other adapter of this process has it or had it.
  uint64_t id() const { return id_; }
  /// Copies a module's values to A [experts, rank, in] and B [experts, out, rank], reads them there from now on, and adds
  /// gradients beside.
  void bind(size_t module, float* A, float* B, float* grad_A, float* grad_B);

 private:
  void point(Module& module, const float* A, const float* B);
  uint64_t id_;
  AdapterOptions options_;
  std::vector<Module> modules_;
  LowRanks by_weight_;
  std::string directory_;
};

/// An adapter that some text is run with, and how much of it.
struct ScaledAdapter {
  std::shared_ptr<const Adapter> adapter;
  double scale = 1;
};
using ScaledAdapters = std::vector<ScaledAdapter>;

/// Adds them to `to`, for rows [first, first + rows) of a step; the adapters must outlive what is made of that.
void add_row_adapters(const ScaledAdapters& adapters, int64_t first, int64_t rows, std::vector<RowAdapter>& to);

/// Puts a fresh adapter beside the model's matrices: A from U(-1/sqrt(in), 1/sqrt(in)) by `seed`, B zero, so that the model
/// is as it was. Errors: InputError for a target that names no module, listing those there are.
void add_fresh_adapter(OpenedModel& opened, const AdapterOptions& options, uint64_t seed);

/// The adapter of a folder that PEFT or write_adapter made, which acts where Context::row_adapters name it: the model's matrices
/// are as they were, and must outlive it. May run while the model does. most_bytes: of its numbers, as f32.
/// Errors: FileError naming what does not fit the model, what is missing, what is larger than most_bytes, and settings that are
/// not supported (DoRA, trained biases, adapted embeddings, initializations that change the base model).
std::shared_ptr<const Adapter> read_adapter(const OpenedModel& opened, const std::string& directory,
                                            size_t most_bytes = SIZE_MAX);

/// The files of the adapter of a folder, whether or not they are there.
std::vector<std::string> adapter_files(const std::string& directory);

/// Puts such an adapter beside the model's matrices: every run has it from now on. Errors: as read_adapter.
void open_adapter(OpenedModel& opened, const std::string& directory);

/// Writes adapter_config.json and adapter_model.safetensors into an existing folder. `base` is what the configuration calls
/// the model they belong to.
void write_adapter(const Adapter& adapter, const std::string& directory, const std::string& base);

}  // namespace vitrine
