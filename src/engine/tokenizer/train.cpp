#include "tokenizer/train.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/plural.h"
#include "tokenizer/train_kinds.h"

namespace vitrine {

void require_vocab_size(int64_t vocab_size, size_t fixed, const std::string& what) {
  if (vocab_size >= int64_t(fixed)) return;
  throw InputError(fmt::format("a vocabulary of {} is too small: {} make {} pieces before the first merge. Ask for {} or more.",
                               vocab_size, what, fixed, fixed));
}

TrainedTokenizer train_tokenizer(const CorpusSource& source, const TrainTokenizerOptions& options, ThreadPool& pool) {
  TrainedTokenizer trained;
  trained.options = options;
  const bool bytes = options.kind == TokenizerKind::byte_bpe;
  std::vector<SentencePieceSpec::Piece> meta;
  if (!bytes) meta = meta_pieces(options);
  const auto splitter = bytes ? gpt2_splitter() : line_splitter(options, meta);
  CountResult counted = count_words(source, *splitter, pool, {options.memory_bytes});
  trained.texts = counted.texts;
  trained.bytes = counted.bytes;
  trained.words = counted.total_words;
  trained.distinct_words = counted.words.size();
  trained.pruned_words = counted.pruned_words;
  trained.pruned_below = counted.pruned_below;
  if (counted.words.size() == 0)
    throw InputError(fmt::format("there is no word in {} of text; name files that hold some.", plural(counted.bytes, "byte")));
  if (bytes)
    train_byte_bpe(std::move(counted.words), trained);
  else
    train_sentencepiece_bpe(std::move(counted.words), std::move(meta), trained);
  return trained;
}

}  // namespace vitrine
