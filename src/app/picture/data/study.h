#pragma once
// Pages of pictures for research, whose numbers other commands have computed: what heads look at, a grid of patches, a text
// colored by its loss, two models layer by layer. web/src/results.ts has the types of these sections, web/src/study/data.ts that
// of the document. Numbers have 7 significant digits; null is what is not known.
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "inspect/circuits.h"
#include "inspect/compare.h"
#include "inspect/head_scores.h"
#include "intervene/run.h"
#include "picture/data/values.h"
#include "runtime/engine.h"

namespace vitrine {

/// Token ids and their probabilities in turns: id, p, id, p, …, most likely first.
using LikelyTokens = std::vector<double>;
LikelyTokens likely_tokens(const std::vector<TokenLogprob>& likely);

struct CircuitsData {
  struct Head {
    int64_t layer = 0, head = 0;
    double copying = 0;
    int64_t qk_rank = 0, ov_rank = 0;

    VITRINE_MEMBERS(layer, head, copying, qk_rank, ov_rank);
  };
  struct Link {
    double score = 0;
    std::string words;

    VITRINE_MEMBERS(score, words);
  };
  std::vector<Head> heads;
  std::vector<Composition> composition;  // empty: none were computed, or too many
  std::vector<Link> links;               // the strongest, strongest first

  VITRINE_MEMBERS(heads, composition, links);
};

struct HeadsData {
  static constexpr const char* kPicture = "heads";
  struct Run {
    std::string name;
    std::string options;                          // what names this model in a command, with a space in front
    std::optional<int64_t> step;                  // of a checkpoint
    std::optional<double> loss, loss_again = {};  // mean of -ln p of the tokens; of those that come again
    std::vector<std::array<std::optional<double>, kHeadRoles>> scores = {};  // by head and role
    std::vector<std::string> sentences;  // heads that do what is said stand between backquotes

    VITRINE_MEMBERS(name, options, step, loss, loss_again, scores, sentences);
  };
  std::vector<int32_t> ids;                        // on which the heads were scored
  std::string prompt;                              // how a command is given them: "'a text'", "--repeat 50"
  int64_t repeated = 0;                            // tokens that come a second time, as the prompt's second half; 0: none
  std::array<int64_t, kHeadRoles> queries{};       // by role: positions that have such keys
  std::vector<std::array<int64_t, 2>> heads = {};  // layer, head
  std::vector<Run> runs = {};                      // at least one: models, or the checkpoints of a run by step
  std::optional<CircuitsData> circuits = {};       // of the last run

  VITRINE_MEMBERS(ids, prompt, repeated, queries, heads, runs, circuits);
};

struct PatchData {
  static constexpr const char* kPicture = "patch";
  struct Cell {
    double value = 0;             // of the metric
    std::optional<double> share;  // of the way from the corrupt run to the clean one
    LikelyTokens likely;
    std::string recipe;  // how it goes on behind recipe_head

    VITRINE_MEMBERS(value, share, likely, recipe);
  };
  std::vector<int32_t> clean, corrupt;  // corrupt: empty if there is one prompt
  bool runs_corrupt = false;
  std::string kind, what;     // "patch", "ablate" or "path"; "resid_pre", "z", …, "senders"
  std::vector<int64_t> rows;  // layers
  std::string column_axis;    // "position", "head" or "sender"
  std::vector<std::string> columns;
  std::vector<int64_t> positions;  // of each column, where columns are positions
  int64_t position = 0;            // after which predictions and metric are taken
  MetricValues metric;
  LikelyTokens before = {}, clean_likely;  // of the run that is changed, as it is; of the clean prompt
  std::string recipe_head;
  std::vector<std::optional<Cell>> cells = {};  // by row, then column; none: not a cell of the grid

  VITRINE_MEMBERS(clean, corrupt, runs_corrupt, kind, what, rows, column_axis, columns, positions, position, metric, before,
                  clean_likely, recipe_head, cells);
};

struct LossesData {
  static constexpr const char* kPicture = "losses";
  struct Text {
    std::vector<std::string> words;          // the pieces that a reader sees
    std::vector<std::optional<double>> nll;  // none: not scored
    std::vector<LikelyTokens> likely;        // in the place of each; may be empty
    size_t left_out = 0;                     // words after these

    VITRINE_MEMBERS(words, nll, likely, left_out);
  };
  struct Run {
    const Engine* engine = nullptr;  // whose vocabulary spells `likely`
    std::string name;
    std::vector<std::string> facts = {};  // lines
    std::vector<Text> texts = {};
    std::map<std::string, std::string> pieces = {};  // by id

    VITRINE_MEMBERS(name, facts, texts, pieces);
  };
  bool paired = false;  // the words of all runs are the same, so that differences have a meaning
  std::vector<std::optional<double>> kl =
      {};                 // between what two runs expect in the place of each word of the only text; may be empty
  std::vector<Run> runs;  // one or two models

  VITRINE_MEMBERS(paired, kl, runs);
};

struct LayersData {
  static constexpr const char* kPicture = "layers";
  std::vector<StreamDifference> points;

  VITRINE_MEMBERS(points);
};

/// Means of -ln p over ranges of `axis`, which double from one to the next.
struct CurvesData {
  static constexpr const char* kPicture = "curves";
  struct Range {
    int64_t from = 0, to = 0, tokens = 0;
    double value = 0;

    VITRINE_MEMBERS(from, to, tokens, value);
  };
  struct Curve {
    std::string name;
    std::vector<Range> ranges;

    VITRINE_MEMBERS(name, ranges);
  };
  std::string title, axis;
  std::vector<Curve> curves;

  VITRINE_MEMBERS(title, axis, curves);
};

using StudySection = std::variant<HeadsData, PatchData, LossesData, LayersData, CurvesData>;

struct StudyHead {
  std::string kicker, title;
  std::vector<std::string> lines;  // below the title; `code` between backquotes
  std::string command;             // that made the page

  VITRINE_MEMBERS(kicker, title, lines, command);
};
/// engine: its vocabulary spells the tokens of all sections.
PictureJson study_document(const Engine& engine, const StudyHead& head, const std::vector<StudySection>& sections);

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
HeadsData heads_section(std::span<const StudiedHeads> runs, const CircuitTable* circuits, int64_t repeated,
                        const std::string& prompt);

/// The grid of a recipe's result, which was run with cell_top; `clean` is what the model expects after the clean prompt.
/// Errors: InputError if the recipe has no grid.
PatchData patch_section(const InterveneResult& result, const std::vector<TokenLogprob>& clean);

/// Fills in the pieces of `runs`.
LossesData losses_section(std::vector<LossesData::Run> runs, bool paired, std::vector<std::optional<double>> kl = {});

}  // namespace vitrine
