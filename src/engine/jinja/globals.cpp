// The functions a template can call without anybody passing them in.
#include "jinja/interpreter.h"

namespace vitrine::jinja {
namespace {

constexpr int64_t kLongestRange = 100'000;  // as the reference's sandbox has it

Value range(Interpreter&, Arguments& passed) {
  const Bound bound("range()", passed, {"start", "stop", "step"}, 1);
  const int64_t first = bound.integer(0, 0), step = bound.integer(2, 1);
  const Range range = bound.has(1) ? Range{first, bound.integer(1, 0), step} : Range{0, first, 1};
  if (step == 0) throw Problem("range() needs a step that is not zero");
  if (range.length() < 0 || range.length() > kLongestRange)
    throw Problem("range() is longer than " + std::to_string(kLongestRange));
  return std::make_shared<const Range>(range);
}

// The pairs of dict(mapping or pairs, name=value...) in order.
void each_pair(Interpreter& interpreter, Arguments& passed, const char* callee,
               const std::function<void(const Value&, Value)>& set) {
  Meter& meter = interpreter.meter();
  if (passed.positional.size() > 1) throw Problem(std::string(callee) + " takes at most one positional argument");
  if (!passed.positional.empty()) {
    const Value& source = passed.positional[0];
    require_defined(source);
    if (const Dict* dict = source.as_dict()) {
      for (const auto& [key, value] : dict->entries) set(key, value);
    } else {
      const Next next = iterate(meter, source);
      for (Value pair; next(pair);) {
        const std::vector<Value> parts = to_vector(meter, pair);
        if (parts.size() != 2) throw Problem(std::string(callee) + " needs pairs of key and value");
        set(parts[0], parts[1]);
      }
    }
  }
  for (auto& [name, value] : passed.named) set(Value::text(name), std::move(value));
}

Value dict(Interpreter& interpreter, Arguments& passed) {
  DictBuilder builder(interpreter.meter());
  each_pair(interpreter, passed, "dict()", [&](const Value& key, Value value) { builder.set(key, std::move(value)); });
  return builder.finish();
}

Value new_namespace(Interpreter& interpreter, Arguments& passed) {
  auto space = std::make_shared<Space>();
  each_pair(interpreter, passed, "namespace()", [&](const Value& key, Value value) {
    const Text* name = key.as_text();
    if (!name) throw Problem("namespace() needs names that are strings");
    if (name->bytes().starts_with('_'))
      throw Problem("the attribute '" + name->bytes() + "' of a namespace begins with an underscore; rename it");
    interpreter.meter().make(sizeof(Value) + name->size());
    interpreter.meter().step(1 + space->attributes.size() / 64);
    space->set(name->bytes(), std::move(value));
  });
  return interpreter.new_namespace(std::move(space));
}

Value raise_exception(Interpreter&, Arguments& passed) {
  const Bound bound("raise_exception()", passed, {"message"}, 1);
  throw Refusal{bound[0].as_text() ? bound.text(0).bytes() : "the template gave no message"};
}

Value strftime_now(Interpreter& interpreter, Arguments& passed) {
  const Bound bound("strftime_now()", passed, {"format"}, 1);
  return Value::text(interpreter.strftime(bound.text(0).bytes()));
}

}  // namespace

void define_globals(Interpreter& interpreter) {
  const auto define = [&](const char* name, Value (*function)(Interpreter&, Arguments&)) {
    interpreter.define(name, make_callable(interpreter, std::string("function ") + name, function));
  };
  define("range", range);
  define("dict", dict);
  define("namespace", new_namespace);
  define("raise_exception", raise_exception);
  define("strftime_now", strftime_now);
}

}  // namespace vitrine::jinja
