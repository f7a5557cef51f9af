#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/utf8.h"
#include "io/atomic_file.h"

namespace vitrine::cli {
namespace {

/// The code point at text[i] and its length; -1 and 1 where the bytes are no UTF-8.
std::pair<utf8proc_int32_t, size_t> code_point(std::string_view text, size_t i) {
  utf8proc_int32_t point = -1;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                                  static_cast<utf8proc_ssize_t>(text.size() - i), &point);
  if (n <= 0) return {-1, 1};
  return {point, static_cast<size_t>(n)};
}

// A character as it is, or in letters what would not be seen: control characters and broken UTF-8 as \x1b, characters that are
// invisible or turn the line's direction as \u{200f}.
std::string shown(utf8proc_int32_t point, std::string_view bytes) {
  if (point < 0 || point < 0x20 || point == 0x7f) return fmt::format("\\x{:02x}", static_cast<unsigned char>(bytes[0]));
  if (utf8proc_category(point) == UTF8PROC_CATEGORY_CC || utf8proc_category(point) == UTF8PROC_CATEGORY_CF)
    return fmt::format("\\u{{{:x}}}", static_cast<unsigned>(point));
  return std::string(bytes);
}

// Bytes of the color code ("\x1b[1m") at text[i]; 0: none stands there.
size_t color_code(std::string_view text, size_t i) {
  if (!text.substr(i).starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", i + 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 - i : 0;
}

// Of a terminal whose size is not known, COLUMNS says it, as in other programs.
int columns_of(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  return columns != nullptr ? std::clamp(std::atoi(columns), 0, 10000) : 0;
}

// "%" and units of bytes stay with their number, and a number with a sign with the piece before it ("▁king +0.43").
bool stays_with_the_word_before(std::string_view word) {
  if (word.size() > 1 && (word[0] == '+' || word[0] == '-') && word[1] >= '0' && word[1] <= '9') return true;
  const std::string_view plain = word.substr(0, word.find_first_of(",;:.)"));
  return plain == "%" || plain == "B" || plain == "KiB" || plain == "MiB" || plain == "GiB" || plain == "TiB";
}

struct Word {
  std::string_view text, gap;  // and the spaces behind it
};
Word word_at(std::string_view line, size_t begin) {
  const size_t end = std::min(line.find(' ', begin), line.size());
  return {line.substr(begin, end - begin), line.substr(end, std::min(line.find_first_not_of(' ', end), line.size()) - end)};
}

void wrap_line(std::string_view line, int columns, int indent, std::string& text) {
  if (columns <= 0 || width_of(line) <= columns) {
    text += line;
    return;
  }
  const size_t leading = std::min(line.find_first_not_of(' '), line.size());
  const std::string next(std::min(std::max(leading, static_cast<size_t>(indent)), static_cast<size_t>(columns) / 2), ' ');
  text += line.substr(0, leading);
  int at = static_cast<int>(leading);
  bool first = true;  // of the line
  for (size_t begin = leading; begin < line.size();) {
    Word word = word_at(line, begin);
    for (size_t behind; (behind = begin + word.text.size() + word.gap.size()) < line.size();) {
      const Word unit = word_at(line, behind);
      if (word.gap.size() != 1 || !stays_with_the_word_before(unit.text)) break;
      word = {line.substr(begin, behind + unit.text.size() - begin), unit.gap};
    }
    const int width = width_of(word.text);
    if (!first && at + width > columns) {
      text.erase(text.find_last_not_of(' ') + 1);
      text += "\n" + next;
      at = static_cast<int>(next.size());
    }
    text += word.text;
    text += word.gap;
    at += width + static_cast<int>(word.gap.size());
    first = false;
    begin += word.text.size() + word.gap.size();
  }
}

std::string styled(std::string_view text, const char* code) {
  if (!terminal().colors) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
}

}  // namespace

void write_out(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size())
    throw RunError(fmt::format("standard output: {}; the result is incomplete", std::strerror(errno)));
}

void write_lines(std::string_view text) { write_out(wrapped(text, terminal().columns)); }

void write_note(std::string_view text) {
  static const int columns = isatty(STDERR_FILENO) == 1 ? columns_of(STDERR_FILENO) : 0;
  write_err(wrapped(text, columns));
}

void write_err(std::string_view text) {
  const std::string valid = utf8_lossy(text);
  std::fwrite(valid.data(), 1, valid.size(), stderr);
  std::fflush(stderr);
}

void print_json(const OrderedJson& document) {
  write_out(document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  write_out("\n");
}

void check_writable(std::string_view flag, const std::string& path) {
  if (std::filesystem::is_directory(path)) throw UsageError(fmt::format("{} {} is a directory; expected a file.", flag, path));
  try {
    const AtomicFile file(path);
  } catch (const RunError& error) {
    throw UsageError(fmt::format("{} {}. Name a file in a folder that exists and that you may write to.", flag, error.what()));
  }
}

void finish_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    throw RunError(fmt::format("standard output: {}; the result is incomplete", std::strerror(errno)));
}

const Terminal& terminal() {
  static const Terminal found = [] {
    const bool is_terminal = isatty(STDOUT_FILENO) == 1;
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    const bool plain = (no_color != nullptr && *no_color != '\0') || (term != nullptr && std::strcmp(term, "dumb") == 0);
    return Terminal{is_terminal, is_terminal && !plain, is_terminal ? columns_of(STDOUT_FILENO) : 0};
  }();
  return found;
}

std::string bold(std::string_view text) { return styled(text, "1"); }
std::string dim(std::string_view text) { return styled(text, "2"); }
std::string risen(std::string_view text) { return styled(text, "38;5;33"); }
std::string fallen(std::string_view text) { return styled(text, "38;5;172"); }

std::string bar(double share, int cells) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (!(share > 0)) return "";
  const int eighths = std::clamp(static_cast<int>(std::lround(share * cells * 8)), 1, cells * 8);
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

std::string visible(std::string_view piece) {
  std::string text;
  for (size_t i = 0; i < piece.size();) {
    const auto [point, n] = code_point(piece, i);
    text += point == '\n'   ? "\\n"
            : point == '\t' ? "\\t"
            : point == '\r' ? "\\r"
            : point == '\\' ? "\\\\"
                            : shown(point, piece.substr(i, n));
    i += n;
  }
  return text;
}

std::string visible_message(std::string_view message) {
  std::string text;
  for (size_t i = 0; i < message.size();) {
    const auto [point, n] = code_point(message, i);
    text += point == '\n' || point == '\t' ? std::string(message.substr(i, n)) : shown(point, message.substr(i, n));
    i += n;
  }
  return text;
}

int width_of(std::string_view text) {
  int columns = 0;
  for (size_t i = 0; i < text.size();) {
    if (const size_t code = color_code(text, i); code > 0) {
      i += code;
      continue;
    }
    const auto [point, n] = code_point(text, i);
    columns += point < 0 ? 1 : utf8proc_charwidth(point);
    i += n;
  }
  return columns;
}

std::string wrapped(std::string_view text, int columns, int indent) {
  std::string lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    wrap_line(text.substr(begin, end - begin), columns, indent, lines);
    if (end < text.size()) lines += '\n';
    begin = end + 1;
  }
  return lines;
}

std::string pad_right(std::string_view text, int columns) {
  return std::string(text) + std::string(static_cast<size_t>(std::max(0, columns - width_of(text))), ' ');
}

std::string pad_left(std::string_view text, int columns) {
  return std::string(static_cast<size_t>(std::max(0, columns - width_of(text))), ' ') + std::string(text);
}

std::string grouped(int64_t n) {
  std::string digits = std::to_string(n), text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && digits[i - 1] != '-' && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace vitrine::cli
