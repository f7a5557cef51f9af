#pragma once
// Writes the shards that TokenData reads.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/atomic_file.h"
#include "train/data/token_data.h"

namespace vitrine {

/// What the ids are.
struct TokenDataKind {
  int64_t vocab_size = 0;  // 1 to 2^31 - 1
  uint64_t tokenizer = 0;  // tokenizer_fingerprint()
  DataContent content = DataContent::text;
};

/// Adds documents one after the other to a folder that exists. Nothing but complete, synced shards is ever there, and the
/// index that makes them token data comes last. Memory: a buffer, and 8 bytes for each document of a shard, and a bit
/// for each id of a masked one.
class TokenDataWriter {
 public:
  /// shard_tokens: a shard that has as many ends with its document. Errors: RunError from the disk.
  TokenDataWriter(std::string dir, const TokenDataKind& kind, uint64_t shard_tokens = kShardTokens);
  ~TokenDataWriter();

  /// Ids of the current document, which stand for `text_bytes` of text. `scored`: one number for each id, 0 or 1; empty: all are
  /// scored. Content other than text alone has any that are not.
  /// Errors: InputError for an id outside the vocabulary; RunError from the disk.
  void add(std::span<const int32_t> ids, uint64_t text_bytes, std::span<const uint8_t> scored = {});
  /// The line of JSON that the running document, a prompt, was made from; once for each. Errors: RunError from the disk.
  void add_line(std::string_view line);
  /// The next id begins another document. A document without an id is none.
  void end_document();
  /// Ends the last document, and writes the index. Errors: RunError from the disk.
  void finish();

  uint64_t tokens() const { return tokens_; }
  uint64_t documents() const { return documents_; }
  uint64_t text_bytes() const { return text_bytes_; }

  static constexpr uint64_t kShardTokens = uint64_t{1} << 27;  // 256 MiB of 16-bit ids

 private:
  struct OpenShard;
  void flush();
  void finish_shard();
  bool between_a_pair() const { return kind_.content == DataContent::preferences && documents_ % 2 == 1; }

  std::string dir_;
  TokenDataKind kind_;
  uint64_t shard_tokens_;
  uint32_t id_bytes_;
  std::unique_ptr<OpenShard> shard_;
  std::vector<std::string> names_;
  std::unique_ptr<AtomicFile> lines_;  // of prompts
  uint64_t line_bytes_ = 0, lines_checksum_;
  uint64_t tokens_ = 0, documents_ = 0, text_bytes_ = 0;
};

}  // namespace vitrine
