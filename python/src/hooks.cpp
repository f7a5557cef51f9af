#include "hooks.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <vector>

#include "base/error.h"
#include "ops/every_sequence.h"
#include "ops/recorder.h"
#include "ops/step.h"
#include "ops/tape.h"
#include "runtime/engine.h"
#include "signals.h"

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

namespace {

constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();

// The sequences that a listener hears, where they are several of different lengths; nothing otherwise.
std::span<const StepSequence> ragged(std::span<const StepSequence> all) {
  const bool equal = std::all_of(all.begin(), all.end(), [&](const StepSequence& s) { return s.rows == all[0].rows; });
  return equal ? std::span<const StepSequence>() : all;
}

// Rows that are given [row, …], each sequence's to its own lines of [sequence, line, …], or the other way.
template <class Copy>
void each_sequence(std::span<const StepSequence> sequences, int64_t row_size, Copy&& copy) {
  const int64_t lines = longest(sequences);
  for (size_t i = 0; i < sequences.size(); ++i)
    copy(sequences[i].first_row * row_size, static_cast<int64_t>(i) * lines * row_size, sequences[i].rows * row_size);
}

// What lies behind the queries of a shorter sequence in [sequence, head, query, key].
void blank_queries(std::span<const StepSequence> sequences, const Tensor& like, float* values) {
  const int64_t heads = like.dim(1), queries = like.dim(2), keys = like.dim(3);
  for (const StepSequence& s : sequences)
    for (int64_t h = 0; h < heads; ++h, values += queries * keys)
      std::fill(values + s.rows * keys, values + queries * keys, kNothing);
}

}  // namespace

Array PythonHooks::shown(std::string_view name, const Tensor& value) const {
  const float* const numbers = value.data<float>();
  const auto sequences = ragged(sequences_);
  std::vector<int64_t> shape;
  for (int i = 0; i < value.shape().rank(); ++i) shape.push_back(value.dim(i));
  const int64_t batch = std::max<int64_t>(1, std::ssize(sequences_));
  if (heads_first(name)) {  // several have their axis in front
    if (batch == 1) shape.insert(shape.begin(), 1);
    FloatVector copy(numbers, numbers + value.count());
    if (!sequences.empty()) blank_queries(sequences, value, copy.data());
    return array_of(std::move(copy), shape);
  }
  if (shape.size() == 1) shape.push_back(1);  // a norm's scale, as TransformerLens has it
  if (sequences.empty()) {
    shape[0] /= batch;
    shape.insert(shape.begin(), batch);
    return array_of(FloatVector(numbers, numbers + value.count()), shape);
  }
  shape[0] = longest(sequences);
  shape.insert(shape.begin(), batch);
  FloatVector padded(static_cast<size_t>(batch * shape[1] * value.row_size()), kNothing);
  each_sequence(sequences, value.row_size(),
                [&](int64_t row, int64_t line, int64_t n) { std::copy_n(numbers + row, n, padded.data() + line); });
  return array_of(std::move(padded), shape);
}

Tensor PythonHooks::see(Context& ctx, std::string_view name, const Tensor& value) {
  check_signals();
  if (!calls_.names.contains(name)) return {};
  const Tensor changed = ctx.empty(value.shape());

  {
    const nb::gil_scoped_acquire lock;
    const Array seen = shown(name, value);
    const nb::object argument = nb::cast(seen);
    const nb::object returned = calls_.call(text(name), argument, ctx.listening_position());
    const float* left = seen.data();
    GivenNumbers replacement;
    if (!returned.is_none()) {
      replacement = nb::cast<GivenNumbers>(returned);
      if (replacement.size() != seen.size())
        throw ShapeError("the replacement for " + std::string(name) + " has " + std::to_string(replacement.size()) +
                         " numbers; expected " + std::to_string(seen.size()));
      left = replacement.data();
    }
    const auto sequences = ragged(sequences_);
    if (sequences.empty()) {
      std::memcpy(changed.raw(), left, changed.bytes());
    } else if (heads_first(name)) {  // queries behind a sequence's end are the model's own
      std::memcpy(changed.raw(), value.raw(), changed.bytes());
      const int64_t heads = value.dim(1), queries = value.dim(2), keys = value.dim(3);
      for (size_t i = 0; i < sequences.size(); ++i)
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t at = (static_cast<int64_t>(i) * heads + h) * queries * keys;
          std::copy_n(left + at, sequences[i].rows * keys, changed.data<float>() + at);
        }
    } else {
      each_sequence(sequences, value.row_size(),
                    [&](int64_t row, int64_t line, int64_t n) { std::copy_n(left + line, n, changed.data<float>() + row); });
    }
  }
  refuse_nan(ctx, name, value, changed);
  if (Tape* const tape = ctx.tape(); tape != nullptr && calls_.backward.is_valid() && !calls_.backward.is_none())
    record(*tape, name, value, changed);
  return changed;
}

void PythonHooks::record(Tape& tape, std::string_view name, const Tensor& before, const Tensor& after) const {
  tape.record(&call_backward, CallNode{before, after, this, tape.keep(std::span(name.data(), name.size())), name.size()});
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
  const bool several = sequences_.size() > 1;
  const ShownRow where = several ? shown_row(sequences_, now.row, heads_first(name)) : ShownRow{0, now.row};
  throw RunError("the hook function at " + std::string(name) + " left NaN or infinity at position " +
                 std::to_string(ctx.listening_position() + where.row) +
                 (several ? " of row " + std::to_string(where.sequence) : "") +
                 ", where there was none; mend the function, or run with "
                 "allow_nan=True (run_with_cache) to see what follows from it");
}

}  // namespace vitrine::python
