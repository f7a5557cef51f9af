#pragma once
// Listening for as long as a scope lasts.
#include "ops/context.h"

namespace vitrine {

/// While it lives, `listener` hears the context's hooks; afterwards nobody does, whatever was thrown.
class Listening {
 public:
  Listening(Context& ctx, Listener& listener, int sequence = 0) : ctx_(ctx) { ctx_.listen(&listener, sequence); }
  ~Listening() { ctx_.listen(nullptr); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  Context& ctx_;
};

}  // namespace vitrine
