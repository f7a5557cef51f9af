#pragma once
// Tokens that are found in the text before the model sees it: where files declare them, and where they lie in a text.
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/trie.h"

namespace vitrine {

struct AddedToken {
  int32_t id = -1;
  std::string content;
  bool single_word = false, lstrip = false, rstrip = false;
  bool normalized = false;  // found in the normalized text, in its own normalized spelling
  bool special = false;     // left out by decode(skip_special)
};

bool is_control_token(const AddedToken& token);  // special, or named like one

/// An added token of added_tokens.json or tokenizer_config.json, and the place that declares it, for messages.
struct DeclaredToken {
  AddedToken token;
  std::string path, field;
};

/// The declared tokens with the ids they have beside a vocabulary of `size` ids: a content that the vocabulary knows keeps its id
/// there, as in transformers. find(content) is that id or -1, piece(id) the text that has the id or "".
/// Errors: FileError for an id that belongs to another text or lies far behind the vocabulary, and for a content with two ids.
std::vector<AddedToken> resolve_declared(const std::vector<DeclaredToken>& declared, int32_t size,
                                         const std::function<int32_t(std::string_view)>& find,
                                         const std::function<std::string(int32_t)>& piece);

struct AddedSpan {
  size_t begin, end;
  int32_t id;  // -1: not an added token
};

/// Cuts `text` at the tokens that `trie` names by their index in `tokens`: leftmost, then longest. Tokens that are single words
/// must not touch a word character; lstrip and rstrip take white space along, up to the next token.
std::vector<AddedSpan> find_added(std::string_view text, const Trie& trie, std::span<const AddedToken> tokens);

}  // namespace vitrine
