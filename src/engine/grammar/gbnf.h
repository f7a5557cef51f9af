#pragma once
// GBNF, the grammars of llama.cpp: rules `name ::= ...` of literals, character classes, groups, alternatives and repetitions, the
// first of them called root.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/char_set.h"

namespace vitrine {

/// What a rule, or a part of one, matches.
struct GbnfNode {
  enum class Kind : uint8_t {
    chars,      // one character of a set, which may be empty and then matches nothing
    sequence,   // all parts, one behind the other; none: the empty text
    choice,     // one of the parts
    repeat,     // the one part, least to most times
    reference,  // what another rule matches
  };
  static constexpr uint32_t kNoLimit = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::sequence;
  CharSet chars = {};
  std::vector<GbnfNode> parts = {};
  uint32_t least = 0, most = 0;
  std::string rule = {};
};

using GbnfRules = std::map<std::string, GbnfNode>;

/// Errors: InputError naming source and line. Every rule that is referred to is there, and so is root. Refused by name: tokens
/// (<name>, <[id]>), a rule that is defined twice, more than 64 open brackets.
GbnfRules read_gbnf(std::string_view text, const std::string& source);

/// The same language for llguidance. Its lexer takes the longest lexeme that may come, so a part becomes a lexeme only where its
/// end is certain by the next character; else it is split, down to characters if need be. Errors: as read_gbnf; InputError for
/// rules that match no text, or that are too large to be analyzed.
std::string gbnf_to_lark(std::string_view text, const std::string& source);

}  // namespace vitrine
