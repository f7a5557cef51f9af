#include "hub/client.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/plural.h"
#include "hub/digest.h"

namespace vitrine {
namespace {

constexpr size_t kLargestAnswer = size_t{32} << 20, kMostFiles = 100000;
constexpr int kMostRedirects = 5, kMostPages = 1000;
constexpr double kLongestWait = 60;

/// W/"abc" and "abc" of an ETag header as abc.
std::string plain_etag(std::string etag) {
  if (etag.starts_with("W/")) etag.erase(0, 2);
  if (etag.size() >= 2 && etag.front() == '"' && etag.back() == '"') etag = etag.substr(1, etag.size() - 2);
  return etag;
}

}  // namespace

const RemoteFile* RemoteRepository::find(const std::string& name) const {
  const auto at = std::find_if(files.begin(), files.end(), [&](const RemoteFile& file) { return file.name == name; });
  return at == files.end() ? nullptr : &*at;
}

bool is_repository_id(const std::string& id) {
  const auto plain = [](std::string_view part) {
    return !part.empty() && part.size() <= 96 && part.front() != '.' && part.front() != '-' && part.back() != '.' &&
           part.back() != '-' && part.find("..") == std::string_view::npos && part.find("--") == std::string_view::npos &&
           std::all_of(part.begin(), part.end(), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' ||
                    c == '-';
           });
  };
  const std::string_view text = id;
  const size_t slash = text.find('/');
  return slash == std::string_view::npos ? plain(text) : plain(text.substr(0, slash)) && plain(text.substr(slash + 1));
}

bool may_pass(const HttpResponse& response) {
  if (!response.whole) return !response.untrusted && !response.too_long && (response.status == 0 || response.status < 300);
  return response.status == 408 || response.status == 429 || (response.status >= 500 && response.status <= 504);
}

double wait_before(const HubSettings& settings, const HttpResponse& response, int time) {
  double seconds = settings.first_wait * static_cast<double>(1 << std::min(time - 1, 10));
  std::string asked = response.header("retry-after");
  if (asked.empty() && response.status == 429) {  // "api";r=0;t=55: 55 seconds until requests are allowed again
    const std::string limit = response.header("ratelimit");
    if (const size_t at = limit.find("t="); at != std::string::npos) asked = limit.substr(at + 2);
  }
  if (!asked.empty() && asked.front() >= '0' && asked.front() <= '9') seconds = std::atof(asked.c_str());
  return std::min(seconds, kLongestWait);
}

std::string said(const HttpResponse& response) {
  if (response.status == 0 || (!response.whole && response.status < 300)) return response.failure;
  const std::string message = response.header("x-error-message");
  return "status " + std::to_string(response.status) + (message.empty() ? "" : ": " + message.substr(0, 300));
}

HubClient::HubClient(const HubSettings& settings)
    : settings_(settings), origin_(origin_of(settings.endpoint)), http_(settings_), contents_(settings_) {
  if (settings_.offline)
    throw InputError("HF_HUB_OFFLINE is set, so nothing is fetched from " + settings_.endpoint + ". Unset it, or set it to 0");
}

HttpRequest HubClient::request(const std::string& url) const {
  HttpRequest request;
  request.url = url;
  if (origin_of(url) == origin_) request.token = settings_.token;
  return request;
}

HttpResponse HubClient::repeat(const HttpRequest& request, const std::string& what) {
  for (int time = 1;; ++time) {
    HttpResponse response = http_.fetch(request);
    if (response.whole && response.status < 400) return response;
    const bool hopeless = response.unreachable && time >= 3;
    if (!may_pass(response) || time > kMostRepeats || hopeless) explain(response, request.url, what);
    std::this_thread::sleep_for(std::chrono::duration<double>(wait_before(settings_, response, time)));
  }
}

HttpResponse HubClient::ask(HttpRequest request, const std::string& what) {
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    HttpResponse response = repeat(request, what);
    const std::string location = response.header("location");
    if (response.status < 300 || location.empty()) return response;
    const std::string target = redirect_target(request.url, location);
    if (origin_of(target) != origin_) return response;  // who asked decides
    request.url = target;
  }
  throw RunError(request.url + ": one address leads to the next without end");
}

void HubClient::explain(const HttpResponse& response, const std::string& url, const std::string& what) const {
  const std::string code = response.header("x-error-code"), message = response.header("x-error-message");
  const std::string host = settings_.endpoint, page = host + "/" + id_;
  if (response.untrusted)
    throw RunError(url + ": its certificate is not trusted (" + response.failure +
                   "). SSL_CERT_FILE names a file of certificates to trust; Debian's are in the package ca-certificates");
  if (response.unreachable)
    throw RunError(url + ": cannot be reached (" + response.failure +
                   "). Is there a network? HF_ENDPOINT names another hub, HTTPS_PROXY a proxy");
  if (response.status == 401 && !settings_.token.empty() && (code.empty() || message.find("Invalid cred") != std::string::npos))
    throw InputError("the token from " + settings_.token_source + " is not accepted by " + host + " (" + said(response) +
                     "). Make a new one at " + host + "/settings/tokens, or unset it: public models need none");
  const std::string no_token = settings_.token.empty()
                                   ? "; then set HF_TOKEN to a token from " + host + "/settings/tokens, or run `hf auth login`"
                                   : ". The token from " + settings_.token_source + " must be one of that account";
  if (code == "GatedRepo") throw InputError(id_ + ": is gated. Accept its terms at " + page + " in a browser" + no_token);
  if (code == "RevisionNotFound")
    throw InputError(id_ + ": has no revision \"" + revision_ + "\"; --revision takes a branch, a tag or a commit. " + page +
                     "/tree/main shows them");
  if (code == "EntryNotFound") throw InputError(id_ + ": has no " + what + " at revision " + revision_);
  if (code == "RepoNotFound" || response.status == 401 || response.status == 404)
    throw InputError(id_ + ": is not at " + host + ", or is private. Is the name right? " +
                     (id_.find('/') == std::string::npos ? "A release of SAELens needs --sae-registry. " : "") +
                     (settings_.token.empty()
                          ? "A private one needs a token: set HF_TOKEN to one from " + host + "/settings/tokens"
                          : "The token from " + settings_.token_source + " does not give access to it"));
  if (response.status == 403)
    throw InputError(page + ": access is denied (" + said(response) + ")" +
                     (settings_.token.empty() ? "; no token was given, see HF_TOKEN"
                                              : "; has the token from " + settings_.token_source + " the right to read it?"));
  if (response.status == 429)
    throw RunError(host + ": allows no more requests for now (" + said(response) + "). Wait a few minutes" +
                   (settings_.token.empty() ? "; with a token (HF_TOKEN) more are allowed" : ""));
  throw RunError(url + ": " + what + " cannot be had (" + said(response) + "). What has arrived is kept; try again later");
}

RemoteRepository HubClient::repository(const std::string& id, const std::string& revision) {
  if (!is_repository_id(id))
    throw InputError("\"" + id + "\" is no repository of a hub; expected OWNER/NAME, such as google/gemma-2-2b");
  id_ = id;
  revision_ = revision;
  HttpRequest asked = request(settings_.endpoint + "/api/models/" + id + "/revision/" + url_escaped(revision, false));
  asked.largest_body = kLargestAnswer;
  const HttpResponse response = ask(asked, "its description");
  if (response.status != 200)
    throw RunError(asked.url + ": answers with status " + std::to_string(response.status) + " and a way to " +
                   response.header("location").substr(0, 200) + "; is HF_ENDPOINT a hub?");
  const Json info = parse_json(response.body, asked.url);
  const std::string commit =
      info.is_object() && info.contains("sha") && info["sha"].is_string() ? info["sha"].get<std::string>() : "";
  if (!is_lower_hex(commit, 40))
    throw FileError(asked.url, "does not name a commit (\"sha\", 40 hexadecimal digits). Is HF_ENDPOINT a hub?");
  return {.id = id, .revision = revision, .commit = commit, .files = list_files(id, commit)};
}

std::vector<RemoteFile> HubClient::list_files(const std::string& id, const std::string& commit) {
  std::vector<RemoteFile> files;
  std::set<std::string> names;
  std::string url = settings_.endpoint + "/api/models/" + id + "/tree/" + commit + "?recursive=true&expand=false";
  for (int page = 0; !url.empty(); ++page) {
    HttpRequest asked = request(url);
    if (origin_of(url) != origin_ || page >= kMostPages) throw FileError(url, "is no further page of the list of files of " + id);
    asked.largest_body = kLargestAnswer;
    const HttpResponse response = ask(asked, "its list of files");
    if (response.status != 200) throw FileError(url, "is no list of files. Is HF_ENDPOINT a hub?");
    for (RemoteFile& file : read_file_list(response.body, url)) {
      if (!names.insert(file.name).second) throw FileError(url, "lists " + file.name + " twice");
      files.push_back(std::move(file));
    }
    if (files.size() > kMostFiles) throw FileError(url, "lists more than " + plural(kMostFiles, "file"));
    const std::string next = next_page(response.header("link"));
    url = next.empty() ? "" : redirect_target(url, next);
  }
  return files;
}

FileLocation HubClient::locate(const RemoteRepository& repository, const RemoteFile& file) {
  HttpRequest asked =
      request(settings_.endpoint + "/" + repository.id + "/resolve/" + repository.commit + "/" + url_escaped(file.name, true));
  asked.head = true;
  std::string url = asked.url;
  // As `ask`, but what the answers on the way say of the file counts, too.
  for (int redirects = 0; redirects <= kMostRedirects; ++redirects) {
    asked.url = url;
    const HttpResponse response = repeat(asked, file.name);
    const std::string etag = plain_etag(response.header("x-linked-etag")), size = response.header("x-linked-size");
    if (!etag.empty() && etag != file.etag)
      throw FileError(asked.url, "is announced with the hash " + etag.substr(0, 80) + "; the list of files says " + file.etag);
    if (!size.empty() && size != std::to_string(file.size))
      throw FileError(asked.url,
                      "is announced with " + size.substr(0, 30) + " bytes; the list of files says " + std::to_string(file.size));
    const std::string location = response.header("location");
    if (response.status < 300 || location.empty()) return {.url = url, .at_hub = true};
    const FileLocation next = redirected(url, response);
    if (!next.at_hub) return next;
    url = next.url;
  }
  throw RunError(asked.url + ": one address leads to the next without end");
}

FileLocation HubClient::redirected(const std::string& from, const HttpResponse& response) const {
  const std::string url = redirect_target(from, response.header("location")), origin = origin_of(url);
  if (origin_.starts_with("https://") && !origin.starts_with("https://"))
    throw FileError(from, "leads to " + origin + ", which is not encrypted; the hub is");
  return {.url = url, .at_hub = origin == origin_};
}

std::string HubClient::read(const RemoteRepository& repository, const RemoteFile& file, uint64_t begin, uint64_t count) {
  if (count == 0) return "";
  const FileLocation location = locate(repository, file);
  HttpRequest asked = request(location.url);
  if (!location.at_hub) asked.token.clear();
  const bool all = begin == 0 && count == file.size;
  if (!all) asked.range = std::to_string(begin) + "-" + std::to_string(begin + count - 1);
  asked.largest_body = count;
  HttpResponse response = repeat(asked, file.name);
  if (response.status != (all ? 200 : 206) || response.body.size() != count)
    throw RunError(asked.url.substr(0, asked.url.find('?')) + ": gives " + std::to_string(response.body.size()) +
                   " bytes (status " + std::to_string(response.status) + "); expected " + std::to_string(count));
  if (!all) return std::move(response.body);
  Digest digest(file.etag, file.size);
  digest.add(std::as_bytes(std::span(response.body)));
  if (const std::string hash = digest.finish(); hash != file.etag)
    throw RunError(repository.id + ": the content of " + file.name + " that came has the hash " + hash + "; expected " +
                   file.etag);
  return std::move(response.body);
}

}  // namespace vitrine
