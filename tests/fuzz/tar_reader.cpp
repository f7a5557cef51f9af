// Any bytes as a tar archive, as they are or as gzip or Zstandard: its files are read to their ends, or it is refused by name.
#include "io/tar_reader.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("archive", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != static_cast<ssize_t>(size)) __builtin_trap();
  constexpr size_t kMost = size_t{1} << 22;  // compression may claim more than a run has time for
  size_t bytes = 0;
  try {
    const auto stream = vitrine::ByteStream::open(path);
    vitrine::TarReader archive(*stream, path);
    while (bytes < kMost && archive.next()) {
      if (archive.name().size() > vitrine::TarReader::kLongestName) __builtin_trap();
      bytes += 512;
      char some[1000];
      for (size_t got = 1; got > 0 && bytes < kMost; bytes += got) got = archive.read(some);
    }
  } catch (const vitrine::FileError&) {
  }
  return 0;
}
