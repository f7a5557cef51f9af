#pragma once
// The engine of a live page: one opened model that answers requests (requests/request.h) in JSON, so that a page asks a
// WebAssembly module or a server in the same words.
#include <memory>
#include <string>
#include <string_view>

#include "runtime/engine.h"

namespace vitrine {

class Learner;

class Live {
 public:
  /// model: as Engine. Errors: as Engine.
  explicit Live(std::string_view model, const EngineOptions& options = {});

  /// The answer to a request. Never throws: what went wrong is {"error": {"message": …}}. Of an answer that is a file the text is
  /// {"bytes": its size}.
  std::string answer(std::string_view request, const std::string& body);
  /// The file of the last answer; empty: it was none.
  const std::string& file() const { return file_; }

 private:
  std::string model_;
  Engine engine_;
  std::shared_ptr<void> unfinished_;
  std::shared_ptr<Learner> learner_;
  std::string file_;
};

}  // namespace vitrine
