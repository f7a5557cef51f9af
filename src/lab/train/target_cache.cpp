#include "train/target_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "train/data/token_data.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
constexpr uint64_t kCacheFormat = 1;

std::string cause() { return std::strerror(errno); }

uint64_t checksum_of(uint64_t sequence, std::span<const std::byte> content) {
  return std::max<uint64_t>(1, word_checksum(sequence + 1, content));
}

void check_identity(const std::string& folder, const Json& identity, const std::string& where) {
  const std::string index = folder + "/" + kIndexName;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw InputError(where + ": " + folder + " cannot be made: " + error.message());
  if (!present(index)) {
    const std::vector<std::string> there = names_in(folder);
    if (std::any_of(there.begin(), there.end(), [](const std::string& name) { return !is_or_becomes(name, kIndexName); }))
      throw InputError(where + ": " + folder + " holds other things and no " + kIndexName + ". Name a new folder");
    return write_file_atomically(index, identity.dump(2) + "\n");
  }
  const Json found = read_json(index, 1 << 20);
  for (const auto& [key, value] : identity.items())
    if (!found.is_object() || !found.contains(key) || found.at(key) != value)
      throw InputError(where + ": " + folder + " was computed for something else: " + key + " is " +
                       (found.is_object() && found.contains(key) ? found.at(key).dump() : "unknown") + " there and " +
                       value.dump() + " in this run. Set it back, or name another folder");
}

}  // namespace

TargetCache::TargetCache(const std::string& folder, const Json& identity, int64_t sequence_length, int64_t k,
                         const std::string& where)
    : where_(where), path_(folder + "/targets.bin"), rows_(static_cast<size_t>(sequence_length)), k_(static_cast<size_t>(k)) {
  Json whole = identity;
  whole["format"] = kCacheFormat;
  whole["sequence_length"] = sequence_length;
  whole["top_k"] = k;
  check_identity(folder, whole, where);
  record_.resize(record_bytes());
  file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (file_ < 0) throw InputError(where + ": " + path_ + " cannot be opened: " + cause());
}

TargetCache::~TargetCache() {
  if (file_ >= 0) ::close(file_);
}

size_t TargetCache::record_bytes() const { return 8 + (rows_ * (2 * k_ + 1) * 4 + 7) / 8 * 8; }

bool TargetCache::read(uint64_t sequence, TopTokens& to) {
  size_t got = 0;
  while (got < record_.size()) {
    const ssize_t n =
        ::pread(file_, record_.data() + got, record_.size() - got, static_cast<off_t>(sequence * record_.size() + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw RunError(path_ + ": cannot be read: " + cause());
    if (n == 0) return false;  // the file ends before it
    got += static_cast<size_t>(n);
  }
  uint64_t checksum = 0;
  std::memcpy(&checksum, record_.data(), sizeof checksum);
  if (checksum == 0 || checksum != checksum_of(sequence, std::span(record_).subspan(8))) return false;
  const size_t tokens = to.tokens.size(), logprobs = to.logprobs.size();
  to.k = static_cast<int64_t>(k_);
  to.tokens.resize(tokens + rows_ * k_);
  to.logprobs.resize(logprobs + rows_ * (k_ + 1));
  std::memcpy(to.tokens.data() + tokens, record_.data() + 8, rows_ * k_ * 4);
  std::memcpy(to.logprobs.data() + logprobs, record_.data() + 8 + rows_ * k_ * 4, rows_ * (k_ + 1) * 4);
  return true;
}

void TargetCache::write(uint64_t sequence, const TopTokens& from, size_t first) {
  std::fill(record_.begin(), record_.end(), std::byte{0});
  std::memcpy(record_.data() + 8, from.tokens.data() + first * k_, rows_ * k_ * 4);
  std::memcpy(record_.data() + 8 + rows_ * k_ * 4, from.logprobs.data() + first * (k_ + 1), rows_ * (k_ + 1) * 4);
  const uint64_t checksum = checksum_of(sequence, std::span(record_).subspan(8));
  std::memcpy(record_.data(), &checksum, sizeof checksum);
  for (size_t put = 0; put < record_.size();) {
    const ssize_t n =
        ::pwrite(file_, record_.data() + put, record_.size() - put, static_cast<off_t>(sequence * record_.size() + put));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw RunError(path_ + ": cannot be written: " + cause() +
                     ". Free some space and continue with --resume; what was stored before is intact");
    put += static_cast<size_t>(n);
  }
}

void TargetCache::check_space(uint64_t sequences) const {
  struct stat info{};
  std::error_code error;
  const fs::space_info space = fs::space(path_, error);
  if (error || ::fstat(file_, &info) != 0) return;  // the disk will say so itself
  const double wanted = static_cast<double>(sequences) * static_cast<double>(record_.size()),
               there = static_cast<double>(info.st_blocks) * 512;
  if (wanted - there > static_cast<double>(space.available))
    throw InputError(where_ + ": the teacher's " + std::to_string(k_) + " most likely tokens for " + std::to_string(sequences) +
                     " sequences take " + bytes_text(wanted) + ", and the disk has " +
                     bytes_text(static_cast<double>(space.available)) + " left. Lower top_k, or name a folder on another disk");
}

}  // namespace vitrine
