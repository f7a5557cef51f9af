// BPE over characters by the rules of SentencePiece's BPE trainer: lines are texts, a space is U+2581 and begins a word, rare
// characters are left to the byte pieces, and a pair is merged only if what it spells may be a piece. Of equally frequent
// pairs the shorter goes first, then the lower by code points. Kudo and Richardson, arXiv:1808.06226.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/memory.h"
#include "base/plural.h"
#include "base/utf8.h"
#include "tokenizer/train_kinds.h"
#include "tokenizer/train_merges.h"
#include "tokenizer/train_script.h"
#include "tokenizer/trie.h"

namespace vitrine {
namespace {

constexpr uint32_t kSpaceMark = 0x2581;
constexpr std::string_view kSpaceMarkUtf8 = "\xE2\x96\x81";
constexpr uint32_t kReserved = 0x2585;  // stands for unknown characters while SentencePiece trains
constexpr char kBoundary = 0x1F;        // stands for a piece in front where one is spelled: a character, but never a piece
constexpr size_t kMostCharacters = 16;  // characters

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

// Words of lines: each begins at a space. What the pieces in front spell (user-defined pieces above all) belongs to no word; each
// time it is a word of kBoundary alone, so that it counts as one character.
class LineSplitter final : public WordSplitter {
 public:
  LineSplitter(const TrainTokenizerOptions& options, const std::vector<SentencePieceSpec::Piece>& meta)
      : dummy_prefix_(options.dummy_prefix), space_runs_(options.whitespace_pieces) {
    for (const SentencePieceSpec::Piece& piece : meta)  // a line spells no piece that holds its end
      if (piece.text.find('\n') == std::string::npos) spelled_.push_back(replaced(piece.text, kSpaceMarkUtf8, " "));
    std::vector<std::pair<std::string_view, int32_t>> strings;
    strings.reserve(spelled_.size());
    for (const std::string& text : spelled_) {
      strings.emplace_back(text, 0);
      longest_ = std::max(longest_, text.size());
    }
    for (uint32_t byte = 0; byte < 256; ++byte) kinds_[byte] = kind_of(byte);
    for (const auto& [text, value] : strings) kinds_[static_cast<unsigned char>(text[0])] = Kind::stop;
    kinds_['\n'] = kinds_[' '] = Kind::stop;
    meta_ = Trie(std::move(strings));
  }
  std::string_view text_start() const override { return "\n"; }  // so that every line follows one
  size_t safe_cut(std::string_view text, size_t from, size_t limit) const override {
    if (const size_t line = text.substr(0, limit).rfind('\n'); line != std::string_view::npos && line > from) return line;
    for (size_t at = std::min(limit, text.size() - 1); at > from; --at)  // a line of megabytes
      if (text[at] == ' ' && text[at - 1] != ' ' && !text.substr(0, at).ends_with(kSpaceMarkUtf8) && !inside_piece(text, at))
        return at;
    return 0;
  }
  void split(char* text, size_t size, std::vector<std::string_view>& words) const override {
    size = spaces_for_marks(text, size);
    const std::string_view all(text, size);
    size_t begin = 0;
    const auto end_word = [&](size_t end) {
      if (end > begin) words.push_back(all.substr(begin, end - begin));
    };
    Kind before = Kind::stop;
    for (size_t at = 0; at < size;) {
      Kind kind = kinds_[static_cast<unsigned char>(text[at])];
      if (kind == before && kind != Kind::stop) {
        ++at;
        continue;
      }
      if (kind == Kind::stop) {
        if (text[at] == '\n') {
          end_word(at);
          // The line's end becomes the space in front of the next line, if that is not empty.
          const bool prefix = dummy_prefix_ && at + 1 < size && text[at + 1] != '\n';
          if (prefix) text[at] = ' ';
          begin = at + (prefix ? 0 : 1);
          ++at;
          before = Kind::stop;
          continue;
        }
        if (const Trie::Match match = meta_.longest(all, at); match.size > 0) {
          end_word(at);
          text[at] = kBoundary;
          words.push_back(all.substr(at, 1));
          at += match.size;
          begin = at;
          before = Kind::stop;
          continue;
        }
        if (text[at] == ' ') {
          if (!(space_runs_ && at > begin && text[at - 1] == ' ')) {
            end_word(at);
            begin = at;
          }
          ++at;
          before = Kind::stop;
          continue;
        }
        kind = kind_of(static_cast<unsigned char>(text[at]));
      }
      // Letters are Latin, the rest of ASCII belongs to no script: no piece holds both, so they need not be one word.
      if ((before == Kind::letter && kind == Kind::common) || (before == Kind::common && kind == Kind::letter)) {
        end_word(at);
        begin = at;
      }
      before = kind;
      ++at;
    }
    end_word(size);
  }

 private:
  // Whether a piece in front may be spelled across this place: in the text as split() reads it, U+2581 being a space.
  bool inside_piece(std::string_view text, size_t at) const {
    const size_t around = longest_ * kSpaceMarkUtf8.size(), begin = at - std::min(at, around);
    const std::string before = replaced(std::string(text.substr(begin, at - begin)), kSpaceMarkUtf8, " ");
    std::string_view behind = text.substr(at, around);
    for (const size_t cut : {2, 1})  // a U+2581 of which the end is not there
      if (behind.ends_with(kSpaceMarkUtf8.substr(0, cut))) behind.remove_suffix(cut);
    const std::string all = before + replaced(std::string(behind), kSpaceMarkUtf8, " ");
    for (const std::string& piece : spelled_)
      for (size_t inner = piece.find(text[at], 1); inner != std::string::npos; inner = piece.find(text[at], inner + 1))
        if (inner <= before.size() && piece.starts_with(std::string_view(all).substr(before.size() - inner, piece.size())))
          return true;
    return false;
  }
  enum class Kind : uint8_t { stop, letter, common, beyond_ascii };  // stop: something may begin or end at this byte
  static Kind kind_of(uint32_t byte) {
    const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    return letter ? Kind::letter : byte < 0x80 ? Kind::common : Kind::beyond_ascii;
  }
  /// U+2581 in a text means a space, as in the pieces. Returns the new size.
  static size_t spaces_for_marks(char* text, size_t size) {
    const std::string_view all(text, size);
    size_t from = all.find(kSpaceMarkUtf8);
    if (from == std::string_view::npos) return size;
    size_t to = from;
    while (from < size) {
      const bool mark = all.substr(from).starts_with(kSpaceMarkUtf8);
      text[to++] = mark ? ' ' : text[from];
      from += mark ? kSpaceMarkUtf8.size() : 1;
    }
    return to;
  }
  bool dummy_prefix_, space_runs_;
  std::vector<std::string> spelled_;
  size_t longest_ = 0;  // bytes of one of them
  Trie meta_;
  std::array<Kind, 256> kinds_{};
};

/// The characters that become pieces, the most frequent first.
struct CountedAlphabet {
  struct Character {
    uint32_t code;
    uint64_t count;
  };
  std::vector<Character> characters;
  std::unordered_map<uint32_t, int32_t> ids;
};

uint32_t code_at(std::string_view word, size_t& at) {
  const Utf8Char c = utf8_at(word, at);
  at += c.size;
  return c.code == ' ' ? kSpaceMark : c.code;
}
/// Characters that are never part of a piece.
bool is_boundary(uint32_t code) { return code == 0 || code == kReserved; }

CountedAlphabet count_alphabet(const std::vector<WordCounts::Word>& words, TrainedTokenizer& trained) {
  std::unordered_map<uint32_t, uint64_t> counts;
  std::array<uint64_t, 128> ascii{};  // most characters need no table
  uint64_t all = 0;
  for (const WordCounts::Word& word : words) {
    if (word.text == std::string_view(&kBoundary, 1)) {
      trained.words -= word.count;
      --trained.distinct_words;
    }
    for (size_t at = 0; at < word.text.size();) {
      const Utf8Char c = utf8_at(word.text, at);
      at += c.size;
      if (!c.valid) trained.invalid_characters += word.count;
      if (is_boundary(c.code)) continue;
      if (c.code < 128)
        ascii[c.code] += word.count;
      else
        counts[c.code] += word.count;
      all += word.count;
    }
  }
  for (uint32_t code = 0; code < 128; ++code)
    if (ascii[code] > 0) counts[code == ' ' ? kSpaceMark : code] += ascii[code];
  CountedAlphabet alphabet;
  for (const auto& [code, count] : counts) alphabet.characters.push_back({code, count});
  std::sort(alphabet.characters.begin(), alphabet.characters.end(),
            [](const auto& a, const auto& b) { return a.count != b.count ? a.count > b.count : a.code < b.code; });
  uint64_t covered = 0;
  size_t kept = 0;
  // In single precision, as the reference compares them.
  while (kept < alphabet.characters.size() && float(double(covered) / double(all)) < float(trained.options.character_coverage))
    covered += alphabet.characters[kept++].count;
  trained.rare_characters = alphabet.characters.size() - kept;
  alphabet.characters.resize(kept);
  // It had its place among the others, and its share of what is covered, but it is no piece.
  const bool boundary_kept = std::erase_if(alphabet.characters, [](const auto& c) { return c.code == kBoundary; }) > 0;
  if (!boundary_kept && counts.contains(kBoundary)) --trained.rare_characters;
  trained.alphabet = alphabet.characters.size();
  trained.characters = trained.alphabet + trained.rare_characters;
  for (size_t i = 0; i < alphabet.characters.size(); ++i) alphabet.ids.emplace(alphabet.characters[i].code, int32_t(i));
  return alphabet;
}

class PieceRules {
 public:
  PieceRules(const CountedAlphabet& alphabet, size_t merges, const TrainTokenizerOptions& options)
      : merges_(merges), options_(options) {
    const Scripts scripts;
    for (const auto& [code, count] : alphabet.characters) {
      Symbol s;
      s.text = to_utf8(code);
      s.length = 1;
      s.spaces = code == kSpaceMark;
      s.digit = (code >= '0' && code <= '9') || (code >= 0xFF10 && code <= 0xFF19);
      s.script = s.spaces ? kAnyScript : scripts.of(code);
      // Kana and Han are written in one word; a mark belongs to the script before it.
      if (s.script == Scripts::kHiragana || s.script == Scripts::kKatakana || code == 0x30FC) s.script = Scripts::kHan;
      if (s.script == Scripts::kInherited) s.script = kAnyScript;
      symbols_.push_back(std::move(s));
    }
  }

  struct Merge {
    int32_t left, right;
    uint64_t count;
  };
  const std::vector<Merge>& merges() const { return found_; }
  const std::string& text(int32_t symbol) const { return symbols_[size_t(symbol)].text; }

  // The rules, see MergeTrainer.
  bool allows(int32_t left, int32_t right) const {
    const Symbol &l = symbols_[size_t(left)], &r = symbols_[size_t(right)];
    if (l.length + r.length > kMostCharacters) return false;
    if (options_.split_digits && (l.digit || r.digit)) return false;
    // A space stands only at the front, or among nothing but spaces.
    if (r.starts_with_space() && !(options_.whitespace_pieces && l.spaces && r.spaces)) return false;
    if (l.spaces && l.length > 1 && !r.spaces) return false;
    return l.script == kAnyScript || r.script == kAnyScript || l.script == r.script;
  }
  uint64_t order(int32_t left, int32_t right) const {
    // The length, then the first seven bytes: enough for nearly every comparison.
    const Symbol &l = symbols_[size_t(left)], &r = symbols_[size_t(right)];
    uint64_t order = l.length + r.length;
    for (size_t i = 0; i < 7; ++i) {
      const size_t in_right = i - std::min(i, l.text.size());
      const char byte = i < l.text.size() ? l.text[i] : in_right < r.text.size() ? r.text[in_right] : '\0';
      order = order << 8 | static_cast<unsigned char>(byte);
    }
    return order;
  }
  bool before(int32_t l1, int32_t r1, int32_t l2, int32_t r2) const {
    const std::string a = text(l1) + text(r1), b = text(l2) + text(r2);
    return a != b ? a < b : symbols_[size_t(l1)].length < symbols_[size_t(l2)].length;
  }
  bool enough() const { return found_.size() >= merges_; }
  int32_t accept(int32_t left, int32_t right, int64_t count) {
    Symbol s;
    const Symbol &l = symbols_[size_t(left)], &r = symbols_[size_t(right)];
    s.text = l.text + r.text;
    if (!spelled_.insert(s.text).second) return -1;  // found in another way before: not merged a second time
    s.length = l.length + r.length;
    s.spaces = l.spaces && r.spaces;
    s.digit = l.digit || r.digit;
    s.script = r.script != kAnyScript ? r.script : l.script;
    symbols_.push_back(std::move(s));
    found_.push_back({left, right, uint64_t(count)});
    return int32_t(symbols_.size() - 1);
  }

 private:
  static constexpr int kAnyScript = -1;
  struct Symbol {
    std::string text;
    uint32_t length = 0;  // characters
    bool spaces = false;  // nothing but spaces
    bool digit = false;   // holds a digit
    int script = kAnyScript;
    bool starts_with_space() const { return text.starts_with(kSpaceMarkUtf8); }
  };
  size_t merges_;
  const TrainTokenizerOptions& options_;
  std::vector<Symbol> symbols_;
  std::unordered_set<std::string> spelled_;
  std::vector<Merge> found_;
};

}  // namespace

std::vector<SentencePieceSpec::Piece> meta_pieces(const TrainTokenizerOptions& options) {
  std::vector<SentencePieceSpec::Piece> meta = {{"<pad>", 0, PieceType::control},
                                                {"<eos>", 0, PieceType::control},
                                                {"<bos>", 0, PieceType::control},
                                                {"<unk>", 0, PieceType::unknown}};
  for (const std::string& token : options.special) meta.push_back({token, 0, PieceType::control});
  for (const std::string& piece : options.user_defined)
    meta.push_back({replaced(piece, " ", kSpaceMarkUtf8), 0, PieceType::user_defined});
  if (options.byte_fallback)
    for (int byte = 0; byte < 256; ++byte) meta.push_back({fmt::format("<0x{:02X}>", byte), 0, PieceType::byte});
  std::unordered_set<std::string> seen;
  for (const SentencePieceSpec::Piece& piece : meta) {
    if (piece.text.empty()) throw InputError("a special token or user-defined piece is empty; give it a spelling.");
    if (!is_valid_utf8(piece.text)) throw InputError("the piece \"" + utf8_lossy(piece.text) + "\" is not UTF-8.");
    if (!seen.insert(piece.text).second)
      throw InputError("the piece \"" + piece.text +
                       "\" is given twice; <pad>, <eos>, <bos>, <unk> and <0x00> to <0xFF> are there anyway.");
  }
  // tokenizer.json looks for these pieces first and puts the space in front of what is left between them: "<x>b" would get one
  // before b, where tokenizer.model has it before <x>.
  if (options.dummy_prefix && !options.user_defined.empty())
    throw InputError("the user-defined piece \"" + options.user_defined.front() +
                     "\" cannot be used together with a space before every line: tokenizer.json has no form for both. Leave "
                     "one of them out.");
  // The space in front of a line is no part of such a token, so that "The" at its begin would spell the token's piece again.
  for (const std::string& token : options.special)
    if (options.dummy_prefix && token.starts_with(kSpaceMarkUtf8))
      throw InputError("the control token \"" + token +
                       "\" begins with U+2581, a space, and cannot be used together with a space before every line: a word there "
                       "would be a second piece of its spelling. Leave one of them out.");
  return meta;
}

std::unique_ptr<WordSplitter> line_splitter(const TrainTokenizerOptions& options,
                                            const std::vector<SentencePieceSpec::Piece>& meta) {
  return std::make_unique<LineSplitter>(options, meta);
}

void train_sentencepiece_bpe(WordCounts words, std::vector<SentencePieceSpec::Piece> meta, TrainedTokenizer& trained) {
  auto sorted = words.by_count();
  const CountedAlphabet alphabet = count_alphabet(sorted, trained);
  if (trained.characters == 0)
    throw InputError(fmt::format(
        "there is no character that could be a piece in {} of text, beside special, user-defined and byte pieces; name files "
        "that hold words.",
        plural(trained.bytes, "byte")));
  if (alphabet.characters.empty())
    throw InputError(
        fmt::format("none of the {} characters of {} of text would be a piece: the pieces that it spells cover {} of it. Raise "
                    "--character-coverage.",
                    trained.characters, plural(trained.bytes, "byte"), trained.options.character_coverage));
  const size_t fixed = meta.size() + alphabet.characters.size();
  require_vocab_size(
      trained.options.vocab_size, fixed,
      fmt::format("{} special, user-defined and byte pieces and {} characters", meta.size(), alphabet.characters.size()));
  if (words.text_bytes() + words.size() + 1 >= TrainCorpus::kMostSlots)
    throw InputError(fmt::format("{} distinct words of {} MiB are more than training can hold (2 GiB); lower --limit-memory.",
                                 words.size(), words.text_bytes() >> 20));
  TrainCorpus corpus;
  corpus.reserve(words.text_bytes() + words.size() + 1);
  for (const WordCounts::Word& word : sorted) {
    corpus.begin_word(word.count);
    for (size_t at = 0; at < word.text.size();) {
      const auto known = alphabet.ids.find(code_at(word.text, at));
      if (known != alphabet.ids.end())
        corpus.add_symbol(known->second);
      else
        corpus.begin_word(word.count);  // nothing is merged across a character without a piece
    }
  }
  corpus.finish();
  sorted = {};
  words = WordCounts();
  give_back_freed_memory();
  PieceRules rules(alphabet, size_t(trained.options.vocab_size) - fixed, trained.options);
  MergeTrainer(corpus, rules, trained.options.min_frequency).run();

  // Pieces: those in front, the merges, the characters. A later one has a lower score; merging takes the highest first.
  trained.pieces = std::move(meta);
  const auto first_merge = int32_t(trained.pieces.size());
  const auto n_characters = int32_t(alphabet.characters.size()), n_merges = int32_t(rules.merges().size());
  const auto id_of = [&](int32_t symbol) {
    return symbol < n_characters ? first_merge + n_merges + symbol : first_merge + symbol - n_characters;
  };
  for (int32_t i = 0; i < n_merges; ++i) {
    const auto& [left, right, count] = rules.merges()[size_t(i)];
    trained.pieces.push_back({rules.text(n_characters + i), -float(i), PieceType::normal});
    trained.merges.push_back({id_of(left), id_of(right), first_merge + i, count});
  }
  for (int32_t i = 0; i < n_characters; ++i) trained.pieces.push_back({rules.text(i), -float(n_merges + i), PieceType::normal});
}

}  // namespace vitrine
