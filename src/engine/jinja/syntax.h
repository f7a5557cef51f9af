#pragma once
// A parsed template.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/operators.h"
#include "jinja/value.h"

namespace vitrine::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class ExpressionKind : uint8_t {
  constant,     // value
  name,         // name
  list,         // parts
  tuple,        // parts
  dict,         // parts: key, value, key, value, ...
  negate,       // parts[0]
  plus,         // parts[0]
  logical_not,  // parts[0]
  logical_and,  // parts[0], parts[1]
  logical_or,   // parts[0], parts[1]
  arithmetic,   // operation; parts[0], parts[1]
  concat,       // parts: all of a ~ b ~ c
  compare,      // parts[0] comparisons[0] parts[1] comparisons[1] ...
  conditional,  // parts: then, condition, else (may be null)
  attribute,    // parts[0] . name
  subscript,    // parts[0] [parts[1]]
  slice,        // parts[0] [parts[1] : parts[2] : parts[3]], each may be null
  call,         // parts[0] (arguments)
  filter,       // parts[0] | name(arguments)
  test,         // parts[0] is name(arguments)
  block_text,   // the text that {% filter %} and {% set %}...{% endset %} hand to their filters
};

enum class Comparison : uint8_t { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };

struct Expression {
  ExpressionKind kind;
  int line = 0;
  int depth = 1;  // of the tree below, bounded so that walks and destruction need little stack
  Value value;
  std::string name;
  Arithmetic operation = Arithmetic::add;
  std::vector<Comparison> comparisons;
  std::vector<ExpressionPtr> parts;
  std::vector<ExpressionPtr> arguments;                      // of call, filter, test
  std::vector<std::pair<std::string, ExpressionPtr>> named;  // name=value
  ExpressionPtr star, star_star;                             // *values, **values
};

/// Where assignments go: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      // empty: the name itself
  std::vector<Target> parts;  // not empty: a tuple
  bool is_tuple = false;
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: undefined if not passed
};

enum class StatementKind : uint8_t {
  data,        // text
  output,      // expression
  branch,      // branches in order; orelse
  loop,        // for targets[0] in expression if condition: body; orelse
  set,         // targets[0] = expression
  set_block,   // targets[0] = text of body, through expression if there is one
  macro,       // name, parameters, body
  call_block,  // expression is the call, parameters, body
  filter,      // expression over the text of body
  with,        // targets[i] = values[i] for body
  scope,       // body in a scope of its own ({% generation %})
  break_loop,
  continue_loop,
};

struct Statement {
  StatementKind kind;
  int line = 0;
  std::string text;
  std::string name;
  std::vector<Target> targets;
  ExpressionPtr expression, condition;
  std::vector<ExpressionPtr> values;
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  std::vector<Parameter> parameters;
  Body body, orelse;
  bool reads_varargs = false, reads_kwargs = false, reads_caller = false;  // of a macro
};

}  // namespace vitrine::jinja
