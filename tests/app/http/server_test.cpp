// Listening, TLS, Unix sockets, the log, and ending.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#ifdef __linux__
#include <sys/resource.h>
#endif
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "base/error.h"
#include "http/client.h"
#include "http/listen.h"
#include "http/test_server.h"
#include "support/scratch.h"

namespace vitrine::http {
namespace {

const Handler kHello = [](const std::shared_ptr<Exchange>& e) { e->respond({200, "text/plain", "hello", {}}); };

std::vector<nlohmann::json> log_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

TEST(Server, ATakenPortIsNamed) {
  const TestServer t;
  ServerOptions o = test_options();
  o.port = t.port();
  try {
    const Server second(o, kHello);
    FAIL();
  } catch (const RunError& e) {
    EXPECT_NE(std::string(e.what()).find("127.0.0.1 port " + std::to_string(t.port())), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("--port"), std::string::npos);
  }
}

TEST(Server, ANameMayStandForSeveralAddresses) {
  ServerOptions o = test_options();
  o.host = "localhost";
  const Server server(o, kHello);
  EXPECT_EQ(Client(server.port()).ask(get("/")).body, "hello");
  o.host = "no-such-name.invalid";
  EXPECT_THROW(Server(o, kHello), UsageError);
}

TEST(Server, SeveralAddressesShareAPort) {
  const std::vector<Listener> listeners = listen_tcp("127.0.0.1,127.0.0.2", 0);
  ASSERT_EQ(listeners.size(), 2U);
  EXPECT_EQ(port_of(listeners[0].fd()), port_of(listeners[1].fd()));
  for (const std::string hosts : {"127.0.0.1,", ",127.0.0.1", ","}) EXPECT_THROW(listen_tcp(hosts, 0), UsageError) << hosts;
  ServerOptions o = test_options();
  o.host = "127.0.0.1,127.0.0.2";
  const Server server(o, kHello);
  EXPECT_EQ(server.url(), "http://127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(Client(server.port()).ask(get("/")).body, "hello");
}

TEST(Server, QuickPathsAreAnsweredWhileAllRequestThreadsAreBusy) {
  ServerOptions o = test_options();
  o.request_threads = 1;
  o.quick_paths = {"/quick", "/throws"};
  std::promise<void> begun, release;
  {
    const Server server(o, [&](const std::shared_ptr<Exchange>& exchange) {
      if (exchange->request().path == "/slow") {
        begun.set_value();
        release.get_future().wait();
      }
      if (exchange->request().path == "/throws") throw std::runtime_error("it went wrong");
      exchange->respond({200, "text/plain", exchange->request().path, {}});
    });
    Client slow(server.port());
    slow.send(get("/slow"));
    begun.get_future().wait();
    try {
      EXPECT_EQ(Client(server.port()).ask(get("/quick")).body, "/quick");
      EXPECT_EQ(Client(server.port()).ask(get("/throws")).status, 500);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
    release.set_value();
    EXPECT_EQ(slow.read_reply().body, "/slow");
  }
}

#ifdef __linux__
// Four large texts to tokenize took three quarters of the processor time from steps of the model.
TEST(Server, LargeRequestsLetOtherThreadsGoFirst) {
  const Server server(test_options(), [](const std::shared_ptr<Exchange>& exchange) {
    exchange->respond({200, "text/plain", std::to_string(::getpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()))), {}});
  });
  Client client(server.port());
  const int usual = std::stoi(client.ask(post("/", "small")).body);
  EXPECT_EQ(std::stoi(client.ask(post("/", std::string(64 << 10, ' '))).body), std::min(usual + 10, 19));
  EXPECT_EQ(std::stoi(client.ask(post("/", "small")).body), usual);
}
#endif

TEST(Server, UnixSocketsAreTheirOwnersAlone) {
  const Scratch scratch;
  ServerOptions o = test_options();
  o.host.clear();
  o.unix_socket = scratch / "socket";
  {
    const Server server(o, kHello);
    struct stat st = {};
    ASSERT_EQ(::lstat(o.unix_socket.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 0777, 0600u);
    EXPECT_EQ(Client(o.unix_socket).ask(get("/")).body, "hello");
    EXPECT_EQ(Client(o.unix_socket).ask("GET / HTTP/1.1\r\nHost: whatever\r\n\r\n").status, 200) << "no browser comes this way";
    EXPECT_THROW(Server(o, kHello), RunError) << "somebody listens there";
    EXPECT_EQ(Client(o.unix_socket).ask(get("/")).body, "hello");
  }
  struct stat gone = {};
  EXPECT_NE(::lstat(o.unix_socket.c_str(), &gone), 0);
  {  // what a killed server leaves
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    o.unix_socket.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ::close(fd);
    const Server server(o, kHello);
    EXPECT_EQ(Client(o.unix_socket).ask(get("/")).body, "hello");
  }
  std::ofstream(o.unix_socket) << "a file";
  EXPECT_THROW(Server(o, kHello), UsageError);
  EXPECT_TRUE(std::ifstream(o.unix_socket).good()) << "it was not removed";
  o.unix_socket = "/" + std::string(200, 'a');
  EXPECT_THROW(Server(o, kHello), UsageError);
}

TEST(Log, HasALineForEachRequestAndNoPrompt) {
  const Scratch scratch;
  ServerOptions o = test_options();
  o.log = scratch / "log";
  o.keys = {{"alice", "sk-secret"}};
  {
    TestServer t(o);
    Client client(t.port());
    client.ask(post("/echo?api=sk-query", "the prompt", "Authorization: Bearer sk-secret\r\nX-Request-Id: one\r\n"));
    client.ask(get("/\xc3\xa9%22\n", ""));
    Client(t.port()).ask(get("/secret"));
    Client leaves(t.port());
    leaves.send(get("/hold", "x-api-key: sk-secret\r\n"));
    ASSERT_TRUE(eventually([&] { return t.server->stats().running == 1; }));
    leaves.close();
    ASSERT_TRUE(eventually([&] { return t.seen.gone == 1; }));
  }
  std::stringstream all;
  all << std::ifstream(o.log).rdbuf();
  for (const std::string secret : {"the prompt", "sk-secret", "sk-query"})
    EXPECT_EQ(all.str().find(secret), std::string::npos) << secret;
  const auto lines = log_lines(o.log);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0].at("id"), "one");
  EXPECT_EQ(lines[0].at("method"), "POST");
  EXPECT_EQ(lines[0].at("path"), "/echo");
  EXPECT_EQ(lines[0].at("status"), 200);
  EXPECT_EQ(lines[0].at("bytes"), 10);
  EXPECT_EQ(lines[0].at("owner"), "alice");
  EXPECT_GE(lines[0].at("ms").get<double>(), 0.0);
  EXPECT_EQ(lines[0].at("time").get<std::string>().size(), 24u);
  EXPECT_EQ(lines[1].at("status"), 400);
  EXPECT_EQ(lines[2].at("status"), 401);
  EXPECT_EQ(lines[3].at("status"), 499);
  EXPECT_EQ(lines[3].at("gone"), true);
}

TEST(Log, AnAnswerBehindTheClientsLeavingIsMarked) {
  const Scratch scratch;
  ServerOptions o = test_options();
  o.log = scratch / "log";
  {
    TestServer t(o);
    Client client(t.port());
    client.send(get("/hold"));
    ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
    client.half_close();
    ASSERT_TRUE(eventually([&] { return t.seen.gone == 1; }));
    t.seen.take_held()->respond({200, "text/plain", "too late", {}});
    ASSERT_TRUE(eventually([&] { return t.server->stats().running == 0; }));
    EXPECT_EQ(t.server->stats().gone, 1);
  }
  const auto lines = log_lines(o.log);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].at("status"), 200);
  EXPECT_TRUE(lines[0].value("gone", false)) << lines[0];
}

TEST(Log, AFullDiskStopsNothing) {
  ServerOptions o = test_options();
  o.log = "/dev/full";
  TestServer t(o);
  Client client(t.port());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(client.ask(get("/")).body, "hello");
  EXPECT_TRUE(eventually([&] { return t.server->stats().log_lost == 100; }));
}

TEST(Log, APipeThatNobodyReadsStopsNothing) {
  const Scratch scratch;
  const std::string path = scratch / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const int reader = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  {
    ServerOptions o = test_options();
    o.log = path;
    TestServer t(o);
    Client client(t.port());
    const std::string long_path = get("/" + std::string(4000, 'a'));
    for (int i = 0; i < 200; ++i) EXPECT_EQ(client.ask(long_path).body, "hello");
    const auto began = std::chrono::steady_clock::now();
    t.server.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8)) << "it ended all the same";
  }
  ::close(reader);
}

TEST(Draining, RunningAnswersEndAndNewOnesAreRefused) {
  TestServer t;
  Client running(t.port()), idle(t.port());
  EXPECT_EQ(idle.ask(get("/")).status, 200);
  running.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.server->stats().running == 1; }));
  const auto stream = [&] {
    std::shared_ptr<Stream> s;
    eventually([&] { return (s = t.seen.take_stream()) != nullptr; });
    return s;
  }();
  t.server->stop_accepting();
  EXPECT_THROW(Client(t.port()), std::runtime_error) << "connection refused";
  EXPECT_TRUE(idle.ended());
  EXPECT_FALSE(t.server->quiet());
  stream->send("goes on");
  running.read_head();
  EXPECT_EQ(running.read_chunk(), "goes on");
  stream->close();
  EXPECT_EQ(running.read_chunk(), "");
  EXPECT_TRUE(eventually([&] { return t.server->quiet(); }));
  EXPECT_TRUE(running.ended());
}

// A certificate of our own making, and OpenSSL's client.
class Tls : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL's client writes to closed sockets
    make("server");
    client_ = SSL_CTX_new(TLS_client_method());
    ASSERT_EQ(SSL_CTX_load_verify_locations(client_, path("server.pem").c_str(), nullptr), 1);
    SSL_CTX_set_verify(client_, SSL_VERIFY_PEER, nullptr);
  }
  void TearDown() override { SSL_CTX_free(client_); }
  std::string path(const std::string& name) const { return scratch_ / name; }
  void make(const std::string& name) const {
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext "
        "subjectAltName=DNS:localhost -keyout " +
        path(name + ".key") + " -out " + path(name + ".pem") + " 2>/dev/null";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  ServerOptions options() const {
    ServerOptions o = test_options();
    o.tls_cert = path("server.pem");
    o.tls_key = path("server.key");
    return o;
  }

  // One connection.
  struct Connection {
    Connection(SSL_CTX* context, uint16_t port, int highest = 0, const std::string& protocols = "") {
      fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const timeval patience = {10, 0};
      ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      sockaddr_in to = {};
      to.sin_family = AF_INET;
      to.sin_port = htons(port);
      to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ok = ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
      ssl = SSL_new(context);
      SSL_set_fd(ssl, fd);
      SSL_set1_host(ssl, "localhost");
      if (highest != 0) SSL_set_max_proto_version(ssl, highest);
      if (!protocols.empty())
        SSL_set_alpn_protos(ssl, reinterpret_cast<const unsigned char*>(protocols.data()),
                            static_cast<unsigned>(protocols.size()));
      ok = ok && SSL_connect(ssl) == 1;
    }
    ~Connection() {
      SSL_free(ssl);
      ::close(fd);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    bool send(const std::string& text) const {
      return SSL_write(ssl, text.data(), static_cast<int>(text.size())) == static_cast<int>(text.size());
    }
    // Up to and with `text`; whether it came.
    bool read_until(const std::string& text) {
      while (in.find(text) == std::string::npos) {
        char bytes[8192];
        const int n = SSL_read(ssl, bytes, sizeof bytes);
        if (n <= 0) return false;
        in.append(bytes, static_cast<size_t>(n));
      }
      in.erase(0, in.find(text) + text.size());
      return true;
    }
    int fd = -1;
    SSL* ssl = nullptr;
    bool ok = false;
    std::string in;
  };

  Scratch scratch_;
  SSL_CTX* client_ = nullptr;
};

TEST_F(Tls, ServesHttpsAndKeepsConnections) {
  TestServer t(options());
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Connection c(client_, t.port(), version);
    ASSERT_TRUE(c.ok) << version;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(c.send(post("/echo", std::string(200'000, 'x') + "the end")));
      EXPECT_TRUE(c.read_until("the end"));
    }
    ASSERT_TRUE(c.send(get("/big?mb=4") + get("/")));
    EXPECT_TRUE(c.read_until("hello"));
  }
  EXPECT_NE(t.server->url().find("https://"), std::string::npos);
}

TEST_F(Tls, OldVersionsAndPlainTextAreRefused) {
  TestServer t(options());
  SSL_CTX_set_min_proto_version(client_, TLS1_VERSION);
  SSL_CTX_set_security_level(client_, 0);
  for (const int version : {TLS1_VERSION, TLS1_1_VERSION}) EXPECT_FALSE(Connection(client_, t.port(), version).ok) << version;
  Client plain(t.port());
  const Reply told = plain.ask(post("/echo", std::string(100'000, 'x')));
  EXPECT_EQ(told.status, 400);
  EXPECT_NE(told.body.find("https://"), std::string::npos) << told.body;
  EXPECT_TRUE(plain.ended());
  EXPECT_EQ(t.server->stats().requests, 1) << "it is told, and stands in the log";
  Client other(t.port());
  other.try_send("SSH-2.0-x\r\n\r\n\r\n");
  EXPECT_EQ(other.read_all().find("HTTP"), std::string::npos);
  EXPECT_EQ(t.seen.count(), 0u);
}

TEST_F(Tls, SpeaksHttp11ToClientsThatWouldSpeakHttp2) {
  TestServer t(options());
  Connection c(client_, t.port(), 0, std::string("\x02h2\x08http/1.1", 12));
  ASSERT_TRUE(c.ok);
  const unsigned char* chosen = nullptr;
  unsigned int n = 0;
  SSL_get0_alpn_selected(c.ssl, &chosen, &n);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(chosen), n), "http/1.1");
}

TEST_F(Tls, StreamsAndLeavingWorkAsWithoutIt) {
  TestServer t(options());
  {
    Connection c(client_, t.port());
    ASSERT_TRUE(c.ok && c.send(get("/stream")));
    std::shared_ptr<Stream> stream;
    ASSERT_TRUE(eventually([&] { return (stream = t.seen.take_stream()) != nullptr; }));
    for (int i = 0; i < 10; ++i) {
      EXPECT_TRUE(stream->send("piece " + std::to_string(i)));
      EXPECT_TRUE(c.read_until("piece " + std::to_string(i)));
    }
  }
  EXPECT_TRUE(eventually([&] { return t.seen.gone == 1; }));
  Connection c(client_, t.port());
  ASSERT_TRUE(c.ok && c.send(get("/hold")));
  ASSERT_TRUE(eventually([&] { return t.server->stats().running == 1; }));
  SSL_shutdown(c.ssl);  // close_notify, and the socket stays open
  EXPECT_TRUE(eventually([&] { return t.seen.gone == 2; }));
}

TEST_F(Tls, HandshakesThatStopAreGivenUp) {
  ServerOptions o = options();
  o.header_timeout = std::chrono::milliseconds(200);
  TestServer t(o);
  Client silent(t.port()), half(t.port());
  half.send(std::string("\x16\x03\x01\x02", 4));
  EXPECT_TRUE(silent.ended());
  EXPECT_TRUE(half.ended());
  EXPECT_TRUE(eventually([&] { return t.server->stats().connections == 0; }));
}

TEST_F(Tls, BrokenConnectionsLeaveNothing) {
  TestServer t(options());
  {
    Connection c(client_, t.port());
    ASSERT_TRUE(c.send(get("/")) && c.read_until("hello"));
  }
  ASSERT_TRUE(eventually([&] { return t.server->stats().connections == 0; }));
  const int files = open_files();
  for (int i = 0; i < 300; ++i) {
    Client client(t.port());
    const std::string hello("\x16\x03\x01\x00\x40\x01\x00\x00\x3c\x03\x03", 11);
    client.try_send(std::string_view(hello).substr(0, static_cast<size_t>(i) % (hello.size() + 1)));
    if (i % 2 == 0) client.reset();
  }
  for (int i = 0; i < 30; ++i) {
    Connection c(client_, t.port());
    c.send(get(i % 2 == 0 ? "/drop" : "/big?mb=1"));
  }
  EXPECT_TRUE(eventually([&] { return t.server->stats().connections == 0; }));
  EXPECT_EQ(open_files(), files);
}

TEST_F(Tls, ARenewedCertificateIsUsedWithoutARestart) {
  make("renewed");
  SSL_CTX* const expects_renewed = SSL_CTX_new(TLS_client_method());
  ASSERT_EQ(SSL_CTX_load_verify_locations(expects_renewed, path("renewed.pem").c_str(), nullptr), 1);
  SSL_CTX_set_verify(expects_renewed, SSL_VERIFY_PEER, nullptr);
  ServerOptions o = options();
  std::mutex mutex;
  std::vector<std::string> said;
  o.say = [&](const std::string& what) {
    const std::lock_guard lock(mutex);
    said.push_back(what);
  };
  {
    TestServer t(o);
    Connection before(client_, t.port());
    ASSERT_TRUE(before.ok && before.send(get("/stream")) && before.read_until("\r\n\r\n"));
    const auto replace = [&](const std::string& name) {
      std::filesystem::rename(path("renewed." + name), path("server." + name));
    };
    replace("pem");
    EXPECT_THROW(t.server->reload_certificate(), FileError) << "the key does not fit yet";
    EXPECT_TRUE(Connection(client_, t.port()).ok) << "with the certificate of before";
    replace("key");
    EXPECT_TRUE(eventually([&] { return Connection(expects_renewed, t.port()).ok; }));
    EXPECT_FALSE(Connection(client_, t.port()).ok);
    const std::shared_ptr<Stream> stream = t.seen.take_stream();
    stream->send("goes on");
    EXPECT_TRUE(before.read_until("goes on"));
    make("server");
    t.server->reload_certificate();
    EXPECT_FALSE(Connection(expects_renewed, t.port()).ok) << "at once";
  }
  SSL_CTX_free(expects_renewed);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("server.pem has changed and is in use"), std::string::npos) << said[0];
}

TEST_F(Tls, FilesThatDoNotFitAreNamed) {
  make("other");
  const auto message = [&](const std::string& cert, const std::string& key) -> std::string {
    ServerOptions o = test_options();
    o.tls_cert = cert;
    o.tls_key = key;
    try {
      const Server server(o, kHello);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message(path("missing.pem"), path("server.key")).find("missing.pem: No such file"), std::string::npos);
  EXPECT_NE(message(path("server.key"), path("server.key")).find("server.key: holds no certificate"), std::string::npos);
  EXPECT_NE(message(path("server.pem"), path("other.key")).find("other.key: is not the private key of"), std::string::npos);
  EXPECT_NE(message(path("server.pem"), "").find("--tls-key"), std::string::npos);
  const std::string encrypt =
      "openssl pkey -in " + path("server.key") + " -aes128 -passout pass:x -out " + path("locked.key") + " 2>/dev/null";
  ASSERT_EQ(std::system(encrypt.c_str()), 0);
  EXPECT_NE(message(path("server.pem"), path("locked.key")).find("without a passphrase"), std::string::npos);
}

}  // namespace
}  // namespace vitrine::http
