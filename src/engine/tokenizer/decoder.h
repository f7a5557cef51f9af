#pragma once
// The decoders of tokenizer.json: how pieces become text again. A decoder is a row of stages, and the stages run on one
// piece at a time, so decoding a stream and decoding a list are the same thing.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/components.h"

namespace vitrine {

/// A piece on its way through the stages, or a part of one: stages that join pieces hand their text on as it comes.
struct Fragment {
  std::string text;
  bool begins = true, ends = true;
};

class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual void push(Fragment fragment) = 0;
  virtual void end() = 0;  // no more pieces: passes on what is held, then the end; afterwards as new
  void set_next(DecodeStage* next) { next_ = next; }

 protected:
  DecodeStage* next_ = nullptr;
};

using DecodeStageFactory = std::function<std::unique_ptr<DecodeStage>()>;

/// One stage, and what it makes of a piece in the middle of a text, as bytes; null: that hangs on the pieces around it.
struct DecodeStep {
  DecodeStageFactory make;
  std::function<void(std::string& piece)> bytes;
};

/// Reads a "decoder" of tokenizer.json; a Sequence becomes its members. Errors: FileError, for an unknown type with the
/// list of those known.
std::vector<DecodeStep> parse_decoders(const Component& component);

/// GPT-2's alphabet back to bytes; what is not UTF-8 becomes U+FFFD if `replace`, and otherwise stays as it is.
DecodeStep make_byte_level_decoder(bool replace);

}  // namespace vitrine
