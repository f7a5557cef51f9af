#include "intervene/intervene.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "io/stored_tensor.h"
#include "ops/tape.h"
#include "sae/splice.h"

namespace vitrine {
namespace {

// A hook's value as [a, b, c], and what of it an edit touches. Rows are the first axis, except of scores and patterns
// [head, query, key]; a value without heads has one.
struct Part {
  int64_t a_first, a_end, b_first, b_end;  // indices into the value
  int64_t b_size, c_size;
  int64_t a_origin, b_origin;       // which index the first of the edit's numbers stands for
  std::array<int64_t, 3> stride{};  // of the edit's numbers
  bool empty() const { return a_first >= a_end || b_first >= b_end; }
};

std::pair<int64_t, int64_t> clamped(const HookRequest::Range& range, int64_t offset, int64_t size) {
  return {std::clamp<int64_t>(range.first - offset, 0, size), std::clamp<int64_t>(range.end - offset, 0, size)};
}

Part part_of(const ValueEdit& edit, const Tensor& value, int64_t offset) {
  const bool pattern = heads_first(edit.hook);
  const int rank = value.shape().rank();
  const bool heads = rank >= 3;
  Part part{};
  part.b_size = heads ? value.dim(1) : 1;
  part.c_size = value.count() / std::max<int64_t>(1, value.rows() * part.b_size);
  const int64_t rows = value.dim(pattern ? 1 : 0);
  const auto [p_first, p_end] = clamped(edit.positions, offset, rows);
  const int64_t n_heads = pattern ? value.dim(0) : part.b_size;
  const auto [h_first, h_end] = heads ? clamped(edit.heads, 0, n_heads) : std::pair<int64_t, int64_t>{0, 1};
  if (pattern) {
    part.a_first = h_first, part.a_end = h_end, part.b_first = p_first, part.b_end = p_end;
    part.a_origin = h_first, part.b_origin = edit.positions.first - offset;
  } else {
    part.a_first = p_first, part.a_end = p_end, part.b_first = h_first, part.b_end = h_end;
    part.a_origin = edit.positions.first - offset, part.b_origin = h_first;
  }
  if (part.empty() || (edit.kind != ValueEdit::Kind::set && edit.kind != ValueEdit::Kind::add)) return part;

  // The axes of the numbers, from the right: c, then heads (of a value that has them), then positions.
  const auto refuse = [&] {
    throw ShapeError("the numbers for " + edit.hook + " have shape " + shape_text(edit.shape) + " and number " +
                     std::to_string(edit.values.size()) + "; the value is " + value.shape().text() +
                     ", of which positions from " + std::to_string(p_first + offset) + " to " +
                     std::to_string(p_end + offset - 1) +
                     (heads ? " and " + std::to_string(h_end - h_first) + " head(s)" : std::string()) + " are touched");
  };
  std::array<int, 3> axes = {2, heads ? 1 : 0, 0};
  const size_t most = heads ? 3 : 2;
  if (edit.shape.size() > most) refuse();
  int64_t stride = 1;
  for (size_t i = 0; i < edit.shape.size(); ++i) {
    const int64_t size = edit.shape[edit.shape.size() - 1 - i];
    const int axis = axes[i];
    const int64_t needed = axis == 2 ? part.c_size : axis == 1 ? part.b_end - part.b_origin : part.a_end - part.a_origin;
    const bool may_be_longer = (axis == 2 && pattern) || axis == (pattern ? 1 : 0);  // keys and positions still to come
    if (size != 1 && size != needed && !(may_be_longer && size > needed)) refuse();
    part.stride[static_cast<size_t>(axis)] = size == 1 ? 0 : stride;
    stride *= size;
  }
  if (stride != static_cast<int64_t>(edit.values.size())) refuse();
  return part;
}

// Calls f(index into the value, index into the numbers) for everything touched.
template <class F>
void each_touched(const Part& part, F&& f) {
  for (int64_t i = part.a_first; i < part.a_end; ++i)
    for (int64_t j = part.b_first; j < part.b_end; ++j) {
      const int64_t base = (i - part.a_origin) * part.stride[0] + (j - part.b_origin) * part.stride[1];
      for (int64_t c = 0; c < part.c_size; ++c) f((i * part.b_size + j) * part.c_size + c, base + c * part.stride[2]);
    }
}

constexpr size_t kMostSources = 2;
struct EditNode {
  Tensor x, y;
  Tensor sources[kMostSources];
  Part part;
  double kept;  // of the part's gradient that reaches x: 1 add, factor scale, 0 otherwise
};

void edit_backward(Context&, Tape& tape, const EditNode& n) {
  const Tensor dy = tape.gradient(n.y);
  if (!dy) return;
  visit_scalar(dy, [&](auto zero) {
    using T = decltype(zero);
    const T* g = dy.data<T>();
    if (const Tensor dx = tape.accumulate(n.x)) {
      T* out = dx.data<T>();
      for (int64_t i = 0; i < dy.count(); ++i) out[i] += g[i];
      each_touched(n.part, [&](int64_t i, int64_t) { out[i] += g[i] * static_cast<T>(n.kept - 1); });
    }
    for (const Tensor& source : n.sources) {
      if (!source) continue;
      if (const Tensor ds = tape.accumulate(source)) {
        T* out = ds.data<T>();
        each_touched(n.part, [&](int64_t i, int64_t) { out[i] += g[i]; });
      }
    }
  });
}

}  // namespace

Interventions::Interventions(std::vector<ValueEdit> edits) { append(std::move(edits)); }

void Interventions::append(std::vector<ValueEdit> edits) {
  for (ValueEdit& edit : edits) {
    if (edit.sources.size() > kMostSources)
      throw UsageError("an edit of " + edit.hook + " recalls " + std::to_string(edit.sources.size()) + " hooks; at most " +
                       std::to_string(kMostSources) + " can be added");
    by_hook_[edit.hook].push_back(edits_.size());
    for (const std::string& source : edit.sources) sources_.try_emplace(source);
    edits_.push_back(std::move(edit));
  }
}

bool Interventions::wants(std::string_view name) const { return by_hook_.contains(name) || sources_.contains(name); }

Tensor Interventions::with_features(Context& ctx, const ValueEdit& edit, const Tensor& value) const {
  const int64_t position = ctx.listening_position();
  if (edit.sources.empty()) return spliced(ctx, *edit.splice, value, value, position);
  const Source& source = sources_.find(edit.sources[0])->second;
  if (source.bytes.empty() && !source.on_tape)
    throw UsageError("the transcoder at " + edit.hook + " reads " + edit.sources[0] +
                     ", which the run has not reached before it");
  if (source.on_tape) return spliced(ctx, *edit.splice, source.on_tape, value, position);
  const auto numbers = static_cast<int64_t>(source.bytes.size() / sizeof(float));
  const int64_t rows = value.rows();
  const Tensor input(const_cast<std::byte*>(source.bytes.data()), value.dtype(), {rows, rows > 0 ? numbers / rows : 0});
  return spliced(ctx, *edit.splice, input, value, position);
}

Tensor Interventions::edited(Context& ctx, const ValueEdit& edit, const Tensor& given) const {
  if (edit.kind == ValueEdit::Kind::splice) return with_features(ctx, edit, given);
  const bool features = given.shape().rank() == 2 && edit.heads != HookRequest::Range{};
  const Tensor value = features ? given.view({given.dim(0), given.dim(1), 1}) : given;
  const Part part = part_of(edit, value, ctx.listening_position());
  if (part.empty()) return given;
  Tape* const tape = ctx.tape();
  EditNode node{value, ctx.empty(value.shape()), {}, part, 0};
  std::memcpy(node.y.raw(), value.raw(), value.bytes());
  visit_scalar(value, [&](auto zero) {
    using T = decltype(zero);
    T* y = node.y.data<T>();
    const float* numbers = edit.values.data();
    const T factor = static_cast<T>(edit.factor);
    switch (edit.kind) {
      case ValueEdit::Kind::splice: break;  // with_features
      case ValueEdit::Kind::set: each_touched(part, [&](int64_t i, int64_t n) { y[i] = static_cast<T>(numbers[n]); }); break;
      case ValueEdit::Kind::add:
        each_touched(part, [&](int64_t i, int64_t n) { y[i] += factor * static_cast<T>(numbers[n]); });
        node.kept = 1;
        break;
      case ValueEdit::Kind::scale:
        each_touched(part, [&](int64_t i, int64_t) { y[i] *= factor; });
        node.kept = edit.factor;
        break;
      case ValueEdit::Kind::recall:
        each_touched(part, [&](int64_t i, int64_t) { y[i] = 0; });
        for (size_t s = 0; s < edit.sources.size(); ++s) {
          const Source& source = sources_.find(edit.sources[s])->second;
          if (source.bytes.empty() && !source.on_tape)
            throw UsageError(edit.hook + " is to be what " + edit.sources[s] + " was, which the run has not reached before it");
          const size_t bytes = source.on_tape ? source.on_tape.bytes() : source.bytes.size();
          if (bytes != value.bytes())
            throw ShapeError(edit.hook + " " + value.shape().text() + " is to be what " + edit.sources[s] +
                             " was, whose value has another size");
          const T* from = source.on_tape ? source.on_tape.data<T>() : reinterpret_cast<const T*>(source.bytes.data());
          each_touched(part, [&](int64_t i, int64_t) { y[i] += from[i]; });
          node.sources[s] = source.on_tape;
        }
    }
  });
  if (tape != nullptr) tape->record(&edit_backward, node);
  return node.y.view(given.shape());
}

Tensor Interventions::see(Context& ctx, std::string_view name, const Tensor& value) {
  Tensor now = value;
  if (const auto found = by_hook_.find(name); found != by_hook_.end())
    for (const size_t i : found->second) now = edited(ctx, edits_[i], now);
  if (const auto found = sources_.find(name); found != sources_.end()) {
    found->second = {};
    if (ctx.tape() != nullptr) {
      found->second.on_tape = now;
    } else {
      const auto* bytes = static_cast<const std::byte*>(now.raw());
      found->second.bytes.assign(bytes, bytes + now.bytes());
    }
  }
  return now.raw() == value.raw() ? Tensor() : now;
}

}  // namespace vitrine
