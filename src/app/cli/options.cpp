#include "cli/options.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <iterator>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"

namespace vitrine::cli {
namespace {

/// A check without a text of its own in --help.
CLI::Validator check(std::function<std::string(std::string&)> refuses) { return CLI::Validator(std::move(refuses), ""); }

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  while (true) {
    const size_t end = text.find(at);
    parts.push_back(trimmed(text.substr(0, end)));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Sequences of ids; `also` is a negative number that is allowed.
std::vector<std::vector<int32_t>> parse(const std::string& text, const std::string& flag, std::optional<int64_t> also) {
  std::vector<std::vector<int32_t>> sequences;
  for (const std::string& part : split(text, ';')) {
    auto& ids = sequences.emplace_back();
    for (const std::string& word : split(part, ',')) {
      if (word.empty())
        throw InputError(
            fmt::format("{}: an id is missing in \"{}\". Give ids as 2,651 and separate sequences by a semicolon.", flag, text));
      int64_t id = 0;
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
      if (error == std::errc::invalid_argument || end != word.data() + word.size())
        throw InputError(fmt::format("{}: \"{}\" is no token id. Give ids as 2,651.", flag, word));
      if (error != std::errc() || id > INT32_MAX)
        throw InputError(fmt::format("{}: {} is out of range; token ids go from 0 to at most {}.", flag, word, INT32_MAX));
      if (id < 0 && id != also) throw InputError(fmt::format("{}: {} is negative; token ids count from 0.", flag, word));
      ids.push_back(static_cast<int32_t>(id));
    }
  }
  return sequences;
}

}  // namespace

CLI::Option* add_choice(CLI::App& app, const std::string& names, std::string& value, const std::string& words,
                        const std::string& what) {
  return app.add_option(names, value, what)->type_name(words)->check(check([words](std::string& given) {
    for (const std::string& word : split(words, '|'))
      if (word == given) return std::string();
    return fmt::format("\"{}\" is none of {}", given, words);
  }));
}

CLI::Option* add_count(CLI::App& app, const std::string& names, int64_t& value, int64_t low, int64_t high,
                       const std::string& what) {
  return app.add_option(names, value, what)->type_name("N")->check(check([low, high](std::string& given) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), n);
    const bool beyond = error == std::errc::result_out_of_range;  // what 64 bits hold
    if ((error != std::errc() && !beyond) || end != given.data() + given.size())
      return fmt::format("\"{}\" is no whole number", given);
    if (beyond || n < low || n > high) return fmt::format("{} is not between {} and {}", given, low, high);
    return std::string();
  }));
}

CLI::Option* add_number(CLI::App& app, const std::string& names, double& value, double low, double high, const std::string& what,
                        bool above_low) {
  return app.add_option(names, value, what)->type_name("X")->check(check([=](std::string& given) {
    double x = 0;
    if (!CLI::detail::lexical_cast(given, x) || !std::isfinite(x)) return fmt::format("\"{}\" is no finite number", given);
    if (x > high || x < low || (above_low && x == low))
      return fmt::format("{} is not {}{}{}", given, above_low ? "above " : "between ", low,
                         above_low ? fmt::format(" and at most {}", high) : fmt::format(" and {}", high));
    return std::string();
  }));
}

CLI::Validator not_empty() {
  return check(
      [](std::string& given) { return std::string(given.empty() ? "is empty; leave the option out or give a value" : ""); });
}

std::string unescape(const std::string& text, const std::string& flag) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    const char next = ++i < text.size() ? text[i] : '\0';
    switch (next) {
      case 'n': result += '\n'; break;
      case 't': result += '\t'; break;
      case 'r': result += '\r'; break;
      case '\\': result += '\\'; break;
      default: throw UsageError(fmt::format("{}: \"{}\" has a \\ that means nothing; write \\n, \\t, \\r or \\\\.", flag, text));
    }
  }
  return result;
}

void check_text_flags(const std::vector<std::string>& files, const TextOptions& text, bool has_key) {
  const auto any = [&](bool (*reads)(std::string_view, TextFormat)) {
    return std::any_of(files.begin(), files.end(), [&](const std::string& file) { return reads(file, text.format); });
  };
  if (has_key && !any(&reads_json_lines))
    throw UsageError("--key is for JSON lines, which none of the files is read as (their names end in .jsonl or .ndjson).");
  if (!text.separator.empty() && !any(&reads_plain_text))
    throw UsageError("--document is for plain text; all files are read as JSON lines, of which each is a document.");
}

void add_document_flags(CLI::App& app, TextOptions& text, DocumentFlags& flags) {
  app.add_option("--key", text.key, "JSON lines: the key of the text")
      ->type_name("KEY")
      ->capture_default_str()
      ->each([&flags](const std::string&) { flags.has_key = true; });
  add_choice(app, "--format", flags.format, "text|jsonl", "Format of the files; default: from their names");
  app.add_option(
         "--document", flags.separator,
         "Text files: the separator between documents, such as '<|endoftext|>' or '\\n\\n\\n'; without it a file is one document")
      ->type_name("SEPARATOR")
      ->check(not_empty());
}

void read_document_flags(const std::vector<std::string>& files, TextOptions& text, const DocumentFlags& flags) {
  if (flags.format == "text") text.format = TextFormat::text;
  if (flags.format == "jsonl") text.format = TextFormat::jsonl;
  text.separator = unescape(flags.separator, "--document");
  check_text_flags(files, text, flags.has_key);
}

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find('|') == std::string::npos ? std::vector<std::string>{} : split(type, '|');
}

std::vector<std::vector<int32_t>> parse_sequences(const std::string& text, const std::string& flag) {
  std::string_view list = text;  // with or without the brackets of a JSON list
  if (list.starts_with('[') && list.ends_with(']')) list = list.substr(1, list.size() - 2);
  return parse(std::string(list), flag, {});
}

std::vector<std::vector<int32_t>> parse_labels(const std::string& text, const std::string& flag) {
  return parse(text, flag, -100);
}

std::vector<int32_t> parse_ids(const std::string& text, const std::string& flag) {
  auto sequences = parse_sequences(text, flag);
  if (sequences.size() != 1)
    throw InputError(
        fmt::format("{}: {} sequences, separated by semicolons, were given; this takes one.", flag, sequences.size()));
  return std::move(sequences.front());
}

void require_utf8(const std::string& text, const std::string& what) {
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t point = 0;
    const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                                    static_cast<utf8proc_ssize_t>(text.size() - i), &point);
    if (n <= 0)
      throw InputError(
          fmt::format("{}: byte {} (0x{:02x}) is not UTF-8. Convert the text to UTF-8 first, for example with iconv.", what, i,
                      static_cast<unsigned char>(text[i])));
    i += static_cast<size_t>(n);
  }
}

std::string read_text(const std::string& path) {
  if (path != "-") return read_file(path);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

std::vector<std::string> read_jsonl_texts(const std::string& path) {
  const std::string content = read_text(path);
  const std::string name = path == "-" ? "standard input" : path;
  std::vector<std::string> texts;
  size_t line = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t newline = std::min(content.find('\n', begin), content.size());
    const std::string text = trimmed(std::string_view(content).substr(begin, newline - begin));
    begin = newline + 1;
    ++line;
    if (text.empty()) continue;
    const std::string where = fmt::format("{} line {}", name, line);
    const Json object = parse_json(text, where);
    if (!object.is_object() || !object.contains("text") || !object["text"].is_string())
      throw FileError(where, "expected an object with a string under \"text\", such as {\"text\": \"Once upon a time\"}");
    texts.push_back(object["text"].get<std::string>());
  }
  if (texts.empty()) throw FileError(name, "holds no line. Expected one object a line, such as {\"text\": \"Once upon a time\"}");
  return texts;
}

}  // namespace vitrine::cli
