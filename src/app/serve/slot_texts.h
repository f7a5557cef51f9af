#pragma once
// Which text each client's slots hold: the last that ended of those that named the slot.
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vitrine::serve {

struct SlotText {
  std::vector<int32_t> tokens;  // prompt and text
  int64_t prompt = 0;           // tokens of its prompt
  std::string scope;            // Work::prefix_scope
  bool adapted = false;         // it was made with LoRA adapters
};

/// Thread-safe. Texts that were remembered the longest ago make room for others.
class SlotTexts {
 public:
  void remember(const std::string& owner, int64_t slot, SlotText text) {
    const std::lock_guard lock(mutex_);
    take(owner, slot);
    tokens_ += text.tokens.size();
    held_.push_back({owner, slot, std::move(text)});
    while ((tokens_ > kMostTokens || held_.size() > kMost) && held_.size() > 1) {
      tokens_ -= held_.front().text.tokens.size();
      held_.pop_front();
    }
  }
  std::optional<SlotText> find(const std::string& owner, int64_t slot) const {
    const std::lock_guard lock(mutex_);
    for (const Held& held : held_)
      if (held.slot == slot && held.owner == owner) return held.text;
    return {};
  }
  void forget(const std::string& owner, int64_t slot) {
    const std::lock_guard lock(mutex_);
    take(owner, slot);
  }

 private:
  static constexpr size_t kMostTokens = size_t{1} << 22;  // of all texts
  static constexpr size_t kMost = 4096;                   // texts
  struct Held {
    std::string owner;
    int64_t slot;
    SlotText text;
  };
  void take(const std::string& owner, int64_t slot) {
    std::erase_if(held_, [&](const Held& held) {
      if (held.slot != slot || held.owner != owner) return false;
      tokens_ -= held.text.tokens.size();
      return true;
    });
  }

  mutable std::mutex mutex_;
  std::list<Held> held_;
  size_t tokens_ = 0;
};

}  // namespace vitrine::serve
