#pragma once
// The two kinds of vocabulary behind train_tokenizer().
#include <memory>

#include "tokenizer/train.h"

namespace vitrine {

/// How each kind cuts texts, and what it makes of the counted words. They fill pieces, merges and the alphabet's figures.
std::unique_ptr<WordSplitter> gpt2_splitter();
void train_byte_bpe(WordCounts words, TrainedTokenizer& trained);

/// Pieces that stand in front of the learned ones: <pad>, <eos>, <bos>, <unk>, control tokens, user-defined pieces, bytes.
/// Errors: InputError for one that is empty, given twice or not UTF-8, and for user-defined pieces beside a dummy prefix.
std::vector<SentencePieceSpec::Piece> meta_pieces(const TrainTokenizerOptions& options);
std::unique_ptr<WordSplitter> line_splitter(const TrainTokenizerOptions& options,
                                            const std::vector<SentencePieceSpec::Piece>& meta);
/// Errors: InputError for a text none of whose characters would be a piece, and as require_vocab_size.
void train_sentencepiece_bpe(WordCounts words, std::vector<SentencePieceSpec::Piece> meta, TrainedTokenizer& trained);

/// Errors: InputError saying how many pieces `vocab_size` must leave room for.
void require_vocab_size(int64_t vocab_size, size_t fixed, const std::string& what);

}  // namespace vitrine
