// The HTTP server by itself: memory of a connection that idles and of one that streams, requests a second over kept connections,
// and pieces a second to many streams. Clients and server share this process; what clients hold is in the kernel.
//   bench_http [CONNECTIONS]
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "http/server.h"

using namespace vitrine::http;
using Clock = std::chrono::steady_clock;

namespace {

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// Bytes of this process in memory.
double resident() {
  std::ifstream file("/proc/self/statm");
  double total = 0, pages = 0;
  file >> total >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
    std::perror("connect");
    std::exit(1);
  }
  return fd;
}

void say(int fd, const std::string& text) {
  if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) std::perror("send");
}

const std::string kGet = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", kStream = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n";

void wait_for(const std::vector<int>& fds) {  // an answer on each
  char bytes[4096];
  for (const int fd : fds)
    if (::recv(fd, bytes, sizeof bytes, 0) <= 0) std::perror("recv");
}

}  // namespace

int main(int argc, char** argv) {
  const size_t n = argc > 1 ? static_cast<size_t>(std::atoll(argv[1])) : 1000;
  rlimit files = {};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  std::mutex mutex;
  std::vector<std::shared_ptr<Stream>> streams;
  ServerOptions options;
  options.port = 0;
  options.connections = static_cast<int64_t>(n) + 100;
  Server server(options, [&](const std::shared_ptr<Exchange>& exchange) {
    if (exchange->request().path != "/stream") return exchange->respond({200, "text/plain", "hello", {}});
    auto stream = exchange->stream({200, "text/event-stream", "", {}});
    const std::lock_guard lock(mutex);
    streams.push_back(std::move(stream));
  });

  // One of each first, so that what is made once is not counted.
  std::vector<int> warm = {connect_to(server.port()), connect_to(server.port())};
  say(warm[0], kGet);
  say(warm[1], kStream);
  wait_for(warm);

  double before = resident();
  std::vector<int> idle;
  for (size_t i = 0; i < n; ++i) {
    idle.push_back(connect_to(server.port()));
    say(idle.back(), kGet);
  }
  wait_for(idle);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::printf("%zu idle connections that were served: %.1f KB each\n", n, (resident() - before) / 1024 / static_cast<double>(n));

  const int rounds = 20;
  auto began = Clock::now();
  for (int r = 0; r < rounds; ++r) {
    for (const int fd : idle) say(fd, kGet);
    wait_for(idle);
  }
  std::printf("%.0f requests a second over them\n", rounds * static_cast<double>(n) / seconds_since(began));
  for (const int fd : idle) ::close(fd);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));

  before = resident();
  std::vector<int> streaming;
  for (size_t i = 0; i < n; ++i) {
    streaming.push_back(connect_to(server.port()));
    say(streaming.back(), kStream);
  }
  wait_for(streaming);
  std::printf("%zu streams: %.1f KB each (of memory that the idle ones left, too)\n", n,
              (resident() - before) / 1024 / static_cast<double>(n));
  const std::string piece = "data: " + std::string(200, 'x') + "\n\n";
  const int pieces = 50;
  began = Clock::now();
  for (int p = 0; p < pieces; ++p) {
    {
      const std::lock_guard lock(mutex);
      for (const auto& stream : streams) stream->send(piece);
    }
    wait_for(streaming);
  }
  std::printf("%.0f pieces a second to them\n", pieces * static_cast<double>(n) / seconds_since(began));
  const std::lock_guard lock(mutex);
  streams.clear();
}
