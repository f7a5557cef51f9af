#include "tokenizer/train_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <exception>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr size_t kSlack = 8;                          // readable beyond a block, for hash_word
constexpr size_t kBlockBytes = size_t{3} << 20;       // read at once
constexpr size_t kPieceBytes = size_t{1} << 20;       // more than that a source seldom gives at once
constexpr size_t kChunkBytes = size_t{256} << 10;     // counted by one thread
constexpr uint64_t kMostMemory = uint64_t{40} << 30;  // by words_memory: within what 32 bits of a place can name
constexpr size_t kLongestBlock = size_t{64} << 20;    // a text without a safe cut is cut anywhere after so many bytes

uint64_t load8(const char* p) {
  uint64_t v = 0;
  std::memcpy(&v, p, 8);
  return v;
}
constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;
uint64_t mix(uint64_t h) {
  h *= kMultiplier;
  return h ^ (h >> 32);
}

bool same(const char* a, const char* b, size_t size) { return std::memcmp(a, b, size) == 0; }

/// The words of one chunk, in a table that fits the core's cache.
class ChunkCounter {
 public:
  void count(const std::vector<std::string_view>& words) {
    found_.clear();
    if (slots_.empty()) slots_.resize(size_t{1} << 14);
    std::fill(slots_.begin(), slots_.end(), 0);
    for (const std::string_view word : words) {
      const uint64_t hash = hash_word(word.data(), word.size());
      size_t slot = hash & (slots_.size() - 1);
      while (slots_[slot] != 0) {
        WordCounts::Found& f = found_[slots_[slot] - 1];
        if (f.hash == hash && f.size == word.size() && same(f.text, word.data(), word.size())) {
          ++f.count;
          break;
        }
        slot = (slot + 1) & (slots_.size() - 1);
      }
      if (slots_[slot] != 0) continue;
      found_.push_back({hash, word.data(), uint32_t(word.size()), 1});
      slots_[slot] = uint32_t(found_.size());
      if (found_.size() * 2 > slots_.size()) grow();
    }
  }
  /// What was found, by shard: `first` has where each shard's part begins, and the end.
  void by_shard(std::vector<WordCounts::Found>& out, std::array<size_t, WordCounts::kShards + 1>& first) const {
    first.fill(0);
    for (const WordCounts::Found& f : found_) ++first[WordCounts::shard_of(f.hash) + 1];
    for (size_t s = 0; s < WordCounts::kShards; ++s) first[s + 1] += first[s];
    out.resize(found_.size());
    auto at = first;
    for (const WordCounts::Found& f : found_) out[at[WordCounts::shard_of(f.hash)]++] = f;
  }

 private:
  void grow() {
    slots_.assign(slots_.size() * 2, 0);
    for (size_t i = 0; i < found_.size(); ++i) {
      size_t slot = found_[i].hash & (slots_.size() - 1);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = uint32_t(i + 1);
    }
  }
  std::vector<WordCounts::Found> found_;
  std::vector<uint32_t> slots_;
};

/// Some megabytes of the stream, cut into units no word crosses.
struct Block {
  std::string bytes;           // and kSlack zeros
  std::vector<size_t> bounds;  // of units: unit u is [bounds[u], bounds[u + 1])
};

/// Cuts the stream into blocks.
class BlockReader {
 public:
  BlockReader(const CorpusSource& source, const WordSplitter& splitter, CountResult& result)
      : source_(source), splitter_(splitter), result_(result) {}

  /// The next block; without units at the end of the stream.
  void read(Block& block) {
    block.bytes.reserve(kBlockBytes + kPieceBytes);  // at once: growing would need up to twice the memory
    block.bytes.assign(carry_);
    block.bounds.assign(1, 0);
    carry_.clear();
    size_t text_begin = 0;  // of the text that is being read, or of its part that is not in a unit yet
    while (!ended_) {
      if (block.bytes.size() >= kBlockBytes) {
        const size_t cut = cut_units(block, text_begin);
        if (cut > 0) {
          carry_.assign(block.bytes, cut);
          block.bytes.resize(cut);
          break;
        }
      }
      CorpusPiece piece;
      if (!source_(piece)) {
        ended_ = true;
        if (open_) end_text(block, text_begin);
        break;
      }
      if (!open_ && !piece.bytes.empty()) {
        block.bytes += splitter_.text_start();
        open_ = true;
      }
      block.bytes += piece.bytes;
      result_.bytes += piece.bytes.size();
      if (piece.ends_text && open_) end_text(block, text_begin);
    }
    block.bytes.append(kSlack, '\0');
  }

 private:
  void end_text(Block& block, size_t& text_begin) {
    open_ = false;
    ++result_.texts;
    add_units(block, text_begin, block.bytes.size());
    text_begin = block.bytes.size();
  }
  /// Makes units of text[begin, end), which ends at a safe place.
  void add_units(Block& block, size_t begin, size_t end) {
    const std::string_view bytes = std::string_view(block.bytes).substr(0, end);
    while (end - begin > 2 * kChunkBytes) {
      const size_t cut = splitter_.safe_cut(bytes, begin, begin + kChunkBytes);
      if (cut == 0) break;
      block.bounds.push_back(cut);
      begin = cut;
    }
    if (end > begin) block.bounds.push_back(end);
  }
  /// Makes units of as much of a full block as can be cut off; returns where they end, 0 to read on.
  size_t cut_units(Block& block, size_t text_begin) {
    size_t end = text_begin;
    if (open_ && block.bytes.size() > text_begin) {
      end = splitter_.safe_cut(block.bytes, text_begin, block.bytes.size());
      if (end == 0 && text_begin == 0) {
        if (block.bytes.size() < kLongestBlock) return 0;
        end = block.bytes.size();
        while (end > block.bytes.size() - 4 && (static_cast<unsigned char>(block.bytes[end - 1]) & 0xC0) == 0x80) --end;
        if (static_cast<unsigned char>(block.bytes[end - 1]) >= 0xC0) --end;  // not inside a character
      } else if (end == 0) {
        end = text_begin;
      }
      add_units(block, text_begin, end);
    }
    return end;
  }

  const CorpusSource& source_;
  const WordSplitter& splitter_;
  CountResult& result_;
  std::string carry_;
  bool open_ = false, ended_ = false;
};

}  // namespace

uint64_t hash_word(const char* text, size_t size) {
  uint64_t h = size * 0xA24BAED4963EE407;
  for (; size > 8; text += 8, size -= 8) h = mix(h ^ load8(text));
  const uint64_t rest = load8(text);
  h = mix(h ^ (size == 8 ? rest : rest & ((uint64_t{1} << (8 * size)) - 1)));
  return h * 0xD6E8FEB86659FD93;
}

uint64_t words_memory(size_t words, size_t text_bytes) { return uint64_t{48} * words + uint64_t{24} * text_bytes; }

void WordCounts::Shard::grow() {
  slots.assign(std::max<size_t>(256, slots.size() * 2), 0);
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string_view word = entries[i].word();
    size_t slot = hash_word(word.data(), word.size()) & (slots.size() - 1);
    while (slots[slot] != 0) slot = (slot + 1) & (slots.size() - 1);
    slots[slot] = uint32_t(i + 1);
  }
}

void WordCounts::Shard::append(const char* word, uint32_t size, uint64_t count) {
  const size_t taken = sizeof size + size;
  if (taken + kReadable > left) {
    left = std::max(kChunk, taken + kReadable);
    next = chunks.emplace_back(std::make_unique<char[]>(left)).get();
  }
  std::memcpy(next, &size, sizeof size);
  std::memcpy(next + sizeof size, word, size);
  entries.push_back({count, next});
  next += taken;
  left -= taken;
  text_bytes += size;
}

void WordCounts::add(size_t shard, const Found* found, size_t count) {
  Shard& s = shards_[shard];
  for (const Found* f = found; f != found + count; ++f) {
    if (s.entries.size() * 4 >= s.slots.size() * 3) s.grow();
    size_t slot = f->hash & (s.slots.size() - 1);
    for (; s.slots[slot] != 0; slot = (slot + 1) & (s.slots.size() - 1)) {
      Entry& e = s.entries[s.slots[slot] - 1];
      if (e.word() == std::string_view(f->text, f->size)) {
        e.count += f->count;
        break;
      }
    }
    if (s.slots[slot] != 0) continue;
    s.append(f->text, f->size, f->count);
    s.slots[slot] = uint32_t(s.entries.size());
  }
}

void WordCounts::prune(uint64_t count) {
  for (Shard& s : shards_) {
    Shard kept;
    for (const Entry& e : s.entries)
      if (e.count > count) kept.append(e.word().data(), uint32_t(e.word().size()), e.count);
    kept.slots.resize(std::bit_ceil(std::max<size_t>(128, kept.entries.size() * 2)) / 2);
    kept.grow();
    s = std::move(kept);
  }
}

size_t WordCounts::size() const {
  size_t n = 0;
  for (const Shard& s : shards_) n += s.entries.size();
  return n;
}

size_t WordCounts::text_bytes() const {
  size_t n = 0;
  for (const Shard& s : shards_) n += s.text_bytes;
  return n;
}

std::vector<WordCounts::Word> WordCounts::by_count() const {
  std::vector<Word> words;
  words.reserve(size());
  for (const Shard& s : shards_)
    for (const Entry& e : s.entries) words.push_back({e.word(), e.count});
  std::sort(words.begin(), words.end(),
            [](const Word& a, const Word& b) { return a.count != b.count ? a.count > b.count : a.text < b.text; });
  return words;
}

CountResult count_words(const CorpusSource& source, const WordSplitter& splitter, ThreadPool& pool, const CountOptions& options) {
  CountResult result;
  BlockReader reader(source, splitter, result);
  struct Chunk {
    std::vector<WordCounts::Found> found;
    std::array<size_t, WordCounts::kShards + 1> first{};
    size_t first_unit = 0, last_unit = 0, words = 0;
  };
  struct Worker {
    std::vector<std::string_view> words;
    ChunkCounter counter;
  };
  std::vector<Worker> workers(size_t(pool.threads()));
  std::vector<Chunk> chunks;
  Block block, next;
  reader.read(block);
  while (block.bounds.size() > 1) {
    size_t count = 0;
    for (size_t unit = 0; unit + 1 < block.bounds.size(); ++count) {
      if (chunks.size() == count) chunks.emplace_back();
      Chunk& chunk = chunks[count];
      chunk.first_unit = unit++;
      const size_t begin = block.bounds[chunk.first_unit];
      while (unit + 1 < block.bounds.size() && block.bounds[unit + 1] - begin <= kChunkBytes) ++unit;
      chunk.last_unit = unit;
    }
    std::exception_ptr failure;  // the pool's chunks must not throw
    pool.run(int64_t(count) + 1, [&](int64_t i, int thread) {
      if (i == 0) {  // one of them reads ahead while the others count
        try {
          reader.read(next);
        } catch (...) {
          failure = std::current_exception();
        }
        return;
      }
      Chunk& chunk = chunks[size_t(i) - 1];
      Worker& worker = workers[size_t(thread)];
      worker.words.clear();
      for (size_t u = chunk.first_unit; u < chunk.last_unit; ++u)
        splitter.split(block.bytes.data() + block.bounds[u], block.bounds[u + 1] - block.bounds[u], worker.words);
      chunk.words = worker.words.size();
      worker.counter.count(worker.words);
      worker.counter.by_shard(chunk.found, chunk.first);
    });
    if (failure) std::rethrow_exception(failure);
    pool.run(WordCounts::kShards, [&](int64_t s, int) {
      for (size_t c = 0; c < count; ++c) {
        const Chunk& chunk = chunks[c];
        result.words.add(size_t(s), chunk.found.data() + chunk.first[size_t(s)],
                         chunk.first[size_t(s) + 1] - chunk.first[size_t(s)]);
      }
    });
    for (size_t c = 0; c < count; ++c) result.total_words += chunks[c].words;
    const auto takes_more_than = [&](uint64_t bytes) {
      return words_memory(result.words.size(), result.words.text_bytes()) > bytes;
    };
    const uint64_t most = std::min(options.memory_bytes, kMostMemory);
    if (takes_more_than(most)) {
      const size_t before = result.words.size();
      while (takes_more_than(most / 2) && result.words.size() > 0) result.words.prune(++result.pruned_below);
      result.pruned_words += before - result.words.size();
      if (result.words.size() == 0)
        throw InputError(fmt::format("{} MiB do not hold the words of {} MiB of text; allow more memory.",
                                     options.memory_bytes >> 20, (block.bytes.size() >> 20) + 1));
    }
    std::swap(block, next);
  }
  if (result.pruned_below > 0) ++result.pruned_below;
  return result;
}

}  // namespace vitrine
