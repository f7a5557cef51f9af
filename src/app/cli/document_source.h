#pragma once
// The text of commands that run a corpus through the model: files, or a folder of `vitrine data`.
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"
#include "collect/collect.h"
#include "runtime/engine.h"

namespace vitrine::cli {

struct DocumentSource {
  std::vector<std::string> files;
  TextOptions text;
  DocumentFlags documents;
  std::string data;
  bool no_special = false;
};

/// FILES and --data, and how they are read: --key, --format, --document, --no-special.
void add_document_source(CLI::App& app, DocumentSource& source);
void add_document_source_flags(CLI::App& app, DocumentSource& source);

/// example: "collect tales.txt --out acts", a call with text, for the message that there is none.
/// Errors: UsageError for no text or both kinds; InputError for a folder of another tokenizer; as text_tokens.
std::unique_ptr<DocumentTokens> open_documents(DocumentSource& source, const Engine& engine, const std::string& example);

}  // namespace vitrine::cli
