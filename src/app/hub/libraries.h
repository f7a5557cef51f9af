#pragma once
// libcurl and OpenSSL, loaded when something is to be fetched. Linked, they and the thirty libraries that they need would add ten
// milliseconds to the start of every command.
#include <curl/curl.h>
#include <openssl/evp.h>

namespace vitrine {

/// The functions of libcurl that we use, by their names without "curl_".
struct CurlFunctions {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
  decltype(&::curl_url) url;
  decltype(&::curl_url_set) url_set;
  decltype(&::curl_url_get) url_get;
  decltype(&::curl_url_cleanup) url_cleanup;
  decltype(&::curl_free) free;
};
/// Errors: RunError that says which library or function is missing and what to install.
const CurlFunctions& curl();

/// The functions of OpenSSL's libcrypto that we use.
struct CryptoFunctions {
  decltype(&::EVP_MD_CTX_new) context_new;
  decltype(&::EVP_MD_CTX_free) context_free;
  decltype(&::EVP_DigestInit_ex) digest_init;
  decltype(&::EVP_DigestUpdate) digest_update;
  decltype(&::EVP_DigestFinal_ex) digest_final;
  decltype(&::EVP_sha1) sha1;
  decltype(&::EVP_sha256) sha256;
};
/// Errors: as curl().
const CryptoFunctions& crypto();

}  // namespace vitrine
