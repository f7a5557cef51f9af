#pragma once
// How a mixture and an importance matrix turn a model into a GGUF file (model/to_gguf.h).
#include <string>

#include "model/to_gguf.h"
#include "quantize/importance.h"
#include "quantize/mixture.h"

namespace vitrine {

struct QuantizeOptions {
  bool pure = false;                             // all matrices in the mixture's own type
  const ImportanceMatrix* importance = nullptr;  // outlives the encoding
  std::string importance_file = {};              // for messages
};

/// Errors: UsageError for a tensor that this mixture quantizes only with an importance matrix; InputError for one of another
/// model.
GgufEncoding mixture_encoding(const OpenedModel& opened, const Mixture& mixture, const QuantizeOptions& options = {});

}  // namespace vitrine
