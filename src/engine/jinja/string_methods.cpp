#include "jinja/string_methods.h"

#include <algorithm>
#include <map>

#include "jinja/format.h"
#include "jinja/html.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

using std::string_view;

const Text& text_of(const Value& self) { return *self.as_text(); }

Value list_of(Meter& meter, const Text& text, const std::vector<TextSpan>& parts) {
  std::vector<Value> values;
  for (const TextSpan& part : parts) {
    meter.make_string(part.end - part.begin);
    values.push_back(Value::text(text.slice(part.begin, part.end)));
  }
  return Value::list(meter, std::move(values));
}

// Where `needle` (not empty) stands in `text`, without overlap, at most `limit` times, in the order found.
std::vector<size_t> matches(Meter& meter, string_view text, string_view needle, int64_t limit = -1, bool from_right = false) {
  meter.look(text.size() + needle.size());
  std::string turned_text, turned_needle;
  if (from_right) {  // the same search on both turned round
    meter.make(text.size() + needle.size());
    turned_text.assign(text.rbegin(), text.rend());
    turned_needle.assign(needle.rbegin(), needle.rend());
  }
  const string_view in = from_right ? turned_text : text, what = from_right ? turned_needle : needle;
  std::vector<size_t> found;
  for (size_t at = 0; limit < 0 || static_cast<int64_t>(found.size()) < limit; at += what.size()) {
    at = find_bytes(in, what, at);
    if (at == in.npos) break;
    meter.make(sizeof(size_t));
    found.push_back(from_right ? text.size() - at - needle.size() : at);
  }
  return found;
}

// The part of a text between two code points given as Python's optional start and end.
struct Window {
  string_view text;
  int64_t start;  // code points in front of it
  bool valid;     // false where start lies behind end: then not even the empty text is in it
};

Window window(Meter& meter, const Text& text, const Bound& bound) {
  meter.look(text.size());
  const int64_t size = static_cast<int64_t>(code_point_count(text.view()));
  const auto place = [&](std::optional<int64_t> given, int64_t fallback) {
    const int64_t i = given.value_or(fallback);
    return std::max<int64_t>(i < 0 ? i + size : i, 0);
  };
  const int64_t start = place(bound.optional_integer(1), 0), end = std::min(place(bound.optional_integer(2), size), size);
  if (start > end) return {{}, start, false};
  const size_t begin = byte_of_code_point(text.view(), static_cast<size_t>(start));
  return {text.view().substr(begin, byte_of_code_point(text.view(), static_cast<size_t>(end)) - begin), start, true};
}

// Code points in front of the first (or last) `sub`; -1 if there is none.
template <bool last>
int64_t position(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("find()", passed, {"sub", "start", "end"}, 1);
  const Window in = window(i.meter(), text_of(self), bound);
  const string_view needle = bound.text(0).view();
  if (!in.valid) return -1;
  size_t at = last ? in.text.size() : 0;
  if (!needle.empty()) {
    const auto found = matches(i.meter(), in.text, needle, 1, last);
    if (found.empty()) return -1;
    at = found[0];
  }
  return in.start + static_cast<int64_t>(code_point_count(in.text.substr(0, at)));
}

template <bool last>
Value find(Interpreter& i, const Value& self, Arguments& passed) {
  return position<last>(i, self, passed);
}
template <bool last>
Value index(Interpreter& i, const Value& self, Arguments& passed) {
  const int64_t at = position<last>(i, self, passed);
  if (at < 0) throw Problem("index(): the substring is not found");
  return at;
}

Value count(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("count()", passed, {"sub", "start", "end"}, 1);
  const Window in = window(i.meter(), text_of(self), bound);
  const string_view needle = bound.text(0).view();
  if (!in.valid) return int64_t{0};
  if (needle.empty()) return static_cast<int64_t>(code_point_count(in.text)) + 1;
  return static_cast<int64_t>(matches(i.meter(), in.text, needle).size());
}

// startswith and endswith: one text or a tuple of them.
template <bool ends>
Value begins_or_ends(Interpreter& i, const Value& self, Arguments& passed) {
  const std::string name = ends ? "endswith()" : "startswith()";
  const Bound bound(name, passed, {"affix", "start", "end"}, 1);
  const Window in = window(i.meter(), text_of(self), bound);
  const auto fits = [&](const Value& affix) {
    require_defined(affix);
    const Text* text = affix.as_text();
    if (!text) throw Problem(name + " needs a string or a tuple of strings, not '" + type_name(affix) + "'");
    i.meter().look(text->size());
    return in.valid && (ends ? in.text.ends_with(text->view()) : in.text.starts_with(text->view()));
  };
  if (const Items* tuple = bound[0].as_tuple()) return std::any_of(tuple->items.begin(), tuple->items.end(), fits);
  return fits(bound[0]);
}

template <bool left, bool right>
Value strip(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("strip()", passed, {"characters"});
  return strip_text(i.meter(), text_of(self), bound.has(0) ? &bound[0] : nullptr, left, right);
}

std::vector<TextSpan> words_of(string_view text) {
  std::vector<TextSpan> words;
  for (size_t begin = 0;;) {
    begin += strip_space(text.substr(begin), true, false).begin;
    if (begin == text.size()) return words;
    size_t end = begin;
    for (size_t after = end; end < text.size() && !is_space(next_code_point(text, after)); end = after) {
    }
    words.push_back({begin, end});
    begin = end;
  }
}

template <bool from_right>
Value split(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("split()", passed, {"sep", "maxsplit"});
  const Text& text = text_of(self);
  const int64_t limit = bound.integer(1, -1);
  std::vector<TextSpan> parts;
  if (!bound.has(0) || bound[0].is_none()) {  // at runs of white space, without empty parts
    i.meter().make(2 * text.size());
    parts = words_of(text.view());
    const size_t cuts = static_cast<size_t>(limit);
    if (limit >= 0 && parts.size() > cuts) {
      if (from_right) {  // what lies in front of the last words stays together
        const size_t more = parts.size() - cuts - 1;
        parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(more));
        parts[0].begin = 0;
      } else {
        parts.resize(cuts + 1);
        parts[cuts].end = text.size();
      }
    }
    return list_of(i.meter(), text, parts);
  }
  const string_view separator = bound.text(0).view();
  if (separator.empty()) throw Problem("split() needs a separator that is not empty");
  auto places = matches(i.meter(), text.view(), separator, limit, from_right);
  std::sort(places.begin(), places.end());
  size_t begin = 0;
  for (const size_t at : places) {
    parts.push_back({begin, at});
    begin = at + separator.size();
  }
  parts.push_back({begin, text.size()});
  return list_of(i.meter(), text, parts);
}

template <bool last>
Value partition(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("partition()", passed, {"sep"}, 1);
  const Text &text = text_of(self), &separator = bound.text(0);
  if (separator.empty()) throw Problem("partition() needs a separator that is not empty");
  const auto found = matches(i.meter(), text.view(), separator.view(), 1, last);
  i.meter().make_string(text.size());
  const auto part = [&](size_t begin, size_t end) { return Value::text(text.slice(begin, end)); };
  const size_t size = text.size();
  if (found.empty())
    return last ? Value::tuple(i.meter(), {Value::text(""), Value::text(""), part(0, size)})
                : Value::tuple(i.meter(), {part(0, size), Value::text(""), Value::text("")});
  const size_t at = found[0], behind = at + separator.size();
  return Value::tuple(i.meter(), {part(0, at), part(at, behind), part(behind, size)});
}

template <bool end>
Value remove_affix(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound(end ? "removesuffix()" : "removeprefix()", passed, {"affix"}, 1);
  const Text &text = text_of(self), &affix = bound.text(0);
  i.meter().make_string(text.size());
  if (end) return Value::text(text.view().ends_with(affix.view()) ? text.slice(0, text.size() - affix.size()) : text);
  return Value::text(text.view().starts_with(affix.view()) ? text.slice(affix.size(), text.size()) : text);
}

Value splitlines(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("splitlines()", passed, {"keepends"});
  std::vector<Value> values;
  for (Text& line : lines_of(i.meter(), text_of(self), bound.truth(0, false))) values.push_back(Value::text(std::move(line)));
  return Value::list(i.meter(), std::move(values));
}

Value replace(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("replace()", passed, {"old", "new", "count"}, 2);
  return replace_text(i.meter(), text_of(self), bound.text(0), bound.text(1), bound.integer(2, -1));
}

Value join(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("join()", passed, {"iterable"}, 1);
  std::vector<Text> texts;
  const Next next = iterate(i.meter(), bound[0]);
  for (Value item; next(item);) {
    if (!item.as_text())
      throw Problem("join() needs strings; item " + std::to_string(texts.size()) + " is of type '" + type_name(item) + "'");
    i.meter().make_string(item.as_text()->size());
    texts.push_back(*item.as_text());
  }
  return join_texts(i.meter(), text_of(self), texts);
}

template <std::string (*spell)(string_view)>
Value respell(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("the method", passed, {});
  i.meter().make_string(3 * text_of(self).size());
  return Value::text(text_of(self).respelled(spell(text_of(self).view())));
}

// Filling at the left, the right or both.
template <bool left, bool right>
Value justify(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("the method", passed, {"width", "fill"}, 1);
  const Text& text = text_of(self);
  const Text fill = bound.has(1) ? bound.text(1) : Text(" ");
  if (code_point_count(fill.view()) != 1) throw Problem("the fill must be one character");
  const int64_t width = bound.integer(0, 0);
  if (left && right) return center_text(i.meter(), text, width, fill);
  const int64_t missing = width - *length(i.meter(), self);
  if (missing <= 0) return self;
  const Value filling = arithmetic(i.meter(), Arithmetic::multiply, Value::text(fill), missing);
  return left ? arithmetic(i.meter(), Arithmetic::add, filling, self) : arithmetic(i.meter(), Arithmetic::add, self, filling);
}

Value zfill(Interpreter& i, const Value& self, Arguments& passed) {
  const Bound bound("zfill()", passed, {"width"}, 1);
  const Text& text = text_of(self);
  const int64_t missing = bound.integer(0, 0) - *length(i.meter(), self);
  if (missing <= 0) return self;
  const size_t sign = !text.empty() && (text.bytes()[0] == '-' || text.bytes()[0] == '+') ? 1 : 0;
  i.meter().make_string(text.size() + static_cast<size_t>(missing));
  Text result = text.slice(0, sign);
  result.append(std::string(static_cast<size_t>(missing), '0'));
  result.append(text, sign, text.size());
  return Value::text(std::move(result));
}

// Whether the text is not empty and all its code points are of a kind.
template <bool (*is)(char32_t)>
Value all(Interpreter& i, const Value& self, Arguments&) {
  const string_view text = text_of(self).view();
  i.meter().look(text.size());
  for (size_t at = 0; at < text.size();)
    if (!is(next_code_point(text, at))) return false;
  return !text.empty();
}

bool is_alphanumeric(char32_t code) { return is_letter(code) || is_numeric(code); }

Value isascii(Interpreter& i, const Value& self, Arguments&) {
  i.meter().look(text_of(self).size());
  return std::all_of(text_of(self).bytes().begin(), text_of(self).bytes().end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

Value isprintable(Interpreter& i, const Value& self, Arguments& passed) {
  return text_of(self).empty() ? Value(true) : all<is_printable>(i, self, passed);
}

Value isidentifier(Interpreter& i, const Value& self, Arguments& passed) {
  size_t at = 0;
  if (text_of(self).empty() || is_numeric(next_code_point(text_of(self).view(), at))) return false;
  return all<is_word>(i, self, passed);
}

Value istitle(Interpreter& i, const Value& self, Arguments&) {
  const string_view text = text_of(self).view();
  i.meter().look(text.size());
  bool inside = false, any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text, at);
    if (is_upper(code) ? inside : is_lower(code) && !inside) return false;
    inside = is_upper(code) || is_lower(code);
    any |= inside;
  }
  return any;
}

template <bool upper>
Value is_cased(Interpreter& i, const Value& self, Arguments&) {
  return has_case(i.meter(), text_of(self), upper);
}

Value format(Interpreter& i, const Value& self, Arguments& passed) {
  const Lookup lookup = [&](const Value& of, const std::string& name, bool attribute) {
    if (attribute) return i.attribute(of, name);
    const bool number = !name.empty() && name.size() < 18 && name.find_first_not_of("0123456789") == name.npos;
    return i.subscript(of, number ? Value(static_cast<int64_t>(std::stoll(name))) : Value::text(name));
  };
  return Value::text(format_braces(i.meter(), text_of(self), passed, lookup));
}

const std::map<std::string, StringMethod> kMethods = {{"capitalize", respell<capitalized>},
                                                      {"casefold", respell<case_folded>},
                                                      {"center", justify<true, true>},
                                                      {"count", count},
                                                      {"endswith", begins_or_ends<true>},
                                                      {"find", find<false>},
                                                      {"format", format},
                                                      {"index", index<false>},
                                                      {"isalnum", all<is_alphanumeric>},
                                                      {"isalpha", all<is_letter>},
                                                      {"isascii", isascii},
                                                      {"isdecimal", all<is_digit>},
                                                      {"isdigit", all<is_digit>},
                                                      {"isidentifier", isidentifier},
                                                      {"islower", is_cased<false>},
                                                      {"isnumeric", all<is_numeric>},
                                                      {"isprintable", isprintable},
                                                      {"isspace", all<is_space>},
                                                      {"istitle", istitle},
                                                      {"isupper", is_cased<true>},
                                                      {"join", join},
                                                      {"ljust", justify<false, true>},
                                                      {"lower", respell<to_lower>},
                                                      {"lstrip", strip<true, false>},
                                                      {"partition", partition<false>},
                                                      {"removeprefix", remove_affix<false>},
                                                      {"removesuffix", remove_affix<true>},
                                                      {"replace", replace},
                                                      {"rfind", find<true>},
                                                      {"rindex", index<true>},
                                                      {"rjust", justify<true, false>},
                                                      {"rpartition", partition<true>},
                                                      {"rsplit", split<true>},
                                                      {"rstrip", strip<false, true>},
                                                      {"split", split<false>},
                                                      {"splitlines", splitlines},
                                                      {"startswith", begins_or_ends<false>},
                                                      {"strip", strip<true, true>},
                                                      {"swapcase", respell<swap_case>},
                                                      {"title", respell<to_title>},
                                                      {"upper", respell<to_upper>},
                                                      {"zfill", zfill}};

}  // namespace

StringMethod find_string_method(const std::string& name) {
  const auto at = kMethods.find(name);
  return at == kMethods.end() ? nullptr : at->second;
}

bool has_case(Meter& meter, const Text& text, bool upper) {
  meter.look(text.size());
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t code = next_code_point(text.view(), at);
    if (upper ? is_lower(code) : is_upper(code)) return false;
    any |= upper ? is_upper(code) : is_lower(code);
  }
  return any;
}

Value strip_text(Meter& meter, const Text& text, const Value* characters, bool left, bool right) {
  meter.make_string(text.size());
  Stripped inner{};
  if (!characters || characters->is_none()) {
    inner = strip_space(text.view(), left, right);
  } else {
    require_defined(*characters);
    if (!characters->as_text()) throw Problem("strip() needs a string of characters, not '" + type_name(*characters) + "'");
    meter.make(8 * characters->as_text()->size());
    inner = strip_characters(text.view(), characters->as_text()->view(), left, right);
  }
  return Value::text(text.slice(inner.begin, inner.end));
}

Value replace_text(Meter& meter, const Text& text, const Text& old, const Text& by, int64_t count) {
  std::vector<size_t> places;
  if (!old.empty()) {
    places = matches(meter, text.view(), old.view(), count);
  } else {  // in front of every code point and at the end
    meter.make(text.size() * sizeof(size_t));
    for (size_t at = 0; at < text.size() && (count < 0 || static_cast<int64_t>(places.size()) < count);
         next_code_point(text.view(), at))
      places.push_back(at);
    if (count < 0 || static_cast<int64_t>(places.size()) < count) places.push_back(text.size());
  }
  if (!places.empty() && by.size() > SIZE_MAX / 2 / places.size())
    throw Problem("the template makes a text that is far too long");
  meter.make_string(text.size() + places.size() * by.size());
  Text result;
  size_t begin = 0;
  for (const size_t at : places) {
    result.append(text, begin, at);
    result.append(by);
    begin = at + old.size();
  }
  result.append(text, begin, text.size());
  return Value::text(result.as_markup(text.markup()));
}

Value join_texts(Meter& meter, const Text& separator, const std::vector<Text>& texts) {
  Text result;
  bool first = true;
  for (const Text& text : texts) {
    if (!std::exchange(first, false)) result.append(separator);
    result.append(text);
    meter.make(separator.size() + text.size());
    meter.check_string(result.size());
  }
  return Value::text(result.as_markup(separator.markup()));
}

Value center_text(Meter& meter, const Text& text, int64_t width, const Text& fill) {
  const int64_t missing = width - static_cast<int64_t>(code_point_count(text.view()));
  if (missing <= 0) return Value::text(text);
  // Python's rule for an odd rest: the extra one goes left if the width is odd too.
  const int64_t left = missing / 2 + (missing & width & 1);
  meter.make_string(text.size() + static_cast<size_t>(std::min<int64_t>(missing, int64_t{1} << 40)) * fill.size());
  Text result;
  for (int64_t i = 0; i < left; ++i) result.append(fill);
  result.append(text);
  for (int64_t i = left; i < missing; ++i) result.append(fill);
  return Value::text(result.as_markup(text.markup()));
}

std::vector<Text> lines_of(Meter& meter, const Text& text, bool keep_ends) {
  const string_view all = text.view();
  std::vector<Text> lines;
  for (size_t begin = 0, at = 0; at < all.size();) {
    const size_t end = at;
    const char32_t code = next_code_point(all, at);
    const bool ends =
        (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 || code == 0x2028 || code == 0x2029;
    if (ends && code == '\r' && at < all.size() && all[at] == '\n') ++at;
    if (!ends && at < all.size()) continue;
    meter.make_string(at - begin);
    lines.push_back(text.slice(begin, ends && !keep_ends ? end : at));
    begin = at;
  }
  return lines;
}

}  // namespace vitrine::jinja
