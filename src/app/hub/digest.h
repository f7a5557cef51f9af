#pragma once
// The two hashes by which the hub names contents, computed while the bytes arrive. OpenSSL, which libcurl brings along, uses the
// CPU's instructions for them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace vitrine {

class Digest {
 public:
  /// The kind of hash that `etag` is, for a content of `size` bytes: of 64 hexadecimal digits the SHA-256 of the content (files
  /// in Git LFS), of 40 the name of a Git blob, which is the SHA-1 of "blob <size>\0" and the content. Errors: UsageError for
  /// another length.
  Digest(const std::string& etag, uint64_t size);

  void add(std::span<const std::byte> bytes);
  /// The hash in lower-case hexadecimal digits. Nothing can be added afterwards.
  std::string finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;
};

}  // namespace vitrine
