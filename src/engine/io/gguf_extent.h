#pragma once
// How much of a GGUF file must be there before it can be opened.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace vitrine {

/// Where the keys and the descriptions of the tensors of a GGUF file end, whose beginning `bytes` is; none if that lies behind
/// them. What is no GGUF file ends where that shows: open_gguf says what is wrong.
std::optional<uint64_t> gguf_header_bytes(std::span<const std::byte> bytes);

}  // namespace vitrine
