#pragma once
// API keys: which of them a request has. RFC 6750 (Bearer).
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "http/server.h"

namespace vitrine::http {

class Keys {
 public:
  static constexpr size_t kBytes = 512;  // of a key at most

  /// Errors: UsageError for a key that is empty, too long or given twice, or has other characters than visible ASCII.
  explicit Keys(const std::vector<ApiKey>& keys);
  bool empty() const { return keys_.empty(); }
  struct Key {
    std::string name;
    bool admin;
    std::array<unsigned char, kBytes> padded;
  };
  /// The key in Authorization ("Bearer KEY") or x-api-key; null if there is none, or another. Every key is compared
  /// over kBytes, whatever was sent, so that the time tells nothing of them.
  const Key* find(const Request& request) const;

 private:
  std::vector<Key> keys_;
};

/// The keys of a file: one a line, after a name and a space if it is to have one; then, in any order, "user" or "admin",
/// "requests/min=N" and "tokens/min=N". Empty lines and those with '#' in front are ignored. Errors: FileError with the line.
std::vector<ApiKey> read_keys(const std::string& path);
/// The same of a file that has changed since `before` was read. A key without a name is called by its line: one that was there
/// keeps its name, and a new one is called "line 3, reload 1", so that none gets the counts and the cached prompts of another
/// one.
std::vector<ApiKey> read_keys_again(const std::string& path, const std::vector<ApiKey>& before, int64_t reload);

}  // namespace vitrine::http
