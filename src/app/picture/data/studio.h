#pragma once
// What the builders of pictures share: the model, the prompt, and the run that was observed.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <set>

#include "base/plural.h"
#include "picture/data/backward.h"
#include "picture/data/facts.h"
#include "picture/data/observe.h"
#include "picture/data/request.h"

namespace vitrine {

struct HeadStudy;

struct Studio {
  Engine& engine;
  const PicturePrompt& prompt;
  const PictureOptions& options;
  ModelFacts facts;
  Observation seen;
  std::set<int32_t> mentioned;            // ids that some picture names
  std::optional<Backward> backward = {};  // of the pictures that show the loss's gradients, once one of them was built
  std::shared_ptr<HeadStudy> heads = {};  // of the pictures of one head (head_study.h), once one of them was built

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

/// Whether neighboring position vectors of this run are more alike than distant ones, as a sentence; "" below three positions.
std::string likeness_of_positions(const Studio& studio);

/// At how many points the picture of the input takes integrated gradients, each a run forward and backward: as many as
/// `attribute` takes, fewer where that would take long, 0 (none) where fewer would not do.
int64_t integral_points(const ModelFacts& facts, int64_t tokens);

}  // namespace vitrine
