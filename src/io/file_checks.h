#pragma once
// Checks that the readers of weight formats share.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace vitrine {

/// Product of all sizes, if it is at most 2^55: then 64 bits an element cannot overflow 64-bit arithmetic.
/// Zero sizes are allowed, but the other sizes must obey the limit all the same.
std::optional<uint64_t> checked_product(std::span<const uint64_t> sizes);

/// FileError if the content is the pointer that Git LFS leaves in the place of a large file, or a web page.
void refuse_pointer_file(std::span<const std::byte> bytes, const std::string& file);

/// Advice for a directory without readable weights, from what it does hold; begins with a separator.
std::string advice_on_weights(const std::string& directory);

}  // namespace vitrine
