#pragma once
// Which pieces steer a conversation although their file does not mark them as control pieces.
#include <string_view>

namespace vitrine {

/// True for <start_of_turn>, <end_of_turn>, the ends of texts </s> (which Phi-3's file calls a word) and <eos>, and everything of
/// the form <|name|>: what a chat template puts around messages. Text from a user may not produce them (Special::text).
inline bool names_a_control(std::string_view piece) {
  if (piece == "<start_of_turn>" || piece == "<end_of_turn>" || piece == "</s>" || piece == "<eos>") return true;
  return piece.size() > 4 && piece.starts_with("<|") && piece.ends_with("|>");
}

}  // namespace vitrine
