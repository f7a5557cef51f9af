#pragma once
// Runs a parsed template.
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "jinja/syntax.h"

namespace vitrine::jinja {

/// Names of one block of the template. A loop gives each of its passes a scope of its own; `if` makes none.
struct Scope {
  std::map<std::string, Value, std::less<>> names;
  std::shared_ptr<Scope> parent;
};
using ScopePtr = std::shared_ptr<Scope>;

/// What raise_exception() ends the rendering with.
struct Refusal {
  std::string message;
};

class Interpreter {
 public:
  Interpreter(const Limits& limits, std::tm now, bool strict);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Meter& meter() { return meter_; }
  void define(const std::string& name, Value value) { globals_->names[name] = std::move(value); }

  /// Renders. Errors: Problem or Refusal; line() then tells where.
  Text run(const Body& body);
  /// What {% generation %} blocks wrote of it, rising; without those inside macros and other texts of their own.
  const std::vector<TextSpan>& generated() const { return generated_; }
  int line() const { return line_; }

  // For filters, tests and methods.
  Value call(const Value& callee, Arguments& arguments);
  Value filter(const std::string& name, const Value& value, Arguments& arguments);
  bool test(const std::string& name, const Value& value, Arguments& arguments);
  /// value.name: methods first, then items, as Jinja's sandbox looks attributes up.
  Value attribute(const Value& value, const std::string& name);
  /// value[key]: items first, then attributes.
  Value subscript(const Value& value, const Value& key);
  std::string strftime(const std::string& format) const;
  /// Takes part in the clean-up at the end: namespaces can hold each other in circles.
  Value new_namespace(std::shared_ptr<Space> space);

 private:
  enum class Flow : uint8_t { normal, break_loop, continue_loop };
  class Inner;

  Flow run(const Body& body, Text& out);
  Flow run(const Statement& s, Text& out);
  Flow run_loop(const Statement& s, Text& out);
  Flow run_with(const Statement& s, Text& out);
  void output(const Value& value, Text& out);
  Text text_of(const Body& body);
  void assign(const Target& target, Value value);
  void assign_attribute(const Target& target, Value value);
  Value make_macro(const Statement& s, const std::string& name);
  Value run_macro(const Statement& s, const std::string& name, const ScopePtr& scope, Arguments& arguments);
  void bind(const Statement& s, const std::string& name, Arguments& arguments);

  Value evaluate(const Expression& e);
  Value compare(const Expression& e);
  Value slice(const Expression& e);
  Value lookup(const std::string& name);
  Arguments arguments(const Expression& e);
  std::optional<Value> known_attribute(const Value& value, const std::string& name);
  Value loop_attribute(const Value& value, Loop& loop, const std::string& name);
  Value missing(const Value& value, const Value& key);
  /// Errors: Problem if nothing may be missing.
  Value undefined(std::string problem);

  Meter meter_;
  std::tm now_;
  bool strict_;
  ScopePtr globals_, scope_;
  std::vector<Value> block_texts_;  // of the {% filter %} blocks being finished
  // What may be part of a circle of references.
  std::vector<std::shared_ptr<Space>> spaces_;
  std::vector<std::shared_ptr<Loop>> loops_;
  std::vector<ScopePtr> captured_;
  const Text* whole_ = nullptr;  // what run() writes
  std::vector<TextSpan> generated_;
  int line_ = 1;
};

/// Functions every template knows: range, dict, namespace, raise_exception, strftime_now.
void define_globals(Interpreter& interpreter);

/// A callable of this value: "text".upper. Nothing if the type has no such method.
std::optional<Value> method(Interpreter& interpreter, const Value& self, const std::string& name);

using Filter = Value (*)(Interpreter&, const Value& value, Arguments& arguments);
/// Null for an unknown name.
Filter find_filter(const std::string& name);
std::string known_filters();

using Test = bool (*)(Interpreter&, const Value& value, Arguments& arguments);
Test find_test(const std::string& name);
std::string known_tests();

/// A callable that lives in values.
Value make_callable(Interpreter& interpreter, std::string description, std::function<Value(Interpreter&, Arguments&)> function,
                    int depth = 0);

}  // namespace vitrine::jinja
