#pragma once
// Declaring options so that --help, the manual page and the completions can all be written from them.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "io/text_reader.h"

namespace vitrine::cli {

/// An option with one of a few words as value. `words` is "auto|f32"; --help shows it as the value's name.
CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value, const std::string& words,
                        const std::string& what);

/// A whole number in [low, high].
CLI::Option* add_count(CLI::App& app, const std::string& names, int64_t& value, int64_t low, int64_t high,
                       const std::string& what);

/// A finite number in [low, high], or (low, high] with `above_low`.
CLI::Option* add_number(CLI::App& app, const std::string& names, double& value, double low, double high, const std::string& what,
                        bool above_low = false);

/// Refuses "", which a shell makes of a variable that is not set, where a missing option means something of its own.
CLI::Validator not_empty();

/// Text as typed for `flag`: \n, \t, \r and \\ stand for what they stand for elsewhere. Errors: UsageError for another \x.
std::string unescape(const std::string& text, const std::string& flag);

/// Refuses --key where none of the files is JSON lines and --document where all are. Errors: UsageError.
void check_text_flags(const std::vector<std::string>& files, const TextOptions& text, bool has_key);

/// What FILES of such commands are; corpus_files() gives those of folders and patterns.
inline constexpr char kTextFiles[] =
    "Text files, JSON lines (.jsonl) or tar archives of them, each also as .gz or .zst; folders of such files, or patterns";

/// --key, --format and --document of commands that read documents.
struct DocumentFlags {
  std::string format, separator;
  bool has_key = false;
};
/// Adds them; `text` and `flags` must live until the command has run. read_document_flags() then settles `text` for `files`.
/// Errors: UsageError as unescape and check_text_flags.
void add_document_flags(CLI::App& app, TextOptions& text, DocumentFlags& flags);
void read_document_flags(const std::vector<std::string>& files, TextOptions& text, const DocumentFlags& flags);

/// The words of an option made by add_choice, empty for others.
std::vector<std::string> words_of(const CLI::Option& option);

/// Token ids as typed: "2,651", and several sequences as "2,651;2,77". Spaces are allowed.
/// Errors: InputError for an empty list or sequence, a negative id, and whatever is not a number below 2^31; `flag` is
/// named in the message.
std::vector<std::vector<int32_t>> parse_sequences(const std::string& text, const std::string& flag);
/// parse_sequences for one sequence only.
std::vector<int32_t> parse_ids(const std::string& text, const std::string& flag);

/// parse_sequences for labels, among which -100 means "not scored".
std::vector<std::vector<int32_t>> parse_labels(const std::string& text, const std::string& flag);

/// Checks that text from the command line is UTF-8. Errors: InputError naming `what` and the first wrong byte.
void require_utf8(const std::string& text, const std::string& what);

/// The lines of a --jsonl file ("-" is standard input), each with its text. Blank lines are passed over.
/// Errors: FileError naming the line that is not an object with a string under "text".
std::vector<std::string> read_jsonl_texts(const std::string& path);

/// The content of a file, or of standard input for "-".
std::string read_text(const std::string& path);

}  // namespace vitrine::cli
