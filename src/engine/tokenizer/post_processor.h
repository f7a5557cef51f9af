#pragma once
// The post-processors of tokenizer.json: which special tokens stand around a text.
#include <cstdint>
#include <vector>

#include "tokenizer/components.h"
#include "tokenizer/vocabulary.h"

namespace vitrine {

struct SpecialFrame {
  std::vector<int32_t> before, after;
};

/// Reads a "post_processor" of tokenizer.json for single texts. `vocab_size` bounds the ids. Errors: FileError, for an
/// unknown type with the list of those known.
SpecialFrame parse_post_processor(const Component& component, int32_t vocab_size);

}  // namespace vitrine
