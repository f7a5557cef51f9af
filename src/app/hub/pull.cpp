#include "hub/pull.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/memory.h"
#include "hub/cache_folder.h"
#include "hub/choose.h"
#include "hub/download.h"
#include "io/folder_lock.h"

namespace vitrine {
namespace {

constexpr uint64_t kSpareBytes = uint64_t{16} << 20;  // for folders, links and what else is being written

void check_revision(const std::string& revision) {
  try {
    check_file_name(revision, "");  // what it becomes in the cache
  } catch (const FileError&) {
    throw InputError("the revision \"" + revision + "\" cannot be one; expected the name of a branch or a tag, or a commit");
  }
}

class Pull {
 public:
  Pull(const PullRequest& request, const HubSettings& settings, const std::function<void(const PullProgress&)>& progress)
      : request_(request),
        client_(settings),
        remote_(client_.repository(request.id, request.revision)),
        chosen_(choose_files(remote_, request.wanted)),
        folder_(settings.cache, request.id),
        progress_(progress) {}

  PullResult run() {
    ChosenFiles& chosen = chosen_;
    if (!request_.only_plan || chosen.index != nullptr) {
      folder_.make();
      lock_.emplace(folder_.path(), remote_.id + " is being pulled by another process; wait for it, or stop it");
    }
    if (chosen.index != nullptr) {
      add(*chosen.index);
      fetch(*chosen.index);
      for (RemoteFile& shard : shards_of_index(remote_, folder_.blob(chosen.index->etag)))
        chosen.files.push_back(std::move(shard));
    }
    for (const RemoteFile& file : chosen.files)
      if (chosen.index == nullptr || file.name != chosen.index->name) add(file);
    const std::string snapshot = folder_.snapshot(remote_.commit);
    result_.path = chosen.gguf.empty() ? snapshot : snapshot + "/" + chosen.gguf;
    if (!chosen.folder.empty())
      result_.path = snapshot + "/" + chosen.folder;
    else if (chosen.files.size() == 1 && !request_.wanted.empty())
      result_.path = snapshot + "/" + chosen.files.front().name;
    if (request_.only_plan) return std::move(result_);
    check_room();
    for (const RemoteFile& file : chosen.files) fetch(file);
    publish(chosen.files);
    return std::move(result_);
  }

 private:
  void add(const RemoteFile& file) {
    const uint64_t there = folder_.has(file) ? file.size : folder_.started(file);
    result_.files.push_back({.name = file.name, .etag = file.etag, .bytes = file.size, .was_there = there});
    shown_.total += file.size - there;
  }

  void check_room() const {
    const uint64_t free = free_bytes(folder_.path());
    const uint64_t needed = result_.fetched() + (result_.fetched() > 0 ? kSpareBytes : 0);
    if (needed <= free) return;
    throw RunError(remote_.id + ": " + bytes_text(static_cast<double>(result_.fetched())) + " are to be fetched, and " +
                   folder_.path() + " has room for " + bytes_text(static_cast<double>(free)) +
                   ". Nothing was fetched. HF_HUB_CACHE names another folder for the cache");
  }

  void fetch(const RemoteFile& file) {
    if (folder_.has(file)) return;
    shown_.file = file.name;
    const uint64_t there = folder_.started(file);
    int64_t here = -static_cast<int64_t>(there);  // of this file in this run
    const uint64_t before = shown_.arrived;
    download(client_, remote_, file, folder_, [&](int64_t bytes) {
      here += bytes;
      shown_.arrived = before + static_cast<uint64_t>(std::max<int64_t>(here, 0));
      if (progress_) progress_(shown_);
    });
  }

  /// config.json comes last: a folder without it is no model.
  void publish(const std::vector<RemoteFile>& files) const {
    for (const bool last : {false, true})
      for (const RemoteFile& file : files)
        if ((file.name == "config.json") == last) folder_.link(remote_.commit, file);
    folder_.note(remote_.revision, remote_.commit);
  }

  const PullRequest& request_;
  HubClient client_;
  const RemoteRepository remote_;
  ChosenFiles chosen_;
  const CacheFolder folder_;
  std::optional<FolderLock> lock_;
  const std::function<void(const PullProgress&)>& progress_;
  PullResult result_{.id = remote_.id, .revision = remote_.revision, .commit = remote_.commit, .path = {}, .files = {}};
  PullProgress shown_;
};

}  // namespace

uint64_t PullResult::bytes() const {
  uint64_t sum = 0;
  for (const PulledFile& file : files) sum += file.bytes;
  return sum;
}

uint64_t PullResult::fetched() const {
  uint64_t sum = 0;
  for (const PulledFile& file : files) sum += file.bytes - file.was_there;
  return sum;
}

PullRequest read_pull_name(const std::string& name, const std::string& revision) {
  const size_t colon = name.find(':');
  PullRequest request{.id = name.substr(0, colon), .wanted = "", .revision = revision, .only_plan = false};
  if (colon != std::string::npos) request.wanted = name.substr(colon + 1);
  if (!is_repository_id(request.id) || (colon != std::string::npos && request.wanted.empty()))
    throw InputError("\"" + name +
                     "\" is not the name of a model on a hub; expected OWNER/NAME, OWNER/NAME:TYPE, OWNER/NAME:FILE or "
                     "OWNER/NAME:FOLDER, such as " +
                     "google/gemma-2-2b or bartowski/gemma-2-2b-it-GGUF:Q4_K_M");
  return request;
}

PullResult pull(const PullRequest& request, const HubSettings& settings,
                const std::function<void(const PullProgress&)>& progress) {
  check_revision(request.revision);
  return Pull(request, settings, progress).run();
}

}  // namespace vitrine
