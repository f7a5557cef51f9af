#pragma once
// The sequences that a scheduler keeps for prompts that begin like them, for a job that puts some there or takes some from there.
#include <cstddef>

#include "runtime/engine.h"
#include "schedule/prefix_cache.h"

namespace vitrine {

/// For the scheduler's thread alone, as sequences of the cache are.
struct KeptSequences {
  Engine& engine;
  KvCache& cache;
  PrefixCache& prefixes;
  size_t most_bytes;  // of the cache, by running streams and kept sequences

  /// Gives kept sequences up until so many bytes more may be kept. False: running streams hold too much, or they are too many.
  bool make_room(size_t bytes) const {
    while (cache.bytes_in_use() + bytes > most_bytes)
      if (!prefixes.forget_one()) return false;
    return true;
  }
};

}  // namespace vitrine
