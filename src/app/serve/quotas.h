#pragma once
// What a key may use in a minute: requests and tokens.
#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace vitrine::serve {

struct KeyQuota {
  std::string owner;                // the key's name
  double requests = 0, tokens = 0;  // a minute, and at once; 0: no limit
};

/// Thread-safe.
class Quotas {
 public:
  explicit Quotas(const std::vector<KeyQuota>& quotas);
  /// In the place of those of before: a key that stays keeps what it has left, as far as its new limits allow.
  void set(const std::vector<KeyQuota>& quotas);
  /// Counts a request. Errors: ApiError 429 with Retry-After, for one too many or while too many tokens were used.
  void begin(const std::string& owner);
  /// Tokens of a prompt and of its text: they are known at the end, so that the last request may take more than is left.
  void used(const std::string& owner, double tokens);

 private:
  using Clock = std::chrono::steady_clock;
  struct Left {
    double a_minute, left;
    Clock::time_point at;
    void refill(Clock::time_point now);
    void go_on_from(const Left& before, Clock::time_point now);
    double seconds_until(double wanted) const { return 60 * (wanted - left) / a_minute; }
  };
  struct Key {
    Left requests, tokens;
  };
  std::mutex mutex_;
  std::map<std::string, Key> keys_;
};

}  // namespace vitrine::serve
