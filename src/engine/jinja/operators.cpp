#include "jinja/operators.h"

#include <string.h>  // memmem, which is no part of C++

#include <algorithm>
#include <cmath>

#include "jinja/format.h"
#include "jinja/html.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

[[noreturn]] void mismatch(Arithmetic operation, const Value& a, const Value& b) {
  throw Problem(std::string("unsupported operand types for ") + kSigns[static_cast<size_t>(operation)] + ": '" + type_name(a) +
                "' and '" + type_name(b) + "'");
}

[[noreturn]] void overflow() { throw Problem("an integer does not fit in 64 bits"); }

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - ((a % b != 0) && ((a < 0) != (b < 0)));
}

double float_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Problem("zero cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (;; exponent >>= 1) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) overflow();
    if (exponent <= 1) return result;
    if (__builtin_mul_overflow(base, base, &base)) overflow();
  }
}

Value integers(Arithmetic operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
    case Arithmetic::add:
      if (__builtin_add_overflow(a, b, &result)) overflow();
      return result;
    case Arithmetic::subtract:
      if (__builtin_sub_overflow(a, b, &result)) overflow();
      return result;
    case Arithmetic::multiply:
      if (__builtin_mul_overflow(a, b, &result)) overflow();
      return result;
    case Arithmetic::power: return integer_power(a, b);
    default: break;
  }
  if (b == 0) throw Problem("division by zero");
  if (operation == Arithmetic::divide) return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1 && a == INT64_MIN) {
    if (operation == Arithmetic::modulo) return int64_t{0};
    overflow();
  }
  const int64_t quotient = floor_divide(a, b);
  return operation == Arithmetic::floor_divide ? quotient : a - quotient * b;
}

Value floats(Arithmetic operation, double a, double b) {
  switch (operation) {
    case Arithmetic::add: return a + b;
    case Arithmetic::subtract: return a - b;
    case Arithmetic::multiply: return a * b;
    case Arithmetic::power:
      if (a == 0 && b < 0) throw Problem("zero cannot be raised to a negative power");
      if (a < 0 && std::floor(b) != b) throw Problem("a negative number has no real power with a fraction as exponent");
      return std::pow(a, b);
    default: break;
  }
  if (b == 0) throw Problem("division by zero");
  if (operation == Arithmetic::divide) return a / b;
  if (operation == Arithmetic::modulo) return float_modulo(a, b);
  // As Python: the quotient of what fmod leaves, then to the nearest whole number below.
  const double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && ((b < 0) != (rest < 0))) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value repeat(Meter& meter, const Value& sequence, int64_t times) {
  const size_t count = static_cast<size_t>(std::max<int64_t>(times, 0));
  if (const Text* text = sequence.as_text()) {
    if (text->size() > 0 && count > SIZE_MAX / text->size()) throw Problem("the template makes a text that is far too long");
    meter.make_string(text->size() * count);
    Text result;
    for (size_t i = 0; i < count && !text->empty(); ++i) result.append(*text);
    return Value::text(std::move(result));
  }
  const Items& items = *sequence.as_items();
  const size_t one = items.items.size() * sizeof(Value);
  if (one > 0 && count > SIZE_MAX / one) throw Problem("the template makes a list that is far too long");
  meter.make(one * count);
  std::vector<Value> result;
  for (size_t i = 0; i < count && one > 0; ++i) result.insert(result.end(), items.items.begin(), items.items.end());
  return items.is_tuple ? Value::tuple(meter, std::move(result)) : Value::list(meter, std::move(result));
}

Value concatenate(Meter& meter, const Text& a, const Text& b) {
  meter.make_string(a.size() + b.size());
  if (a.markup() == b.markup()) {
    Text result = a;
    result.append(b);
    return Value::text(std::move(result));
  }
  // Markup escapes what is added to it and what it is added to.
  Text result = a.markup() ? a : escape_html(meter, a);
  result.append(b.markup() ? b : escape_html(meter, b));
  return Value::text(result.as_markup(true));
}

bool items_equal(Meter& meter, const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const Value& x, const Value& y) { return equal(meter, x, y); });
}

bool same_object(const Value& a, const Value& b) {
  return a.data().index() == b.data().index() && std::visit(
                                                     [&](const auto& data) {
                                                       using T = std::decay_t<decltype(data)>;
                                                       if constexpr (requires { data.get(); })
                                                         return data == *b.get_if<T>();
                                                       else
                                                         return false;
                                                     },
                                                     a.data());
}

// A slice of a sequence, as indices from 0, and how many elements it has.
struct Cut {
  int64_t start, stop, step, count;
};

std::optional<Cut> cut(int64_t length, const Value& start_value, const Value& stop_value, const Value& step_value) {
  const auto absent = [](const Value& v) { return v.is_none(); };
  const auto part = [&](const Value& v) { return absent(v) ? std::optional<int64_t>(0) : v.as_integer(); };
  const auto step_given = absent(step_value) ? std::optional<int64_t>(1) : step_value.as_integer();
  const auto start_given = part(start_value), stop_given = part(stop_value);
  if (!step_given || !start_given || !stop_given) return std::nullopt;
  if (*step_given == 0) throw Problem("slice step cannot be zero");
  const int64_t step = std::max<int64_t>(*step_given, -INT64_MAX);
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? length : length - 1;
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + length : i, lowest, highest); };
  const int64_t start = absent(start_value) ? (step > 0 ? lowest : highest) : clamp(*start_given);
  const int64_t stop = absent(stop_value) ? (step > 0 ? highest : lowest) : clamp(*stop_given);
  return Cut{start, stop, step, Range{start, stop, step}.length()};
}

}  // namespace

size_t find_bytes(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* at = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return at ? static_cast<size_t>(static_cast<const char*>(at) - text.data()) : std::string_view::npos;
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  const Meter::Level level(meter);
  meter.step();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  const auto i = a.as_integer(), j = b.as_integer();
  if (i && j) return *i == *j;
  const auto x = a.as_number(), y = b.as_number();
  if (x && y) return *x == *y;
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (same_object(a, b)) return true;
  if (a.as_text() && b.as_text()) {
    meter.look(std::min(a.as_text()->size(), b.as_text()->size()));
    return a.as_text()->bytes() == b.as_text()->bytes();
  }
  if (a.as_items() && b.as_items())
    return a.as_items()->is_tuple == b.as_items()->is_tuple && items_equal(meter, a.as_items()->items, b.as_items()->items);
  if (a.as_dict() && b.as_dict()) {
    if (a.as_dict()->entries.size() != b.as_dict()->entries.size()) return false;
    for (const auto& [key, value] : a.as_dict()->entries) {
      const Value* other = b.as_dict()->find(meter, key);
      if (!other || !equal(meter, value, *other)) return false;
    }
    return true;
  }
  if (a.as_range() && b.as_range()) {
    const Range &r = *a.as_range(), &s = *b.as_range();
    const int64_t n = r.length();
    return n == s.length() && (n == 0 || (r.start == s.start && (n == 1 || r.step == s.step)));
  }
  if (a.as_view() && b.as_view() && a.as_view()->kind == b.as_view()->kind && a.as_view()->kind != DictView::Kind::values) {
    const Dict &d = *a.as_view()->dict, &e = *b.as_view()->dict;
    if (d.entries.size() != e.entries.size()) return false;
    for (const auto& [key, value] : d.entries) {
      const Value* other = e.find(meter, key);
      if (!other || (a.as_view()->kind == DictView::Kind::items && !equal(meter, value, *other))) return false;
    }
    return true;
  }
  return false;
}

// a < b, or a <= b with `or_equal`: NaN is neither below nor equal, so neither can be told from the other.
static bool ordered(Meter& meter, const Value& a, const Value& b, bool or_equal) {
  const Meter::Level level(meter);
  meter.step();
  require_defined(a);
  require_defined(b);
  const auto compare = [&](const auto& x, const auto& y) { return or_equal ? x <= y : x < y; };
  const auto i = a.as_integer(), j = b.as_integer();
  if (i && j) return compare(*i, *j);
  const auto x = a.as_number(), y = b.as_number();
  if (x && y) return compare(*x, *y);
  if (a.as_text() && b.as_text()) {
    meter.look(std::min(a.as_text()->size(), b.as_text()->size()));
    return compare(a.as_text()->bytes(), b.as_text()->bytes());  // bytes of UTF-8 order as code points do
  }
  if (a.as_items() && b.as_items() && a.as_items()->is_tuple == b.as_items()->is_tuple) {
    const auto &p = a.as_items()->items, &q = b.as_items()->items;
    for (size_t k = 0; k < std::min(p.size(), q.size()); ++k)
      if (!equal(meter, p[k], q[k])) return ordered(meter, p[k], q[k], or_equal);
    return compare(p.size(), q.size());
  }
  throw Problem("'" + type_name(a) + "' and '" + type_name(b) + "' have no order");
}

bool less(Meter& meter, const Value& a, const Value& b) { return ordered(meter, a, b, false); }
bool less_or_equal(Meter& meter, const Value& a, const Value& b) { return ordered(meter, a, b, true); }

bool contains(Meter& meter, const Value& haystack, const Value& needle) {
  meter.step();
  if (const Text* text = haystack.as_text()) {
    require_defined(needle);
    const Text* part = needle.as_text();
    if (!part) throw Problem("'in' with a string on its right needs a string on its left, not '" + type_name(needle) + "'");
    meter.look(text->size());
    return find_bytes(text->view(), part->view()) != std::string_view::npos;
  }
  if (const Dict* dict = haystack.as_dict()) return dict->find(meter, needle) != nullptr;
  if (const DictView* view = haystack.as_view(); view && view->kind == DictView::Kind::keys)
    return view->dict->find(meter, needle) != nullptr;
  if (const Range* range = haystack.as_range()) {
    const auto number = needle.as_number();
    if (!number || std::floor(*number) != *number || std::abs(*number) > 0x1p62) return false;
    const int64_t i = needle.as_integer().value_or(static_cast<int64_t>(*number));
    const bool inside = range->step > 0 ? i >= range->start && i < range->stop : i <= range->start && i > range->stop;
    const auto distance = [](int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); };
    return inside && (range->step > 0 ? distance(range->start, i) % distance(0, range->step)
                                      : distance(i, range->start) % distance(range->step, 0)) == 0;
  }
  const Next next = iterate(meter, haystack);
  for (Value item; next(item);)
    if (equal(meter, item, needle)) return true;
  return false;
}

Value arithmetic(Meter& meter, Arithmetic operation, const Value& a, const Value& b) {
  require_defined(a);
  // "%" on a string formats, and may print what is undefined.
  if (operation == Arithmetic::modulo && a.as_text()) return Value::text(format_percent(meter, *a.as_text(), b));
  require_defined(b);
  const auto i = a.as_integer(), j = b.as_integer();
  if (i && j) return integers(operation, *i, *j);
  const auto x = a.as_number(), y = b.as_number();
  if (x && y) return floats(operation, *x, *y);
  if (operation == Arithmetic::add) {
    if (a.as_text() && b.as_text()) return concatenate(meter, *a.as_text(), *b.as_text());
    if (a.as_items() && b.as_items() && a.as_items()->is_tuple == b.as_items()->is_tuple) {
      meter.make((a.as_items()->items.size() + b.as_items()->items.size()) * sizeof(Value));
      std::vector<Value> items = a.as_items()->items;
      items.insert(items.end(), b.as_items()->items.begin(), b.as_items()->items.end());
      return a.as_items()->is_tuple ? Value::tuple(meter, std::move(items)) : Value::list(meter, std::move(items));
    }
  }
  if (operation == Arithmetic::multiply) {
    if ((a.as_text() || a.as_items()) && j) return repeat(meter, a, *j);
    if ((b.as_text() || b.as_items()) && i) return repeat(meter, b, *i);
  }
  mismatch(operation, a, b);
}

Value negate(const Value& value) {
  require_defined(value);
  if (const auto i = value.as_integer()) {
    if (*i == INT64_MIN) overflow();
    return -*i;
  }
  if (const auto x = value.as_number()) return -*x;
  throw Problem("bad operand type for unary -: '" + type_name(value) + "'");
}

Value plus(const Value& value) {
  require_defined(value);
  if (const auto i = value.as_integer()) return *i;
  if (const auto x = value.as_number()) return *x;
  throw Problem("bad operand type for unary +: '" + type_name(value) + "'");
}

Next iterate(Meter& meter, const Value& value) {
  if (value.is_undefined()) return [](Value&) { return false; };
  if (value.as_text())
    return [&meter, value, at = size_t{0}](Value& next) mutable {
      const Text& text = *value.as_text();
      if (at >= text.size()) return false;
      const size_t begin = at;
      next_code_point(text.view(), at);
      meter.make_string(at - begin);
      next = Value::text(text.slice(begin, at));
      return true;
    };
  if (const Stream* stream = value.as_stream())
    return [&meter, value, stream](Value& next) {
      meter.step();
      return stream->next(next);
    };
  if (Loop* loop = value.as_loop())
    return [&meter, value, loop](Value& next) {
      meter.step();
      if (!loop->advance()) return false;
      next = Value::tuple(meter, {loop->current, value});
      return true;
    };
  const auto count = length(meter, value);
  if (!count) throw Problem("'" + type_name(value) + "' object is not iterable");
  return [&meter, value, count = static_cast<size_t>(*count), at = size_t{0}](Value& next) mutable {
    if (at >= count) return false;
    meter.step();
    if (const Items* items = value.as_items()) {
      next = items->items[at];
    } else if (const Dict* dict = value.as_dict()) {
      next = dict->entries[at].first;
    } else if (const DictView* view = value.as_view()) {
      const auto& [key, entry] = view->dict->entries[at];
      next = view->kind == DictView::Kind::keys     ? key
             : view->kind == DictView::Kind::values ? entry
                                                    : Value::tuple(meter, {key, entry});
    } else {
      next = value.as_range()->at(static_cast<int64_t>(at));
    }
    ++at;
    return true;
  };
}

std::vector<Value> to_vector(Meter& meter, const Value& value) {
  std::vector<Value> items;
  const Next next = iterate(meter, value);
  for (Value item; next(item);) {
    meter.make(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

Value slice(Meter& meter, const Value& value, const Value& start, const Value& stop, const Value& step) {
  require_defined(value);
  if (!value.as_text() && !value.as_items() && !value.as_range())
    throw Problem("a value of type '" + type_name(value) + "' cannot be sliced");
  const int64_t count = *length(meter, value);
  const auto parts = cut(count, start, stop, step);
  if (!parts) throw Problem("slice indices must be integers or None");
  if (const Range* range = value.as_range()) {
    const auto at = [&](int64_t i) {
      int64_t value_at;
      if (__builtin_mul_overflow(i, range->step, &value_at) || __builtin_add_overflow(value_at, range->start, &value_at))
        overflow();
      return value_at;
    };
    int64_t each;
    if (__builtin_mul_overflow(parts->step, range->step, &each)) overflow();
    return std::make_shared<const Range>(Range{at(parts->start), at(parts->stop), each});
  }
  if (const Text* text = value.as_text()) {
    meter.make_string(text->size());
    const size_t begin = byte_of_code_point(text->view(), static_cast<size_t>(std::max<int64_t>(parts->start, 0)));
    if (parts->step == 1) {
      const size_t bytes = byte_of_code_point(text->view().substr(begin), static_cast<size_t>(parts->count));
      return Value::text(text->slice(begin, begin + bytes));
    }
    std::vector<size_t> begins;  // of each code point, and the end
    for (size_t at = 0; at < text->size(); next_code_point(text->view(), at)) begins.push_back(at);
    begins.push_back(text->size());
    meter.make(begins.size() * sizeof(size_t));
    Text result;
    for (int64_t i = 0; i < parts->count; ++i) {
      const size_t at = static_cast<size_t>(parts->start + i * parts->step);
      result.append(*text, begins[at], begins[at + 1]);
    }
    return Value::text(result.as_markup(text->markup()));
  }
  std::vector<Value> items;
  meter.make(static_cast<size_t>(parts->count) * sizeof(Value));
  for (int64_t i = 0; i < parts->count; ++i)
    items.push_back(value.as_items()->items[static_cast<size_t>(parts->start + i * parts->step)]);
  return value.as_items()->is_tuple ? Value::tuple(meter, std::move(items)) : Value::list(meter, std::move(items));
}

std::optional<Value> item(Meter& meter, const Value& value, const Value& key) {
  require_defined(value);
  if (const Dict* dict = value.as_dict()) {
    if (key.as_list() || key.as_dict()) return std::nullopt;
    const Value* found = dict->find(meter, key);
    return found ? std::optional(*found) : std::nullopt;
  }
  const auto index = key.as_integer();
  if (!index || (!value.as_text() && !value.as_items() && !value.as_range())) return std::nullopt;
  const int64_t count = *length(meter, value), at = *index < 0 ? *index + count : *index;
  if (at < 0 || at >= count) return std::nullopt;
  if (const Text* text = value.as_text()) {
    const size_t begin = byte_of_code_point(text->view(), static_cast<size_t>(at));
    size_t end = begin;
    next_code_point(text->view(), end);
    meter.make_string(end - begin);
    return Value::text(text->slice(begin, end));
  }
  if (const Range* range = value.as_range()) return Value(range->at(at));
  return value.as_items()->items[static_cast<size_t>(at)];
}

}  // namespace vitrine::jinja
