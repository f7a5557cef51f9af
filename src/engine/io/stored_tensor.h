#pragma once
// Tensors where they lie in mapped files. Every reader of a weight format ends here; models look tensors up by name.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/mapped_file.h"

namespace vitrine {

/// One tensor of a checkpoint. `data` is aligned for its type and lives as long as the checkpoint.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;  // outermost first, as Hugging Face: a linear layer is [out, in]; no product overflows
  const std::byte* data = nullptr;
  size_t bytes = 0;
  const std::string* file = nullptr;  // path of the file that holds it
  size_t described_at = 0;            // byte of that file where the tensor's description begins, for messages
};

/// A tensor of an element type that vitrine has no kernels for. Its presence is no error, asking for it is.
struct UnreadableTensor {
  std::string type;  // as the format calls it: "F8_E4M3", "Q6_K"
  const std::string* file = nullptr;
  size_t described_at = 0;
  std::vector<int64_t> shape = {};  // of safetensors, and where its bytes lie
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

/// A tensor of a file to be written.
struct TensorPlan {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
};

/// "[2, 3]".
std::string shape_text(const std::vector<int64_t>& shape);

/// The tensors of one model, from one or more mapped files. Owns the maps; movable, pointers to its tensors stay valid.
class Checkpoint {
 public:
  using Metadata = std::map<std::string, std::string>;

  explicit Checkpoint(std::string path) : path_(std::move(path)) {}

  /// The tensor of that name, or null if the files hold none.
  /// Errors: FileError if it is there in a type that cannot be read.
  const StoredTensor* find(std::string_view name) const;
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, UnreadableTensor, std::less<>>& unreadable() const { return unreadable_; }

  /// What was opened: a file or the directory of the shards.
  const std::string& path() const { return path_; }
  /// Bytes of all readable tensors.
  size_t bytes() const { return bytes_; }
  /// Bytes of tensors in memory of their own: they lie unaligned for their type in the file (safetensors allows it), or their
  /// file holds them in another form.
  size_t copied_bytes() const { return copied_bytes_; }
  /// The free-form strings of safetensors ("format": "pt"); of shards, those of the last.
  const Metadata& metadata() const { return metadata_; }
  /// The mapped files.
  const std::list<MappedFile>& files() const { return files_; }
  /// Tells the kernel that all files will be read soon; returns at once.
  void will_need() const;

  // For the readers of formats.
  /// Takes a map over; the reference stays valid.
  const MappedFile& own(MappedFile file) { return files_.emplace_back(std::move(file)); }
  /// Adds a tensor whose bytes were checked against its file; copies it if it is unaligned.
  /// Errors: FileError if the name is taken.
  void add(StoredTensor tensor);
  void add_unreadable(const std::string& name, UnreadableTensor tensor);
  /// Adds a tensor in memory of its own, which is to be filled: `tensor.bytes` of them. Errors: FileError if the name is taken.
  std::byte* add_new(StoredTensor tensor);
  /// Takes a tensor away, readable or not; its bytes stay where they are.
  void remove(const std::string& name);
  void set_metadata(Metadata metadata) { metadata_ = std::move(metadata); }

 private:
  void check_new(const std::string& name, const std::string& file) const;
  std::byte* room(size_t bytes);

  std::string path_;
  std::list<MappedFile> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
  std::map<std::string, UnreadableTensor, std::less<>> unreadable_;
  std::vector<std::unique_ptr<std::max_align_t[]>> copies_;
  Metadata metadata_;
  size_t bytes_ = 0, copied_bytes_ = 0;
};

}  // namespace vitrine
