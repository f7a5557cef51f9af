#include "http/keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"

namespace vitrine::http {
namespace {

using Padded = std::array<unsigned char, Keys::kBytes>;

Padded pad(std::string_view secret) {
  Padded out = {};
  std::copy_n(secret.begin(), std::min(secret.size(), out.size()), out.begin());
  return out;
}

// Looks at every byte. volatile: the compiler may not leave the loop early.
bool equal_in_constant_time(const Padded& a, const Padded& b) {
  volatile unsigned char different = 0;
  for (size_t i = 0; i < a.size(); ++i) different = static_cast<unsigned char>(different | (a[i] ^ b[i]));
  return different == 0;
}

std::string_view presented(const Request& request) {
  if (const std::string* header = request.header("authorization")) {
    constexpr std::string_view kBearer = "Bearer ";
    const std::string_view value = *header;
    if (value.size() > kBearer.size() && same_word(value.substr(0, kBearer.size()), kBearer)) return value.substr(kBearer.size());
  }
  const std::string* header = request.header("x-api-key");
  return header == nullptr ? std::string_view() : *header;
}

}  // namespace

Keys::Keys(const std::vector<ApiKey>& keys) {
  for (const ApiKey& key : keys) {
    const std::string what = "the API key \"" + key.name + "\"";
    if (key.secret.empty()) throw UsageError(what + " is empty");
    if (key.secret.size() > kBytes) throw UsageError(what + " is longer than " + std::to_string(kBytes) + " bytes");
    if (!std::all_of(key.secret.begin(), key.secret.end(), [](char c) { return c > ' ' && c < 0x7f; }))
      throw UsageError(what + " has a space or a character that is not visible ASCII, which a header cannot carry");
    Key made{key.name, pad(key.secret)};
    for (const Key& other : keys_)
      if (other.padded == made.padded) throw UsageError(what + " is that of \"" + other.name + "\", too; each may be given once");
    keys_.push_back(std::move(made));
  }
}

const std::string* Keys::owner(const Request& request) const {
  const std::string_view secret = presented(request);
  const Padded padded = pad(secret);
  const std::string* found = nullptr;
  for (const Key& key : keys_)
    if (equal_in_constant_time(key.padded, padded)) found = &key.name;
  return secret.empty() || secret.size() > kBytes ? nullptr : found;
}

std::vector<ApiKey> read_keys(const std::string& path) {
  const std::string text = read_file(path, 1 << 20);
  std::vector<ApiKey> keys;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    ++number;
    const size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string_view::npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
    const size_t space = line.find_first_of(" \t");
    if (space == std::string_view::npos) {
      keys.push_back({"line " + std::to_string(number), std::string(line)});  // "key 1" is that of a flag
      continue;
    }
    const std::string_view secret = line.substr(line.find_first_not_of(" \t", space));
    if (secret.find_first_of(" \t") != std::string_view::npos)
      throw FileError(path, "line " + std::to_string(number) + " has more than two words; expected KEY, or NAME and KEY");
    keys.push_back({std::string(line.substr(0, space)), std::string(secret)});
  }
  if (keys.empty()) throw FileError(path, "holds no API key; expected one a line");
  return keys;
}

}  // namespace vitrine::http
