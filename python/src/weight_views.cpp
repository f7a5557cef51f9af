#include "weight_views.h"

#include <nanobind/ndarray.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "arrays.h"
#include "base/error.h"
#include "base/nearest.h"
#include "model/layer_name.h"
#include "model/stacked_attention.h"
#include "ops/low_rank.h"

namespace vitrine::python {
namespace {

namespace nb = nanobind;

struct NamedWeight {
  std::string name;
  const Weight* matrix = nullptr;
  const Vector* vector = nullptr;
  const TensorLine* line = nullptr;
};

// What a stored number stands for in the model: offset + factor · number, or -exp of it.
struct Meaning {
  float offset = 0, factor = 1;
  bool minus_exp = false;
  bool as_stored() const { return offset == 0 && factor == 1 && !minus_exp; }
  float of(float stored) const { return minus_exp ? -std::exp(stored) : offset + factor * stored; }
};

Meaning meaning_of(const Session& session, const NamedWeight& w) {
  const Model& model = session.engine.model();
  const Head head = model.head();
  Meaning meaning;
  // The table that is looked up is scaled on its way into the stream, the head on its way to the logits.
  if (w.name == "W_E") meaning.factor = static_cast<float>(model.shape().embedding_scale);
  if (w.name == "W_U") meaning.factor = static_cast<float>(head.scale);
  if (w.line == nullptr || model.shape().n_layers == 0) return meaning;
  if (w.line->layout.gguf_offset != 0) meaning.offset = static_cast<float>(model.layer(0).norm.offset);
  if (w.line->layout.gguf_minus_exp) {
    const auto delta = model.layer(split_layer(w.name).first).delta;
    meaning.minus_exp = delta && delta->A_is_log;
  }
  return meaning;
}

// Weight tables call a bias by its matrix or by its own name; here it always has its own.
std::vector<NamedWeight> weights_of(const Session& session) {
  std::vector<NamedWeight> found;
  for (const TensorLine& line : session.engine.model().tensors()) {
    std::string name = line.ours;
    const size_t last = name.rfind('.') + 1;  // 0 if there is none
    if (line.vector != nullptr && name.compare(last, 2, "W_") == 0) name[last] = 'b';
    found.push_back({std::move(name), line.weight, line.vector, &line});
  }
  return found;
}

// Numbers that arrays may look at as long as they like.
nb::object view(const float* data, const std::vector<size_t>& shape, const std::vector<int64_t>& strides, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, const float>(data, shape.size(), shape.data(), owner, strides.data()));
}

nb::object copy(std::vector<float> numbers, const std::vector<size_t>& shape) {
  auto kept = std::make_unique<std::vector<float>>(std::move(numbers));
  const float* data = kept->data();
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  kept.release();
  return nb::cast(nb::ndarray<nb::numpy, const float>(data, shape.size(), shape.data(), owner));
}

nb::capsule keep_alive(const std::shared_ptr<Session>& session) {
  auto kept = std::make_unique<std::shared_ptr<Session>>(session);
  nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<Session>*>(p); });
  kept.release();
  return owner;
}

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % alignof(float) == 0; }

nb::object matrix_array(const std::shared_ptr<Session>& session, const Weight& w, const Meaning& meaning, bool merged) {
  const std::vector<size_t> shape = {static_cast<size_t>(w.out), static_cast<size_t>(w.in)};
  const LowRank* const adapter = merged ? w.adapter : nullptr;
  if (meaning.as_stored() && adapter == nullptr && w.dtype == DType::f32 && aligned(w.data) && w.stride % sizeof(float) == 0) {
    const auto step = static_cast<int64_t>(w.stride / sizeof(float));
    const std::vector<int64_t> strides = w.by_columns ? std::vector<int64_t>{1, step} : std::vector<int64_t>{step, 1};
    return view(reinterpret_cast<const float*>(w.data), shape, strides, keep_alive(session));
  }
  std::vector<float> numbers(shape[0] * shape[1]);
  {
    const nb::gil_scoped_release unlocked;
    for (int64_t j = 0; j < w.out; ++j) {
      float* const row = numbers.data() + j * w.in;
      for (int64_t i = 0; i < w.in; ++i) row[i] = w.at<float>(j, i);
      if (adapter != nullptr) add_merged(*adapter, j, row);
      for (int64_t i = 0; i < w.in && !meaning.as_stored(); ++i) row[i] = meaning.of(row[i]);
    }
  }
  return copy(std::move(numbers), shape);
}

nb::object vector_array(const std::shared_ptr<Session>& session, const Vector& v, const Meaning& meaning) {
  const std::vector<size_t> shape = {static_cast<size_t>(v.size)};
  if (meaning.as_stored() && v.dtype == DType::f32 && aligned(v.data))
    return view(static_cast<const float*>(v.data), shape, {1}, keep_alive(session));
  std::vector<float> numbers(shape[0]);
  for (int64_t i = 0; i < v.size; ++i) numbers[static_cast<size_t>(i)] = meaning.of(v.at<float>(i));
  return copy(std::move(numbers), shape);
}

// W_Q, W_K or W_V, or a bias of theirs, of a family that stacks them ("blocks.3.attn.W_Q"); nothing for other names.
nb::object part_of_stacked(const Session& session, std::string name) {
  const SplitHeads heads(session.engine.model());
  const size_t letter = name.rfind('.') + 1;
  const bool bias = name.compare(letter, 2, "b_") == 0;
  if (bias) name[letter] = 'W';
  const Weight* const w = heads.find(name);
  if (w == nullptr || (bias && !w->bias)) return {};
  const auto out = static_cast<size_t>(w->out), in = static_cast<size_t>(w->in);
  const auto* const from = bias ? static_cast<const float*>(w->bias.data) : reinterpret_cast<const float*>(w->data);
  if (bias) return copy({from, from + out}, {out});
  return copy({from, from + out * in}, {out, in});
}

}  // namespace

std::vector<std::string> weight_names(Session& session) {
  std::vector<std::string> names;
  for (const NamedWeight& w : weights_of(session))
    if (w.matrix != nullptr || *w.vector) names.push_back(w.name);
  return names;
}

nb::object weight(const std::shared_ptr<Session>& session, const nb::str& text, bool raw) {
  const std::string name = utf8(text);
  const auto shown = [&](const NamedWeight& w) {
    const Meaning meaning = raw ? Meaning{} : meaning_of(*session, w);
    return w.matrix != nullptr ? matrix_array(session, *w.matrix, meaning, !raw) : vector_array(session, *w.vector, meaning);
  };
  for (const NamedWeight& w : weights_of(*session))
    if (w.name == name && (w.matrix != nullptr || *w.vector)) return shown(w);
  const Head head = session->engine.model().head();
  if (!raw && name == "W_U") return shown({name, head.weight, nullptr, nullptr});  // tied: the embedding's numbers
  if (!raw && name == "b_U" && head.weight->bias) return shown({name, nullptr, &head.weight->bias, nullptr});
  if (!raw)
    if (nb::object part = part_of_stacked(*session, name); part.is_valid()) return part;
  throw InputError("the model has no parameter \"" + name + "\". Did you mean \"" + nearest(name, weight_names(*session)) +
                   "\"? weight_names lists every one");
}

}  // namespace vitrine::python
