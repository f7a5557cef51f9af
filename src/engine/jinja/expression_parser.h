#pragma once
// The expressions of a template: Jinja's grammar, one rule per function.
#include <optional>
#include <string_view>
#include <vector>

#include "jinja/syntax.h"
#include "jinja/token_cursor.h"

namespace vitrine::jinja {

class ExpressionParser : protected TokenCursor {
 protected:
  using TokenCursor::TokenCursor;

  /// One expression.
  ExpressionPtr expression();
  /// One expression, or several with commas: a tuple. Without `conditionals` an "if" ends it; so does the name `end_name`.
  ExpressionPtr tuple(bool conditionals = true, std::string_view end_name = {}, bool may_be_empty = false);
  /// All filters from here on, over `e`; inside {% filter %} the first has no "|".
  ExpressionPtr filters(ExpressionPtr e, bool inline_first);
  ExpressionPtr block_text();

  std::vector<Statement*> macros_;  // open around the current token: they learn what their bodies read

 private:
  // From the loosest binding to the tightest.
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr concatenation();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filters);
  ExpressionPtr filters_and_tests(ExpressionPtr e);
  ExpressionPtr postfix(ExpressionPtr e);
  ExpressionPtr primary();

  ExpressionPtr name(const Token& token);
  ExpressionPtr subscript(ExpressionPtr of, int line);
  ExpressionPtr call(ExpressionPtr callee);
  ExpressionPtr test(ExpressionPtr of);
  void arguments(Expression& e);
  std::optional<Comparison> comparison_sign();
  std::string dotted_name(const char* what);
  bool at_tuple_end(std::string_view end_name) const;

  // Parts are added through adopt() and deepen(), so that no tree becomes deeper than walks can bear.
  static constexpr int kDeepestTree = 150;  // a + b + c + ...: each operator is a level
  void adopt(Expression& parent, ExpressionPtr child, std::vector<ExpressionPtr>& into);
  void deepen(Expression& parent, const Expression& child);
  ExpressionPtr make(ExpressionKind kind, int line);
  ExpressionPtr combine(ExpressionKind kind, int line, ExpressionPtr a, ExpressionPtr b = nullptr);
  ExpressionPtr binary(Arithmetic operation, int line, ExpressionPtr left, ExpressionPtr right);
  ExpressionPtr constant(Value value, int line);
};

}  // namespace vitrine::jinja
