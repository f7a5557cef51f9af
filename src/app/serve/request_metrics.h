#pragma once
// What /metrics tells of HTTP requests and of keys.
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/access_entry.h"
#include "schedule/stats.h"

namespace vitrine::serve {

/// Thread-safe. Its size is bounded by the API and the file of keys, whatever clients send.
class RequestMetrics {
 public:
  struct Answers {
    std::string_view path, method;  // "other" for those that the API does not have
    int status;
    uint64_t count;
  };
  struct Times {
    std::string_view path;
    Histogram seconds;
  };
  struct Tokens {
    std::string key, model;
    uint64_t prompt, made;
  };

  /// `keys`: clients have keys, whose tokens are counted. Otherwise owners are addresses, of which there may be any number.
  explicit RequestMetrics(bool keys) : keys_(keys) {}

  void answered(const http::AccessEntry& entry);
  void used_tokens(const std::string& owner, const std::string& model, int64_t prompt, int64_t made);

  std::vector<Answers> answers() const;
  std::vector<Times> times() const;
  std::vector<Tokens> tokens() const;

 private:
  const bool keys_;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string_view, std::pair<std::string_view, int>>, uint64_t> answers_;  // path, method, status
  std::map<std::string_view, Histogram> times_;
  std::map<std::pair<std::string, std::string>, std::pair<uint64_t, uint64_t>> tokens_;  // key, model: prompt, made
};

}  // namespace vitrine::serve
