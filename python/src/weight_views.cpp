#include "weight_views.h"

#include <nanobind/ndarray.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
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
  const Model& model = session.base();
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
  for (const TensorLine& line : session.base().tensors()) {
    std::string name = line.ours;
    const size_t last = name.rfind('.') + 1;  // 0 if there is none
    if (line.vector != nullptr && name.compare(last, 2, "W_") == 0) name[last] = 'b';
    found.push_back({std::move(name), line.weight, line.vector, &line});
  }
  return found;
}

// The matrix of the model's list that this one is.
Weight* listed(const Session& session, const Weight& weight) {
  for (const TensorLine& line : session.base().tensors())
    if (line.weight == &weight) return line.weight;
  throw UsageError("the list of this model's tensors lacks " + weight.name);
}

// W_Q, W_K or W_V, or a bias of theirs, of a family that stacks them ("blocks.3.attn.W_Q"); nothing for other names.
NamedWeight part_of_stacked(const Session& session, const std::string& name) {
  const auto* const stacks = dynamic_cast<const StacksHeads*>(&session.base());
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

std::vector<std::string> names_of(const Session& session) {
  std::vector<std::string> names;
  for (const NamedWeight& w : weights_of(session))
    if (w) names.push_back(w.name);
  return names;
}

// Errors: InputError naming the nearest parameters.
NamedWeight find_weight(Session& session, const std::string& name, bool raw) {
  for (NamedWeight& w : weights_of(session)) {
    if (w.name != name || !w) continue;
    if (!raw) w.meaning = meaning_of(session, w);
    return std::move(w);
  }
  if (!raw) {
    const Head head = session.base().head();
    NamedWeight found{.name = name};
    if (name == "W_U") found.matrix = listed(session, *head.weight);  // tied: the embedding's numbers
    if (name == "b_U") found.vector = &listed(session, *head.weight)->bias;
    if (found) {
      found.meaning = meaning_of(session, found);
      return found;
    }
    if (NamedWeight part = part_of_stacked(session, name)) return part;
  }
  throw InputError("the model has no parameter \"" + name + "\". Did you mean \"" + nearest(name, names_of(session)) +
                   "\"? weight_names lists every one");
}

nb::capsule keep_alive(std::shared_ptr<const void> memory) {
  auto kept = std::make_unique<std::shared_ptr<const void>>(std::move(memory));
  nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<const void>*>(p); });
  kept.release();
  return owner;
}

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % alignof(float) == 0; }

// A parameter's numbers as they are, under ReadingWeights, without the interpreter's lock.
struct Numbers {
  std::shared_ptr<const void> memory;
  const float* data = nullptr;
  std::vector<size_t> shape;
  std::vector<int64_t> strides = {};  // none: one row after the other

  nb::object array() const {
    return nb::cast(nb::ndarray<nb::numpy, const float>(data, shape.size(), shape.data(), keep_alive(memory),
                                                        strides.empty() ? nullptr : strides.data()));
  }
};

Numbers computed(std::vector<float> numbers, std::vector<size_t> shape) {
  const auto kept = std::make_shared<const std::vector<float>>(std::move(numbers));
  return {kept, kept->data(), std::move(shape)};
}

// `live`: of a parameter that was changed not a copy, but the numbers themselves.
Numbers matrix_numbers(const std::shared_ptr<Session>& session, const NamedWeight& named, bool merged, bool live) {
  const Weight& w = *named.matrix;
  const LowRank* const adapter = merged ? w.adapter : nullptr;
  const std::shared_ptr<const void> changed = session->edited.numbers_of(w);
  if (named.in_place() && adapter == nullptr && w.dtype == DType::f32 && aligned(w.data) && w.stride % sizeof(float) == 0 &&
      (live || changed == nullptr)) {
    const auto step = static_cast<int64_t>(w.stride / sizeof(float));
    return {changed != nullptr ? changed : session, reinterpret_cast<const float*>(w.data), named.shape(),
            w.by_columns ? std::vector<int64_t>{1, step} : std::vector<int64_t>{step, 1}};
  }
  std::vector<float> numbers(static_cast<size_t>(named.size() * w.in));
  for (int64_t j = 0; j < named.size(); ++j) {
    const auto from = static_cast<int64_t>(named.row(j));
    float* const row = numbers.data() + j * w.in;
    for (int64_t i = 0; i < w.in; ++i) row[i] = w.at<float>(from, i);
    if (adapter != nullptr) add_merged(*adapter, from, row);
    for (int64_t i = 0; i < w.in && !named.meaning.as_stored(); ++i) row[i] = named.meaning.of(row[i]);
  }
  return computed(std::move(numbers), named.shape());
}

Numbers vector_numbers(const std::shared_ptr<Session>& session, const NamedWeight& named, bool live) {
  const Vector& v = *named.vector;
  const std::shared_ptr<const void> changed = session->edited.numbers_of(v);
  if (named.in_place() && v.dtype == DType::f32 && aligned(v.data) && (live || changed == nullptr))
    return {changed != nullptr ? changed : session, static_cast<const float*>(v.data), named.shape()};
  std::vector<float> numbers(static_cast<size_t>(named.size()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = named.meaning.of(v.at<float>(static_cast<int64_t>(named.row(static_cast<int64_t>(i)))));
  return computed(std::move(numbers), named.shape());
}

Numbers numbers_of(const std::shared_ptr<Session>& session, const std::string& name, bool raw, bool live) {
  const NamedWeight found = find_weight(*session, name, raw);
  return found.matrix != nullptr ? matrix_numbers(session, found, !raw, live) : vector_numbers(session, found, live);
}

}  // namespace

std::vector<std::string> weight_names(Session& session) {
  const nb::gil_scoped_release unlocked;
  const ReadingWeights reading(session);
  return names_of(session);
}

nb::object weight(const std::shared_ptr<Session>& session, const nb::str& text, bool raw) {
  const std::string name = utf8(text);
  Numbers numbers;
  {
    const nb::gil_scoped_release unlocked;
    const ReadingWeights reading(*session);
    numbers = numbers_of(session, name, raw, false);
  }
  return numbers.array();
}

std::vector<size_t> weight_shape(Session& session, const nb::str& text) {
  const std::string name = utf8(text);
  const nb::gil_scoped_release unlocked;
  const ReadingWeights reading(session);
  return find_weight(session, name, false).shape();
}

nb::object WeightReading::begin() {
  Numbers numbers;
  {
    const nb::gil_scoped_release unlocked;
    reading_.emplace(*session_);
    try {
      numbers = numbers_of(session_, name_, false, true);
    } catch (...) {
      reading_.reset();
      throw;
    }
  }
  return numbers.array();
}

// Writing ------------------------------------------------------------------------------------------------------------------

struct WeightEdit::Place : NamedWeight {
  explicit Place(NamedWeight found) : NamedWeight(std::move(found)) {}
};

WeightEdit::WeightEdit(std::shared_ptr<Session> session, const nb::str& text) : session_(std::move(session)) {
  const std::string name = utf8(text);
  const nb::gil_scoped_release unlocked;
  const ReadingWeights reading(*session_);
  place_ = std::make_unique<Place>(find_weight(*session_, name, false));
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
    for (size_t j = 0; j < width; ++j) f((*shown_)[static_cast<size_t>(i) * width + j], numbers_[place_->row(i) * width + j]);
}

nb::object WeightEdit::begin() {
  const NamedWeight& w = *place_;
  std::shared_ptr<const void> memory;
  {
    const nb::gil_scoped_release unlocked;
    changing_ = std::make_unique<ChangingWeights>(*session_);
    try {
      EditedWeights& edited = session_->edited;
      first_ = w.matrix != nullptr ? !edited.holds(*w.matrix) : !edited.holds(*w.vector);
      numbers_ = w.matrix != nullptr ? edited.own(*w.matrix) : edited.own(*w.vector);
      memory = w.matrix != nullptr ? edited.numbers_of(*w.matrix) : edited.numbers_of(*w.vector);
      if (!w.in_place()) {
        shown_ = std::make_shared<std::vector<float>>(static_cast<size_t>(w.size() * w.width()));
        memory = shown_;
        each([&](float& shown, const float& stored) { shown = w.meaning.of(stored); });
      }
    } catch (...) {
      changing_.reset();
      throw;
    }
  }
  const std::vector<size_t> shape = w.shape();
  float* const data = w.in_place() ? numbers_ : shown_->data();
  return nb::cast(nb::ndarray<nb::numpy, float>(data, shape.size(), shape.data(), keep_alive(std::move(memory))));
}

void WeightEdit::end(bool succeeded) {
  const nb::gil_scoped_release unlocked;
  const NamedWeight& w = *place_;
  const std::unique_ptr<ChangingWeights> changing = std::move(changing_);
  VITRINE_CHECK(changing != nullptr, "an edit ends once, after it began");
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

std::vector<std::string> encode_weights(Session& session, const std::optional<std::vector<nb::str>>& texts) {
  std::vector<std::string> encoded, names;
  if (texts) names = utf8(*texts);
  std::set<std::string_view> different;
  for (const std::string& name : names)
    if (!different.insert(name).second) throw InputError("names has \"" + name + "\" twice; name each parameter once");
  const nb::gil_scoped_release unlocked;
  const ChangingWeights changing(session);
  std::vector<NamedWeight> chosen;
  if (texts)
    for (const std::string& name : names) chosen.push_back(find_weight(session, name, false));
  else
    chosen = weights_of(session);
  std::set<const Weight*> rounded;  // names may be of parts of one matrix
  for (const NamedWeight& w : chosen) {
    if (w.matrix == nullptr) continue;
    if (session.edited.encode(*w.matrix)) rounded.insert(w.matrix);
    if (rounded.contains(w.matrix)) encoded.push_back(w.name);
  }
  return encoded;
}

}  // namespace vitrine::python
