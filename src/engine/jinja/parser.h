#pragma once
#include <string_view>

#include "jinja/lexer.h"
#include "jinja/syntax.h"

namespace vitrine::jinja {

/// Reads a template. Grammar and precedence are Jinja 3.1's (documentation, "Template Designer"): one pass, recursive descent.
/// Errors: throws SyntaxProblem, also for tags that have no meaning in a chat template (include, extends, block, ...) and for
///         a template that nests too deeply.
Body parse(std::string_view source);

}  // namespace vitrine::jinja
