#include "tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/control_names.h"
#include "tokenizer/unicode.h"

namespace vitrine {
namespace {

size_t previous_character(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return begin;
}

}  // namespace

bool is_control_token(const AddedToken& token) { return token.special || names_a_control(token.content); }

std::vector<AddedToken> resolve_declared(const std::vector<DeclaredToken>& declared, int32_t size,
                                         const std::function<int32_t(std::string_view)>& find,
                                         const std::function<std::string(int32_t)>& piece) {
  constexpr int64_t kFarthest = 1 << 16;  // ids that far behind the vocabulary would only make tables with holes
  const int64_t limit = std::min<int64_t>(size + kFarthest, INT32_MAX);
  std::map<int32_t, const DeclaredToken*> by_id;
  std::map<std::string_view, int32_t> by_content;
  std::vector<AddedToken> out;
  for (const DeclaredToken& d : declared) {
    AddedToken token = d.token;
    if (const int32_t known = find(token.content); known >= 0) {
      token.id = known;
    } else if (token.id >= limit) {
      throw FileError(d.path,
                      fmt::format("{} gives \"{}\" id {}, expected 0 to {}", d.field, token.content, token.id, limit - 1));
    } else if (const std::string other = piece(token.id); !other.empty()) {
      throw FileError(d.path, fmt::format("{} gives \"{}\" id {}, which is \"{}\" in the vocabulary; expected an id of its own",
                                          d.field, token.content, token.id, utf8_lossy(other)));
    }
    const auto [content, new_content] = by_content.emplace(d.token.content, token.id);
    if (!new_content && content->second != token.id)
      throw FileError(d.path, fmt::format("{} gives \"{}\" id {}, but it already has id {}; expected one id", d.field,
                                          token.content, token.id, content->second));
    const auto [same_id, new_id] = by_id.emplace(token.id, &d);
    if (!new_id && same_id->second->token.content != token.content)
      throw FileError(d.path, fmt::format("{} gives \"{}\" id {}, which {} gives \"{}\"; expected an id of its own", d.field,
                                          token.content, token.id, same_id->second->field, same_id->second->token.content));
    if (new_id) out.push_back(std::move(token));
  }
  return out;
}

std::vector<AddedSpan> find_added(std::string_view text, const Trie& trie, std::span<const AddedToken> tokens) {
  std::vector<AddedSpan> out;
  size_t done = 0;
  for (size_t pos = 0; !trie.empty() && (pos = trie.next_start(text, pos)) < text.size();) {
    const Trie::Match match = trie.longest(text, pos);
    if (match.size == 0) {
      ++pos;
      continue;
    }
    const AddedToken& token = tokens[size_t(match.value)];
    size_t begin = pos, end = pos + match.size;
    pos = end;
    if (token.single_word && ((begin > 0 && is_word(utf8_at(text, previous_character(text, begin)).code)) ||
                              (end < text.size() && is_word(utf8_at(text, end).code))))
      continue;
    if (token.lstrip) {
      while (begin > done) {
        const size_t before = previous_character(text, begin);
        if (!is_whitespace(utf8_at(text, before).code)) break;
        begin = before;
      }
    }
    if (token.rstrip)
      while (end < text.size() && is_whitespace(utf8_at(text, end).code)) end += utf8_at(text, end).size;
    // White space that the token before has taken along may hold this token. One that takes white space in front of it begins
    // behind that, if anything is left of it then; for another the token before ends here.
    if (token.lstrip) begin = std::max(begin, done);
    if (begin >= end) continue;
    if (begin < done) out.back().end = begin;
    if (begin > done) out.push_back({done, begin, -1});
    out.push_back({begin, end, token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
  return out;
}

}  // namespace vitrine
