#pragma once
// How each kind of file becomes a Tokenizer. load_tokenizer() chooses among these.
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tokenizer/config.h"
#include "tokenizer/sentencepiece_spec.h"
#include "tokenizer/tokenizer.h"

namespace vitrine {

/// A tokenizer.model with what the files beside it add: tokens, roles, what stands around a text.
SentencePieceSpec parse_sentencepiece(std::string_view bytes, const std::string& path, const TokenizerConfig& config);

/// Calls visit(left, right) for each line of a merges.txt. Errors: FileError naming the line.
void each_merge_line(std::string_view text, const std::string& path,
                     const std::function<void(std::string_view, std::string_view)>& visit);

std::shared_ptr<const Tokenizer> tokenizer_from_sentencepiece(std::string_view bytes, const std::string& path,
                                                              const TokenizerConfig& config);
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text, const std::string& path,
                                                     const TokenizerConfig& config);
/// BERT's WordPiece: a vocab.txt, a piece on each line, with the settings of `config`. Errors: also FileError for a class of
/// tokenizer that cuts words by jieba's dictionary.
std::shared_ptr<const Tokenizer> tokenizer_from_vocab_text(std::string_view text, const std::string& path,
                                                           const TokenizerConfig& config);
/// Errors: FileError if transformers' class for `folder` cuts words by jieba's dictionary, whatever the files hold.
void refuse_jieba(const std::string& folder, const TokenizerConfig& config);

std::shared_ptr<const Tokenizer> tokenizer_from_vocab_and_merges(const std::string& vocab_path, const std::string& merges_path,
                                                                 const TokenizerConfig& config);

}  // namespace vitrine
