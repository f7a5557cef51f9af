#include "jinja/parser.h"

#include "jinja/expression_parser.h"

namespace vitrine::jinja {
namespace {

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(tokenize(source)) {}

  Body run() { return statements({}); }

 private:
  // Up to a block tag with one of these names, which stays the current token; all of the template for none.
  Body statements(Names until) {
    Body body;
    for (;;) {
      const int line = now().line;
      switch (now().kind) {
        case TokenKind::data: {
          auto& data = add(body, StatementKind::data, line);
          data.text = now().text;
          advance();
          break;
        }
        case TokenKind::variable_begin: {
          advance();
          auto& output = add(body, StatementKind::output, line);
          output.expression = tuple();
          expect(TokenKind::variable_end, "'}}'");
          break;
        }
        case TokenKind::block_begin:
          advance();
          if (at_name(until)) return body;
          statement(body);
          expect(TokenKind::block_end, "'%}'");
          break;
        default:
          if (until.size() == 0) return body;
          std::string names;
          for (const std::string_view name : until) names.append(names.empty() ? "'" : " or '").append(name).append("'");
          unexpected(names);
      }
    }
  }

  // The body of a tag whose "%}" comes now, with the tag that ends it.
  Body block(Names until) {
    skip_sign(":");
    expect(TokenKind::block_end, "'%}'");
    return statements(until);
  }
  Body block_to(const char* end) {
    Body body = block({end});
    advance();
    return body;
  }

  static Statement& add(Body& body, StatementKind kind, int line) {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    body.push_back(std::move(statement));
    return *body.back();
  }

  void statement(Body& body) {
    const Nesting nesting(*this);
    const int line = now().line;
    const std::string tag = any_name("the name of a tag");
    if (tag == "if") return if_statement(add(body, StatementKind::branch, line));
    if (tag == "for") return for_statement(add(body, StatementKind::loop, line));
    if (tag == "set") return set_statement(add(body, StatementKind::set, line));
    if (tag == "macro") return macro_statement(add(body, StatementKind::macro, line));
    if (tag == "call") return call_statement(add(body, StatementKind::call_block, line));
    if (tag == "with") return with_statement(add(body, StatementKind::with, line));
    if (tag == "filter") {
      auto& filter = add(body, StatementKind::filter, line);
      filter.expression = filters(block_text(), true);
      filter.body = separate_block("endfilter");
      return;
    }
    if (tag == "generation") {
      add(body, StatementKind::scope, line).body = separate_block("endgeneration");
      return;
    }
    if (tag == "print") {
      for (bool first = true; now().kind != TokenKind::block_end; first = false) {
        if (!first) expect_sign(",");
        add(body, StatementKind::output, line).expression = expression();
      }
      return;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) throw SyntaxProblem{line, "'" + tag + "' outside of a loop"};
      add(body, tag == "break" ? StatementKind::break_loop : StatementKind::continue_loop, line);
      return;
    }
    throw SyntaxProblem{line, "the tag '" + tag +
                                  "' is unknown here; known tags: if, for, set, macro, call, filter, with, print, "
                                  "break, continue, generation, raw"};
  }

  void if_statement(Statement& s) {
    for (;;) {
      ExpressionPtr condition = tuple(false);
      s.branches.emplace_back(std::move(condition), block({"elif", "else", "endif"}));
      if (skip_name("elif")) continue;
      if (skip_name("else"))
        s.orelse = block_to("endif");
      else
        advance();
      return;
    }
  }

  void for_statement(Statement& s) {
    s.targets.push_back(target_tuple("in", false));
    expect_name("in");
    s.expression = tuple(false, "recursive");
    if (skip_name("if")) s.condition = expression();
    if (now().is_name("recursive")) fail("'for ... recursive' is not supported; use a macro that calls itself");
    ++loops_;
    s.body = block({"endfor", "else"});
    --loops_;
    if (skip_name("else"))
      s.orelse = block_to("endfor");
    else
      advance();
  }

  void set_statement(Statement& s) {
    s.targets.push_back(target_tuple({}, true));
    if (skip_sign("=")) {
      s.expression = tuple();
      return;
    }
    s.kind = StatementKind::set_block;
    if (now().is_sign("|")) s.expression = filters(block_text(), false);
    s.body = separate_block("endset");
  }

  // A body that the reference compiles into a function of its own: break and continue cannot leave it.
  Body separate_block(const char* end) {
    const int loops = std::exchange(loops_, 0);
    Body body = block_to(end);
    loops_ = loops;
    return body;
  }

  void macro_statement(Statement& s) {
    s.name = any_name("the macro's name");
    signature(s);
    macro_body(s, "endmacro");
  }

  void call_statement(Statement& s) {
    if (now().is_sign("(")) signature(s);
    s.expression = expression();
    if (s.expression->kind != ExpressionKind::call) fail("{% call %} needs a call, such as {% call name() %}");
    macro_body(s, "endcall");
  }

  void macro_body(Statement& s, const char* end) {
    macros_.push_back(&s);
    s.body = separate_block(end);
    macros_.pop_back();
  }

  void signature(Statement& s) {
    expect_sign("(");
    while (!now().is_sign(")")) {
      if (!s.parameters.empty()) expect_sign(",");
      Parameter parameter{.name = assignable(any_name("a parameter's name")), .fallback = nullptr};
      if (skip_sign("="))
        parameter.fallback = expression();
      else if (!s.parameters.empty() && s.parameters.back().fallback)
        fail("a parameter without default follows one with a default");
      s.parameters.push_back(std::move(parameter));
    }
    expect_sign(")");
  }

  void with_statement(Statement& s) {
    while (now().kind != TokenKind::block_end) {
      if (!s.targets.empty()) expect_sign(",");
      s.targets.push_back(target_tuple("=", false));
      expect_sign("=");
      s.values.push_back(expression());
    }
    s.body = block_to("endwith");
  }

  std::string assignable(std::string name) const {
    for (const char* constant : {"true", "false", "none", "True", "False", "None"})
      if (name == constant) fail("'" + name + "' cannot be assigned to");
    return name;
  }

  // One target, or several with commas: a tuple.
  Target target_tuple(std::string_view end, bool namespaces) {
    const Nesting nesting(*this);
    std::vector<Target> targets;
    bool commas = false;
    while (!(now().is_name(end) || now().is_sign(end) || now().is_sign(")") || now().kind == TokenKind::block_end)) {
      if (!targets.empty() && !commas) break;
      targets.push_back(target(namespaces));
      commas = skip_sign(",");
    }
    if (targets.empty()) unexpected("a name to assign to");
    if (targets.size() == 1 && !commas) return std::move(targets[0]);
    return {.name = {}, .attribute = {}, .parts = std::move(targets), .is_tuple = true};
  }

  Target target(bool namespaces) {
    if (skip_sign("(")) {
      Target inner = target_tuple({}, namespaces);
      expect_sign(")");
      return inner;
    }
    Target result;
    result.name = assignable(any_name("a name to assign to"));
    if (namespaces && skip_sign(".")) result.attribute = any_name("the name of an attribute");
    return result;
  }

  int loops_ = 0;  // open around the current token, inside the innermost macro
};

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace vitrine::jinja
