#include "jinja/print.h"

#include <array>
#include <charconv>
#include <cmath>

#include "jinja/sort_values.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

void append_hex(std::string& out, const char* prefix, char32_t code, int digits) {
  out += prefix;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[code >> shift & 15];
}

std::string quoted(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t code = next_code_point(text, at);
    if (code == static_cast<char32_t>(quote) || code == '\\')
      out.append("\\").append(1, static_cast<char>(code));
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(code))
      out += text.substr(begin, at - begin);
    else if (code < 0x100)
      append_hex(out, "\\x", code, 2);
    else if (code < 0x10000)
      append_hex(out, "\\u", code, 4);
    else
      append_hex(out, "\\U", code, 8);
  }
  return out += quote;
}

class Printer {
 public:
  explicit Printer(Meter& meter) : meter_(meter) {}
  Text out;

  void repr(const Value& value) {
    const Meter::Level level(meter_);
    meter_.step();
    if (const Text* text = value.as_text()) {
      meter_.look(10 * text->size());
      std::string bytes = quoted(text->view());
      if (text->markup()) bytes.insert(0, "Markup(").append(")");
      reserve(bytes.size());
      out.append_respelled(*text, bytes);
    } else if (const Items* items = value.as_items()) {
      list(items->items, items->is_tuple ? "(" : "[", items->is_tuple ? (items->items.size() == 1 ? ",)" : ")") : "]");
    } else if (const Dict* dict = value.as_dict()) {
      pairs(dict->entries, "{", "}");
    } else if (const DictView* view = value.as_view()) {
      add(type_name(value) + "([");
      bool first = true;
      for (const auto& [key, entry] : view->dict->entries) {
        if (!std::exchange(first, false)) add(", ");
        if (view->kind == DictView::Kind::items) add("(");
        if (view->kind != DictView::Kind::values) repr(key);
        if (view->kind == DictView::Kind::items) add(", ");
        if (view->kind != DictView::Kind::keys) repr(entry);
        if (view->kind == DictView::Kind::items) add(")");
      }
      add("])");
    } else if (const Space* space = value.as_space()) {
      std::vector<std::pair<Value, Value>> entries;
      for (const auto& [name, entry] : space->attributes) entries.emplace_back(Value::text(name), entry);
      pairs(entries, "<Namespace {", "}>");
    } else {
      add(scalar(value));
    }
  }

  void add(std::string_view bytes) {
    reserve(bytes.size());
    out.append(bytes);
  }

 private:
  void reserve(size_t bytes) {
    meter_.make(bytes);
    if (out.size() + bytes > kLongest) throw Problem("a printed value is longer than " + std::to_string(kLongest) + " bytes");
  }

  void list(const std::vector<Value>& items, const char* open, const char* close) {
    add(open);
    bool first = true;
    for (const Value& item : items) {
      if (!std::exchange(first, false)) add(", ");
      repr(item);
    }
    add(close);
  }

  void pairs(const std::vector<std::pair<Value, Value>>& entries, const char* open, const char* close) {
    add(open);
    bool first = true;
    for (const auto& [key, entry] : entries) {
      if (!std::exchange(first, false)) add(", ");
      repr(key);
      add(": ");
      repr(entry);
    }
    add(close);
  }

  static std::string scalar(const Value& value) {
    if (value.is_undefined()) return "Undefined";
    if (value.is_none()) return "None";
    if (const bool* b = value.get_if<bool>()) return *b ? "True" : "False";
    if (const int64_t* i = value.get_if<int64_t>()) return std::to_string(*i);
    if (const double* d = value.get_if<double>()) return float_repr(*d);
    if (const Range* range = value.as_range()) {
      std::string text = "range(" + std::to_string(range->start) + ", " + std::to_string(range->stop);
      if (range->step != 1) text.append(", ").append(std::to_string(range->step));
      return text + ")";
    }
    if (Loop* loop = value.as_loop())
      return "<LoopContext " + std::to_string(loop->index0 + 1) + "/" + std::to_string(loop->length()) + ">";
    if (const Callable* callable = value.as_callable()) return "<" + callable->description + ">";
    return "<" + type_name(value) + ">";
  }

  static constexpr size_t kLongest = size_t{64} << 20;
  Meter& meter_;
};

class JsonPrinter {
 public:
  JsonPrinter(Meter& meter, const JsonStyle& style) : meter_(meter), style_(style) {}
  Text out;

  void value(const Value& v) {
    const Meter::Level level(meter_);
    meter_.step();
    if (const Text* text = v.as_text()) {
      string(*text);
    } else if (v.is_none()) {
      add("null");
    } else if (const bool* b = v.get_if<bool>()) {
      add(*b ? "true" : "false");
    } else if (const int64_t* i = v.get_if<int64_t>()) {
      add(std::to_string(*i));
    } else if (const double* d = v.get_if<double>()) {
      add(number(*d));
    } else if (const Items* items = v.as_items()) {
      if (items->items.empty()) return add("[]");
      open("[");
      bool first = true;
      for (const Value& item : items->items) {
        separate(first);
        value(item);
      }
      close("]");
    } else if (const Dict* dict = v.as_dict()) {
      if (dict->entries.empty()) return add("{}");
      auto entries = dict->entries;
      if (style_.sorted) sort_values(meter_, entries, [](const auto& entry) -> const Value& { return entry.first; });
      open("{");
      bool first = true;
      for (const auto& [name, entry] : entries) {
        separate(first);
        key(name);
        add(style_.key_separator);
        value(entry);
      }
      close("}");
    } else {
      throw Problem("a value of type " + type_name(v) + " cannot be written as JSON");
    }
  }

 private:
  void add(std::string_view bytes) {
    meter_.make(bytes.size());
    out.append(bytes);
  }

  static std::string number(double d) {
    return std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : float_repr(d);
  }

  void key(const Value& name) {
    if (const Text* text = name.as_text()) return string(*text);
    if (name.is_none()) return add("\"null\"");
    if (const bool* b = name.get_if<bool>()) return add(*b ? "\"true\"" : "\"false\"");
    if (const int64_t* i = name.get_if<int64_t>()) return add("\"" + std::to_string(*i) + "\"");
    if (const double* d = name.get_if<double>()) return add("\"" + number(*d) + "\"");
    throw Problem("a key of type " + type_name(name) + " cannot be written as JSON");
  }

  void string(const Text& text) {
    meter_.make_string(12 * text.size());
    std::string bytes = "\"";
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t code = next_code_point(text.view(), at);
      if (code == '"' || code == '\\')
        bytes.append("\\").append(1, static_cast<char>(code));
      else if (code == '\n')
        bytes += "\\n";
      else if (code == '\r')
        bytes += "\\r";
      else if (code == '\t')
        bytes += "\\t";
      else if (code == '\b')
        bytes += "\\b";
      else if (code == '\f')
        bytes += "\\f";
      else if (code < 0x20 || (style_.ascii && code > 0x7E && code < 0x10000))
        append_hex(bytes, "\\u", code, 4);
      else if (style_.ascii && code >= 0x10000) {
        append_hex(bytes, "\\u", 0xD800 + ((code - 0x10000) >> 10), 4);
        append_hex(bytes, "\\u", 0xDC00 + ((code - 0x10000) & 0x3FF), 4);
      } else
        bytes += text.view().substr(begin, at - begin);
    }
    bytes += '"';
    out.append_respelled(text, bytes);
  }

  void open(const char* bracket) {
    add(bracket);
    ++level_;
    line();
  }
  void close(const char* bracket) {
    --level_;
    line();
    add(bracket);
  }
  void separate(bool& first) {
    if (std::exchange(first, false)) return;
    add(style_.item_separator);
    line();
  }
  void line() {
    if (!style_.indent) return;
    add("\n");
    for (int i = 0; i < level_; ++i) add(*style_.indent);
  }

  Meter& meter_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

Text to_text(Meter& meter, const Value& value) {
  if (const Text* text = value.as_text()) return *text;
  if (value.is_undefined()) return {};
  return repr(meter, value);
}

Text repr(Meter& meter, const Value& value) {
  Printer printer(meter);
  printer.repr(value);
  return std::move(printer.out);
}

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::scientific);
  static_cast<void>(error);                                                                  // 32 bytes hold every double
  const std::string_view shortest(buffer.data(), static_cast<size_t>(end - buffer.data()));  // -1.234e+05
  const size_t e = shortest.find('e');
  std::string digits;
  for (const char c : shortest.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  const std::string_view power = shortest.substr(e + 1);
  int exponent = 0;
  std::from_chars(power.data() + (power[0] == '+'), power.data() + power.size(), exponent);
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(".").append(digits, 1);
    out.append("e")
        .append(exponent < 0 ? "-" : "+")
        .append(std::abs(exponent) < 10 ? "0" : "")
        .append(std::to_string(std::abs(exponent)));
    return out;
  }
  if (exponent < 0) return out.append("0.").append(static_cast<size_t>(-exponent - 1), '0').append(digits);
  const size_t whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out.append(digits).append(whole - digits.size(), '0').append(".0");
  return out.append(digits, 0, whole).append(".").append(digits, whole);
}

Text to_json(Meter& meter, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(meter, style);
  printer.value(value);
  return std::move(printer.out);
}

}  // namespace vitrine::jinja
