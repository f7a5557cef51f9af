#include "hooks.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"
#include "ops/tape.h"

namespace vitrine::python {
namespace {

using GivenNumbers = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;

Array copied(const Tensor& t) {
  std::vector<int64_t> shape;
  for (int i = 0; i < t.shape().rank(); ++i) shape.push_back(t.dim(i));
  const float* numbers = t.data<float>();
  return batch_of_one(FloatVector(numbers, numbers + t.count()), shape);
}

}  // namespace

bool PythonHooks::wants(std::string_view name) const {
  return name.ends_with(".hook_resid_pre") || calls_.names.contains(name);  // the first: once a layer, for check_signals
}

Tensor PythonHooks::see(Context& ctx, std::string_view name, const Tensor& value) {
  check_signals();
  if (!calls_.names.contains(name)) return {};
  const Tensor changed = ctx.empty(value.shape());

  {
    const nb::gil_scoped_acquire lock;
    const Array shown = copied(value);
    const nb::object argument = nb::cast(shown);
    const nb::object returned = calls_.call(text(name), argument, ctx.listening_position());
    if (returned.is_none()) {
      std::memcpy(changed.raw(), shown.data(), changed.bytes());
    } else {
      const auto replacement = nb::cast<GivenNumbers>(returned);
      if (replacement.nbytes() != changed.bytes())
        throw ShapeError("the replacement for " + std::string(name) + " has " + std::to_string(replacement.size()) +
                         " numbers; expected " + std::to_string(value.count()));
      std::memcpy(changed.raw(), replacement.data(), changed.bytes());
    }
  }
  refuse_nan(ctx, name, value, changed);
  if (Tape* const tape = ctx.tape(); tape != nullptr && calls_.backward.is_valid() && !calls_.backward.is_none())
    record(*tape, name, value, changed);
  return changed;
}

void PythonHooks::record(Tape& tape, std::string_view name, const Tensor& before, const Tensor& after) const {
  char* const kept = static_cast<char*>(tape.arena().allocate(name.size()));
  std::memcpy(kept, name.data(), name.size());
  tape.record(&call_backward, CallNode{before, after, this, kept, name.size()});
}

void PythonHooks::call_backward(Context&, Tape& tape, const CallNode& node) {
  const Tensor after = tape.gradient(node.after), before = tape.accumulate(node.before);
  if (!after || !before) return;
  const std::string name(node.name, node.length);
  const nb::gil_scoped_acquire lock;
  const nb::object returned = node.hooks->calls_.backward(text(name), nb::cast(copied(after)));
  const auto given = nb::cast<GivenNumbers>(returned);
  if (given.size() != static_cast<size_t>(before.count()))
    throw ShapeError("the gradient that flows back through the functions at " + name + " has " + std::to_string(given.size()) +
                     " numbers; expected " + std::to_string(before.count()));
  for (size_t i = 0; i < given.size(); ++i) before.data<float>()[i] += given.data()[i];
}

void PythonHooks::refuse_nan(Context& ctx, std::string_view name, const Tensor& before, const Tensor& after) const {
  if (allow_nan_) return;
  FirstNotFinite now, then;
  now.see(ctx, name, after);
  if (now.row < 0) return;
  then.see(ctx, name, before);
  if (then.row >= 0) return;  // the model made it
  throw RunError("the hook function at " + std::string(name) + " left NaN or infinity at position " +
                 std::to_string(ctx.listening_position() + now.row) +
                 ", where there was none; mend the function, or run with "
                 "allow_nan=True (run_with_cache) to see what follows from it");
}

void PythonHooks::check_signals() {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (now - checked_ < 50ms) return;
  checked_ = now;
  const nb::gil_scoped_acquire lock;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace vitrine::python
