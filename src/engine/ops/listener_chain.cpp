#include "ops/listener_chain.h"

#include <algorithm>
#include <iterator>

namespace vitrine {

ListenerChain::ListenerChain(std::initializer_list<Listener*> listeners) {
  std::copy_if(listeners.begin(), listeners.end(), std::back_inserter(listeners_), [](Listener* l) { return l != nullptr; });
}

bool ListenerChain::wants(std::string_view name) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [&](const Listener* l) { return l->wants(name); });
}

Tensor ListenerChain::see(Context& ctx, std::string_view name, const Tensor& value) {
  Tensor changed;
  for (Listener* listener : listeners_) {
    if (!listener->wants(name)) continue;
    if (Tensor replaced = listener->see(ctx, name, changed ? changed : value)) changed = replaced;
  }
  return changed;
}

bool ListenerChain::wants_gradient(std::string_view name) const {
  return std::any_of(listeners_.begin(), listeners_.end(), [&](const Listener* l) { return l->wants_gradient(name); });
}

void ListenerChain::see_gradient(std::string_view name, const Tensor& gradient) {
  for (Listener* listener : listeners_)
    if (listener->wants_gradient(name)) listener->see_gradient(name, gradient);
}

void ListenerChain::see_input(const Weight& w, const Tensor& x) {
  for (Listener* listener : listeners_) listener->see_input(w, x);
}

}  // namespace vitrine
