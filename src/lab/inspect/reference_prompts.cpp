#include "inspect/reference_prompts.h"

#include <charconv>

#include "base/error.h"
#include "base/json.h"

namespace vitrine {
namespace {

std::vector<std::vector<int32_t>> rows_of_json(const Json& json, const std::string& where) {
  std::vector<std::vector<int32_t>> rows;
  const auto number = [&](const Json& value) {
    if (!value.is_number_integer()) throw FileError(where, "expected token ids as whole numbers; found " + value.dump());
    const auto wide = value.get<int64_t>();
    if (wide < 0 || wide > INT32_MAX) throw FileError(where, "the token id " + value.dump() + " is out of range");
    return static_cast<int32_t>(wide);
  };
  if (!json.is_array() || json.empty()) throw FileError(where, "expected a list of token ids or of such lists");
  if (!json[0].is_array()) {
    rows.emplace_back();
    for (const Json& id : json) rows[0].push_back(number(id));
    return rows;
  }
  for (const Json& row : json) {
    if (!row.is_array()) throw FileError(where, "expected lists of token ids");
    rows.emplace_back();
    for (const Json& id : row) rows.back().push_back(number(id));
  }
  return rows;
}

int64_t integer_at(const StoredTensor& t, size_t i) {
  if (t.dtype == DType::u8) return static_cast<int64_t>(t.data[i]);
  if (t.dtype == DType::i32) return reinterpret_cast<const int32_t*>(t.data)[i];
  return reinterpret_cast<const int64_t*>(t.data)[i];
}

}  // namespace

ReferencePrompts read_prompts_json(const std::string& path) {
  ReferencePrompts prompts;
  Json json = read_json(path);
  if (json.is_object() && json.contains("prompts")) json = Json(json["prompts"]);
  if (!json.is_object()) throw FileError(path, "expected an object of prompts by name");
  for (const auto& [name, value] : json.items()) {
    const std::string where = path + ": \"" + name + "\"";
    if (!value.is_object()) {
      prompts[name] = {rows_of_json(value, where), {}};
      continue;
    }
    if (!value.contains("input_ids")) throw FileError(where, "lacks \"input_ids\"");
    ReferencePrompt& prompt = prompts[name];
    prompt.ids = rows_of_json(value["input_ids"], where);
    if (value.contains("attention_mask")) prompt.mask = rows_of_json(value["attention_mask"], where);
  }
  return prompts;
}

ReferencePrompts read_golden_json(const std::string& path) {
  ReferencePrompts prompts;
  const Json json = read_json(path);
  if (!json.is_array()) throw FileError(path, "expected a list of prompts");
  for (size_t i = 0; i < json.size(); ++i) {
    const std::string where = path + ": prompt " + std::to_string(i);
    if (!json[i].is_object() || !json[i].contains("ids")) throw FileError(where, "lacks \"ids\"");
    prompts[std::to_string(i)] = {rows_of_json(json[i]["ids"], where), {}};
  }
  return prompts;
}

bool read_tokens_tensor(const StoredTensor& t, const std::string& prompt, std::optional<size_t> sequence,
                        ReferencePrompts& prompts) {
  if (t.dtype != DType::i32 && t.dtype != DType::i64 && t.dtype != DType::u8) return false;
  if (t.shape.empty() || t.shape.size() > 2) return false;
  const auto n = static_cast<size_t>(t.shape.back());
  const size_t count = t.shape.size() == 2 ? static_cast<size_t>(t.shape[0]) : 1;
  for (size_t s = 0; s < count; ++s) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < n; ++i) {
      const int64_t id = integer_at(t, s * n + i);
      if (id < 0 || id > INT32_MAX) throw FileError(*t.file, "tensor \"" + t.name + "\" holds the token " + std::to_string(id));
      ids.push_back(static_cast<int32_t>(id));
    }
    auto& rows = prompts[prompt].ids;
    const size_t place = sequence.value_or(0) + s;
    if (place > 100000) throw FileError(*t.file, "tensor \"" + t.name + "\" is the sequence " + std::to_string(place));
    if (rows.size() <= place) rows.resize(place + 1);
    rows[place] = std::move(ids);
  }
  return true;
}

ReferencePrompt parse_tokens_text(const std::string& text, const std::string& file) {
  ReferencePrompt prompt;
  prompt.ids.emplace_back();
  size_t at = 0;
  while (at < text.size()) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc{} || id < 0)
      throw FileError(file, "its metadata \"tokens\" is no list of ids such as 2,651;2,1175 (byte " + std::to_string(at) + ")");
    prompt.ids.back().push_back(id);
    at = static_cast<size_t>(end - text.data());
    if (at < text.size() && text[at] == ';') prompt.ids.emplace_back();
    ++at;
  }
  return prompt;
}

}  // namespace vitrine
