#pragma once
// LoRA adapters beside a model's matrices, which stay where they lie (arXiv:2106.09685), in the files of PEFT
// (https://huggingface.co/docs/peft, "PEFT checkpoint format"): adapter_config.json and adapter_model.safetensors.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/load.h"
#include "ops/low_rank.h"

namespace vitrine {

/// Of adapters in files and in configurations.
inline constexpr int64_t kLargestRank = 1 << 16;

/// What a fresh adapter is to be. Defaults are PEFT's.
struct AdapterOptions {
  enum class Bias : uint8_t { none, all, of_targets };
  int64_t rank = 8;
  double alpha = 8;
  bool rslora = false;  // scale alpha / sqrt(rank) (arXiv:2312.03732) instead of alpha / rank
  double dropout = 0;   // of what A reads, in training
  /// Modules of the Hugging Face file, each whole or the end of its name: "q_proj", "mlp.c_proj"; "all-linear": every matrix
  /// but embeddings and head. "experts.gate_up_proj" and "experts.down_proj": those matrices of all experts, each with an A and a
  /// B.
  std::vector<std::string> targets;
  bool dora = false;                    // a magnitude for each output beside A and B (ops/low_rank.h)
  Bias bias = Bias::none;               // which biases of the model learn too
  std::vector<std::string> saved = {};  // modules_to_save: ends of names of modules that learn whole
  std::vector<int64_t> tokens = {};     // trainable_token_indices: their rows of the embedding learn, of a tied head too
  /// ensure_weight_tying: what learns at a tied embedding is the head's too. Without it the two part.
  bool tied = false;
};

/// A and B for each adapted matrix of a model, and tensors of the model that learn whole. The values are f32 in memory of its
/// own, or where bind() said.
class Adapter {
 public:
  /// One matrix of the Hugging Face file. Stacked ones (GPT-2's c_attn) are one module of several parts.
  struct Module {
    std::string name;         // "transformer.h.0.attn.c_attn"
    std::string ours;         // of its first part
    int64_t layer = -1;       // of the block it belongs to
    int64_t in = 0, out = 0;  // of the whole matrix
    int64_t rank = 0;
    double alpha = 0;                 // of its scale
    bool by_columns = false;          // the Hugging Face file stores [in, out]
    int64_t experts = 1;              // it holds so many matrices [out, in], each with an A and a B of its own
    bool of_parameter = false;        // PEFT adapts a parameter of a module instead of a module
    bool lookup = false;              // an embedding
    bool exchanged = false;           // PEFT has A and B transposed and exchanged: embeddings, parameters it takes for [out, in]
    bool outside = false;             // an embedding or the head, which all-linear does not mean
    bool also_head = false;           // a tied embedding that stays so: what is beside it is beside the head
    bool dora = false;                // with a magnitude for each output
    bool inner = false;               // of the two parameters of a module, the one whose tensors PEFT calls base_layer's
    std::vector<Weight*> weights;     // the parts, those of one expert after those of another
    std::vector<int64_t> part_sizes;  // outputs of each
    std::vector<LowRank> parts;       // one for each weight; those of one matrix share A
    /// A GGUF file may hold the rows of a matrix in another order: row i of B is row file_row[i] of the file. Empty: the same.
    std::vector<int64_t> file_row;
    std::vector<int64_t> file_column;  // the same of the columns of A
    std::vector<float> values;  // A [experts, rank, in], B [experts, out, rank], magnitudes [out]; empty once bound elsewhere
    std::vector<float> ratios;  // DoRA's, where nothing learns

    int64_t a_count() const { return experts * rank * in; }
    int64_t b_count() const { return experts * out * rank; }
    size_t parts_of_one() const { return parts.size() / static_cast<size_t>(experts); }

    const float* A() const { return reinterpret_cast<const float*>(parts.front().A.data); }
    const float* B() const { return reinterpret_cast<const float*>(parts.front().B.data); }
    const float* magnitudes() const { return static_cast<const float*>(parts.front().magnitude.data); }
    std::string tensor_name(char which) const;  // "base_model.model.<name>.lora_A.weight"; 'M': the magnitudes
  };

  /// A tensor of the Hugging Face file that is another with the adapter: of modules_to_save, or a bias.
  struct Whole {
    std::string name;                     // in the adapter's file: "base_model.model.model.norm.weight"
    FileTensor tensor;                    // where its numbers go; the lines are the model's
    bool lookup = false, product = true;  // the embedding, any other, or both: a tied embedding that stays so
    std::vector<float> values;            // as the file has them; empty once bound elsewhere
    const float* data = nullptr;
    std::vector<Weight> weights;  // of each part, in these values
    std::vector<Vector> vectors;
    std::vector<LowRank> instead;  // of the parts that are matrices
    int64_t count() const;
    bool matrix() const { return tensor.parts.front()->weight != nullptr; }
  };

  /// Rows of an embedding or a head that learn: trainable_token_indices.
  struct Tokens {
    std::string name;  // of the module: "model.embed_tokens"
    Weight* weight = nullptr;
    bool lookup = true, product = false;  // the embedding, the head, or both
    std::vector<float> values;            // [tokens, in]; empty once bound elsewhere
    LowRank part;
    std::string tensor_name() const { return "base_model.model." + name + ".token_adapter.trainable_tokens_delta"; }
  };
  struct Parts {
    std::vector<Module> modules;
    std::vector<Whole> wholes;
    std::vector<Tokens> tokens;
    std::string tied_head = {};  // the head's module where the embedding's tensor is the head's too; empty: each has its own
  };

  /// directory: where it was read from; empty: nowhere.
  Adapter(AdapterOptions options, Parts parts, std::string directory);
  Adapter(const Adapter&) = delete;
  Adapter& operator=(const Adapter&) = delete;

  const AdapterOptions& options() const { return options_; }
  /// Where it was read from; empty: a fresh one.
  const std::string& directory() const { return directory_; }
  /// The files it was read from; none for a fresh one.
  std::vector<std::string> files() const;
  const std::vector<Module>& modules() const { return all_.modules; }
  const std::vector<Whole>& wholes() const { return all_.wholes; }
  const std::vector<Tokens>& tokens() const { return all_.tokens; }
  const std::string& tied_head() const { return all_.tied_head; }
  int64_t parameter_count() const;
  /// For Context::row_adapters.
  const LowRanks& parts() const { return by_weight_; }
  /// No other adapter of this process has it or had it.
  uint64_t id() const { return id_; }
  /// A tensor that learns.
  struct Learned {
    std::string name, ours;
    std::vector<int64_t> shape;
    int64_t layer = -1;
    bool matrix = true;
  };
  std::vector<Learned> learned() const;
  /// Copies the values of each of learned() to where they lie from now on, in the model too where it has them, with gradients
  /// beside.
  void bind(std::span<float* const> values, std::span<float* const> gradients);
  /// Puts the adapter at the model's weights.
  void attach();
  /// Why it cannot act on some rows only; empty: it can.
  std::string only_attached() const;

 private:
  void point(Module& module, const float* A, const float* B, const float* magnitudes);
  void point(Whole& whole, const float* values, float* gradients);
  uint64_t id_;
  AdapterOptions options_;
  Parts all_;
  LowRanks by_weight_;
  bool attached_ = false;
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
/// is as it was; whole tensors begin as the model has them. A tied model may be opened again, as by open_adapter. Errors:
/// InputError for a target that names no module, listing those there are.
void add_fresh_adapter(OpenedModel& opened, const AdapterOptions& options, uint64_t seed);

/// The adapter of a folder that PEFT or write_adapter made, which acts where Context::row_adapters name it: the model's matrices
/// are as they were, and must outlive it. May run while the model does. most_bytes: of its numbers, as f32.
/// Errors: FileError naming what does not fit the model, what is missing, what is larger than most_bytes, and settings that are
/// not supported (initializations that change the base model, and others by name).
std::shared_ptr<const Adapter> read_adapter(const OpenedModel& opened, const std::string& directory,
                                            size_t most_bytes = SIZE_MAX);

/// The files of the adapter of a folder, whether or not they are there.
std::vector<std::string> adapter_files(const std::string& directory);

/// Puts such an adapter beside the model's matrices: every run has it from now on. A tied model is opened again as an untied one
/// if the adapter changes its embedding or its head alone. Errors: as read_adapter.
void open_adapter(OpenedModel& opened, const std::string& directory);

/// The same for an adapter that goes on learning. Errors: also FileError for one that cannot: dropout where there is none in
/// training, and matrices of a GGUF file that PEFT's files cannot hold.
void continue_adapter(OpenedModel& opened, const std::string& directory);

/// Writes adapter_config.json and adapter_model.safetensors into an existing folder. `base` is what the configuration calls
/// the model they belong to.
void write_adapter(const Adapter& adapter, const std::string& directory, const std::string& base);

}  // namespace vitrine
