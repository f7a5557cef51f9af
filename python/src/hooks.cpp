#include "hooks.h"

#include <cstring>
#include <vector>

#include "engine/engine.h"

namespace vitrine::python {

bool PythonHooks::wants(std::string_view name) const {
  return name.ends_with(".hook_resid_pre") || calls_.names.contains(name);  // the first: once a layer, for check_signals
}

Tensor PythonHooks::see(Context& ctx, std::string_view name, const Tensor& value) {
  check_signals();
  if (!calls_.names.contains(name)) return {};
  std::vector<int64_t> shape;
  for (int i = 0; i < value.shape().rank(); ++i) shape.push_back(value.dim(i));
  const Tensor changed = ctx.empty(value.shape());

  const nb::gil_scoped_acquire lock;
  const float* numbers = value.data<float>();
  const Array shown = batch_of_one(FloatVector(numbers, numbers + value.count()), shape);
  const nb::object argument = nb::cast(shown);
  const nb::object returned = calls_.call(text(name), argument, ctx.listening_position());
  if (returned.is_none()) {
    std::memcpy(changed.raw(), shown.data(), changed.bytes());
    refuse_nan(ctx, name, value, changed);
    return changed;
  }
  const auto replacement = nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(returned);
  if (replacement.nbytes() != changed.bytes())
    throw ShapeError("the replacement for " + std::string(name) + " has " + std::to_string(replacement.size()) +
                     " numbers; expected " + std::to_string(value.count()));
  std::memcpy(changed.raw(), replacement.data(), changed.bytes());
  refuse_nan(ctx, name, value, changed);
  return changed;
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
