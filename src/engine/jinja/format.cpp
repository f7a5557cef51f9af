#include "jinja/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

constexpr int64_t kWidest = 1'000'000;  // of a field
constexpr int kMostDigits = 200;        // after the point

struct Spec {
  std::string fill = " ";
  char align = 0;  // < > ^ =
  char sign = '-';
  bool alternate = false;
  char grouping = 0;
  int64_t width = 0;
  std::optional<int> precision;
  char type = 0;
};

int64_t read_number(std::string_view text, size_t& at, int64_t largest, const char* what) {
  int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > largest) throw Problem(std::string("a format asks for a ") + what + " beyond " + std::to_string(largest));
  }
  return number;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  if (!text.empty()) {
    size_t after = 0;
    next_code_point(text, after);
    if (is_align(after)) {
      spec.fill = text.substr(0, after);
      spec.align = text[after];
      at = after + 1;
    } else if (is_align(0)) {
      spec.align = text[at++];
    }
  }
  const auto take = [&](std::string_view set) { return at < text.size() && set.find(text[at]) != set.npos ? text[at++] : '\0'; };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") && !spec.align) {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(text, at, kWidest, "width");
  spec.grouping = take(",_");
  if (take(".")) {
    if (at >= text.size() || text[at] < '0' || text[at] > '9') throw Problem("a format lacks the digits of its precision");
    spec.precision = static_cast<int>(read_number(text, at, kWidest, "precision"));
  }
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) throw Problem("the format \"" + std::string(text) + "\" is not understood");
  return spec;
}

// Fills up to the width; `=` puts the filling between sign and digits.
Text padded(Meter& meter, const Text& body, size_t sign_bytes, const Spec& spec, char default_align) {
  const auto missing = spec.width - static_cast<int64_t>(code_point_count(body.view()));
  if (missing <= 0) return body;
  const size_t count = static_cast<size_t>(missing);
  const char align = spec.align ? spec.align : default_align;
  const size_t left = align == '<' ? 0 : align == '^' ? count / 2 : count;
  meter.make_string(body.size() + count * spec.fill.size());
  const size_t before = align == '=' ? sign_bytes : 0;
  Text result = body.slice(0, before);
  for (size_t i = 0; i < left; ++i) result.append(spec.fill);
  result.append(body, before, body.size());
  for (size_t i = left; i < count; ++i) result.append(spec.fill);
  return result.as_markup(false);
}

std::string grouped(std::string digits, char separator, size_t each) {
  for (size_t at = digits.size(); at > each; at -= each) digits.insert(at - each, 1, separator);
  return digits;
}

std::string print_double(const char* conversion, int precision, bool alternate, double value) {
  std::string format = alternate ? "%#.*" : "%.*";
  format += conversion;
  const int size = std::snprintf(nullptr, 0, format.c_str(), precision, value);
  std::string out(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(out.data(), out.size(), format.c_str(), precision, value);
  out.resize(static_cast<size_t>(size));
  return out;
}

std::string float_digits(double magnitude, const Spec& spec, char type) {
  const int precision = spec.precision.value_or(6);
  if (precision > kMostDigits) throw Problem("a format asks for more than " + std::to_string(kMostDigits) + " digits");
  const bool upper = type >= 'A' && type <= 'Z';
  if (std::isinf(magnitude)) return upper ? "INF" : "inf";
  if (std::isnan(magnitude)) return upper ? "NAN" : "nan";
  switch (type) {
    case 'f':
    case 'F': return print_double("f", precision, spec.alternate, magnitude);
    case 'e': return print_double("e", precision, spec.alternate, magnitude);
    case 'E': return print_double("E", precision, spec.alternate, magnitude);
    case 'g': return print_double("g", precision, spec.alternate, magnitude);
    case 'G': return print_double("G", precision, spec.alternate, magnitude);
    case '%': return print_double("f", precision, spec.alternate, magnitude * 100) + "%";
    default: break;
  }
  if (!spec.precision) return float_repr(magnitude);
  // No type but a precision: as g, and at least one digit behind the point unless there is an exponent.
  std::string digits = print_double("g", std::max(precision, 1), spec.alternate, magnitude);
  if (digits.find_first_of(".e") != digits.npos) return digits;
  // Python turns to the exponent one digit earlier here than %g does.
  if (static_cast<int>(digits.size()) >= std::max(precision, 1)) {
    digits = print_double("e", std::max(precision, 1) - 1, spec.alternate, magnitude);
    const size_t e = digits.find('e');
    size_t end = e;
    while (!spec.alternate && digits.find('.') < end && (digits[end - 1] == '0' || digits[end - 1] == '.')) --end;
    return digits.erase(end, e - end);
  }
  return digits + ".0";
}

std::string integer_digits(uint64_t magnitude, int base, bool upper) {
  char buffer[65];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, base).ptr;
  std::string digits(buffer, end);
  return upper ? to_upper(digits) : digits;
}

uint64_t magnitude_of(int64_t value) { return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value); }

std::string sign_of(bool negative, char sign) { return negative ? "-" : sign == '-' ? "" : std::string(1, sign); }

Text number_text(Meter& meter, bool negative, const std::string& prefix, std::string digits, const Spec& spec,
                 size_t group_size) {
  const std::string sign = sign_of(negative, spec.sign) + prefix;
  if (spec.grouping) {
    size_t whole = digits.find_first_not_of("0123456789abcdefABCDEF");
    if (group_size == 3) whole = digits.find_first_not_of("0123456789");
    whole = std::min(whole, digits.size());
    std::string head = digits.substr(0, whole);
    if (spec.align == '=' && spec.fill == "0") {  // leading zeros are grouped with the digits
      const auto total = [&] { return sign.size() + head.size() + (head.size() - 1) / group_size + digits.size() - whole; };
      while (!head.empty() && static_cast<int64_t>(total()) < spec.width) head.insert(0, 1, '0');
    }
    digits = grouped(head, spec.grouping, group_size) + digits.substr(whole);
  }
  return padded(meter, Text(sign + digits), sign.size(), spec, '>');
}

Text format_integer(Meter& meter, int64_t value, const Spec& spec) {
  if (spec.precision) throw Problem("a format for an integer cannot have a precision");
  if (spec.type == 'c') {
    if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) throw Problem("%c needs a character's number");
    std::string character;
    append_code_point(character, static_cast<char32_t>(value));
    return padded(meter, Text(character), 0, spec, '<');
  }
  const int base = spec.type == 'x' || spec.type == 'X' ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
  const std::string prefix = spec.alternate && base != 10 ? std::string("0") + spec.type : "";
  return number_text(meter, value < 0, prefix, integer_digits(magnitude_of(value), base, spec.type == 'X'), spec,
                     base == 10 ? 3 : 4);
}

Text format_float(Meter& meter, double value, const Spec& spec) {
  return number_text(meter, std::signbit(value) && !std::isnan(value), "", float_digits(std::abs(value), spec, spec.type), spec,
                     3);
}

Text cut_text(const Text& text, std::optional<int> precision) {
  return precision ? text.slice(0, byte_of_code_point(text.view(), static_cast<size_t>(*precision))) : text;
}

// One %-conversion.
Text convert(Meter& meter, const Value& value, Spec spec, bool zero, bool left) {
  const auto fill_up = [&](const Text& body, size_t sign_bytes, bool number) {
    spec.align = left ? '<' : zero && number ? '=' : '>';
    spec.fill = zero && number && !left ? "0" : " ";
    return padded(meter, body, sign_bytes, spec, '>');
  };
  switch (spec.type) {
    case 's': return fill_up(cut_text(to_text(meter, value), spec.precision), 0, false);
    case 'r':
    case 'a': return fill_up(cut_text(repr(meter, value), spec.precision), 0, false);
    case 'c':
      if (const Text* text = value.as_text()) {
        if (code_point_count(text->view()) != 1) throw Problem("%c needs one character");
        return fill_up(*text, 0, false);
      }
      [[fallthrough]];
    default: break;
  }
  require_defined(value);
  const auto number = value.as_number();
  if (!number) throw Problem(std::string("%") + spec.type + " needs a number, not '" + type_name(value) + "'");
  if (spec.type == 'c') {
    Spec plain;
    plain.type = 'c';
    return fill_up(format_integer(meter, value.as_integer().value_or(-1), plain), 0, false);
  }
  std::string digits, prefix;
  bool negative = *number < 0;
  if (std::string_view("diuoxX").find(spec.type) != std::string_view::npos) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!value.as_integer() && (!decimal || !(std::abs(*number) < 0x1p63))) throw Problem("an integer format needs an integer");
    const int64_t integer =
        value.as_integer().value_or(static_cast<int64_t>(std::trunc(std::abs(*number) < 0x1p63 ? *number : 0)));
    const int base = decimal ? 10 : spec.type == 'o' ? 8 : 16;
    negative = integer < 0;
    digits = integer_digits(magnitude_of(integer), base, spec.type == 'X');
    if (spec.precision && digits.size() < static_cast<size_t>(*spec.precision)) {
      meter.make_string(static_cast<size_t>(*spec.precision));
      digits.insert(0, static_cast<size_t>(*spec.precision) - digits.size(), '0');
    }
    if (spec.alternate && !decimal) prefix = std::string("0") + spec.type;
  } else {
    negative = std::signbit(*number) && !std::isnan(*number);
    digits = float_digits(std::abs(*number), spec, spec.type);
  }
  const std::string sign = sign_of(negative, spec.sign) + prefix;
  return fill_up(Text(sign + digits), sign.size(), true);
}

// str.format's view of a replacement field: "name.attribute[key]!r:spec".
class Braces {
 public:
  Braces(Meter& meter, const Arguments& arguments, const Lookup& lookup)
      : meter_(meter), arguments_(arguments), lookup_(lookup) {}

  Text format(const Text& format, int nesting) {
    if (nesting > 2) throw Problem("a format nests its fields too deeply");
    const std::string_view text = format.view();
    Text result;
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      result.append(format, at, brace);
      meter_.make_string(brace - at);
      if ((at = brace) == text.size()) break;
      if (at + 1 < text.size() && text[at + 1] == text[at]) {
        result.append(format, at, at + 1);
        at += 2;
        continue;
      }
      if (text[at] == '}') throw Problem("a format has a single '}'");
      const size_t begin = at + 1;
      int open = 1;
      for (++at; at < text.size() && open > 0; ++at) open += (text[at] == '{') - (text[at] == '}');
      if (open > 0) throw Problem("a format has a '{' without its '}'");
      result.append(field(format.slice(begin, at - 1), nesting));
    }
    return result;
  }

 private:
  Text field(const Text& text, int nesting) {
    size_t end = 0;  // of the name: the first ! or : that is not inside [ ]
    for (int inside = 0; end < text.size(); ++end) {
      const char c = text.bytes()[end];
      inside += (c == '[') - (c == ']');
      if (inside == 0 && (c == '!' || c == ':')) break;
    }
    Value value = named(text.bytes().substr(0, end));
    char conversion = 0;
    if (end < text.size() && text.bytes()[end] == '!') {
      if (end + 1 >= text.size()) throw Problem("a format lacks the letter after '!'");
      conversion = text.bytes()[end + 1];
      end += 2;
      if (end < text.size() && text.bytes()[end] != ':') throw Problem("a format needs ':' after its conversion");
    }
    if (conversion == 'r' || conversion == 'a')
      value = Value::text(repr(meter_, value));
    else if (conversion == 's')
      value = Value::text(to_text(meter_, value));
    else if (conversion)
      throw Problem(std::string("a format has the unknown conversion '") + conversion + "'");
    const Text spec = end < text.size() ? format(text.slice(end + 1, text.size()), nesting + 1) : Text();
    return format_value(meter_, value, spec.view());
  }

  Value named(const std::string& name) {
    size_t at = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, at));
    while (at < name.size()) {
      const bool attribute = name[at] == '.';
      const size_t begin = at + 1;
      at = std::min(name.find_first_of(attribute ? ".[" : "]", begin), name.size());
      if (at == begin || (!attribute && at == name.size())) throw Problem("the format field \"" + name + "\" is not understood");
      value = lookup_(value, name.substr(begin, at - begin), attribute);
      if (!attribute) ++at;
      if (!attribute && at < name.size() && name[at] != '.' && name[at] != '[')
        throw Problem("the format field \"" + name + "\" is not understood");
    }
    return value;
  }

  Value first(const std::string& name) {
    const bool digits = !name.empty() && name.find_first_not_of("0123456789") == name.npos;
    if (name.empty() || digits) {
      if (counted_ && *counted_ != name.empty()) throw Problem("a format mixes numbered and unnumbered fields");
      counted_ = name.empty();
      size_t at = 0;
      const size_t index = name.empty() ? next_++ : static_cast<size_t>(read_number(name, at, kWidest, "field number"));
      if (index >= arguments_.positional.size())
        throw Problem("a format asks for field " + std::to_string(index) + " and has " +
                      std::to_string(arguments_.positional.size()) + " values");
      return arguments_.positional[index];
    }
    for (const auto& [known, value] : arguments_.named)
      if (known == name) return value;
    throw Problem("a format asks for the field '" + name + "', which is not given");
  }

  Meter& meter_;
  const Arguments& arguments_;
  const Lookup& lookup_;
  size_t next_ = 0;
  std::optional<bool> counted_;
};

}  // namespace

Text format_value(Meter& meter, const Value& value, std::string_view spec_text) {
  if (spec_text.empty()) return to_text(meter, value);
  const Spec spec = parse_spec(spec_text);
  meter.look(spec_text.size());
  const auto unknown = [&]() -> Problem {
    return Problem("the format \"" + std::string(spec_text) + "\" does not fit a value of type '" + type_name(value) + "'");
  };
  if (const Text* text = value.as_text()) {
    if ((spec.type && spec.type != 's') || spec.align == '=' || spec.sign != '-' || spec.grouping || spec.alternate) {
      // A leading 0 asks for '=': strings allow it since Python 3.10 and fill at the right.
      if (!(spec.align == '=' && spec.fill == "0" && (!spec.type || spec.type == 's') && spec.sign == '-' && !spec.grouping))
        throw unknown();
    }
    Spec as_text = spec;
    if (as_text.align == '=') as_text.align = '<';
    return padded(meter, cut_text(*text, spec.precision), 0, as_text, '<');
  }
  if (value.is<bool>() && !spec.type) {
    if (spec.precision) throw unknown();
    return padded(meter, to_text(meter, value), 0, spec, '>');
  }
  const bool float_type = spec.type && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  if (const auto integer = value.as_integer(); integer && !float_type) {
    if (spec.type && std::string_view("bcdoxXn").find(spec.type) == std::string_view::npos) throw unknown();
    return format_integer(meter, *integer, spec);
  }
  if (const auto number = value.as_number()) {
    if (spec.type && !float_type && spec.type != 'n') throw unknown();
    return format_float(meter, *number, spec);
  }
  throw unknown();
}

Text format_braces(Meter& meter, const Text& format, const Arguments& arguments, const Lookup& lookup) {
  return Braces(meter, arguments, lookup).format(format, 0);
}

Text format_percent(Meter& meter, const Text& format, const Value& values) {
  const Items* tuple = values.as_tuple();
  size_t used = 0;
  const auto next = [&]() -> Value {
    if (used < (tuple ? tuple->items.size() : 1)) {
      ++used;
      return tuple ? tuple->items[used - 1] : values;
    }
    throw Problem("a %-format has more conversions than values");
  };
  Text result;
  bool by_name = false;
  const std::string_view text = format.view();
  for (size_t at = 0; at < text.size();) {
    const size_t percent = std::min(text.find('%', at), text.size());
    result.append(format, at, percent);
    meter.make_string(percent - at);
    if ((at = percent + 1) > text.size()) break;
    std::optional<Value> value;
    if (at < text.size() && text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == text.npos) throw Problem("a %-format has '(' without ')'");
      const Dict* dict = values.as_dict();
      if (!dict) throw Problem("a %-format with names needs a mapping");
      const Value* found = dict->find(std::string(text.substr(at + 1, close - at - 1)));
      if (!found) throw Problem("a %-format asks for a name that the mapping lacks");
      value = *found;
      by_name = true;
      at = close + 1;
    }
    Spec spec;
    bool zero = false, left = false;
    for (; at < text.size() && std::string_view("-+ #0").find(text[at]) != std::string_view::npos; ++at) {
      if (text[at] == '-') left = true;
      if (text[at] == '+') spec.sign = '+';
      if (text[at] == ' ' && spec.sign != '+') spec.sign = ' ';
      if (text[at] == '#') spec.alternate = true;
      if (text[at] == '0') zero = true;
    }
    const auto number = [&](const char* what) {
      if (at >= text.size() || text[at] != '*') return read_number(text, at, kWidest, what);
      ++at;
      const auto given = next().as_integer();
      if (!given || *given > kWidest || *given < -kWidest) throw Problem(std::string("a %-format needs an integer as ") + what);
      return *given;
    };
    spec.width = number("width");
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (at < text.size() && text[at] == '.') {
      ++at;
      spec.precision = static_cast<int>(std::max<int64_t>(number("precision"), 0));
    }
    if (at >= text.size()) throw Problem("a %-format ends inside a conversion");
    spec.type = text[at++];
    if (spec.type == '%') {
      result.append("%");
      continue;
    }
    if (std::string_view("sracdiuoxXeEfFgG").find(spec.type) == std::string_view::npos)
      throw Problem(std::string("a %-format has the unknown conversion '") + spec.type + "'");
    result.append(convert(meter, value ? *value : next(), spec, zero, left));
  }
  // One value that is no mapping must have been used; Python lets lists and ranges pass for mappings.
  const bool mapping = by_name || values.as_dict() || values.as_list() || values.as_range() || values.is_undefined();
  if (tuple ? used < tuple->items.size() : used == 0 && !mapping) throw Problem("a %-format did not use all its values");
  return result;
}

}  // namespace vitrine::jinja
