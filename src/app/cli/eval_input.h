#pragma once
// What the commands of `vitrine eval` have in common: the texts of --file, the windows over them, how results are written.
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/output.h"
#include "evaluate/perplexity.h"

namespace vitrine::cli {

struct EvalTextOptions {
  std::string file;
  bool jsonl = false;
  std::string key = "text";
  bool has_key = false;
  std::string like = "vitrine";
  WindowOptions windows;
};
/// --file, --jsonl, --key, --context, --stride, --no-special.
void add_eval_text_options(CLI::App& app, EvalTextOptions& options);

/// The texts of the file: one, or one for each line of JSON. Errors: FileError as TextReader; UsageError for --key without JSON
/// lines; InputError for a file without text.
std::vector<std::string> read_eval_texts(const EvalTextOptions& options);

/// Calls f(object, "file line 7") for each line of a file of JSON lines (also .gz and .zst) until it returns false. Blank lines
/// are passed over. Errors: FileError naming the line that is not JSON.
void each_json_line(const std::string& path, const std::function<bool(const Json& line, const std::string& where)>& f);

OrderedJson definition_json(const Engine& engine, const WindowDefinition& definition);

/// "1,234" below 10,000 and "12.3 k" above: a speed.
std::string rate_text(double per_second);

}  // namespace vitrine::cli
