#pragma once
// The hub's HTTP interface, as huggingface_hub (file_download.py, hf_api.py) uses it: the list of a repository's files at a
// revision, and the addresses of their contents.
#include <cstdint>
#include <string>
#include <vector>

#include "hub/file_list.h"
#include "hub/http.h"

namespace vitrine {

/// A repository at one commit.
struct RemoteRepository {
  std::string id, revision, commit;
  std::vector<RemoteFile> files;

  const RemoteFile* find(const std::string& name) const;
};

/// Where a content is to be had: an address of the hub, or one of a storage server that needs no token.
struct FileLocation {
  std::string url;
  bool at_hub = true;
};

class HubClient {
 public:
  explicit HubClient(const HubSettings& settings);

  /// Errors: InputError for an id that cannot be one, a repository, revision or permission that is missing (with what to do), and
  /// a list that names what no honest one does; RunError for a server that cannot be reached or fails again and again.
  RemoteRepository repository(const std::string& id, const std::string& revision);

  /// Asks where `file` lies. Errors: as above; InputError if the server knows another size or hash than the list.
  FileLocation locate(const RemoteRepository& repository, const RemoteFile& file);

  /// `count` bytes of a file from `begin` on, into memory; all of a file is checked against its hash.
  /// Errors: as above; RunError for an answer of another length or with another hash.
  std::string read(const RemoteRepository& repository, const RemoteFile& file, uint64_t begin, uint64_t count);

  /// For the contents; what is asked here in between does not disturb their requests.
  HttpClient& contents() { return contents_; }
  const HubSettings& settings() const { return settings_; }
  /// The address that an answer of `from` leads to. Errors: InputError for one without encryption, if the hub has it.
  FileLocation redirected(const std::string& from, const HttpResponse& response) const;

  /// The request for an address; the token goes to the hub's own and to no other.
  HttpRequest request(const std::string& url) const;

 private:
  HttpResponse ask(HttpRequest request, const std::string& what);
  HttpResponse repeat(const HttpRequest& request, const std::string& what);
  [[noreturn]] void explain(const HttpResponse& response, const std::string& url, const std::string& what) const;
  std::vector<RemoteFile> list_files(const std::string& id, const std::string& commit);

  HubSettings settings_;
  std::string origin_;  // of the endpoint
  HttpClient http_, contents_;
  std::string id_, revision_;  // that messages name
};

/// Whether a failed request may succeed when it is repeated: the network, too many requests, a server that is busy.
bool may_pass(const HttpResponse& response);
/// Seconds before the request is repeated for the `time`th time, from 1; longer where the server asks for it.
double wait_before(const HubSettings& settings, const HttpResponse& response, int time);
/// How often a request is repeated that brings nothing.
inline constexpr int kMostRepeats = 5;
/// "status 503", or what the connection died of; what the server says of it.
std::string said(const HttpResponse& response);

/// Whether `id` is "OWNER/NAME" or an old "NAME".
bool is_repository_id(const std::string& id);
}  // namespace vitrine
