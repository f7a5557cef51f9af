#pragma once
// SentencePiece as its library runs it: normalize (charsmap, spaces to ▁, optional space in front), merge by score or
// cut by the unigram model, unknown characters as bytes. Kudo and Richardson, arXiv:1808.06226.
#include <memory>

#include "tokenizer/bpe.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/trie.h"
#include "tokenizer/vocabulary.h"

namespace vitrine {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Errors: FileError naming spec.source for duplicate pieces, missing bytes or a missing unknown piece.
  explicit SentencePieceTokenizer(SentencePieceSpec spec);

  std::string piece(int32_t id) const override;
  int32_t vocab_size() const override { return int32_t(types_.size()); }
  std::optional<int32_t> find(std::string_view piece) const override;
  bool is_control(int32_t id) const override;
  std::optional<PieceMerge> merge(std::string_view left, std::string_view right) const override;
  bool lies_across(std::string_view text, size_t at) const override;
  std::unique_ptr<DecodeState> decode_state() const override;
  std::string token_bytes(int32_t id) const override;

 protected:
  std::vector<TokenPiece> run(std::string_view text, bool add_special, Special special, bool offsets) const override;

 private:
  friend class SentencePieceDecode;
  struct Normalized {
    std::string text;
    std::vector<uint32_t> origin;  // for each byte, and for the end: the byte of the source it came from
  };
  PieceType type(int32_t id) const { return types_[size_t(id)]; }
  void build_vocabulary();
  void add_tokens();
  void choose_special_ids();
  void describe();
  Normalized normalize(std::string_view text, const Trie& user_defined, bool prefix) const;
  void encode_segment(std::string_view text, size_t offset, bool prefix, Special special, std::vector<TokenPiece>& out) const;
  void encode_word(std::string_view word, const Trie& user_defined, Special special, struct SentencePieceScratch& scratch,
                   std::vector<WordToken>& out) const;
  void resegment(std::string_view word, WordToken token, Special special, const struct SentencePieceScratch& scratch,
                 std::vector<WordToken>& out) const;
  int32_t id_of_text(std::string_view text, Special special) const;

  SentencePieceSpec spec_;
  std::vector<float> scores_;
  std::vector<PieceType> types_;
  std::vector<bool> control_;  // control pieces, and user-defined ones that mark turns
  Vocabulary mergeable_;       // normal, user-defined and unused pieces
  Vocabulary reserved_;        // control, unknown and byte pieces
  int32_t byte_ids_[256] = {};
  Charsmap charsmap_, denormalizer_;
  SafeCuts cuts_;
  Trie user_defined_, user_defined_text_;        // all of them; those that are not control tokens
  std::vector<AddedToken> tokens_;               // what run() cuts the text at: added tokens and control pieces
  Trie all_tokens_, file_tokens_, text_tokens_;  // by their index: for Special::parse, as_file and text
  Vocabulary added_;                             // those that are no pieces of the file
  Trie unigram_pieces_;
  float lowest_score_ = 0;
  size_t longest_found_ = 0;  // bytes of a string of user_defined_text_ or text_tokens_
};

}  // namespace vitrine
