#pragma once
// A model from the hub into the cache.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hub/client.h"

namespace vitrine {

struct PullRequest {
  std::string id;                 // OWNER/NAME
  std::string wanted;             // empty: what a run needs; else a file, a folder or a type of GGUF weights
  std::string revision = "main";  // a branch, a tag or a commit
  bool only_plan = false;         // fetch nothing but what tells which files there are
};

/// "OWNER/NAME:WANTED" as a request. Errors: InputError for what is no id.
PullRequest read_pull_name(const std::string& name, const std::string& revision);

struct PulledFile {
  std::string name, etag;
  uint64_t bytes = 0;
  uint64_t was_there = 0;  // of them, before this run
};

struct PullResult {
  std::string id, revision, commit;
  std::string path;  // what --model opens: the snapshot's folder, or the GGUF file; or the folder that was wanted
  std::vector<PulledFile> files;

  uint64_t bytes() const;
  uint64_t fetched() const;  // in this run, or still to be fetched if it was only planned
};

struct PullProgress {
  uint64_t arrived = 0, total = 0;  // bytes of this run
  std::string file;
};

/// Fetches what is missing, one file after the other. The snapshot gets its names, and the revision its commit, when all contents
/// are there and their hashes are right; so a pull that was stopped leaves no half model.
/// Errors: InputError and RunError as HubClient, choose_files and download; RunError, before anything is fetched, if the disk has
/// no room; UsageError if another pull works on the repository.
PullResult pull(const PullRequest& request, const HubSettings& settings,
                const std::function<void(const PullProgress&)>& progress = {});

}  // namespace vitrine
