#include "hub/download.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <vector>

#include "base/error.h"
#include "hub/partial_file.h"

namespace vitrine {
namespace {

using Clock = std::chrono::steady_clock;

/// A stretch of the file that one request asks for; again from where it stopped, when that fails.
struct Piece {
  uint64_t begin = 0, end = 0;
  uint64_t received = 0;
  std::vector<std::byte> held;  // what arrived before its turn to be written
  Transfer transfer;
  int failures = 0;  // since something arrived
  Clock::time_point not_before = {};
  std::string refused;  // what is wrong with the answer

  bool complete() const { return begin + received == end; }
  bool under_way() const { return transfer.handle != nullptr; }
};

class Download {
 public:
  Download(HubClient& client, const RemoteRepository& repository, const RemoteFile& file, PartialFile& to,
           const BytesArrived& arrived)
      : client_(client), repository_(repository), file_(file), to_(to), arrived_(arrived) {}
  ~Download() { stop(); }
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  void run() {
    next_ = to_.written();
    if (next_ < file_.size) location_ = client_.locate(repository_, file_);
    while (to_.written() < file_.size) {
      cut_pieces();
      start_pieces();
      if (Transfer* ended = client_.contents().wait(100)) after(*piece_of(*ended));
      if (failure_) std::rethrow_exception(failure_);
      if (ignores_ranges_ && !in_one_) begin_in_one();
      write_complete();
    }
  }

 private:
  void stop() {
    for (const auto& piece : pieces_) client_.contents().cancel(piece->transfer);
    pieces_.clear();
  }

  /// A server that sends whole files only: one request for all of it.
  void begin_in_one() {
    stop();
    arrived_(-static_cast<int64_t>(to_.written()));
    to_.restart();
    next_ = 0;
    in_one_ = true;
  }

  void cut_pieces() {
    const size_t connections = static_cast<size_t>(client_.settings().connections);
    while (next_ < file_.size && pieces_.size() < 2 * connections) {
      const uint64_t bytes = in_one_ ? file_.size : std::min<uint64_t>(client_.settings().piece_bytes, file_.size - next_);
      pieces_.push_back(std::make_unique<Piece>());
      pieces_.back()->begin = next_;
      pieces_.back()->end = next_ += bytes;
    }
  }

  void start_pieces() {
    const auto under_way = std::count_if(pieces_.begin(), pieces_.end(), [](const auto& piece) { return piece->under_way(); });
    auto room = client_.settings().connections - under_way;
    for (const auto& piece : pieces_) {
      if (room <= 0) return;
      if (piece->under_way() || piece->complete() || piece->not_before > Clock::now()) continue;
      start(*piece);
      --room;
    }
  }

  void start(Piece& piece) {
    HttpRequest request = client_.request(location_.url);
    if (!location_.at_hub) request.token.clear();
    // A file that fits one piece is asked for as a whole, which every server knows.
    const bool all = piece.begin + piece.received == 0 && piece.end == file_.size;
    if (!all) request.range = std::to_string(piece.begin + piece.received) + "-" + std::to_string(piece.end - 1);
    request.sink = [this, &piece](const HttpResponse& response, std::span<const std::byte> bytes) {
      return take(piece, response, bytes);
    };
    piece.refused.clear();
    piece.transfer.request = std::move(request);
    client_.contents().start(piece.transfer);
  }

  /// Called from inside libcurl, through which no exception may pass.
  bool take(Piece& piece, const HttpResponse& response, std::span<const std::byte> bytes) {
    try {
      if (!fits(piece, response)) return false;
      if (bytes.size() > piece.end - piece.begin - piece.received) {
        piece.refused = "more bytes came than were asked for";
        return false;
      }
      piece.received += bytes.size();
      piece.failures = 0;
      if (&piece != pieces_.front().get()) {
        piece.held.insert(piece.held.end(), bytes.begin(), bytes.end());
        return true;
      }
      write(piece, bytes);
      return true;
    } catch (...) {
      failure_ = std::current_exception();
      return false;
    }
  }

  /// Whether an answer is the stretch that was asked for.
  bool fits(Piece& piece, const HttpResponse& response) {
    const std::string& range = piece.transfer.request.range;
    if (range.empty()) {
      const std::string length = response.header("content-length");
      if (response.status == 200 && (length.empty() || length == std::to_string(file_.size))) return true;
      piece.refused = "the answer has " + length.substr(0, 30) + " bytes; the list of files says " + std::to_string(file_.size);
      return false;
    }
    if (response.status == 200) {
      ignores_ranges_ = true;
      piece.refused = "the server sends whole files only";
      return false;
    }
    const std::string have = response.header("content-range"), want = "bytes " + range + "/";
    if (have == want + std::to_string(file_.size) || have == want + "*") return true;
    piece.refused =
        "the answer has the range \"" + have.substr(0, 80) + "\"; expected \"" + want + std::to_string(file_.size) + "\"";
    return false;
  }

  void write(Piece& front, std::span<const std::byte> bytes) {
    if (!front.held.empty()) {
      to_.append(front.held);
      arrived_(static_cast<int64_t>(front.held.size()));
      front.held = {};
    }
    to_.append(bytes);
    arrived_(static_cast<int64_t>(bytes.size()));
  }

  void write_complete() {
    while (!pieces_.empty()) {
      write(*pieces_.front(), {});
      if (!pieces_.front()->complete()) return;
      client_.contents().cancel(pieces_.front()->transfer);  // the end of its answer may be still to come
      pieces_.pop_front();
    }
  }

  Piece* piece_of(const Transfer& transfer) {
    const auto at =
        std::find_if(pieces_.begin(), pieces_.end(), [&](const auto& piece) { return &piece->transfer == &transfer; });
    VITRINE_CHECK(at != pieces_.end(), "every request that ends belongs to a piece");
    return at->get();
  }

  /// A request has ended: is its piece complete, or when is it asked for again?
  void after(Piece& piece) {
    if (piece.complete() || failure_ || (ignores_ranges_ && !in_one_)) return;
    HttpResponse& response = piece.transfer.response;
    if (in_one_) {  // it can only begin again
      arrived_(-static_cast<int64_t>(to_.written()));
      to_.restart();
      piece.received = 0;
      if (response.whole && response.status == 200) give_up(piece);
      if (++whole_failures_ > kMostRepeats) give_up(piece);
    }
    if (++piece.failures > kMostRepeats || !piece.refused.empty()) give_up(piece);
    if (response.status / 100 == 3 && !response.header("location").empty()) {
      location_ = client_.redirected(location_.url, response);
      return;
    }
    // Addresses of storage servers expire.
    const bool expired = !location_.at_hub &&
                         (response.status == 401 || response.status == 403 || response.status == 404 || response.status == 410);
    if (!expired && response.status >= 300 && !may_pass(response)) give_up(piece);
    if (response.untrusted) give_up(piece);
    if (expired) location_ = client_.locate(repository_, file_);
    const double seconds = wait_before(client_.settings(), response, piece.failures);
    piece.not_before = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  [[noreturn]] void give_up(const Piece& piece) const {
    const HttpResponse& response = piece.transfer.response;
    const std::string reason = !piece.refused.empty()                         ? piece.refused
                               : response.whole && response.status / 100 == 2 ? "the answer ends early, and no error was reported"
                                                                              : said(response);
    throw RunError(repository_.id + ": " + file_.name + " cannot be fetched from " + origin_of(location_.url) + " at byte " +
                   std::to_string(piece.begin + piece.received) + " of " + std::to_string(file_.size) + " (" + reason +
                   "). Downloaded data is kept; the same command continues from there");
  }

  HubClient& client_;
  const RemoteRepository& repository_;
  const RemoteFile& file_;
  PartialFile& to_;
  const BytesArrived& arrived_;
  FileLocation location_;
  std::deque<std::unique_ptr<Piece>> pieces_;  // in order; the first is being written
  uint64_t next_ = 0;                          // where the next piece begins
  bool ignores_ranges_ = false, in_one_ = false;
  int whole_failures_ = 0;
  std::exception_ptr failure_;
};

}  // namespace

void download(HubClient& client, const RemoteRepository& repository, const RemoteFile& file, const CacheFolder& folder,
              const BytesArrived& arrived) {
  const BlobLock lock(folder.lock(file.etag), repository.id + "/" + file.name);
  if (folder.has(file)) return arrived(static_cast<int64_t>(file.size));  // it was fetched in between
  PartialFile partial(folder.incomplete(file.etag), file.etag, file.size);
  for (bool fresh = partial.written() == 0;; fresh = true) {
    arrived(static_cast<int64_t>(fresh ? 0 : partial.written()));
    Download(client, repository, file, partial, arrived).run();
    const std::string wrong = partial.wrong_hash();
    if (wrong.empty()) return partial.move_to(folder.blob(file.etag));
    if (fresh) {
      partial.remove();
      throw RunError(repository.id + ": the content of " + file.name + " that came has the hash " + wrong + "; expected " +
                     file.etag +
                     ". It was thrown away. Try again; if it happens again, the server or something on the way changes the file");
    }
    arrived(-static_cast<int64_t>(partial.written()));  // what an earlier run left was not the beginning of this content
    partial.restart();
  }
}

}  // namespace vitrine
