#include "serve/call_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/json.h"
#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kMostDepth = 60;  // parse_json() takes 64
constexpr size_t kMostWord = 400;

void drop_blanks(std::string_view& text) { text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size())); }

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '+' || c == '.'; }

// As the inside of a JSON string; bytes above 0x7f as they are, so that a character may come in two pieces.
void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += std::string("\\") + c;
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
}

bool is_json_number(std::string_view text) {
  if (text.empty() || (text[0] != '-' && std::isdigit(static_cast<unsigned char>(text[0])) == 0)) return false;
  return OrderedJson::accept(text);
}

// true, false, null and numbers in JSON's words; "" for none of them.
std::string literal(std::string_view word) {
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None") return "null";
  return is_json_number(word) ? std::string(word) : "";
}

bool has_type(const OrderedJson& type, const char* name) {
  return type == name || (type.is_array() && std::ranges::find(type, name) != type.end());
}

}  // namespace

std::optional<OrderedJson> parsed_value(std::string_view text) {
  try {
    return parse_ordered_json(text, "a call of a tool");
  } catch (const Error&) {
    return {};
  }
}

std::optional<OrderedJson> parsed_object(std::string_view text) {
  std::optional<OrderedJson> json = parsed_value(text);
  return json && json->is_object() ? std::move(json) : std::nullopt;
}

size_t begun_at_end(std::string_view text, std::string_view marker) {
  if (marker.empty()) return 0;
  for (size_t n = std::min(marker.size() - 1, text.size()); n > 0; --n)
    if (text.ends_with(marker.substr(0, n))) return n;
  return 0;
}

BracketArguments BracketArguments::rest_of_object() {
  BracketArguments rest(ArgumentForm::json);
  rest.closers_ = "}";
  rest.next_ = Next::comma;
  return rest;
}

Reading BracketArguments::read(std::string_view& text, std::string& out) {
  while (!broken_ && next_ != Next::done) {
    const size_t before = text.size();
    if (delimiter_.empty()) {
      drop_blanks(text);
      if (text.empty()) break;
      step(text, out);
    } else {
      step_string(text, out);
    }
    if (text.size() == before) break;
  }
  return broken_ ? Reading::broken : next_ == Next::done ? Reading::done : Reading::open;
}

void BracketArguments::open(char closer, std::string& out) {
  if (closers_.size() >= kMostDepth) {
    broken_ = true;
    return;
  }
  const bool object = closer == '}' || closer == 'c';
  out += object ? '{' : '[';
  closers_ += closer;
  next_ = object ? Next::key : Next::item;
}

void BracketArguments::close(std::string& out) {
  out += closers_.back() == '}' || closers_.back() == 'c' ? '}' : ']';
  closers_.pop_back();
  comma_ = false;
  end_value();
}

void BracketArguments::begin_item(std::string& out) {
  if (comma_) out += ',';
  comma_ = false;
}

void BracketArguments::end_value() { next_ = closers_.empty() ? Next::done : Next::comma; }

// Whether a string, or what may become one, is in front.
bool BracketArguments::open_string(std::string_view& text, std::string& out) {
  std::string_view found;
  if (text[0] == '"' || (text[0] == '\'' && form_ == ArgumentForm::python)) {
    found = text.substr(0, 1);
  } else if (text[0] == '<' && form_ == ArgumentForm::gemma) {
    for (const std::string_view quote : {"<|\"|>", "<escape>"}) {
      if (text.starts_with(quote)) found = quote;
      if (quote.size() > text.size() && quote.starts_with(text)) return true;
    }
  }
  if (found.empty()) return false;
  begin_item(out);
  delimiter_ = found;
  text.remove_prefix(found.size());
  out += '"';
  return true;
}

void BracketArguments::step(std::string_view& text, std::string& out) {
  const char c = text[0];
  if (next_ == Next::root) {
    const bool call = form_ == ArgumentForm::python;
    broken_ = c != (call ? '(' : '{');
    if (broken_) return;
    text.remove_prefix(1);
    return open(call ? 'c' : '}', out);
  }
  const bool may_close = next_ == Next::comma || next_ == Next::key || next_ == Next::item;
  if (may_close && !closers_.empty() && c == (closers_.back() == 'c' ? ')' : closers_.back())) {
    text.remove_prefix(1);
    return close(out);
  }
  if (next_ == Next::comma) {
    broken_ = c != ',';
    if (broken_) return;
    text.remove_prefix(1);
    comma_ = true;
    next_ = closers_.back() == '}' || closers_.back() == 'c' ? Next::key : Next::item;
    return;
  }
  if (next_ == Next::colon) {
    broken_ = c != (closers_.back() == 'c' ? '=' : ':');
    if (broken_) return;
    text.remove_prefix(1);
    out += ':';
    next_ = Next::value;
    return;
  }
  const bool key = next_ == Next::key;
  if (!(key && closers_.back() == 'c') && open_string(text, out)) {
    if (!delimiter_.empty()) key_ = key;
    return;
  }
  const size_t brackets = key ? std::string_view::npos : std::string_view(form_ == ArgumentForm::python ? "{[(" : "{[").find(c);
  if (brackets != std::string_view::npos) {
    begin_item(out);
    text.remove_prefix(1);
    return open("}])"[brackets], out);
  }
  const size_t size = static_cast<size_t>(std::ranges::find_if_not(text, in_word) - text.begin());
  if (size == text.size() && size <= kMostWord) return;  // the word may go on
  const std::string_view word = text.substr(0, size);
  std::string json = key ? "" : literal(word);
  const bool bare = form_ == ArgumentForm::gemma || (key && closers_.back() == 'c');
  if (json.empty() && bare && !word.empty()) {
    json = '"';
    append_escaped(json, word);
    json += '"';
  }
  broken_ = json.empty() || size > kMostWord;
  if (broken_) return;
  begin_item(out);
  out += json;
  text.remove_prefix(size);
  if (key)
    next_ = Next::colon;
  else
    end_value();
}

void BracketArguments::step_string(std::string_view& text, std::string& out) {
  const bool quoted = delimiter_.size() == 1;  // then there are escapes
  const size_t end = text.find(delimiter_), escape = quoted ? text.find('\\') : std::string_view::npos;
  if (const size_t plain = std::min({end, escape, text.size()}); plain > 0) {
    const size_t sure = end == std::string_view::npos && !quoted ? plain - begun_at_end(text, delimiter_) : plain;
    append_escaped(out, text.substr(0, sure));
    return text.remove_prefix(sure);
  }
  if (text.empty()) return;
  if (end == 0) {
    text.remove_prefix(delimiter_.size());
    delimiter_.clear();
    out += '"';
    if (key_)
      next_ = Next::colon;
    else
      end_value();
    return;
  }
  if (text.size() < 2) return;
  const char e = text[1];
  if (e == 'u' || e == 'x') {
    const size_t digits = e == 'u' ? 4 : 2;
    const std::string_view hex = text.substr(2, digits);
    const bool all = std::ranges::all_of(hex, [](unsigned char c) { return std::isxdigit(c) != 0; });
    if (all && hex.size() < digits) return;
    if (all) {
      out += e == 'u' ? "\\u" : "\\u00";
      out += hex;
      return text.remove_prefix(2 + digits);
    }
  }
  if (std::string_view("\"\\/bfnrt").find(e) != std::string_view::npos) {
    out += std::string("\\") + e;
    text.remove_prefix(2);
  } else if (e == '\'') {
    out += e;
    text.remove_prefix(2);
  } else {  // no escape: a regular expression, say
    out += "\\\\";
    text.remove_prefix(1);
  }
}

Reading TagArguments::read(std::string_view& text, std::string& out) {
  for (;;) {
    const size_t before = text.size();
    if (in_value_) {
      read_value(text, out);
    } else if (object_ && !any_) {
      const Reading reading = object_->read(text, out);
      if (reading != Reading::done) return reading;
      any_ = true;
    } else if (const Reading reading = read_between(text, out); reading != Reading::open) {
      return reading;
    }
    if (text.size() == before) return Reading::open;
  }
}

Reading TagArguments::read_between(std::string_view& text, std::string& out) {
  static constexpr std::string_view kParameter = "<parameter=", kEnd = "</function>", kOuterEnd = "</tool_call>";
  static constexpr std::string_view kKey = "<arg_key>", kKeyEnd = "</arg_key>", kValue = "<arg_value>";
  drop_blanks(text);
  if (text.empty()) return Reading::open;
  const auto end = [&](size_t bytes) {
    if (!any_) out += '{';
    if (!object_) out += '}';
    text.remove_prefix(bytes);
    return Reading::done;
  };
  if (text.starts_with(kEnd)) return end(kEnd.size());
  if (text.starts_with(kOuterEnd)) return end(0);
  if (text[0] == '{' && !any_) {
    object_.emplace(ArgumentForm::json);
    const Reading reading = object_->read(text, out);
    any_ = reading == Reading::done;
    return reading == Reading::broken ? reading : Reading::open;
  }
  if (!object_ && text.starts_with(kParameter)) {
    const size_t close = text.find_first_of(">\n", kParameter.size());
    if (close == std::string_view::npos) return text.size() > kMostWord ? Reading::broken : Reading::open;
    if (text[close] != '>') return Reading::broken;
    begin_value(text.substr(kParameter.size(), close - kParameter.size()), "</parameter>", out);
    first_ = true;
    text.remove_prefix(close + 1);
    return Reading::open;
  }
  if (!object_ && text.starts_with(kKey)) {
    const size_t close = text.find(kKeyEnd), value = close == std::string_view::npos ? close : text.find(kValue, close);
    if (value == std::string_view::npos) return text.size() > kMostWord ? Reading::broken : Reading::open;
    const std::string_view between = text.substr(close + kKeyEnd.size(), value - close - kKeyEnd.size());
    if (between.find_first_not_of(kBlanks) != std::string_view::npos) return Reading::broken;
    begin_value(text.substr(kKey.size(), close - kKey.size()), "</arg_value>", out);
    text.remove_prefix(value + kValue.size());
    return Reading::open;
  }
  for (const std::string_view marker : {kParameter, kEnd, kOuterEnd, kKey})
    if (marker.starts_with(text)) return Reading::open;
  return Reading::broken;
}

void TagArguments::begin_value(std::string_view key, std::string_view end, std::string& out) {
  out += any_ ? ',' : '{';
  out += '"';
  append_escaped(out, key);
  out += "\":";
  any_ = in_value_ = true;
  end_ = end;
  type_ = nullptr;
  if (const auto properties = schema_.find("properties"); properties != schema_.end() && properties->is_object())
    if (const auto property = properties->find(std::string(key)); property != properties->end() && property->is_object())
      type_ = property->value("type", OrderedJson());
  is_string_ = type_ == "string";
  if (is_string_) out += '"';
}

// A line end behind <parameter=key> and one before </parameter> are not the value's.
void TagArguments::read_value(std::string_view& text, std::string& out) {
  static constexpr std::string_view kParameterEnd = "</parameter>", kLineEnd = "\n</parameter>";
  const bool lines = end_ == kParameterEnd;
  if (text.empty()) return;
  if (first_ && text[0] == '\n' && !text.starts_with(kLineEnd)) {
    if (kLineEnd.starts_with(text)) return;
    text.remove_prefix(1);
  }
  first_ = false;
  const size_t end = text.find(end_);
  std::string_view part = text.substr(0, end);
  if (end == std::string_view::npos) {
    // The line end may be the last one, and the first one if nothing else stands between.
    part.remove_suffix(std::max(lines ? begun_at_end(text, kLineEnd) : 0, begun_at_end(text, end_)));
  } else if (lines && part.ends_with('\n')) {
    part.remove_suffix(1);
  }
  if (is_string_)
    append_escaped(out, part);
  else
    value_ += part;
  if (end == std::string_view::npos) return text.remove_prefix(part.size());
  text.remove_prefix(end + end_.size());
  in_value_ = false;
  if (is_string_) {
    out += '"';
    return;
  }
  std::string_view word = value_;
  drop_blanks(word);
  word = word.substr(0, word.find_last_not_of(kBlanks) + 1);
  std::string json = literal(word);
  if (json.empty())
    if (const std::optional<OrderedJson> value = parsed_value(word)) json = json_text(*value);
  const bool null = json == "null";
  if (json.empty() || (has_type(type_, "string") && !null)) {
    json = '"';
    append_escaped(json, value_);
    json += '"';
  }
  out += json;
  value_.clear();
}

}  // namespace vitrine::serve
