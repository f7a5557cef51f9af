#pragma once
// What every run with a listener of its own needs.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ops/context.h"
#include "ops/listening.h"

namespace vitrine {

/// While it lives, ops record on `tape`, with dropout off; afterwards nothing does, whatever was thrown.
class Recording {
 public:
  Recording(Context& ctx, Tape& tape) : ctx_(ctx) { ctx_.record_on(&tape, /*training=*/false); }
  ~Recording() { ctx_.record_on(nullptr); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

 private:
  Context& ctx_;
};

/// While it lives, the context's runs start at `layer`, which `stream` [rows, d_model] enters; an empty one: at the first.
class Starting {
 public:
  Starting(Context& ctx, int64_t layer, std::span<const float> stream, int64_t d_model) : ctx_(ctx) {
    if (stream.empty()) return;
    stream_ = Tensor(const_cast<float*>(stream.data()), DType::f32,  // the context copies it
                     {static_cast<int64_t>(stream.size()) / d_model, d_model});
    ctx_.start_at(static_cast<int>(layer), &stream_);
  }
  ~Starting() { ctx_.start_at(0, nullptr); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  Context& ctx_;
  Tensor stream_;
};

/// limit 0: what the system has left. Errors: InputError "<what> would take <needed> of memory; <limit> are left. <advice>".
void require_memory(size_t needed, size_t limit, const std::string& what, const std::string& advice);

}  // namespace vitrine
