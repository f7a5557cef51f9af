#include "tokenizer/sentencepiece.h"

#include <fmt/format.h>

#include <bit>
#include <limits>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/control_names.h"
#include "tokenizer/decode_state.h"
#include "tokenizer/unigram.h"

namespace vitrine {
namespace {
constexpr std::string_view kSpaceSymbol = "\xE2\x96\x81";  // ▁

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (size_t pos = 0; pos < piece.size();) {
    const bool space = piece.substr(pos).starts_with(kSpaceSymbol);
    text += space ? ' ' : piece[pos];
    pos += space ? kSpaceSymbol.size() : 1;
  }
  return text;
}

// Maps floats to integers in the opposite order: the highest score merges first.
uint32_t descending(float score) {
  if (score == 0) score = 0;  // -0 and 0 are one score
  const auto bits = std::bit_cast<uint32_t>(score);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return ~ascending;
}
}  // namespace

struct SentencePieceScratch {
  std::vector<BpeSymbol> symbols;
  std::vector<BpeCandidate> heap;
  WordCache cache;
  std::unordered_map<std::string_view, uint32_t> unused_splits;  // unused piece made in this word: bytes of its left part
};

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceSpec spec)
    : spec_(std::move(spec)),
      charsmap_(spec_.charsmap, spec_.source),
      denormalizer_(spec_.denormalizer_charsmap, spec_.source),
      cuts_(spec_.escape_whitespaces ? kSpaceSymbol : std::string_view(" ")) {
  build_vocabulary();
  add_tokens();
  choose_special_ids();
  describe();
}

void SentencePieceTokenizer::build_vocabulary() {
  const auto& pieces = spec_.pieces;
  if (pieces.size() > size_t(std::numeric_limits<int32_t>::max()))
    throw FileError(spec_.source, fmt::format("holds {} pieces, more than ids can count", pieces.size()));
  size_t text_bytes = 0;
  for (const auto& piece : pieces) text_bytes += piece.text.size();
  mergeable_.reserve(pieces.size(), text_bytes);
  std::fill(std::begin(byte_ids_), std::end(byte_ids_), -1);
  std::vector<std::pair<std::string_view, int32_t>> user, user_text, unigram;
  lowest_score_ = std::numeric_limits<float>::max();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [text, score, type] = pieces[i];
    const auto id = int32_t(i);
    if (!(score == score))
      throw FileError(spec_.source, fmt::format("the score of piece {} \"{}\" is not a number", i, utf8_lossy(text)));
    const bool reserved = type == PieceType::unknown || type == PieceType::control || type == PieceType::byte;
    if ((reserved ? reserved_ : mergeable_).add(text, id) != Vocabulary::Added::yes)
      throw FileError(spec_.source, fmt::format("pieces {} and {} are both \"{}\"; every piece may appear once",
                                                (reserved ? reserved_ : mergeable_).find(text), i, utf8_lossy(text)));
    scores_.push_back(score);
    types_.push_back(type);
    const bool marks_turn = type == PieceType::user_defined && names_a_control(text);
    control_.push_back(type == PieceType::control || marks_turn);
    if (!reserved && type != PieceType::unused) unigram.emplace_back(text, id);
    if (type == PieceType::normal) lowest_score_ = std::min(lowest_score_, score);
    if (type == PieceType::user_defined) user.emplace_back(text, id);
    if (type == PieceType::user_defined && !marks_turn) {
      user_text.emplace_back(text, id);
      longest_found_ = std::max(longest_found_, text.size());
    }
    if (!reserved) cuts_.add_piece(text);
    if (type == PieceType::unknown) {
      if (unknown_)
        throw FileError(spec_.source, fmt::format("pieces {} and {} are both of type unknown, expected one", *unknown_, id));
      unknown_ = id;
    }
    if (type == PieceType::byte) {
      const int byte = byte_of_piece(text);
      if (byte < 0)
        throw FileError(spec_.source, fmt::format("byte piece {} is \"{}\", expected the form <0x0A>", i, utf8_lossy(text)));
      byte_ids_[byte] = id;
    }
  }
  if (!unknown_) throw FileError(spec_.source, "has no piece of type unknown; SentencePiece requires one");
  for (int byte = 0; spec_.byte_fallback && byte < 256; ++byte)
    if (byte_ids_[byte] < 0)
      throw FileError(spec_.source, fmt::format("has byte_fallback, but no piece <0x{:02X}>; all 256 are needed", byte));
  user_defined_ = Trie(std::move(user));
  user_defined_text_ = Trie(std::move(user_text));
  if (spec_.unigram) unigram_pieces_ = Trie(std::move(unigram));
}

void SentencePieceTokenizer::add_tokens() {
  const size_t in_file = spec_.pieces.size();
  std::vector<bool> declared(in_file);
  for (const AddedToken& token : spec_.added) {
    const auto id = size_t(token.id);
    if (id < in_file) {
      const PieceType its = type(token.id);  // of the others, which SentencePiece finds itself, its rules stay
      if (its != PieceType::normal && its != PieceType::unused && its != PieceType::control) continue;
      declared[id] = true;
    } else {
      if (id >= spec_.pieces.size()) {  // ids between the file's and this one have no text
        spec_.pieces.resize(id + 1, {"", 0, PieceType::unused});
        scores_.resize(id + 1, 0);
        types_.resize(id + 1, PieceType::unused);
        control_.resize(id + 1, false);
      }
      spec_.pieces[id].text = token.content;
      types_[id] = spec_.pieces[id].type = token.special ? PieceType::control : PieceType::user_defined;
      added_.add(token.content, token.id);
    }
    control_[id] = control_[id] || is_control_token(token);
    tokens_.push_back(token);
    tokens_.back().special = token.special || type(token.id) == PieceType::control;
  }
  for (size_t i = 0; i < in_file; ++i)
    if (types_[i] == PieceType::control && !declared[i])
      tokens_.push_back({.id = int32_t(i), .content = spec_.pieces[i].text, .special = true});
  std::vector<std::pair<std::string_view, int32_t>> all, file, text;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::pair<std::string_view, int32_t> entry(tokens_[i].content, int32_t(i));
    all.push_back(entry);
    if (!tokens_[i].special) file.push_back(entry);
    if (!is_control_token(tokens_[i])) {
      text.push_back(entry);
      longest_found_ = std::max(longest_found_, entry.first.size());
    }
  }
  all_tokens_ = Trie(std::move(all));
  file_tokens_ = Trie(std::move(file));
  text_tokens_ = Trie(std::move(text));
}

void SentencePieceTokenizer::choose_special_ids() {
  const auto choose = [&](const char* name, std::optional<int32_t> given, const std::string& piece) -> std::optional<int32_t> {
    if (given) {
      if (*given < 0 || *given >= vocab_size())
        throw FileError(spec_.source, fmt::format("{} is {}, outside the {} pieces", name, *given, vocab_size()));
      return given;
    }
    const int32_t id = reserved_.find(piece);
    if (id < 0 || type(id) != PieceType::control) return std::nullopt;
    return id;
  };
  bos_ = choose("the BOS id", spec_.bos, spec_.bos_piece);
  eos_ = choose("the EOS id", spec_.eos, spec_.eos_piece);
  padding_ = choose("the padding id", spec_.padding, spec_.padding_piece);
  adds_bos_ = spec_.add_bos.value_or(true) && bos_;
  adds_eos_ = spec_.add_eos.value_or(false) && eos_;
}

void SentencePieceTokenizer::describe() {
  const auto rule = [&](const char* name, bool adds, std::optional<int32_t> id, const char* side) {
    return adds ? fmt::format("puts token {}, \"{}\", {} ({})", *id, piece(*id), side, name) : fmt::format("adds no {}", name);
  };
  description_ =
      fmt::format("{} {}{}, {} pieces, from {}; {}, {} ({})", spec_.origin, spec_.unigram ? "unigram" : "BPE",
                  spec_.byte_fallback ? " with byte fallback" : "", vocab_size(), spec_.source,
                  rule("BOS", adds_bos_, bos_, "in front"), rule("EOS", adds_eos_, eos_, "at the end"), spec_.rule_source);
}

std::string SentencePieceTokenizer::piece(int32_t id) const {
  if (id < 0 || id >= vocab_size())
    throw InputError(
        fmt::format("token {} is outside the vocabulary of {}: ids are 0 to {}", id, spec_.source, vocab_size() - 1));
  return spec_.pieces[size_t(id)].text;
}

std::optional<int32_t> SentencePieceTokenizer::find(std::string_view piece) const {
  int32_t id = reserved_.find(piece);
  if (id < 0) id = mergeable_.find(piece);
  if (id < 0) id = added_.find(piece);
  if (id < 0) return std::nullopt;
  return id;
}

bool SentencePieceTokenizer::is_control(int32_t id) const { return id >= 0 && id < vocab_size() && control_[size_t(id)]; }

std::optional<PieceMerge> SentencePieceTokenizer::merge(std::string_view left, std::string_view right) const {
  if (spec_.unigram) return std::nullopt;
  const int32_t id = mergeable_.find(std::string(left).append(right));
  if (id < 0 || type(id) == PieceType::user_defined) return std::nullopt;  // those are whole from the start
  return PieceMerge{id, -double(scores_[size_t(id)])};
}

// The piece that a text spells; -1: none. Control, byte and unknown pieces are never spelled.
int32_t SentencePieceTokenizer::id_of_text(std::string_view text, Special special) const {
  const int32_t id = mergeable_.find(text);
  return id >= 0 && special == Special::text && control_[size_t(id)] ? -1 : id;
}

SentencePieceTokenizer::Normalized SentencePieceTokenizer::normalize(std::string_view text, const Trie& user_defined,
                                                                     bool prefix) const {
  Normalized out;
  if (text.empty()) return out;
  struct Prefix {
    std::string_view text;
    size_t size;
  };
  const auto prefix_at = [&](size_t pos) -> Prefix {
    if (const Trie::Match user = user_defined.longest(text, pos); user.size > 0) return {text.substr(pos, user.size), user.size};
    if (const auto rule = charsmap_.longest(text, pos)) return {rule->replacement, rule->size};
    const Utf8Char c = utf8_at(text, pos);
    if (!c.valid) return {kReplacementUtf8, 1};
    return {text.substr(pos, c.size), c.size};
  };
  size_t pos = 0;
  if (spec_.remove_extra_whitespaces) {
    while (pos < text.size()) {
      const Prefix p = prefix_at(pos);
      if (p.text != " ") break;
      pos += p.size;
    }
    if (pos == text.size()) return out;
  }
  out.text.reserve(text.size() - pos + text.size() / 2);
  out.origin.reserve(out.text.capacity() + 1);
  const std::string_view space = spec_.escape_whitespaces ? kSpaceSymbol : std::string_view(" ");
  const auto append = [&](std::string_view bytes, size_t from) {
    out.text += bytes;
    out.origin.insert(out.origin.end(), bytes.size(), uint32_t(from));
  };
  if (prefix && !spec_.whitespace_as_suffix) append(space, pos);
  bool after_space = spec_.remove_extra_whitespaces;
  while (pos < text.size()) {
    auto [replacement, size] = prefix_at(pos);
    while (after_space && !replacement.empty() && replacement[0] == ' ') replacement.remove_prefix(1);
    for (size_t i = 0; i < replacement.size(); ++i) append(replacement[i] == ' ' ? space : replacement.substr(i, 1), pos);
    if (!replacement.empty()) after_space = replacement.back() == ' ';
    if (!spec_.remove_extra_whitespaces) after_space = false;
    pos += size;
  }
  if (spec_.remove_extra_whitespaces) {
    while (out.text.ends_with(space)) {
      out.text.erase(out.text.size() - space.size());
      pos = out.origin[out.text.size()];
      out.origin.resize(out.text.size());
    }
  }
  if (prefix && spec_.whitespace_as_suffix) append(space, pos);
  out.origin.push_back(uint32_t(pos));
  return out;
}

bool SentencePieceTokenizer::lies_across(std::string_view text, size_t at) const {
  if (longest_found_ == 0) return false;
  constexpr size_t kMostUtf8Bytes = 4;  // of a character, of which normalizing may make one byte
  const size_t around = kMostUtf8Bytes * longest_found_, begin = at - std::min(at, around);
  struct Range {
    size_t begin, end;
  };
  const std::string_view part = text.substr(begin, at - begin + around);
  if (text_tokens_.across(part, at - begin, [](size_t from, size_t to) { return Range{from, to}; })) return true;
  const Normalized normal = normalize(part, user_defined_text_, false);
  return user_defined_text_.across(normal.text, at - begin,
                                   [&](size_t from, size_t to) { return Range{normal.origin[from], normal.origin[to]}; });
}

void SentencePieceTokenizer::resegment(std::string_view word, WordToken token, Special special,
                                       const SentencePieceScratch& scratch, std::vector<WordToken>& out) const {
  const auto emit = [&](WordToken t, int32_t id) {
    t.id = id < 0 || type(id) == PieceType::unused ? *unknown_ : id;
    out.push_back(t);
  };
  const int32_t whole = id_of_text(word.substr(token.begin, token.end - token.begin), special);
  if (whole < 0 || type(whole) != PieceType::unused) return emit(token, whole);
  // Pieces of type unused are stepping stones of merging and are taken apart again. A stack, not recursion: a hostile
  // vocabulary makes the chain as long as the word.
  std::vector<WordToken> stack{token};
  while (!stack.empty()) {
    const WordToken t = stack.back();
    stack.pop_back();
    const std::string_view text = word.substr(t.begin, t.end - t.begin);
    const int32_t id = id_of_text(text, special);
    if (id >= 0 && type(id) == PieceType::unused) {
      if (const auto split = scratch.unused_splits.find(text); split != scratch.unused_splits.end()) {
        stack.push_back({-1, t.begin + split->second, t.end});
        stack.push_back({-1, t.begin, t.begin + split->second});
        continue;
      }
    }
    emit(t, id);
  }
}

void SentencePieceTokenizer::encode_word(std::string_view word, const Trie& user_defined, Special special,
                                         SentencePieceScratch& scratch, std::vector<WordToken>& out) const {
  if (const auto known = scratch.cache.find(word); !known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.unused_splits.clear();
  for (size_t pos = 0; pos < word.size();) {
    const Trie::Match user = user_defined.longest(word, pos);
    const size_t size = user.size > 0 ? user.size : utf8_at(word, pos).size;
    symbols.push_back({-1, uint32_t(pos), uint32_t(size), 0, 0, user.size > 0});
    pos += size;
  }
  bpe_merge(symbols, scratch.heap, [&](const BpeSymbol& left, const BpeSymbol& right) -> BpeJoin {
    const std::string_view joined = word.substr(left.begin, left.size + right.size);
    const int32_t id = id_of_text(joined, special);
    if (id < 0) return {0, -1};
    if (type(id) == PieceType::unused) scratch.unused_splits[joined] = left.size;
    return {descending(scores_[size_t(id)]), id};
  });
  const size_t first = out.size();
  for (const BpeSymbol& s : symbols) resegment(word, {s.id, s.begin, s.begin + s.size}, special, scratch, out);
  scratch.cache.insert(word, std::span(out).subspan(first));
}

void SentencePieceTokenizer::encode_segment(std::string_view text, size_t offset, bool prefix, Special special,
                                            std::vector<TokenPiece>& out) const {
  const Trie& user_defined = special == Special::text ? user_defined_text_ : user_defined_;
  const Normalized normal = normalize(text, user_defined, prefix);
  SentencePieceScratch scratch;
  scratch.cache.prepare(text.size());
  std::vector<WordToken> tokens;
  bool after_unknown = false;
  const auto emit = [&](size_t word_begin) {
    for (const WordToken& t : tokens) {
      const size_t begin = word_begin + t.begin, end = word_begin + t.end;
      const size_t from = offset + normal.origin[begin], to = offset + normal.origin[end];
      const bool unknown = type(t.id) == PieceType::unknown;
      if (unknown && spec_.byte_fallback) {
        for (size_t i = begin; i < end; ++i) {
          const auto byte = static_cast<unsigned char>(normal.text[i]);
          const size_t at = std::min(from + (i - begin), to);
          out.push_back({byte_ids_[byte], at, i + 1 == end ? to : std::min(at + 1, to)});
        }
      } else if (unknown && after_unknown) {
        out.back().end = to;  // a run of unknown characters is one token
      } else {
        out.push_back({t.id, from, to});
      }
      after_unknown = unknown;
    }
  };
  if (spec_.unigram) {
    const auto score = [&](int32_t id, size_t size) {
      if (special == Special::text && control_[size_t(id)]) return -std::numeric_limits<double>::infinity();
      // A user-defined piece gets a score of its own, above zero and the larger the longer it is.
      return type(id) == PieceType::user_defined ? 0.1 * double(size) - 0.1 : double(scores_[size_t(id)]);
    };
    constexpr float kUnknownPenalty = 10;
    unigram_encode<float>(normal.text, unigram_pieces_, score, *unknown_, lowest_score_ - kUnknownPenalty, tokens);
    emit(0);
    return;
  }
  for (size_t begin = 0; begin < normal.text.size();) {
    const size_t end = cuts_.word_end(normal.text, begin);
    tokens.clear();
    encode_word(std::string_view(normal.text).substr(begin, end - begin), user_defined, special, scratch, tokens);
    emit(begin);
    begin = end;
  }
}

std::vector<TokenPiece> SentencePieceTokenizer::run(std::string_view text, bool add_special, Special special, bool) const {
  std::vector<TokenPiece> out;
  if (add_special && adds_bos_) out.push_back({*bos_, 0, 0});
  const Trie& trie = special == Special::parse ? all_tokens_ : special == Special::text ? text_tokens_ : file_tokens_;
  for (const AddedSpan& s : find_added(text, trie, tokens_)) {
    if (s.id >= 0) {
      out.push_back({s.id, s.begin, s.end});
      continue;
    }
    const bool prefix = spec_.add_dummy_prefix && (s.begin == 0 || !spec_.prefix_once);
    encode_segment(text.substr(s.begin, s.end - s.begin), s.begin, prefix, special, out);
  }
  if (add_special && adds_eos_) out.push_back({*eos_, text.size(), text.size()});
  return out;
}

// Byte pieces are collected until another piece comes: only then is it known which of them form characters. What is
// already a whole character goes out at once, since later bytes cannot change it.
class SentencePieceDecode final : public DecodeState {
 public:
  explicit SentencePieceDecode(const SentencePieceTokenizer& tokenizer) : t_(tokenizer) {}

  void push(int32_t id, bool skip_special, std::string& out) override {
    const std::string& piece = t_.spec_.pieces[size_t(id)].text;
    const PieceType type = t_.type(id);
    if (type == PieceType::byte) {
      held_ += char(byte_of_piece(piece));
      drain(out, false);
      return;
    }
    drain(out, true);
    if (skip_special && t_.is_control(id)) return;
    if (space_removed_ || wrote_) at_start_ = false;
    space_removed_ = false;
    if (type == PieceType::control) return write(t_.added_.has(id) ? piece : "", out);  // the file's own have no text
    if (type == PieceType::unknown) return write(t_.spec_.unknown_surface, out);
    std::string_view rest = piece;
    if (at_start_ && (t_.spec_.add_dummy_prefix || t_.spec_.remove_extra_whitespaces)) {
      if (rest.starts_with(kSpaceSymbol)) {
        rest.remove_prefix(kSpaceSymbol.size());
        // With remove_extra_whitespaces every leading space goes, otherwise only the first.
        space_removed_ = !t_.spec_.remove_extra_whitespaces;
      }
    }
    write(with_spaces(rest), out);
  }

  void flush(std::string& out) override {
    drain(out, true);
    if (!t_.denormalizer_.empty()) {
      denormalize(out);
    }
    at_start_ = true;
    space_removed_ = wrote_ = false;
  }

 private:
  // One byte that belongs to no character becomes one U+FFFD, as in SentencePiece.
  void drain(std::string& out, bool end) {
    size_t pos = 0;
    std::string text;
    while (pos < held_.size()) {
      const Utf8Char c = utf8_at(held_, pos);
      if (!c.valid && !end && pos + c.size == held_.size() && held_.size() - pos < 4 && incomplete(held_[pos], c.size)) break;
      text += c.valid ? std::string_view(held_).substr(pos, c.size) : kReplacementUtf8;
      pos += c.valid ? c.size : 1;
    }
    held_.erase(0, pos);
    write(text, out);
  }
  static bool incomplete(char lead, uint32_t size) {
    const auto byte = static_cast<unsigned char>(lead);
    return size < (byte >= 0xF0 && byte <= 0xF4 ? 4u : byte >= 0xE0 && byte < 0xF0 ? 3u : byte >= 0xC2 && byte < 0xE0 ? 2u : 1u);
  }
  void write(std::string_view text, std::string& out) {
    wrote_ = wrote_ || !text.empty();
    if (t_.denormalizer_.empty()) {
      out += text;
    } else {
      whole_ += text;  // its rules may reach over pieces
    }
  }
  void denormalize(std::string& out) {
    for (size_t pos = 0; pos < whole_.size();) {
      const auto rule = t_.denormalizer_.longest(whole_, pos);
      const size_t size = rule ? rule->size : utf8_at(whole_, pos).size;
      out += rule ? rule->replacement : std::string_view(whole_).substr(pos, size);
      pos += size;
    }
    whole_.clear();
  }

  const SentencePieceTokenizer& t_;
  std::string held_, whole_;
  bool at_start_ = true, space_removed_ = false, wrote_ = false;
};

std::string SentencePieceTokenizer::token_bytes(int32_t id) const {
  const std::string spelled = piece(id);
  if (!denormalizer_.empty())
    throw InputError(spec_.source + ": a rule of its denormalizer may reach over tokens, so a token has no bytes of its own");
  if (type(id) == PieceType::byte) return {static_cast<char>(byte_of_piece(spelled))};
  const bool is_text = type(id) == PieceType::normal || type(id) == PieceType::user_defined;
  return is_text && !is_control(id) ? with_spaces(spelled) : "";
}

std::unique_ptr<DecodeState> SentencePieceTokenizer::decode_state() const { return std::make_unique<SentencePieceDecode>(*this); }

}  // namespace vitrine
