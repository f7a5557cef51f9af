#pragma once
// Logits of short runs beside the one that was observed: of other texts, or of weights that were changed.
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include "ops/listening.h"
#include "runtime/engine.h"

namespace vitrine {

/// The logits after the last of `ids`; listener: null for the model as it is. Errors: as Engine::check_ids; RunError for NaN.
inline std::vector<float> last_logits(Engine& engine, std::span<const int32_t> ids, Listener* listener = nullptr) {
  engine.check_ids(ids);
  std::optional<Listening> listening;
  if (listener != nullptr) listening.emplace(engine.context(), *listener);
  const auto frame = engine.context().frame();
  const int64_t last = std::ssize(ids) - 1;
  const Tensor z = engine.run(Step::of(ids), std::span(&last, 1));
  return {z.data<float>(), z.data<float>() + z.count()};
}

}  // namespace vitrine
