#pragma once
// What is known of a request once its answer has been sent.
#include <chrono>
#include <cstdint>
#include <string>

#include "http/trace_context.h"

namespace vitrine::http {

struct AccessEntry {
  std::string id, method, path, owner;
  int status = 0;
  uint64_t bytes = 0;  // of the answer's body as sent
  double ms = 0;       // from the request's first byte to the answer's last
  bool gone = false;   // the client left before
  // What Exchange was told.
  std::string model = {};                       // empty: nothing
  int64_t prompt_tokens = -1, new_tokens = -1;  // -1: nothing
  std::chrono::system_clock::time_point began{};
  TraceContext trace = {};
};

}  // namespace vitrine::http
