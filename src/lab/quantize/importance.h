#pragma once
// Importance matrices: for each matrix of a model the mean square of each of its inputs over a text, which says how much an error
// in a weight matters. Files are llama.cpp's: GGUF as its llama-imatrix writes them, or the .dat files of its older versions.
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "io/shared_work.h"
#include "runtime/engine.h"

namespace vitrine {

struct ImportanceMatrix {
  struct Entry {
    std::vector<float> sums;    // of squares: [matrices, in]
    std::vector<float> counts;  // rows that met each matrix: [matrices]; more than one where experts share a name
  };
  std::map<std::string, Entry> entries;  // by the matrix's name in GGUF
  std::vector<std::string> datasets;     // files of the texts
  uint32_t chunks = 0, chunk_size = 0;   // tokens in each

  /// The mean squares of the inputs of matrix number `matrix` under `name`; empty if it is not there. One that no row met gives
  /// ones. Errors: InputError naming `file` for another number of inputs or matrices than the model has.
  std::vector<float> means(const std::string& name, int64_t in, int64_t matrix, int64_t matrices, const std::string& file) const;
};

/// Errors: FileError naming the file, the place, what was found and what was expected.
ImportanceMatrix read_importance(const std::string& path);
/// The same for a file's content in memory.
ImportanceMatrix read_importance(std::span<const std::byte> bytes, const std::string& path);
void write_importance(const ImportanceMatrix& matrix, const std::string& path);

/// Runs chunks of `chunk_size` of the ids through the model, each from an empty context, begun with BOS where the tokenizer puts
/// one. What is left behind the last whole chunk is not used. `done`, if given, is told the share. Errors: InputError for fewer
/// ids than one chunk, more than the context holds, and a family that GGUF has no names for; RunError for NaN; as
/// SharedWork::unit. shared: whose units are four chunks; without it all are computed here. Unless it gives all, the matrix has
/// no entries.
ImportanceMatrix collect_importance(Engine& engine, std::span<const int32_t> ids, int64_t chunk_size, int64_t most_chunks,
                                    const std::function<void(double)>& done = {}, SharedWork* shared = nullptr);

}  // namespace vitrine
