#include "tokenizer/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/decode_state.h"

namespace vitrine {
namespace {

constexpr size_t kMostUtf8Bytes = 4;  // of a character; a normalizer may make one byte of it

// Invalid bytes as U+FFFD, each with the bytes it stands for.
TrackedText sanitized(std::string_view text, bool tracked) {
  const size_t valid = valid_utf8_prefix(text);
  TrackedText whole(std::string(text), tracked);
  if (valid == text.size()) return whole;
  TrackedText out = whole.empty_like();
  for (size_t pos = 0; pos < text.size();) {
    const size_t good = valid_utf8_prefix(text.substr(pos));
    out.append(whole, pos, pos + good);
    pos += good;
    if (pos == text.size()) break;
    const size_t bad = utf8_at(text, pos).size;
    out.append(kReplacementUtf8, {uint32_t(pos), uint32_t(pos + bad)});
    pos += bad;
  }
  return out;
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {
  const Vocabulary& vocabulary = parts_.model->vocabulary();
  vocab_size_ = vocabulary.size();
  for (const AddedToken& token : parts_.added) vocab_size_ = std::max(vocab_size_, token.id + 1);
  added_of_.assign(size_t(vocab_size_), -1);
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    const AddedToken& token = parts_.added[i];
    if (added_of_[size_t(token.id)] >= 0 && parts_.added[size_t(added_of_[size_t(token.id)])].content != token.content)
      throw FileError(parts_.path,
                      fmt::format("the added tokens \"{}\" and \"{}\" both have id {}",
                                  parts_.added[size_t(added_of_[size_t(token.id)])].content, token.content, token.id));
    added_of_[size_t(token.id)] = int32_t(i);
    added_ids_.add(token.content, token.id);
    TrackedText spelling(token.content, false);
    if (token.normalized) normalize(spelling);
    normalized_spelling_.push_back(spelling.text());
    if (!is_control_token(token)) longest_found_ = std::max({longest_found_, token.content.size(), spelling.size()});
  }
  all_ = build_matchers(true);
  text_only_ = build_matchers(false);
  needs_ranges_ =
      std::any_of(parts_.pre_tokenizers.begin(), parts_.pre_tokenizers.end(), [](const auto& p) { return p->needs_ranges(); });
  raw_words_ = raw_words();

  bos_ = parts_.bos, eos_ = parts_.eos, unknown_ = parts_.unknown, padding_ = parts_.padding;
  if (!unknown_ && parts_.model->unknown() >= 0) unknown_ = parts_.model->unknown();
  const auto& [before, after] = parts_.frame;
  adds_bos_ = bos_ && std::find(before.begin(), before.end(), *bos_) != before.end();
  adds_eos_ = eos_ && std::find(after.begin(), after.end(), *eos_) != after.end();
  const auto list = [&](const char* side, const std::vector<int32_t>& ids) {
    if (ids.empty()) return fmt::format("nothing {}", side);
    std::string out;
    for (const int32_t id : ids) out += fmt::format("{}token {}, \"{}\",", out.empty() ? "" : " ", id, piece(id));
    return out + " " + side;
  };
  description_ = fmt::format("{} {}, {} pieces ({} of them added tokens), from {}; puts {}, {} ({})", parts_.kind,
                             parts_.model->name(), vocab_size_, parts_.added.size(), parts_.path, list("in front", before),
                             list("at the end", after), parts_.rule_source);
}

PipelineTokenizer::Matchers PipelineTokenizer::build_matchers(bool with_control) const {
  std::vector<std::pair<std::string_view, int32_t>> plain, normalized;
  for (size_t i = 0; i < parts_.added.size(); ++i) {
    if (!with_control && is_control_token(parts_.added[i])) continue;
    (parts_.added[i].normalized ? normalized : plain).emplace_back(normalized_spelling_[i], int32_t(i));
  }
  return {Trie(std::move(plain)), Trie(std::move(normalized))};
}

RawWords PipelineTokenizer::raw_words() const {
  const auto& normalizers = parts_.normalizers;
  const auto& pre_tokenizers = parts_.pre_tokenizers;
  if (normalizers.empty() && pre_tokenizers.size() == 1 && pre_tokenizers[0]->is_gpt2_byte_level()) return RawWords::byte_level;
  // An added token of the normalized text may hold a marker, and so lie where this looks for spaces.
  const bool plain = std::none_of(parts_.added.begin(), parts_.added.end(), [](const AddedToken& t) { return t.normalized; });
  if (plain && normalizers.size() == 1 && normalizers[0]->marks_spaces() && pre_tokenizers.empty() &&
      parts_.model->pair_cuts() != nullptr)
    return RawWords::marked;
  return RawWords::unknown;
}

std::string PipelineTokenizer::piece(int32_t id) const {
  if (id < 0 || id >= vocab_size_)
    throw InputError(fmt::format("token {} is outside the vocabulary of {}: ids are 0 to {}", id, parts_.path, vocab_size_ - 1));
  if (added(id) != nullptr) return normalized_spelling_[size_t(added_of_[size_t(id)])];
  return std::string(parts_.model->vocabulary().piece(id));
}

std::optional<int32_t> PipelineTokenizer::find(std::string_view piece) const {
  int32_t id = added_ids_.find(piece);
  if (id < 0) id = parts_.model->vocabulary().find(piece);
  if (id < 0) return std::nullopt;
  return id;
}

bool PipelineTokenizer::is_control(int32_t id) const {
  const AddedToken* token = id >= 0 ? added(id) : nullptr;
  return token != nullptr && is_control_token(*token);
}

bool PipelineTokenizer::lies_across(std::string_view text, size_t at) const {
  if (longest_found_ == 0) return false;
  const size_t around = kMostUtf8Bytes * longest_found_, begin = at - std::min(at, around);
  TrackedText part = sanitized(text.substr(begin, at - begin + around), true);
  const auto across = [&](const Trie& trie) {
    return trie.across(part.text(), at - begin, [&](size_t from, size_t to) { return part.range(from, to); });
  };
  if (across(text_only_.plain)) return true;
  normalize(part);
  return across(text_only_.normalized);
}

// The normal forms and the alphabet of bytes together make up to 20 bytes of one.
void PipelineTokenizer::normalize(TrackedText& text) const {
  const size_t most = 32 * text.size() + (size_t{1} << 20), size = text.size();
  try {
    text.limit(most);
    for (const auto& normalizer : parts_.normalizers) normalizer->apply(text);
    text.limit(SIZE_MAX);
  } catch (const TextTooLong&) {
    throw FileError(parts_.path,
                    fmt::format("normalizer: makes more than {} bytes of {} of a text, the most that is allowed (32 for "
                                "each byte, and a megabyte); look for a Replace whose content is long",
                                most, size));
  }
}

Chunks PipelineTokenizer::cut(TrackedText text, const Matchers& matchers) const {
  Chunks chunks;
  const std::vector<AddedSpan> spans = find_added(text.text(), matchers.plain, parts_.added);
  if (parts_.normalizers.empty() && matchers.normalized.empty()) {
    for (const AddedSpan& s : spans) chunks.list.push_back({uint32_t(s.begin), uint32_t(s.end), s.id});
    chunks.text = std::move(text);
  } else {
    chunks.text = text.empty_like();
    chunks.text.reserve(text.size() + text.size() / 2);
    for (const AddedSpan& s : spans) {
      TrackedText part = text.empty_like();
      part.append(text, s.begin, s.end);
      std::vector<AddedSpan> inner{{0, part.size(), s.id}};
      if (s.id < 0) {
        normalize(part);
        inner = find_added(part.text(), matchers.normalized, parts_.added);
      }
      const auto base = uint32_t(chunks.text.size());
      for (const AddedSpan& i : inner) chunks.list.push_back({base + uint32_t(i.begin), base + uint32_t(i.end), i.id});
      chunks.text.append(part, 0, part.size());
    }
  }
  for (const auto& pre_tokenizer : parts_.pre_tokenizers) pre_tokenizer->apply(chunks);
  return chunks;
}

void PipelineTokenizer::run_model(const Chunks& chunks, std::vector<TokenPiece>& out) const {
  ModelScratch scratch;
  scratch.cache.prepare(chunks.text.size());
  std::vector<WordToken> tokens;
  for (const Chunk& chunk : chunks.list) {
    if (chunk.id >= 0) {
      const ByteRange from = chunks.text.range(chunk.begin, chunk.end);
      out.push_back({chunk.id, from.begin, from.end});
      continue;
    }
    if (chunk.begin == chunk.end) continue;
    tokens.clear();
    parts_.model->encode(chunks.text.view(chunk.begin, chunk.end), scratch, tokens);
    for (const WordToken& t : tokens) {
      const ByteRange from = chunks.text.range(chunk.begin + t.begin, chunk.begin + t.end);
      out.push_back({t.id, from.begin, from.end});
    }
  }
}

// A text that stops being UTF-8 at byte `valid`: up to there as always; the last word and everything from the bad byte
// on is one word for the model. This is what GPT-2's reference encoder does with bytes.
void PipelineTokenizer::run_bytes(std::string_view text, size_t valid, Special special, std::vector<TokenPiece>& out) const {
  const bool control = special == Special::parse || (special == Special::as_file && parts_.finds_control);
  Chunks chunks = cut(TrackedText(std::string(text.substr(0, valid)), true), control ? all_ : text_only_);
  size_t rest = valid;
  if (!chunks.list.empty() && chunks.list.back().id < 0) {
    rest = chunks.text.range(chunks.list.back().begin, chunks.list.back().end).begin;
    chunks.list.pop_back();
  }
  run_model(chunks, out);
  Chunks last;
  TrackedText source(std::string(text), true);
  last.text = source.empty_like();
  for (size_t i = rest; i < text.size(); ++i)
    last.text.append(byte_level_alphabet()[static_cast<unsigned char>(text[i])], {uint32_t(i), uint32_t(i) + 1});
  last.list.push_back({0, uint32_t(last.text.size())});
  run_model(last, out);
}

std::vector<TokenPiece> PipelineTokenizer::run(std::string_view text, bool add_special, Special special, bool offsets) const {
  std::vector<TokenPiece> out;
  const auto frame = [&](const std::vector<int32_t>& ids, size_t at) {
    for (const int32_t id : ids)
      if (add_special) out.push_back({id, at, at});
  };
  frame(parts_.frame.before, 0);
  const size_t valid = parts_.keeps_bytes ? valid_utf8_prefix(text) : text.size();
  if (valid < text.size()) {
    run_bytes(text, valid, special, out);
  } else {
    const bool control = special == Special::parse || (special == Special::as_file && parts_.finds_control);
    run_model(cut(sanitized(text, offsets || needs_ranges_), control ? all_ : text_only_), out);
  }
  frame(parts_.frame.after, text.size());
  return out;
}

std::vector<int32_t> PipelineTokenizer::run_ids(std::string_view text, bool add_special, Special special,
                                                ThreadPool* pool) const {
  std::string valid;
  const bool is_valid = is_valid_utf8(text);
  if (raw_words_ == RawWords::unknown || (!is_valid && parts_.keeps_bytes))
    return Tokenizer::run_ids(text, add_special, special, pool);
  if (!is_valid) {
    valid = sanitized(text, false).text();
    text = valid;
  }
  const bool control = special == Special::parse || (special == Special::as_file && parts_.finds_control);
  const Matchers& matchers = control ? all_ : text_only_;
  std::vector<AddedSpan> spans = find_added(text, matchers.plain, parts_.added);
  if (!matchers.normalized.empty()) {
    std::vector<AddedSpan> inner;
    for (const AddedSpan& s : spans) {
      if (s.id >= 0) {
        inner.push_back(s);
        continue;
      }
      for (const AddedSpan& i : find_added(text.substr(s.begin, s.end - s.begin), matchers.normalized, parts_.added))
        inner.push_back({s.begin + i.begin, s.begin + i.end, i.id});
    }
    spans = std::move(inner);
  }
  std::vector<int32_t> ids;
  if (add_special) ids = parts_.frame.before;
  encode_spans(*parts_.model, raw_words_, text, spans, pool, ids);
  if (add_special) ids.insert(ids.end(), parts_.frame.after.begin(), parts_.frame.after.end());
  return ids;
}

class PipelineDecode final : public DecodeState {
 public:
  explicit PipelineDecode(const PipelineTokenizer& tokenizer) : t_(tokenizer), sink_(tokenizer.parts_.has_decoder ? "" : " ") {
    for (const DecodeStep& step : t_.parts_.decoder) stages_.push_back(step.make());
    for (size_t i = 0; i < stages_.size(); ++i)
      stages_[i]->set_next(i + 1 < stages_.size() ? stages_[i + 1].get() : static_cast<DecodeStage*>(&sink_));
  }
  void push(int32_t id, bool skip_special, std::string& out) override {
    const AddedToken* token = t_.added(id);
    if (token != nullptr && token->special && skip_special) return;
    if (token == nullptr && !t_.parts_.model->vocabulary().has(id)) return;  // an id without a piece has no text
    sink_.out = &out;
    first().push({t_.piece(id), true, true});
  }
  void flush(std::string& out) override {
    sink_.out = &out;
    first().end();
  }

 private:
  class Sink final : public DecodeStage {
   public:
    explicit Sink(std::string separator) : separator_(std::move(separator)) {}
    void push(Fragment f) override {
      if (f.begins && !first_) *out += separator_;
      first_ = false;
      *out += f.text;
    }
    void end() override { first_ = true; }
    std::string* out = nullptr;

   private:
    std::string separator_;
    bool first_ = true;
  };
  DecodeStage& first() { return stages_.empty() ? static_cast<DecodeStage&>(sink_) : *stages_.front(); }

  const PipelineTokenizer& t_;
  Sink sink_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;
};

std::string PipelineTokenizer::token_bytes(int32_t id) const {
  std::string bytes = piece(id);
  if (is_control(id) || id == unknown() || (added(id) == nullptr && !parts_.model->vocabulary().has(id))) return "";
  for (const DecodeStep& step : parts_.decoder) {
    if (!step.bytes)
      throw InputError(parts_.path +
                       ": the text of a token hangs on the tokens around it (its decoder is a BPEDecoder, or strips "
                       "pieces), so it has no bytes of its own");
    step.bytes(bytes);
  }
  return parts_.has_decoder ? bytes : " " + bytes;
}

std::unique_ptr<DecodeState> PipelineTokenizer::decode_state() const { return std::make_unique<PipelineDecode>(*this); }

}  // namespace vitrine
