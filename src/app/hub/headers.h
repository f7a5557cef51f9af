#pragma once
// What a model of the hub is, from the beginnings of its files.
#include <cstdint>
#include <string>

#include "hub/pull.h"
#include "io/temporary_folder.h"

namespace vitrine {

/// A folder in which a model looks as if it were there: its weights are files of their true sizes that hold their headers and
/// else nothing (sparse: they take no room). Enough for what reads headers alone. Tokenizer files are left out, as they are
/// large.
class HeaderFolder {
 public:
  /// Errors: as pull(); FileError for a header that is none.
  HeaderFolder(const PullRequest& request, const HubSettings& settings);

  /// What --model takes: the folder, or the GGUF file in it.
  const std::string& path() const { return path_; }
  const std::string& commit() const { return commit_; }
  uint64_t bytes() const { return bytes_; }                  // of all weights
  uint64_t fetched() const { return fetched_; }              // of them and of configurations
  const std::string& left_out() const { return left_out_; }  // the tokenizer's file; empty if there is none

 private:
  void add(HubClient& client, const RemoteRepository& repository, const RemoteFile& file);
  void add_beginning(HubClient& client, const RemoteRepository& repository, const RemoteFile& file);

  TemporaryFolder folder_;
  std::string path_, commit_, left_out_;
  uint64_t bytes_ = 0, fetched_ = 0;
};

}  // namespace vitrine
