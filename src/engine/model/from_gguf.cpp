#include "model/from_gguf.h"

#include <cmath>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "kernels/table.h"
#include "model/gguf_order.h"
#include "model/same_model.h"

namespace vitrine {
namespace {

std::optional<int64_t> token_of(const OpenedModel& gguf, const char* key) {
  if (!gguf.gguf->has(key)) return {};
  const int64_t id = gguf.gguf->integer(key);
  if (id < 0 || id >= gguf.model->shape().vocab_size) return {};
  return id;
}

// Points a Hugging Face model's tensors at the values of a GGUF file, or at copies where the two differ.
class Binder {
 public:
  /// gguf: rows and numbers of the stored model are those of a GGUF file, not of a Hugging Face directory.
  Binder(const Model& stored, bool gguf, const std::string& path, std::vector<std::unique_ptr<float[]>>& copies)
      : path_(path), gguf_(gguf), head_dim_(stored.shape().head_dim), copies_(copies) {
    for (const TensorLine& line : stored.tensors()) (line.weight != nullptr ? matrices_ : vectors_)[place(line)] = &line;
  }

  void bind(const TensorLine& line) {
    const Lines& lines = line.weight != nullptr ? matrices_ : vectors_;
    const TensorLine* const odd = line.gguf_odd.empty() ? nullptr : find(line, lines, 1);
    if (odd != nullptr)
      line.weight != nullptr ? by_turns(*line.weight, stored_of(line, lines), *odd)
                             : by_turns(*line.vector, stored_of(line, lines), *odd);
    else if (line.weight != nullptr)
      matrix(*line.weight, stored_of(line, lines));
    else
      vector(*line.vector, stored_of(line, lines));
  }

 private:
  using Lines = std::map<std::tuple<std::string, int, int>, const TensorLine*>;
  static std::tuple<std::string, int, int> place(const TensorLine& line) {
    return {line.huggingface, line.layout.part, line.layout.expert};
  }

  static const TensorLine* find(const TensorLine& line, const Lines& lines, int part) {
    const auto found = lines.find({line.huggingface, part, line.layout.expert});
    return found == lines.end() ? nullptr : found->second;
  }

  // Errors: FileError where the two files cut their tensors in another way.
  const TensorLine& stored_of(const TensorLine& line, const Lines& lines) const {
    const TensorLine* const found = find(line, lines, line.layout.part);
    if (found != nullptr && (found->out.size == line.out.size || found->out.size * line.turns(true) == line.out.size))
      return *found;
    throw FileError(path_, "has no tensor that is " + line.huggingface +
                               " of a Hugging Face directory: the two cut experts in another "
                               "way. Run the model as it is, or begin with its Hugging Face directory");
  }

  void matrix(Weight& weight, const TensorLine& from) {
    const Weight& stored = *from.weight;
    weight.name = from.huggingface;
    weight.data = stored.data;
    weight.dtype = stored.dtype;
    weight.out = stored.out;
    weight.in = stored.in;
    weight.stride = stored.stride;
    weight.by_columns = stored.by_columns;
    if (!gguf_) return;
    const std::vector<int64_t> to = gguf_rows(from, head_dim_), columns = gguf_columns(from);
    if (!columns.empty()) return order_columns(weight, stored, columns);
    if (to.empty()) return;
    const size_t row = row_bytes(stored.dtype, static_cast<size_t>(stored.in));
    auto* const copy = reinterpret_cast<std::byte*>(room((static_cast<size_t>(stored.out) * row + 3) / 4));
    for (int64_t i = 0; i < stored.out; ++i)
      std::memcpy(copy + static_cast<size_t>(to[static_cast<size_t>(i)]) * row, stored.stored_row(i), row);
    weight.data = copy;
    weight.stride = row;
  }

  // A copy of two matrices, an output of each by turns; in f32 where their types differ.
  void by_turns(Weight& weight, const TensorLine& even, const TensorLine& odd) {
    const Weight *const halves[] = {even.weight, odd.weight}, &first = *even.weight;
    const bool one_type = odd.weight->dtype == first.dtype;
    const auto width = static_cast<size_t>(first.in);
    weight.name = even.huggingface;
    weight.dtype = one_type ? first.dtype : DType::f32;
    const size_t row = row_bytes(weight.dtype, width);
    weight.out = 2 * first.out;
    weight.in = first.in;
    weight.stride = row;
    weight.by_columns = false;
    auto* const copy = reinterpret_cast<std::byte*>(room((static_cast<size_t>(weight.out) * row + 3) / 4));
    for (int64_t i = 0; i < weight.out; ++i) {
      const Weight& half = *halves[i % 2];
      std::byte* const to = copy + static_cast<size_t>(i) * row;
      if (one_type)
        std::memcpy(to, half.stored_row(i / 2), row);
      else
        kernels().widen[static_cast<size_t>(half.dtype)](half.stored_row(i / 2), width, reinterpret_cast<float*>(to));
    }
    weight.data = copy;
  }

  void by_turns(Vector& vector, const TensorLine& even, const TensorLine& odd) {
    const Vector* const halves[] = {even.vector, odd.vector};
    vector.name = even.huggingface;
    vector.dtype = DType::f32;
    vector.size = 2 * even.vector->size;
    float* const copy = room(static_cast<size_t>(vector.size));
    for (int64_t i = 0; i < vector.size; ++i) copy[i] = halves[i % 2]->at<float>(i / 2);
    vector.data = copy;
  }

  // As f32: blocks of numbers cannot be cut at every place.
  void order_columns(Weight& weight, const Weight& stored, const std::vector<int64_t>& to) {
    const auto width = static_cast<size_t>(stored.in);
    float* const copy = room(static_cast<size_t>(stored.out) * width);
    std::vector<float> row(width);
    for (int64_t i = 0; i < stored.out; ++i) {
      kernels().widen[static_cast<size_t>(stored.dtype)](stored.stored_row(i), width, row.data());
      for (size_t j = 0; j < width; ++j) copy[static_cast<size_t>(i) * width + static_cast<size_t>(to[j])] = row[j];
    }
    weight.data = reinterpret_cast<const std::byte*>(copy);
    weight.dtype = DType::f32;
    weight.stride = width * sizeof(float);
  }

  void vector(Vector& vector, const TensorLine& from) {
    const Vector& stored = *from.vector;
    const std::string name = from.huggingface;
    vector.name = name;
    vector.data = stored.data;
    vector.dtype = stored.dtype;
    vector.size = stored.size;
    if (!gguf_) return;
    const std::vector<int64_t> to = gguf_rows(from, head_dim_);
    if (to.empty() && from.layout.gguf_offset == 0 && !from.layout.gguf_minus_exp) return;
    float* const copy = room(static_cast<size_t>(stored.size));
    for (int64_t i = 0; i < stored.size; ++i) {
      const auto value = stored.at<float>(i);
      copy[to.empty() ? i : to[static_cast<size_t>(i)]] =
          from.layout.gguf_minus_exp ? std::log(-value) : value - from.layout.gguf_offset;
    }
    vector.data = copy;
  }

  float* room(size_t elements) {
    copies_.push_back(std::make_unique<float[]>(elements));
    return copies_.back().get();
  }

  Lines matrices_, vectors_;
  std::string path_;
  bool gguf_;
  int64_t head_dim_;
  std::vector<std::unique_ptr<float[]>>& copies_;
};

// Puts a model without weights in the place of the opened one, with its values.
void bind_to(OpenedModel& opened, std::unique_ptr<Model> model, const std::string& path) {
  Binder binder(*opened.model, opened.files.kind == ModelFiles::Kind::gguf, path, opened.widened);
  for (const TensorLine& line : model->tensors()) binder.bind(line);
  opened.model = std::move(model);
}

}  // namespace

Json huggingface_config(const OpenedModel& gguf) {
  Json config = gguf.model->config(ConfigFormat::huggingface);
  // Said even where there is none: other programs would put in their family's ids.
  const auto name = [&](const char* key, const char* stored) {
    const std::optional<int64_t> id = token_of(gguf, stored);
    config[key] = id ? Json(*id) : Json(nullptr);
  };
  name("bos_token_id", "tokenizer.ggml.bos_token_id");
  name("eos_token_id", "tokenizer.ggml.eos_token_id");
  name("pad_token_id", "tokenizer.ggml.padding_token_id");
  return config;
}

OpenedModel as_huggingface(OpenedModel gguf, Json config) {
  VITRINE_CHECK(gguf.files.kind == ModelFiles::Kind::gguf && gguf.adapter == nullptr, "a GGUF model without adapter");
  ModelFiles files = gguf.files;
  files.kind = ModelFiles::Kind::huggingface;
  files.config_path = files.weights;  // for messages
  files.directory.clear();            // what lies beside the file is not this model's
  files.config = std::move(config);
  std::unique_ptr<Model> model = model_from_config(files);
  check_same_model(*gguf.model, *model,
                   {files.weights, "its family's config.json can only say",
                    "such a model has no form as a Hugging Face directory. Run it as it is"});
  bind_to(gguf, std::move(model), files.weights);
  gguf.files = std::move(files);
  return gguf;
}

OpenedModel as_huggingface(OpenedModel opened) {
  if (opened.files.kind == ModelFiles::Kind::gguf) {
    Json config = huggingface_config(opened);
    return as_huggingface(std::move(opened), std::move(config));
  }
  if (!opened.files.config.contains("quantization_config")) return opened;
  opened.files.config.erase("quantization_config");
  bind_to(opened, model_from_config(opened.files), opened.files.config_path);
  return opened;
}

}  // namespace vitrine
