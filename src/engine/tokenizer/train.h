#pragma once
// Builds vocabularies: byte-level BPE by the rules of Hugging Face's BpeTrainer, and BPE over characters with bytes for the rare
// ones by the rules of SentencePiece's BPE trainer. docs/tokenizer-training.md compares the rules.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/train_words.h"

namespace vitrine {

enum class TokenizerKind { byte_bpe, sentencepiece_bpe };

struct TrainTokenizerOptions {
  TokenizerKind kind = TokenizerKind::byte_bpe;
  int64_t vocab_size = 0;
  int64_t min_frequency = 0;         // pairs that came less often are not merged
  std::vector<std::string> special;  // control tokens. byte_bpe: ids from 0; sentencepiece_bpe: after <pad> <eos> <bos> <unk>
  // Of sentencepiece_bpe only:
  std::vector<std::string> user_defined;  // pieces that are always tokens where they are spelled
  double character_coverage = 0.9995;     // share of the text that single characters must be able to spell
  bool byte_fallback = true;              // 256 byte pieces for the other characters; otherwise they become <unk>
  bool split_digits = false;              // each digit is a piece of its own
  bool dummy_prefix = false;              // a space before every line
  bool whitespace_pieces = false;         // runs of spaces may be pieces

  uint64_t memory_bytes = uint64_t{1} << 30;  // as CountOptions
};

struct TrainedMerge {
  int32_t left, right, id;
  uint64_t count;  // of the pair, when it was merged
};

struct TrainedTokenizer {
  TrainTokenizerOptions options;
  std::vector<SentencePieceSpec::Piece> pieces;  // as the vocabulary spells them
  std::vector<TrainedMerge> merges;              // in their order
  // What was read:
  uint64_t texts = 0, bytes = 0, words = 0, distinct_words = 0;
  uint64_t pruned_words = 0, pruned_below = 0;
  uint64_t invalid_characters = 0;                             // counted as U+FFFD (sentencepiece_bpe)
  uint64_t characters = 0, alphabet = 0, rare_characters = 0;  // distinct ones that became pieces, and that did not
};

/// Reads all of `source` and builds the vocabulary. It is smaller than vocab_size when the pairs run out. The same on any number
/// of threads. Errors: InputError for a text without words or without characters that would be pieces, a vocabulary below what
/// must be in it (with the numbers), special tokens that are empty or given twice, user-defined pieces beside a dummy prefix, and
/// what count_words throws.
TrainedTokenizer train_tokenizer(const CorpusSource& source, const TrainTokenizerOptions& options, ThreadPool& pool);

/// The vocabulary as Hugging Face's tokenizers reads it.
std::string tokenizer_json(const TrainedTokenizer& trained);
/// The vocabulary as SentencePiece reads it; for sentencepiece_bpe.
std::string tokenizer_model(const TrainedTokenizer& trained);
/// What stands beside them: which tokens begin and end a text.
std::string tokenizer_config_json(const TrainedTokenizer& trained);

}  // namespace vitrine
