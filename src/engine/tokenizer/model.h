#pragma once
// The models of tokenizer.json: how one word becomes tokens.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/components.h"
#include "tokenizer/json_cursor.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace vitrine {

/// Working memory of one call of encode().
struct ModelScratch {
  std::vector<BpeSymbol> symbols;
  std::vector<BpeCandidate> heap;
  WordCache cache;
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  /// Appends the tokens of `word` (not empty, valid UTF-8), with their bytes counted from its start. The word's bytes must
  /// stay valid as long as the scratch. Errors: FileError when the file has no token for a word and no unknown token.
  virtual void encode(std::string_view word, ModelScratch& scratch, std::vector<WordToken>& out) const = 0;
  virtual const char* name() const = 0;
  /// As Tokenizer::merge.
  virtual std::optional<PieceMerge> merge(std::string_view, std::string_view) const { return {}; }

  /// Where a text may be cut if its spaces become word markers and all of it is one word; nullptr: that is not known.
  virtual const PairCuts* pair_cuts() const { return nullptr; }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  int32_t unknown() const { return unknown_; }  // -1: none

 protected:
  Vocabulary vocabulary_;
  int32_t unknown_ = -1;
};

/// Which pair of tokens merges to what, and how early.
class MergeTable {
 public:
  void reserve(size_t merges);
  void set(int32_t left, int32_t right, BpeJoin join);  // a later entry replaces an earlier one
  BpeJoin find(int32_t left, int32_t right) const;      // id -1: they do not merge
  void prefetch(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    BpeJoin join{0, -1};
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};
  static uint64_t mix(uint64_t pair);
  Slot& slot(uint64_t pair);
  std::vector<Slot> slots_;  // a power of two
  size_t count_ = 0;
};

/// Byte-pair encoding with the options of tokenizer.json.
class BpeModel final : public WordModel {
 public:
  struct Options {
    std::string unknown_token;  // "": none; then characters outside the vocabulary vanish
    std::string continuing_subword_prefix, end_of_word_suffix;
    bool fuse_unknown = false, byte_fallback = false, ignore_merges = false;
    std::string word_marker;  // words may be cut in front of it to reuse their tokens; "": not
  };
  BpeModel(Vocabulary vocabulary, Options options, const std::string& path);

  /// The next merge, in order of priority. Errors: FileError naming the merge and the piece that is not in the vocabulary
  /// (here or by a later call: merges are looked up in groups).
  void add_merge(std::string_view left, std::string_view right);
  void reserve_merges(size_t count) { merges_.reserve(count); }
  /// To be called once, after the last merge.
  void finish();

  void encode(std::string_view word, ModelScratch& scratch, std::vector<WordToken>& out) const override;
  const char* name() const override { return "BPE"; }
  std::optional<PieceMerge> merge(std::string_view left, std::string_view right) const override;
  const PairCuts* pair_cuts() const override { return pair_cuts_ ? &*pair_cuts_ : nullptr; }

 private:
  void resolve_merges();
  void merge_short(std::vector<BpeSymbol>& symbols) const;
  void encode_word(std::string_view word, ModelScratch& scratch, std::vector<WordToken>& out) const;
  void split_characters(std::string_view word, std::vector<BpeSymbol>& symbols) const;
  int32_t find_character(std::string_view character, bool first, bool last) const;

  Options options_;
  std::string path_;
  MergeTable merges_;
  size_t merge_count_ = 0;
  // A group of merges: the text of left, right and joined pieces, one after the other, and what they need.
  struct PendingMerge {
    uint32_t begin, left_size, right_size, joined_size;
    uint64_t left_hash, right_hash, joined_hash;
  };
  static constexpr size_t kMergeGroup = 32, kShortWord = 24;
  static constexpr uint32_t kNever = ~uint32_t{0};  // no order: a file would need as many merges
  std::vector<PendingMerge> pending_;
  std::string pending_text_;
  std::vector<int32_t> single_;  // id of each character below U+10000 that is a piece; -1
  int32_t byte_ids_[256];
  std::vector<bool> substitute_;     // by id: stands for what has no piece (bytes, the unknown token)
  bool merges_substitutes_ = false;  // some merge takes one
  SafeCuts cuts_;
  std::optional<PairCuts> pair_cuts_;
};

/// Where the large parts of "model" lie in the file.
struct ModelText {
  std::string_view whole;             // the file
  size_t vocabulary = 0, merges = 0;  // byte at which each value begins; 0: not there
  size_t vocabulary_bytes = 0, merges_bytes = 0;
};

/// Reads a "model" of tokenizer.json: BPE, WordPiece, WordLevel, Unigram. Errors: FileError.
std::unique_ptr<WordModel> parse_model(const Component& component, const ModelText& text, const std::string& path);

/// "BPE", "WordPiece", "WordLevel" or "Unigram"; of old files that leave the type out, what they hold tells. Errors: FileError.
std::string model_type(const Component& component, const ModelText& text);
/// The vocabulary alone, of any type. Errors: FileError.
Vocabulary parse_pieces(const Component& component, const ModelText& text, const std::string& path);
/// Calls visit(left, right) for each merge of a BPE model, in order. Errors: FileError.
void each_merge(const Component& component, const ModelText& text, const std::string& path,
                const std::function<void(std::string_view, std::string_view)>& visit);

/// Reads {"piece": id, …}. Errors: FileError for a piece or an id that appears twice and for impossible ids.
Vocabulary parse_vocabulary(JsonCursor& cursor, size_t bytes, const std::string& path);

}  // namespace vitrine
