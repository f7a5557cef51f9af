#include "intervene/values.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/error.h"
#include "hooks/trace.h"
#include "intervene/places.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

const Recorder::Value& value_of(const Recorder& values, const std::string& name) { return values.values().find(name)->second; }

struct CutPart {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// What `capture` selects of a whole value.
CutPart part_of(const Recorder::Value& whole, const Capture& capture) {
  const bool pattern = heads_first(capture.name);
  const int64_t a = whole.shape[0], b = whole.shape.size() > 1 ? whole.shape[1] : 1;
  const auto rest = static_cast<int64_t>(whole.values.size()) / std::max<int64_t>(1, a * b);
  const bool heads_second = !pattern && whole.shape.size() >= 3;
  const auto cut = [](const HookRequest::Range& range, int64_t size) {
    return std::pair{std::clamp<int64_t>(range.first, 0, size), std::clamp<int64_t>(range.end, 0, size)};
  };
  const auto [a_first, a_end] = cut(pattern ? capture.request.heads : capture.request.positions, a);
  const auto [b_first, b_end] = pattern        ? cut(capture.request.positions, b)
                                : heads_second ? cut(capture.request.heads, b)
                                               : std::pair<int64_t, int64_t>{0, b};
  CutPart part;
  part.shape = whole.shape;
  part.shape[0] = a_end - a_first;
  if (part.shape.size() > 1) part.shape[1] = b_end - b_first;
  for (int64_t i = a_first; i < a_end; ++i) {
    const auto row = whole.values.begin() + (i * b + b_first) * rest;
    part.values.insert(part.values.end(), row, row + (b_end - b_first) * rest);
  }
  return part;
}

// Mean over positions of [position, rest]: [rest].
void add_rows(const CutPart& value, std::vector<double>& sum, int64_t& count) {
  const int64_t rows = value.shape[0];
  const size_t rest = value.values.size() / static_cast<size_t>(std::max<int64_t>(1, rows));
  sum.resize(rest);
  for (int64_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < rest; ++i) sum[i] += static_cast<double>(value.values[static_cast<size_t>(r) * rest + i]);
  count += rows;
}

std::vector<float> divided(const std::vector<double>& sum, int64_t count) {
  std::vector<float> mean(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) mean[i] = static_cast<float>(sum[i] / static_cast<double>(count));
  return mean;
}

// The prompts whose values an intervention takes.
std::vector<std::vector<int32_t>> sources_of(const Engine& engine, const Intervention& i, const RecipePrompts& prompts) {
  switch (i.from) {
    case Intervention::From::own: return {prompts.run()};
    case Intervention::From::clean: return {prompts.clean};
    case Intervention::From::corrupt: return {prompts.corrupt};
    case Intervention::From::prompts: break;
  }
  std::vector<std::vector<int32_t>> sources;
  for (const PromptSpec& prompt : i.prompts) sources.push_back(ids_of(engine, prompt));
  return sources;
}

void require_length(size_t found, size_t expected, const std::string& what) {
  if (found == expected) return;
  throw InputError(what + " has " + std::to_string(found) + " tokens and the prompt that runs " + std::to_string(expected) +
                   "; values are taken position by position, so both must have as many. `vitrine tokenize` shows the tokens");
}

// Whether `shape` can be broadcast, from the right, to `part`.
bool fits_part(const std::vector<int64_t>& shape, const std::vector<int64_t>& part) {
  if (shape.size() > part.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t size = shape[shape.size() - 1 - i];
    if (size != 1 && size != part[part.size() - 1 - i]) return false;
  }
  return true;
}

VectorSpec from_file(const VectorSpec& vector) {
  const Checkpoint file = open_safetensors(vector.file);
  const StoredTensor* tensor = file.find(vector.tensor);
  if (tensor == nullptr) {
    std::string list;
    for (const auto& [name, stored] : file.tensors()) {
      if (list.size() > 200) {
        list += ", …";
        break;
      }
      list += (list.empty() ? "" : ", ") + name;
    }
    throw FileError(vector.file, "holds no tensor \"" + vector.tensor + "\"; it holds " + (list.empty() ? "none" : list));
  }
  VectorSpec result = vector;
  result.shape = tensor->shape;
  const size_t count = tensor->bytes / std::max<size_t>(1, row_bytes(tensor->dtype, 1));
  const bool plain =
      tensor->dtype == DType::f32 || tensor->dtype == DType::f16 || tensor->dtype == DType::bf16 || tensor->dtype == DType::f64;
  if (!plain || tensor->shape.size() > 3)
    throw FileError(vector.file,
                    "\"" + vector.tensor + "\" is " + shape_text(tensor->shape) +
                        " of a type or rank that is no vector; expected f32, f16, bf16 or f64 with up to three sizes");
  for (size_t n = 0; n < count; ++n)
    result.values.push_back(tensor->dtype == DType::f64 ? static_cast<float>(reinterpret_cast<const double*>(tensor->data)[n])
                                                        : element_at(tensor->dtype, tensor->data, n));
  const auto bad = std::find_if(result.values.begin(), result.values.end(), [](float v) { return !std::isfinite(v); });
  if (bad != result.values.end())
    throw FileError(vector.file, "\"" + vector.tensor + "\" holds " + std::to_string(*bad) + " at number " +
                                     std::to_string(bad - result.values.begin()) + "; expected numbers that f32 holds");
  return result;
}

// The value at the capture's hook for `plus` less that for `minus`, at one position of each: [heads, head_dim] or [d_model].
void add_difference(const EditPlan& plan, const VectorSpec& vector, const Capture& capture, ValueEdit& edit) {
  if (heads_first(capture.name))
    throw InputError("a pattern of one prompt has other keys than that of another; give numbers for " + capture.name);
  const std::pair<const PromptSpec*, float> terms[] = {{&*vector.plus, 1.0F}, {vector.minus ? &*vector.minus : nullptr, -1.0F}};
  for (const auto& [prompt, sign] : terms) {
    if (prompt == nullptr) continue;
    const std::vector<int32_t> ids = ids_of(plan.engine, *prompt);
    const auto rows = static_cast<int64_t>(ids.size());
    Capture cut = capture;
    const int64_t position = position_of(vector.position, rows, vector.where);
    cut.request.positions = {position, position + 1};
    const Recorder& seen = plan.values.of(ids, {cut});
    const CutPart part = part_of(value_of(seen, cut.name), cut);
    edit.values.resize(part.values.size());
    for (size_t n = 0; n < part.values.size(); ++n) edit.values[n] += sign * part.values[n];
    edit.shape.assign(part.shape.begin() + 1, part.shape.end());
  }
}

}  // namespace

const Recorder& SourceValues::of(std::span<const int32_t> ids, const std::vector<Capture>& captures) {
  std::set<std::string> names;
  for (const Capture& capture : captures) names.insert(capture.name);
  const bool there = kept_ && std::equal(ids.begin(), ids.end(), ids_.begin(), ids_.end()) &&
                     std::all_of(names.begin(), names.end(), [&](const auto& name) { return kept_->values().contains(name); });
  if (there) return *kept_;
  kept_.reset();
  ids_.assign(ids.begin(), ids.end());
  const std::vector<std::string> hooks(names.begin(), names.end());
  kept_.emplace(trace_to_memory(engine_, ids, hooks, nullptr, memory_));
  return *kept_;
}

ValueEdit edit_of(const Capture& capture, ValueEdit::Kind kind) {
  ValueEdit edit;
  edit.hook = capture.name;
  edit.heads = capture.request.heads;
  edit.positions = capture.request.positions;
  edit.kind = kind;
  return edit;
}

std::vector<ValueEdit> resample_edits(const EditPlan& plan) {
  const std::vector<int32_t> source = sources_of(plan.engine, plan.intervention, plan.prompts)[0];
  require_length(source.size(), plan.prompts.run().size(), "the prompt that values are taken from");
  const Recorder& seen = plan.values.of(source, plan.captures);
  std::vector<ValueEdit> edits;
  for (const Capture& capture : plan.captures) {
    ValueEdit edit = edit_of(capture, ValueEdit::Kind::set);
    CutPart part = part_of(value_of(seen, capture.name), capture);
    edit.values = std::move(part.values);
    edit.shape = std::move(part.shape);
    edits.push_back(std::move(edit));
  }
  return edits;
}

std::vector<ValueEdit> mean_edits(const EditPlan& plan) {
  for (const Capture& capture : plan.captures)
    if (heads_first(capture.name) && !plan.intervention.by_position)
      throw InputError("a mean over positions mixes the queries of " + capture.name +
                       ", whose rows have different keys; take the mean over prompts by position");
  struct Sum {
    std::vector<double> values;
    int64_t count = 0;
  };
  std::vector<Sum> sums(plan.captures.size());
  for (const std::vector<int32_t>& source : sources_of(plan.engine, plan.intervention, plan.prompts)) {
    if (plan.intervention.by_position) require_length(source.size(), plan.prompts.run().size(), "a prompt of the mean");
    const Recorder& seen = plan.values.of(source, plan.captures);
    for (size_t c = 0; c < plan.captures.size(); ++c) {
      Capture cut = plan.captures[c];
      if (!plan.intervention.by_position) cut.request.positions = {};  // of all positions, whichever are touched
      const CutPart part = part_of(value_of(seen, cut.name), cut);
      if (plan.intervention.by_position) {
        sums[c].values.resize(part.values.size());
        for (size_t n = 0; n < part.values.size(); ++n) sums[c].values[n] += static_cast<double>(part.values[n]);
        ++sums[c].count;
      } else {
        add_rows(part, sums[c].values, sums[c].count);
      }
    }
  }
  std::vector<ValueEdit> edits;
  for (size_t c = 0; c < plan.captures.size(); ++c) {
    ValueEdit edit = edit_of(plan.captures[c], ValueEdit::Kind::set);
    edit.values = divided(sums[c].values, sums[c].count);
    edit.shape = plan.captures[c].shape;
    if (!plan.intervention.by_position) edit.shape.erase(edit.shape.begin());
    edits.push_back(std::move(edit));
  }
  return edits;
}

std::vector<ValueEdit> given_edits(const EditPlan& plan) {
  const VectorSpec vector = plan.intervention.vector.file.empty()
                                ? plan.intervention.vector
                                : reported(plan.intervention.vector.where, [&] { return from_file(plan.intervention.vector); });
  std::vector<ValueEdit> edits;
  for (const Capture& capture : plan.captures) {
    ValueEdit edit =
        edit_of(capture, plan.intervention.action == Intervention::Action::add ? ValueEdit::Kind::add : ValueEdit::Kind::set);
    edit.factor = plan.intervention.factor;
    if (vector.plus) {
      add_difference(plan, vector, capture, edit);
    } else {
      edit.values = vector.values;
      edit.shape = vector.shape;
    }
    if (!fits_part(edit.shape, capture.shape)) {
      const std::vector<int64_t> last = {capture.shape.back()};
      throw ShapeError("the vector has shape " + shape_text(edit.shape) + "; " + capture.name + " takes one number, " +
                       shape_text(last) + " or what can be broadcast to " + shape_text(capture.shape));
    }
    edits.push_back(std::move(edit));
  }
  return edits;
}

}  // namespace vitrine
