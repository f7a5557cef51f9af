#include "cli/serve_flags.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"
#include "base/memory.h"
#include "cli/options.h"

namespace vitrine::cli {
namespace {

size_t usual_work_bytes() {
  constexpr size_t kMost = size_t{2} << 30;
  const size_t free = available_memory();
  return free > 0 ? std::min(free / 4, kMost) : kMost;
}

std::chrono::milliseconds milliseconds(double seconds) { return std::chrono::milliseconds(std::llround(seconds * 1000)); }

std::vector<http::ApiKey> keys_of_flags(const std::vector<std::string>& secrets) {
  std::vector<http::ApiKey> keys;
  for (const std::string& secret : secrets) keys.push_back({"key " + std::to_string(keys.size() + 1), secret});
  return keys;
}

}  // namespace

http::ServerOptions ServeFlags::options() const {
  http::ServerOptions o = server;
  if (no_tcp) {
    if (o.unix_socket.empty()) throw UsageError("--no-tcp leaves nothing to listen on; give --unix-socket, too");
    o.host.clear();
  }
  o.port = static_cast<int>(port);
  o.connections = connections;
  o.io_threads = static_cast<int>(io_threads);
  o.request_threads = static_cast<int>(request_threads);
  o.header_bytes = static_cast<size_t>(header_kb) << 10;
  o.target_bytes = std::min(o.target_bytes, o.header_bytes);
  o.body_bytes = static_cast<size_t>(body_mb) << 20;
  o.work_bytes = work_mb > 0 ? static_cast<size_t>(work_mb) << 20 : usual_work_bytes();
  o.answer_bytes = static_cast<size_t>(answer_mb) << 20;
  o.connections_per_address = connections_per_address;
  o.header_timeout = milliseconds(header_seconds);
  o.body_timeout = milliseconds(body_seconds);
  o.idle_timeout = milliseconds(idle_seconds);
  o.write_timeout = milliseconds(write_seconds);
  o.keys = keys_of_flags(keys);
  if (!key_file.empty()) std::ranges::move(http::read_keys(key_file), std::back_inserter(o.keys));
  return o;
}

std::vector<http::ApiKey> ServeFlags::keys_again(const std::vector<http::ApiKey>& before, int64_t reload) const {
  std::vector<http::ApiKey> all = keys_of_flags(keys);
  if (!key_file.empty()) std::ranges::move(http::read_keys_again(key_file, before, reload), std::back_inserter(all));
  return all;
}

void add_serve_flags(CLI::App& app, ServeFlags& f) {
  app.add_option("--host", f.server.host,
                 "Address to listen on, or several separated by commas (default 127.0.0.1: only this machine has access)")
      ->type_name("ADDRESS")
      ->check(not_empty());
  add_count(app, "--port", f.port, 0, 65535, "Port to listen on (default 8080); 0: any free port");
  app.add_option("--unix-socket", f.server.unix_socket, "Also listen on a Unix socket, for its owner only")
      ->type_name("PATH")
      ->check(not_empty());
  app.add_flag("--no-tcp", f.no_tcp, "Listen only on the Unix socket");
  app.add_option("--tls-cert", f.server.tls_cert, "Certificate with its chain, in PEM: HTTPS. Read again when it changes")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--tls-key", f.server.tls_key, "The certificate's private key, in PEM")->type_name("FILE")->check(not_empty());
  app.add_option("--api-key", f.keys, "A key that clients must send; may be repeated. Other users of this machine can see it")
      ->type_name("KEY")
      ->check(not_empty());
  app.add_option(
         "--api-key-file", f.key_file,
         "Keys, one per line, optionally after a name for the log and a space; after both, its role and limits. Read again at "
         "SIGHUP")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_flag("--no-auth", f.server.no_auth, "Allow requests from other machines without a key");
  app.add_option("--allow-host", f.server.allowed_hosts,
                 "A name that clients may call this server, besides localhost; may be repeated")
      ->type_name("NAME")
      ->check(not_empty());
  app.add_option("--cors-origin", f.server.origins,
                 "A site whose pages may send requests, such as https://example.org, localhost for pages of this machine at any "
                 "port, or *; may be repeated")
      ->type_name("ORIGIN")
      ->check(not_empty());
  add_count(app, "--max-connections", f.connections, 1, 1'000'000, "Connections at once (default 4096)");
  add_count(app, "--max-connections-per-address", f.connections_per_address, 0, 1'000'000,
            "Connections of one address; 0 (default): half of --max-connections. Behind a proxy all clients have one");
  add_count(app, "--max-body", f.body_mb, 1, 1 << 20, "Maximum MiB of a request's body (default 16)");
  add_count(app, "--max-answer", f.answer_mb, 1, 1 << 20, "Maximum MiB of an answer in JSON (default 64)");
  add_count(app, "--work-mb", f.work_mb, 0, 1 << 20,
            "MiB that bodies of requests, what is made of them, and answers may take together; 0 (default): a quarter of free "
            "memory, at most 2048");
  add_count(app, "--max-headers", f.header_kb, 1, 1 << 10, "Maximum KiB of a request's headers (default 32)");
  add_number(app, "--header-timeout", f.header_seconds, 0, 86400, "Seconds for the headers of a request (default 10)", true);
  add_number(app, "--body-timeout", f.body_seconds, 0, 86400, "Seconds for its body (default 60)", true);
  add_number(app, "--idle-timeout", f.idle_seconds, 0, 86400, "Seconds that a connection may wait for a request (default 120)",
             true);
  add_number(app, "--write-timeout", f.write_seconds, 0, 86400,
             "Seconds in which a client may read nothing of its answer (default 30)", true);
  add_number(app, "--drain-seconds", f.drain_seconds, 0, 86400,
             "Seconds for running answers to finish after SIGTERM (default 30)");
  add_count(app, "--io-threads", f.io_threads, 1, 64, "Threads for sockets (default 1)");
  add_count(app, "--request-threads", f.request_threads, 1, 256, "Threads that process requests (default 8)");
  app.add_option("--log", f.server.log, "Write one line of JSON for each request, without prompts; - is stderr")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--otlp-endpoint", f.otlp_endpoint,
                 "Send a span of OpenTelemetry for each request to this collector, as OTLP over HTTP in JSON: "
                 "http://127.0.0.1:4318 (default: OTEL_EXPORTER_OTLP_ENDPOINT; without both none are sent)")
      ->type_name("URL")
      ->check(not_empty());
}

}  // namespace vitrine::cli
