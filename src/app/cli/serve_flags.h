#pragma once
// The flags of `vitrine serve` that are the HTTP server's.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "http/keys.h"
#include "http/server.h"

namespace vitrine::cli {

struct ServeFlags {
  http::ServerOptions server;
  std::vector<std::string> keys;
  std::string key_file, otlp_endpoint;
  int64_t port = 8080, connections = 4096, io_threads = 1, request_threads = 8;
  int64_t body_mb = 16, header_kb = 32, work_mb = 0, answer_mb = 64, connections_per_address = 0;
  double header_seconds = 10, body_seconds = 60, idle_seconds = 120, write_seconds = 30, drain_seconds = 30;
  bool no_tcp = false;

  /// What they say together. Errors: UsageError, FileError of the key file.
  http::ServerOptions options() const;
  /// The keys, with those of the file as it is now, in the place of `before` (http::read_keys_again). Errors: FileError.
  std::vector<http::ApiKey> keys_again(const std::vector<http::ApiKey>& before, int64_t reload) const;
};

void add_serve_flags(CLI::App& app, ServeFlags& flags);

}  // namespace vitrine::cli
