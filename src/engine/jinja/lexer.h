#pragma once
// Template source to tokens, with the white-space rules that Hugging Face sets: trim_blocks and lstrip_blocks on, one newline
// at the end of the file dropped, every line end read as \n.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine::jinja {

enum class TokenKind : uint8_t {
  data,            // text between tags
  variable_begin,  // {{
  variable_end,
  block_begin,  // {%
  block_end,
  name,
  string,  // escapes resolved
  integer,
  number,       // a float
  punctuation,  // operators and brackets, by their spelling
  end,
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
  int64_t integer = 0;
  double number = 0;

  bool is(TokenKind of_kind, std::string_view spelled) const { return kind == of_kind && text == spelled; }
  bool is_name(std::string_view spelled) const { return is(TokenKind::name, spelled); }
  bool is_sign(std::string_view spelled) const { return is(TokenKind::punctuation, spelled); }
};

/// A mistake in the source at a line.
struct SyntaxProblem {
  int line;
  std::string text;
};

/// Errors: throws SyntaxProblem for an unknown character, an unclosed tag, comment, string or bracket, a number beyond 64 bits,
/// bytes that are not UTF-8.
std::vector<Token> tokenize(std::string_view source);

}  // namespace vitrine::jinja
