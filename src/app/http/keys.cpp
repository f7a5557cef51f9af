#include "http/keys.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/mapped_file.h"

namespace vitrine::http {
namespace {

using Padded = std::array<unsigned char, Keys::kBytes>;

// False for an unknown word.
bool read_right(std::string_view word, ApiKey& key) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) {
    key.admin = word == "admin";
    return word == "admin" || word == "user";
  }
  int64_t n = 0;
  const char* const end = word.data() + word.size();
  if (const auto [stop, error] = std::from_chars(word.data() + equals + 1, end, n); error != std::errc() || stop != end || n < 1)
    return false;
  const std::string_view name = word.substr(0, equals);
  if (name == "requests/min") key.requests_per_minute = n;
  if (name == "tokens/min") key.tokens_per_minute = n;
  return name == "requests/min" || name == "tokens/min";
}

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
    Key made{key.name, key.admin, pad(key.secret)};
    for (const Key& other : keys_)
      if (other.padded == made.padded) throw UsageError(what + " is that of \"" + other.name + "\", too; each may be given once");
    keys_.push_back(std::move(made));
  }
}

const Keys::Key* Keys::find(const Request& request) const {
  const std::string_view secret = presented(request);
  const Padded padded = pad(secret);
  const Key* found = nullptr;
  for (const Key& key : keys_)
    if (equal_in_constant_time(key.padded, padded)) found = &key;
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
    ApiKey key;
    size_t word = 0;
    for (size_t at_word = 0; at_word < line.size(); ++word) {
      const size_t word_end = std::min(line.find_first_of(" \t", at_word), line.size());
      const std::string_view one = line.substr(at_word, word_end - at_word);
      if (word == 0)
        key.name = one;
      else if (word == 1)
        key.secret = one;
      else if (!read_right(one, key))
        throw FileError(path, "line " + std::to_string(number) + ", word " + std::to_string(word + 1) + " is \"" +
                                  std::string(one) +
                                  "\"; after NAME and KEY expected user, admin, requests/min=N or tokens/min=N");
      at_word = std::min(line.find_first_not_of(" \t", word_end), line.size());
    }
    keys.push_back(std::move(key));
  }
  if (keys.empty()) throw FileError(path, "holds no API key; expected one a line");
  return keys;
}

std::vector<ApiKey> read_keys_again(const std::string& path, const std::vector<ApiKey>& before, int64_t reload) {
  std::vector<ApiKey> keys = read_keys(path);
  for (ApiKey& key : keys) {
    if (key.name.find(' ') == std::string::npos) continue;  // a name of the file has no space
    const auto known = std::find_if(before.begin(), before.end(), [&](const ApiKey& old) { return old.secret == key.secret; });
    const bool had_none = known != before.end() && known->name.find(' ') != std::string::npos;
    key.name = had_none ? known->name : key.name + ", reload " + std::to_string(reload);
  }
  return keys;
}

}  // namespace vitrine::http
