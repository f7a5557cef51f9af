// Filters over sequences and mappings.
#include "jinja/filters.h"
#include "jinja/print.h"
#include "jinja/sort_values.h"
#include "jinja/unicode.h"

namespace vitrine::jinja {
namespace {

Value list_of(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("list", passed, {});
  return Value::list(i.meter(), to_vector(i.meter(), value));
}

Value default_of(Interpreter&, const Value& value, Arguments& passed) {
  const Bound bound("default", passed, {"default_value", "boolean"});
  const bool absent = value.is_undefined() || (bound.truth(1, false) && !truth(value));
  return absent ? bound.value_or(0, Value::text("")) : value;
}

Value first(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("first", passed, {});
  Value item;
  return iterate(i.meter(), value)(item) ? item : Value::undefined("No first item, sequence was empty.");
}

// Python's reversed(): from the end of what has one.
Value reversed(Interpreter& i, const Value& value, const char* name) {
  if (value.is_undefined()) return Value::list(i.meter(), {});
  const bool can = value.as_items() || value.as_dict() || value.as_view() || value.as_range() || value.as_text();
  if (!can) throw Problem(std::string(name) + " needs a sequence, not '" + type_name(value) + "'");
  std::vector<Value> items = to_vector(i.meter(), value);
  std::reverse(items.begin(), items.end());
  return Value::list(i.meter(), std::move(items));
}

Value stream_of(Interpreter& i, const Value& list) { return Value::stream(i.meter(), iterate(i.meter(), list), list.depth()); }

Value last(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("last", passed, {});
  const Value items = reversed(i, value, "last");
  return items.as_list()->items.empty() ? Value::undefined("No last item, sequence was empty.") : items.as_list()->items[0];
}

Value reverse(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("reverse", passed, {});
  if (const Text* text = value.as_text()) {
    i.meter().make_string(text->size());
    Text result;
    std::vector<size_t> begins;
    for (size_t at = 0; at < text->size(); next_code_point(text->view(), at)) begins.push_back(at);
    i.meter().make(begins.size() * sizeof(size_t));
    for (size_t n = begins.size(), end = text->size(); n-- > 0; end = begins[n]) result.append(*text, begins[n], end);
    return Value::text(result.as_markup(text->markup()));
  }
  if (value.as_stream()) return reversed(i, Value::list(i.meter(), to_vector(i.meter(), value)), "reverse");
  return stream_of(i, reversed(i, value, "reverse"));
}

Value items(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("items", passed, {});
  if (value.is_undefined()) return stream_of(i, Value::list(i.meter(), {}));
  const auto* dict = value.get_if<std::shared_ptr<const Dict>>();
  if (!dict) throw Problem("items needs a mapping, not '" + type_name(value) + "'");
  const Value view = std::make_shared<const DictView>(DictView{*dict, DictView::Kind::items});
  return stream_of(i, view);
}

Value dict_sort(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("dictsort", passed, {"case_sensitive", "by", "reverse"});
  require_defined(value);
  const Dict* dict = value.as_dict();
  if (!dict) throw Problem("dictsort needs a mapping, not '" + type_name(value) + "'");
  const std::string by = bound.has(1) ? bound.text(1).bytes() : "key";
  if (by != "key" && by != "value") throw Problem("dictsort sorts by 'key' or 'value', not '" + by + "'");
  std::vector<std::pair<Value, Value>> keyed;  // what is compared, the pair
  for (const auto& [key, entry] : dict->entries)
    keyed.emplace_back(fold_case(i.meter(), by == "key" ? key : entry, bound.truth(0, false)),
                       Value::tuple(i.meter(), {key, entry}));
  sort_values(i.meter(), keyed, [](const auto& k) -> const Value& { return k.first; }, bound.truth(2, false));
  std::vector<Value> sorted;
  for (auto& [key, pair] : keyed) sorted.push_back(std::move(pair));
  return Value::list(i.meter(), std::move(sorted));
}

Value sort(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("sort", passed, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = bound.truth(1, false);
  std::vector<std::vector<Value>> attributes;  // "a,b.c" sorts by a, then by b.c
  if (bound.has(2) && bound[2].as_text()) {
    const std::string& names = bound.text(2).bytes();
    for (size_t begin = 0;;) {
      const size_t end = std::min(names.find(',', begin), names.size());
      attributes.push_back(attribute_parts(Value::text(names.substr(begin, end - begin))));
      if (end == names.size()) break;
      begin = end + 1;
    }
  } else {
    attributes.push_back(attribute_parts(bound.value_or(2, None{})));
  }
  std::vector<std::pair<Value, Value>> keyed;
  const Next next = iterate(i.meter(), value);
  for (Value item; next(item);) {
    std::vector<Value> key;
    for (const auto& parts : attributes) key.push_back(fold_case(i.meter(), attribute_of(i, item, parts), case_sensitive));
    keyed.emplace_back(Value::list(i.meter(), std::move(key)), std::move(item));
  }
  sort_values(i.meter(), keyed, [](const auto& k) -> const Value& { return k.first; }, bound.truth(0, false));
  std::vector<Value> sorted;
  for (auto& [key, item] : keyed) sorted.push_back(std::move(item));
  return Value::list(i.meter(), std::move(sorted));
}

Value unique(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("unique", passed, {"case_sensitive", "attribute"});
  const auto parts = bound.has(1) ? attribute_parts(bound[1]) : std::vector<Value>();
  std::map<std::string, bool> seen;
  std::vector<Value> kept;
  const Next next = iterate(i.meter(), value);
  for (Value item; next(item);)
    if (seen.emplace(hash_key(i.meter(), fold_case(i.meter(), attribute_of(i, item, parts), bound.truth(0, false))), true).second)
      kept.push_back(item);
  return stream_of(i, Value::list(i.meter(), std::move(kept)));
}

template <bool largest>
Value extreme(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound(largest ? "max" : "min", passed, {"case_sensitive", "attribute"});
  const auto parts = bound.has(1) ? attribute_parts(bound[1]) : std::vector<Value>();
  const auto key_of = [&](const Value& item) {
    return fold_case(i.meter(), attribute_of(i, item, parts), bound.truth(0, false));
  };
  const Next next = iterate(i.meter(), value);
  Value best, item;
  if (!next(best)) return Value::undefined("No aggregated item, sequence was empty.");
  Value best_key = key_of(best);
  while (next(item)) {
    Value key = key_of(item);
    if (largest ? less(i.meter(), best_key, key) : less(i.meter(), key, best_key)) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value batch(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("batch", passed, {"linecount", "fill_with"}, 1);
  const int64_t count = bound.integer(0, 1);
  std::vector<Value> rows, row;
  const auto finish = [&] { rows.push_back(Value::list(i.meter(), std::exchange(row, {}))); };
  const Next next = iterate(i.meter(), value);
  for (Value item; next(item);) {
    if (static_cast<int64_t>(row.size()) == count) finish();
    row.push_back(std::move(item));
  }
  if (!row.empty()) {
    if (bound.has(1) && !bound[1].is_none())
      while (static_cast<int64_t>(row.size()) < count) {
        i.meter().make(sizeof(Value));
        row.push_back(bound[1]);
      }
    finish();
  }
  return stream_of(i, Value::list(i.meter(), std::move(rows)));
}

Value slice_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("slice", passed, {"slices", "fill_with"}, 1);
  const std::vector<Value> all = to_vector(i.meter(), value);
  const int64_t slices = bound.integer(0, 1), size = static_cast<int64_t>(all.size());
  if (slices == 0) throw Problem("slice needs at least one slice");
  std::vector<Value> columns;
  auto at = all.begin();
  for (int64_t n = 0; n < slices; ++n) {
    const int64_t extra = n < size % slices;
    std::vector<Value> column(at, at + static_cast<std::ptrdiff_t>(size / slices + extra));
    at += static_cast<std::ptrdiff_t>(column.size());
    if (bound.has(1) && !bound[1].is_none() && !extra) column.push_back(bound[1]);
    columns.push_back(Value::list(i.meter(), std::move(column)));
  }
  return stream_of(i, Value::list(i.meter(), std::move(columns)));
}

Value group_by(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("groupby", passed, {"attribute", "default", "case_sensitive"}, 1);
  const auto parts = attribute_parts(bound[0]);
  const auto attribute = [&](const Value& item) { return attribute_of(i, item, parts, bound.value_or(1, None{})); };
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : to_vector(i.meter(), value))
    keyed.emplace_back(fold_case(i.meter(), attribute(item), bound.truth(2, false)), std::move(item));
  sort_values(i.meter(), keyed, [](const auto& k) -> const Value& { return k.first; });
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < keyed.size(); begin = end) {
    std::vector<Value> members;
    for (; end < keyed.size() && equal(i.meter(), keyed[end].first, keyed[begin].first); ++end)
      members.push_back(keyed[end].second);
    if (members.empty()) members.push_back(keyed[end++].second);  // a key that differs from itself: NaN
    const Value grouper = attribute(members[0]);
    groups.push_back(Value::tuple(i.meter(), {grouper, Value::list(i.meter(), std::move(members))}));
  }
  return Value::list(i.meter(), std::move(groups));
}

Value attribute_filter(Interpreter& i, const Value& value, Arguments& passed) {
  const Bound bound("attr", passed, {"name"}, 1);
  const Value found = i.attribute(value, bound.text(0).bytes());
  const bool item_only =
      value.as_dict() && value.as_dict()->find(bound.text(0).bytes()) && !method(i, value, bound.text(0).bytes());
  return item_only ? Value::undefined("attr looks up attributes only, not the items of a mapping") : found;
}

}  // namespace

const FilterMap& sequence_filters() {
  static const FilterMap filters = {
      {"attr", attribute_filter}, {"batch", batch},        {"d", default_of},    {"default", default_of}, {"dictsort", dict_sort},
      {"first", first},           {"groupby", group_by},   {"items", items},     {"last", last},          {"list", list_of},
      {"max", extreme<true>},     {"min", extreme<false>}, {"reverse", reverse}, {"slice", slice_filter}, {"sort", sort},
      {"unique", unique}};
  return filters;
}

}  // namespace vitrine::jinja
