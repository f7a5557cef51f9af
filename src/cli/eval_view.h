#pragma once
// A scored text token by token: coloured in the terminal, and on a page.
#include <string>
#include <vector>

#include "evaluate/perplexity.h"

namespace vitrine::cli {

/// One model's scores, or those of two.
struct EvalView {
  const Engine& engine;
  const std::vector<std::string>& texts;
  const PerplexityResult& result;
  const Engine* other;             // null: there is no second model
  const PerplexityResult* second;  // its scores
};

/// The text on coloured background; where there are no colours, a line for each token. With two models that have the same tokens
/// the colours show the difference.
void print_tokens(const EvalView& view);

/// An offline page with the coloured text, of two models the difference too, and curves over position and frequency.
std::string eval_page(const EvalView& view);

}  // namespace vitrine::cli
