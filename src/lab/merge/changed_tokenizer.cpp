// The files of a tokenizer, its tokens changed. What does not change stays as it is written, byte for byte.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/merge_sort.h"
#include "merge/input_vocabulary.h"
#include "tokenizer/json_cursor.h"
#include "tokenizer/json_writer.h"

namespace vitrine {
namespace {

/// A stretch of a text, and what stands there instead.
struct Edit {
  size_t begin, size;
  std::string text;
};

std::string edited(std::string_view text, std::vector<Edit> edits) {
  std::sort(edits.begin(), edits.end(), [](const Edit& a, const Edit& b) { return a.begin < b.begin; });
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  size_t copied = 0;
  for (const Edit& edit : edits) {
    out.append(text, copied, edit.begin - copied) += edit.text;
    copied = edit.begin + edit.size;
  }
  return out.append(text, copied);
}

/// Where the list of added tokens stands; size 0: where it is to be put.
Edit find_added_tokens(std::string_view text, const std::string& path) {
  JsonCursor cursor(text, path);
  cursor.expect('{');
  Edit found{cursor.position(), 0, {}};
  cursor.move_to(0);
  cursor.object([&](std::string_view key) {
    const bool here = key == "added_tokens";
    cursor.peek();
    const size_t begin = cursor.position();
    cursor.skip_value();
    if (here) found = {begin, cursor.position() - begin, {}};
  });
  return found;
}

std::string added_tokens_json(std::span<const AddedToken> tokens) {
  std::string out = "[";
  JsonList list(out, 4);
  for (const AddedToken& t : tokens)
    list.add(
        fmt::format("{{\"id\": {}, \"content\": {}, \"single_word\": {}, \"lstrip\": {}, \"rstrip\": {}, \"normalized\": {}, "
                    "\"special\": {}}}",
                    t.id, json_text(t.content), t.single_word, t.lstrip, t.rstrip, t.normalized, t.special));
  list.close("]");
  return out;
}

/// Without the pieces from `end` on, and the merges that need one of them.
void shorten(const InputVocabulary& source, int64_t end, std::vector<Edit>& edits) {
  const ModelText& text = source.document.model;
  const Component model(source.document.json.at("model"), source.path, "model", false);
  const std::string prefix = model.text("continuing_subword_prefix", "");
  JsonCursor cursor(text.whole, source.path);
  cursor.move_to(text.vocabulary);
  std::string vocabulary = "{";
  JsonList pieces(vocabulary, 6);
  cursor.object([&](std::string_view piece) {
    if (const int64_t id = cursor.integer(); id < end) pieces.add(fmt::format("{}: {}", json_text(piece), id));
  });
  pieces.close("}");
  edits.push_back({text.vocabulary, text.vocabulary_bytes, std::move(vocabulary)});
  if (text.merges == 0) return;
  std::string merges = "[", joined;
  JsonList list(merges, 6);
  each_merge(model, text, source.path, [&](std::string_view left, std::string_view right) {
    joined.assign(left) += right.starts_with(prefix) ? right.substr(prefix.size()) : right;
    for (const std::string_view piece : {left, right, std::string_view(joined)})
      if (source.find(piece, end) < 0) return;
    list.add(fmt::format("[{}, {}]", json_text(left), json_text(right)));
  });
  list.close("]");
  edits.push_back({text.merges, text.merges_bytes, std::move(merges)});
}

/// The first token from `end` on that cannot be taken out.
[[noreturn]] void refuse_to_shorten(const InputVocabulary& source, int64_t end, std::string_view token, const std::string& what) {
  throw FileError(source.path,
                  fmt::format("\"{}\" has id {}, but the embedding has only {} rows, and tokens can be taken out of a BPE "
                              "vocabulary in a tokenizer.json only, not out of {}. Name another model as the tokenizer's source",
                              token, source.pieces.find(token), end, what));
}

/// {"32000": {"content": …}, …} of tokenizer_config.json.
void change_decoder(nlohmann::ordered_json& decoder, int64_t end, std::span<const AddedToken> tokens) {
  nlohmann::ordered_json kept = nlohmann::ordered_json::object();
  for (auto& [id, entry] : decoder.items())
    if (std::stoll(id) < end) kept[id] = std::move(entry);
  for (const AddedToken& t : tokens)
    kept[std::to_string(t.id)] = {{"content", t.content}, {"lstrip", t.lstrip},           {"normalized", t.normalized},
                                  {"rstrip", t.rstrip},   {"single_word", t.single_word}, {"special", t.special}};
  decoder = std::move(kept);
}

}  // namespace

Companions changed_tokenizer(const Companions& files, const InputVocabulary& source, int64_t end,
                             std::span<const AddedToken> fresh) {
  const bool shorter = source.pieces.size() > end, json = source.form == InputVocabulary::Form::json;
  if (!shorter && fresh.empty()) return files;
  Companions out = files;
  const auto by_id = [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; };
  const auto kept_and_fresh = [&](std::span<const AddedToken> before) {
    std::vector<AddedToken> tokens;
    for (const AddedToken& token : before)
      if (token.id < end) tokens.push_back(token);
    tokens.insert(tokens.end(), fresh.begin(), fresh.end());
    merge_sort(tokens, by_id);  // transformers counts their ids in this order
    return tokens;
  };

  if (json) {
    std::vector<Edit> edits;
    if (shorter) {
      const Component model(source.document.json.at("model"), source.path, "model", false);
      if (const std::string type = model_type(model, source.document.model); type != "BPE")
        refuse_to_shorten(source, end, source.pieces.piece(source.pieces.size() - 1), "one of type " + type);
      shorten(source, end, edits);
    }
    const std::string_view text = source.document.model.whole;
    Edit list = find_added_tokens(text, source.path);
    list.text = added_tokens_json(kept_and_fresh(source.added));
    if (list.size == 0) list.text = "\n  \"added_tokens\": " + list.text + ",";
    edits.push_back(std::move(list));
    out["tokenizer.json"] = edited(text, std::move(edits));
    for (const char* name : {"vocab.json", "merges.txt", "tokenizer.model"}) out.erase(name);
  } else if (shorter) {
    const auto declared = [&](int32_t id) {
      return std::any_of(source.declared.begin(), source.declared.end(), [&](const AddedToken& t) { return t.id == id; });
    };
    for (auto id = int32_t(end); id < source.pieces.size(); ++id)
      if (source.pieces.has(id) && !declared(id))
        refuse_to_shorten(
            source, end, source.pieces.piece(id),
            std::string(source.form == InputVocabulary::Form::sentencepiece ? "a tokenizer.model" : "a vocab.json"));
  }
  out.erase("added_tokens.json");

  const auto config = files.find("tokenizer_config.json");
  auto changed = config == files.end() ? nlohmann::ordered_json::object() : nlohmann::ordered_json::parse(config->second);
  const auto decoder = changed.find("added_tokens_decoder");
  const bool there = decoder != changed.end() && decoder->is_object();
  if (there || !json) {  // the other files have no list of their own
    if (!there) changed["added_tokens_decoder"] = nlohmann::ordered_json::object();
    change_decoder(changed["added_tokens_decoder"], end,
                   json ? std::vector(fresh.begin(), fresh.end()) : kept_and_fresh(source.declared));
    out["tokenizer_config.json"] = changed.dump(2) + "\n";
  }
  return out;
}

}  // namespace vitrine
