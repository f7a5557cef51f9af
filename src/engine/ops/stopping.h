#pragma once
// Ending a run from another thread.
#include <atomic>

#include "base/error.h"
#include "ops/context.h"

namespace vitrine {

/// What a run throws that was told to stop.
class Stopped : public RunError {
 public:
  Stopped() : RunError("the run was stopped") {}
};

/// While it lives, the context's runs look at `flag`, forward and backward, before each op, and throw Stopped once it is true.
/// The context is then as behind every other error: what was under way is lost, and the next run finds nothing of it.
class Stopping {
 public:
  /// Errors: Stopped if `flag` is true already.
  Stopping(Context& ctx, const std::atomic<bool>& flag) : ctx_(ctx) {
    if (flag) throw Stopped();
    ctx_.stop_on(&flag);
  }
  ~Stopping() { ctx_.stop_on(nullptr); }
  Stopping(const Stopping&) = delete;
  Stopping& operator=(const Stopping&) = delete;

 private:
  Context& ctx_;
};

}  // namespace vitrine
