#pragma once
// Pages of pictures for research, whose numbers other commands have computed: what heads look at, a grid of patches, a text
// colored by its loss, two models layer by layer. The documents are StudyDocument in web/src/study/data.ts.
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "inspect/circuits.h"
#include "inspect/compare.h"
#include "inspect/head_scores.h"
#include "intervene/run.h"
#include "picture/data/values.h"
#include "runtime/engine.h"

namespace vitrine {

struct StudyHead {
  std::string kicker, title;
  std::vector<std::string> lines;  // below the title; `code` between backquotes
  std::string command;             // that made the page
};
/// engine: its vocabulary spells the tokens of all sections.
PictureJson study_document(const Engine& engine, const StudyHead& head, std::vector<PictureJson> sections);

/// The heads of one model, or of one checkpoint of a training run, on the same tokens.
struct StudiedHeads {
  std::string name;             // "step 300"
  std::string options;          // behind a command that runs this model: " --model run/step-300"
  std::optional<int64_t> step;  // of a checkpoint
  HeadScores scores;
  std::vector<float> logprobs;  // of the tokens behind the first; may be empty

  /// Mean of -ln p: of the tokens that are repeated, where they come again, or of those before. NaN: of none.
  double loss(int64_t repeated, bool again) const;
};
/// repeated: tokens of the prompt's second half, which are its first half again; 0: none. circuits: of the last of `runs`; null:
/// not computed. prompt: how a command is given these tokens, "'a text'" or "--repeat 50".
PictureJson heads_section(std::span<const StudiedHeads> runs, const CircuitTable* circuits, int64_t repeated,
                          const std::string& prompt);

/// The grid of a recipe's result, which was run with cell_top; `clean` is what the model expects after the clean prompt.
/// Errors: InputError if the recipe has no grid.
PictureJson patch_section(const InterveneResult& result, const std::vector<TokenLogprob>& clean);

/// A text in the pieces that a reader sees, each with -ln p; NaN: not scored.
struct StudiedText {
  std::vector<std::string> words;
  std::vector<double> nll;
  std::vector<std::vector<TokenLogprob>> likely;  // in the place of each, most likely first; may be empty
  size_t left_out = 0;                            // pieces behind these
};
struct StudiedLosses {
  const Engine* engine;  // whose vocabulary spells `likely`
  std::string name;
  std::vector<std::string> facts;  // lines
  std::vector<StudiedText> texts;
};
/// paired: the pieces of all runs are the same, so that differences have a meaning. kl: of two models, between what they expect
/// in the place of each piece of the only text; may be empty.
PictureJson losses_section(std::span<const StudiedLosses> runs, bool paired, std::span<const double> kl = {});

PictureJson layers_section(const ModelComparison& comparison);

/// Curves of one value: means over ranges of `axis`, which doubles from range to range. By run, in the order of `names`.
struct StudiedRange {
  int64_t from = 0, to = 0, tokens = 0;
  double value = 0;
};
PictureJson curves_section(const std::string& title, const std::string& axis, const std::vector<std::string>& names,
                           const std::vector<std::vector<StudiedRange>>& curves);

}  // namespace vitrine
