#include "io/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace vitrine {

std::string gzip(std::span<const std::byte> bytes) {
  z_stream z{};
  if (deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)  // 16: gzip framing
    throw RunError("zlib cannot start");
  std::string packed;
  std::array<Bytef, 1 << 16> part;
  for (int state = Z_OK; state != Z_STREAM_END;) {
    const size_t here = std::min<size_t>(bytes.size(), size_t{1} << 30);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    z.avail_in = static_cast<uInt>(here);
    const int flush = here == bytes.size() ? Z_FINISH : Z_NO_FLUSH;
    do {
      z.next_out = part.data();
      z.avail_out = static_cast<uInt>(part.size());
      state = deflate(&z, flush);
      packed.append(reinterpret_cast<const char*>(part.data()), part.size() - z.avail_out);
    } while (z.avail_out == 0);
    bytes = bytes.subspan(here);
  }
  deflateEnd(&z);
  return packed;
}

}  // namespace vitrine
