#include "weight_views.h"

#include <nanobind/ndarray.h>

#include <cstdint>
#include <utility>

#include "arrays.h"
#include "base/error.h"
#include "base/nearest.h"

namespace vitrine::python {
namespace {

namespace nb = nanobind;

struct NamedWeight {
  std::string name;
  const Weight* matrix = nullptr;
  const Vector* vector = nullptr;
};

// Weight tables call a bias by its matrix or by its own name; here it always has its own.
std::vector<NamedWeight> weights_of(const Session& session) {
  std::vector<NamedWeight> found;
  for (const TensorLine& line : session.engine.model().tensors()) {
    std::string name = line.ours;
    const size_t last = name.rfind('.') + 1;  // 0 if there is none
    if (line.vector != nullptr && name.compare(last, 2, "W_") == 0) name[last] = 'b';
    found.push_back({std::move(name), line.weight, line.vector});
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

nb::object matrix_array(const std::shared_ptr<Session>& session, const Weight& w) {
  const std::vector<size_t> shape = {static_cast<size_t>(w.out), static_cast<size_t>(w.in)};
  if (w.dtype == DType::f32 && aligned(w.data) && w.stride % sizeof(float) == 0) {
    const auto step = static_cast<int64_t>(w.stride / sizeof(float));
    const std::vector<int64_t> strides = w.by_columns ? std::vector<int64_t>{1, step} : std::vector<int64_t>{step, 1};
    return view(reinterpret_cast<const float*>(w.data), shape, strides, keep_alive(session));
  }
  std::vector<float> numbers(shape[0] * shape[1]);
  {
    const nb::gil_scoped_release unlocked;
    for (int64_t j = 0; j < w.out; ++j)
      for (int64_t i = 0; i < w.in; ++i) numbers[static_cast<size_t>(j * w.in + i)] = w.at<float>(j, i);
  }
  return copy(std::move(numbers), shape);
}

nb::object vector_array(const std::shared_ptr<Session>& session, const Vector& v) {
  const std::vector<size_t> shape = {static_cast<size_t>(v.size)};
  if (v.dtype == DType::f32 && aligned(v.data)) return view(static_cast<const float*>(v.data), shape, {1}, keep_alive(session));
  std::vector<float> numbers(shape[0]);
  for (int64_t i = 0; i < v.size; ++i) numbers[static_cast<size_t>(i)] = v.at<float>(i);
  return copy(std::move(numbers), shape);
}

}  // namespace

std::vector<std::string> weight_names(Session& session) {
  std::vector<std::string> names;
  for (const NamedWeight& w : weights_of(session))
    if (w.matrix != nullptr || *w.vector) names.push_back(w.name);
  return names;
}

nb::object weight(const std::shared_ptr<Session>& session, const nb::str& text) {
  const std::string name = utf8(text);
  for (const NamedWeight& w : weights_of(*session)) {
    if (w.name != name) continue;
    if (w.matrix != nullptr) return matrix_array(session, *w.matrix);
    if (*w.vector) return vector_array(session, *w.vector);
  }
  throw InputError("the model has no parameter \"" + name + "\". Did you mean \"" + nearest(name, weight_names(*session)) +
                   "\"? weight_names lists every one");
}

}  // namespace vitrine::python
