#include "serve/slot_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "kernels/narrow.h"

namespace vitrine::serve {
namespace {

static_assert(std::endian::native == std::endian::little, "files of slots are written as memory has them");

constexpr char kMagic[16] = "vitrine slot 1\n";
constexpr auto kPage = static_cast<int64_t>(kKeyBlock);
constexpr size_t kOfAPiece = size_t{16} << 20;  // bytes between two steps of the streams
constexpr uint64_t kMostText = 4096;            // bytes of the scope and of the settings

struct SlotHead {
  char magic[16] = {};
  uint64_t model = 0, scope_bytes = 0, settings_bytes = 0, tokens = 0, prompt = 0, least = 0;
};
static_assert(sizeof(SlotHead) == 64);

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

std::byte* place_of(const CacheSequence& sequence, const CachePart& part, bool to_write) {
  switch (part.kind) {
    case CachePart::Kind::keys: return sequence.keys(part.layer, part.block, 0);
    case CachePart::Kind::values: return sequence.values(part.layer, part.block, 0);
    case CachePart::Kind::state: break;
  }
  const float* const state = to_write ? sequence.next_state(part.layer) : sequence.state(part.layer);
  return reinterpret_cast<std::byte*>(const_cast<float*>(state));
}

// The least length above 0 to which the sequence can go back; what it can go back to, it can to all between.
int64_t least_length(const CacheSequence& sequence) {
  int64_t low = 1, high = sequence.length();
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (sequence.can_go_back(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

std::span<const std::byte> memory_of(const auto& values) { return std::as_bytes(std::span(values.data(), values.size())); }

}  // namespace

std::vector<CachePart> parts_of(std::span<const CacheLayer> layers, int64_t length, int64_t least) {
  std::vector<CachePart> parts;
  for (size_t i = 0; i < layers.size(); ++i) {
    const CacheLayer& layer = layers[i];
    const auto add = [&](CachePart::Kind kind, int64_t block, size_t bytes) {
      if (bytes > 0) parts.push_back({kind, static_cast<int>(i), block, bytes});
    };
    if (layer.n_kv_heads > 0) {
      const auto heads = static_cast<size_t>(layer.n_kv_heads);
      const int64_t first = layer.window == kNoWindow ? 0 : std::max<int64_t>(0, least - layer.window + 1);
      for (int64_t block = first / kPage; block * kPage < length; ++block) {
        add(CachePart::Kind::keys, block, heads * key_block_bytes(layer));
        add(CachePart::Kind::values, block, heads * value_block_bytes(layer));
      }
    }
    add(CachePart::Kind::state, 0, padded(static_cast<size_t>(layer.state) * sizeof(float)));
  }
  return parts;
}

bool SlotWriter::next(const KeptSequences& kept) try {
  if (parts_.empty()) begin(kept);
  for (size_t done = 0; part_ < parts_.size() && done < kOfAPiece; ++part_) {
    const CachePart& part = parts_[part_];
    write({place_of(sequence_, part, false), part.bytes});
    done += part.bytes;
  }
  if (part_ < parts_.size()) return true;
  sequence_ = {};
  const uint64_t checksum = checksum_;
  write(std::as_bytes(std::span(&checksum, 1)));
  return false;
} catch (...) {
  sequence_ = {};
  throw;
}

void SlotWriter::begin(const KeptSequences& kept) {
  PrefixCache::Found found = kept.prefixes.find(tokens_, prompt_, {{}, origin_.scope});
  if (found.length == 0)
    throw InputError("nothing is kept of the text of this slot: it had fewer than 8 tokens, or its memory was needed");
  sequence_ = std::move(found.sequence);
  tokens_.resize(static_cast<size_t>(found.length));
  written_.tokens = tokens_.size();
  const int64_t least = least_length(sequence_);
  parts_ = parts_of(kept.engine.model().cache_layers(kept.engine.decoding_types()), found.length, least);
  SlotHead head{.model = origin_.model,
                .scope_bytes = origin_.scope.size(),
                .settings_bytes = origin_.settings.size(),
                .tokens = tokens_.size(),
                .prompt = static_cast<uint64_t>(sequence_.begun()),
                .least = static_cast<uint64_t>(least)};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  write(std::as_bytes(std::span(&head, 1)));
  write_padded(memory_of(origin_.scope));
  write_padded(memory_of(origin_.settings));
  write_padded(memory_of(tokens_));
}

void SlotWriter::write(std::span<const std::byte> bytes) {
  file_.write_at(written_.bytes, bytes);
  written_.bytes += bytes.size();
  checksum_ = word_checksum(checksum_, bytes);
}

void SlotWriter::write_padded(std::span<const std::byte> bytes) {
  std::vector<std::byte> whole(bytes.begin(), bytes.end());
  whole.resize(padded(whole.size()));
  write(whole);
}

SlotReader::SlotReader(const std::string& path, const std::string& name, const SlotOrigin& origin, const Engine& engine,
                       int64_t positions)
    : name_(name), scope_(origin.scope) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) fail("is not here; save a slot under this name first");
  file_.open(path, std::ios::binary);
  bytes_ = std::filesystem::file_size(path, none);
  if (!file_ || none) fail("cannot be read");
  SlotHead head;
  if (bytes_ < sizeof head) fail("is shorter than the head of a slot's file");
  read(std::as_writable_bytes(std::span(&head, 1)));
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) fail("is not a slot file of this version");
  if (head.scope_bytes > kMostText || head.settings_bytes > kMostText) fail("has a head that is out of range");
  if (bytes_ < sizeof head + padded(head.scope_bytes) + padded(head.settings_bytes)) fail("is too short");
  if (read_padded(head.scope_bytes) != origin.scope)
    fail("belongs to another key or address, or to another cache_salt, and only its owner may restore it");
  if (head.model != origin.model) fail("was saved with another model");
  if (const std::string settings = read_padded(head.settings_bytes); settings != origin.settings)
    fail("was saved with the settings " + settings + ", and this server runs with " + origin.settings);
  if (head.tokens < 1 || head.tokens > static_cast<uint64_t>(positions))
    fail(fmt::format("has {} tokens, and a sequence holds 1 to {} here", head.tokens, positions));
  if (head.least < 1 || head.least > head.tokens || head.prompt > static_cast<uint64_t>(positions))
    fail("has a head that is out of range");
  prompt_ = static_cast<int64_t>(head.prompt);
  least_ = static_cast<int64_t>(head.least);
  parts_ = parts_of(engine.model().cache_layers(engine.decoding_types()), static_cast<int64_t>(head.tokens), least_);
  uint64_t expected = sizeof head + padded(head.scope_bytes) + padded(head.settings_bytes) +
                      padded(head.tokens * sizeof(int32_t)) + sizeof checksum_;
  for (const CachePart& part : parts_) expected += part.bytes;
  if (bytes_ != expected) fail(fmt::format("has {} bytes, and its head promises {}", bytes_, expected));
  const std::string ids = read_padded(head.tokens * sizeof(int32_t));
  tokens_.resize(head.tokens);
  std::memcpy(tokens_.data(), ids.data(), ids.size());
  for (const int32_t id : tokens_)
    if (id < 0 || id >= engine.shape().vocab_size) fail(fmt::format("has the token {}, which the model does not", id));
}

bool SlotReader::next(const KeptSequences& kept) try {
  if (!begun_) begin(kept);
  for (size_t done = 0; part_ < parts_.size() && done < kOfAPiece; ++part_) {
    const CachePart& part = parts_[part_];
    read({place_of(sequence_, part, true), part.bytes});
    done += part.bytes;
  }
  if (part_ < parts_.size()) return true;
  keep(kept);
  return false;
} catch (...) {
  sequence_ = {};
  throw;
}

// Makes the pages; the last of the steps counts when they are filled.
void SlotReader::begin(const KeptSequences& kept) {
  begun_ = true;
  const int64_t length = std::ssize(tokens_);
  if (const size_t bytes = kept.cache.bytes_for(length); !kept.make_room(bytes))
    fail("needs " + bytes_text(static_cast<double>(bytes)) +
         " of the cache, which running texts hold; try again later, or start the server with a larger --cache-mb");
  sequence_ = kept.cache.sequence();
  sequence_.begin(prompt_);
  while (length - sequence_.length() > kept.cache.largest_step()) {
    sequence_.reserve(kept.cache.largest_step());
    sequence_.commit(kept.cache.largest_step());
  }
  sequence_.reserve(length - sequence_.length());
}

void SlotReader::keep(const KeptSequences& kept) {
  const uint64_t sum = checksum_;
  uint64_t stored = 0;
  read(std::as_writable_bytes(std::span(&stored, 1)));
  if (stored != sum) fail("is damaged: its checksum is wrong");
  sequence_.commit(std::ssize(tokens_) - sequence_.length());
  // Its windows hold no more than the file had: a larger ring must not be taken for a full one.
  int64_t more = 0;
  const int64_t most = std::min(kept.cache.largest_step(), kept.cache.context() - sequence_.length());
  while (least_ > 1 && sequence_.can_go_back(least_ - 1, more)) {
    if (++more > most) fail("has fewer positions of its windows than this server keeps; save it with the same --context");
  }
  if (more > 0) sequence_.reserve(more);
  kept.prefixes.keep(tokens_, std::exchange(sequence_, {}), {{}, scope_});
}

void SlotReader::read(std::span<std::byte> bytes) {
  if (!file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()))) fail("ends early");
  checksum_ = word_checksum(checksum_, bytes);
}

std::string SlotReader::read_padded(uint64_t bytes) {
  std::string text(padded(bytes), '\0');
  read(std::as_writable_bytes(std::span(text.data(), text.size())));
  text.resize(bytes);
  return text;
}

void SlotReader::fail(const std::string& what) const { throw InputError("the file \"" + name_ + "\" " + what); }

}  // namespace vitrine::serve
