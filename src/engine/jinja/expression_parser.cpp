#include "jinja/expression_parser.h"

namespace vitrine::jinja {

ExpressionPtr ExpressionParser::make(ExpressionKind kind, int line) {
  auto e = std::make_unique<Expression>();
  e->kind = kind;
  e->line = line;
  return e;
}

void ExpressionParser::adopt(Expression& parent, ExpressionPtr child, std::vector<ExpressionPtr>& into) {
  if (child) deepen(parent, *child);
  into.push_back(std::move(child));
}

void ExpressionParser::deepen(Expression& parent, const Expression& child) {
  parent.depth = std::max(parent.depth, child.depth + 1);
  if (parent.depth > kDeepestTree) fail("an expression nests deeper than " + std::to_string(kDeepestTree) + " levels");
}

ExpressionPtr ExpressionParser::combine(ExpressionKind kind, int line, ExpressionPtr a, ExpressionPtr b) {
  auto e = make(kind, line);
  adopt(*e, std::move(a), e->parts);
  if (b) adopt(*e, std::move(b), e->parts);
  return e;
}

ExpressionPtr ExpressionParser::constant(Value value, int line) {
  auto e = make(ExpressionKind::constant, line);
  e->value = std::move(value);
  return e;
}

ExpressionPtr ExpressionParser::block_text() { return make(ExpressionKind::block_text, now().line); }

bool ExpressionParser::at_tuple_end(std::string_view end_name) const {
  return now().kind == TokenKind::variable_end || now().kind == TokenKind::block_end || now().is_sign(")") ||
         (!end_name.empty() && now().is_name(end_name));
}

ExpressionPtr ExpressionParser::tuple(bool conditionals, std::string_view end_name, bool may_be_empty) {
  const int line = now().line;
  std::vector<ExpressionPtr> parts;
  bool commas = false;
  while (!at_tuple_end(end_name)) {
    if (!parts.empty() && !commas) break;
    parts.push_back(conditionals ? expression() : either());
    commas = skip_sign(",");
  }
  if (parts.empty() && !may_be_empty) unexpected("an expression");
  if (parts.size() == 1 && !commas) return std::move(parts[0]);
  auto e = make(ExpressionKind::tuple, line);
  for (auto& part : parts) adopt(*e, std::move(part), e->parts);
  return e;
}

ExpressionPtr ExpressionParser::expression() {
  const Nesting nesting(*this);
  int line = now().line;
  ExpressionPtr then = either();
  while (skip_name("if")) {
    auto e = make(ExpressionKind::conditional, line);
    adopt(*e, std::move(then), e->parts);
    adopt(*e, either(), e->parts);
    adopt(*e, skip_name("else") ? expression() : nullptr, e->parts);
    then = std::move(e);
    line = now().line;
  }
  return then;
}

ExpressionPtr ExpressionParser::either() {
  ExpressionPtr left = both();
  for (int line = now().line; skip_name("or"); line = now().line)
    left = combine(ExpressionKind::logical_or, line, std::move(left), both());
  return left;
}

ExpressionPtr ExpressionParser::both() {
  ExpressionPtr left = negation();
  for (int line = now().line; skip_name("and"); line = now().line)
    left = combine(ExpressionKind::logical_and, line, std::move(left), negation());
  return left;
}

ExpressionPtr ExpressionParser::negation() {
  const Nesting nesting(*this);
  const int line = now().line;
  return skip_name("not") ? combine(ExpressionKind::logical_not, line, negation()) : comparison();
}

std::optional<Comparison> ExpressionParser::comparison_sign() {
  constexpr std::pair<const char*, Comparison> kSigns[] = {{"==", Comparison::equal},  {"!=", Comparison::not_equal},
                                                           {"<", Comparison::less},    {"<=", Comparison::less_equal},
                                                           {">", Comparison::greater}, {">=", Comparison::greater_equal}};
  for (const auto& [sign, comparison] : kSigns)
    if (skip_sign(sign)) return comparison;
  if (skip_name("in")) return Comparison::in;
  if (now().is_name("not") && ahead().is_name("in")) {
    advance();
    advance();
    return Comparison::not_in;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::comparison() {
  const int line = now().line;
  ExpressionPtr first = sum();
  ExpressionPtr chain;
  while (const auto sign = comparison_sign()) {
    if (!chain) chain = combine(ExpressionKind::compare, line, std::move(first));
    chain->comparisons.push_back(*sign);
    adopt(*chain, sum(), chain->parts);
  }
  return chain ? std::move(chain) : std::move(first);
}

ExpressionPtr ExpressionParser::binary(Arithmetic operation, int line, ExpressionPtr left, ExpressionPtr right) {
  auto e = combine(ExpressionKind::arithmetic, line, std::move(left), std::move(right));
  e->operation = operation;
  return e;
}

ExpressionPtr ExpressionParser::sum() {
  ExpressionPtr left = concatenation();
  for (;;) {
    const int line = now().line;
    if (skip_sign("+"))
      left = binary(Arithmetic::add, line, std::move(left), concatenation());
    else if (skip_sign("-"))
      left = binary(Arithmetic::subtract, line, std::move(left), concatenation());
    else
      return left;
  }
}

ExpressionPtr ExpressionParser::concatenation() {
  const int line = now().line;
  ExpressionPtr first = product();
  if (!now().is_sign("~")) return first;
  auto e = combine(ExpressionKind::concat, line, std::move(first));
  while (skip_sign("~")) adopt(*e, product(), e->parts);
  return e;
}

ExpressionPtr ExpressionParser::product() {
  ExpressionPtr left = power();
  for (;;) {
    const int line = now().line;
    if (skip_sign("*"))
      left = binary(Arithmetic::multiply, line, std::move(left), power());
    else if (skip_sign("/"))
      left = binary(Arithmetic::divide, line, std::move(left), power());
    else if (skip_sign("//"))
      left = binary(Arithmetic::floor_divide, line, std::move(left), power());
    else if (skip_sign("%"))
      left = binary(Arithmetic::modulo, line, std::move(left), power());
    else
      return left;
  }
}

ExpressionPtr ExpressionParser::power() {  // to the left, unlike Python's
  ExpressionPtr left = unary(true);
  for (int line = now().line; skip_sign("**"); line = now().line)
    left = binary(Arithmetic::power, line, std::move(left), unary(true));
  return left;
}

ExpressionPtr ExpressionParser::unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = now().line;
  ExpressionPtr e;
  if (skip_sign("-"))
    e = combine(ExpressionKind::negate, line, unary(false));
  else if (skip_sign("+"))
    e = combine(ExpressionKind::plus, line, unary(false));
  else
    e = primary();
  e = postfix(std::move(e));
  return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
}

ExpressionPtr ExpressionParser::primary() {
  const Token token = now();
  switch (token.kind) {
    case TokenKind::name:
      advance();
      if (token.text == "true" || token.text == "True") return constant(true, token.line);
      if (token.text == "false" || token.text == "False") return constant(false, token.line);
      if (token.text == "none" || token.text == "None") return constant(None{}, token.line);
      return name(token);
    case TokenKind::string: {
      std::string text;
      for (; now().kind == TokenKind::string; advance()) text += now().text;  // neighbors are one string
      return constant(Value::text(std::move(text)), token.line);
    }
    case TokenKind::integer: advance(); return constant(token.integer, token.line);
    case TokenKind::number: advance(); return constant(token.number, token.line);
    default: break;
  }
  if (skip_sign("(")) {
    ExpressionPtr e = tuple(true, {}, true);
    expect_sign(")");
    return e;
  }
  if (skip_sign("[")) {
    auto e = make(ExpressionKind::list, token.line);
    while (!skip_sign("]")) {
      if (!e->parts.empty()) expect_sign(",");
      if (skip_sign("]")) break;
      adopt(*e, expression(), e->parts);
    }
    return e;
  }
  if (skip_sign("{")) {
    auto e = make(ExpressionKind::dict, token.line);
    while (!skip_sign("}")) {
      if (!e->parts.empty()) expect_sign(",");
      if (skip_sign("}")) break;
      adopt(*e, expression(), e->parts);
      expect_sign(":");
      adopt(*e, expression(), e->parts);
    }
    return e;
  }
  unexpected("an expression");
}

ExpressionPtr ExpressionParser::name(const Token& token) {
  for (Statement* macro : macros_) {
    macro->reads_varargs |= token.text == "varargs";
    macro->reads_kwargs |= token.text == "kwargs";
    macro->reads_caller |= token.text == "caller";
  }
  auto e = make(ExpressionKind::name, token.line);
  e->name = token.text;
  return e;
}

ExpressionPtr ExpressionParser::postfix(ExpressionPtr e) {
  for (;;) {
    const int line = now().line;
    if (skip_sign(".")) {
      if (now().kind == TokenKind::integer) {
        e = combine(ExpressionKind::subscript, line, std::move(e), constant(now().integer, line));
        advance();
      } else {
        e = combine(ExpressionKind::attribute, line, std::move(e));
        e->name = any_name("the name of an attribute");
      }
    } else if (skip_sign("[")) {
      e = subscript(std::move(e), line);
    } else if (now().is_sign("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExpressionPtr ExpressionParser::subscript(ExpressionPtr of, int line) {
  ExpressionPtr start;
  if (!now().is_sign(":")) {
    start = expression();
    if (now().is_sign(",")) {  // x[a, b] looks up a tuple
      auto key = make(ExpressionKind::tuple, line);
      adopt(*key, std::move(start), key->parts);
      while (skip_sign(",")) {
        if (now().is_sign("]")) break;
        adopt(*key, expression(), key->parts);
      }
      start = std::move(key);
    }
    if (!now().is_sign(":")) {
      expect_sign("]");
      return combine(ExpressionKind::subscript, line, std::move(of), std::move(start));
    }
  }
  expect_sign(":");
  auto e = combine(ExpressionKind::slice, line, std::move(of));
  adopt(*e, std::move(start), e->parts);
  adopt(*e, now().is_sign(":") || now().is_sign("]") ? nullptr : expression(), e->parts);
  const bool stepped = skip_sign(":");
  adopt(*e, !stepped || now().is_sign("]") ? nullptr : expression(), e->parts);
  expect_sign("]");
  return e;
}

ExpressionPtr ExpressionParser::call(ExpressionPtr callee) {
  auto e = combine(ExpressionKind::call, now().line, std::move(callee));
  arguments(*e);
  return e;
}

void ExpressionParser::arguments(Expression& e) {
  expect_sign("(");
  bool first = true;
  while (!now().is_sign(")")) {
    if (!std::exchange(first, false)) {
      expect_sign(",");
      if (now().is_sign(")")) break;
    }
    const auto ensure = [&](bool allowed) {
      if (!allowed) fail("an argument is in the wrong place: first the positional ones, then *, name=value and **");
    };
    if (skip_sign("*")) {
      ensure(!e.star && !e.star_star);
      e.star = expression();
      deepen(e, *e.star);
    } else if (skip_sign("**")) {
      ensure(!e.star_star);
      e.star_star = expression();
      deepen(e, *e.star_star);
    } else if (now().kind == TokenKind::name && ahead().is_sign("=")) {
      ensure(!e.star_star);
      std::string argument = any_name("an argument's name");
      advance();
      ExpressionPtr value = expression();
      deepen(e, *value);
      e.named.emplace_back(std::move(argument), std::move(value));
    } else {
      ensure(!e.star && !e.star_star && e.named.empty());
      adopt(e, expression(), e.arguments);
    }
  }
  expect_sign(")");
}

ExpressionPtr ExpressionParser::filters_and_tests(ExpressionPtr e) {
  for (;;) {
    if (now().is_sign("|"))
      e = filters(std::move(e), false);
    else if (now().is_name("is"))
      e = test(std::move(e));
    else if (now().is_sign("("))
      e = call(std::move(e));
    else
      return e;
  }
}

std::string ExpressionParser::dotted_name(const char* what) {
  std::string name = any_name(what);
  while (skip_sign(".")) name.append(".").append(any_name(what));
  return name;
}

ExpressionPtr ExpressionParser::filters(ExpressionPtr e, bool inline_first) {
  while (inline_first || now().is_sign("|")) {
    if (!std::exchange(inline_first, false)) advance();
    auto filter = combine(ExpressionKind::filter, now().line, std::move(e));
    filter->name = dotted_name("the name of a filter");
    if (now().is_sign("(")) arguments(*filter);
    e = std::move(filter);
  }
  return e;
}

ExpressionPtr ExpressionParser::test(ExpressionPtr of) {
  const int line = now().line;
  expect_name("is");
  const bool negated = skip_name("not");
  auto e = combine(ExpressionKind::test, line, std::move(of));
  e->name = dotted_name("the name of a test");
  const bool operand = now().kind == TokenKind::name || now().kind == TokenKind::string || now().kind == TokenKind::integer ||
                       now().kind == TokenKind::number || now().is_sign("[") || now().is_sign("{");
  if (now().is_sign("(")) {
    arguments(*e);
  } else if (operand && !at_name({"else", "or", "and"})) {
    if (now().is_name("is")) fail("tests cannot be chained; use 'and'");
    adopt(*e, postfix(primary()), e->arguments);
  }
  return negated ? combine(ExpressionKind::logical_not, line, std::move(e)) : std::move(e);
}

}  // namespace vitrine::jinja
