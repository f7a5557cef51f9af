#pragma once
// A scored text token by token: colored in the terminal, and on a page.
#include <string>
#include <vector>

#include "evaluate/perplexity.h"
#include "picture/data/values.h"

namespace vitrine::cli {

/// One model's scores, or those of two.
struct EvalView {
  const Engine& engine;
  const std::vector<std::string>& texts;
  const PerplexityResult& result;
  const Engine* other;             // null: there is no second model
  const PerplexityResult* second;  // its scores
};

/// The text on colored background; where there are no colors, a line for each token. With two models that have the same tokens
/// the colors show the difference.
void print_tokens(const EvalView& view);

constexpr size_t kMostOnPage = 50000;  // tokens of a page: some MB

/// The document of an offline page (picture/data/study.h) with the colored text, of two models the difference too, and curves
/// over position and frequency. command: that makes it.
PictureJson eval_document(const EvalView& view, const std::string& command);

}  // namespace vitrine::cli
