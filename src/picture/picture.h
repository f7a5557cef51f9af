#pragma once
// The pictures of the walk-through, as data (web/src/data.ts), as SVG, and all together as one page.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generate/engine.h"
#include "picture/values.h"

namespace vitrine {

/// What is drawn.
struct PicturePrompt {
  std::optional<std::string> text;  // none: the ids were given
  std::vector<int32_t> ids;
  std::vector<TokenPiece> pieces;  // with a text: as long as ids
  std::string model;               // as it was given; empty: the shipped one
  std::string adapter = {};        // as it was given; empty: none
  bool special = true;             // the text was encoded with BOS and EOS where the tokenizer adds them
};

struct PictureOptions {
  std::optional<int64_t> layer = {}, head = {},
                         position = {};  // of pictures of one layer, head, token; none: the picture's own choice
  std::vector<std::string> words = {};   // of embedding-cosine; empty: a usual choice
  std::string sum = {};                  // of embedding-neighbours, "king - man + woman"; empty: that one
  size_t memory = 0;                     // bytes that a run may keep; 0: what the system has left
  bool gradients = true;                 // false: pictures that run the model backward are absent
};

struct PictureInfo {
  const char* name;
  const char* title;
  const char* summary;  // one line
};
/// Every picture of the walk-through, in its order.
const std::vector<PictureInfo>& pictures();
/// Errors: UsageError for an unknown name, naming the nearest.
void check_picture_name(std::string_view name);

/// The document with one picture (data.ts' Vitrine without steps).
/// Errors: UsageError for an unknown name, naming the nearest; InputError as Engine::check_ids, for a layer, head or position
/// that is not there, for words and sums that the vocabulary cannot spell, and for more than memory holds; RunError for NaN.
PictureJson picture_document(Engine& engine, const PicturePrompt& prompt, std::string_view name,
                             const PictureOptions& options = {});

/// The document of a page: every picture of the walk-through and every step. Errors: as picture_document.
PictureJson explain_document(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options = {});

/// The picture `name` of a document as a standalone SVG file. Errors: InputError with the picture's reason if it is absent.
std::string picture_svg(const PictureJson& document, std::string_view name, const PictureOptions& options = {});

/// The offline page of a document. Errors: RunError if this build lacks the page's script.
std::string explain_page(const PictureJson& document);

}  // namespace vitrine
