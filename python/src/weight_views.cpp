#include "weight_views.h"

#include <nanobind/ndarray.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "arrays.h"
#include "base/error.h"
#include "base/nearest.h"
#include "model/layer_name.h"
#include "model/stacked_attention.h"
#include "ops/head.h"
#include "ops/low_rank.h"

namespace vitrine::python {
namespace {

namespace nb = nanobind;

// What a stored number stands for in the model: offset + factor · number, or -exp of it.
struct Meaning {
  float offset = 0, factor = 1;
  bool minus_exp = false;
  bool as_stored() const { return offset == 0 && factor == 1 && !minus_exp; }
  float of(float stored) const { return minus_exp ? -std::exp(stored) : offset + factor * stored; }
  float stored(float value) const { return minus_exp ? std::log(-value) : (value - offset) / factor; }
};

// A parameter: where its numbers are, and what they stand for.
struct NamedWeight {
  std::string name;
  Weight* matrix = nullptr;  // one of the two
  Vector* vector = nullptr;
  const TensorLine* line = nullptr;
  std::vector<int64_t> rows = {};  // those of the matrix (of a vector: numbers) that it is; empty: all of them
  Meaning meaning = {};

  explicit operator bool() const { return matrix != nullptr || (vector != nullptr && *vector); }
  int64_t size() const { return !rows.empty() ? std::ssize(rows) : matrix != nullptr ? matrix->out : vector->size; }
  int64_t width() const { return matrix != nullptr ? matrix->in : 1; }
  size_t row(int64_t i) const { return static_cast<size_t>(rows.empty() ? i : rows[static_cast<size_t>(i)]); }
  /// Its numbers are those that are stored, one after the other.
  bool in_place() const { return rows.empty() && meaning.as_stored(); }
  std::vector<size_t> shape() const {
    if (matrix == nullptr) return {static_cast<size_t>(size())};
    return {static_cast<size_t>(size()), static_cast<size_t>(width())};
  }
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

// The matrix of the model's list that this one is.
Weight* listed(const Session& session, const Weight& weight) {
  for (const TensorLine& line : session.engine.model().tensors())
    if (line.weight == &weight) return line.weight;
  throw UsageError("the list of this model's tensors lacks " + weight.name);
}

// W_Q, W_K or W_V, or a bias of theirs, of a family that stacks them ("blocks.3.attn.W_Q"); nothing for other names.
NamedWeight part_of_stacked(const Session& session, const std::string& name) {
  const auto* const stacks = dynamic_cast<const StacksHeads*>(&session.engine.model());
  const auto [layer, rest] = split_layer(name);
  if (stacks == nullptr || layer < 0 || layer >= session.engine.shape().n_layers || rest.size() != 8 ||
      !rest.starts_with("attn."))
    return {};
  const bool bias = rest[5] == 'b';
  const size_t part = std::string_view("QKV").find(rest[7]);
  if ((!bias && rest[5] != 'W') || rest[6] != '_' || part == std::string_view::npos) return {};
  const StackedAttention& attention = stacks->stacked_attention(layer);
  NamedWeight found{.name = name};
  Weight* const all = listed(session, attention.W_QKV);
  if (bias)
    found.vector = &all->bias;
  else
    found.matrix = all;
  const auto which = static_cast<int>(part);
  for (int64_t row = 0; row < attention.rows_of(which); ++row) found.rows.push_back(attention.row_of(which, row));
  return found;
}

// Errors: InputError naming the nearest parameters.
NamedWeight find_weight(Session& session, const std::string& name, bool raw) {
  for (NamedWeight& w : weights_of(session)) {
    if (w.name != name || !w) continue;
    if (!raw) w.meaning = meaning_of(session, w);
    return std::move(w);
  }
  if (!raw) {
    const Head head = session.engine.model().head();
    NamedWeight found{.name = name};
    if (name == "W_U") found.matrix = listed(session, *head.weight);  // tied: the embedding's numbers
    if (name == "b_U") found.vector = &listed(session, *head.weight)->bias;
    if (found) {
      found.meaning = meaning_of(session, found);
      return found;
    }
    if (NamedWeight part = part_of_stacked(session, name)) return part;
  }
  throw InputError("the model has no parameter \"" + name + "\". Did you mean \"" + nearest(name, weight_names(session)) +
                   "\"? weight_names lists every one");
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

nb::object matrix_array(const std::shared_ptr<Session>& session, const NamedWeight& named, bool merged, bool may_change) {
  const Weight& w = *named.matrix;
  const LowRank* const adapter = merged ? w.adapter : nullptr;
  if (named.in_place() && adapter == nullptr && w.dtype == DType::f32 && aligned(w.data) && w.stride % sizeof(float) == 0 &&
      (may_change || !session->edited.holds(w))) {
    const auto step = static_cast<int64_t>(w.stride / sizeof(float));
    const std::vector<int64_t> strides = w.by_columns ? std::vector<int64_t>{1, step} : std::vector<int64_t>{step, 1};
    return view(reinterpret_cast<const float*>(w.data), named.shape(), strides, keep_alive(session));
  }
  std::vector<float> numbers(static_cast<size_t>(named.size() * w.in));
  {
    const nb::gil_scoped_release unlocked;
    for (int64_t j = 0; j < named.size(); ++j) {
      const auto from = static_cast<int64_t>(named.row(j));
      float* const row = numbers.data() + j * w.in;
      for (int64_t i = 0; i < w.in; ++i) row[i] = w.at<float>(from, i);
      if (adapter != nullptr) add_merged(*adapter, from, row);
      for (int64_t i = 0; i < w.in && !named.meaning.as_stored(); ++i) row[i] = named.meaning.of(row[i]);
    }
  }
  return copy(std::move(numbers), named.shape());
}

nb::object vector_array(const std::shared_ptr<Session>& session, const NamedWeight& named, bool may_change) {
  const Vector& v = *named.vector;
  if (named.in_place() && v.dtype == DType::f32 && aligned(v.data) && (may_change || !session->edited.holds(v)))
    return view(static_cast<const float*>(v.data), named.shape(), {1}, keep_alive(session));
  std::vector<float> numbers(static_cast<size_t>(named.size()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = named.meaning.of(v.at<float>(static_cast<int64_t>(named.row(static_cast<int64_t>(i)))));
  return copy(std::move(numbers), named.shape());
}

}  // namespace

std::vector<std::string> weight_names(Session& session) {
  std::vector<std::string> names;
  for (const NamedWeight& w : weights_of(session))
    if (w) names.push_back(w.name);
  return names;
}

nb::object weight(const std::shared_ptr<Session>& session, const nb::str& text, bool raw, bool may_change) {
  const NamedWeight found = find_weight(*session, utf8(text), raw);
  return found.matrix != nullptr ? matrix_array(session, found, !raw, may_change) : vector_array(session, found, may_change);
}

// Writing ------------------------------------------------------------------------------------------------------------------

struct WeightEdit::Place : NamedWeight {
  explicit Place(NamedWeight found) : NamedWeight(std::move(found)) {}
};

WeightEdit::WeightEdit(std::shared_ptr<Session> session, const nb::str& text)
    : session_(std::move(session)), place_(std::make_unique<Place>(find_weight(*session_, utf8(text), false))) {
  const NamedWeight& w = *place_;
  if (w.matrix != nullptr) require_present(*w.matrix);
  if (w.line != nullptr && w.line->layout.constant)
    throw InputError(w.name + " is a constant of this model, which stays as it is");
}

WeightEdit::~WeightEdit() = default;

template <class F>
void WeightEdit::each(F&& f) {
  const auto width = static_cast<size_t>(place_->width());
  for (int64_t i = 0; i < place_->size(); ++i)
    for (size_t j = 0; j < width; ++j) f(shown_[static_cast<size_t>(i) * width + j], numbers_[place_->row(i) * width + j]);
}

nb::object WeightEdit::begin() {
  const NamedWeight& w = *place_;
  {
    const nb::gil_scoped_release unlocked;
    running_ = std::make_unique<Running>(*session_);
    try {
      first_ = w.matrix != nullptr ? !session_->edited.holds(*w.matrix) : !session_->edited.holds(*w.vector);
      numbers_ = w.matrix != nullptr ? session_->edited.own(*w.matrix) : session_->edited.own(*w.vector);
      if (!w.in_place()) {
        shown_.resize(static_cast<size_t>(w.size() * w.width()));
        each([&](float& shown, const float& stored) { shown = w.meaning.of(stored); });
      }
    } catch (...) {
      running_.reset();
      throw;
    }
  }
  const std::vector<size_t> shape = w.shape();
  float* const data = w.in_place() ? numbers_ : shown_.data();
  return nb::cast(nb::ndarray<nb::numpy, float>(data, shape.size(), shape.data(), keep_alive(session_)));
}

void WeightEdit::end(bool succeeded) {
  const NamedWeight& w = *place_;
  const std::unique_ptr<Running> running = std::move(running_);
  VITRINE_CHECK(running != nullptr, "an edit ends once, after it began");
  bool possible = true;
  if (succeeded && !w.in_place())
    each([&](float& shown, const float& stored) {
      possible = possible && (!w.meaning.minus_exp || shown < 0 || shown == w.meaning.of(stored));
    });
  if (succeeded && possible) {
    if (w.in_place()) return;
    each([&](const float& shown, float& stored) {  // numbers that stay keep their bits
      if (shown != w.meaning.of(stored)) stored = w.meaning.stored(shown);
    });
    return;
  }
  if (first_) w.matrix != nullptr ? session_->edited.restore(*w.matrix) : session_->edited.restore(*w.vector);
  if (!possible) throw InputError(w.name + " is -exp of what the file holds, so its numbers must be below 0");
}

std::vector<std::string> encode_weights(Session& session, const std::optional<std::vector<nb::str>>& names) {
  std::vector<NamedWeight> chosen = weights_of(session);
  if (names) {
    chosen.clear();
    for (const nb::str& name : *names) chosen.push_back(find_weight(session, utf8(name), false));
  }
  std::vector<std::string> encoded;
  const nb::gil_scoped_release unlocked;
  const Running running(session);
  for (const NamedWeight& w : chosen)
    if (w.matrix != nullptr && session.edited.encode(*w.matrix)) encoded.push_back(w.name);
  return encoded;
}

}  // namespace vitrine::python
