#include "hub/libraries.h"

#include "base/error.h"
#include "base/loaded_library.h"

namespace vitrine {
namespace {

CurlFunctions load_curl() {
  const LoadedLibrary library("downloads need", "libcurl.so.4", "libcurl4");
  CurlFunctions f{};
  library.find(f.global_init, "curl_global_init");
  library.find(f.easy_init, "curl_easy_init");
  library.find(f.easy_setopt, "curl_easy_setopt");
  library.find(f.easy_getinfo, "curl_easy_getinfo");
  library.find(f.easy_cleanup, "curl_easy_cleanup");
  library.find(f.easy_strerror, "curl_easy_strerror");
  library.find(f.multi_init, "curl_multi_init");
  library.find(f.multi_add_handle, "curl_multi_add_handle");
  library.find(f.multi_remove_handle, "curl_multi_remove_handle");
  library.find(f.multi_perform, "curl_multi_perform");
  library.find(f.multi_poll, "curl_multi_poll");
  library.find(f.multi_info_read, "curl_multi_info_read");
  library.find(f.multi_cleanup, "curl_multi_cleanup");
  library.find(f.slist_append, "curl_slist_append");
  library.find(f.slist_free_all, "curl_slist_free_all");
  library.find(f.url, "curl_url");
  library.find(f.url_set, "curl_url_set");
  library.find(f.url_get, "curl_url_get");
  library.find(f.url_cleanup, "curl_url_cleanup");
  library.find(f.free, "curl_free");
  if (f.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw RunError("libcurl cannot be used: it fails to prepare itself");
  return f;
}

CryptoFunctions load_crypto() {
  const LoadedLibrary library("downloads need", "libcrypto.so.3", "libssl3");
  CryptoFunctions f{};
  library.find(f.context_new, "EVP_MD_CTX_new");
  library.find(f.context_free, "EVP_MD_CTX_free");
  library.find(f.digest_init, "EVP_DigestInit_ex");
  library.find(f.digest_update, "EVP_DigestUpdate");
  library.find(f.digest_final, "EVP_DigestFinal_ex");
  library.find(f.sha1, "EVP_sha1");
  library.find(f.sha256, "EVP_sha256");
  return f;
}

}  // namespace

const CurlFunctions& curl() {
  static const CurlFunctions functions = load_curl();
  return functions;
}

const CryptoFunctions& crypto() {
  static const CryptoFunctions functions = load_crypto();
  return functions;
}

}  // namespace vitrine
