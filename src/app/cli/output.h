#pragma once
// What the program writes: results on stdout, everything else on stderr, one JSON document when --json is given.
#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/memory.h"
#include "base/percent.h"

namespace vitrine::cli {

/// Writes to stdout as it is: pieces of a stream, and what others read, such as scripts and recipes.
void write_out(std::string_view text);
/// `text` to stdout; on a terminal, lines that are too wide are broken between words.
void write_lines(std::string_view text);
/// Text for the person who watches, to stderr at once. Who watches may be gone (a closed terminal, a full disk), which ends no
/// run.
void write_err(std::string_view text);

/// A piece of the result, to stdout.
template <class... Args>
void print(fmt::format_string<Args...> form, Args&&... args) {
  write_lines(fmt::format(form, std::forward<Args>(args)...));
}
/// A line for the person who watches, to stderr, broken as write_lines does.
void write_note(std::string_view text);
template <class... Args>
void log(fmt::format_string<Args...> form, Args&&... args) {
  write_note(fmt::format(form, std::forward<Args>(args)...) + "\n");
}

/// The document of --json: one line with a newline at its end. Bytes that are not UTF-8 become U+FFFD; a number that is
/// not finite becomes null, as JSON has no word for it.
void print_json(const OrderedJson& document);

/// Sees to it that a file that a run is to write can be written, before the run: makes it beside `path` and removes it.
/// Errors: UsageError with the flag and the system's reason, since another path mends it; InputError as AtomicFile.
void check_writable(std::string_view flag, const std::string& path);

/// Flushes stdout. Errors: RunError if anything written there was lost (a full disk).
void finish_output();

/// How the terminal behind stdout wants to be written to: asked once, at the first call.
struct Terminal {
  bool is_terminal;  // colors and cursor movement make sense
  bool colors;       // is_terminal, and NO_COLOR is not set and TERM is not "dumb"
  int columns;       // 0 when stdout is no terminal: nothing is cut
};
const Terminal& terminal();

/// `text` in bold or grey where colors are wanted, else unchanged.
std::string bold(std::string_view text);
std::string dim(std::string_view text);
/// `text` in blue for what became more and in orange for what became less, where colors are wanted: the heat map's two.
std::string risen(std::string_view text);
std::string fallen(std::string_view text);

/// A bar of `share` (0 to 1) of `cells` columns, in eighths of a column. A share above zero shows at least an eighth.
std::string bar(double share, int cells);

/// A piece as one visible word: control characters and backslashes as \n, \t, \\, \x1b; broken UTF-8 as \xff.
std::string visible(std::string_view piece);
/// A message of one or more lines in which the same characters are visible, apart from line ends, tabs and backslashes.
std::string visible_message(std::string_view message);

/// Columns that UTF-8 text takes in a terminal (wide East Asian characters take two, colors none).
int width_of(std::string_view text);
/// The lines of `text`, each broken between words so that it has at most `columns` columns (0: no limit). What follows begins
/// with `indent` spaces, or with the spaces that the line began with if these are more. A word that is longer stays whole.
std::string wrapped(std::string_view text, int columns, int indent = 0);
/// `text` with spaces up to `columns`, at its right or its left.
std::string pad_right(std::string_view text, int columns);
std::string pad_left(std::string_view text, int columns);

/// 8921344 as "8,921,344".
std::string grouped(int64_t n);

}  // namespace vitrine::cli
