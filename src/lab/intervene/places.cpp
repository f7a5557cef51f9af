#include "intervene/places.h"

#include <algorithm>
#include <optional>
#include <set>

#include "hooks/hooks.h"

namespace vitrine {

bool names_place(std::string_view message, std::string_view where) {
  if (message.starts_with(where)) return true;
  const size_t quote = where.rfind(": \"");
  if (quote == std::string_view::npos) return false;
  const std::string_view file = where.substr(0, where.rfind(':', quote - 1) + 1);
  const std::string_view field = where.substr(quote, where.size() - quote - 1);  // without its closing quote
  if (!message.starts_with(file)) return false;
  message.remove_prefix(file.size());
  message.remove_prefix(std::min(message.find_first_not_of("0123456789"), message.size()));
  if (!message.starts_with(field) || message.size() == field.size()) return false;
  return message[field.size()] == '.' || message[field.size()] == '[';
}

bool may_be_slice(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789-:") == std::string::npos;
}

std::vector<int32_t> ids_of(const Engine& engine, const PromptSpec& prompt) {
  return reported(prompt.where, [&] {
    std::vector<int32_t> ids = prompt.from_tokens ? prompt.tokens : engine.prompt_ids(prompt.text, prompt.special);
    engine.check_ids(ids);
    return ids;
  });
}

int32_t id_of(const Engine& engine, const TokenSpec& token) {
  return reported(token.where, [&] {
    const int32_t id = token.id >= 0 ? token.id : single_token(engine.tokenizer(), token.text);
    engine.check_ids(std::span(&id, 1));  // a tokenizer may hold more than the model
    return id;
  });
}

int64_t position_of(int64_t position, int64_t rows, const std::string& where) {
  const int64_t at = position < 0 ? position + rows : position;
  if (at < 0 || at >= rows)
    throw InputError((where.empty() ? "" : where + ": ") + "position " + std::to_string(position) + " is not among the " +
                     std::to_string(rows) + " tokens of the prompt");
  return at;
}

std::vector<int64_t> indices_of(const std::vector<std::string>& texts, int64_t count, const char* what,
                                const std::string& where) {
  std::set<int64_t> indices;
  for (const std::string& text : texts) {
    const auto refuse = [&](const std::string& problem) {
      throw InputError((where.empty() ? "" : where + ": ") + "\"" + text + "\" " + problem + "; the model has " +
                       std::to_string(count) + " " + what + ", 0 to " + std::to_string(count - 1));
    };
    if (text == "*") {
      for (int64_t i = 0; i < count; ++i) indices.insert(i);
      continue;
    }
    std::optional<HookQuery::Slice> slice;
    if (!may_be_slice(text)) refuse("is neither an index, a range FIRST:END nor *");
    try {
      slice = parse_hook_query("*[positions=" + text + "]").positions;
    } catch (const InputError&) {
      refuse("is neither an index, a range FIRST:END nor *");
    }
    const auto from_end = [&](int64_t i) { return i < 0 ? i + count : i; };
    if (slice->single) {
      const int64_t i = from_end(*slice->first);
      if (i < 0 || i >= count) refuse("is not there");
      indices.insert(i);
      continue;
    }
    const int64_t first = std::clamp<int64_t>(from_end(slice->first.value_or(0)), 0, count);
    const int64_t end = std::clamp<int64_t>(slice->end ? from_end(*slice->end) : count, 0, count);
    if (first >= end) refuse("selects nothing");
    for (int64_t i = first; i < end; ++i) indices.insert(i);
  }
  return {indices.begin(), indices.end()};
}

std::vector<HeadPlace> heads_of(const std::vector<std::string>& texts, const Model& model, const std::string& where) {
  const ModelShape& shape = model.shape();
  std::set<HeadPlace> places;
  for (const std::string& text : texts) {
    const size_t dot = text.find('.');
    if (dot == std::string::npos && text != "*")
      throw InputError((where.empty() ? "" : where + ": ") + "\"" + text +
                       "\" is no head; expected LAYER.HEAD, such as 3.7 or 3.*");
    const std::string layer = text.substr(0, dot), head = dot == std::string::npos ? "*" : text.substr(dot + 1);
    const bool several = layer.find_first_of("*:") != std::string::npos;
    for (const int64_t l : indices_of({layer}, shape.n_layers, "layers", where)) {
      if (!model.layer(l).has_attention()) {
        if (several) continue;
        throw InputError((where.empty() ? "" : where + ": ") + "\"" + text + "\" is no head: layer " + std::to_string(l) +
                         " has " + model.layer(l).instead_of_attention() + " in the place of attention");
      }
      for (const int64_t h : indices_of({head}, shape.n_heads, "heads in a layer", where)) places.insert({l, h});
    }
  }
  return {places.begin(), places.end()};
}

}  // namespace vitrine
