// map, select, reject and their kin: lazy, so that what nobody asks for is not computed.
#include "jinja/filters.h"

namespace vitrine::jinja {
namespace {

int depth_of(const Value& value, const Arguments& passed) {
  int depth = value.depth();
  for (const Value& argument : passed.positional) depth = std::max(depth, argument.depth());
  for (const auto& [name, argument] : passed.named) depth = std::max(depth, argument.depth());
  return depth;
}

Value take_first(Arguments& passed) {
  Value first = std::move(passed.positional[0]);
  passed.positional.erase(passed.positional.begin());
  return first;
}

const std::string& name_in(const Value& value, const char* what) {
  require_defined(value);
  if (!value.as_text()) throw Problem(std::string(what) + " needs a name, not '" + type_name(value) + "'");
  return value.as_text()->bytes();
}

Value map(Interpreter& i, const Value& value, Arguments& passed) {
  const int depth = depth_of(value, passed);
  if (!truth(value)) return Value::stream(i.meter(), [](Value&) { return false; }, 0);
  std::function<Value(const Value&)> apply;
  if (passed.positional.empty() && !passed.named.empty()) {
    const Bound bound("map", passed, {"attribute", "default"}, 1);
    apply = [&i, parts = attribute_parts(bound[0]), fallback = bound.value_or(1, None{})](const Value& item) {
      return attribute_of(i, item, parts, fallback);
    };
  } else {
    if (passed.positional.empty()) throw Problem("map needs the name of a filter or attribute=");
    const std::string name = name_in(take_first(passed), "map");
    apply = [&i, name, passed](const Value& item) {
      Arguments copy = passed;
      return i.filter(name, item, copy);
    };
  }
  const Next source = iterate(i.meter(), value);
  return Value::stream(
      i.meter(),
      [&i, source, apply](Value& next) {
        const Meter::Level level(i.meter());
        Value item;
        if (!source(item)) return false;
        next = apply(item);
        return true;
      },
      depth);
}

template <bool keep, bool by_attribute>
Value select(Interpreter& i, const Value& value, Arguments& passed) {
  const int depth = depth_of(value, passed);
  if (!truth(value)) return Value::stream(i.meter(), [](Value&) { return false; }, 0);
  std::vector<Value> parts;
  if (by_attribute) {
    if (passed.positional.empty()) throw Problem("selectattr and rejectattr need the name of an attribute");
    parts = attribute_parts(take_first(passed));
  }
  std::string test;  // none: whether it is true
  if (!passed.positional.empty()) test = name_in(take_first(passed), "select");
  const Next source = iterate(i.meter(), value);
  return Value::stream(
      i.meter(),
      [&i, source, parts, test, passed](Value& next) {
        const Meter::Level level(i.meter());
        for (Value item; source(item);) {
          const Value looked_at = attribute_of(i, item, parts);
          Arguments copy = passed;
          if ((test.empty() ? truth(looked_at) : i.test(test, looked_at, copy)) != keep) continue;
          next = std::move(item);
          return true;
        }
        return false;
      },
      depth);
}

}  // namespace

const FilterMap& select_filters() {
  static const FilterMap filters = {{"map", map},
                                    {"reject", select<false, false>},
                                    {"rejectattr", select<false, true>},
                                    {"select", select<true, false>},
                                    {"selectattr", select<true, true>}};
  return filters;
}

}  // namespace vitrine::jinja
