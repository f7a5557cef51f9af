#include "train/data/token_data.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "base/checksum.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/json.h"

namespace vitrine {
namespace {

constexpr uint64_t kMostTokens = uint64_t{1} << 48;  // sums and products of such counts do not overflow

// A field of index.json. Errors name the file and the field.
const Json& field(const Json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) throw FileError(where, std::string("has no field \"") + name + "\". Was it made by `vitrine data`?");
  return *found;
}

uint64_t count(const Json& object, const char* name, uint64_t most, const std::string& where) {
  const Json& value = field(object, name, where);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > most)
    throw FileError(where, std::string("\"") + name + "\" is " + value.dump() + "; expected a whole number of at most " +
                               std::to_string(most));
  return value.get<uint64_t>();
}

std::string text(const Json& object, const char* name, const std::string& where) {
  const Json& value = field(object, name, where);
  if (!value.is_string()) throw FileError(where, std::string("\"") + name + "\" is " + value.dump() + "; expected a string");
  return value.get<std::string>();
}

uint64_t hexadecimal_in(const Json& object, const char* name, const std::string& where) {
  const std::string hex = text(object, name, where);
  uint64_t value = 0;
  if (const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
      error != std::errc() || end != hex.data() + hex.size())
    throw FileError(where, std::string("\"") + name + "\" is \"" + hex + "\"; expected up to 16 hexadecimal digits");
  return value;
}

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

}  // namespace

const char* content_name(DataContent content) {
  constexpr const char* kNames[] = {"text", "conversations", "preferences", "prompts", "unpaired preferences"};
  return kNames[static_cast<size_t>(content)];
}

std::string shard_name(size_t number) {
  char name[32];
  std::snprintf(name, sizeof name, "%05zu.tokens", number);
  return name;
}

TokenData::Shard TokenData::open_shard(const std::string& path, const TokenData& expected) {
  Shard shard;
  shard.file = MappedFile::open(path);
  const std::span<const std::byte> bytes = shard.file.bytes();
  ShardHeader header;
  if (bytes.size() < sizeof header)
    throw FileError(path,
                    "has " + std::to_string(bytes.size()) + " bytes; a shard's header alone has 64. Was it copied completely?");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kShardMagic, 8) != 0)
    throw FileError(path, std::string("does not begin with ") + kShardMagic + "; it is no shard of token data");
  const auto differs = [&](const char* name, uint64_t found, uint64_t wanted) {
    throw FileError(path, std::string(name) + " is " + std::to_string(found) + " in the header; expected " +
                              std::to_string(wanted) + " from index.json. Do these files come from the same run?");
  };
  if (header.id_bytes != expected.id_bytes_) differs("id_bytes", header.id_bytes, expected.id_bytes_);
  if (header.vocab_size != expected.vocab_size_)
    differs("vocab_size", header.vocab_size, static_cast<uint64_t>(expected.vocab_size_));
  if (header.tokenizer != expected.tokenizer_) differs("tokenizer", header.tokenizer, expected.tokenizer_);
  if (header.masked != (expected.masked() ? 1 : 0)) differs("masked", header.masked, expected.masked() ? 1 : 0);
  if (header.tokens > kMostTokens || header.documents > header.tokens)
    throw FileError(path, "the header claims " + std::to_string(header.tokens) + " tokens in " +
                              std::to_string(header.documents) + " documents, which cannot be");
  const uint64_t id_bytes = padded(header.tokens * header.id_bytes), unmasked = sizeof header + id_bytes + header.documents * 8,
                 size = unmasked + (expected.masked() ? padded((header.tokens + 7) / 8) : 0);
  if (bytes.size() != size)
    throw FileError(path, "has " + std::to_string(bytes.size()) + " bytes; expected " + std::to_string(size) + " for " +
                              std::to_string(header.tokens) + " tokens in " + std::to_string(header.documents) +
                              " documents. Was it copied completely?");
  shard.tokens = header.tokens;
  shard.checksum = header.checksum;
  shard.ids = bytes.data() + sizeof header;
  shard.ends = {reinterpret_cast<const uint64_t*>(shard.ids + id_bytes), header.documents};  // a map begins at a page
  if (expected.masked()) shard.scored = bytes.data() + unmasked;
  uint64_t before = 0;
  for (size_t i = 0; i < shard.ends.size(); before = shard.ends[i++])
    if (shard.ends[i] <= before || shard.ends[i] > shard.tokens)
      throw FileError(path, "document " + std::to_string(i) + " ends at token " + std::to_string(shard.ends[i]) +
                                "; expected more than " + std::to_string(before) + " and at most " +
                                std::to_string(shard.tokens));
  if (before != shard.tokens)
    throw FileError(path, "its documents end at token " + std::to_string(before) + "; expected " + std::to_string(shard.tokens));
  return shard;
}

TokenData TokenData::open(const std::string& dir) {
  TokenData data;
  data.path_ = dir;
  const std::string where = dir + "/" + kIndexName;
  const Json index = read_json(where);
  if (!index.is_object()) throw FileError(where, "is no JSON object. Was it made by `vitrine data`?");
  const uint64_t format = count(index, "format", UINT64_MAX, where);
  if (format != 1 && format != 2)
    throw FileError(where, "\"format\" is " + std::to_string(format) + "; this version reads 1 and 2");
  if (format == 2) {  // masked
    const std::string content = text(index, "content", where);
    for (const DataContent one :
         {DataContent::conversations, DataContent::preferences, DataContent::prompts, DataContent::unpaired})
      if (content == content_name(one)) data.content_ = one;
    if (!data.masked())
      throw FileError(where, "\"content\" is \"" + content +
                                 "\"; expected \"conversations\", \"preferences\", \"prompts\" or \"unpaired preferences\"");
  }
  data.vocab_size_ = static_cast<int64_t>(count(index, "vocab_size", INT32_MAX, where));
  data.id_bytes_ = data.vocab_size_ <= 65536 ? 2 : 4;
  data.text_bytes_ = count(index, "text_bytes", UINT64_MAX, where);
  data.tokenizer_ = hexadecimal_in(index, "tokenizer", where);
  const Json& shards = field(index, "shards", where);
  if (!shards.is_array()) throw FileError(where, "\"shards\" is no list");
  size_t number = 0;
  for (const Json& entry : shards) {
    const std::string name = shard_name(number++);
    if (entry != name) throw FileError(where, "\"shards\" holds " + entry.dump() + "; expected \"" + name + "\"");
    Shard shard = open_shard(dir + "/" + name, data);
    shard.first_token = data.tokens_;
    data.tokens_ += shard.tokens;
    data.checksum_ = (data.checksum_ ^ shard.checksum) * 0x100000001b3u;
    data.documents_ += shard.ends.size();
    if (data.tokens_ > kMostTokens) throw FileError(where, "the shards hold more tokens than can be");
    if (shard.tokens > 0) data.shards_.push_back(std::make_shared<const Shard>(std::move(shard)));
  }
  const auto agree = [&](const char* name, uint64_t found) {
    if (const uint64_t wanted = count(index, name, kMostTokens, where); wanted != found)
      throw FileError(
          where, std::string("\"") + name + "\" is " + std::to_string(wanted) + ", and the shards hold " + std::to_string(found));
  };
  agree("tokens", data.tokens_);
  agree("documents", data.documents_);
  if (data.content_ == DataContent::preferences && data.documents_ % 2 != 0)
    throw FileError(where, "holds " + std::to_string(data.documents_) + " documents; preferences come in pairs");
  if (data.content_ == DataContent::prompts) data.open_lines(hexadecimal_in(index, "lines", where), dir + "/" + kLinesName);
  return data;
}

void TokenData::open_lines(uint64_t checksum, const std::string& where) {
  lines_ = std::make_shared<const MappedFile>(MappedFile::open(where));
  const std::span<const std::byte> bytes = lines_->bytes();
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  line_starts_.push_back(0);
  for (size_t at = all.find('\n'); at != std::string_view::npos; at = all.find('\n', at + 1)) line_starts_.push_back(at + 1);
  if (line_starts_.back() != all.size() || line_starts_.size() - 1 != documents_)
    throw FileError(where, "has " + std::to_string(line_starts_.size() - 1) + " lines" +
                               (line_starts_.back() != all.size() ? " and an unfinished one" : "") + "; expected " +
                               std::to_string(documents_) + ", one for each prompt. Was it copied completely?");
  lines_checksum_ = checksum;
  checksum_ = (checksum_ ^ checksum) * 0x100000001b3u;
}

std::string_view TokenData::line(uint64_t document) const {
  VITRINE_CHECK(lines_ != nullptr && document < documents_, "prompts have lines");
  const uint64_t first = line_starts_[document], end = line_starts_[document + 1] - 1;
  return {reinterpret_cast<const char*>(lines_->bytes().data()) + first, end - first};
}

size_t TokenData::shard_of(uint64_t token) const {
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), token,
                                      [](uint64_t place, const auto& shard) { return place < shard->first_token; });
  return static_cast<size_t>(after - shards_.begin()) - 1;
}

void TokenData::refuse_id(const Shard& shard, uint64_t token, uint32_t id) const {
  throw FileError(shard.file.path(), "token " + std::to_string(token) + " (byte " +
                                         std::to_string(sizeof(ShardHeader) + token * id_bytes_) + ") is " + std::to_string(id) +
                                         "; expected less than " + std::to_string(vocab_size_) +
                                         ", the header's vocab_size. The file is damaged: make the token data again");
}

void TokenData::read(uint64_t first, std::span<int32_t> out) const {
  VITRINE_CHECK(first <= tokens_ && out.size() <= tokens_ - first, "tokens are read where there are some");
  if (out.empty()) return;
  for (size_t number = shard_of(first), done = 0; done < out.size(); ++number) {
    const Shard& shard = *shards_[number];
    const uint64_t begin = first + done - shard.first_token;
    const size_t n = std::min<uint64_t>(out.size() - done, shard.tokens - begin);
    for (size_t i = 0; i < n; ++i) {
      uint32_t id = 0;
      std::memcpy(&id, shard.ids + (begin + i) * id_bytes_, id_bytes_);
      if (id >= static_cast<uint64_t>(vocab_size_)) refuse_id(shard, begin + i, id);
      out[done + i] = static_cast<int32_t>(id);
    }
    done += n;
  }
}

void TokenData::read_scored(uint64_t first, std::span<uint8_t> out) const {
  VITRINE_CHECK(first <= tokens_ && out.size() <= tokens_ - first, "tokens are read where there are some");
  if (!masked()) std::fill(out.begin(), out.end(), uint8_t{1});
  if (!masked() || out.empty()) return;
  read_bits(first, out);
  if (content_ != DataContent::unpaired) return;
  for (const uint64_t label : document_starts(first, first + out.size())) out[label - first] = 0;
}

bool TokenData::desirable(uint64_t start) const {
  VITRINE_CHECK(content_ == DataContent::unpaired && start < tokens_, "unpaired preferences have labels");
  uint8_t bit = 0;
  read_bits(start, {&bit, 1});
  return bit != 0;
}

void TokenData::read_bits(uint64_t first, std::span<uint8_t> out) const {
  for (size_t number = shard_of(first), done = 0; done < out.size(); ++number) {
    const Shard& shard = *shards_[number];
    const uint64_t begin = first + done - shard.first_token;
    const size_t n = std::min<uint64_t>(out.size() - done, shard.tokens - begin);
    for (size_t i = 0; i < n; ++i)
      out[done + i] = (std::to_integer<unsigned>(shard.scored[(begin + i) / 8]) >> ((begin + i) % 8)) & 1;
    done += n;
  }
}

std::vector<uint64_t> TokenData::document_starts(uint64_t first, uint64_t end) const {
  std::vector<uint64_t> starts;
  if (first >= std::min(end, tokens_)) return starts;
  for (size_t number = shard_of(first); number < shards_.size() && shards_[number]->first_token < end; ++number) {
    const Shard& shard = *shards_[number];
    if (shard.first_token >= first) starts.push_back(shard.first_token);
    // Every end but a shard's last is the next document's start.
    const uint64_t local = first > shard.first_token ? first - shard.first_token : 0;
    for (auto at = std::lower_bound(shard.ends.begin(), shard.ends.end(), local);
         at != shard.ends.end() && *at < shard.tokens && shard.first_token + *at < end; ++at)
      starts.push_back(shard.first_token + *at);
  }
  return starts;
}

void TokenData::verify() const {
  if (lines_ != nullptr && fnv1a(lines_->bytes()) != lines_checksum_)
    throw FileError(lines_->path(), "its content does not fit the checksum in " + std::string(kIndexName) +
                                        ". The file is damaged: make the token data again");
  std::vector<int32_t> ids(size_t{1} << 16);
  for (const auto& shard : shards_) {
    ShardHeader header;
    const std::span<const std::byte> bytes = shard->file.bytes();
    std::memcpy(&header, bytes.data(), sizeof header);
    for (uint64_t token = 0; token < shard->tokens; token += ids.size())
      read(shard->first_token + token, std::span(ids).first(std::min<uint64_t>(ids.size(), shard->tokens - token)));
    if (word_checksum(0, bytes.subspan(sizeof header)) != header.checksum)
      throw FileError(shard->file.path(),
                      "its content does not fit the header's checksum. The file is damaged: make the token data again");
  }
}

}  // namespace vitrine
