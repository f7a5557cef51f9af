#pragma once
// What every offline page is made of.
#include <string>

#include "picture/data/values.h"

namespace vitrine {

struct PageParts {
  std::string title;
  std::string plain;     // for readers whose browser runs no scripts
  std::string elements;  // put in front of the page's script, as they are
  std::string scripts;   // what the policy allows besides the page's own scripts
  std::string still;     // a drawing for them, as SVG
};

PageParts explain_parts(const PictureJson& document);

/// A page with this document. Errors: RunError if this build lacks the page's script.
std::string page_of(const PictureJson& document, const PageParts& parts);

}  // namespace vitrine
