#pragma once
// What a run takes at its peak, before it is run.
#include <cstdint>

#include "model/load.h"

namespace vitrine {

/// Bytes in memory, those of mapped files among them. Activations are those of a dry run of the largest step (model/record.h);
/// bench/memory_of_runs.py compares the sums with runs.
struct RunMemory {
  int64_t weights = 0;  // pages of the files that are read: rows of the embedding only as far as tokens need them
  int64_t cache = 0;    // keys and values, as far as positions are written
  int64_t working = 0;  // activations of the largest step, the vocabulary, the program itself
  int64_t bytes() const { return weights + cache + working; }
};

struct RunSizes {
  int64_t context = 0, batch = 1;
  int64_t weights_bytes = 0;  // of all tensors; without files matrices count as bf16
  CacheTypes cache_types = {};
  int64_t cache_bytes = 0;   // of the cache's pages for `context` and `batch`
  int64_t header_bytes = 0;  // of a GGUF file's metadata, all of which are read
  int64_t pieces = 0;        // of the vocabulary; 0: there is no tokenizer
};

/// The largest step of a prompt of `context` tokens, of which a run reads the last one's logits.
RunMemory run_memory(const Model& model, const RunSizes& sizes, const Numerics& numerics);

}  // namespace vitrine
