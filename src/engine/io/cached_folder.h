#pragma once
// Folders of repositories in the local Hugging Face cache that are no models: autoencoders.
#include <optional>
#include <string>
#include <string_view>

#include "io/huggingface.h"

namespace vitrine {

/// Where "OWNER/NAME:FOLDER" lies in the cache, at the revision that refs/main names (or at the only one that is there); nothing
/// for what is no such name. Needs no network and uses none. Errors: FileError that says how to download it.
std::optional<std::string> locate_folder(std::string_view name, const std::string& cache = hub_cache());

}  // namespace vitrine
