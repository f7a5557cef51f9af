#include "tokenizer/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "tokenizer/json_cursor.h"

namespace vitrine {
namespace {

std::vector<AddedToken> parse_added(const Component& file, const Vocabulary& vocabulary, size_t file_bytes) {
  std::vector<AddedToken> out;
  if (!file.has("added_tokens")) return out;
  // A file of n bytes cannot name more than n tokens; larger ids would only make tables with holes.
  const int64_t limit = std::min<int64_t>(int64_t(vocabulary.size()) + int64_t(file_bytes) + 1000, INT32_MAX);
  for (const Component& c : file.children("added_tokens", false)) {
    AddedToken token;
    token.content = c.text("content");
    token.single_word = c.flag("single_word", false);
    token.lstrip = c.flag("lstrip", false);
    token.rstrip = c.flag("rstrip", false);
    token.special = c.flag("special", false);
    token.normalized = c.flag("normalized", !token.special);
    const int64_t id = c.integer("id");
    if (id < 0 || id >= limit) c.fail(fmt::format("\"id\" is {}, expected 0 to {}", id, limit - 1));
    if (token.content.size() > 4096) c.fail(fmt::format("\"content\" has {} bytes, more than 4096", token.content.size()));
    if (token.content.empty()) continue;
    // A piece that the model has keeps the model's id; the file repeats it.
    const int32_t known = vocabulary.find(token.content);
    token.id = known >= 0 ? known : int32_t(id);
    if (known < 0 && vocabulary.has(token.id))
      c.fail(fmt::format("\"{}\" has id {}, which is the piece \"{}\" of the vocabulary", token.content, id,
                         vocabulary.piece(token.id)));
    out.push_back(std::move(token));
  }
  return out;
}

// What tokenizer_config.json or added_tokens.json declares and the file lacks.
void add_declared_tokens(std::vector<AddedToken>& added, const Vocabulary& vocabulary, const TokenizerConfig& config) {
  std::map<std::string, int32_t, std::less<>> ids;
  std::map<int32_t, std::string> contents;
  int32_t size = vocabulary.size();
  for (const AddedToken& token : added) {
    ids.emplace(token.content, token.id);
    contents.emplace(token.id, token.content);
    size = std::max(size, token.id + 1);
  }
  const auto find = [&](std::string_view content) {
    const auto it = ids.find(content);
    return it != ids.end() ? it->second : vocabulary.find(content);
  };
  const auto piece = [&](int32_t id) {
    const auto it = contents.find(id);
    return it != contents.end() ? it->second : std::string(vocabulary.piece(id));
  };
  for (AddedToken& token : resolve_declared(config.added, size, find, piece))
    if (!ids.contains(token.content)) added.push_back(std::move(token));
}

}  // namespace

TokenizerDocument split_tokenizer_json(std::string_view text, const std::string& path) {
  TokenizerDocument document;
  document.model.whole = text;
  JsonCursor cursor(text, path);
  std::string small;
  size_t copied = 0;
  const auto leave_out = [&](size_t& place, size_t& bytes, const char* key) {
    if (place != 0) cursor.fail(fmt::format("model.{} appears twice", key));
    cursor.peek();
    place = cursor.position();
    small.append(text, copied, place - copied);
    small += "null";
    cursor.skip_value();
    copied = cursor.position();
    bytes = copied - place;
  };
  cursor.object([&](std::string_view key) {
    if (key != "model" || cursor.peek() != '{') return cursor.skip_value();
    JsonCursor inner = cursor;
    inner.object([&](std::string_view model_key) {
      const std::string name(model_key);
      cursor.move_to(inner.position());
      if (name == "vocab") {
        leave_out(document.model.vocabulary, document.model.vocabulary_bytes, "vocab");
      } else if (name == "merges") {
        leave_out(document.model.merges, document.model.merges_bytes, "merges");
      } else {
        cursor.skip_value();
      }
      inner.move_to(cursor.position());
    });
    cursor.move_to(inner.position());
  });
  if (cursor.peek() != '\0' || cursor.position() < text.size()) cursor.fail("something follows the object");
  small.append(text, copied);
  document.json = parse_json(small, path);
  return document;
}

std::vector<AddedToken> added_tokens_of(const TokenizerDocument& document, const std::string& path, const Vocabulary& vocabulary,
                                        const TokenizerConfig& config) {
  std::vector<AddedToken> added =
      parse_added(Component(document.json, path, "tokenizer", false), vocabulary, document.model.whole.size());
  add_declared_tokens(added, vocabulary, config);
  return added;
}

}  // namespace vitrine
