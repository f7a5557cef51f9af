#pragma once
// Ends a run behind the last hook that somebody waits for.
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ops/context.h"

namespace vitrine {

struct Enough {};  // thrown through the model when nobody waits for more

/// Passes everything on to `inner`, and throws Enough behind the last of `awaited`.
class UntilLast final : public Listener {
 public:
  UntilLast(Listener& inner, std::set<std::string, std::less<>> awaited) : inner_(inner), awaited_(std::move(awaited)) {}
  bool wants(std::string_view name) const override { return inner_.wants(name) || awaited_.contains(name); }
  bool takes() const override { return inner_.takes(); }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const Tensor changed = inner_.wants(name) ? inner_.see(ctx, name, value) : Tensor();
    const auto found = awaited_.find(name);
    if (found == awaited_.end()) return changed;
    awaited_.erase(found);
    if (awaited_.empty()) throw Enough();
    return changed;
  }

 private:
  Listener& inner_;
  std::set<std::string, std::less<>> awaited_;
};

}  // namespace vitrine
