#pragma once
// Walking over the tokens of a template.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/lexer.h"

namespace vitrine::jinja {

class TokenCursor {
 protected:
  using Names = std::initializer_list<std::string_view>;
  static constexpr int kDeepest = 300;  // nested rules of the grammar; a pair of brackets takes three

  explicit TokenCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void advance() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }
  bool skip_sign(std::string_view sign) {
    if (!now().is_sign(sign)) return false;
    advance();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!now().is_name(name)) return false;
    advance();
    return true;
  }
  bool at_name(Names names) const {
    return std::any_of(names.begin(), names.end(), [&](std::string_view name) { return now().is_name(name); });
  }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case TokenKind::data: return "text";
      case TokenKind::variable_begin: return "'{{'";
      case TokenKind::variable_end: return "'}}'";
      case TokenKind::block_begin: return "'{%'";
      case TokenKind::block_end: return "'%}'";
      case TokenKind::end: return "the end of the template";
      default: return "'" + token.text + "'";
    }
  }

  [[noreturn]] void fail(std::string problem) const { throw SyntaxProblem{now().line, std::move(problem)}; }
  [[noreturn]] void unexpected(const std::string& expected) const { fail("expected " + expected + ", found " + describe(now())); }

  void expect_sign(const char* sign) {
    if (!skip_sign(sign)) unexpected(std::string("'") + sign + "'");
  }
  void expect_name(const char* name) {
    if (!skip_name(name)) unexpected(std::string("'") + name + "'");
  }
  std::string any_name(const char* what) {
    if (now().kind != TokenKind::name) unexpected(what);
    std::string name = now().text;
    advance();
    return name;
  }
  void expect(TokenKind kind, const char* spelled) {
    if (now().kind != kind) unexpected(spelled);
    advance();
  }

  /// One level of nesting, while it lives: recursion must not outrun the stack.
  struct Nesting {
    explicit Nesting(TokenCursor& of) : cursor(of) {
      if (++cursor.depth_ > kDeepest) cursor.fail("the template nests deeper than " + std::to_string(kDeepest) + " levels");
    }
    ~Nesting() { --cursor.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    TokenCursor& cursor;
  };

 private:
  std::vector<Token> tokens_;  // the last is TokenKind::end and is never left
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace vitrine::jinja
