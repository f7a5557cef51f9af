#pragma once
// The running state that turns ids into text.
#include <cstdint>
#include <string>

namespace vitrine {

class DecodeState {
 public:
  virtual ~DecodeState() = default;
  /// Appends to `out` the text that is certain once `id` has come.
  virtual void push(int32_t id, bool skip_special, std::string& out) = 0;
  /// Appends what is left and starts over.
  virtual void flush(std::string& out) = 0;
};

}  // namespace vitrine
