#include "picture/data/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace vitrine {
namespace {

bool is_packed(const PictureJson& json) { return json.is_object() && json.contains("base64"); }

// Of "*" and "1::10": the first element and how far it is to the next; a step of 0 for other steps of a path.
struct Every {
  size_t first = 0, step = 0;
};
Every every(const std::string& step) {
  if (step == "*") return {0, 1};
  const size_t colons = step.find("::");
  if (colons == std::string::npos) return {};
  return {std::stoul(step), std::stoul(step.substr(colons + 2))};
}

}  // namespace

const Paths::Steps& Paths::steps_of(const std::string& path) {
  const auto [at, added] = steps_.try_emplace(path);
  if (added)
    for (size_t begin = path.starts_with('/') ? 1 : 0; begin <= path.size();) {
      const size_t end = std::min(path.find('.', begin), path.size());
      at->second.push_back(path.substr(begin, end - begin));
      begin = end + 1;
    }
  return at->second;
}

const std::vector<double>& Paths::numbers_of(const PictureJson& packed) {
  const auto [at, added] = numbers_.try_emplace(&packed);
  if (added) at->second = unpacked(packed);
  return at->second;
}

Paths::Node Paths::root(const std::string& path) const { return {path.starts_with('/') ? &view_.document : &view_.picture}; }

size_t Paths::size(const Node& node) {
  if (is_packed(*node.json)) {
    const PictureJson& shape = node.json->at("shape");
    return node.depth < shape.size() ? shape[node.depth].get<size_t>() : 0;
  }
  return node.json->is_array() ? node.json->size() : 0;
}

Paths::Node Paths::child(const Node& node, size_t index) {
  if (index >= size(node)) return {};
  if (!is_packed(*node.json)) return {&(*node.json)[index]};
  return {node.json, node.depth + 1, node.offset * size(node) + index};
}

Paths::Node Paths::go(const Node& node, const std::string& step, const Places& at, size_t& star) {
  if (node.json->is_object() && !is_packed(*node.json)) {
    const auto found = node.json->find(step);
    return found == node.json->end() ? Node() : Node{&*found};
  }
  if (const Every next = every(step); next.step > 0)
    return star < at.size() ? child(node, next.first + next.step * at[star++]) : Node();
  if (step[0] == '#') {
    const size_t place = std::stoul(step.substr(1));
    return place < at.size() ? child(node, at[place]) : Node();
  }
  const int64_t index = std::strtoll(step.c_str(), nullptr, 10);
  return child(node, static_cast<size_t>(index < 0 ? index + static_cast<int64_t>(size(node)) : index));
}

PictureJson Paths::json_of(const Node& node) {
  if (!is_packed(*node.json)) return *node.json;
  const PictureJson& shape = node.json->at("shape");
  if (node.depth < shape.size()) {
    PictureJson list = PictureJson::array();
    for (size_t i = 0; i < size(node); ++i) list.push_back(json_of(child(node, i)));
    return list;
  }
  const auto n = shape.back().get<size_t>();
  if (node.json->at("layout") == "causal" && node.offset % n > node.offset / n % n) return nullptr;
  return vitrine::number(numbers_of(*node.json)[node.offset]);
}

void Paths::gather(Node node, const Steps& steps, size_t from, Places& at, std::vector<Places>& all) {
  for (; from < steps.size(); ++from) {
    if (const Every next = every(steps[from]); next.step > 0) {
      for (size_t i = next.first; i < size(node); i += next.step) {
        at.push_back((i - next.first) / next.step);
        gather(child(node, i), steps, from + 1, at, all);
        at.pop_back();
      }
      return;
    }
    size_t star = 0;
    node = go(node, steps[from], at, star);
    if (node.json == nullptr) return;
  }
  all.push_back(at);
}

std::vector<Places> Paths::places(const std::string& path) {
  std::vector<Places> all;
  Places at = bound_;
  gather(root(path), steps_of(path), 0, at, all);
  return all;
}

PictureJson Paths::value(const std::string& path, const Places& at) {
  const Steps& steps = steps_of(path);
  if (path[0] == '#') {
    const size_t place = std::stoul(path.substr(1));
    return place < at.size() ? PictureJson(at[place]) : PictureJson(nullptr);
  }
  Node node = root(path);
  size_t star = bound_.size();
  for (const std::string& step : steps) {
    if (step == "length" && (node.json->is_array() || is_packed(*node.json))) return size(node);
    node = go(node, step, at, star);
    if (node.json == nullptr) return nullptr;
  }
  return json_of(node);
}

double Paths::number(const std::string& path, const Places& at) {
  const PictureJson found = value(path, at);
  return found.is_number() ? found.get<double>() : std::nan("");
}

void Paths::largest_first(std::vector<Places>& places, const std::string& path) {
  std::vector<std::pair<double, Places>> sorted;  // of equal ones the first places come first
  for (Places& at : places) {
    const double value = number(path, at);
    sorted.emplace_back(std::isfinite(value) ? -std::abs(value) : 1, std::move(at));
  }
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < places.size(); ++i) places[i] = std::move(sorted[i].second);
}

std::pair<size_t, size_t> Paths::sizes(std::string path) {
  size_t found[2];
  for (size_t& n : found) {
    const size_t star = path.find('*');
    const PictureJson length = value(path.substr(0, star) + "length", bound_);
    n = length.is_null() ? 0 : length.get<size_t>();
    path[star] = '0';
  }
  return {found[0], found[1]};
}

std::string Paths::text(std::string_view words, const Places& at) {
  std::string text;
  for (size_t open; (open = words.find('{')) != std::string_view::npos;) {
    const size_t close = words.find('}', open);
    const std::string_view inside = words.substr(open + 1, close - open - 1), path = inside.substr(0, inside.find('|'));
    text += words.substr(0, open);
    text += written(value(std::string(path), at), path.size() < inside.size() ? inside.substr(path.size() + 1) : "");
    words.remove_prefix(close + 1);
  }
  return text + std::string(words);
}

std::string Paths::written(const PictureJson& value, std::string_view as) const {
  if (value.is_null()) return "-";
  if (value.is_boolean()) return !value.get<bool>() ? "" : as.empty() ? "yes" : std::string(as);
  if (value.is_string()) return as == "piece" ? shortened(value.get<std::string>()) : value.get<std::string>();
  if (value.is_array()) {
    const size_t most = as.starts_with("first ") ? std::stoul(std::string(as.substr(6))) : value.size();
    std::string list;
    for (size_t i = 0; i < std::min(most, value.size()); ++i)
      list += (i == 0 ? "" : value[i].is_string() ? " | " : " ") + written(value[i], "piece");
    return list;
  }
  const auto number = value.get<double>();
  if (as == "token") return view_.spelling(value.get<int64_t>(), std::string::npos);
  if (as == "at" || as == "place") {
    const auto position = value.get<size_t>();
    if (position >= view_.tokens()) return fmt::format("position {}", position);
    const std::string token = view_.token_at(position, std::string::npos);
    return as == "at" ? token : fmt::format("{} (position {})", token, position);
  }
  if (as == "ordinal") return std::to_string(value.get<int64_t>() + 1);
  if (as == "count") return fmt::format("{:.0f}", number);
  if (as == "%") return fmt::format("{:.2f} %", 100 * number);
  if (!as.empty() && as != "piece") return fmt::format(fmt::runtime("{:" + std::string(as) + "}"), number);
  return value.is_number_integer() ? value.dump() : short_number(number);
}

}  // namespace vitrine
