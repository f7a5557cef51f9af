#pragma once
// The still of a page's opening: the model at work on its prompt, for paper, for browsers without scripts, and to share.
#include <optional>
#include <string>

#include "picture/data/values.h"

namespace vitrine {

/// A document's run as a standalone SVG file: one line a token, from its embedding at the left through the layers to the right,
/// as thick as its residual stream is long; the token that each would predict at the end; arcs where a token attends to another
/// (mean over the heads of a layer), and the most likely next tokens. The last 32 tokens at most. What the document lacks is left
/// out; nothing for a document without logit-lens. moving: it grows from left to right, again and again, unless the reader
/// prefers reduced motion.
std::optional<std::string> opening_svg(const PictureJson& document, bool moving = false);

}  // namespace vitrine
