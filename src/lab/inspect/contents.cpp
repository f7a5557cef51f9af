#include "inspect/contents.h"

#include "io/gguf.h"
#include "io/huggingface.h"
#include "model/load.h"
#include "model/registry.h"

namespace vitrine {

int64_t FileContents::elements() const {
  int64_t sum = 0;
  for (const auto& [name, type] : types) sum += type.elements;
  return sum;
}

int64_t FileContents::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, type] : types) sum += type.bytes;
  return sum;
}

std::optional<FileContents> unread_contents(std::string_view model) {
  const ModelFiles files = resolve_model(model);
  if (files.weights.empty()) return {};
  const bool gguf = files.kind == ModelFiles::Kind::gguf;
  FileContents contents;
  contents.path = gguf ? files.weights : files.directory;
  std::optional<Gguf> opened;
  if (gguf) opened = open_gguf(files.weights);
  const Checkpoint checkpoint = gguf ? std::move(opened->checkpoint) : open_weights(files);
  if (gguf)
    contents.architecture = opened->metadata.string("general.architecture", "");
  else
    contents.architecture = stated_family(files.config);

  for (const auto& [name, tensor] : checkpoint.tensors()) {
    FileContents::Type& type = contents.types[std::string(name_of(tensor.dtype))];
    ++type.tensors;
    type.bytes += static_cast<int64_t>(tensor.bytes);
    int64_t elements = 1;
    for (const int64_t size : tensor.shape) elements *= size;
    type.elements += elements;
  }
  std::string strange;
  for (const auto& [name, tensor] : checkpoint.unreadable()) {
    if (contents.types[tensor.type].tensors++ == 0) strange += (strange.empty() ? "" : ", ") + tensor.type;
  }
  if (!knows_family(contents.architecture, gguf))
    contents.why = "the family \"" + contents.architecture + "\" is not among those that vitrine runs: " + known_families();
  else if (!strange.empty())
    contents.why = "no kernels for the element type " + strange + "; use a copy of the model in one of " + weight_types();
  if (contents.why.empty()) return {};
  return contents;
}

}  // namespace vitrine
