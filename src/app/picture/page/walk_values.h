#pragma once
// The values that the texts of the walk-through may use, by name.
#include "picture/data/studio.h"

namespace vitrine {

/// steps/README.md lists them. pictures: those of the document, by name.
PictureJson walk_values(Studio& studio, const PictureJson& pictures);

}  // namespace vitrine
