#include "io/shared_work.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

// "1/4, 3/4 and 5 more"
std::string shards_text(const std::vector<WorkShard>& shards) {
  constexpr size_t kNamed = 20;
  std::string text;
  for (size_t i = 0; i < std::min(shards.size(), kNamed); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(shards[i].index) + "/" + std::to_string(shards[i].count);
  return shards.size() > kNamed ? text + " and " + std::to_string(shards.size() - kNamed) + " more" : text;
}

// The complete parts in a folder, in order of their names. Errors: InputError for a folder that cannot be read.
std::vector<WorkShard> shards_in(const std::string& folder) {
  std::error_code error;
  std::vector<WorkShard> shards;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error))
    if (const auto shard = part_named(entries->path().filename().string())) shards.push_back(*shard);
  if (error) throw InputError(folder + ": cannot be read: " + error.message() + ". Name the folder of the parts");
  std::sort(shards.begin(), shards.end(),
            [](const WorkShard& a, const WorkShard& b) { return std::pair(a.count, a.index) < std::pair(b.count, b.index); });
  return shards;
}

PartFile open_part(const std::string& folder, const WorkShard& shard) {
  PartFile part = PartFile::open(part_path(folder, shard), /*complete=*/true);
  part.require_shard(shard);
  return part;
}

}  // namespace

SharedWork SharedWork::shard(const std::string& folder, const WorkShard& shard, const WorkIdentity& identity) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw InputError(folder + ": cannot be made: " + error.message() + ". Name a folder that you may write to");
  for (const WorkShard& other : shards_in(folder))
    if (other.count != shard.count)
      throw InputError(folder + ": holds shard " + shards_text({other}) + ", and this is " + shards_text({shard}) +
                       ". Divide by the same number, or name another folder");
  SharedWork work;
  work.shard_ = shard;
  work.path_ = part_path(folder, shard);
  if (!fs::exists(work.path_, error)) {
    work.writer_ = std::make_unique<PartWriter>(work.path_, shard, identity);
    if (fs::exists(work.path_, error)) {  // another process has completed it meanwhile
      fs::remove(work.writer_->unfinished(), error);
      work.writer_.reset();
    }
  }
  if (work.writer_ == nullptr) {
    work.found_ = open_part(folder, shard);
    work.found_->require_identity(identity, "this command line", /*machines=*/false);
    for (const PartFile::Unit& unit : work.found_->units()) work.begun_.emplace_back(unit.number, unit.key);
  } else {
    work.begun_ = work.writer_->units();
  }
  return work;
}

SharedWork SharedWork::join(const std::string& folder, const WorkIdentity& identity) {
  const std::vector<WorkShard> shards = shards_in(folder);
  if (shards.empty()) throw InputError(folder + ": holds no complete part; run the command with --shard for each of them first");
  const int64_t count = shards.front().count;
  if (shards.back().count != count)
    throw InputError(folder + ": holds parts of several divisions, " + shards_text({shards.front(), shards.back()}) +
                     ". Remove those of one, or give each its own folder");
  std::vector<WorkShard> missing;
  for (int64_t i = 0; i < count; ++i) {
    const WorkShard wanted{i, count};
    std::error_code ignored;  // a part that cannot be looked at is told when it is opened
    if (!fs::exists(part_path(folder, wanted), ignored) && !ignored) missing.push_back(wanted);
  }
  if (!missing.empty())
    throw InputError(folder + ": shards " + shards_text(missing) + " are missing. Run the command with --shard for them");
  SharedWork work;
  work.shard_.count = count;
  for (const WorkShard& shard : shards) {
    work.parts_.push_back(open_part(folder, shard));
    const PartFile &part = work.parts_.back(), &first = work.parts_.front();
    part.require_identity(identity, "this command line", /*machines=*/false);
    part.require_identity(first.identity(), first.path(), /*machines=*/true);
    if (part.total() != first.total())
      throw InputError(part.path() + ": was made from another text than " + first.path() + ". Run all shards on the same text");
  }
  return work;
}

void SharedWork::require_key(uint64_t number, uint64_t key, uint64_t expected, const std::string& path) const {
  if (key != expected)
    throw InputError(path + ": was made from another text: its unit " + std::to_string(number) +
                     " has another input. Give the text of the parts, or remove them and run the shards again");
}

SharedWork::Turn SharedWork::next(uint64_t key) {
  const uint64_t number = total_.units;
  total_.add(key);
  if (joins()) {
    const PartFile& part = parts_[number % parts_.size()];
    const size_t at = number / parts_.size();
    if (at >= part.units().size())
      throw InputError(part.path() + ": was made from a shorter text: it ends before unit " + std::to_string(number) +
                       ". Give the text of the parts, or remove them and run the shards again");
    require_key(number, key, part.units()[at].key, part.path());
    return Turn::read;
  }
  if (path_.empty()) return Turn::compute;
  if (!shard_.has(number)) return Turn::skip;
  if (found_units_ < begun_.size()) {
    require_key(number, key, begun_[found_units_].second, found_ ? path_ : writer_->unfinished());
    ++found_units_;
    return Turn::skip;
  }
  if (found_)
    throw InputError(path_ + ": was made from a shorter text. Remove it and run the shard again, or name another folder");
  return Turn::compute;
}

std::pair<std::span<const std::byte>, std::string> SharedWork::stored(uint64_t number) const {
  const PartFile& part = parts_[number % parts_.size()];
  return {part.units()[number / parts_.size()].bytes, part.path() + " unit " + std::to_string(number)};
}

void SharedWork::finish() {
  if (std::exchange(finished_, true)) return;
  if (writer_ != nullptr) {
    if (found_units_ < begun_.size())
      throw InputError(writer_->unfinished() + ": was made from a longer text. Remove it, or name another folder");
    return writer_->finish(total_);
  }
  for (const PartFile& part : parts_)
    if (part.total() != total_)
      throw InputError(part.path() + ": was made from another text, of " + std::to_string(part.total().units) +
                       " units; here are " + std::to_string(total_.units) + ". Give the text of the parts");
  if (found_ && found_->total() != total_)
    throw InputError(path_ + ": was made from another text. Remove it and run the shard again, or name another folder");
}

}  // namespace vitrine
