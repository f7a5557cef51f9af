#include "serve/quotas.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

[[noreturn]] void over(const std::string& owner, const std::string& what, double a_minute, double seconds) {
  ApiError error(429, "rate_limit_exceeded",
                 "the key \"" + owner + "\" has used its " + std::to_string(std::llround(a_minute)) + " " + what +
                     " of a minute; try again in " + std::to_string(std::llround(std::ceil(seconds))) + " s");
  error.retry_after = std::max(seconds, 1.0);
  throw error;
}

}  // namespace

Quotas::Quotas(const std::vector<KeyQuota>& quotas) { set(quotas); }

void Quotas::set(const std::vector<KeyQuota>& quotas) {
  const Clock::time_point now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::map<std::string, Key> keys;
  for (const KeyQuota& quota : quotas) {
    Key key{{quota.requests, quota.requests, now}, {quota.tokens, quota.tokens, now}};
    if (const auto before = keys_.find(quota.owner); before != keys_.end()) {
      key.requests.go_on_from(before->second.requests, now);
      key.tokens.go_on_from(before->second.tokens, now);
    }
    keys.emplace(quota.owner, key);
  }
  keys_ = std::move(keys);
}

void Quotas::Left::go_on_from(const Left& before, Clock::time_point now) {
  if (before.a_minute <= 0) return;  // it had no limit, and nothing was counted
  Left old = before;
  old.refill(now);
  left = std::min(left, old.left);
}

void Quotas::Left::refill(Clock::time_point now) {
  left = std::min(a_minute, left + a_minute / 60 * std::chrono::duration<double>(now - at).count());
  at = now;
}

void Quotas::begin(const std::string& owner) {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(owner);
  if (found == keys_.end()) return;
  Key& key = found->second;
  const Clock::time_point now = Clock::now();
  key.requests.refill(now);
  key.tokens.refill(now);
  if (key.tokens.a_minute > 0 && key.tokens.left < 1) over(owner, "tokens", key.tokens.a_minute, key.tokens.seconds_until(1));
  if (key.requests.a_minute > 0 && key.requests.left < 1)
    over(owner, "requests", key.requests.a_minute, key.requests.seconds_until(1));
  key.requests.left -= 1;
}

void Quotas::used(const std::string& owner, double tokens) {
  const std::lock_guard lock(mutex_);
  if (const auto found = keys_.find(owner); found != keys_.end()) found->second.tokens.left -= tokens;
}

}  // namespace vitrine::serve
