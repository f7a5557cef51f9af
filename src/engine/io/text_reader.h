#pragma once
// Documents out of text files of any size, a piece at a time: plain text, JSON lines, a JSON list, or a tar archive of such
// files; as they are, as .gz or .zst.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "io/byte_stream.h"
#include "io/tar_reader.h"

namespace vitrine {

enum class TextFormat : uint8_t {
  by_name,  // JSON lines if the name, without .gz or .zst, ends in .jsonl or .ndjson; else text
  text,
  jsonl,    // one object a line, or a list of objects
  objects,  // the same; a piece is a whole object, as JSON without line ends
};

enum class InvalidText : uint8_t {  // bytes that are not UTF-8
  refuse,
  replace,  // by U+FFFD
  keep,     // in plain text; in JSON lines they are replaced
};

/// Whether such a file is read as JSON lines. An archive may hold both.
bool reads_json_lines(std::string_view path, TextFormat format = TextFormat::by_name);
bool reads_plain_text(std::string_view path, TextFormat format = TextFormat::by_name);

struct TextOptions {
  TextFormat format = TextFormat::by_name;
  std::string key = "text";    // of a line's object: what holds the text
  std::string separator = {};  // stands between documents of plain text; empty: a file is one document
  InvalidText invalid = InvalidText::refuse;
  size_t longest = size_t{1} << 20;  // bytes of a piece; at least 16
  /// Whether something that is to stay whole lies across text[at]; then no cut is made there, if one of some hundred other places
  /// is free. The text goes on for 4096 bytes behind the place, or to its end. Empty: nothing does.
  std::function<bool(std::string_view text, size_t at)> lies_across = {};
};

/// A document, or a part of one that is longer than TextOptions::longest.
struct TextPiece {
  std::string text;                   // UTF-8, unless invalid bytes are kept
  bool begins = false, ends = false;  // it holds the document's first and last byte
  uint64_t line = 0;                  // of the file, counted from 1, in which it begins
  std::string member = {};            // of an archive, that it is from; then the line is one of that
};

/// Reads one file. Memory stays at a few pieces, for JSON lines at a few times the longest line.
///
/// Text       with a separator, line ends around it belong to no document, and documents without a character are skipped;
///            without one, the file is the document, byte for byte.
/// JSON lines an empty text and a blank line are skipped. A file that begins with [ is a list, whose objects may span lines.
///            In a file whose name ends in .json objects may span lines without a list, too.
/// Archives   files whose names say so (is_tar()); of their members those ending in .txt, .json, .jsonl and .ndjson
///            are read as such files are, in order, and others are ignored, as in shards of WebDataset.
/// A long document is cut before a line end or space that follows a letter or digit of ASCII, where no byte-level vocabulary
/// joins bytes to a token, or a character beyond ASCII, where few do (`。\n`); at any character where half a piece holds none.
/// The pieces joined are the document.
class TextReader {
 public:
  /// Errors: FileError as ByteStream::open; UsageError for an impossible option.
  TextReader(const std::string& path, TextOptions options);

  /// The next piece; false after the last one.
  /// Errors: FileError naming the line for text that is not UTF-8, for a line that is no JSON object with a string under the
  /// key, for a line or object of more than 256 MiB, and for a list that ends too early; for an archive without such members, and
  /// for one with a text and an object of the same key where the format does not choose; as TarReader and ByteStream::read.
  bool next(TextPiece& piece);

  uint64_t consumed() const { return stream_->consumed(); }  // bytes of the file that were read
  uint64_t file_bytes() const { return stream_->file_bytes(); }

 private:
  bool next_of_file(TextPiece& piece);
  bool next_member();
  bool next_text(TextPiece& piece);
  bool next_json();
  bool next_object(std::string_view& object);
  bool next_line(std::string_view& line);
  bool next_of_list(std::string_view& object);
  void take_object(std::string_view& object);
  [[noreturn]] void refuse(const char* expected) const;
  bool skip_white();
  size_t object_size();
  bool fill(size_t wanted);
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }
  void consume(size_t n);
  size_t blank_size(size_t blank) const;
  void give(TextPiece& piece, std::string_view text, uint64_t line, bool ends);
  std::string place(uint64_t line) const {
    return path_ + (member_.empty() ? "" : ": " + member_) + " line " + std::to_string(line);
  }

  std::string path_;
  TextOptions options_;
  enum class Layout : uint8_t { text, json, lines, objects, list, after_list };  // json: which one is not known yet
  Layout layout_ = Layout::text;
  std::unique_ptr<ByteStream> stream_;
  std::unique_ptr<TarReader> archive_;  // null: the file is none
  std::string member_;                  // of the archive, that is being read
  std::string others_;                  // a member that was ignored, for messages
  bool found_ = false;                  // a member that is read
  std::string buffer_;                  // bytes [begin_, …) are read and not yet given out
  size_t begin_ = 0;
  bool at_end_ = false;         // of the file
  bool inside_ = false;         // of a document of which a part was given out
  uint64_t line_ = 1;           // of the file at begin_
  std::string document_;        // JSON: the running object's text
  uint64_t document_line_ = 0;  // in which that object begins
  size_t document_begin_ = 0;
};

}  // namespace vitrine
