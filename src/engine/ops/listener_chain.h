#pragma once
// Several listeners at one place.
#include <initializer_list>
#include <string_view>
#include <vector>

#include "ops/context.h"

namespace vitrine {

/// Shows every hook to the listeners in order: each sees what those before it put there.
class ListenerChain final : public Listener {
 public:
  /// Null stands for nobody. They outlive the chain.
  explicit ListenerChain(std::initializer_list<Listener*> listeners);

  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;
  /// Whether the last one does; those before it leave what they see to the next.
  bool takes() const override { return !listeners_.empty() && listeners_.back()->takes(); }
  bool wants_gradient(std::string_view name) const override;
  void see_gradient(std::string_view name, const Tensor& gradient) override;
  void see_input(const Weight& w, const Tensor& x) override;

 private:
  std::vector<Listener*> listeners_;
};

}  // namespace vitrine
