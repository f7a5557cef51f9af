#pragma once
// The pre-tokenizers of tokenizer.json: how a normalized text is cut into the words that the model sees.
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/components.h"
#include "tokenizer/tracked_text.h"

namespace vitrine {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts (and may rewrite) every chunk that has no token yet.
  virtual void apply(Chunks& chunks) const = 0;
  /// True if apply() reads the ranges of chunks, so that they must be kept.
  virtual bool needs_ranges() const { return false; }
  /// True if apply() writes the words of GPT-2's pattern in its alphabet of bytes, and does nothing else.
  virtual bool is_gpt2_byte_level() const { return false; }
};

/// Reads a "pre_tokenizer" of tokenizer.json; a Sequence becomes its members. Errors: FileError, for an unknown type with
/// the list of those known.
std::vector<std::unique_ptr<PreTokenizer>> parse_pre_tokenizers(const Component& component);

/// A Split by a regular expression, matches kept apart, as the files of GPT-4 and Llama 3 have it.
std::unique_ptr<PreTokenizer> make_split(const std::string& regex, const std::string& path, const std::string& field);
/// Bytes to GPT-2's alphabet, with its own word pattern if `use_regex`.
std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex);
/// Each digit (category N*) on its own, or runs of them.
std::unique_ptr<PreTokenizer> make_digits(bool individual);
std::unique_ptr<PreTokenizer> make_punctuation();  // runs of punctuation on their own

}  // namespace vitrine
