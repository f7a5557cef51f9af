#include "io/byte_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace vitrine {
namespace {

constexpr size_t kReadSize = size_t{256} << 10;  // bytes asked of the system at once

// A file that is read from its start to its end.
class SourceFile {
 public:
  explicit SourceFile(const std::string& path) : path_(path) {
    // O_NONBLOCK: opening a named pipe must not hang; it has no effect on regular files.
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd_ < 0) throw FileError(path, "cannot be opened: " + std::string(std::strerror(errno)));
    struct stat info{};
    const bool known = ::fstat(fd_, &info) == 0;
    if (known && S_ISREG(info.st_mode)) {
      size_ = static_cast<uint64_t>(info.st_size);
      ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
      return;
    }
    ::close(fd_);
    throw FileError(path, known && S_ISDIR(info.st_mode) ? "is a directory; expected a file" : "is not a regular file");
  }
  ~SourceFile() { ::close(fd_); }
  SourceFile(const SourceFile&) = delete;
  SourceFile& operator=(const SourceFile&) = delete;

  size_t read(void* into, size_t size) {
    while (true) {
      const ssize_t got = ::read(fd_, into, size);
      if (got >= 0) {
        consumed_ += static_cast<uint64_t>(got);
        return static_cast<size_t>(got);
      }
      if (errno != EINTR)
        throw RunError(path_ + ": cannot be read at byte " + std::to_string(consumed_) + ": " + std::strerror(errno));
    }
  }
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t consumed() const { return consumed_; }

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0, consumed_ = 0;
};

// The file's bytes in blocks, of which the first was read to see what kind of file it is.
class Blocks {
 public:
  Blocks(std::unique_ptr<SourceFile> source, std::vector<unsigned char> first)
      : file(std::move(source)), bytes(std::move(first)) {}

  // Whether there is a byte at `at`, reading on if the block is used up.
  bool more() {
    if (at < bytes.size()) return true;
    bytes.resize(kReadSize);
    bytes.resize(file->read(bytes.data(), bytes.size()));
    at = 0;
    return !bytes.empty();
  }
  uint64_t position() const { return file->consumed() - (bytes.size() - at); }
  [[noreturn]] void fail(const std::string& problem) const {
    throw FileError(file->path(), problem + " (byte " + std::to_string(position()) + " of " + std::to_string(file->size()) +
                                      "). Was the file copied completely?");
  }

  std::unique_ptr<SourceFile> file;
  std::vector<unsigned char> bytes;
  size_t at = 0;
};

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(Blocks blocks) : blocks_(std::move(blocks)) { file_bytes_ = blocks_.file->size(); }
  size_t read(std::span<char> into) override {
    if (!blocks_.more()) return 0;
    const size_t n = std::min(into.size(), blocks_.bytes.size() - blocks_.at);
    std::memcpy(into.data(), blocks_.bytes.data() + blocks_.at, n);
    blocks_.at += n;
    consumed_ = blocks_.position();
    return n;
  }

 private:
  Blocks blocks_;
};

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(Blocks blocks) : blocks_(std::move(blocks)) {
    file_bytes_ = blocks_.file->size();
    if (inflateInit2(&z_, 15 + 16) != Z_OK) throw RunError(blocks_.file->path() + ": zlib cannot start");  // 16: gzip framing
  }
  ~GzipStream() override { inflateEnd(&z_); }

  size_t read(std::span<char> into) override {
    z_.next_out = reinterpret_cast<Bytef*>(into.data());
    z_.avail_out = static_cast<uInt>(std::min(into.size(), kReadSize));
    const uInt room = z_.avail_out;
    while (z_.avail_out == room) {
      const bool padded = !inside_ && skip_zeros();
      if (!blocks_.more()) {
        if (inside_) blocks_.fail("gzip data that ends too early");
        consumed_ = blocks_.position();
        return 0;
      }
      if (padded) blocks_.fail("zeros after gzip data, and then something else");
      if (!inside_) {
        inflateReset(&z_);  // the next member
        inside_ = true;
      }
      z_.next_in = blocks_.bytes.data() + blocks_.at;
      z_.avail_in = static_cast<uInt>(blocks_.bytes.size() - blocks_.at);
      const int status = inflate(&z_, Z_NO_FLUSH);
      blocks_.at = blocks_.bytes.size() - z_.avail_in;
      if (status == Z_STREAM_END)
        inside_ = false;
      else if (status != Z_OK && status != Z_BUF_ERROR)
        blocks_.fail(std::string("damaged gzip data: ") + (z_.msg != nullptr ? z_.msg : "it cannot be read"));
    }
    consumed_ = blocks_.position();
    return room - z_.avail_out;
  }

 private:
  // Files are padded with zeros, which gzip ignores at the end. Whether there are any.
  bool skip_zeros() {
    const uint64_t before = blocks_.position();
    while (blocks_.more() && blocks_.bytes[blocks_.at] == 0) ++blocks_.at;
    return blocks_.position() > before;
  }

  Blocks blocks_;
  z_stream z_{};
  bool inside_ = true;  // of a member
};

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(Blocks blocks) : blocks_(std::move(blocks)), z_(ZSTD_createDStream()) {
    file_bytes_ = blocks_.file->size();
    if (z_ == nullptr) throw RunError(blocks_.file->path() + ": zstd cannot start");
    // Any window; memory is taken for that of the file. Without this, zstd stops at 128 MiB (--long=27).
    ZSTD_DCtx_setParameter(z_, ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
  }
  ~ZstdStream() override { ZSTD_freeDStream(z_); }

  size_t read(std::span<char> into) override {
    ZSTD_outBuffer out{into.data(), into.size(), 0};
    while (out.pos == 0) {
      const bool more = blocks_.more();
      if (!more && !inside_) return 0;
      ZSTD_inBuffer in{blocks_.bytes.data(), blocks_.bytes.size(), blocks_.at};
      const size_t left = ZSTD_decompressStream(z_, &out, &in);
      blocks_.at = in.pos;
      if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
        throw RunError(blocks_.file->path() +
                       ": the window of its compression is larger than the memory that is left. Unpack it " +
                       "with zstd -d --long=31 where there is more");
      if (ZSTD_isError(left) != 0) blocks_.fail(std::string("damaged zstd data: ") + ZSTD_getErrorName(left));
      inside_ = left != 0;
      if (!more && out.pos == 0 && inside_) blocks_.fail("zstd data that ends too early");
    }
    consumed_ = blocks_.position();
    return out.pos;
  }

 private:
  Blocks blocks_;
  ZSTD_DStream* z_;
  bool inside_ = false;  // of a frame
};

}  // namespace

std::unique_ptr<ByteStream> ByteStream::open(const std::string& path) {
  auto file = std::make_unique<SourceFile>(path);
  std::vector<unsigned char> first(kReadSize);
  first.resize(file->read(first.data(), first.size()));
  const std::string_view head(reinterpret_cast<const char*>(first.data()), std::min<size_t>(first.size(), 4));
  if (head == "PAR1") throw FileError(path, "is a Parquet file. " + parquet_advice(path));
  Blocks blocks(std::move(file), std::move(first));
  if (head.starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(std::move(blocks));  // RFC 1952
  // RFC 8878: a frame, or one to skip (pzstd begins with such).
  const bool skippable =
      head.size() == 4 && (static_cast<unsigned char>(head[0]) & 0xf0) == 0x50 && head.ends_with("\x2a\x4d\x18");
  if (skippable || head == "\x28\xb5\x2f\xfd") return std::make_unique<ZstdStream>(std::move(blocks));
  return std::make_unique<PlainStream>(std::move(blocks));
}

std::string parquet_advice(const std::string& path) {
  return "Write it as JSON lines first: python -m vitrine.parquet " + path +
         " --out lines.jsonl.gz, with the Python package and pyarrow (pip install pyarrow)";
}

bool name_ends_in(std::string_view path, std::initializer_list<std::string_view> ends) {
  for (const std::string_view compressed : {".gz", ".zst"})
    if (path.ends_with(compressed)) path.remove_suffix(compressed.size());
  return std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return path.ends_with(end); });
}

}  // namespace vitrine
