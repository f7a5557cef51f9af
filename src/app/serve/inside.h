#pragma once
// What the endpoints that look inside the model have in common. Each runs on the engine alone, between two steps of the streams.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "http/exchange.h"
#include "requests/request.h"
#include "serve/service.h"

namespace vitrine::serve {

/// Runs `work` with these adapters when its turn comes and returns when it is done; the request thread waits. Work for a client
/// that leaves, or that the server ends with, is stopped. Errors: what `work` throws; Stopped; as Scheduler::run; of the
/// first work, with which it counts among those under way, ApiError 429 with ServiceOptions::most_inside of them.
class InsideRun {
 public:
  InsideRun(Service& service, const std::shared_ptr<http::Exchange>& exchange, ScaledAdapters adapters);
  ~InsideRun();
  InsideRun(const InsideRun&) = delete;
  InsideRun& operator=(const InsideRun&) = delete;

  void operator()(const std::function<void(Engine&)>& work);
  /// True once the client has left: for work beside the engine.
  const std::atomic<bool>& gone() const { return *gone_; }

 private:
  void begin();

  Service& service_;
  const ScaledAdapters adapters_;
  const std::string owner_;
  const std::shared_ptr<std::atomic<bool>> gone_;
  bool counted_ = false;  // among those under way
  bool begun_ = false;    // a part has run: the others run also while the server drains
};

/// The host of requests of this model (requests/request.h), which run in `run`; null: none runs.
Host host_of(Service& service, InsideRun* run = nullptr);

/// "vitrine picture logit-lens --json --tokens 2,651 --model M": a command line that gives the same numbers. `words` are as
/// a shell reads them (shell_word). Without ids: no --tokens.
OrderedJson command_line(const Service& service, const std::vector<std::string>& words, const ScaledAdapters& adapters,
                         const std::vector<int32_t>& ids = {});
}  // namespace vitrine::serve
