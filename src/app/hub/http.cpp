#include "hub/http.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "hub/libraries.h"
#include "vitrine/version.h"

namespace vitrine {
namespace {

constexpr size_t kMostHeaders = 200, kLongestHeader = 16 << 10;
constexpr long kConnectSeconds = 20;

size_t take_header(const char* text, size_t, size_t length, void* user) {
  HttpResponse& response = static_cast<Transfer*>(user)->response;
  std::string_view line(text, length);
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {  // also after "100 Continue", and after the answer of a proxy
    response.headers.clear();
    const size_t space = line.find(' ');
    response.status = space == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(space + 1, 3)).c_str());
    return length;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || length > kLongestHeader || response.headers.size() >= kMostHeaders) return length;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.front() == ' ' || value.front() == '\t')) value.remove_prefix(1);
  response.headers[name] = std::string(value);
  return length;
}

size_t take_body(const char* data, size_t, size_t length, void* user) {
  Transfer& transfer = *static_cast<Transfer*>(user);
  HttpResponse& response = transfer.response;
  const bool good = response.status == 200 || response.status == 206;
  if (good && transfer.request.sink)
    return transfer.request.sink(response, std::as_bytes(std::span(data, length))) ? length : CURL_WRITEFUNC_ERROR;
  const size_t room = transfer.request.largest_body - response.body.size();
  response.body.append(data, std::min(length, room));
  if (length <= room || !good) return length;  // of an error the beginning is enough
  response.too_long = true;
  response.failure = "the answer is longer than the " + std::to_string(transfer.request.largest_body) + " bytes allowed for it";
  return CURL_WRITEFUNC_ERROR;
}

std::string part_of(const std::string& url, CURLUPart part, unsigned flags = 0) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl().url(), curl().url_cleanup);
  char* text = nullptr;
  if (curl().url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl().url_get(parsed.get(), part, &text, flags) != CURLUE_OK)
    throw InputError("\"" + url + "\" is no URL of a web server");
  std::string value(text);
  curl().free(text);
  return value;
}

}  // namespace

std::string HttpResponse::header(const std::string& lower_case_name) const {
  const auto at = headers.find(lower_case_name);
  return at == headers.end() ? "" : at->second;
}

HttpClient::HttpClient(const HubSettings& settings) : settings_(settings) {
  multi_ = curl().multi_init();
  if (multi_ == nullptr) throw RunError("libcurl cannot be used: out of memory");
}

HttpClient::~HttpClient() { curl().multi_cleanup(static_cast<CURLM*>(multi_)); }

void HttpClient::start(Transfer& transfer) {
  CURL* handle = curl().easy_init();
  if (handle == nullptr) throw RunError("libcurl cannot be used: out of memory");
  transfer.handle = handle;
  transfer.response = {};
  const HttpRequest& request = transfer.request;
  const auto set = [&](CURLoption option, auto value) { curl().easy_setopt(handle, option, value); };
  curl_slist* headers = curl().slist_append(nullptr, "Accept-Encoding: identity");  // sizes and ranges are those of the file
  if (!request.token.empty()) headers = curl().slist_append(headers, ("Authorization: Bearer " + request.token).c_str());
  if (request.body) headers = curl().slist_append(headers, "Expect:");  // the body is small, and need not be announced
  for (const std::string& line : request.headers) headers = curl().slist_append(headers, line.c_str());
  transfer.request_headers = headers;
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_USERAGENT, ("vitrine/" + std::string(version())).c_str());
  if (request.head) set(CURLOPT_NOBODY, 1L);
  if (request.body) {
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body->size()));
    set(CURLOPT_POSTFIELDS, request.body->data());
  }
  if (!request.range.empty()) set(CURLOPT_RANGE, request.range.c_str());
  // Over HTTP/2 all pieces of a file would share one connection, and its speed.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  if (!settings_.certificates.empty()) set(CURLOPT_CAINFO, settings_.certificates.c_str());
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 100L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.stall_seconds));
  set(CURLOPT_HEADERFUNCTION, take_header);
  set(CURLOPT_HEADERDATA, &transfer);
  set(CURLOPT_WRITEFUNCTION, take_body);
  set(CURLOPT_WRITEDATA, &transfer);
  set(CURLOPT_PRIVATE, &transfer);
  curl().multi_add_handle(static_cast<CURLM*>(multi_), handle);
}

void HttpClient::finish(Transfer& transfer) {
  curl().multi_remove_handle(static_cast<CURLM*>(multi_), static_cast<CURL*>(transfer.handle));
  curl().easy_cleanup(static_cast<CURL*>(transfer.handle));
  curl().slist_free_all(static_cast<curl_slist*>(transfer.request_headers));
  transfer.handle = transfer.request_headers = nullptr;
}

void HttpClient::cancel(Transfer& transfer) {
  if (transfer.handle != nullptr) finish(transfer);
}

Transfer* HttpClient::wait(int milliseconds) {
  CURLM* multi = static_cast<CURLM*>(multi_);
  for (int round = 0; round < 2; ++round) {
    int running = 0, queued = 0;
    curl().multi_perform(multi, &running);
    if (const CURLMsg* message = curl().multi_info_read(multi, &queued); message != nullptr) {
      const CURLcode result = message->data.result;  // gone once the handle is removed
      Transfer* transfer = nullptr;
      curl().easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      HttpResponse& response = transfer->response;
      response.whole = result == CURLE_OK;
      if (!response.whole && response.failure.empty()) response.failure = curl().easy_strerror(result);
      response.untrusted = result == CURLE_PEER_FAILED_VERIFICATION || result == CURLE_SSL_CACERT_BADFILE;
      response.unreachable =
          result == CURLE_COULDNT_RESOLVE_HOST || result == CURLE_COULDNT_CONNECT || result == CURLE_COULDNT_RESOLVE_PROXY;
      finish(*transfer);
      return transfer;
    }
    if (round == 0) curl().multi_poll(multi, nullptr, 0, milliseconds, nullptr);
  }
  return nullptr;
}

HttpResponse HttpClient::fetch(HttpRequest request) {
  Transfer transfer{.request = std::move(request), .response = {}};
  start(transfer);
  while (transfer.handle != nullptr) wait(1000);
  return std::move(transfer.response);
}

std::string redirect_target(const std::string& url, const std::string& location) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> parsed(curl().url(), curl().url_cleanup);
  char* text = nullptr;
  if (curl().url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl().url_set(parsed.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK ||
      curl().url_get(parsed.get(), CURLUPART_URL, &text, 0) != CURLUE_OK)
    throw InputError(url + " leads to \"" + location + "\", which is no address");
  std::string target(text);
  curl().free(text);
  return target;
}

std::string origin_of(const std::string& url) {
  std::string origin = part_of(url, CURLUPART_SCHEME) + "://" + part_of(url, CURLUPART_HOST) + ":" +
                       part_of(url, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  std::transform(origin.begin(), origin.end(), origin.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!origin.starts_with("https://") && !origin.starts_with("http://"))
    throw InputError("\"" + url + "\" is no URL of a web server");
  return origin;
}

std::string url_escaped(std::string_view text, bool keep_slashes) {
  std::string escaped;
  for (const char c : text) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' ||
                       c == '.' || c == '~' || (c == '/' && keep_slashes);
    if (plain) {
      escaped += c;
      continue;
    }
    escaped += '%';
    escaped += "0123456789ABCDEF"[static_cast<unsigned char>(c) >> 4];
    escaped += "0123456789ABCDEF"[static_cast<unsigned char>(c) & 15];
  }
  return escaped;
}

}  // namespace vitrine
