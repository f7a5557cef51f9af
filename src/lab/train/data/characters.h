#pragma once
// The simplest vocabulary there is: every character of a corpus is a token.
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/text_reader.h"

namespace vitrine {

/// The characters of files' texts. Errors: as TextReader.
std::set<uint32_t> characters_of(const std::vector<std::string>& files, const TextOptions& options);

/// The files of a tokenizer in which each of `characters` is a token, numbered from 0 in the order of their code points:
/// tokenizer.json, byte-pair encoding without merges, which Hugging Face's tokenizers reads and, as we do, passes over
/// characters that are not in it; tokenizer_config.json, without which transformers would take a GPT-2 beside it for
/// byte-level. Errors: InputError for no character, and for more than 65536.
std::map<std::string, std::string> character_tokenizer_files(const std::set<uint32_t>& characters);

}  // namespace vitrine
