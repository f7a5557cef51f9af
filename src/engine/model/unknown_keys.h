#pragma once
// Configurations that say more than their family knows.
#include <string>
#include <vector>

#include "io/huggingface.h"

namespace vitrine {

/// Takes the keys out of a config.json that its family does not know, for who goes on without them, and returns their names
/// ("rope_scaling.factor" for one in an object). Those of a GGUF file are not changed.
/// Errors: FileError for a configuration that is wrong in what is known.
std::vector<std::string> drop_unknown_keys(ModelFiles& files);

}  // namespace vitrine
