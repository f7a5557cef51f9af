#pragma once
// Gradients of any number that is made of logits, at hooks, while listeners may change what flows through the model.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "hooks/trace.h"
#include "ops/context.h"
#include "runtime/engine.h"

namespace vitrine {

/// A number made of the logits of all sequences.
class LogitsMetric {
 public:
  virtual ~LogitsMetric() = default;
  /// logits      of each sequence [rows, vocab_size], after the model's cap
  /// derivative  of the same shapes, zeros; becomes the derivative of what is returned by each logit
  virtual double evaluate(std::span<const Tensor> logits, std::span<const Tensor> derivative) = 0;
};

/// `metric` of these sequences (HookGradients::loss), and its gradient at the hooks that `hooks` ask for, each as that hook's
/// value.
///
/// listeners  none, or one for each sequence: what it returns from see() flows on. A replacement is a constant, through which
///            nothing flows back, unless the listener records on the tape how it does (Context::tape). The gradient at a hook is
///            that of what flows on from it.
/// memory     bytes that the gradients may take; 0: what the system has left. Activations of all sequences are held beside them.
///
/// Errors: InputError as Engine::check_ids and plan_captures; RunError if a logit, the metric or its derivative is NaN or
/// infinite.
HookGradients metric_gradients(Engine& engine, std::span<const std::vector<int32_t>> sequences, LogitsMetric& metric,
                               std::span<const std::string> hooks, std::span<Listener* const> listeners = {}, size_t memory = 0);

}  // namespace vitrine
