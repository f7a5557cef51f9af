#pragma once
// An HTTP/1.1 server: sockets, TLS, keys, limits. It knows nothing of models.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "http/access_entry.h"
#include "http/exchange.h"

namespace vitrine::http {

/// A key that opens the server, and what its user is called in logs and in Request::owner.
struct ApiKey {
  std::string name, secret;
  bool admin = true;                                       // Request::admin
  int64_t requests_per_minute = 0, tokens_per_minute = 0;  // 0: no limit; for the handler to keep
};

struct ServerOptions {
  // Where it listens.
  std::string host = "127.0.0.1";  // an address, or a name that is looked up; "" with a Unix socket: no TCP
  int port = 8080;                 // 0: any free one
  std::string unix_socket;         // a path; readable and writable by its owner alone
  std::string tls_cert,
      tls_key;  // PEM files, both or neither: HTTPS. Read again when they change. The Unix socket speaks plain HTTP

  // Who may ask what.
  std::vector<ApiKey> keys;                // empty: nobody needs one
  bool no_auth = false;                    // listening beyond loopback without keys is wanted
  std::vector<std::string> open_paths;     // need no key
  std::vector<std::string> allowed_hosts;  // names in Host besides localhost, 127.0.0.1 and [::1]
  std::vector<std::string> origins;        // "https://example.org" of pages that may ask (CORS); "*": all

  // Limits.
  size_t header_bytes = 32 << 10;                    // request line and headers: 431
  size_t target_bytes = 8 << 10;                     // path and query: 414
  size_t body_bytes = 16 << 20;                      // 413
  size_t work_bytes = 2u << 30;                      // bodies, what is made of them, and answers of all requests: 503, 413
  size_t answer_bytes = 64 << 20;                    // of an answer that is JSON or text: 400
  size_t stream_bytes = 4 << 20;                     // of one stream that the client has not taken yet
  int64_t connections = 4096;                        // at once; an idle one makes room, else 503
  int64_t connections_per_address = 0;               // among them, of an address_group(); 0: half of them
  int64_t connections_for_quick = 16;                // besides them, for quick_paths alone
  std::chrono::milliseconds header_timeout{10'000};  // from the first byte of a request to the end of its headers: 408
  std::chrono::milliseconds body_timeout{60'000};    // for the body: 408
  std::chrono::milliseconds idle_timeout{120'000};   // between requests of a connection
  std::chrono::milliseconds write_timeout{30'000};   // without the client taking a byte of what waits for it
  std::chrono::milliseconds ping_interval{5'000};    // of streams that have a ping: proxies end connections that are silent

  int io_threads = 1;
  int request_threads = 8;               // and as many for bodies of 64 KiB and more, which let all other threads go first
  std::vector<std::string> quick_paths;  // their handler takes no time: it is called on an I/O thread, while all others are busy
  std::string log;  // one JSON object a line for each request, without prompts; a file, "-" is stderr, "" is none

  bool spans = false;  // each request has a span of its own (AccessEntry::trace), also where the client tells of no trace
  /// Called for each request when its answer has been sent, from an I/O thread: it must neither block nor throw.
  std::function<void(const AccessEntry&)> answered;

  /// Told what the operator should know: a renewed certificate, or one that does not fit. From any thread.
  std::function<void(const std::string&)> say = [](const std::string&) {};

  /// The body of an error that the server answers itself, as JSON. `path` is empty where the request was not read so far; `code`
  /// is a word such as "body_too_large".
  std::function<std::string(const std::string& path, int status, const std::string& code, const std::string& message)> error_body;
};

struct ServerStats {
  int64_t connections = 0;            // open now
  int64_t running = 0;                // requests without a complete answer
  int64_t accepted = 0, refused = 0;  // connections since the start
  int64_t requests = 0;               // answered, since the start
  int64_t gone = 0;                   // clients that left before their answer was complete
  int64_t slow = 0;                   // streams ended because their queue was full or the client took nothing
  int64_t log_lost = 0;               // lines of the log that could not be written
};

/// Whether this program was built with what serving needs; Server's constructor says what is missing otherwise.
bool can_serve();

class Server {
 public:
  /// Listens and serves from threads of its own until it is destroyed. `handler` is called for each request that passed the
  /// checks above, up to request_threads at once, and for quick_paths.
  /// Errors: UsageError for options that contradict each other; RunError for an address that is not free; FileError for
  /// certificates and keys.
  Server(ServerOptions options, Handler handler);
  /// Ends what still runs: clients see a closed connection.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// The port that it listens on; 0 without TCP.
  uint16_t port() const;
  /// "http://127.0.0.1:8080", for people.
  std::string url() const;
  /// ServerOptions::keys from the next request on, those of open connections included; what runs goes on. Errors: UsageError;
  /// then the keys stay as they were.
  void set_keys(const std::vector<ApiKey>& keys);
  /// Reads certificate and key again, for new connections; nothing happens without TLS. That they have changed is also noticed at
  /// the next connection. Errors: as the constructor; then those of before stay in use.
  void reload_certificate();
  /// Takes no new connections and closes idle ones; running answers go on, and their connections close behind them.
  void stop_accepting();
  /// Whether no request waits for the rest of its answer.
  bool quiet() const;
  ServerStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace vitrine::http
