#include "serve/quotas.h"

#include <algorithm>
#include <cmath>

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

Quotas::Quotas(const std::vector<KeyQuota>& quotas) {
  const Clock::time_point now = Clock::now();
  for (const KeyQuota& quota : quotas)
    keys_.emplace(quota.owner, Key{{quota.requests, quota.requests, now}, {quota.tokens, quota.tokens, now}});
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
