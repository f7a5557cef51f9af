#pragma once
// What rests on a model having the form of its family (docs/trainability.md).
#include <string>

#include "generate/engine.h"

namespace vitrine {

/// Whether sub-layers add to the stream; else they replace it ("vitrine_residual": false).
inline bool adds_to_stream(const Engine& engine) {
  const Json& config = engine.opened().files.config;
  return !config.is_object() || config.value("vitrine_residual", true);
}

/// Errors: InputError if the model's sub-layers replace the stream instead of adding to it ("vitrine_residual": false).
/// what: "The sum of parts", the beginning of the message.
inline void require_residual(Engine& engine, const std::string& what) {
  if (!adds_to_stream(engine))
    throw InputError(what + " rests on sub-layers that add to the stream, and in " + engine.name() +
                     " (\"vitrine_residual\": false in its config.json) they replace it");
}

/// The same also for norms that were switched off or moved ("vitrine_norms").
inline void require_family_form(Engine& engine, const std::string& what) {
  require_residual(engine, what);
  const Json& config = engine.opened().files.config;
  if (config.is_object() && config.contains("vitrine_norms"))
    throw InputError(what + " is written for models with the norms of their family, and " + engine.name() +
                     " has \"vitrine_norms\" in its config.json. Look at it with picture, trace or predict");
}

}  // namespace vitrine
