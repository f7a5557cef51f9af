#pragma once
// Tokenized text on disk, mapped: shards of token ids with the borders of their documents (docs/token-data.md has the
// format). Written once by TokenDataWriter, read in place.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace vitrine {

/// What the documents of token data are.
enum class DataContent : uint8_t {
  text,           // every token is scored
  conversations,  // a document is a conversation, of which the assistant's tokens are scored
  preferences,    // two documents are a pair: a prompt with the chosen answer, and with the rejected one; the answers are scored
  prompts,        // a document is a prompt, whose answer is the model's own; nothing is scored, and its line is kept
  unpaired,       // a document is a prompt with an answer, which is scored, and has a label: whether the answer is desirable
};
/// As index.json has it: "text", "conversations", "preferences", "prompts", "unpaired preferences".
const char* content_name(DataContent content);

/// The first bytes of a shard; little-endian. Then come the ids, zeros up to a multiple of 8 bytes, and for each document the
/// number of ids up to its end, as u64. A masked shard ends with a bit for each id, the lowest bit of a byte first: whether it is
/// scored; then zeros up to a multiple of 8 bytes. Of unpaired preferences, the bit of a document's first id, which nothing
/// predicts, is the document's label.
struct ShardHeader {
  char magic[8];        // "VITRTOK1"
  uint32_t id_bytes;    // 2 if vocab_size is at most 65536, else 4
  uint32_t vocab_size;  // ids are below it
  uint64_t tokens;      // in this shard
  uint64_t documents;
  uint64_t tokenizer;  // fingerprint, as TokenData::tokenizer
  uint64_t checksum;   // of everything after the header, by word_checksum (base/checksum.h)
  uint64_t masked;     // 1: it has bits; 0: it has none
  uint64_t reserved;   // 0
};
static_assert(sizeof(ShardHeader) == 64);
inline constexpr char kShardMagic[] = "VITRTOK1";
inline constexpr char kIndexName[] = "index.json";
inline constexpr char kLinesName[] = "lines.jsonl";  // of prompts: the line that each document was made from

/// The name of the shard with that number: "00000.tokens".
std::string shard_name(size_t number);

/// A whole corpus as one row of token ids, cut into documents. Copies share the maps; safe to read from many threads.
class TokenData {
 public:
  /// Opens a folder that TokenDataWriter made. Reads headers and borders, no ids.
  /// Errors: FileError naming file and field for anything missing, truncated or contradictory.
  static TokenData open(const std::string& dir);

  uint64_t tokens() const { return tokens_; }
  uint64_t documents() const { return documents_; }
  uint64_t text_bytes() const { return text_bytes_; }  // UTF-8 bytes of the text the ids stand for
  DataContent content() const { return content_; }
  /// Whether only some of the tokens are scored.
  bool masked() const { return content_ != DataContent::text; }
  int64_t vocab_size() const { return vocab_size_; }
  uint64_t tokenizer() const { return tokenizer_; }  // tokenizer_fingerprint() of the one that made the ids
  /// Two corpora of the same tokens in the same documents and shards share it.
  uint64_t checksum() const { return checksum_; }
  const std::string& path() const { return path_; }

  /// Copies ids [first, first + out.size()), which must lie within tokens().
  /// Errors: FileError naming shard, token and byte for an id that is not below vocab_size().
  void read(uint64_t first, std::span<int32_t> out) const;

  /// Which of the ids [first, first + out.size()) are scored: 1 or 0. All of them unless masked().
  void read_scored(uint64_t first, std::span<uint8_t> out) const;

  /// The line of JSON that a prompt was made from.
  std::string_view line(uint64_t document) const;

  /// Of unpaired preferences, the label of the document that begins at this id.
  bool desirable(uint64_t start) const;

  /// The places in [first, end) at which a document begins, in order.
  std::vector<uint64_t> document_starts(uint64_t first, uint64_t end) const;

  /// Reads everything. Errors: FileError for a checksum that does not fit, and as read().
  void verify() const;

 private:
  struct Shard {
    MappedFile file;
    uint64_t first_token = 0, tokens = 0, checksum = 0;
    const std::byte* ids = nullptr;
    std::span<const uint64_t> ends;     // of documents, counted from the shard's first token
    const std::byte* scored = nullptr;  // bits; null: not masked
  };
  static Shard open_shard(const std::string& path, const TokenData& expected);
  size_t shard_of(uint64_t token) const;
  void read_bits(uint64_t first, std::span<uint8_t> out) const;
  [[noreturn]] void refuse_id(const Shard& shard, uint64_t token, uint32_t id) const;

  void open_lines(uint64_t checksum, const std::string& where);

  std::string path_;
  std::vector<std::shared_ptr<const Shard>> shards_;
  std::shared_ptr<const MappedFile> lines_;  // of prompts; null: there are none
  std::vector<uint64_t> line_starts_;        // in its bytes, and their end
  uint64_t lines_checksum_ = 0;
  uint64_t tokens_ = 0, documents_ = 0, text_bytes_ = 0, tokenizer_ = 0, checksum_ = 0;
  int64_t vocab_size_ = 0;
  DataContent content_ = DataContent::text;
  uint32_t id_bytes_ = 2;
};

}  // namespace vitrine
