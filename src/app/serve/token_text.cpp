#include "serve/token_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace vitrine::serve {

std::string token_bytes(const Engine& engine, int32_t id) {
  const std::optional<std::string> piece = engine.piece(id);
  if (!piece || piece->empty()) return "token_id:" + std::to_string(id);
  const Tokenizer& tokenizer = engine.tokenizer();
  if (tokenizer.is_control(id)) return *piece;
  try {
    const std::string bytes = tokenizer.token_bytes(id);
    return bytes.empty() ? *piece : bytes;
  } catch (const InputError&) {  // they hang on the tokens around it
    const int32_t same[] = {id};
    return engine.text_behind(same, same);
  }
}

std::string token_text(const Engine& engine, int32_t id) {
  const std::string bytes = token_bytes(engine, id);
  if (is_valid_utf8(bytes)) return bytes;
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes)
    text.append("\\x").append({kDigits[static_cast<unsigned char>(c) >> 4], kDigits[static_cast<unsigned char>(c) & 15]});
  return text;
}

OrderedJson bytes_json(const std::string& bytes) {
  OrderedJson list = OrderedJson::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

std::vector<int32_t> mixed_ids(const Engine& engine, const OrderedJson& list, const std::string& field, Special special) {
  std::vector<int32_t> ids;
  for (const OrderedJson& part : list) {
    std::vector<int32_t> more;
    if (part.is_string())
      more = engine.tokenizer().encode(part.get_ref<const std::string&>(), ids.empty(), special);
    else if (part.is_number_integer())
      more = token_ids(engine, {part.get<int64_t>()}, field);
    else
      throw invalid(field, "\"" + field + "\" mixes ids with " + kind_of(part) + "; expected strings and ids", "invalid_type");
    ids.insert(ids.end(), more.begin(), more.end());
  }
  engine.check_ids(ids);
  return ids;
}

std::string prompt_text(const Engine& engine, std::span<const int32_t> ids) {
  if (!engine.has_tokenizer()) return "";
  std::vector<int32_t> known;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(known),
               [&](int32_t id) { return id < engine.tokenizer().vocab_size(); });
  return engine.tokenizer().decode(known);
}

int64_t characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace vitrine::serve
