#pragma once
// Python functions as a listener, and Ctrl-C while a model runs.
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "arrays.h"
#include "ops/context.h"
#include "ops/step.h"

namespace vitrine::python {

/// Which hooks are shown to Python, and the function that is called with (name, value, position of the first row).
struct HookCalls {
  std::set<std::string, std::less<>> names;  // in full
  nb::object call;                           // returns None, or a float32 array of the value's size that flows on
  // While a tape records: called with (name, gradient at what flowed on), returns that at what the model computed. None: no
  // gradient flows back through these hooks.
  nb::object backward;
};

/// Listens during a run that holds no interpreter lock. The lock is taken on the thread that runs the model (hooks are shown
/// there), for each call and, 20 times a second at most, to see whether a signal came; an exception of either ends the run.
///
/// A function gets a copy of the value, which it may keep: the model's own memory is used again by the next op. What it leaves
/// in that array, or returns instead, flows on. Heard for every sequence of a step, a hook is one array of all of them,
/// [batch, position, …]; behind the end of a shorter one is NaN, and what a function leaves there is dropped. Errors: RunError
/// for NaN or infinity (of scores, which masks make infinite: NaN) that was not in the value, ShapeError for a gradient of
/// another size.
class PythonHooks final : public Listener {
 public:
  explicit PythonHooks(const HookCalls& calls, bool allow_nan = false) : calls_(calls), allow_nan_(allow_nan) {}

  /// What the next run holds, for a listener to every sequence; never called: one sequence is heard.
  void expect(const Step& step) { sequences_ = step.sequences(); }

  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;

 private:
  struct CallNode {
    Tensor before, after;
    const PythonHooks* hooks;
    const char* name;
    size_t length;
  };
  static void call_backward(Context& ctx, Tape& tape, const CallNode& node);
  void record(Tape& tape, std::string_view name, const Tensor& before, const Tensor& after) const;
  Array shown(std::string_view name, const Tensor& value) const;
  void refuse_nan(Context& ctx, std::string_view name, const Tensor& before, const Tensor& after) const;

  const HookCalls& calls_;
  bool allow_nan_;
  std::span<const StepSequence> sequences_;  // that are heard together
};

}  // namespace vitrine::python
