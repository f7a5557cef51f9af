#include "merge/input.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <span>

#include "base/error.h"
#include "kernels/table.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/from_gguf.h"
#include "model/packed_weights.h"
#include "model/registry.h"

namespace vitrine {
namespace {

bool names_head(std::string_view name) {
  return name == "lm_head.weight" || name == "embed_out.weight" || name == "output.weight" || name.ends_with(".lm_head.weight");
}

// Tensors of old files that carry no weights: masks and frequencies.
bool carries_nothing(std::string_view name, const Family* family) {
  for (const std::string_view ending : {".rotary_emb.inv_freq", ".attn.masked_bias", ".attn.bias"})
    if (name.ends_with(ending)) return true;
  return family != nullptr && std::any_of(family->ignored_suffixes.begin(), family->ignored_suffixes.end(),
                                          [&](std::string_view end) { return name.ends_with(end) && !names_head(name); });
}

bool names_embedding(std::string_view name) {
  for (const std::string_view ending : {"embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight",
                                        "embed_in.weight", "embeddings.weight"})
    if (name.ends_with(ending)) return true;
  return false;
}

// The whole pages of a tensor's bytes, if a file backs them: a copy in memory would read as zeros once its pages were given back.
void advise(const InputTensor& tensor, int advice, bool inner) {
  if (!tensor.mapped || tensor.stored->bytes == 0) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.stored->data), end = begin + tensor.stored->bytes;
  const uintptr_t first = inner ? (begin + page - 1) / page * page : begin / page * page;
  const uintptr_t last = inner ? end / page * page : (end + page - 1) / page * page;
  if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, advice);
}

bool lies_in(const StoredTensor& tensor, std::span<const std::byte> bytes) {
  const std::less_equal<const std::byte*> up_to;
  return !bytes.empty() && up_to(bytes.data(), tensor.data) && up_to(tensor.data + tensor.bytes, bytes.data() + bytes.size());
}

}  // namespace

LayerName layer_name(std::string_view tensor) {
  for (size_t dot = tensor.find('.'); dot != std::string_view::npos; dot = tensor.find('.', dot + 1)) {
    const size_t end = tensor.find('.', dot + 1);
    if (end == std::string_view::npos) break;
    int64_t layer = 0;
    const auto [stop, error] = std::from_chars(tensor.data() + dot + 1, tensor.data() + end, layer);
    if (tensor[dot + 1] == '-' || (tensor[dot + 1] == '0' && end != dot + 2)) continue;  // with_layer would write it otherwise
    if (error == std::errc{} && stop == tensor.data() + end && layer >= 0 && layer < (1 << 20))
      return {std::string(tensor.substr(0, dot)), layer, std::string(tensor.substr(end + 1))};
  }
  return {"", -1, std::string(tensor)};
}

std::string LayerName::with_layer(int64_t other) const {
  return layer < 0 ? rest : stack + "." + std::to_string(other) + "." + rest;
}

int64_t InputTensor::elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

MergeInput::MergeInput(const ModelReference& reference) : reference_(reference), files_(resolve_model(reference.path)) {
  if (files_.kind == ModelFiles::Kind::gguf || !packing_method(files_).empty() || !reference.adapter.empty()) {
    opened_ = std::make_unique<OpenedModel>(as_huggingface(open_model(files_)));
    if (!reference.adapter.empty()) open_adapter(*opened_, locate_model(reference.adapter));
    files_ = opened_->files;
    list_made();
  } else {
    checkpoint_ = std::make_unique<Checkpoint>(open_weights(files_));
    list_stored();
  }
  for (const auto& [name, tensor] : tensors_) {
    const LayerName place = layer_name(name);
    if (place.layer >= 0) {
      int64_t& n = layers_[place.stack];
      n = std::max(n, place.layer + 1);
      continue;
    }
    if (embedding_.empty() && names_embedding(name)) embedding_ = name;
    if (head_.empty() && names_head(name)) head_ = name;
  }
}

MergeInput::MergeInput(MergeInput&&) noexcept = default;
MergeInput::~MergeInput() = default;

const Checkpoint& MergeInput::checkpoint() const { return checkpoint_ != nullptr ? *checkpoint_ : opened_->checkpoint; }

void MergeInput::list_made() {
  made_ = file_tensors(*opened_->model, false);
  known_ = true;
  bool layers = false;
  for (const FileTensor& tensor : made_) {
    const TensorLine* const line = tensor.parts.front();
    const DType dtype = line->weight != nullptr ? line->weight->dtype : line->vector->dtype;
    tensors_.emplace(tensor.name, InputTensor{tensor.shape, is_block(dtype) ? DType::f32 : dtype, nullptr, &tensor, false});
    const bool in_layer = layer_name(tensor.name).layer >= 0;
    if (layers && !in_layer) behind_.push_back(tensor.name);
    layers = layers || in_layer;
  }
}

void MergeInput::list_stored() {
  const Family* const family = family_of(files_.config);
  files_.stacked_experts = holds_stacked_experts(*checkpoint_);
  // The family's names in their order, if its configuration can be read: what comes behind the layers.
  std::unique_ptr<Model> model;
  if (family != nullptr) try {
      model = model_from_config(files_);
    } catch (const InputError&) {  // a variant that only merging must take
    }
  std::vector<std::string> canonical;
  if (model != nullptr) {
    known_ = true;
    bool layers = false;
    for (const FileTensor& tensor : file_tensors(*model, false)) {
      canonical.push_back(tensor.name);
      const bool in_layer = layer_name(tensor.name).layer >= 0;
      if (layers && !in_layer) behind_.push_back(tensor.name);
      layers = layers || in_layer;
    }
    std::sort(canonical.begin(), canonical.end());
  }
  for (const auto& [stored_name, tensor] : checkpoint_->tensors()) {
    if (carries_nothing(stored_name, family)) continue;
    std::string name = stored_name;
    if (model != nullptr && !std::binary_search(canonical.begin(), canonical.end(), name))
      for (const std::string_view prefix : family->optional_prefixes)  // files of the bare model lack it
        if (std::binary_search(canonical.begin(), canonical.end(), std::string(prefix) + name)) name = std::string(prefix) + name;
    const DType dtype = is_block(tensor.dtype) ? DType::f32 : tensor.dtype;
    const bool mapped = std::any_of(checkpoint_->files().begin(), checkpoint_->files().end(),
                                    [&](const MappedFile& file) { return lies_in(tensor, file.bytes()); });
    const auto [place, is_new] = tensors_.emplace(std::move(name), InputTensor{tensor.shape, dtype, &tensor, nullptr, mapped});
    if (!is_new)
      throw FileError(*tensor.file, "tensor \"" + stored_name + "\" is also there as \"" + place->second.stored->name +
                                        "\", which is the same weight; expected one of them");
  }
  if (!checkpoint_->unreadable().empty()) {
    const auto& [name, tensor] = *checkpoint_->unreadable().begin();
    throw FileError(*tensor.file, "tensor \"" + name + "\" has the element type " + tensor.type +
                                      ", which cannot be merged; convert the model to bf16 or f32 first");
  }
}

const InputTensor* MergeInput::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

int64_t MergeInput::layers(std::string_view stack) const {
  const auto found = layers_.find(stack);
  return found == layers_.end() ? 0 : found->second;
}

bool MergeInput::is_behind_layers(const std::string& name) const {
  if (names_head(name)) return true;
  if (known_) return std::find(behind_.begin(), behind_.end(), name) != behind_.end();
  for (const char* part : {"embed", "wte", "wpe"})
    if (name.find(part) != std::string::npos && !names_head(name)) return false;
  return true;
}

void MergeInput::read(const InputTensor& tensor, int64_t first, size_t n, float* to) const {
  if (tensor.made != nullptr) {
    const int64_t width = tensor.shape.size() < 2 ? 1 : tensor.shape.back();
    read_rows(*tensor.made, first / width, static_cast<int64_t>(n) / width, to);
    return;
  }
  const StoredTensor& stored = *tensor.stored;
  const std::byte* const from = stored.data + row_bytes(stored.dtype, static_cast<size_t>(first));
  if (static_cast<int>(stored.dtype) < kWeightTypes) return kernels().widen[static_cast<size_t>(stored.dtype)](from, n, to);
  VITRINE_CHECK(stored.dtype == DType::f64, "tensors of whole numbers are copied, not merged");
  for (size_t i = 0; i < n; ++i) to[i] = static_cast<float>(reinterpret_cast<const double*>(from)[i]);
}

void MergeInput::will_need(const InputTensor& tensor) { advise(tensor, MADV_WILLNEED, false); }
void MergeInput::release(const InputTensor& tensor) { advise(tensor, MADV_DONTNEED, true); }

}  // namespace vitrine
