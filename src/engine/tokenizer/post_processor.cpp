#include "tokenizer/post_processor.h"

#include <fmt/format.h>

namespace vitrine {
namespace {

int32_t checked_id(const Component& c, int64_t id, int32_t vocab_size) {
  if (id < 0 || id >= vocab_size) c.fail(fmt::format("names token {}, outside the vocabulary of {}", id, vocab_size));
  return int32_t(id);
}

// {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens":
// {"<s>": {"ids": [1]}}}: the ids come from special_tokens, not from the vocabulary.
SpecialFrame parse_template(const Component& c, int32_t vocab_size) {
  SpecialFrame frame;
  bool seen_text = false;
  for (const Component& item : c.children("single", false)) {
    if (item.has("Sequence")) {
      if (seen_text || item.child("Sequence", false).text("id") != "A") item.fail("expected the sequence A, once");
      seen_text = true;
      continue;
    }
    if (!item.has("SpecialToken")) item.fail("expected {\"SpecialToken\": …} or {\"Sequence\": …}");
    const std::string name = item.child("SpecialToken", false).text("id");
    const Component tokens = c.child("special_tokens", false);
    if (!tokens.has(name.c_str()))
      item.fail(fmt::format("names the special token \"{}\", which special_tokens does not hold", name));
    const Component token = tokens.child(name.c_str(), false);
    const auto ids = token.json().find("ids");
    if (ids == token.json().end() || !ids->is_array()) token.fail("has no array \"ids\"");
    for (const Json& id : *ids) {
      if (!id.is_number_integer()) token.fail("\"ids\" holds something that is not a whole number");
      (seen_text ? frame.after : frame.before).push_back(checked_id(token, id.get<int64_t>(), vocab_size));
    }
  }
  if (!seen_text) c.fail("\"single\" leaves the sequence A out");
  return frame;
}

int32_t parse_pair(const Component& c, const char* key, int32_t vocab_size) {
  const auto it = c.json().find(key);
  if (it == c.json().end() || !it->is_array() || it->size() != 2 || !(*it)[1].is_number_integer())
    c.fail(fmt::format("\"{}\" is not [piece, id]", key));
  return checked_id(c, (*it)[1].get<int64_t>(), vocab_size);
}

}  // namespace

SpecialFrame parse_post_processor(const Component& c, int32_t vocab_size) {
  const std::string& type = c.type();
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "TemplateProcessing") return parse_template(c, vocab_size);
  if (type == "RobertaProcessing" || type == "BertProcessing")
    return {{parse_pair(c, "cls", vocab_size)}, {parse_pair(c, "sep", vocab_size)}};
  if (type == "Sequence") {
    SpecialFrame frame;
    for (const Component& member : c.children("processors")) {
      const SpecialFrame outer = parse_post_processor(member, vocab_size);
      frame.before.insert(frame.before.begin(), outer.before.begin(), outer.before.end());
      frame.after.insert(frame.after.end(), outer.after.begin(), outer.after.end());
    }
    return frame;
  }
  c.unknown("post-processor", "Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing");
}

}  // namespace vitrine
