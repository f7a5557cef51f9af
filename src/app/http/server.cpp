#include "http/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "http/connection.h"
#include "http/listen.h"
#include "http/response_text.h"
#include "http/tls_files.h"

namespace vitrine::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kAcceptAtOnce = 64;
constexpr int64_t kReserveOfAPeer = 4;
constexpr std::chrono::milliseconds kAcceptPause{100};  // when this process has no more file descriptors

std::string default_error_body(const std::string&, int status, const std::string& code, const std::string& message) {
  const nlohmann::ordered_json body = {{"error", {{"message", message}, {"code", code}, {"status", status}}}};
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

ServerOptions completed(ServerOptions o) {
  if (!o.error_body) o.error_body = default_error_body;
  if (o.tls_cert.empty() != o.tls_key.empty()) throw UsageError("--tls-cert and --tls-key belong together; give both or neither");
  if (o.host.empty() && o.unix_socket.empty()) throw UsageError("there is nothing to listen on: give --host or --unix-socket");
  if (o.port < 0 || o.port > 65535) throw UsageError("--port is " + std::to_string(o.port) + "; expected 0 to 65535");
  return o;
}

}  // namespace

bool can_serve() { return true; }

struct Server::Impl {
  using Strand = asio::strand<asio::io_context::executor_type>;
  /// One listening socket and what waits at it.
  struct Door {
    Door(const Strand& strand, Listener&& l) : watch(strand, ::dup(l.fd())), pause(strand), listener(std::move(l)) {}
    asio::posix::stream_descriptor watch;  // another descriptor of the same socket, since it closes its own
    asio::steady_timer pause;
    std::optional<Listener> listener;
    bool check_host = false, encrypted = false;
  };

  Impl(ServerOptions options, Handler handler)
      : shared(std::make_shared<Shared>(completed(std::move(options)), std::move(handler))),
        work(shared->io.get_executor()),
        strand(asio::make_strand(shared->io)) {
    const ServerOptions& o = shared->options;
    if (!o.tls_cert.empty()) tls = std::make_unique<TlsFiles>(o.tls_cert, o.tls_key, o.say);
    if (!o.host.empty())
      for (Listener& listener : listen_tcp(o.host, o.port)) doors.push_back(std::make_unique<Door>(strand, std::move(listener)));
    if (!doors.empty()) port = port_of(doors.front()->listener->fd());
    const bool reachable = std::any_of(doors.begin(), doors.end(), [](const auto& d) { return !is_loopback(d->listener->fd()); });
    if (reachable && !shared->admission.has_keys() && !o.no_auth)
      throw UsageError(
          "--host " + o.host +
          " lets other machines ask, and there is no API key. Give --api-key or --api-key-file, or --no-auth if everybody "
          "may ask");
    for (const auto& door : doors) {
      door->check_host = !reachable || !o.allowed_hosts.empty();
      door->encrypted = tls != nullptr;
    }
    if (!o.unix_socket.empty()) doors.push_back(std::make_unique<Door>(strand, listen_unix(o.unix_socket)));
    workers = std::make_unique<Workers>(std::max(1, o.request_threads));
    workers_for_large = std::make_unique<Workers>(std::max(1, o.request_threads), true);
    shared->workers = workers.get();
    shared->workers_for_large = workers_for_large.get();
    for (const auto& door : doors) watch(*door);
    for (int i = 0; i < std::max(1, o.io_threads); ++i) threads.emplace_back([this] { run(); });
  }

  ~Impl() {
    stop_accepting();
    {
      std::unique_lock lock(mutex);
      for (const auto& [id, connection] : connections) connection->stop();
      empty.wait(lock, [&] { return connections.empty(); });
    }
    shared->workers = shared->workers_for_large = nullptr;
    workers.reset();
    workers_for_large.reset();
    work.reset();
    for (std::thread& thread : threads) thread.join();
  }

  void run() {
    // A client that leaves is an error of write(), also where OpenSSL calls it; other signals are the program's to take.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    shared->io.run();
  }

  // On `strand`, as everything about doors.
  void watch(Door& door) {
    door.watch.async_wait(asio::posix::stream_descriptor::wait_read, [this, &door](error_code ec) {
      if (ec || !door.listener) return;
      if (accept_waiting(door)) return watch(door);
      make_room();
      door.pause.expires_after(kAcceptPause);
      door.pause.async_wait([this, &door](error_code stopped) {
        if (!stopped && door.listener) watch(door);
      });
    });
  }

  // False if this process has no room for another.
  bool accept_waiting(Door& door) {
    for (int i = 0; i < kAcceptAtOnce; ++i) {
      std::string peer;
      const int fd = accept_one(door.listener->fd(), peer);
      if (fd >= 0)
        admit(door, fd, std::move(peer));
      else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        return false;
      else if (errno != EINTR && errno != ECONNABORTED)
        return true;
    }
    return true;
  }

  void admit(const Door& door, int fd, std::string peer) {
    std::shared_ptr<Connection> connection;
    if (door.encrypted) tls->look();
    const std::lock_guard lock(mutex);
    const ServerOptions& o = shared->options;
    const std::string group = address_group(peer);
    const auto count_of = [&](const auto& counts) {
      const auto found = counts.find(group);
      return found == counts.end() ? 0 : found->second;
    };
    const int64_t usual = static_cast<int64_t>(connections.size()) - reserve_used;
    const bool quick_only = (count_of(peers) >= most_of_a_peer() && !make_room_locked(&group)) ||
                            (usual >= o.connections && !make_room_locked(nullptr));
    const bool room = !quick_only || (reserve_used < o.connections_for_quick && count_of(reserve_of) < kReserveOfAPeer);
    try {
      if (room)
        connection = std::make_shared<Connection>(shared, fd, door.encrypted ? tls->transport(fd) : plain_transport(fd), peer,
                                                  group, door.check_host, quick_only);
    } catch (const std::exception&) {  // no memory
    }
    if (!connection) {
      ++refused;
      if (!door.encrypted) refuse(fd);
      ::close(fd);
      return;
    }
    ++accepted;
    const uint64_t id = next++;
    connections.emplace(id, connection);
    ++(quick_only ? reserve_of : peers)[group];
    reserve_used += quick_only ? 1 : 0;
    connection->start([this, id, quick_only, group] {
      const std::lock_guard inside(mutex);
      connections.erase(id);
      auto& counts = quick_only ? reserve_of : peers;
      if (--counts[group] == 0) counts.erase(group);
      reserve_used -= quick_only ? 1 : 0;
      if (connections.empty()) empty.notify_all();
    });
  }

  int64_t most_of_a_peer() const {
    const ServerOptions& o = shared->options;
    return o.connections_per_address > 0 ? o.connections_per_address : std::max<int64_t>((o.connections + 1) / 2, 1);
  }

  void refuse(int fd) const {
    const Response response{
        503,
        "application/json",
        shared->options.error_body("", 503, "too_many_connections", "this server has all the connections that it takes"),
        {{"Retry-After", "1"}}};
    Framing framing;
    framing.keep_alive = false;
    framing.length = response.body.size();
    const std::string text = head_text(response, framing, request_id(nullptr)) + response.body;
    static_cast<void>(!::send(fd, text.data(), text.size(), MSG_NOSIGNAL));
  }

  void make_room() {
    const std::lock_guard lock(mutex);
    make_room_locked(nullptr);
  }

  // Ends the connection, of any address or of this group of them, that has waited longest for a request. False without one.
  bool make_room_locked(const std::string* group) {
    Connection* longest = nullptr;
    for (const auto& [id, connection] : connections) {
      if (connection->quick_only() || (group != nullptr && connection->group() != *group)) continue;
      const int64_t since = connection->idle_since();
      if (since != 0 && (longest == nullptr || since < longest->idle_since())) longest = connection.get();
    }
    if (longest != nullptr) longest->retire();
    return longest != nullptr;
  }

  void stop_accepting() {
    std::promise<void> closed;
    asio::post(strand, [&] {
      for (const auto& door : doors) {
        if (!door->listener) continue;
        accept_waiting(*door);  // who has connected already would be reset
        error_code ignored;
        door->watch.close(ignored);
        door->pause.cancel();
        door->listener.reset();
      }
      closed.set_value();
    });
    closed.get_future().wait();
    shared->draining = true;
    const std::lock_guard lock(mutex);
    for (const auto& [id, connection] : connections) connection->wake();
  }

  std::shared_ptr<Shared> shared;
  std::unique_ptr<TlsFiles> tls;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  Strand strand;
  std::vector<std::unique_ptr<Door>> doors;
  uint16_t port = 0;
  std::mutex mutex;
  std::condition_variable empty;
  std::unordered_map<uint64_t, std::shared_ptr<Connection>> connections;
  // Connections of a group of addresses, in usual places and in the reserve.
  std::unordered_map<std::string, int64_t> peers, reserve_of;
  int64_t reserve_used = 0;
  uint64_t next = 0;
  std::atomic<int64_t> accepted = 0, refused = 0;
  std::unique_ptr<Workers> workers, workers_for_large;
  std::vector<std::thread> threads;
};

Server::Server(ServerOptions options, Handler handler) : impl_(std::make_unique<Impl>(std::move(options), std::move(handler))) {}
Server::~Server() = default;

uint16_t Server::port() const { return impl_->port; }

std::string Server::url() const {
  const ServerOptions& o = impl_->shared->options;
  if (o.host.empty()) return "unix:" + o.unix_socket;
  const std::string first = o.host.substr(0, o.host.find(','));
  const std::string host = first.find(':') == std::string::npos ? first : "[" + first + "]";
  return (o.tls_cert.empty() ? "http://" : "https://") + host + ":" + std::to_string(impl_->port);
}

void Server::set_keys(const std::vector<ApiKey>& keys) { impl_->shared->admission.set_keys(keys); }
void Server::reload_certificate() {
  if (impl_->tls != nullptr) impl_->tls->reload();
}
void Server::stop_accepting() { impl_->stop_accepting(); }
bool Server::quiet() const { return impl_->shared->running == 0; }

ServerStats Server::stats() const {
  const Shared& shared = *impl_->shared;
  ServerStats stats;
  {
    const std::lock_guard lock(impl_->mutex);
    stats.connections = static_cast<int64_t>(impl_->connections.size());
  }
  stats.running = shared.running;
  stats.accepted = impl_->accepted;
  stats.refused = impl_->refused;
  stats.requests = shared.requests;
  stats.gone = shared.gone;
  stats.slow = shared.slow;
  stats.log_lost = shared.log.lost();
  return stats;
}

}  // namespace vitrine::http
