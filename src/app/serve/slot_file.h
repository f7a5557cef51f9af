#pragma once
// The file of a slot: keys and values of a text's tokens, from which a prompt that begins like it goes on, in another run of the
// server too. Numbers are little-endian, each part is filled up with zeros to whole 8 bytes:
//   "vitrine slot 1\n" and a zero
//   uint64   fingerprint of the model (model/fingerprint.h)
//   uint64   bytes of the scope, bytes of the settings, tokens, tokens of the prompt, the least length to go back to
//   the scope, the settings, int32 for each token
//   for each layer its blocks of kKeyBlock positions, keys then values of all heads as the cache has them; then its state
//   uint64   word_checksum (base/checksum.h) of all that
// A layer with a window has the blocks that the least length needs, another one all.
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "io/atomic_file.h"
#include "schedule/kept_sequences.h"

namespace vitrine::serve {

/// What a file and the server that reads it must have in common.
struct SlotOrigin {
  uint64_t model = 0;    // fingerprint
  std::string settings;  // of the cache and the numerics
  std::string scope;     // Work::prefix_scope: whose it is
};

/// Part of a layer's memory in a sequence.
struct CachePart {
  enum class Kind : uint8_t { keys, values, state };
  Kind kind;
  int layer;
  int64_t block;
  size_t bytes;
};
/// Those that a sequence of `length` tokens has in its file.
std::vector<CachePart> parts_of(std::span<const CacheLayer> layers, int64_t length, int64_t least);

/// Writes a sequence in pieces. All but the constructor belongs to the scheduler's thread, the last of the object too.
class SlotWriter {
 public:
  /// What came of it, for the thread that waits.
  struct Written {
    size_t tokens = 0;
    uint64_t bytes = 0;
  };
  /// `file` and `written` must outlive the work.
  SlotWriter(AtomicFile& file, Written& written, SlotOrigin origin, std::vector<int32_t> tokens, int64_t prompt)
      : file_(file), written_(written), origin_(std::move(origin)), tokens_(std::move(tokens)), prompt_(prompt) {}

  /// Writes some more of what is kept for a text that begins with the tokens; false at the end, when the file may be finished.
  /// Errors: InputError if nothing of it is kept; as AtomicFile.
  bool next(const KeptSequences& kept);

 private:
  void begin(const KeptSequences& kept);
  void write(std::span<const std::byte> bytes);
  void write_padded(std::span<const std::byte> bytes);

  AtomicFile& file_;
  Written& written_;
  const SlotOrigin origin_;
  std::vector<int32_t> tokens_;
  const int64_t prompt_;
  CacheSequence sequence_;
  std::vector<CachePart> parts_;
  size_t part_ = 0;
  uint64_t checksum_ = 0;
};

/// Reads one. Likewise, but for the constructor and what is const.
class SlotReader {
 public:
  /// Errors: InputError naming what is wrong with the file: that it is none of a slot, that it is another model's, another's or
  /// of other settings, that a number in it is out of range, that it is too short or too long.
  SlotReader(const std::string& path, const std::string& name, const SlotOrigin& origin, const Engine& engine, int64_t positions);

  const std::vector<int32_t>& tokens() const { return tokens_; }
  int64_t prompt() const { return prompt_; }
  uint64_t bytes() const { return bytes_; }

  /// Reads some more; false at the end, when the sequence is kept. Errors: InputError for a wrong checksum, a file that ends
  /// early, and without room in the cache.
  bool next(const KeptSequences& kept);

 private:
  [[noreturn]] void fail(const std::string& what) const;
  void read(std::span<std::byte> bytes);
  std::string read_padded(uint64_t bytes);
  void begin(const KeptSequences& kept);
  void keep(const KeptSequences& kept);

  const std::string name_, scope_;
  std::ifstream file_;
  std::vector<int32_t> tokens_;
  int64_t prompt_ = 0, least_ = 0;
  uint64_t bytes_ = 0, checksum_ = 0;
  std::vector<CachePart> parts_;
  size_t part_ = 0;
  bool begun_ = false;
  CacheSequence sequence_;
};

}  // namespace vitrine::serve
