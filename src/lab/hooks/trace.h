#pragma once
// Intermediates and gradients by name, to a file or to memory.
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hooks/hooks.h"
#include "runtime/engine.h"

namespace vitrine {

struct TraceOptions {
  std::vector<std::string> hooks = {};            // requests as HookQuery describes them; may be empty with gradients
  std::vector<std::string> gradients_at = {};     // hooks at which the gradient is wanted, requested in the same way
  bool gradients = false;                         // of every parameter
  std::vector<std::vector<int32_t>> labels = {};  // of the shape of the sequences; empty: the sequences themselves
  size_t memory = 0;                              // bytes a capture may take; 0: available_memory()
};

/// One tensor of the written file.
struct TracedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

struct Trace {
  std::vector<TracedTensor>
      tensors;       // in the order of the file: hooks in the order of the run, gradients at hooks, gradients of parameters
  size_t bytes = 0;  // of all of them
  std::optional<double> loss;  // with gradients: the mean over all scored labels
  int64_t scored = 0;          // with gradients: how many labels that were
};

/// Runs `sequences` and writes what was asked for to the safetensors file `path`, which is replaced in one step.
///
/// Hooks      `<hook>` for one sequence, `<hook>#<i>` for several; f32. hook_logits is [position, vocab] after any cap; scores
///            and patterns are [head, query, key] over all keys, -inf and 0 where masked.
/// Gradients  `grad.<name in the model's own files>` in that file's shape and layout (GPT-2's [in, out]), tied tensors once,
///            f32 whatever the weights are: of the mean cross-entropy over all scored labels of all sequences. Label t + 1 is
///            scored against the logits at t; -100 is not scored. Dropout is off.
///            At a hook: `grad.<hook>`, as that hook's value: of its rows and shape.
/// The file's metadata holds the tokens ("2,651;2,1175"), so that `verify` can run them again.
///
/// Errors: InputError as Engine::check_ids and plan_captures, for labels of another shape or outside the vocabulary, for
/// nothing to do, and for more bytes than memory holds, with both numbers; RunError from the disk, and for a loss that is NaN
/// or infinite. NaN in a hook is no error: it is shown.
Trace trace(Engine& engine, std::span<const std::vector<int32_t>> sequences, const TraceOptions& options,
            const std::string& path);

/// The same values of one sequence, in memory: the recorder that kept them. `edits`, if given, sees each hook first; what it
/// returns flows on and is what is kept. Errors: as trace.
Recorder trace_to_memory(Engine& engine, std::span<const int32_t> ids, std::span<const std::string> hooks,
                         Listener* edits = nullptr, size_t memory = 0);

/// Gradients of the mean loss by the name in the model's own files. Errors: as trace.
struct LossGradients {
  double loss = 0;
  int64_t scored = 0;
  std::map<std::string, Recorder::Value, std::less<>> gradients;
};
LossGradients loss_gradients(Engine& engine, std::span<const std::vector<int32_t>> sequences,
                             std::span<const std::vector<int32_t>> labels);

/// The same gradients at hooks, for each sequence by the hook's name. Errors: as trace.
struct HookGradients {
  double loss = 0;
  int64_t scored = 0;
  std::vector<std::string> order;  // the hooks, in the order of the run
  std::vector<std::map<std::string, Recorder::Value, std::less<>>> values;
};
HookGradients hook_gradients(Engine& engine, std::span<const std::vector<int32_t>> sequences,
                             std::span<const std::vector<int32_t>> labels, std::span<const std::string> hooks, size_t memory = 0);

}  // namespace vitrine
