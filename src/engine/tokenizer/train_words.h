#pragma once
// Counts the words of a stream of texts, in blocks that all threads share. What comes out does not depend on their number:
// a block is cut by its bytes, and counts are sums.
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"

namespace vitrine {

/// A stream of texts (files, documents) in pieces of any size.
struct CorpusPiece {
  std::string_view bytes;  // valid until the next call
  bool ends_text = false;  // the next piece begins a new text: no word goes across
};
/// Gives the next piece; false: there is no more. Called from one thread at a time, but not always the same.
using CorpusSource = std::function<bool(CorpusPiece&)>;

/// How texts become words.
class WordSplitter {
 public:
  virtual ~WordSplitter() = default;
  /// Written in front of every text, for splitters that want one.
  virtual std::string_view text_start() const { return {}; }
  /// A place in (from, limit] where a text may be cut without changing its words; 0: none.
  virtual size_t safe_cut(std::string_view text, size_t from, size_t limit) const = 0;
  /// Appends the words of a text, or of what lies between two safe cuts, to `words`. It may change the text.
  /// `text` is followed by at least 8 readable bytes.
  virtual void split(char* text, size_t size, std::vector<std::string_view>& words) const = 0;
};

/// Words and how often each came.
class WordCounts {
 public:
  struct Word {
    std::string_view text;
    uint64_t count;
  };
  struct Found {  // by one chunk of a block
    uint64_t hash;
    const char* text;
    uint32_t size, count;
  };
  static constexpr size_t kShards = 16;
  static size_t shard_of(uint64_t hash) { return size_t(hash >> 60); }

  WordCounts() : shards_(kShards) {}
  /// Adds to the words of one shard. Different shards may be added to at once. Errors: none; memory may end.
  void add(size_t shard, const Found* found, size_t count);
  /// Leaves out every word that came no more than `count` times.
  void prune(uint64_t count);
  /// How many words there are, and the bytes of their spelling.
  size_t size() const;
  size_t text_bytes() const;
  /// All words, the most frequent first; equal counts by their bytes. Valid until words are added or left out.
  std::vector<Word> by_count() const;

 private:
  /// A word in chunks that stay where they are: arrays that grow would leave holes as large as what they hold.
  struct Entry {
    uint64_t count;
    const char* spelled;  // the word's size in 4 bytes, its text, and kReadable more bytes
    std::string_view word() const {
      uint32_t size = 0;
      std::memcpy(&size, spelled, sizeof size);
      return {spelled + sizeof size, size};
    }
  };
  struct Shard {
    std::vector<std::unique_ptr<char[]>> chunks;
    char* next = nullptr;  // in the last chunk, and how many bytes are left there
    size_t left = 0;
    size_t text_bytes = 0;  // of all words
    std::deque<Entry> entries;
    std::vector<uint32_t> slots;  // a power of two; entry + 1, 0 for none
    void grow();
    void append(const char* word, uint32_t size, uint64_t count);
  };
  static constexpr size_t kReadable = 8;  // for hash_word
  static constexpr size_t kChunk = size_t{16} << 10;
  std::vector<Shard> shards_;
};

/// A hash of at most 2^32 bytes; eight bytes beyond the text must be readable.
uint64_t hash_word(const char* text, size_t size);

struct CountOptions {
  uint64_t memory_bytes = uint64_t{1} << 30;  // for words and what training makes of them (an estimate, see words_memory)
};
struct CountResult {
  WordCounts words;
  uint64_t texts = 0, bytes = 0, total_words = 0;
  uint64_t pruned_words = 0, pruned_below = 0;  // words left out because memory_bytes was reached, all below this count
};

/// An estimate of what training on these words takes, in bytes.
uint64_t words_memory(size_t words, size_t text_bytes);

/// Reads all of `source`. When the words outgrow `memory_bytes`, the rarest are left out until half of it is free; a word that
/// comes back starts from nothing, so counts of rare words may then be too low.
/// Errors: what the source throws; InputError if memory_bytes does not hold one block's words.
CountResult count_words(const CorpusSource& source, const WordSplitter& splitter, ThreadPool& pool, const CountOptions& options);

}  // namespace vitrine
