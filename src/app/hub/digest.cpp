#include "hub/digest.h"

#include "base/error.h"
#include "hub/libraries.h"

namespace vitrine {
namespace {

EVP_MD_CTX* hash_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

void Digest::Free::operator()(void* context) const { crypto().context_free(hash_context(context)); }

Digest::Digest(const std::string& etag, uint64_t size) : context_(crypto().context_new()) {
  const bool blob = etag.size() == 40;
  if (!blob && etag.size() != 64)
    throw UsageError("\"" + etag + "\" is no hash; expected 40 or 64 hexadecimal digits, SHA-1 or SHA-256");
  if (context_ == nullptr ||
      crypto().digest_init(hash_context(context_.get()), blob ? crypto().sha1() : crypto().sha256(), nullptr) != 1)
    throw RunError(std::string("OpenSSL has no ") + (blob ? "SHA-1" : "SHA-256") +
                   " here, by which files of the hub are checked");
  if (!blob) return;
  const std::string header = "blob " + std::to_string(size) + '\0';
  add(std::as_bytes(std::span(header)));
}

void Digest::add(std::span<const std::byte> bytes) {
  if (crypto().digest_update(hash_context(context_.get()), bytes.data(), bytes.size()) != 1)
    throw RunError("OpenSSL failed to compute a hash");
}

std::string Digest::finish() {
  unsigned char hash[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  if (crypto().digest_final(hash_context(context_.get()), hash, &length) != 1) throw RunError("OpenSSL failed to compute a hash");
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += "0123456789abcdef"[hash[i] >> 4];
    text += "0123456789abcdef"[hash[i] & 15];
  }
  return text;
}

}  // namespace vitrine
