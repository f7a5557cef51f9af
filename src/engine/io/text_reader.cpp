#include "io/text_reader.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"

namespace vitrine {
namespace {

constexpr size_t kLongestLine = size_t{256} << 20;
constexpr size_t kRead = size_t{256} << 10;
constexpr size_t kAhead = 4096;  // what TextOptions::lies_across sees behind a cut
constexpr int kTries = 256;      // places of one kind for which it is asked

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

// Letters and digits of ASCII; bytes of other characters count as letters.
bool is_letter(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || (byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z');
}

// Where to cut a text of more than `longest` bytes, in (longest / 2, longest].
size_t cut_of(std::string_view text, const TextOptions& options) {
  const size_t longest = options.longest;
  const auto last = [&](const auto& fits) -> size_t {  // 0: none
    int tries = kTries;
    for (size_t at = longest; at > longest / 2 && tries > 0; --at) {
      if (!fits(at)) continue;
      if (!options.lies_across || !options.lies_across(text, at)) return at;
      --tries;
    }
    return 0;
  };
  const auto begins_character = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80; };
  for (const char white : {'\n', ' '})
    if (const size_t at = last([&](size_t i) { return text[i] == white && is_letter(text[i - 1]); })) return at;
  if (const size_t at = last(begins_character)) return at;
  for (size_t at = longest; at > longest - 4; --at)
    if (begins_character(at)) return at;
  return longest;
}

[[noreturn]] void refuse_byte(char c, const std::string& where) {
  static constexpr char kHex[] = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  throw FileError(
      where,
      std::string("byte 0x") + kHex[byte >> 4] + kHex[byte & 15] +
          " is not UTF-8. Convert the file, for example with iconv, or have such bytes replaced by U+FFFD (--replace-invalid)");
}

// The code unit of an escape \uXXXX at that place of a JSON text; nothing if there is none.
std::optional<uint32_t> escaped_unit(std::string_view json, size_t at) {
  uint32_t unit = 0;
  if (json.substr(at, 2) != "\\u" || json.size() < at + 6) return {};
  const auto [end, error] = std::from_chars(json.data() + at + 2, json.data() + at + 6, unit, 16);
  return error == std::errc() && end == json.data() + at + 6 ? std::optional(unit) : std::nullopt;
}

// Halves of surrogate pairs that stand alone, which are no character, become U+FFFD.
std::string without_lone_surrogates(std::string json) {
  for (size_t at = json.find('\\'); at != std::string::npos; at = json.find('\\', at)) {
    const uint32_t unit = escaped_unit(json, at).value_or(0);
    const bool high = unit >= 0xd800 && unit < 0xdc00, low = unit >= 0xdc00 && unit < 0xe000;
    const uint32_t next = high ? escaped_unit(json, at + 6).value_or(0) : 0;
    if (next >= 0xdc00 && next < 0xe000) {
      at += 12;
      continue;
    }
    if (high || low) json.replace(at + 2, 4, "fffd");
    at += 2;
  }
  return json;
}

// What a line holds. Errors: as parse_json, but for text that is no JSON only because of half a surrogate pair.
Json object_of(std::string_view line, const std::string& where, bool replace) {
  if (replace) return parse_json(without_lone_surrogates(utf8_lossy(line)), where);
  try {
    return parse_json(line, where);
  } catch (const FileError&) {
    const std::string whole = without_lone_surrogates(std::string(line));
    if (whole == line || !Json::accept(whole)) throw;
    const auto half = static_cast<size_t>(std::mismatch(whole.begin(), whole.end(), line.begin()).first - whole.begin());
    throw FileError(where, "holds " + std::string(line.substr(line.rfind('\\', half), 6)) +
                               ", half of a surrogate pair, which is no character by itself. Write the character whole, or have "
                               "such halves replaced by U+FFFD (--replace-invalid)");
  }
}

// Of a sample of WebDataset: the name up to the first dot.
std::string_view key_of(std::string_view member) {
  const size_t name = member.rfind('/') + 1;
  return member.substr(0, member.find('.', name));
}

std::string keys_of(const Json& object) {
  std::string keys;
  for (const auto& [key, value] : object.items()) {
    if (keys.size() > 200) return keys + ", …";
    keys += (keys.empty() ? "\"" : ", \"") + key + "\"";
  }
  return keys;
}

}  // namespace

bool reads_json_lines(std::string_view path, TextFormat format) {
  if (format != TextFormat::by_name) return format != TextFormat::text;
  if (is_tar(path)) return true;
  return name_ends_in(path, {".jsonl", ".ndjson"});
}

bool reads_plain_text(std::string_view path, TextFormat format) {
  return (format == TextFormat::by_name && is_tar(path)) || !reads_json_lines(path, format);
}

TextReader::TextReader(const std::string& path, TextOptions options)
    : path_(path), options_(std::move(options)), stream_(ByteStream::open(path)) {
  if (options_.longest < 16) throw UsageError("a piece of text must be allowed at least 16 bytes");
  if (is_tar(path)) {
    archive_ = std::make_unique<TarReader>(*stream_, path);
    at_end_ = true;  // of the member before the first one
  } else if (reads_json_lines(path, options_.format)) {
    layout_ = Layout::json;
  }
}

// Goes to the next member that is read; false after the last one.
bool TextReader::next_member() {
  const std::string before = std::exchange(member_, {});
  const bool before_text = layout_ == Layout::text;
  while (archive_->next()) {
    const std::string& name = archive_->name();
    const bool text = name.ends_with(".txt");
    if ((!text && !name_ends_in(name, {".json", ".jsonl", ".ndjson"})) || name.substr(name.rfind('/') + 1).starts_with('.') ||
        (options_.format != TextFormat::by_name && text != (options_.format == TextFormat::text))) {
      others_ = name;
      continue;
    }
    member_ = name;
    if (options_.format == TextFormat::by_name && !before.empty() && text != before_text && key_of(before) == key_of(name))
      throw FileError(path_,
                      "holds " + before + " and " + name + " of one sample. Say which are the texts: --format text or jsonl");
    layout_ = text ? Layout::text : Layout::json;
    buffer_.clear();
    begin_ = 0;
    line_ = 1;
    at_end_ = false;
    found_ = true;
    return true;
  }
  if (!found_) {
    const char* const wanted = options_.format == TextFormat::by_name ? ".txt, .json or .jsonl"
                               : options_.format == TextFormat::text  ? ".txt"
                                                                      : ".json or .jsonl";
    throw FileError(path_, std::string("is a tar archive without a member ending in ") + wanted +
                               (others_.empty() ? "; it is empty" : "; it holds " + others_));
  }
  return false;
}

// Reads until `wanted` bytes are there or the file ends; whether they are there.
bool TextReader::fill(size_t wanted) {
  while (buffer_.size() - begin_ < wanted && !at_end_) {
    if (begin_ > 0) {
      buffer_.erase(0, begin_);
      begin_ = 0;
    }
    const size_t size = buffer_.size();
    buffer_.resize(size + std::max(kRead, std::min(wanted, kLongestLine) - std::min(wanted, size)));
    const std::span<char> into = std::span(buffer_).subspan(size);
    const size_t got = archive_ != nullptr ? archive_->read(into) : stream_->read(into);
    buffer_.resize(size + got);
    at_end_ = got == 0;
  }
  return buffer_.size() - begin_ >= wanted;
}

void TextReader::consume(size_t n) {
  line_ += static_cast<uint64_t>(std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                            buffer_.begin() + static_cast<std::ptrdiff_t>(begin_ + n), '\n'));
  begin_ += n;
}

// Fills the piece with `text`, which begins in that line.
void TextReader::give(TextPiece& piece, std::string_view text, uint64_t line, bool ends) {
  piece.begins = !inside_;
  piece.ends = ends;
  piece.line = line;
  piece.member = member_;
  inside_ = !ends;
  const size_t valid = valid_utf8_prefix(text);
  if (valid == text.size() || options_.invalid == InvalidText::keep) {
    piece.text = text;
  } else if (options_.invalid == InvalidText::replace) {
    piece.text = utf8_lossy(text);
  } else {
    line += static_cast<uint64_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(valid), '\n'));
    refuse_byte(text[valid], place(line));
  }
}

// How many of the bytes in front of a document belong to none, where `blank` of them are line ends: a separator may begin with
// some of these.
size_t TextReader::blank_size(size_t blank) const {
  const std::string& separator = options_.separator;
  const size_t found = rest().substr(0, blank + separator.size() - 1).find(separator);
  if (found != std::string_view::npos) return found + separator.size();
  // One that begins so late that it is not read to its end is looked for again. fill() has read more bytes than it has.
  return at_end_ ? blank : std::min(blank, rest().size() - (separator.size() - 1));
}

bool TextReader::next_text(TextPiece& piece) {
  const std::string& separator = options_.separator;
  while (true) {
    fill(options_.longest + kAhead + separator.size());  // a separator that begins within a piece is seen whole
    if (!inside_ && !separator.empty()) {                // line ends before a document
      size_t blank = 0;
      while (blank < rest().size() && is_line_end(rest()[blank])) ++blank;
      if (blank > 0) {
        consume(blank_size(blank));
        continue;
      }
    }
    const std::string_view text = rest();
    if (text.empty() && !inside_) return false;
    const size_t end = separator.empty() ? std::string_view::npos : text.find(separator);
    const size_t size = std::min(end, text.size());
    if (size > options_.longest) {
      const size_t cut = cut_of(text.substr(0, size), options_);
      give(piece, text.substr(0, cut), line_, false);
      consume(cut);
      return true;
    }
    size_t shown = size;
    if (!separator.empty())
      while (shown > 0 && is_line_end(text[shown - 1])) --shown;
    const bool empty = shown == 0 && !inside_;
    if (!empty) give(piece, text.substr(0, shown), line_, true);
    consume(end == std::string_view::npos ? size : size + separator.size());
    if (!empty) return true;
  }
}

// The next line that is not blank; without its end. It is valid until more is read.
bool TextReader::next_line(std::string_view& line) {
  while (true) {
    size_t scanned = 0, newline = std::string_view::npos;
    while ((newline = rest().find('\n', scanned)) == std::string_view::npos) {
      scanned = rest().size();
      if (scanned > kLongestLine) throw FileError(place(line_), "is longer than 256 MiB; expected one JSON object a line");
      if (!fill(scanned + 1)) break;
    }
    line = rest().substr(0, newline);
    if (line.empty() && newline == std::string_view::npos) return false;
    document_line_ = line_;
    consume(newline == std::string_view::npos ? line.size() : newline + 1);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return true;
  }
}

// Moves to the next byte of JSON that is not white space; false at the end of the file.
bool TextReader::skip_white() {
  while (fill(1)) {
    const size_t white = std::min(rest().find_first_not_of(" \t\r\n"), rest().size());
    consume(white);
    if (!rest().empty()) return true;
  }
  return false;
}

// Of the object that begins here. What is between its braces is not checked.
size_t TextReader::object_size() {
  size_t depth = 0, at = 0;
  for (bool in_string = false;; ++at) {
    if (at >= rest().size() && !fill(at + 1))
      throw FileError(place(line_), "begins an object that the file does not end. Was the file copied completely?");
    if (at > kLongestLine) throw FileError(place(line_), "begins an object of more than 256 MiB");
    const char c = rest()[at];
    if (in_string) {
      if (c == '\n') throw FileError(place(line_), "begins an object with a string that does not end in its line");
      if (c == '\\') ++at;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if ((c == '}' || c == ']') && --depth == 0) {
      return at + 1;
    }
  }
}

// What begins here. It is valid until more is read.
void TextReader::take_object(std::string_view& object) {
  if (rest()[0] != '{') refuse("an object was expected to begin with {");
  document_line_ = line_;
  const size_t size = object_size();
  object = rest().substr(0, size);
  consume(size);
}

// Errors: FileError for what stands here.
void TextReader::refuse(const char* expected) const {
  const char c = rest()[0];
  throw FileError(place(line_), "holds " + (c >= ' ' && c <= '~' ? "'" + std::string(1, c) + "'" : std::string("another byte")) +
                                    " where " + expected);
}

// The next object of a list.
bool TextReader::next_of_list(std::string_view& object) {
  const auto ends_early = [&] {
    return FileError(place(line_), "the list of objects does not end. Was the file copied completely?");
  };
  if (!skip_white()) {
    if (layout_ == Layout::after_list) return false;
    throw ends_early();
  }
  if (layout_ == Layout::after_list) refuse("the file was expected to end, after its list of objects");
  const bool first = layout_ == Layout::json;
  if (first) {  // at [
    consume(1);
    layout_ = Layout::list;
    if (!skip_white()) throw ends_early();
  }
  if (rest()[0] == ']') {
    consume(1);
    layout_ = Layout::after_list;
    return next_of_list(object);
  }
  if (!first) {
    if (rest()[0] != ',') refuse("a list of objects was expected to go on with , or to end with ]");
    consume(1);
    if (!skip_white()) throw ends_early();
  }
  take_object(object);
  return true;
}

// The next line of JSON lines, or the next object of a list. Whether it is one at all is not checked.
bool TextReader::next_object(std::string_view& object) {
  if (layout_ == Layout::json) {
    if (fill(3) && rest().starts_with("\xef\xbb\xbf")) begin_ += 3;  // a byte order mark
    size_t white = 0;
    while ((white = rest().find_first_not_of(" \t\r\n")) == std::string_view::npos && fill(rest().size() + 1)) {
    }
    if (white == std::string_view::npos || rest()[white] != '[')
      layout_ = name_ends_in(archive_ != nullptr ? member_ : path_, {".json"}) ? Layout::objects : Layout::lines;
  }
  if (layout_ == Layout::lines) return next_line(object);
  if (layout_ != Layout::objects) return next_of_list(object);
  if (!skip_white()) return false;
  take_object(object);
  return true;
}

// Makes the next object's text the document.
bool TextReader::next_json() {
  std::string_view json;
  while (next_object(json)) {
    const std::string where = place(document_line_);
    const bool replace = options_.invalid != InvalidText::refuse;
    if (const size_t valid = replace ? json.size() : valid_utf8_prefix(json); valid < json.size())
      refuse_byte(json[valid], where);
    if (options_.format == TextFormat::objects) {
      document_ = replace ? without_lone_surrogates(utf8_lossy(json)) : std::string(json);
      std::replace_if(document_.begin(), document_.end(), is_line_end, ' ');  // between values: strings hold none
      return true;
    }
    Json object = object_of(json, where, replace);
    if (!object.is_object())
      throw FileError(where, "is no JSON object; expected one a line, such as {\"" + options_.key + "\": \"Once upon a time\"}");
    const auto found = object.find(options_.key);
    if (found == object.end())
      throw FileError(
          where,
          "has no key \"" + options_.key + "\"; its keys are " + keys_of(object) + ". Name the one that holds the text" +
              (archive_ != nullptr && options_.format == TextFormat::by_name ? ", or read .txt members alone: --format text"
                                                                             : ""));
    if (!found->is_string())
      throw FileError(where,
                      "has a JSON " + std::string(found->type_name()) + " under \"" + options_.key + "\"; expected a string");
    document_ = std::move(found->get_ref<std::string&>());
    if (!document_.empty()) return true;
  }
  return false;
}

bool TextReader::next(TextPiece& piece) {
  if (archive_ == nullptr) return next_of_file(piece);
  while (member_.empty() || !next_of_file(piece))
    if (!next_member()) return false;
  return true;
}

bool TextReader::next_of_file(TextPiece& piece) {
  if (layout_ == Layout::text) return next_text(piece);
  if (!inside_) {
    document_begin_ = 0;
    if (!next_json()) return false;
  }
  const std::string_view left = std::string_view(document_).substr(document_begin_);
  const bool whole = options_.format == TextFormat::objects || left.size() <= options_.longest;
  const std::string_view part = whole ? left : left.substr(0, cut_of(left, options_));
  give(piece, part, document_line_, whole);
  document_begin_ += part.size();
  return true;
}

}  // namespace vitrine
