#pragma once
// Lines of JSON that hold conversations or preferences, as ids with the assistant's part marked.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine.h"
#include "train/data/prepare.h"

namespace vitrine {

class ChatFormat;

/// What reads such lines with a model's tokenizer and chat template, or with `source` in the template's place, `called` so in
/// messages. Errors: as ChatFormat; preferences and prompts that are texts need no template, and none need be there.
LineEncoder conversation_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source = {},
                                 const std::string& called = "");
LineEncoder preference_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source = {},
                               const std::string& called = "");
LineEncoder prompt_encoder(std::shared_ptr<const Engine> engine, const std::optional<std::string>& source = {},
                           const std::string& called = "");

/// {"messages": [{"role": …, "content": …}, …]}, with "tools" if there are some: the documents that ChatFormat::masked() gives.
/// Errors: InputError for a line that is no such object, for a conversation without a turn of the assistant, as ChatFormat.
std::vector<MaskedDocument> conversation_documents(const ChatFormat& format, std::string_view line);

/// {"prompt": …, "chosen": …, "rejected": …}: two documents, the prompt with the chosen answer and with the rejected one, in
/// which the answers are marked. Either all are texts: BOS where the tokenizer adds it, the ids of the prompt and the
/// answer as one text, and EOS, if there is one; a token that holds the end of the one and the begin of the other counts as the
/// answer's; control tokens spelled out in them stay text. Or they are lists of messages, which go
/// through the chat template (`format`; null: there is none); a prompt may then be missing or be a text beside whole
/// conversations: what these two have in common, up to the last turns, is the prompt.
/// Errors: InputError for a line that is no such object, for an answer without a token, for messages without a template.
std::vector<MaskedDocument> preference_documents(const Tokenizer& tokenizer, const ChatFormat* format, std::string_view line);

/// {"prompt": …} and whatever else a reward reads: a document in which nothing is marked. A text is tokenized as that of
/// preferences, a list of messages goes through the chat template up to where the assistant answers.
/// Errors: InputError as preference_documents; for a prompt without a token; for the keys that a reward gets from the model.
std::vector<MaskedDocument> prompt_documents(const Tokenizer& tokenizer, const ChatFormat* format, std::string_view line);

}  // namespace vitrine
