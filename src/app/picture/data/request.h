#pragma once
// What is asked of a picture: the prompt and the choices.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/context.h"
#include "runtime/engine.h"

namespace vitrine {

struct TunedLens;

/// Of pictures for which none was given.
inline constexpr char kUsualPrompt[] = "Once upon a time there was a king";

/// What a picture shows the model at work on.
struct PicturePrompt {
  std::optional<std::string> text;  // none: the ids were given
  std::vector<int32_t> ids;         // none: of pictures of a configuration, which run no model
  std::vector<TokenPiece> pieces;   // with a text: as long as ids
  std::string model;                // as it was given; empty: the shipped one
  std::string adapter = {};         // as it was given; empty: none
  std::string compute = "auto";     // as it was given
  bool special = true;              // the text was encoded with BOS and EOS where the tokenizer adds them
};

struct PictureOptions {
  std::optional<int64_t> layer = {}, head = {},
                         position = {};        // of pictures of one layer, head, token; none: the picture's own choice
  std::vector<std::string> words = {};         // of embedding-cosine; empty: a usual choice
  std::string sum = {};                        // of embedding-neighbors, "king - man + woman"; empty: that one
  size_t memory = 0;                           // bytes that a run may keep; 0: what the system has left
  Listener* edits = nullptr;                   // changes the run that is observed, and no other; outlives what is made with it
  std::shared_ptr<const TunedLens> lens = {};  // of logit-lens and tuned-lens; fits the model
  bool gradients = true;                       // false: pictures that run the model backward are absent
};

}  // namespace vitrine
