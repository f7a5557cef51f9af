#pragma once
// How to reach the hub: what huggingface_hub reads from the environment, read in the same way.
#include <cstddef>
#include <string>

namespace vitrine {

struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string token;                                // empty: none
  std::string token_source;                         // where it was found, for messages: "HF_TOKEN", or a file
  std::string cache;                                // the folder of models--OWNER--NAME
  std::string certificates;                         // a file of trusted certificates; empty: those that libcurl was built with
  bool offline = false;

  int connections = 8;                   // at most so many requests at a time for one file
  size_t piece_bytes = size_t{8} << 20;  // what one request of a large file asks for
  double first_wait = 0.5;               // seconds before a failed request is repeated; each further time twice as long
  int stall_seconds = 30;                // a connection that carries less than 100 bytes a second for so long has failed
};

/// A file of certificates to trust: SSL_CERT_FILE, else CURL_CA_BUNDLE, else REQUESTS_CA_BUNDLE, else this system's; empty: those
/// that libcurl was built with.
std::string trusted_certificates();

/// HF_ENDPOINT; HF_TOKEN, else the file of HF_TOKEN_PATH, else $HF_HOME/token; hub_cache() (io/huggingface.h);
/// trusted_certificates(); HF_HUB_OFFLINE. Errors: InputError for an endpoint that is no http or https URL
/// and for a token that cannot be in a header.
HubSettings hub_settings();

}  // namespace vitrine
