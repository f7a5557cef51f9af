#pragma once
// Look-ahead in the patterns of a JSON schema, which llguidance's regular expressions lack.
#include "base/json.h"

namespace vitrine {

/// Rewrites the "pattern" of `schema` where it begins with look-ahead, as in ^(?=.*[0-9])(?!^[-+.]*$)…: what is looked for
/// becomes a pattern of its own in "allOf". (?!…) is rewritten if it is one class of characters that fills the text. pydantic's
/// patterns of decimals with a limit of digits are rewritten as a whole. Others stay as they are.
void split_look_ahead(OrderedJson& schema);

}  // namespace vitrine
