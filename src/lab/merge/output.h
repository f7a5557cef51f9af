#pragma once
// What stands beside the weights of a merged model: tokenizer, chat template, the recipe, a model card.
#include <map>
#include <string>

#include "merge/plan.h"

namespace vitrine {

/// Files by name. `title` heads the model card. Errors: FileError for a tokenizer that cannot be read; UsageError for a chat
/// template that is neither "auto", a name that is built in, nor Jinja.
std::map<std::string, std::string> merge_companions(const MergePlan& plan, const std::string& title);

/// The chat template that the recipe asks for; empty: the tokenizer's own. Errors: UsageError as merge_companions; InputError
/// with the line for a template that is no Jinja.
std::string merged_chat_template(const MergePlan& plan);

}  // namespace vitrine
