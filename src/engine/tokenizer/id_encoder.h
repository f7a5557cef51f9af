#pragma once
// From a text straight to ids. Where the words that a model sees can be told from the text as it is written, nothing is
// rewritten: a word is looked up by its own bytes, and only one that has not been seen yet goes through the model.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/id_cache.h"
#include "tokenizer/model.h"

namespace vitrine {

/// How a pipeline turns text into words.
enum class RawWords {
  unknown,     // in a way of its own
  byte_level,  // words of GPT-2's pattern, in its alphabet of bytes
  marked,      // the whole text, each space written as the model's word marker
};

/// Works for one call of encode() and in one thread. The model, the texts and what the threads share must outlive it.
class IdEncoder {
 public:
  /// `words` is not unknown; if it is `marked`, the model has pair_cuts().
  IdEncoder(const WordModel& model, RawWords words, SharedIds& shared) : model_(model), words_(words), cache_(shared) {}

  /// Appends the ids of `text`, which is valid UTF-8.
  void encode(std::string_view text, std::vector<int32_t>& out);

  /// A place at or before `limit`, and after `from`, where the text may be cut without changing its ids; 0: there is none.
  static size_t safe_cut(const WordModel& model, RawWords words, std::string_view text, size_t from, size_t limit);

 private:
  void encode_part(std::string_view part, std::string_view whole);
  void merge(std::string_view word, IdList& ids);

  const WordModel& model_;
  RawWords words_;
  IdCache cache_;
  IdList ids_;  // of a part of the text, small enough to stay near the processor
  ModelScratch scratch_;
  std::vector<WordToken> tokens_;
  std::string spelled_;
  std::vector<uint64_t> starts_;
};

/// Appends the ids of the spans of a text that is valid UTF-8, those of added tokens as they are; with a pool, on its threads.
void encode_spans(const WordModel& model, RawWords words, std::string_view text, std::span<const AddedSpan> spans,
                  ThreadPool* pool, std::vector<int32_t>& out);

}  // namespace vitrine
