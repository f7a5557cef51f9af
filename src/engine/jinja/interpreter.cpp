#include "jinja/interpreter.h"

#include <algorithm>

#include "jinja/print.h"

namespace vitrine::jinja {

// A scope inside the current one, left again at the end.
class Interpreter::Inner {
 public:
  Inner(Interpreter& interpreter, ScopePtr parent) : interpreter_(interpreter), outer_(interpreter.scope_) {
    interpreter.meter_.make(sizeof(Scope));
    interpreter.scope_ = std::make_shared<Scope>(Scope{{}, std::move(parent)});
  }
  explicit Inner(Interpreter& interpreter) : Inner(interpreter, interpreter.scope_) {}
  ~Inner() { interpreter_.scope_ = std::move(outer_); }
  Inner(const Inner&) = delete;
  Inner& operator=(const Inner&) = delete;

 private:
  Interpreter& interpreter_;
  ScopePtr outer_;
};

Interpreter::Interpreter(const Limits& limits, std::tm now, bool strict)
    : meter_(limits),
      now_(now),
      strict_(strict),
      globals_(std::make_shared<Scope>()),
      scope_(std::make_shared<Scope>(Scope{{}, globals_})) {
  define_globals(*this);
}

Interpreter::~Interpreter() {
  // Namespaces, loops and the scopes that macros keep may form circles and long chains: they are emptied one by one while
  // all of them are still held here.
  for (const auto& scope : captured_) {
    scope->names.clear();
    scope->parent.reset();
  }
  for (const auto& space : spaces_) space->attributes.clear();
  for (const auto& loop : loops_) *loop = Loop{};
}

Text Interpreter::run(const Body& body) {
  Text out;
  whole_ = &out;
  run(body, out);
  whole_ = nullptr;
  return out;
}

Interpreter::Flow Interpreter::run(const Body& body, Text& out) {
  for (const auto& statement : body)
    if (const Flow flow = run(*statement, out); flow != Flow::normal) return flow;
  return Flow::normal;
}

Interpreter::Flow Interpreter::run(const Statement& s, Text& out) {
  const Meter::Level level(meter_);
  meter_.step();
  line_ = s.line;
  switch (s.kind) {
    case StatementKind::data:
      meter_.make_string(s.text.size());
      out.append(s.text);
      break;
    case StatementKind::output: output(evaluate(*s.expression), out); break;
    case StatementKind::branch:
      for (const auto& [condition, body] : s.branches)
        if (truth(evaluate(*condition))) return run(body, out);
      return run(s.orelse, out);
    case StatementKind::loop: return run_loop(s, out);
    case StatementKind::set: assign(s.targets[0], evaluate(*s.expression)); break;
    case StatementKind::set_block: {
      Value text = Value::text(text_of(s.body));
      if (s.expression) {
        block_texts_.push_back(std::move(text));
        text = evaluate(*s.expression);
        block_texts_.pop_back();
      }
      assign(s.targets[0], std::move(text));
      break;
    }
    case StatementKind::filter:
      block_texts_.push_back(Value::text(text_of(s.body)));
      output(evaluate(*s.expression), out);
      block_texts_.pop_back();
      break;
    case StatementKind::macro: assign({.name = s.name, .attribute = {}, .parts = {}}, make_macro(s, s.name)); break;
    case StatementKind::call_block: {
      const Value callee = evaluate(*s.expression->parts[0]);
      Arguments passed = arguments(*s.expression);
      passed.named.emplace_back("caller", make_macro(s, "caller"));
      output(call(callee, passed), out);
      break;
    }
    case StatementKind::with: return run_with(s, out);
    case StatementKind::scope: {
      const Inner inner(*this);
      const size_t begin = out.size();
      run(s.body, out);
      if (&out == whole_ && out.size() > begin) generated_.push_back({begin, out.size()});
      break;
    }
    case StatementKind::break_loop: return Flow::break_loop;
    case StatementKind::continue_loop: return Flow::continue_loop;
  }
  return Flow::normal;
}

void Interpreter::output(const Value& value, Text& out) {
  if (const Text* text = value.as_text()) {
    meter_.make_string(text->size());
    out.append(*text);
  } else {
    out.append(to_text(meter_, value));
  }
  meter_.check_string(out.size());
}

Text Interpreter::text_of(const Body& body) {
  const Inner inner(*this);
  Text text;
  run(body, text);
  return text;
}

Interpreter::Flow Interpreter::run_loop(const Statement& s, Text& out) {
  const Value iterable = evaluate(*s.expression);
  const Meter::Level level(meter_);
  const auto loop = std::make_shared<Loop>();
  meter_.make(sizeof(Loop));
  if (loops_.size() >= 64 && (loops_.size() & (loops_.size() - 1)) == 0)  // now and then, forget those nobody holds any more
    std::erase_if(loops_, [](const auto& held) { return held.use_count() == 1; });
  loops_.push_back(loop);
  if (!s.condition) {
    loop->source = iterate(meter_, iterable);
    loop->known_length = length(meter_, iterable);
  } else {
    loop->source = [this, &s, outer = scope_, next = iterate(meter_, iterable)](Value& value) {
      while (next(value)) {
        const Inner inner(*this, outer);
        assign(s.targets[0], value);
        if (truth(evaluate(*s.condition))) return true;
      }
      return false;
    };
  }
  bool ran = false;
  while (loop->advance()) {
    ran = true;
    meter_.step();
    const Inner inner(*this);
    scope_->names["loop"] = loop;
    assign(s.targets[0], loop->current);
    if (run(s.body, out) == Flow::break_loop) break;
  }
  if (ran) return Flow::normal;
  const Inner inner(*this);
  return run(s.orelse, out);
}

Interpreter::Flow Interpreter::run_with(const Statement& s, Text& out) {
  std::vector<Value> values;  // all evaluated outside
  for (const auto& expression : s.values) values.push_back(evaluate(*expression));
  const Inner inner(*this);
  for (size_t i = 0; i < values.size(); ++i) assign(s.targets[i], std::move(values[i]));
  return run(s.body, out);
}

void Interpreter::assign(const Target& target, Value value) {
  if (!target.attribute.empty()) return assign_attribute(target, std::move(value));
  if (!target.is_tuple) {
    meter_.make(sizeof(Value) + target.name.size());
    scope_->names[target.name] = std::move(value);
    return;
  }
  const Meter::Level level(meter_);
  if (!value.is_undefined() && !length(meter_, value) && !value.as_stream())
    throw Problem("cannot unpack a value of type '" + type_name(value) + "' into several names");
  std::vector<Value> parts;
  const Next next = iterate(meter_, value);
  for (Value part; parts.size() <= target.parts.size() && next(part);) parts.push_back(std::move(part));
  if (parts.size() != target.parts.size())
    throw Problem(std::string(parts.size() < target.parts.size() ? "not enough" : "too many") + " values to unpack (expected " +
                  std::to_string(target.parts.size()) + ")");
  for (size_t i = 0; i < parts.size(); ++i) assign(target.parts[i], std::move(parts[i]));
}

void Interpreter::assign_attribute(const Target& target, Value value) {
  const Value holder = lookup(target.name);
  Space* space = holder.as_space();
  if (!space) throw Problem("'" + target.name + "' is no namespace(); only a namespace's attributes can be set");
  if (target.attribute.starts_with('_'))
    throw Problem("the attribute '" + target.attribute + "' of a namespace begins with an underscore; rename it");
  meter_.make(sizeof(Value) + target.attribute.size());
  meter_.step(space->attributes.size() / 64);
  space->set(target.attribute, std::move(value));
}

Value Interpreter::make_macro(const Statement& s, const std::string& name) {
  captured_.push_back(scope_);
  meter_.make(sizeof(Callable) + sizeof(ScopePtr));
  auto macro = std::make_shared<Callable>();
  macro->description = "Macro '" + name + "'";
  macro->call = [&s, name, scope = scope_](Interpreter& self, Arguments& arguments) {
    return self.run_macro(s, name, scope, arguments);
  };
  std::vector<Value> names;
  for (const Parameter& parameter : s.parameters) names.push_back(Value::text(parameter.name));
  macro->attributes = {{"name", Value::text(name)},
                       {"arguments", Value::tuple(meter_, std::move(names))},
                       {"catch_kwargs", s.reads_kwargs},
                       {"catch_varargs", s.reads_varargs},
                       {"caller", s.reads_caller}};
  return std::shared_ptr<const Callable>(std::move(macro));
}

Value Interpreter::run_macro(const Statement& s, const std::string& name, const ScopePtr& scope, Arguments& arguments) {
  const int line = line_;
  const Inner inner(*this, scope);
  bind(s, name, arguments);
  Text text;
  run(s.body, text);
  line_ = line;
  return Value::text(std::move(text));
}

// Jinja's rules for a macro's arguments: missing ones are their defaults or undefined, superfluous ones go to varargs and
// kwargs if the macro reads those, and are an error otherwise.
void Interpreter::bind(const Statement& s, const std::string& name, Arguments& arguments) {
  auto& names = scope_->names;
  const auto take = [&](const std::string& wanted) -> std::optional<Value> {
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at)
      if (at->first == wanted) {
        Value value = std::move(at->second);
        arguments.named.erase(at);
        return value;
      }
    return std::nullopt;
  };
  const size_t passed = std::min(arguments.positional.size(), s.parameters.size());
  std::vector<const Parameter*> open;
  for (size_t i = 0; i < s.parameters.size(); ++i) {
    const Parameter& parameter = s.parameters[i];
    std::optional<Value> value = i < passed ? std::move(arguments.positional[i]) : take(parameter.name);
    if (value)
      names[parameter.name] = std::move(*value);
    else
      open.push_back(&parameter);
  }
  // Defaults see the parameters before them.
  for (const Parameter* parameter : open)
    names[parameter->name] =
        parameter->fallback ? evaluate(*parameter->fallback) : undefined("parameter '" + parameter->name + "' was not provided");
  const bool own_caller =
      std::any_of(s.parameters.begin(), s.parameters.end(), [](const Parameter& p) { return p.name == "caller"; });
  if (s.reads_caller && !own_caller) names["caller"] = take("caller").value_or(Value::undefined("No caller defined"));
  if (s.reads_kwargs) {
    DictBuilder rest(meter_);
    for (auto& [key, value] : arguments.named) rest.set(Value::text(key), std::move(value));
    names["kwargs"] = rest.finish();
  } else if (!arguments.named.empty()) {
    throw Problem("macro '" + name + "' takes no keyword argument '" + arguments.named[0].first + "'");
  }
  std::vector<Value> more(arguments.positional.begin() + static_cast<std::ptrdiff_t>(passed), arguments.positional.end());
  if (s.reads_varargs)
    names["varargs"] = Value::tuple(meter_, std::move(more));
  else if (!more.empty())
    throw Problem("macro '" + name + "' takes not more than " + std::to_string(s.parameters.size()) + " arguments");
}

}  // namespace vitrine::jinja
