#pragma once
// The page that computes: the offline page with the engine in WebAssembly and the weights in it (web/src/live).
#include <span>
#include <string>

#include "picture/data/values.h"

namespace vitrine {

/// The largest file of weights that a page takes: browsers hold the page, the file and what is computed from it in memory.
inline constexpr size_t kMostLiveWeights = size_t{64} << 20;

/// The page of a document, with a GGUF file and its name, which the commands on the page give. Errors: UsageError for a larger
/// file; RunError if this build lacks the page's script or the engine.
std::string live_page(const PictureJson& document, std::span<const std::byte> weights, const std::string& name);

}  // namespace vitrine
