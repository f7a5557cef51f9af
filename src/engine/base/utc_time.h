#pragma once
// A moment as RFC 3339 writes it, in UTC and to the millisecond: "2026-01-31T09:30:00.000Z".
#include <chrono>
#include <ctime>
#include <string>

namespace vitrine {

inline std::string utc_time(std::chrono::system_clock::time_point moment = std::chrono::system_clock::now()) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(moment);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(moment.time_since_epoch()).count() % 1000;
  std::tm t = {};
  ::gmtime_r(&seconds, &t);
  char text[40];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &t);
  std::string fraction = std::to_string(1000 + ms);
  fraction[0] = '.';
  return std::string(text, n) + fraction + "Z";
}

}  // namespace vitrine
