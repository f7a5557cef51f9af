#pragma once
// How each kind of file becomes a Tokenizer. load_tokenizer() chooses among these.
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/config.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::string_view bytes, const std::string& path,
                                                              const TokenizerConfig& config);
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text, const std::string& path,
                                                     const TokenizerConfig& config);
std::shared_ptr<const Tokenizer> tokenizer_from_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path,
                                                                 const TokenizerConfig& config);

}  // namespace vitrine
