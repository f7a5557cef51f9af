// Any bytes as a corpus file: text or JSON lines, as they are or as gzip or Zstandard (the first bytes decide), with long pieces
// and short ones; read to its end in well-formed pieces, or refused by name. The first byte chooses the options.
#include "io/text_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

using vitrine::InvalidText;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  static const int file = memfd_create("corpus", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data + 1, size - 1, 0) != static_cast<ssize_t>(size - 1)) __builtin_trap();
  vitrine::TextOptions options;
  options.format = (data[0] & 1) != 0 ? vitrine::TextFormat::jsonl : vitrine::TextFormat::text;
  if ((data[0] & 32) != 0) options.format = vitrine::TextFormat::objects;
  if ((data[0] & 2) != 0) options.separator = "\n\n";
  constexpr InvalidText kInvalid[] = {InvalidText::refuse, InvalidText::replace, InvalidText::keep, InvalidText::keep};
  options.invalid = kInvalid[(data[0] >> 2) & 3];
  if ((data[0] & 16) != 0) options.longest = 16;
  constexpr size_t kMost = size_t{1} << 22;  // of a small file's text: compression may claim more than a run has time for
  const size_t whole = options.format == vitrine::TextFormat::objects ? size_t{300} << 20 : options.longest;
  const size_t most = options.invalid != InvalidText::refuse ? 3 * whole : whole;  // U+FFFD has three bytes
  size_t bytes = 0;
  bool inside = false;
  try {
    vitrine::TextReader reader(path, options);
    for (vitrine::TextPiece piece; bytes < kMost && reader.next(piece); bytes += piece.text.size()) {
      if (piece.begins == inside || piece.text.size() > most) __builtin_trap();
      if (piece.text.empty() && !(inside && piece.ends)) __builtin_trap();  // what was cut may end in line ends alone
      inside = !piece.ends;
    }
    if (inside && bytes < kMost) __builtin_trap();
    if (reader.consumed() > reader.file_bytes()) __builtin_trap();
  } catch (const vitrine::FileError&) {
  }
  return 0;
}
