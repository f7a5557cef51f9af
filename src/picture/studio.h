#pragma once
// What the builders of pictures share: the model, the prompt, and the run that was observed.
#include <fmt/format.h>

#include <optional>
#include <set>

#include "base/plural.h"
#include "picture/backward.h"
#include "picture/facts.h"
#include "picture/observe.h"
#include "picture/picture.h"

namespace vitrine {

struct Studio {
  Engine& engine;
  const PicturePrompt& prompt;
  const PictureOptions& options;
  ModelFacts facts;
  Observation seen;
  std::set<int32_t> mentioned;            // ids that some picture names
  std::optional<Backward> backward = {};  // of the pictures that show the loss's gradients, once one of them was drawn

  bool spelled() const { return engine.has_tokenizer(); }
  /// The piece of an id as the vocabulary spells it; "#7" where it has none.
  std::string piece(int32_t id) const;
  /// Notes the id for the document's `pieces`.
  int32_t mention(int32_t id) {
    mentioned.insert(id);
    return id;
  }
  int64_t tokens() const { return static_cast<int64_t>(prompt.ids.size()); }
};

/// A picture that cannot be: {available: false, reason}.
PictureJson absent(const std::string& reason);
/// The beginning of one that can.
PictureJson present(const std::string& caption, const std::string& alt);

// One builder per picture, by its name in data.ts. Each returns present(…) with the picture's own fields, or absent(…).
PictureJson draw_dot_product(Studio&);
PictureJson draw_tokens(Studio&);
PictureJson draw_merges(Studio&);
PictureJson draw_splits(Studio&);
PictureJson draw_embedding_cosine(Studio&);
PictureJson draw_embedding_neighbours(Studio&);
PictureJson draw_position_vectors(Studio&);
PictureJson draw_embedding_rescaling(Studio&);
PictureJson draw_update_scale(Studio&);
PictureJson draw_residual_scale(Studio&);
PictureJson draw_layer_norm(Studio&);
PictureJson draw_norm_statistics(Studio&);
PictureJson draw_head_grouping(Studio&);
PictureJson draw_softmax(Studio&);
PictureJson draw_attention(Studio&);
PictureJson draw_soft_cap(Studio&);
PictureJson draw_rope_rotation(Studio&);
PictureJson draw_rope_wavelengths(Studio&);
PictureJson draw_query_length(Studio&);
PictureJson draw_activation_curves(Studio&);
PictureJson draw_mlp_surfaces(Studio&);
PictureJson draw_final_norm(Studio&);
PictureJson draw_next_tokens(Studio&);
PictureJson draw_logit_lens(Studio&);
PictureJson draw_logit_attribution(Studio&);
PictureJson draw_input_attribution(Studio&);
PictureJson draw_reach(Studio&);
PictureJson draw_gradient_norms(Studio&);
PictureJson draw_gradient_hooks(Studio&);

/// At how many points the picture of the input takes integrated gradients, each a run forward and backward: as many as
/// `attribute` takes, fewer where that would take long, 0 (none) where fewer would not do.
int64_t integral_points(const ModelFacts& facts, int64_t tokens);

/// The walk-through's steps (data.ts' Step[]), true for this model. drawn: every picture, by its name.
PictureJson walk_through(Studio&, const PictureJson& drawn);

}  // namespace vitrine
