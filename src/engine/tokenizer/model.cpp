#include "tokenizer/model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/trie.h"
#include "tokenizer/unigram.h"

namespace vitrine {
namespace {

constexpr size_t kLongestPiece = 4096;  // bytes; bounds the work per character of a text

class WordPieceModel final : public WordModel {
 public:
  WordPieceModel(Vocabulary vocabulary, const Component& c) : prefix_(c.text("continuing_subword_prefix", "##")) {
    vocabulary_ = std::move(vocabulary);
    const std::string unknown = c.text("unk_token", "[UNK]");
    unknown_ = vocabulary_.find(unknown);
    if (unknown_ < 0) c.fail("\"unk_token\" is \"" + unknown + "\", which the vocabulary does not hold");
    const int64_t longest = c.has("max_input_chars_per_word") ? c.integer("max_input_chars_per_word") : 100;
    if (longest < 0 || longest > 1000) c.fail(fmt::format("\"max_input_chars_per_word\" is {}, expected 0 to 1000", longest));
    longest_ = size_t(longest);
  }

  // The longest piece from the left, again and again; a word with a gap is unknown as a whole.
  void encode(std::string_view word, ModelScratch&, std::vector<WordToken>& out) const override {
    const auto whole = [&](size_t first) {
      out.resize(first);
      out.push_back({unknown_, 0, uint32_t(word.size())});
    };
    const size_t first = out.size();
    size_t characters = 0;
    for (size_t pos = 0; pos < word.size(); pos += utf8_at(word, pos).size) ++characters;
    if (characters > longest_) return whole(first);
    std::string piece;
    for (size_t begin = 0; begin < word.size();) {
      size_t end = word.size();
      int32_t id = -1;
      for (; end > begin; --end) {
        if (end < word.size() && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80) continue;
        piece.assign(begin > 0 ? prefix_ : "");
        piece += word.substr(begin, end - begin);
        id = vocabulary_.find(piece);
        if (id >= 0) break;
      }
      if (id < 0) return whole(first);
      out.push_back({id, uint32_t(begin), uint32_t(end)});
      begin = end;
    }
  }
  const char* name() const override { return "WordPiece"; }

 private:
  std::string prefix_;
  size_t longest_;
};

class WordLevelModel final : public WordModel {
 public:
  WordLevelModel(Vocabulary vocabulary, const Component& c, const std::string& path)
      : path_(path), token_(c.text("unk_token", "<unk>")) {
    vocabulary_ = std::move(vocabulary);
    unknown_ = vocabulary_.find(token_);
  }
  void encode(std::string_view word, ModelScratch&, std::vector<WordToken>& out) const override {
    int32_t id = vocabulary_.find(word);
    if (id < 0) id = unknown_;
    if (id < 0)
      throw FileError(path_, fmt::format("the vocabulary has neither the word \"{}\" nor the unknown token \"{}\"",
                                         word.substr(0, 100), token_));
    out.push_back({id, 0, uint32_t(word.size())});
  }
  const char* name() const override { return "WordLevel"; }

 private:
  std::string path_, token_;
};

// [["piece", score], …], the ids from 0 on.
void read_unigram(JsonCursor& cursor, const Component& c, Vocabulary& vocabulary, std::vector<double>& scores) {
  cursor.array([&] {
    const auto id = int32_t(scores.size());
    cursor.expect('[');
    const std::string_view piece = cursor.string();
    if (piece.size() > kLongestPiece) c.fail(fmt::format("piece {} has {} bytes, more than {}", id, piece.size(), kLongestPiece));
    if (vocabulary.add(piece, id) != Vocabulary::Added::yes)
      c.fail(fmt::format("pieces {} and {} of \"vocab\" are both \"{}\"", vocabulary.find(piece), id, piece));
    cursor.expect(',');
    scores.push_back(cursor.number());
    if (!(scores.back() == scores.back())) c.fail(fmt::format("the score of piece {} is not a number", id));
    cursor.expect(']');
  });
  if (scores.empty()) c.fail("\"vocab\" is empty");
}

class UnigramModel final : public WordModel {
 public:
  UnigramModel(JsonCursor cursor, const Component& c, const std::string& path)
      : path_(path), byte_fallback_(c.flag("byte_fallback", false)) {
    read_unigram(cursor, c, vocabulary_, scores_);
    if (c.has("unk_id")) {
      const int64_t unknown = c.integer("unk_id");
      if (unknown < 0 || unknown >= int64_t(scores_.size()))
        c.fail(fmt::format("\"unk_id\" is {}, outside the {} pieces of \"vocab\"", unknown, scores_.size()));
      unknown_ = int32_t(unknown);
    }
    std::vector<std::pair<std::string_view, int32_t>> pieces;
    pieces.reserve(static_cast<size_t>(vocabulary_.size()));
    for (int32_t id = 0; id < vocabulary_.size(); ++id) pieces.emplace_back(vocabulary_.piece(id), id);
    trie_ = Trie(std::move(pieces));
    lowest_ = *std::min_element(scores_.begin(), scores_.end());
    for (int byte = 0; byte < 256; ++byte) byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
  }

  void encode(std::string_view word, ModelScratch&, std::vector<WordToken>& out) const override {
    constexpr int32_t kUncovered = -2;
    constexpr double kUnknownPenalty = 10;
    std::vector<WordToken> path;
    unigram_encode<double>(
        word, trie_, [this](int32_t id, size_t) { return scores_[size_t(id)]; }, kUncovered, lowest_ - kUnknownPenalty, path);
    for (size_t i = 0; i < path.size(); ++i) {
      WordToken t = path[i];
      if (t.id != kUncovered && t.id != unknown_) {
        out.push_back(t);
        continue;
      }
      while (i + 1 < path.size() && (path[i + 1].id == kUncovered || path[i + 1].id == unknown_)) t.end = path[++i].end;
      spell_unknown(word, t, out);
    }
  }
  const char* name() const override { return "Unigram"; }

 private:
  // A run of characters without a piece: as bytes where the file has all of them, otherwise one unknown token.
  void spell_unknown(std::string_view word, WordToken t, std::vector<WordToken>& out) const {
    const std::string_view run = word.substr(t.begin, t.end - t.begin);
    if (byte_fallback_ &&
        std::all_of(run.begin(), run.end(), [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; })) {
      for (uint32_t i = t.begin; i < t.end; ++i) out.push_back({byte_ids_[static_cast<unsigned char>(word[i])], i, i + 1});
      return;
    }
    if (unknown_ < 0)
      throw FileError(path_, fmt::format("has no piece for \"{}\" and model.unk_id is missing", run.substr(0, 100)));
    out.push_back({unknown_, t.begin, t.end});
  }

  std::string path_;
  bool byte_fallback_;
  std::vector<double> scores_;
  double lowest_ = 0;
  Trie trie_;
  int32_t byte_ids_[256];
};

std::unique_ptr<WordModel> parse_bpe(const Component& c, const ModelText& text, const std::string& path, Vocabulary vocabulary) {
  BpeModel::Options options;
  options.unknown_token = c.text("unk_token", "");
  options.continuing_subword_prefix = c.text("continuing_subword_prefix", "");
  options.end_of_word_suffix = c.text("end_of_word_suffix", "");
  options.fuse_unknown = c.flag("fuse_unk", false);
  options.byte_fallback = c.flag("byte_fallback", false);
  options.ignore_merges = c.flag("ignore_merges", false);
  options.word_marker = kWordMarker;
  auto model = std::make_unique<BpeModel>(std::move(vocabulary), options, path);
  model->reserve_merges(text.merges_bytes / 16);
  each_merge(c, text, path, [&](std::string_view left, std::string_view right) { model->add_merge(left, right); });
  model->finish();
  return model;
}

}  // namespace

void each_merge(const Component& c, const ModelText& text, const std::string& path,
                const std::function<void(std::string_view, std::string_view)>& visit) {
  if (text.merges == 0) c.fail("has no \"merges\"");
  JsonCursor cursor(text.whole, path);
  cursor.move_to(text.merges);
  size_t index = 0;
  std::string left;
  cursor.array([&] {
    if (cursor.peek() == '[') {
      cursor.expect('[');
      left = cursor.string();
      cursor.expect(',');
      visit(left, cursor.string());
      cursor.expect(']');
    } else {
      const std::string_view pair = cursor.string();
      const size_t space = pair.find(' ');
      if (space == std::string_view::npos || pair.find(' ', space + 1) != std::string_view::npos)
        c.fail(fmt::format("merges[{}] is \"{}\", expected two pieces with one space between them", index, pair));
      left = pair.substr(0, space);
      visit(left, pair.substr(space + 1));
    }
    ++index;
  });
}

Vocabulary parse_vocabulary(JsonCursor& cursor, size_t bytes, const std::string& path) {
  Vocabulary vocabulary;
  vocabulary.reserve(bytes / 24, bytes / 2);
  // Ids may have gaps, but a file cannot ask for more room than its own size justifies.
  const auto limit = int64_t(std::min<size_t>(bytes + 1000, size_t(INT32_MAX)));
  cursor.object([&](std::string_view piece) {
    const int64_t id = cursor.integer();
    if (id < 0 || id >= limit)
      throw FileError(path, fmt::format("the piece \"{}\" has id {}, expected 0 to {} (the vocabulary takes {} bytes)", piece, id,
                                        limit - 1, bytes));
    switch (vocabulary.add(piece, int32_t(id))) {
      case Vocabulary::Added::yes: break;
      case Vocabulary::Added::piece_exists:
        throw FileError(path, fmt::format("the vocabulary has the piece \"{}\" twice", piece));
      case Vocabulary::Added::id_exists:
        throw FileError(path,
                        fmt::format("the pieces \"{}\" and \"{}\" both have id {}", vocabulary.piece(int32_t(id)), piece, id));
    }
  });
  return vocabulary;
}

std::string model_type(const Component& c, const ModelText& text) {
  std::string type = c.text("type", "");
  if (type.empty())
    type = text.merges != 0                     ? "BPE"
           : c.has("unk_id")                    ? "Unigram"
           : c.has("continuing_subword_prefix") ? "WordPiece"
                                                : "WordLevel";
  if (type != "BPE" && type != "WordPiece" && type != "WordLevel" && type != "Unigram")
    c.fail("unsupported model \"" + type + "\"; supported are BPE, WordPiece, WordLevel, Unigram");
  return type;
}

Vocabulary parse_pieces(const Component& c, const ModelText& text, const std::string& path) {
  if (text.vocabulary == 0) c.fail("has no \"vocab\"");
  JsonCursor cursor(text.whole, path);
  cursor.move_to(text.vocabulary);
  if (model_type(c, text) != "Unigram") return parse_vocabulary(cursor, text.vocabulary_bytes, path);
  Vocabulary vocabulary;
  std::vector<double> scores;
  read_unigram(cursor, c, vocabulary, scores);
  return vocabulary;
}

std::unique_ptr<WordModel> parse_model(const Component& c, const ModelText& text, const std::string& path) {
  if (text.vocabulary == 0) c.fail("has no \"vocab\"");
  JsonCursor cursor(text.whole, path);
  cursor.move_to(text.vocabulary);
  const std::string type = model_type(c, text);
  if (type == "Unigram") return std::make_unique<UnigramModel>(cursor, c, path);
  Vocabulary vocabulary = parse_vocabulary(cursor, text.vocabulary_bytes, path);
  if (type == "BPE") return parse_bpe(c, text, path, std::move(vocabulary));
  if (type == "WordPiece") return std::make_unique<WordPieceModel>(std::move(vocabulary), c);
  return std::make_unique<WordLevelModel>(std::move(vocabulary), c, path);
}

}  // namespace vitrine
