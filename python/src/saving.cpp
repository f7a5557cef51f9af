#include "saving.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "model/export.h"
#include "model/from_gguf.h"
#include "model/packed_weights.h"
#include "model/to_gguf.h"
#include "quantize/encode.h"
#include "quantize/encoding.h"
#include "quantize/mixture.h"
#include "runtime/model_tokenizer.h"
#include "signals.h"

namespace vitrine::python {
namespace {

namespace fs = std::filesystem;
namespace nb = nanobind;

// The float type that most weights of the files have; bf16 if they are in blocks.
std::string float_type(const Session& session) {
  std::map<DType, int64_t> numbers;
  for (const TensorLine& line : session.base().tensors())
    if (line.weight != nullptr && !line.weight->absent)
      numbers[session.edited.original(*line.weight).dtype] += line.out.size * line.in.size;
  const auto most =
      std::max_element(numbers.begin(), numbers.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return std::string(name_of(most == numbers.end() || is_block(most->first) ? DType::bf16 : most->first));
}

const Mixture& mixture_of(const std::string& dtype) {
  const Mixture* const found = find_mixture(dtype);
  if (found != nullptr) return *found;
  std::string names;
  for (const Mixture& mixture : mixtures()) names += (names.empty() ? "" : ", ") + std::string(mixture.name);
  throw InputError("dtype is \"" + dtype + "\"; expected one of " + names);
}

// The same model under the names of a Hugging Face directory, on the same numbers. What an adapter adds becomes part of them.
OpenedModel in_that_form(const Session& session, EditedWeights& merged) {
  const OpenedModel& opened = session.engine.opened();
  OpenedModel other = open_headers(opened.files);
  const std::vector<TensorLine>&from = opened.model->tensors(), &to = other.model->tensors();
  VITRINE_CHECK(from.size() == to.size(), "a model opened twice is the same");
  for (size_t i = 0; i < from.size(); ++i) {
    if (from[i].vector != nullptr) *to[i].vector = *from[i].vector;
    if (from[i].weight == nullptr) continue;
    *to[i].weight = *from[i].weight;
    if (to[i].weight->adapter != nullptr) merged.own(*to[i].weight);
  }
  return as_huggingface(std::move(other));
}

void save_directory(Session& session, const std::string& out, const std::string& dtype) {
  OpenedModel& opened = session.engine.opened();
  const DType type = mixture_of(dtype.empty() ? float_type(session) : dtype).base;
  const auto watch = [](double) { check_signals(); };  // Ctrl-C leaves nothing
  if (opened.files.kind == ModelFiles::Kind::huggingface && packing_method(opened.files).empty())
    return write_huggingface(opened, companions_of(opened), out, type, watch);
  EditedWeights merged;
  OpenedModel other = in_that_form(session, merged);
  write_huggingface(other, companions_of(other), out, type, watch);
}

// Each matrix in the type that it has.
GgufEncoding own_types(const OpenedModel& opened) {
  GgufEncoding encoding;
  if (opened.gguf->has("general.file_type"))
    encoding.file_type = static_cast<uint32_t>(opened.gguf->integer("general.file_type"));
  encoding.type_of = [](const GgufTensor& tensor) { return tensor.stored.value_or(DType::f32); };
  encoding.encode = [](DType type, const float* rows, size_t n, size_t row, const float* importance, std::byte* to) {
    for (size_t i = 0; i < n; i += row, to += row_bytes(type, row)) encode_row(type, rows + i, row, importance, to);
  };
  return encoding;
}

void save_file(Session& session, const std::string& out, const std::string& dtype) {
  const OpenedModel& opened = session.engine.opened();
  std::error_code error;
  if (fs::exists(fs::symlink_status(out, error)))
    throw InputError(out + " is there already; name a new file, or remove it first");
  const GgufEncoding encoding = dtype.empty() && opened.gguf != nullptr
                                    ? own_types(opened)
                                    : mixture_encoding(opened, mixture_of(dtype.empty() ? float_type(session) : dtype));
  const GgufPlan plan = plan_gguf(opened, opened.gguf == nullptr ? vocabulary_keys(opened) : GgufKeys(), encoding);
  write_gguf(opened, plan, encoding, out, session.engine.context().pool(),
             {.watch = [](const GgufProgress&) { check_signals(); }});
}

}  // namespace

void save(Session& session, const nb::bytes& out, const std::string& dtype) {
  const std::string path(out.c_str(), out.size());
  const nb::gil_scoped_release unlocked;
  const Running running(session);
  path.ends_with(".gguf") ? save_file(session, path, dtype) : save_directory(session, path, dtype);
}

}  // namespace vitrine::python
