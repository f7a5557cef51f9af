#pragma once
// GPT-2's alphabet: each of the 256 bytes as one printable character, so that a vocabulary of bytes can be written as
// text. Bytes 33-126, 161-172 and 174-255 stand for themselves, the others for U+0100 onwards.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

/// The character of each byte, as UTF-8.
const std::array<std::string, 256>& byte_level_alphabet();

/// The byte that `character` stands for; -1: none.
int byte_of_character(uint32_t character);

/// The pattern that cuts a text into words in GPT-2.
inline constexpr std::string_view kGpt2Pattern = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// And in Qwen 2.
inline constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Appends the bytes that `piece` spells; false, with `out` unchanged, if some character of it is not of the alphabet.
bool append_byte_level(std::string_view piece, std::string& out);

}  // namespace vitrine
