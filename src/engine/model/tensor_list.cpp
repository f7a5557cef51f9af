#include "model/tensor_list.h"

#include <utility>

namespace vitrine {

std::vector<int64_t> TensorLine::file_shape(bool in_gguf) const {
  if (const int64_t taps = layout.taps.size; taps > 0)
    return in_gguf ? std::vector<int64_t>{out.size / taps, taps} : std::vector<int64_t>{out.size / taps, 1, taps};
  if (layout.rows > 0) return {layout.rows, out.size / layout.rows};
  if (in_gguf && layout.tiles.groups > 0 && layout.tiles.each == 0) return {layout.tiles.groups, out.size / layout.tiles.groups};
  if (const int64_t n = in.size > 0 ? in.size : out.size; layout.gguf_flat)
    return in_gguf ? std::vector<int64_t>{n} : std::vector<int64_t>{1, n};
  std::vector<int64_t> shape = {file_outputs(in_gguf)};
  if (in.size > 0) shape.insert(stored_by_columns(in_gguf) ? shape.begin() : shape.end(), in.size);
  if (experts_in_one(in_gguf)) shape.insert(shape.begin(), layout.experts);
  return shape;
}

int64_t TensorLine::first_row(bool in_gguf) const {
  const int64_t expert = experts_in_one(in_gguf) ? layout.expert : 0;
  if (lies_by_columns(in_gguf)) return expert * in.size;
  return expert * file_outputs(in_gguf) + first_output(in_gguf);
}

std::string TensorLine::file_formula(bool in_gguf) const {
  std::string outputs(out.formula);
  if (layout.taps.size > 0) return "[" + outputs + (in_gguf ? ", " : ", 1, ") + std::string(layout.taps.formula) + "]";
  if (stacked(in_gguf))
    outputs = layout.whole.size > 0 ? std::string(layout.whole.formula) : std::to_string(layout.parts) + " * " + outputs;
  const std::string first = experts_in_one(in_gguf) ? "[n_experts, " : "[";
  if (in.size == 0) return first + outputs + "]";
  const std::string inputs(in.formula);
  return first + (stored_by_columns(in_gguf) ? inputs + ", " + outputs : outputs + ", " + inputs) + "]";
}

void TensorList::layer(int64_t layer, std::string_view huggingface, std::string_view gguf) {
  const std::string index = std::to_string(layer) + ".";
  ours_ = "blocks." + index;
  huggingface_ = std::string(huggingface) + index;
  gguf_ = std::string(gguf) + index;
}

void TensorList::end_layers() {
  ours_.clear();
  huggingface_.clear();
  gguf_.clear();
}

void TensorList::add(Weight& weight, std::string_view ours, std::string_view huggingface, std::string_view gguf, Dim out, Dim in,
                     StoredLayout layout) {
  TensorLine& added = line(ours, huggingface, gguf, layout);
  added.out = out;
  added.in = in;
  added.weight = &weight;
  // Until it is loaded it counts as bf16, the type of published files.
  weight.dtype = DType::bf16;
  weight.out = out.size;
  weight.in = in.size;
  weight.by_columns = layout.by_columns;
}

void TensorList::add(Vector& vector, std::string_view ours, std::string_view huggingface, std::string_view gguf, Dim size,
                     StoredLayout layout) {
  TensorLine& added = line(ours, huggingface, gguf, layout);
  added.out = size;
  added.vector = &vector;
  vector.size = size.size;
}

void TensorList::add_with_bias(Weight& weight, std::string_view ours, std::string_view huggingface, std::string_view gguf,
                               Dim out, Dim in, StoredLayout layout) {
  const size_t last = ours.rfind('.') + 1;  // 0 if there is none
  const std::string place(ours.substr(0, last)), letter(ours.substr(last)), hf(huggingface), g(gguf);
  add(weight, place + "W_" + letter, hf + ".weight", g.empty() ? g : g + ".weight", out, in, layout);
  add(weight.bias, place + "b_" + letter, hf + ".bias", g.empty() ? g : g + ".bias", out);
}

TensorLine& TensorList::line(std::string_view ours, std::string_view huggingface, std::string_view gguf, StoredLayout layout) {
  TensorLine& added = lines_.emplace_back();
  added.ours = ours_ + std::string(ours);
  added.huggingface = huggingface_ + std::string(huggingface);
  if (!gguf.empty()) added.gguf = gguf_ + std::string(gguf);
  if (!layout.gguf_odd.empty()) added.gguf_odd = gguf_ + std::string(layout.gguf_odd);
  added.layout = layout;
  return added;
}

}  // namespace vitrine
