#pragma once
// The local replacement model of one prompt: attention patterns and the scales of norms stay what they were, and what each MLP
// writes is a constant beside a transcoder's linear skip. What is left is linear in what is written into the residual stream, and
// its gradients are direct effects. Ameisen et al. 2025, transformer-circuits.pub/2025/attribution-graphs/methods.html.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/tape.h"
#include "runtime/engine.h"
#include "sae/transcoder_set.h"

namespace vitrine {

/// Something that reads the stream, whose gradient is wanted.
struct StreamReader {
  int64_t layer = 0;             // reads at that layer's transcoder's hook_name; n_layers: at the final norm's output
  int64_t position = 0;          // in the prompt
  std::span<const float> along;  // [d_model]: what it reads is the product with it
};

/// Errors of all: as Engine::check_ids; InputError for a model in which more than attention and MLPs write into the stream, or
/// whose MLPs are not where the transcoders are (check_replaceable).
class LocalReplacement {
 public:
  /// All three must outlive it. `memory`: bytes that what is recorded for gradients may take.
  LocalReplacement(Engine& engine, const TranscoderSet& set, std::span<const int32_t> ids, size_t memory);
  ~LocalReplacement();
  LocalReplacement(const LocalReplacement&) = delete;
  LocalReplacement& operator=(const LocalReplacement&) = delete;

  /// Passes are over the first half of the prompt, a quarter and so on, or all of it: the last position of the shortest that
  /// reaches `position`. Each of them is recorded by a run of its own, so readers come sorted by it.
  int64_t last_position(int64_t position) const;
  /// How many readers at positions up to `last` go through one pass.
  int64_t together(int64_t last) const;

  /// The gradients of what these readers read, of one pass. Later positions than the reader's have none.
  struct Gradients {
    int64_t positions = 0;          // of each copy of the prompt
    std::vector<Tensor> at_output;  // [layer]: [readers · positions, d_model], by what is written there; empty: all zeros
    Tensor at_embedding;            // the same, by hook_embed
    const float* row(const Tensor& of, int64_t reader, int64_t position) const {
      return of.row<float>(reader * positions + position);
    }
  };
  /// Valid until the next call. At most together(last) readers at positions up to `last`, which last_position() gave.
  const Gradients& gradients(std::span<const StreamReader> readers, int64_t last);

 private:
  struct Pass;
  void record(int64_t positions, int64_t copies);

  Engine& engine_;
  const TranscoderSet& set_;
  std::span<const int32_t> ids_;
  size_t memory_;
  std::unique_ptr<Pass> pass_;
  Gradients gradients_;
};

/// Errors: InputError for a set with another number of layers than the model, hooks or widths that are not the model's, and
/// models whose blocks hold recurrences, convolutions, gated heads or embeddings of each layer.
void check_replaceable(const Engine& engine, const TranscoderSet& set);

}  // namespace vitrine
