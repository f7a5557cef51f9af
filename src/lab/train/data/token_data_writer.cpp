#include "train/data/token_data_writer.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/error.h"
#include "base/fnv.h"

namespace vitrine {
namespace {

constexpr size_t kBuffer = size_t{1} << 20;  // a multiple of 8, as the checksum wants

}  // namespace

struct TokenDataWriter::OpenShard {
  explicit OpenShard(const std::string& path) : file(path) { buffer.reserve(kBuffer); }
  AtomicFile file;
  std::vector<std::byte> buffer;  // ids that are not written yet
  uint64_t at = sizeof(ShardHeader), tokens = 0, checksum = 0;
  std::vector<uint64_t> ends;
  std::vector<std::byte> scored;  // bits, of a masked shard
};

TokenDataWriter::TokenDataWriter(std::string dir, const TokenDataKind& kind, uint64_t shard_tokens)
    : dir_(std::move(dir)),
      kind_(kind),
      shard_tokens_(std::max<uint64_t>(shard_tokens, 1)),
      id_bytes_(kind.vocab_size <= 65536 ? 2 : 4),
      lines_checksum_(kFnvOfNothing) {
  VITRINE_CHECK(kind.vocab_size > 0 && kind.vocab_size <= INT32_MAX, "a vocabulary has ids");
}

TokenDataWriter::~TokenDataWriter() = default;

void TokenDataWriter::flush() {
  OpenShard& shard = *shard_;
  shard.buffer.resize((shard.buffer.size() + 7) / 8 * 8);  // zeros; only at the end of a shard there is something to fill
  shard.checksum = word_checksum(shard.checksum, shard.buffer);
  shard.file.write_at(shard.at, shard.buffer);
  shard.at += shard.buffer.size();
  shard.buffer.clear();
}

void TokenDataWriter::add(std::span<const int32_t> ids, uint64_t text_bytes, std::span<const uint8_t> scored) {
  const bool masked = kind_.content != DataContent::text;
  VITRINE_CHECK(scored.empty() || (masked && scored.size() == ids.size()), "a mask has a number for each id of masked data");
  text_bytes_ += text_bytes;
  if (ids.empty()) return;
  if (shard_ == nullptr) {
    names_.push_back(shard_name(names_.size()));
    shard_ = std::make_unique<OpenShard>(dir_ + "/" + names_.back());
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= kind_.vocab_size)
      throw InputError("the tokenizer gave the id " + std::to_string(id) + "; expected one below its vocabulary's size, " +
                       std::to_string(kind_.vocab_size));
    const size_t at = shard_->buffer.size();
    shard_->buffer.resize(at + id_bytes_);
    std::memcpy(shard_->buffer.data() + at, &id, id_bytes_);  // little-endian: the low bytes come first
    if (shard_->buffer.size() == kBuffer) flush();
  }
  if (masked) {
    shard_->scored.resize((shard_->tokens + ids.size() + 7) / 8);
    for (size_t i = 0; i < ids.size(); ++i)
      if (const uint64_t at = shard_->tokens + i; scored.empty() || scored[i] != 0)
        shard_->scored[at / 8] |= std::byte{1} << (at % 8);
  }
  shard_->tokens += ids.size();
  tokens_ += ids.size();
}

void TokenDataWriter::add_line(std::string_view line) {
  VITRINE_CHECK(kind_.content == DataContent::prompts && line.find('\n') == std::string_view::npos, "prompts have lines");
  if (lines_ == nullptr) lines_ = std::make_unique<AtomicFile>(dir_ + "/" + kLinesName);
  const std::string whole = std::string(line) + "\n";
  lines_->write_at(line_bytes_, std::as_bytes(std::span(whole)));
  line_bytes_ += whole.size();
  lines_checksum_ = fnv1a(whole, lines_checksum_);
}

void TokenDataWriter::end_document() {
  if (shard_ == nullptr || shard_->tokens == (shard_->ends.empty() ? 0 : shard_->ends.back())) return;
  shard_->ends.push_back(shard_->tokens);
  ++documents_;
  if (shard_->tokens >= shard_tokens_ && !between_a_pair()) finish_shard();
}

void TokenDataWriter::finish_shard() {
  OpenShard& shard = *shard_;
  flush();
  const std::span<const std::byte> ends = std::as_bytes(std::span(shard.ends));
  shard.checksum = word_checksum(shard.checksum, ends);
  shard.file.write_at(shard.at, ends);
  shard.scored.resize((shard.scored.size() + 7) / 8 * 8);
  shard.checksum = word_checksum(shard.checksum, shard.scored);
  shard.file.write_at(shard.at + ends.size(), shard.scored);
  ShardHeader header{};
  std::memcpy(header.magic, kShardMagic, sizeof header.magic);
  header.id_bytes = id_bytes_;
  header.vocab_size = static_cast<uint32_t>(kind_.vocab_size);
  header.tokens = shard.tokens;
  header.documents = shard.ends.size();
  header.tokenizer = kind_.tokenizer;
  header.checksum = shard.checksum;
  header.masked = kind_.content == DataContent::text ? 0 : 1;
  shard.file.write_at(0, std::as_bytes(std::span(&header, 1)));
  shard.file.finish();
  shard_.reset();
}

void TokenDataWriter::finish() {
  end_document();
  if (shard_ != nullptr) finish_shard();
  if (lines_ != nullptr) lines_->finish();
  const auto hexadecimal = [](uint64_t number) {
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(number));
    return std::string(hex);
  };
  const bool text = kind_.content == DataContent::text;
  nlohmann::ordered_json index = {
      {"format", text ? 1 : 2}, {"vocab_size", kind_.vocab_size}, {"tokenizer", hexadecimal(kind_.tokenizer)},
      {"tokens", tokens_},      {"documents", documents_},        {"text_bytes", text_bytes_},
      {"shards", names_}};
  if (!text) index["content"] = content_name(kind_.content);
  if (kind_.content == DataContent::prompts) index["lines"] = hexadecimal(lines_checksum_);
  write_file_atomically(dir_ + "/" + kIndexName, index.dump(2) + "\n");
}

}  // namespace vitrine
