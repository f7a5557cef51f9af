#pragma once
// Objects of JSON that hold conversations, preferences (in pairs or not) or prompts, as ids with the part marked that is learned.
#include <memory>
#include <optional>
#include <string>

#include "runtime/engine.h"
#include "train/data/forms.h"
#include "train/data/prepare.h"

namespace vitrine {

struct LineOptions {
  DataContent content = DataContent::conversations;
  const DataForm* form = nullptr;                 // that every object must have; null: each its own
  std::optional<std::string> chat_template = {};  // Jinja, in the place of the model's own
  std::string called = {};                        // that template in messages
  bool as_messages = false;  // the texts of prompts with completions, and Alpaca's, become messages of the chat template
};

struct LineReading {
  LineEncoder encode;
  std::string chat_template;  // that the objects of LineOptions::form go through; empty: there is none
};

/// What reads such objects with a model's tokenizer and chat template. Forms and what becomes of them:
///
/// messages               with "tools" if there are some: the documents that ChatFormat::masked() gives.
/// ShareGPT               the same. Roles: human or user, gpt (or the like) or assistant, system, tool; "system" beside the
///                        turns stands before them.
/// prompt and completion  texts: BOS where the tokenizer adds it, the ids of both as one text, and EOS, if there is one. What is
///                        scored begins where these ids and those of the prompt alone differ, as in TRL; control tokens spelled
///                        out in them stay text, but for one EOS that ends the completion. Or lists of messages, which go
///                        through the chat template (ChatFormat::answered()).
/// Alpaca                 a prompt and a completion in the words of Stanford Alpaca, which alpaca_template() writes, or through a
///                        chat template that is given or, with as_messages, the model's own.
/// preferences            two documents, the prompt with the chosen answer and with the rejected one, in which the answers are
///                        marked: texts or messages as with completions, from where the first of the two differs from the prompt.
///                        A prompt may be missing or be a text beside whole conversations: what these two have in common, up to
///                        the last turns, is the prompt.
/// unpaired preferences   a document for each answer, which is marked as a completion is; the first mark is the label. Pairs of
///                        answers give two: the chosen one is desirable, the rejected one is not.
/// prompts                {"prompt": …} and whatever else a reward reads: a document in which nothing is marked. A text is
///                        tokenized as that of completions, messages go through the template up to where the assistant answers.
///
/// Errors: InputError for a mistake in the template. Of encode: InputError for anything but such an object, or one of another
/// form than LineOptions::form, for a conversation without a turn of the assistant, for an answer or a prompt without a token,
/// for messages without a template, for the keys that a reward gets from the model; as ChatFormat.
LineReading read_lines(std::shared_ptr<const Engine> engine, const LineOptions& options);

/// Stanford Alpaca's prompts as a chat template: "instruction" is a user's "content", with its "input" beside it.
std::string alpaca_template(const Tokenizer& tokenizer);

}  // namespace vitrine
