#pragma once
// Keeps the gradients at hooks instead of their values.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "hooks/hooks.h"
#include "ops/context.h"
#include "ops/recorder.h"
#include "vitrine/float_vector.h"

namespace vitrine {

/// Listens while a tape records, and during backward takes the gradient at every capture.
class GradientRecording final : public Listener {
 public:
  GradientRecording(Context& ctx, std::span<const Capture> captures) : ctx_(ctx), recorder_(requests(captures)) {}
  bool wants(std::string_view) const override { return false; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }
  bool wants_gradient(std::string_view name) const override { return recorder_.wants(name); }
  void see_gradient(std::string_view name, const Tensor& gradient) override { recorder_.see(ctx_, name, gradient); }
  std::map<std::string, Recorder::Value, std::less<>> take_values() { return std::move(recorder_).take_values(); }

 private:
  static std::vector<HookRequest> requests(std::span<const Capture> captures) {
    std::vector<HookRequest> made;
    for (const Capture& capture : captures) made.push_back(capture.request);
    return made;
  }
  Context& ctx_;
  Recorder recorder_;
};

/// Gradients of every capture: those that were recorded, and zeros where nothing that was differentiated depends on a value.
inline std::map<std::string, Recorder::Value, std::less<>> completed(std::map<std::string, Recorder::Value, std::less<>> recorded,
                                                                     std::span<const Capture> captures) {
  for (const Capture& capture : captures) {
    Recorder::Value& value = recorded[capture.name];
    if (value.shape.empty()) {
      size_t count = 1;
      for (const int64_t n : capture.shape) count *= static_cast<size_t>(n);
      value = {capture.shape, FloatVector(count, 0.0f)};
    }
    VITRINE_CHECK(value.shape == capture.shape, "a gradient has the shape of its value");
  }
  return recorded;
}

}  // namespace vitrine
