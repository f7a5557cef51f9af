#include "hub/settings.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/file_checks.h"
#include "io/huggingface.h"

namespace vitrine {
namespace {

constexpr size_t kLongestToken = 4096;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_set(const char* name) {
  std::string value = environment(name);
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::toupper(c); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

std::string trimmed(const std::string& text) {
  constexpr const char* kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

void read_token(HubSettings& settings) {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    settings.token = trimmed(environment(name));
    settings.token_source = name;
    if (!settings.token.empty()) return;
  }
  const std::string given = environment("HF_TOKEN_PATH");
  settings.token_source = given.empty() ? hub_home() + "/token" : given;
  if (present(settings.token_source)) settings.token = trimmed(read_file(settings.token_source, kLongestToken));
  if (settings.token.empty()) settings.token_source.clear();
}

/// Where other distributions than the one of our libcurl keep their certificates.
std::string system_certificates() {
  for (const char* path : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                           "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"})
    if (present(path)) return path;
  return "";
}

}  // namespace

std::string trusted_certificates() {
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"})
    if (std::string given = environment(name); !given.empty()) return given;
  return system_certificates();
}

HubSettings hub_settings() {
  HubSettings settings;
  if (const std::string endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) settings.endpoint = endpoint;
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  if (!settings.endpoint.starts_with("https://") && !settings.endpoint.starts_with("http://"))
    throw InputError("HF_ENDPOINT is \"" + settings.endpoint + "\"; expected a URL such as https://huggingface.co");
  read_token(settings);
  if (std::any_of(settings.token.begin(), settings.token.end(), [](char c) { return c <= ' ' || c > '~'; }))
    throw InputError("the token from " + settings.token_source +
                     " holds a space or a character that no token has; copy it again from " + settings.endpoint +
                     "/settings/tokens");
  settings.cache = hub_cache();
  settings.certificates = trusted_certificates();
  settings.offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
  return settings;
}

}  // namespace vitrine
