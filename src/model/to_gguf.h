#pragma once
// An opened model as one GGUF file: keys, names, shapes and order of rows are those of llama.cpp's converter.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "io/gguf_writer.h"
#include "model/load.h"

namespace vitrine {

/// A tensor of the file, as far as its type depends on it.
struct GgufTensor {
  std::string name;             // "blk.0.attn_q.weight"
  std::vector<int64_t> shape;   // outermost first; of a vector one number
  std::optional<DType> stored;  // the type it has now, if its bytes may be copied: nothing is merged into it or transposed
};

/// How matrices become bytes. Vectors, norms and position tables are f32 always.
struct GgufEncoding {
  uint32_t file_type = 0;  // general.file_type
  /// The type of a matrix, which must suit the length of its rows.
  std::function<DType(const GgufTensor&)> type_of;
  /// Writes n values (whole rows, one after the other) in a type; `importance` has a weight for each value of one row, or is
  /// null. Called by several threads at once; must not throw.
  std::function<void(DType type, const float* rows, size_t n, size_t row, const float* importance, std::byte* out)> encode;
  /// The importance of a matrix's columns, as long as its rows, or null; `matrix` is its number where a tensor holds one for each
  /// expert, else 0. May be empty. Called by several threads at once.
  std::function<const float*(const std::string& name, int64_t matrix)> importance = {};
};

/// What a file will hold, known before a weight is read.
struct GgufPlan {
  GgufKeys keys;
  std::vector<TensorPlan> tensors;
  uint64_t bytes = 0;  // of the file, but for some hundred bytes of its header
};

/// Keys of the configuration and `tokenizer`, and the tensors with their types. Of a model that is a GGUF file already, all its
/// own keys are kept and `tokenizer` is not looked at.
/// Errors: FileError naming the family that has no GGUF form, and what the form cannot say of a model.
GgufPlan plan_gguf(const OpenedModel& opened, const GgufKeys& tokenizer, const GgufEncoding& encoding);

/// Writes the file: under a temporary name beside it, then renamed, so that it is there when it is whole. Every number is widened
/// to f32, takes what the adapter adds, and is encoded once; a tensor that has its type already is copied. Memory is bounded
/// whatever the model's size. `wrote`, if given, is told the share that is done.
/// Errors: RunError naming a weight that is NaN, infinite or too large for its type, and from the disk.
void write_gguf(const OpenedModel& opened, const GgufPlan& plan, const GgufEncoding& encoding, const std::string& path,
                ThreadPool& pool, const std::function<void(double)>& wrote = {});

}  // namespace vitrine
