#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace vitrine {

/// Bytes as one gzip member without a name or a time (RFC 1952): the same bytes give the same member. Errors: RunError.
std::string gzip(std::span<const std::byte> bytes);

}  // namespace vitrine
