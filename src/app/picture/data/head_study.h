#pragma once
// What the pictures of a head share: which head it is, and what the heads of each layer read in this run.
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "inspect/attention_formula.h"
#include "inspect/head_scores.h"
#include "ops/recorder.h"
#include "picture/data/studio.h"

namespace vitrine {

/// Of a longer prompt the first tokens: they do not depend on what follows.
inline constexpr size_t kHeadTokens = 24;

struct HeadStudy {
  HeadScores scores;  // on `repeated` random tokens, twice: `vitrine circuits`
  int64_t repeated = 0;
  std::vector<int64_t> layers;  // those whose heads are an AttentionFormula
  std::string why_not;          // if there is none: of the first layer
  int64_t layer = 0, head = 0;  // the head that is shown: as asked for, or the one that looks most at the previous token
  bool chosen = false;          // it was asked for

  std::vector<int32_t> ids;                   // the prompt, kHeadTokens at most
  std::map<int64_t, RowsD> x;                 // by layer: [token, d_model], what its heads read
  std::vector<RowsD> patterns;                // of the shown layer's heads, as the run has them
  std::vector<RowsD> results;                 // of the same: [token, d_model], attn.hook_result
  std::shared_ptr<AttentionFormula> formula;  // of the shown layer
  PictureJson law = nullptr;                  // of permutations.cpp, once a picture asked for it

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

/// Errors: InputError for a layer or a head that is not there, and as score_heads.
HeadStudy& head_study(Studio& studio);

/// Errors: InputError "layer 9 does not exist: this model has 8, 0 to 7" for a number that was given and is none of them.
void require_place(const char* what, std::optional<int64_t> i, int64_t size);

/// The picture that says why the shown layer has no such head, or null.
PictureJson no_head_formula(const Studio& studio, const HeadStudy& study);

/// [rows, columns] of a hook that was kept.
RowsD rows_of_hook(const Recorder& seen, const std::string& hook);

/// |a - b| / |b| over all entries; 0 where both are 0.
double relative_distance(const RowsD& a, const RowsD& b);

PictureJson packed_rows(const RowsD& rows);

/// "layer 1, head 3"
std::string head_title(const HeadStudy& study);
/// Where a longer prompt was cut: " Of the prompt, its first 24 tokens."
std::string cut_sentence(const Studio& studio, const HeadStudy& study);

}  // namespace vitrine
