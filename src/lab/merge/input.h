#pragma once
// One model that goes into a merge: its tensors by the names of the Hugging Face file, whatever kind of file they lie in.
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "merge/recipe.h"
#include "model/load.h"

namespace vitrine {

/// Where in a tensor's name its layer stands: "model.layers.3.mlp.up_proj.weight" is "model.layers", 3, "mlp.up_proj.weight".
struct LayerName {
  std::string stack;
  int64_t layer = -1;  // -1: no layer; then `rest` is the name
  std::string rest;
  std::string with_layer(int64_t other) const;
};
LayerName layer_name(std::string_view tensor);

/// A tensor of an input: where it lies in a mapped file, or what makes it of a GGUF file or an adapted model.
struct InputTensor {
  std::vector<int64_t> shape;
  DType dtype = DType::f32;              // block formats count as f32
  const StoredTensor* stored = nullptr;  // one of the two
  const FileTensor* made = nullptr;
  bool mapped = false;  // its bytes are those of a mapped file, not a copy of what lay unaligned there

  int64_t elements() const;
};

class MergeInput {
 public:
  /// Maps the model's files. Errors: FileError for files that are missing or broken; of GGUF files and adapters also for a family
  /// that vitrine does not know.
  explicit MergeInput(const ModelReference& reference);
  MergeInput(MergeInput&&) noexcept;
  ~MergeInput();

  const ModelReference& reference() const { return reference_; }
  std::string name() const { return reference_.text(); }
  const ModelFiles& files() const { return files_; }
  const Json& config() const { return files_.config; }
  const Checkpoint& checkpoint() const;
  /// Of a GGUF model or one with an adapter; else null.
  const OpenedModel* opened() const { return opened_.get(); }

  const std::map<std::string, InputTensor, std::less<>>& tensors() const { return tensors_; }
  const InputTensor* find(std::string_view name) const;
  /// The name of the embedding, and of the output matrix where it has one of its own; empty if there is none.
  const std::string& embedding() const { return embedding_; }
  const std::string& head() const { return head_; }
  /// Layers of a stack ("model.layers"): one more than the largest index.
  int64_t layers(std::string_view stack) const;
  /// Names before the layers and behind them, as the family lists them; of an unknown one, as the names suggest.
  bool is_behind_layers(const std::string& name) const;

  /// Elements [first, first + n) as f32; of a made matrix, whole rows.
  void read(const InputTensor& tensor, int64_t first, size_t n, float* to) const;
  /// Tells the kernel that a tensor will be read soon, or that its pages are not needed any more.
  static void will_need(const InputTensor& tensor);
  static void release(const InputTensor& tensor);

 private:
  void list_made();
  void list_stored();

  ModelReference reference_;
  ModelFiles files_;
  std::unique_ptr<Checkpoint> checkpoint_;  // of plain files
  std::unique_ptr<OpenedModel> opened_;     // of the others
  std::vector<FileTensor> made_;
  std::map<std::string, InputTensor, std::less<>> tensors_;
  std::map<std::string, int64_t, std::less<>> layers_;
  std::vector<std::string> behind_;  // the family's names behind its layers
  bool known_ = false;               // the family
  std::string embedding_, head_;
};

}  // namespace vitrine
