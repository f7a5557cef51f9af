#pragma once
// The simplest vocabulary there is: every character of a corpus is a token.
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "io/text_reader.h"

namespace vitrine {

/// The characters of files' texts. Errors: as TextReader.
std::set<uint32_t> characters_of(const std::vector<std::string>& files, const TextOptions& options);

/// A tokenizer.json in which each of `characters` is a token, numbered from 0 in the order of their code points: byte-pair
/// encoding without merges. Hugging Face's tokenizers reads it and, as we do, passes over characters that are not in it.
/// Errors: InputError for no character, and for more than 65536.
std::string character_tokenizer_json(const std::set<uint32_t>& characters);

}  // namespace vitrine
