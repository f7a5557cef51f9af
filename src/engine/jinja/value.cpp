#include "jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

int deepest_of(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

void check_depth(int depth) {
  if (depth > kDeepestValue)
    throw Problem("the template builds a value nested deeper than " + std::to_string(kDeepestValue) + " levels");
}

Value make_items(Meter& meter, std::vector<Value> items, bool is_tuple) {
  meter.make(sizeof(Items) + items.size() * sizeof(Value));
  const int depth = 1 + deepest_of(items);
  check_depth(depth);
  return std::make_shared<const Items>(Items{std::move(items), is_tuple, depth});
}

void append_hash_key(Meter& meter, const Value& value, std::string& key) {
  const Meter::Level level(meter);
  meter.step();
  if (const auto number = value.as_number()) {
    const auto integer = value.as_integer();
    // A float with an integer's value is the same key as that integer.
    const bool whole = !integer && std::floor(*number) == *number && std::abs(*number) < 0x1p62;
    if (integer || whole)
      key.append("i").append(std::to_string(integer ? *integer : static_cast<int64_t>(*number)));
    else
      key.append("f").append(std::to_string(std::bit_cast<uint64_t>(*number)));
  } else if (const Text* text = value.as_text()) {
    meter.make(text->size());
    key.append("s").append(std::to_string(text->size())).append(":").append(text->bytes());
  } else if (value.is_none()) {
    key += 'n';
  } else if (value.is_undefined()) {
    key += 'u';
  } else if (const Items* tuple = value.as_tuple()) {
    key.append("t").append(std::to_string(tuple->items.size())).append(":");
    for (const Value& item : tuple->items) append_hash_key(meter, item, key);
  } else if (value.as_list() || value.as_dict()) {
    throw Problem("unhashable type: '" + type_name(value) + "'");
  } else {
    const auto address = std::visit(
        [](const auto& data) -> const void* {
          if constexpr (requires { data.get(); })
            return data.get();
          else
            return nullptr;
        },
        value.data());
    key.append("p").append(std::to_string(reinterpret_cast<uintptr_t>(address)));
  }
  key += ';';
}

}  // namespace

Value Value::list(Meter& meter, std::vector<Value> items) { return make_items(meter, std::move(items), false); }
Value Value::tuple(Meter& meter, std::vector<Value> items) { return make_items(meter, std::move(items), true); }

Value Value::stream(Meter& meter, Next next, int depth) {
  meter.make(4 * sizeof(Stream));
  check_depth(1 + depth);
  return std::make_shared<Stream>(Stream{std::move(next), 1 + depth});
}

const Items* Value::as_list() const {
  const Items* items = as_items();
  return items && !items->is_tuple ? items : nullptr;
}

const Items* Value::as_tuple() const {
  const Items* items = as_items();
  return items && items->is_tuple ? items : nullptr;
}

std::optional<int64_t> Value::as_integer() const {
  if (const bool* b = get_if<bool>()) return *b;
  if (const int64_t* i = get_if<int64_t>()) return *i;
  return std::nullopt;
}

std::optional<double> Value::as_number() const {
  if (const double* d = get_if<double>()) return *d;
  if (const auto i = as_integer()) return static_cast<double>(*i);
  return std::nullopt;
}

int Value::depth() const {
  if (const Items* items = as_items()) return items->depth;
  if (const Dict* dict = as_dict()) return dict->depth;
  if (const DictView* view = as_view()) return view->dict->depth + 1;
  if (const Stream* stream = as_stream()) return stream->depth;
  if (const Callable* callable = as_callable()) return callable->depth;
  return 0;  // a namespace counts as flat: the interpreter takes them apart one by one at its end
}

const Value* Dict::find(Meter& meter, const Value& key) const {
  const auto at = index.find(hash_key(meter, key));
  return at == index.end() ? nullptr : &entries[at->second].second;
}

const Value* Dict::find(const std::string& key) const {
  const auto at = index.find("s" + std::to_string(key.size()) + ":" + key + ";");
  return at == index.end() ? nullptr : &entries[at->second].second;
}

void DictBuilder::set(const Value& key, Value value) {
  const int depth = 1 + std::max(key.depth(), value.depth());
  check_depth(depth);
  dict_->depth = std::max(dict_->depth, depth);
  meter_.make(8 * sizeof(Value));  // entry, key bytes and index node
  const auto [at, is_new] = dict_->index.emplace(hash_key(meter_, key), dict_->entries.size());
  if (is_new)
    dict_->entries.emplace_back(key, std::move(value));
  else
    dict_->entries[at->second].second = std::move(value);
}

int64_t Range::length() const {
  // In unsigned numbers: the ends may lie further apart than int64_t reaches.
  const auto distance = [](int64_t from, int64_t to) { return static_cast<uint64_t>(to) - static_cast<uint64_t>(from); };
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const uint64_t steps =
      step > 0 ? (distance(start, stop) - 1) / distance(0, step) : (distance(stop, start) - 1) / distance(step, 0);
  return static_cast<int64_t>(steps) + 1;
}

const Value* Space::find(std::string_view name) const {
  for (const auto& [known, value] : attributes)
    if (known == name) return &value;
  return nullptr;
}

void Space::set(std::string_view name, Value value) {
  for (auto& [known, old] : attributes)
    if (known == name) {
      old = std::move(value);
      return;
    }
  attributes.emplace_back(name, std::move(value));
}

bool Loop::advance() {
  Value next;
  if (!ahead.empty()) {
    next = std::move(ahead.front());
    ahead.pop_front();
  } else if (!source(next)) {
    return false;
  }
  ++index0;
  before = std::move(current);
  current = std::move(next);
  return true;
}

bool Loop::peek() {
  if (!ahead.empty()) return true;
  Value next;
  if (!source(next)) return false;
  ahead.push_back(std::move(next));
  return true;
}

int64_t Loop::length() {
  if (!known_length) {
    Value next;
    while (source(next)) ahead.push_back(std::move(next));
    known_length = static_cast<int64_t>(ahead.size()) + index0 + 1;
  }
  return *known_length;
}

Bound::Bound(std::string_view callee, Arguments& arguments, std::initializer_list<const char*> parameters, size_t required)
    : callee_(callee), values_(parameters.size()) {
  if (arguments.positional.size() > parameters.size())
    throw Problem(callee_ + " takes at most " + std::to_string(parameters.size()) + " arguments and got " +
                  std::to_string(arguments.positional.size()));
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find(parameters.begin(), parameters.end(), name);
    if (known == parameters.end()) throw Problem(callee_ + " takes no argument named '" + name + "'");
    auto& slot = values_[static_cast<size_t>(known - parameters.begin())];
    if (slot) throw Problem(callee_ + " got the argument '" + name + "' twice");
    slot = value;
  }
  for (size_t i = 0; i < required; ++i)
    if (!values_[i]) throw Problem(callee_ + " needs the argument '" + std::string(parameters.begin()[i]) + "'");
}

int64_t Bound::integer(size_t i, int64_t fallback) const {
  if (!has(i)) return fallback;
  require_defined((*this)[i]);
  if (const auto value = (*this)[i].as_integer()) return *value;
  throw Problem(callee_ + " needs an integer, not '" + type_name((*this)[i]) + "'");
}

std::optional<int64_t> Bound::optional_integer(size_t i) const {
  if (!has(i) || (*this)[i].is_none()) return std::nullopt;
  return integer(i, 0);
}

const Text& Bound::text(size_t i) const {
  require_defined((*this)[i]);
  if (const Text* text = (*this)[i].as_text()) return *text;
  throw Problem(callee_ + " needs a string, not '" + type_name((*this)[i]) + "'");
}

bool Bound::truth(size_t i, bool fallback) const { return has(i) ? jinja::truth((*this)[i]) : fallback; }

bool truth(const Value& value) {
  if (const bool* b = value.get_if<bool>()) return *b;
  if (const int64_t* i = value.get_if<int64_t>()) return *i != 0;
  if (const double* d = value.get_if<double>()) return *d != 0;
  if (const Text* text = value.as_text()) return !text->empty();
  if (const Items* items = value.as_items()) return !items->items.empty();
  if (const Dict* dict = value.as_dict()) return !dict->entries.empty();
  if (const DictView* view = value.as_view()) return !view->dict->entries.empty();
  if (const Range* range = value.as_range()) return range->length() > 0;
  if (Loop* loop = value.as_loop()) return loop->length() > 0;
  return !value.is_undefined() && !value.is_none();
}

std::string type_name(const Value& value) {
  if (const Items* items = value.as_items()) return items->is_tuple ? "tuple" : "list";
  if (const DictView* view = value.as_view())
    return view->kind == DictView::Kind::keys ? "dict_keys" : view->kind == DictView::Kind::values ? "dict_values" : "dict_items";
  constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",  "int",       "float",     "str",         "list",
                                    "dict",      "dict",     "range", "generator", "Namespace", "LoopContext", "function"};
  static_assert(std::size(kNames) == std::variant_size_v<Value::Data>);
  return kNames[value.data().index()];
}

std::optional<int64_t> length(Meter& meter, const Value& value) {
  if (value.is_undefined()) return 0;
  if (const Text* text = value.as_text()) {
    meter.look(text->size());
    return static_cast<int64_t>(code_point_count(text->view()));
  }
  if (const Items* items = value.as_items()) return static_cast<int64_t>(items->items.size());
  if (const Dict* dict = value.as_dict()) return static_cast<int64_t>(dict->entries.size());
  if (const DictView* view = value.as_view()) return static_cast<int64_t>(view->dict->entries.size());
  if (const Range* range = value.as_range()) return range->length();
  if (Loop* loop = value.as_loop()) return loop->length();
  return std::nullopt;
}

std::string hash_key(Meter& meter, const Value& value) {
  std::string key;
  append_hash_key(meter, value, key);
  return key;
}

Value from_json(Meter& meter, const nlohmann::ordered_json& json, bool from_input) {
  const Meter::Level level(meter);
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return json.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer: return json.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const uint64_t number = json.get<uint64_t>();
      if (number > INT64_MAX) throw Problem("the number " + std::to_string(number) + " does not fit in 64 bits");
      return static_cast<int64_t>(number);
    }
    case nlohmann::ordered_json::value_t::number_float: return json.get<double>();
    case nlohmann::ordered_json::value_t::string: {
      const auto& text = json.get_ref<const std::string&>();
      meter.make_string(text.size());
      if (const size_t bad = first_invalid_byte(text); bad != std::string_view::npos)
        throw Problem("a text given to the template is not valid UTF-8 at byte " + std::to_string(bad));
      return Value::text(Text(text, from_input));
    }
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(from_json(meter, item, from_input));
      return Value::list(meter, std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      DictBuilder dict(meter);
      for (const auto& [key, item] : json.items()) {
        if (const size_t bad = first_invalid_byte(key); bad != std::string_view::npos)
          throw Problem("a key given to the template is not valid UTF-8 at byte " + std::to_string(bad));
        dict.set(Value::text(Text(key, from_input)), from_json(meter, item, from_input));
      }
      return dict.finish();
    }
    default: return None{};
  }
}

void require_defined(const Value& value) {
  if (const Undefined* undefined = value.get_if<Undefined>())
    throw Problem(undefined->problem ? *undefined->problem : "a value is undefined");
}

}  // namespace vitrine::jinja
