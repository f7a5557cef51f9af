#pragma once
// Fields of a request that say what the text must conform to.
#include <memory>
#include <optional>
#include <string>

#include "generate/constraint.h"
#include "grammar/grammar.h"
#include "requests/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// grammar (GBNF or Lark), lark, json_schema, and the guided_… fields and structured_outputs of vLLM, of which a request may have
/// one.
const std::vector<Field>& grammar_fields();

/// Reads grammar_fields(); null: the text is free. Errors: ApiError 400 naming the field, for two of them and for what
/// GrammarCompiler refuses; 501 in a build without llguidance.
std::shared_ptr<const Constraint> read_grammar(const Fields& fields, const Service& service);

/// {"type": "text"}, {"type": "json_object"} or {"type": "json_schema"} with the schema at json_schema.schema or at schema;
/// `where` is the field's name. space: as Grammar::space. call: what the text may be instead. Errors: as read_grammar.
std::shared_ptr<const Constraint> read_format(const OrderedJson& format, const std::string& where, const Service& service,
                                              const std::optional<std::string>& space = {},
                                              const std::optional<GrammarAlternative>& call = {});

/// What structured_outputs has as whitespace_pattern, or "" for disable_any_whitespace. Errors: ApiError 400 for no string.
std::optional<std::string> json_space(const Fields& fields);

/// Lists what says what the text follows among the ignored fields: the text is a call.
void ignore_grammar(Fields& fields);

/// response_format of chats and completions, read as read_format does.
Field format_field();
/// What it asks for, or else `grammar`. Errors: as read_format and only_one.
std::shared_ptr<const Constraint> format_or(std::shared_ptr<const Constraint> grammar, const Fields& fields,
                                            const Service& service, const std::optional<GrammarAlternative>& call = {});

/// The one of both that is there. Errors: ApiError naming `where` if both are.
std::shared_ptr<const Constraint> only_one(std::shared_ptr<const Constraint> format, std::shared_ptr<const Constraint> grammar,
                                           const std::string& where);

}  // namespace vitrine::serve
