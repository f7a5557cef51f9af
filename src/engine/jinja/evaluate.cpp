// Expressions.
#include "jinja/interpreter.h"
#include "jinja/print.h"

namespace vitrine::jinja {
namespace {

// How Jinja names the type of a value in "... has no attribute ...".
std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  if (value.as_space()) return "namespace object";
  return type_name(value) + " object";
}

std::string short_text(Meter& meter, const Value& value) {
  const Text text = repr(meter, value);
  constexpr size_t kLongest = 60;
  return text.size() <= kLongest ? text.bytes() : "of type " + type_name(value);
}

}  // namespace

Value Interpreter::undefined(std::string problem) {
  if (strict_) throw Problem(std::move(problem));
  meter_.make(problem.size() + 64);
  return Value::undefined(std::move(problem));
}

Value Interpreter::missing(const Value& value, const Value& key) {
  std::string problem = object_name(value);
  if (key.as_text())
    problem.insert(0, "'").append("' has no attribute ");
  else
    problem.append(" has no element ");
  return undefined(problem.append(short_text(meter_, key)));
}

Value Interpreter::evaluate(const Expression& e) {
  const Meter::Level level(meter_);
  meter_.step();
  line_ = e.line;
  const auto part = [&](size_t i) { return evaluate(*e.parts[i]); };
  switch (e.kind) {
    case ExpressionKind::constant: return e.value;
    case ExpressionKind::name: return lookup(e.name);
    case ExpressionKind::block_text: return block_texts_.back();
    case ExpressionKind::list:
    case ExpressionKind::tuple: {
      std::vector<Value> items;
      for (const auto& item : e.parts) items.push_back(evaluate(*item));
      return e.kind == ExpressionKind::list ? Value::list(meter_, std::move(items)) : Value::tuple(meter_, std::move(items));
    }
    case ExpressionKind::dict: {
      DictBuilder dict(meter_);
      for (size_t i = 0; i < e.parts.size(); i += 2) {
        const Value key = part(i);
        dict.set(key, part(i + 1));
      }
      return dict.finish();
    }
    case ExpressionKind::negate: return negate(part(0));
    case ExpressionKind::plus: return plus(part(0));
    case ExpressionKind::logical_not: return !truth(part(0));
    case ExpressionKind::logical_and: {
      Value left = part(0);
      return truth(left) ? part(1) : left;
    }
    case ExpressionKind::logical_or: {
      Value left = part(0);
      return truth(left) ? left : part(1);
    }
    case ExpressionKind::arithmetic: {
      const Value left = part(0), right = part(1);
      line_ = e.line;
      return arithmetic(meter_, e.operation, left, right);
    }
    case ExpressionKind::concat: {
      Text text;
      for (const auto& piece : e.parts) output(evaluate(*piece), text);
      return Value::text(std::move(text));
    }
    case ExpressionKind::compare: return compare(e);
    case ExpressionKind::conditional:
      if (truth(part(1))) return part(0);
      if (e.parts[2]) return part(2);
      return undefined("the inline if-expression is false and has no else");
    case ExpressionKind::attribute: return attribute(part(0), e.name);
    case ExpressionKind::subscript: {
      const Value of = part(0);
      return subscript(of, part(1));
    }
    case ExpressionKind::slice: return slice(e);
    case ExpressionKind::call: {
      const Value callee = part(0);
      Arguments passed = arguments(e);
      line_ = e.line;
      return call(callee, passed);
    }
    case ExpressionKind::filter: {
      const Value value = part(0);
      Arguments passed = arguments(e);
      line_ = e.line;
      return filter(e.name, value, passed);
    }
    case ExpressionKind::test: {
      const Value value = part(0);
      Arguments passed = arguments(e);
      line_ = e.line;
      return test(e.name, value, passed);
    }
  }
  return {};
}

Value Interpreter::compare(const Expression& e) {
  Value left = evaluate(*e.parts[0]);
  for (size_t i = 0; i < e.comparisons.size(); ++i) {
    Value right = evaluate(*e.parts[i + 1]);
    line_ = e.line;
    const bool holds = [&] {
      switch (e.comparisons[i]) {
        case Comparison::equal: return equal(meter_, left, right);
        case Comparison::not_equal: return !equal(meter_, left, right);
        case Comparison::less: return less(meter_, left, right);
        case Comparison::greater: return less(meter_, right, left);
        case Comparison::less_equal: return less_or_equal(meter_, left, right);
        case Comparison::greater_equal: return less_or_equal(meter_, right, left);
        case Comparison::in: return contains(meter_, right, left);
        case Comparison::not_in: return !contains(meter_, right, left);
      }
      return false;
    }();
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::slice(const Expression& e) {
  const Value of = evaluate(*e.parts[0]);
  const auto part = [&](size_t i) { return e.parts[i] ? evaluate(*e.parts[i]) : Value(None{}); };
  const Value start = part(1), stop = part(2), step = part(3);
  line_ = e.line;
  return jinja::slice(meter_, of, start, stop, step);
}

Value Interpreter::lookup(const std::string& name) {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    meter_.look(1);
    if (const auto at = scope->names.find(name); at != scope->names.end()) return at->second;
  }
  return undefined("'" + name + "' is undefined");
}

Arguments Interpreter::arguments(const Expression& e) {
  Arguments passed;
  for (const auto& argument : e.arguments) passed.positional.push_back(evaluate(*argument));
  if (e.star)
    for (Value& value : to_vector(meter_, evaluate(*e.star))) passed.positional.push_back(std::move(value));
  const auto add_named = [&](const std::string& name, Value value) {
    for (const auto& [known, other] : passed.named)
      if (known == name) throw Problem("the argument '" + name + "' is given twice");
    meter_.step(1 + passed.named.size() / 16);
    passed.named.emplace_back(name, std::move(value));
  };
  for (const auto& [name, value] : e.named) add_named(name, evaluate(*value));
  if (e.star_star) {
    const Value more = evaluate(*e.star_star);
    require_defined(more);
    const Dict* dict = more.as_dict();
    if (!dict) throw Problem("** needs a mapping, not '" + type_name(more) + "'");
    for (const auto& [key, value] : dict->entries) {
      if (!key.as_text()) throw Problem("** needs a mapping whose keys are strings");
      add_named(key.as_text()->bytes(), value);
    }
  }
  return passed;
}

Value Interpreter::call(const Value& callee, Arguments& passed) {
  const Meter::Level level(meter_);
  require_defined(callee);
  if (const Callable* callable = callee.as_callable()) {
    const Value alive = callee;  // the call may drop the last name of what it runs
    return callable->call(*this, passed);
  }
  if (callee.as_loop()) throw Problem("calling loop() needs 'for ... recursive', which is not supported; use a macro");
  throw Problem("a value of type '" + type_name(callee) + "' cannot be called");
}

Value Interpreter::filter(const std::string& name, const Value& value, Arguments& passed) {
  const Filter function = find_filter(name);
  if (!function) throw Problem("the filter '" + name + "' is unknown; known filters: " + known_filters());
  meter_.step();
  return function(*this, value, passed);
}

bool Interpreter::test(const std::string& name, const Value& value, Arguments& passed) {
  const Test function = find_test(name);
  if (!function) throw Problem("the test '" + name + "' is unknown; known tests: " + known_tests());
  meter_.step();
  return function(*this, value, passed);
}

// What getattr() finds: methods, and the attributes of loops, macros and namespaces.
std::optional<Value> Interpreter::known_attribute(const Value& value, const std::string& name) {
  require_defined(value);
  if (const Space* space = value.as_space()) {
    meter_.step(1 + space->attributes.size() / 64);
    const Value* found = space->find(name);
    return found ? std::optional(*found) : std::nullopt;
  }
  if (Loop* loop = value.as_loop()) {
    const Value found = loop_attribute(value, *loop, name);
    return found.is_undefined() && !found.get_if<Undefined>()->problem ? std::nullopt : std::optional(found);
  }
  if (const Callable* callable = value.as_callable())
    for (const auto& [known, attribute_value] : callable->attributes)
      if (known == name) return attribute_value;
  return method(*this, value, name);
}

Value Interpreter::attribute(const Value& value, const std::string& name) {
  if (auto found = known_attribute(value, name)) return std::move(*found);
  if (const Dict* dict = value.as_dict())
    if (const Value* found = dict->find(name)) return *found;
  return missing(value, Value::text(name));
}

Value Interpreter::subscript(const Value& value, const Value& key) {
  if (auto found = item(meter_, value, key)) return std::move(*found);
  if (const Text* name = key.as_text())
    if (auto found = known_attribute(value, name->bytes())) return std::move(*found);
  return missing(value, key);
}

Value Interpreter::loop_attribute(const Value& value, Loop& loop, const std::string& name) {
  if (name == "index") return loop.index0 + 1;
  if (name == "index0") return loop.index0;
  if (name == "first") return loop.index0 == 0;
  if (name == "last") return !loop.peek();
  if (name == "length") return loop.length();
  if (name == "revindex") return loop.length() - loop.index0;
  if (name == "revindex0") return loop.length() - loop.index0 - 1;
  if (name == "depth") return int64_t{1};
  if (name == "depth0") return int64_t{0};
  if (name == "previtem") return loop.index0 == 0 ? undefined("there is no previous item") : loop.before;
  if (name == "nextitem") return loop.peek() ? loop.ahead.front() : undefined("there is no next item");
  if (name == "cycle")
    return make_callable(*this, "method cycle of loop", [value](Interpreter&, Arguments& passed) -> Value {
      if (passed.positional.empty()) throw Problem("loop.cycle() needs at least one value");
      return passed.positional[static_cast<size_t>(value.as_loop()->index0) % passed.positional.size()];
    });
  if (name == "changed")
    return make_callable(*this, "method changed of loop", [value](Interpreter& self, Arguments& passed) -> Value {
      Loop& of = *value.as_loop();
      const bool same = of.last_changed && of.last_changed->size() == passed.positional.size() &&
                        std::equal(passed.positional.begin(), passed.positional.end(), of.last_changed->begin(),
                                   [&](const Value& a, const Value& b) { return equal(self.meter(), a, b); });
      if (!same) of.last_changed = passed.positional;
      return !same;
    });
  return {};
}

Value Interpreter::new_namespace(std::shared_ptr<Space> space) {
  meter_.make(sizeof(Space) + 2 * sizeof(space));
  spaces_.push_back(space);
  return Value(std::move(space));
}

std::string Interpreter::strftime(const std::string& format) const {
  if (format.empty()) return {};
  std::string buffer(4096, '\0');
  const size_t size = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now_);
  if (size == 0) throw Problem("strftime_now gives no text, or more than " + std::to_string(buffer.size()) + " bytes");
  buffer.resize(size);
  return buffer;
}

Value make_callable(Interpreter& interpreter, std::string description, std::function<Value(Interpreter&, Arguments&)> function,
                    int depth) {
  if (depth + 1 > kDeepestValue)
    throw Problem("the template builds a value nested deeper than " + std::to_string(kDeepestValue) + " levels");
  interpreter.meter().make(sizeof(Callable) + 64);
  return std::make_shared<const Callable>(Callable{std::move(description), std::move(function), {}, depth + 1});
}

}  // namespace vitrine::jinja
