// Filters that make numbers.
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/filters.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

// Digits with single underscores between them become plain digits; nothing if the underscores lie otherwise.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '_') {
      plain += text[at];
      continue;
    }
    const auto alnum = [&](size_t k) {
      return k < text.size() && (is_digit(static_cast<unsigned char>(text[k])) || is_letter(static_cast<unsigned char>(text[k])));
    };
    if (at == 0 || !alnum(at - 1) || !alnum(at + 1)) return std::nullopt;
  }
  return plain;
}

std::string_view stripped(std::string_view text) {
  const Stripped inner = strip_space(text, true, true);
  return text.substr(inner.begin, inner.end - inner.begin);
}

// int(text, base). Errors: Problem for a number beyond 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) throw Problem("int needs a base from 2 to 36, or 0");
  text = stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefixed = [&](char letter, int of_base) {
    if (text.size() < 2 || text[0] != '0' || (text[1] | 0x20) != letter || (base != 0 && base != of_base)) return false;
    base = of_base;
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
    return true;
  };
  if (!prefixed('x', 16) && !prefixed('o', 8) && !prefixed('b', 2) && base == 0) {
    if (text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != text.npos) return std::nullopt;
    base = 10;
  }
  const auto plain = without_underscores(text);
  if (!plain || plain->empty() || (*plain)[0] == '-') return std::nullopt;
  uint64_t magnitude = 0;
  const auto [end, error] = std::from_chars(plain->data(), plain->data() + plain->size(), magnitude, static_cast<int>(base));
  if (end != plain->data() + plain->size()) return std::nullopt;
  if (error != std::errc() || magnitude > static_cast<uint64_t>(INT64_MAX) + negative)
    throw Problem("an integer does not fit in 64 bits");
  return static_cast<int64_t>(negative ? 0 - magnitude : magnitude);
}

std::optional<double> parse_float(std::string_view text) {
  text = stripped(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const std::string lower = to_lower(text);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = INFINITY;
  } else if (lower == "nan") {
    value = NAN;
  } else {
    const auto plain = without_underscores(lower);
    if (!plain || plain->empty() || plain->find_first_not_of("0123456789.e+-") != plain->npos || (*plain)[0] == '-')
      return std::nullopt;
    const auto [end, error] = std::from_chars(plain->data(), plain->data() + plain->size(), value);
    if (end != plain->data() + plain->size() || error == std::errc::invalid_argument) return std::nullopt;
    if (error == std::errc::result_out_of_range) value = plain->find("e-") == plain->npos ? INFINITY : 0;
  }
  return negative ? -value : value;
}

int64_t truncated(double value) {
  if (!(std::abs(value) < 0x1p63)) throw Problem("an integer does not fit in 64 bits");
  return static_cast<int64_t>(value);
}

Value to_int(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("int", passed, {"default", "base"});
  const Value fallback = bound.value_or(0, int64_t{0});
  require_defined(value);
  if (const auto integer = value.as_integer()) return *integer;
  if (const double* number = value.get_if<double>()) return std::isfinite(*number) ? Value(truncated(*number)) : fallback;
  const Text* text = value.as_text();
  if (!text) return fallback;
  i.meter().look(text->size());
  if (const auto integer = parse_integer(text->view(), bound.integer(1, 10))) return *integer;
  const auto number = parse_float(text->view());
  return number && std::isfinite(*number) ? Value(truncated(*number)) : fallback;
}

Value to_float(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("float", passed, {"default"});
  require_defined(value);
  if (const auto number = value.as_number()) return *number;
  if (const Text* text = value.as_text()) {
    i.meter().look(text->size());
    if (const auto number = parse_float(text->view())) return *number;
  }
  return bound.value_or(0, 0.0);
}

Value absolute(Interpreter&, const Value& value, Arguments& passed) {
  const Bound bound("abs", passed, {});
  require_defined(value);
  if (const auto integer = value.as_integer()) return *integer < 0 ? negate(*integer) : Value(*integer);
  if (const auto number = value.as_number()) return std::abs(*number);
  throw Problem("abs needs a number, not '" + type_name(value) + "'");
}

// round(): to even among the nearest, decided on the exact value and not on a product that was rounded before.
double rounded(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 320) return value;
  if (precision < -320) return std::copysign(0.0, value);
  if (precision < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-precision));
    return std::nearbyint(value / unit) * unit;
  }
  char buffer[700];  // 309 digits, a point and 320 more
  const int size = std::snprintf(buffer, sizeof buffer, "%.*f", static_cast<int>(precision), value);
  double result = value;
  std::from_chars(buffer, buffer + size, result);
  return result;
}

Value round_filter(Interpreter&, const Value& value, Arguments& passed) {
  const Bound bound("round", passed, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string method = bound.has(1) ? bound.text(1).bytes() : "common";
  require_defined(value);
  const auto number = value.as_number();
  if (!number) throw Problem("round needs a number, not '" + type_name(value) + "'");
  if (method == "common") {
    const auto integer = value.as_integer();
    if (!integer) return rounded(*number, precision);
    if (precision >= 0) return *integer;
    return truncated(rounded(*number, precision));
  }
  if (method != "ceil" && method != "floor")
    throw Problem("round knows the methods common, ceil and floor, not '" + method + "'");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double whole = method == "ceil" ? std::ceil(*number * unit) : std::floor(*number * unit);
  if (!std::isfinite(whole)) throw Problem("round cannot make a whole number of " + float_repr(*number));
  return (whole + 0.0) / unit;  // as an integer: without the sign of -0
}

Value count_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("length", passed, {});
  if (const auto n = length(i.meter(), value)) return *n;
  throw Problem("a value of type '" + type_name(value) + "' has no length");
}

Value sum(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("sum", passed, {"attribute", "start"});
  Value total = bound.value_or(1, int64_t{0});
  if (total.as_text()) throw Problem("sum cannot add strings; use join");
  const auto parts = bound.has(0) ? attribute_parts(bound[0]) : std::vector<Value>();
  const Next next = iterate(i.meter(), value);
  for (Value item; next(item);) total = arithmetic(i.meter(), Arithmetic::add, total, attribute_of(i, std::move(item), parts));
  return total;
}

}  // namespace

const FilterMap& number_filters() {
  static const FilterMap filters = {{"abs", absolute},        {"count", count_filter}, {"float", to_float}, {"int", to_int},
                                    {"length", count_filter}, {"round", round_filter}, {"sum", sum}};
  return filters;
}

}  // namespace vitrine::jinja
