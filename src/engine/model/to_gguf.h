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

/// How far a file is.
struct GgufProgress {
  double share = 0;         // of the work: a number counts by the time that its type takes
  double seconds = 0;       // for the rest, estimated beforehand from a sample of each type
  uint64_t written = 0;     // bytes of the file that are there
  uint64_t kept = 0;        // bytes that were there from a run before
  bool began_anew = false;  // bytes that a run before made from something else were thrown away
};

struct WriteGgufOptions {
  /// What the bytes depend on besides the file's header and the encoding's importances: the files of weights and of the adapter,
  /// the program that encodes. A run that was stopped leaves its bytes beside `path` (io/resumable_file.h), and one with the same
  /// text goes on behind them. Empty: no run goes on.
  std::string made_from = {};
  /// Called before the first piece that is not there from a run before, and then after each.
  std::function<void(const GgufProgress&)> watch = {};
};

/// Writes the file: under a temporary name beside it, then renamed, so that it is there when it is whole. Every number is widened
/// to f32, takes what the adapter adds, and is encoded once; a tensor that has its type already is copied. Memory is bounded
/// whatever the model's size.
/// Errors: RunError naming a weight that is NaN, infinite or too large for its type, and from the disk; the latter say how to go
/// on.
void write_gguf(const OpenedModel& opened, const GgufPlan& plan, const GgufEncoding& encoding, const std::string& path,
                ThreadPool& pool, const WriteGgufOptions& options = {});

/// Every number in f32.
GgufEncoding gguf_in_f32();
/// The same file in memory, in gguf_in_f32(). Also of a model that was a GGUF file before as_huggingface().
/// Errors: RunError naming a weight that is NaN or infinite.
std::string gguf_bytes(const OpenedModel& opened, const GgufPlan& plan);

}  // namespace vitrine
