#pragma once
// One run of a prompt forward and backward, reduced while it happens to lengths of gradients: at every hook whose rows are the
// prompt's tokens, and of each part's parameters. What is kept grows with tokens × layers.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// Euclidean lengths of gradients of the prompt's loss: the mean of -log p(next token) over all tokens but the last.
struct Backward {
  double loss = 0;
  std::vector<double> stream;  // at what enters each layer, and at what leaves the last: layers + 1

  struct Hook {
    std::string name;                        // "blocks.*.attn.hook_q"; "hook_embed" of one outside the layers
    std::vector<std::vector<double>> norms;  // [layer][token]; of a hook outside the layers [0][token]
  };
  std::vector<Hook> hooks;  // in the order of the run

  struct Parameters {
    std::vector<double> attention, mlp;                // by layer, the norms in front of and behind them included
    std::vector<std::pair<std::string, double>> rest;  // by our names: "W_E", "ln_final.w"
    double all = 0;
  };
  std::optional<Parameters> parameters;

  size_t bytes = 0;  // that the tape took at most
};

struct BackwardOptions {
  bool hooks = true;             // all of them; false: those of the stream only
  bool parameters = true;        // takes 4 bytes for each
  const Model* model = nullptr;  // null: the engine's; another form of it (model/rearranged.h) without parameters
};

/// Runs `ids` (two or more) forward and backward. The model's weights stay as they are.
Backward run_backward(Engine& engine, std::span<const int32_t> ids, const BackwardOptions& options = {});

/// Bytes that the tape of such a run takes at most, if it keeps so many layers at once.
size_t backward_bytes(const Model& model, int64_t tokens, int64_t layers);

}  // namespace vitrine
