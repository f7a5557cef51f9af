#pragma once
// A tokenizer in the steps of tokenizer.json: added tokens are found, the rest is normalized, cut into words, given to
// the model, framed by special tokens; decoding runs the decoder's stages. GPT-2's two files and GGUF's byte-level
// vocabularies are written down as such a pipeline, too.
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/id_encoder.h"
#include "tokenizer/model.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/trie.h"

namespace vitrine {

struct PipelineParts {
  std::string path;  // for messages
  std::string kind;  // for description(), before "BPE, 512 pieces"
  std::vector<AddedToken> added;
  std::vector<std::unique_ptr<Normalizer>> normalizers;
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers;
  std::unique_ptr<WordModel> model;
  SpecialFrame frame;
  std::string rule_source;   // where the frame comes from
  bool has_decoder = false;  // without one, pieces are joined with spaces
  std::vector<DecodeStep> decoder;
  bool finds_control = true;  // by Special::as_file
  bool keeps_bytes = false;   // bytes that are not UTF-8 reach the model (byte-level vocabularies only)
  std::optional<int32_t> bos, eos, unknown, padding;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(PipelineParts parts);

  std::string piece(int32_t id) const override;
  int32_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> find(std::string_view piece) const override;
  bool is_control(int32_t id) const override;
  bool lies_across(std::string_view text, size_t at) const override;
  std::optional<PieceMerge> merge(std::string_view left, std::string_view right) const override {
    return parts_.model->merge(left, right);
  }
  std::unique_ptr<DecodeState> decode_state() const override;
  std::string token_bytes(int32_t id) const override;

 protected:
  std::vector<TokenPiece> run(std::string_view text, bool add_special, Special special, bool offsets) const override;
  std::vector<int32_t> run_ids(std::string_view text, bool add_special, Special special, ThreadPool* pool) const override;

 private:
  friend class PipelineDecode;
  struct Matchers {  // tries over added tokens by their index in parts_.added
    Trie plain, normalized;
  };
  Matchers build_matchers(bool with_control) const;
  RawWords raw_words() const;
  void normalize(TrackedText& text) const;
  Chunks cut(TrackedText text, const Matchers& matchers) const;
  void run_model(const Chunks& chunks, std::vector<TokenPiece>& out) const;
  void run_bytes(std::string_view text, size_t valid, Special special, std::vector<TokenPiece>& out) const;
  const AddedToken* added(int32_t id) const {
    return size_t(id) < added_of_.size() && added_of_[size_t(id)] >= 0 ? &parts_.added[size_t(added_of_[size_t(id)])] : nullptr;
  }

  PipelineParts parts_;
  int32_t vocab_size_ = 0;
  std::vector<int32_t> added_of_;  // by id: index in parts_.added; -1
  Vocabulary added_ids_;           // contents of added tokens
  std::vector<std::string> normalized_spelling_;
  Matchers all_, text_only_;
  size_t longest_found_ = 0;  // bytes of an added token that is no control token
  bool needs_ranges_ = false;
  RawWords raw_words_ = RawWords::unknown;
};

}  // namespace vitrine
