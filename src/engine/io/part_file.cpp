#include "io/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "io/descriptor.h"

namespace vitrine {
namespace {

constexpr char kMagic[8] = {'v', 'i', 't', 'r', 'p', 'a', 'r', '1'};
constexpr uint64_t kEnd = UINT64_MAX;  // the number of the record that ends a part
constexpr const char* kAdvice = ". Remove it, and run its shard again";

// What stands before a record's bytes. The file's own record, the first, has the number of the magic and the identity as bytes.
struct RecordHead {
  uint64_t number = 0, key = 0, bytes = 0, checksum = 0;
};
static_assert(sizeof(RecordHead) == 32);

uint64_t padded(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

uint64_t magic_number() {
  uint64_t number = 0;
  std::memcpy(&number, kMagic, sizeof number);
  return number;
}

// Not that of zeros for zeros, which a file has where its disk lost power.
uint64_t checksum_of(const RecordHead& head, std::span<const std::byte> padded_bytes) {
  const auto fields = std::as_bytes(std::span(&head, 1)).first(offsetof(RecordHead, checksum));
  return word_checksum(word_checksum(magic_number(), fields), padded_bytes);
}

std::vector<std::byte> record(uint64_t number, uint64_t key, std::span<const std::byte> bytes) {
  RecordHead head{number, key, bytes.size(), 0};
  std::vector<std::byte> all(sizeof head + padded(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), all.begin() + sizeof head);
  head.checksum = checksum_of(head, std::span(all).subspan(sizeof head));
  std::memcpy(all.data(), &head, sizeof head);
  return all;
}

using Entries = std::vector<std::pair<std::string, std::string>>;

OrderedJson json_of_entries(const Entries& entries) {
  OrderedJson list = OrderedJson::array();
  for (const auto& [name, value] : entries) list.push_back({name, value});
  return list;
}

Entries entries_of(const Json& list) {
  Entries entries;
  for (const Json& one : list) entries.emplace_back(one.at(0).get<std::string>(), one.at(1).get<std::string>());
  return entries;
}

std::string first_text(const WorkShard& shard, const WorkIdentity& identity) {
  return OrderedJson{{"shard", shard.index},
                     {"of", shard.count},
                     {"made_from", json_of_entries(identity.made_from)},
                     {"machine", json_of_entries(identity.machine)}}
      .dump();
}

const std::string* find(const Entries& entries, const std::string& name) {
  for (const auto& [key, value] : entries)
    if (key == name) return &value;
  return nullptr;
}

// "--context 64", "no --context".
std::string said(const std::string& name, const std::string* value) {
  return value == nullptr ? "no " + name : name + " " + *value;
}

// Reads records one after the other.
class Records {
 public:
  explicit Records(std::span<const std::byte> file) : file_(file) {}
  uint64_t at() const { return at_; }
  bool at_end() const { return at_ == file_.size(); }
  // False, and why, where the next is not whole.
  bool next(RecordHead& head, std::span<const std::byte>& bytes, std::string& why) {
    const uint64_t left = file_.size() - at_;
    if (left < sizeof head) return why = "ends inside a record", false;
    std::memcpy(&head, file_.data() + at_, sizeof head);
    if (head.bytes > left - sizeof head || padded(head.bytes) > left - sizeof head)
      return why = "has a record of " + std::to_string(head.bytes) + " bytes, and " + std::to_string(left - sizeof head) +
                   " follow",
             false;
    const auto content = file_.subspan(at_ + sizeof head, padded(head.bytes));
    if (checksum_of(head, content) != head.checksum) return why = "has a record that does not fit its checksum", false;
    bytes = content.first(head.bytes);
    at_ += sizeof head + content.size();
    return true;
  }

 private:
  std::span<const std::byte> file_;
  uint64_t at_ = 0;
};

// Whether a part has no more than a piece of its first record, or zeros in its place, as a power failure leaves them.
bool unbegun(const std::string& path, std::span<const std::byte> first) {
  const MappedFile file = MappedFile::open(path);
  const std::span<const std::byte> bytes = file.bytes(), head = bytes.first(std::min(bytes.size(), sizeof(RecordHead)));
  if (std::ranges::all_of(head, [](std::byte b) { return b == std::byte{0}; })) return true;
  return bytes.size() < first.size() && std::ranges::equal(bytes, first.first(bytes.size()));
}

}  // namespace

void WorkTotal::add(uint64_t key) {
  ++units;
  keys = word_checksum(keys, std::as_bytes(std::span(&key, 1)));
}

std::string part_path(const std::string& folder, const WorkShard& shard) {
  char name[64];
  std::snprintf(name, sizeof name, "part-%05lld-of-%05lld", static_cast<long long>(shard.index),
                static_cast<long long>(shard.count));
  return (std::filesystem::path(folder) / name).string();
}

std::optional<WorkShard> part_named(const std::string& file) {
  constexpr std::string_view kBegin = "part-", kBetween = "-of-";
  const size_t between = file.find(kBetween);
  if (!file.starts_with(kBegin) || between == std::string::npos) return {};
  WorkShard shard;
  const char *const end = file.data() + file.size(), *const middle = file.data() + between;
  const auto index = std::from_chars(file.data() + kBegin.size(), middle, shard.index);
  const auto count = std::from_chars(middle + kBetween.size(), end, shard.count);
  const bool numbers = index.ec == std::errc() && index.ptr == middle && count.ec == std::errc() && count.ptr == end;
  if (!numbers || shard.count > WorkShard::kMost || shard.index < 0 || shard.index >= shard.count) return {};
  if (part_path("", shard) != file) return {};
  return shard;
}

PartFile PartFile::open(const std::string& path, bool complete) {
  PartFile part;
  part.path_ = path;
  part.file_ = MappedFile::open(path);
  Records records(part.file_.bytes());
  const auto damaged = [&](const std::string& why) {
    return FileError(path, "is damaged: byte " + std::to_string(records.at()) + " " + why + kAdvice);
  };
  RecordHead head;
  std::span<const std::byte> bytes;
  std::string why;
  if (!records.next(head, bytes, why)) throw damaged(why);
  if (head.number != magic_number()) throw FileError(path, std::string("is no part file of --shard") + kAdvice);
  try {
    const Json first = parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
    part.shard_ = {first.at("shard").get<int64_t>(), first.at("of").get<int64_t>()};
    part.identity_ = {entries_of(first.at("made_from")), entries_of(first.at("machine"))};
  } catch (const Json::exception& error) {
    throw damaged(std::string("begins a part: ") + error.what());
  }
  if (part.shard_.count < 1 || part.shard_.count > WorkShard::kMost || part.shard_.index < 0 ||
      part.shard_.index >= part.shard_.count)
    throw damaged("begins with shard " + std::to_string(part.shard_.index) + " of " + std::to_string(part.shard_.count));
  const auto index = static_cast<uint64_t>(part.shard_.index), count = static_cast<uint64_t>(part.shard_.count);
  bool ended = false;
  part.whole_ = records.at();
  while (!records.at_end()) {
    if (ended) throw damaged("comes after the end");
    if (!records.next(head, bytes, why)) {
      if (complete) throw damaged(why);
      return part;
    }
    if (head.number == kEnd) {
      UnitBytes end(bytes, path);
      end.value(part.total_.units);
      end.value(part.total_.keys);
      end.require_end();
      ended = true;
      continue;
    }
    if (const uint64_t unit = index + part.units_.size() * count; head.number != unit)
      throw damaged("ends a record of unit " + std::to_string(head.number) + "; expected " + std::to_string(unit));
    part.units_.push_back({head.number, head.key, bytes});
    part.whole_ = records.at();
  }
  if (!complete) return part;
  if (!ended) throw damaged("is the end of the file; expected more units");
  uint64_t expected = 0;
  if (part.total_.units > index) expected = (part.total_.units - index + count - 1) / count;
  if (part.units_.size() != expected)
    throw damaged("ends " + std::to_string(part.units_.size()) + " units; expected " + std::to_string(expected));
  return part;
}

void PartFile::require_shard(const WorkShard& shard) const {
  if (shard_.index != shard.index || shard_.count != shard.count)
    throw FileError(path_, "holds shard " + std::to_string(shard_.index) + "/" + std::to_string(shard_.count) +
                               "; give it its own name back");
}

void PartFile::require_identity(const WorkIdentity& other, const std::string& of_other, bool machines) const {
  const auto compare = [&](const Entries& mine, const Entries& theirs, const std::string& advice) {
    const auto refuse = [&](const std::string& name) {
      throw InputError(path_ + ": was made with " + said(name, find(mine, name)) + ", " + of_other + " with " +
                       said(name, find(theirs, name)) + advice);
    };
    for (const auto& [name, value] : theirs)
      if (const std::string* here = find(mine, name); here == nullptr || *here != value) refuse(name);
    for (const auto& [name, value] : mine)
      if (find(theirs, name) == nullptr) refuse(name);
  };
  compare(identity_.made_from, other.made_from, ". Use the same command line for all parts and to join them, or another folder");
  if (machines)
    compare(identity_.machine, other.machine,
            ". Machines of several kinds round differently: set VITRINE_TARGET to kernels that all of them have, and run the "
            "shards again");
}

PartWriter::PartWriter(const std::string& path, const WorkShard& shard, const WorkIdentity& identity) : path_(path) {
  try {
    lock();
    const std::string text = first_text(shard, identity);
    const std::vector<std::byte> first = record(magic_number(), 0, std::as_bytes(std::span(text)));
    if (!unbegun(unfinished(), first)) {
      const PartFile begun = PartFile::open(unfinished(), /*complete=*/false);
      begun.require_shard(shard);
      begun.require_identity(identity, "this command line", /*machines=*/true);
      for (const PartFile::Unit& unit : begun.units()) units_.emplace_back(unit.number, unit.key);
      at_ = begun.whole_bytes();
    }
    if (::ftruncate(fd_, static_cast<off_t>(at_)) != 0) fail("cannot be cut");
    if (at_ == 0) append(first);
  } catch (...) {
    if (fd_ >= 0) ::close(fd_);
    throw;
  }
}

void PartWriter::lock() {
  const std::string name = unfinished();
  while (true) {
    fd_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) fail("cannot be written");
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)  // some file systems have no locks
      throw UsageError(path_ + ": another process computes this shard. Wait for it, or end it");
    struct stat here{}, named{};
    if (::fstat(fd_, &here) != 0) fail("cannot be read");
    if (::stat(name.c_str(), &named) == 0 && here.st_ino == named.st_ino && here.st_dev == named.st_dev) return;
    ::close(std::exchange(fd_, -1));  // who held it gave it its name, or removed it
  }
}

PartWriter::~PartWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void PartWriter::fail(const std::string& what) const {
  throw RunError(path_ + ": " + what + ": " + std::strerror(errno) +
                 ". The same command goes on after the last unit that is there");
}

void PartWriter::append(std::span<const std::byte> bytes) {
  const uint64_t end = at_ + bytes.size();
  at_ = write_at(fd_, at_, bytes);
  if (at_ != end) fail("cannot be written at byte " + std::to_string(at_));
}

void PartWriter::add(uint64_t number, uint64_t key, std::span<const std::byte> bytes) {
  append(record(number, key, bytes));
  units_.emplace_back(number, key);
}

void PartWriter::finish(const WorkTotal& total) {
  const uint64_t numbers[] = {total.units, total.keys};
  append(record(kEnd, 0, std::as_bytes(std::span(numbers))));
  if (::fsync(fd_) != 0) fail("cannot be written to the disk");
  if (::rename(unfinished().c_str(), path_.c_str()) != 0) fail("cannot be put in place");
  ::close(std::exchange(fd_, -1));
  sync_folder_of(path_);
}

}  // namespace vitrine
