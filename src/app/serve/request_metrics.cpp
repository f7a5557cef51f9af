#include "serve/request_metrics.h"

#include <algorithm>
#include <array>

#include "serve/routes.h"

namespace vitrine::serve {
namespace {

constexpr std::string_view kOther = "other";
constexpr std::array<std::string_view, 7> kMethods = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};

Histogram request_seconds() { return Histogram({0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}); }

}  // namespace

void RequestMetrics::answered(const http::AccessEntry& entry) {
  const char* const route = route_of(entry.path);
  const std::string_view path = route == nullptr ? kOther : std::string_view(route);
  const auto* const known = std::ranges::find(kMethods, entry.method);
  const std::string_view method = known == kMethods.end() ? kOther : *known;
  const std::lock_guard lock(mutex_);
  ++answers_[{path, {method, entry.status}}];
  times_.try_emplace(path, request_seconds()).first->second.add(entry.ms / 1000);
}

void RequestMetrics::used_tokens(const std::string& owner, const std::string& model, int64_t prompt, int64_t made) {
  if (!keys_) return;
  const std::lock_guard lock(mutex_);
  auto& [prompt_tokens, new_tokens] = tokens_[{owner, model}];
  prompt_tokens += static_cast<uint64_t>(prompt);
  new_tokens += static_cast<uint64_t>(made);
}

std::vector<RequestMetrics::Answers> RequestMetrics::answers() const {
  std::vector<Answers> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [what, count] : answers_) all.push_back({what.first, what.second.first, what.second.second, count});
  return all;
}

std::vector<RequestMetrics::Times> RequestMetrics::times() const {
  std::vector<Times> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [path, seconds] : times_) all.push_back({path, seconds});
  return all;
}

std::vector<RequestMetrics::Tokens> RequestMetrics::tokens() const {
  std::vector<Tokens> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [whose, count] : tokens_) all.push_back({whose.first, whose.second, count.first, count.second});
  return all;
}

}  // namespace vitrine::serve
