#include "http/response_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <random>

namespace vitrine::http {
namespace {

void append_field(std::string& out, std::string_view name, std::string_view value) {
  const size_t begin = out.size();
  out.append(name).append(": ").append(value);
  std::replace_if(
      out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
      [](char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }, ' ');
  out.append("\r\n");
}

// RFC 9110 section 5.6.7, made once a second. strftime would use the words of the locale.
std::string_view date() {
  static constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                               "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  thread_local std::time_t made = -1;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now == made) return text;
  std::tm t = {};
  ::gmtime_r(&now, &t);
  const auto two = [](int n) { return std::string{static_cast<char>('0' + n / 10 % 10), static_cast<char>('0' + n % 10)}; };
  text = std::string(kDays[static_cast<size_t>(t.tm_wday) % 7]) + ", " + two(t.tm_mday) + " " +
         std::string(kMonths[static_cast<size_t>(t.tm_mon) % 12]) + " " + std::to_string(t.tm_year + 1900) + " " +
         two(t.tm_hour) + ":" + two(t.tm_min) + ":" + two(t.tm_sec) + " GMT";
  made = now;
  return text;
}

}  // namespace

std::string head_text(const Response& response, const Framing& framing, std::string_view request_id) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " ";
  out.append(reason(response.status)).append("\r\n");
  append_field(out, "Date", date());
  if (!response.type.empty()) append_field(out, "Content-Type", response.type);
  if (framing.chunked)
    append_field(out, "Transfer-Encoding", "chunked");
  else if (framing.length)
    append_field(out, "Content-Length", std::to_string(*framing.length));
  if (!framing.keep_alive)
    append_field(out, "Connection", "close");
  else if (framing.http_1_0)
    append_field(out, "Connection", "keep-alive");
  append_field(out, "X-Content-Type-Options", "nosniff");
  append_field(out, "x-request-id", request_id);
  for (const auto& [name, value] : response.headers) append_field(out, name, value);
  out.append("\r\n");
  return out;
}

void append_chunk(std::string& out, std::string_view bytes) {
  if (bytes.empty()) return;  // it would be the last one
  std::array<char, 17> size = {};
  const auto end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
  out.append(size.data(), end).append("\r\n").append(bytes).append("\r\n");
}

std::string request_id(const std::string* given) {
  const auto usable = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
  };
  if (given != nullptr && !given->empty() && given->size() <= 128 && std::all_of(given->begin(), given->end(), usable))
    return *given;
  thread_local std::mt19937_64 random{(uint64_t{std::random_device{}()} << 32) | std::random_device{}()};
  std::string id = "req_";
  for (int i = 0; i < 2; ++i) {
    const uint64_t bits = random();
    for (int digit = 0; digit < 12; ++digit) id += "0123456789abcdef"[(bits >> (4 * digit)) & 15];
  }
  return id;
}

}  // namespace vitrine::http
