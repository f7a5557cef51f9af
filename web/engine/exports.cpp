// What the page calls: texts in the module's memory, one model at a time (web/src/live/engine.ts).
#include <memory>
#include <string>

#include "requests/live.h"

namespace {
std::unique_ptr<vitrine::Live> live;
std::string answer;
}  // namespace

#define EXPORTED(name) extern "C" __attribute__((export_name(name)))

/// Opens the model file of this path. Returns what went wrong, or an empty text.
EXPORTED("open_model") const char* open_model(const char* path) {
  live.reset();
  try {
    live = std::make_unique<vitrine::Live>(path, vitrine::EngineOptions{.threads = 1, .numerics = {.f32 = true}});
    answer.clear();
  } catch (const std::exception& error) {
    answer = error.what();
  }
  return answer.c_str();
}

/// Live::answer; valid until the next call.
EXPORTED("answer") const char* answer_of(const char* request, const char* body) {
  answer = live == nullptr ? R"({"error":{"message":"no model is open"}})" : live->answer(request, body);
  return answer.c_str();
}

/// Live::file; valid until the next call of answer.
EXPORTED("file") const char* file() { return live->file().data(); }
EXPORTED("file_bytes") size_t file_bytes() { return live == nullptr ? 0 : live->file().size(); }
