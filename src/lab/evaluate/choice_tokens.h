#pragma once
// The tokens of a context and its continuation, split where lm-evaluation-harness splits them.
#include <string>
#include <string_view>

#include "evaluate/score.h"

namespace vitrine {

/// White space at the context's end belongs to the continuation; both are tokenized together, and what follows as many tokens as
/// the context has alone is the continuation. An empty context is BOS (EOS without one). What does not fit into the model's
/// context is cut off at the left.
/// Errors: InputError for a continuation without a token or too long for the context.
ScoredSequence choice_tokens(const Engine& engine, std::string_view context, std::string_view continuation);

}  // namespace vitrine
