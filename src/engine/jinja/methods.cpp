// Python's methods of strings, dicts, lists and numbers.
#include <algorithm>
#include <cmath>
#include <map>

#include "jinja/format.h"
#include "jinja/interpreter.h"
#include "jinja/print.h"
#include "jinja/string_methods.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

using DictMethod = Value (*)(Interpreter&, const Value& self, Arguments&);

Value view(const Value& self, DictView::Kind kind) {
  return std::make_shared<const DictView>(DictView{*self.get_if<std::shared_ptr<const Dict>>(), kind});
}

Value dict_get(Interpreter& interpreter, const Value& self, Arguments& passed) {
  const Bound bound("get()", passed, {"key", "default"}, 1);
  const Value* found = self.as_dict()->find(interpreter.meter(), bound[0]);
  return found ? *found : bound.value_or(1, None{});
}

Value index_of(Interpreter& interpreter, const Value& self, Arguments& passed) {
  const Bound bound("index()", passed, {"value", "start", "stop"}, 1);
  const auto& items = self.as_items()->items;
  const int64_t size = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  for (int64_t i = clamp(bound.integer(1, 0)); i < clamp(bound.integer(2, size)); ++i)
    if (equal(interpreter.meter(), items[static_cast<size_t>(i)], bound[0])) return i;
  throw Problem("index(): the value is not in the list");
}

Value count_of(Interpreter& interpreter, const Value& self, Arguments& passed) {
  const Bound bound("count()", passed, {"value"}, 1);
  return static_cast<int64_t>(std::count_if(self.as_items()->items.begin(), self.as_items()->items.end(),
                                            [&](const Value& item) { return equal(interpreter.meter(), item, bound[0]); }));
}

Value copy_of(Interpreter&, const Value& self, Arguments& passed) {
  const Bound bound("copy()", passed, {});
  return self;  // values do not change
}

const std::map<std::string, DictMethod> kDictMethods = {
    {"get", dict_get},
    {"copy", copy_of},
    {"keys", [](Interpreter&, const Value& self, Arguments&) { return view(self, DictView::Kind::keys); }},
    {"values", [](Interpreter&, const Value& self, Arguments&) { return view(self, DictView::Kind::values); }},
    {"items", [](Interpreter&, const Value& self, Arguments&) { return view(self, DictView::Kind::items); }}};
const std::map<std::string, DictMethod> kListMethods = {{"index", index_of}, {"count", count_of}, {"copy", copy_of}};
const std::map<std::string, DictMethod> kTupleMethods = {{"index", index_of}, {"count", count_of}};
const std::map<std::string, DictMethod> kFloatMethods = {{"is_integer", [](Interpreter&, const Value& self, Arguments&) {
                                                            return Value(std::floor(*self.get_if<double>()) ==
                                                                         *self.get_if<double>());
                                                          }}};

// Methods that change their object: the sandbox of the reference forbids them.
bool changes_its_object(const Value& self, const std::string& name) {
  const auto among = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* known) { return name == known; });
  };
  if (self.as_dict()) return among({"clear", "pop", "popitem", "setdefault", "update"});
  if (self.as_list()) return among({"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"});
  return false;
}

}  // namespace

std::optional<Value> method(Interpreter& interpreter, const Value& self, const std::string& name) {
  const auto bind = [&](auto function) {
    return make_callable(
        interpreter, "method " + name + " of " + type_name(self),
        [self, function](Interpreter& of, Arguments& passed) { return function(of, self, passed); }, self.depth());
  };
  if (self.as_text()) {
    const StringMethod function = find_string_method(name);
    return function ? std::optional(bind(function)) : std::nullopt;
  }
  const std::map<std::string, DictMethod>* methods = self.as_dict()      ? &kDictMethods
                                                     : self.as_list()    ? &kListMethods
                                                     : self.as_tuple()   ? &kTupleMethods
                                                     : self.is<double>() ? &kFloatMethods
                                                                         : nullptr;
  if (!methods) return std::nullopt;
  if (const auto at = methods->find(name); at != methods->end()) return bind(at->second);
  if (changes_its_object(self, name))
    return Value::undefined("'" + name + "' would change a " + type_name(self) +
                            ", which templates may not do; collect values in a namespace() by adding lists");
  return std::nullopt;
}

}  // namespace vitrine::jinja
