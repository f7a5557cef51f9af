#include "serve/token_text.h"

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace vitrine::serve {
namespace {

// "<0x0A>", a byte of a vocabulary with byte fallback.
bool append_byte_piece(std::string_view piece, std::string& out) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return false;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  if (error != std::errc() || end != piece.data() + 5) return false;
  out += static_cast<char>(value);
  return true;
}

}  // namespace

std::string token_bytes(const Engine& engine, int32_t id) {
  const std::optional<std::string> piece = engine.piece(id);
  if (!piece || piece->empty()) return "token_id:" + std::to_string(id);
  const Tokenizer& tokenizer = engine.tokenizer();
  if (tokenizer.is_control(id)) return *piece;
  // Behind another token, because many a tokenizer takes the space off the first piece of a text.
  const int32_t same[] = {id};
  std::string text = engine.text_behind(same, same);
  if (text.find(kReplacementUtf8) == std::string::npos) return text;
  std::string bytes;  // a part of a character, whose piece spells its bytes
  return append_byte_piece(*piece, bytes) || append_byte_level(*piece, bytes) ? bytes : text;
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

std::vector<int32_t> token_ids(const Engine& engine, const std::vector<int64_t>& numbers, const std::string& field) {
  std::vector<int32_t> ids;
  ids.reserve(numbers.size());
  for (const int64_t number : numbers) {
    if (number < 0 || number >= engine.shape().vocab_size)
      throw invalid(field, "\"" + field + "\" holds the token " + std::to_string(number) + "; the vocabulary has the ids 0 to " +
                               std::to_string(engine.shape().vocab_size - 1));
    ids.push_back(static_cast<int32_t>(number));
  }
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
