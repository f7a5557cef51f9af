#pragma once
// What a model is: from its files' headers, or from a config.json alone.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "inspect/run_memory.h"
#include "model/load.h"

namespace vitrine {

struct InfoOptions {
  int64_t context = 0;     // positions for the cache's size; 0: the model's context, 2048 where that is without end
  int64_t batch = 1;       // sequences for the cache's size
  int64_t window = 0;      // of a GGUF file that names none (ModelFiles::window)
  Numerics numerics = {};  // what the caller would run with
  std::optional<DType> cache_keys = {}, cache_values = {};  // nothing: as decoding takes them (cache_types_for)
  std::optional<StepSize> step = {};                        // a step whose ops are listed; it takes the cache's types
};

struct ModelInfo {
  std::string name, path;  // as given; the folder or file it was found at
  std::string kind;        // "huggingface", "gguf" or "config" (no weights)
  ModelShape shape;
  std::vector<int64_t> windows;  // of each layer; kNoWindow: global
  bool chunked = false;          // windows are chunks: a position sees those of its own chunk
  bool causal = true;            // false: layers see what comes later, too
  bool has_head = true;          // false: the files hold no output matrix, as those of embedding models
  int64_t parameters = 0;        // as transformers' num_parameters(): tied ones once
  int64_t embedding_parameters = 0;
  std::string packing;                          // how the files pack weights, which are unpacked here: "fp8"; mostly empty
  std::map<std::string, int64_t> stored_bytes;  // by element type; empty without weights
  /// Of the embedding, attention, convolutions, recurrences, MLPs, head and the rest, in this order: bytes by element type. Empty
  /// without weights.
  std::vector<std::pair<std::string, std::map<std::string, int64_t>>> groups;
  double bits_per_weight = 0;                                             // of what is stored; 0 without weights
  int64_t f32_bytes = 0, bf16_bytes = 0, q8_0_bytes = 0, q4_0_bytes = 0;  // of the weights stored so; vectors stay f32
  int64_t context = 0, batch = 1;
  int64_t cache_bytes = 0;          // of keys and values at that context and batch, as this program keeps them
  int64_t cache_bytes_full = 0;     // the same without windows
  int64_t bytes_per_position = 0;   // of keys and values while no window is full
  RunMemory run;                    // what a run of a prompt of that many tokens takes at its peak
  std::vector<std::string> hooks;   // every name
  std::vector<FileTensor> tensors;  // of the model's own files
  std::string tokenizer;            // its description; empty if there is none
  std::string no_tokenizer;         // why there is none
  bool chat_template = false;
  std::string kernels;   // the target chosen on this machine
  std::string compute;   // "auto" or "f32"
  std::string numerics;  // one sentence: in which type products are computed
  Json step;             // inspect/step_json.h; null unless asked for
};

/// Opens the headers of `model` (as --model takes it); runs nothing, reads no weights.
/// Errors: FileError as open_model; UsageError for a context longer than the model's or a batch that is no size.
ModelInfo model_info(std::string_view model, const InfoOptions& options = {});

/// "blocks.*.attn.hook_q" for each layer's, in the order of the run, once.
std::vector<std::string> hook_patterns(const std::vector<std::string>& names);

Json to_json(const ModelInfo& info);

}  // namespace vitrine
