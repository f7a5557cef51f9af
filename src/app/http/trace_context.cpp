#include "http/trace_context.h"

#include <algorithm>
#include <random>
#include <string_view>
#include <utility>

namespace vitrine::http {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

bool is_hex(std::string_view text) { return text.find_first_not_of(kDigits) == std::string_view::npos; }
// An id of zeros alone is none.
bool is_id(std::string_view text) { return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos; }

std::string random_id(size_t digits) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id;
  while (id.find_first_not_of('0') == std::string::npos) {
    id.clear();
    while (id.size() < digits) id += kDigits[random() % kDigits.size()];
  }
  return id;
}

// "00-TRACE-PARENT-FLAGS". A later version may have more behind another '-'.
std::optional<TraceContext> parse(std::string_view text) {
  constexpr size_t kSize = 55;
  if (text.size() < kSize || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const std::string_view version = text.substr(0, 2), trace = text.substr(3, 32), parent = text.substr(36, 16),
                         flags = text.substr(53, 2);
  if (!is_hex(version) || version == "ff" || !is_id(trace) || !is_id(parent) || !is_hex(flags)) return {};
  if (text.size() > kSize && (version == "00" || text[kSize] != '-')) return {};
  const bool sampled = kDigits.find(flags[1]) % 2 == 1;
  return TraceContext{std::string(trace), std::string(parent), "", sampled};
}

}  // namespace

std::optional<TraceContext> read_traceparent(const Request& request) {
  const auto is_it = [](const auto& header) { return same_word(header.first, "traceparent"); };
  const auto& headers = request.headers;
  if (std::count_if(headers.begin(), headers.end(), is_it) != 1) return {};
  return parse(std::find_if(headers.begin(), headers.end(), is_it)->second);
}

TraceContext with_own_span(std::optional<TraceContext> client) {
  TraceContext context = client ? *std::move(client) : TraceContext{random_id(32), "", "", true};
  context.span_id = random_id(16);
  return context;
}

}  // namespace vitrine::http
