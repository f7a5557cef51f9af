#pragma once
// The normalizers of tokenizer.json: what happens to a text before it is cut.
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/components.h"
#include "tokenizer/tracked_text.h"

namespace vitrine {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(TrackedText& text) const = 0;
  /// True if apply() writes "▁" for each space, and does nothing else.
  virtual bool marks_spaces() const { return false; }
};

/// Reads a "normalizer" of tokenizer.json; a Sequence becomes its members. Errors: FileError, for an unknown type with
/// the list of those known.
std::vector<std::unique_ptr<Normalizer>> parse_normalizers(const Component& component);

std::unique_ptr<Normalizer> make_nfc();

}  // namespace vitrine
