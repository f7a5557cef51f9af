// What "is" can ask.
#include <cmath>
#include <map>

#include "jinja/interpreter.h"
#include "jinja/print.h"
#include "jinja/string_methods.h"

namespace vitrine::jinja {
namespace {

const Value& only_argument(Arguments& passed, const char* name) {
  if (passed.positional.size() != 1 || !passed.named.empty())
    throw Problem(std::string("the test '") + name + "' needs one argument");
  return passed.positional[0];
}

// A test without arguments.
template <bool (*holds)(Interpreter&, const Value&)>
bool plain(Interpreter& i, const Value& value, Arguments& passed) {
  if (!passed.positional.empty() || !passed.named.empty()) throw Problem("this test takes no argument");
  return holds(i, value);
}

int64_t remainder(Interpreter& i, const Value& value, int64_t by) {
  const Value rest = arithmetic(i.meter(), Arithmetic::modulo, value, by);
  if (const double* number = rest.get_if<double>()) return *number == std::floor(*number) ? static_cast<int64_t>(*number) : -1;
  return rest.as_integer().value_or(-1);
}

bool odd(Interpreter& i, const Value& v) { return remainder(i, v, 2) == 1; }
bool even(Interpreter& i, const Value& v) { return remainder(i, v, 2) == 0; }
bool defined(Interpreter&, const Value& v) { return !v.is_undefined(); }
bool undefined(Interpreter&, const Value& v) { return v.is_undefined(); }
bool none(Interpreter&, const Value& v) { return v.is_none(); }
bool boolean(Interpreter&, const Value& v) { return v.is<bool>(); }
bool is_true(Interpreter&, const Value& v) { return v.is<bool>() && truth(v); }
bool is_false(Interpreter&, const Value& v) { return v.is<bool>() && !truth(v); }
bool integer(Interpreter&, const Value& v) { return v.is<int64_t>(); }
bool is_float(Interpreter&, const Value& v) { return v.is<double>(); }
bool number(Interpreter&, const Value& v) { return v.as_number().has_value(); }
bool string(Interpreter&, const Value& v) { return v.as_text() != nullptr; }
bool mapping(Interpreter&, const Value& v) { return v.as_dict() != nullptr; }
bool sequence(Interpreter&, const Value& v) {
  return v.is_undefined() || v.as_text() || v.as_items() || v.as_dict() || v.as_range();
}
bool iterable(Interpreter& i, const Value& v) { return sequence(i, v) || v.as_view() || v.as_stream() || v.as_loop(); }
bool callable(Interpreter&, const Value& v) { return v.as_callable() || v.as_loop() || v.is_undefined(); }
bool escaped(Interpreter&, const Value& v) { return v.as_text() && v.as_text()->markup(); }
bool lower(Interpreter& i, const Value& v) { return has_case(i.meter(), to_text(i.meter(), v), false); }
bool upper(Interpreter& i, const Value& v) { return has_case(i.meter(), to_text(i.meter(), v), true); }
bool known_filter(Interpreter&, const Value& v) { return v.as_text() && find_filter(v.as_text()->bytes()); }
bool known_test(Interpreter&, const Value& v) { return v.as_text() && find_test(v.as_text()->bytes()); }

bool divisible(Interpreter& i, const Value& value, Arguments& passed) {
  const Value& by = only_argument(passed, "divisibleby");
  const Value rest = arithmetic(i.meter(), Arithmetic::modulo, value, by);
  return equal(i.meter(), rest, int64_t{0});
}

bool same(Interpreter&, const Value& value, Arguments& passed) {
  const Value& other = only_argument(passed, "sameas");
  if (value.data().index() != other.data().index()) return false;
  return std::visit(
      [&](const auto& data) {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, Undefined>)
          return false;
        else
          return data == *other.get_if<T>();
      },
      value.data());
}

bool in(Interpreter& i, const Value& value, Arguments& passed) { return contains(i.meter(), only_argument(passed, "in"), value); }
bool eq(Interpreter& i, const Value& value, Arguments& passed) { return equal(i.meter(), value, only_argument(passed, "eq")); }
bool ne(Interpreter& i, const Value& value, Arguments& passed) { return !equal(i.meter(), value, only_argument(passed, "ne")); }
bool lt(Interpreter& i, const Value& value, Arguments& passed) { return less(i.meter(), value, only_argument(passed, "lt")); }
bool gt(Interpreter& i, const Value& value, Arguments& passed) { return less(i.meter(), only_argument(passed, "gt"), value); }
bool le(Interpreter& i, const Value& value, Arguments& passed) {
  return less_or_equal(i.meter(), value, only_argument(passed, "le"));
}
bool ge(Interpreter& i, const Value& value, Arguments& passed) {
  return less_or_equal(i.meter(), only_argument(passed, "ge"), value);
}

const std::map<std::string, Test>& all_tests() {
  static const std::map<std::string, Test> tests = {{"!=", ne},
                                                    {"<", lt},
                                                    {"<=", le},
                                                    {"==", eq},
                                                    {">", gt},
                                                    {">=", ge},
                                                    {"boolean", plain<boolean>},
                                                    {"callable", plain<callable>},
                                                    {"defined", plain<defined>},
                                                    {"divisibleby", divisible},
                                                    {"eq", eq},
                                                    {"equalto", eq},
                                                    {"escaped", plain<escaped>},
                                                    {"even", plain<even>},
                                                    {"false", plain<is_false>},
                                                    {"filter", plain<known_filter>},
                                                    {"float", plain<is_float>},
                                                    {"ge", ge},
                                                    {"greaterthan", gt},
                                                    {"gt", gt},
                                                    {"in", in},
                                                    {"integer", plain<integer>},
                                                    {"iterable", plain<iterable>},
                                                    {"le", le},
                                                    {"lessthan", lt},
                                                    {"lower", plain<lower>},
                                                    {"lt", lt},
                                                    {"mapping", plain<mapping>},
                                                    {"ne", ne},
                                                    {"none", plain<none>},
                                                    {"number", plain<number>},
                                                    {"odd", plain<odd>},
                                                    {"sameas", same},
                                                    {"sequence", plain<sequence>},
                                                    {"string", plain<string>},
                                                    {"test", plain<known_test>},
                                                    {"true", plain<is_true>},
                                                    {"undefined", plain<undefined>},
                                                    {"upper", plain<upper>}};
  return tests;
}

}  // namespace

Test find_test(const std::string& name) {
  const auto at = all_tests().find(name);
  return at == all_tests().end() ? nullptr : at->second;
}

std::string known_tests() {
  std::string names;
  for (const auto& [name, test] : all_tests()) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

}  // namespace vitrine::jinja
