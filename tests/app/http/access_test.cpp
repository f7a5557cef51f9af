// Who may ask: keys, Host, Origin.
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "http/client.h"
#include "http/keys.h"
#include "http/origin.h"
#include "http/test_server.h"
#include "support/scratch.h"

namespace vitrine::http {
namespace {

using KeyList = std::vector<ApiKey>;

ServerOptions with_keys() {
  ServerOptions o = test_options();
  o.keys = {{"alice", "sk-alice"}, {"bob", std::string(512, 'b')}};
  o.open_paths = {"/health"};
  return o;
}

std::string as(const std::string& host, const std::string& lines = "") {
  return "GET / HTTP/1.1\r\nHost: " + host + "\r\n" + lines + "\r\n";
}

TEST(Keys, OpenTheServer) {
  TestServer t(with_keys());
  Client client(t.port());
  EXPECT_EQ(client.ask(get("/", "Authorization: Bearer sk-alice\r\n")).status, 200);
  EXPECT_EQ(t.seen.last().owner, "alice");
  EXPECT_EQ(client.ask(get("/", "authorization: bearer  sk-alice\r\n")).status, 401) << "two spaces make another key";
  EXPECT_EQ(client.ask(get("/", "x-api-key: " + std::string(512, 'b') + "\r\n")).status, 200);
  EXPECT_EQ(t.seen.last().owner, "bob");
  EXPECT_EQ(client.ask(get("/health")).status, 200);
  EXPECT_EQ(t.seen.last().owner, "127.0.0.1");
}

TEST(Keys, OthersAreRefused) {
  TestServer t(with_keys());
  for (const std::string line :
       {"", "Authorization: Bearer sk-alic\r\n", "Authorization: Bearer sk-alicee\r\n", "Authorization: Bearer \r\n",
        "Authorization: Basic sk-alice\r\n", "Authorization: sk-alice\r\n", "X-Api-Key:\r\n"}) {
    const Reply reply = Client(t.port()).ask(get("/", line));
    EXPECT_EQ(reply.status, 401) << line;
    EXPECT_EQ(reply.headers.at("www-authenticate"), "Bearer");
    EXPECT_NE(reply.body.find("invalid_api_key"), std::string::npos);
  }
  for (const size_t n : {511, 513, 600, 5000})
    EXPECT_EQ(Client(t.port()).ask(get("/", "x-api-key: " + std::string(n, 'b') + "\r\n")).status, 401) << n;
  EXPECT_EQ(Client(t.port()).ask(get("/health/")).status, 401) << "an open path is that path alone";
  EXPECT_EQ(Client(t.port()).ask(get("/%68ealth")).status, 200) << "which may be spelled otherwise";
  EXPECT_EQ(t.seen.count(), 1u);
}

// Without the key no byte of a body is waited for.
TEST(Keys, AreLookedAtBeforeTheBody) {
  TestServer t(with_keys());
  Client client(t.port());
  EXPECT_EQ(
      client.ask("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\nExpect: 100-continue\r\n\r\n").status,
      401);
  EXPECT_TRUE(client.ended());
}

TEST(Keys, ThatCannotBeAreRefused) {
  EXPECT_THROW(Keys(KeyList{{"a", ""}}), UsageError);
  EXPECT_THROW(Keys(KeyList{{"a", "with space"}}), UsageError);
  EXPECT_THROW(Keys(KeyList{{"a", "caf\xc3\xa9"}}), UsageError);
  EXPECT_THROW(Keys(KeyList{{"a", std::string(513, 'x')}}), UsageError);
  EXPECT_THROW(Keys(KeyList{{"a", "x"}, {"b", "x"}}), UsageError);
}

TEST(Keys, ComeFromAFile) {
  const Scratch scratch;
  const std::string path = scratch / "keys";
  std::ofstream(path) << "# keys\n\nsk-one\r\n  carol   sk-two  \n";
  const std::vector<ApiKey> keys = read_keys(path);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].secret, "sk-one");
  EXPECT_EQ(keys[0].name, "line 3") << "named by its line";
  EXPECT_EQ(keys[1].name, "carol");
  EXPECT_EQ(keys[1].secret, "sk-two");
  std::ofstream(path) << "a b c\n";
  EXPECT_THROW(read_keys(path), FileError);
  std::ofstream(path) << "a sk-a user  tokens/min=1000 requests/min=60\nb sk-b\n";
  const std::vector<ApiKey> limited = read_keys(path);
  EXPECT_FALSE(limited[0].admin);
  EXPECT_EQ(limited[0].tokens_per_minute, 1000);
  EXPECT_EQ(limited[0].requests_per_minute, 60);
  EXPECT_TRUE(limited[1].admin);
  for (const char* wrong : {"a b tokens/min=", "a b tokens/min=0", "a b tokens/min=1x", "a b tokens=5"}) {
    std::ofstream(path) << wrong << "\n";
    EXPECT_THROW(read_keys(path), FileError) << wrong;
  }
  std::ofstream(path) << "# none\n";
  EXPECT_THROW(read_keys(path), FileError);
}

TEST(Keys, OfAFileThatHasChangedKeepTheirNames) {
  const Scratch scratch;
  const std::string path = scratch.write("keys", "sk-one\nsk-two\ncarol sk-three\n");
  const std::vector<ApiKey> first = read_keys(path);
  scratch.write("keys", "sk-new\nsk-two\nsk-one\nsk-three\n");
  const std::vector<ApiKey> second = read_keys_again(path, first, 1);
  EXPECT_EQ(second[0].name, "line 1, reload 1") << "line 1 was another key's";
  EXPECT_EQ(second[1].name, "line 2");
  EXPECT_EQ(second[2].name, "line 1");
  EXPECT_EQ(second[3].name, "line 4, reload 1") << "it has lost its name";
  scratch.write("keys", "sk-new\nsk-other\n");
  const std::vector<ApiKey> third = read_keys_again(path, second, 2);
  EXPECT_EQ(third[0].name, "line 1, reload 1");
  EXPECT_EQ(third[1].name, "line 2, reload 2");
}

TEST(Keys, AreReplacedWhileTheServerRuns) {
  TestServer t(with_keys());
  Client client(t.port()), running(t.port());
  EXPECT_EQ(client.ask(get("/", "x-api-key: sk-alice\r\n")).status, 200);
  running.send(get("/stream", "x-api-key: sk-alice\r\n"));
  running.read_head();
  t.server->set_keys({{"carol", "sk-carol"}});
  EXPECT_EQ(client.ask(get("/", "x-api-key: sk-carol\r\n")).status, 200) << "on the connection that was open";
  EXPECT_EQ(t.seen.last().owner, "carol");
  EXPECT_THROW(t.server->set_keys({{"dave", "sk dave"}}), UsageError);
  EXPECT_THROW(t.server->set_keys({}), UsageError) << "that would let everybody in";
  EXPECT_EQ(client.ask(get("/", "x-api-key: sk-carol\r\n")).status, 200);
  EXPECT_EQ(Client(t.port()).ask(get("/", "x-api-key: sk-alice\r\n")).status, 401);
  const std::shared_ptr<Stream> stream = t.seen.take_stream();
  stream->send("goes on");
  EXPECT_EQ(running.read_chunk(), "goes on");
}

TEST(Host, OnLoopbackOnlyOwnNamesAreAnswered) {
  ServerOptions o = test_options();
  o.allowed_hosts = {"models.example.org"};
  TestServer t(o);
  for (const std::string host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:80", "models.example.org", "Models.Example.org:81"})
    EXPECT_EQ(Client(t.port()).ask(as(host)).status, 200) << host;
  for (const std::string host : {"evil.example.org", "localhost.evil.org", "127.0.0.1.evil.org", "evil.org:80", "localhost:x",
                                 "[::1", "[::2]", "127.0.0.2", "localhost@evil.org", "evil.org#localhost"})
    EXPECT_EQ(Client(t.port()).ask(as(host)).status, 403) << host;
  EXPECT_EQ(Client(t.port()).ask("GET http://evil.org/ HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 403)
      << "the target has the last word";
  EXPECT_EQ(Client(t.port()).ask("GET / HTTP/1.0\r\n\r\n").status, 200) << "no browser asks without Host";
}

TEST(Host, RefusalNamesTheFlag) {
  TestServer t;
  const Reply reply = Client(t.port()).ask(as("gpu-box:8080"));
  EXPECT_NE(reply.body.find("--allow-host gpu-box"), std::string::npos) << reply.body;
}

TEST(Cors, AnswersListedSitesAlone) {
  ServerOptions o = test_options();
  o.origins = {"https://chat.example.org"};
  TestServer t(o);
  Client client(t.port());
  Reply reply = client.ask(get("/", "Origin: https://chat.example.org\r\n"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://chat.example.org");
  EXPECT_EQ(reply.headers.at("vary"), "Origin");
  for (const std::string origin : {"https://evil.org", "http://chat.example.org", "https://chat.example.org:444", "null",
                                   "https://chat.example.org.evil.org"}) {
    reply = Client(t.port()).ask(get("/", "Origin: " + origin + "\r\n"));
    EXPECT_EQ(reply.status, 403) << origin;
    EXPECT_EQ(reply.headers.count("access-control-allow-origin"), 0u);
  }
  EXPECT_EQ(client.ask(get("/")).headers.count("access-control-allow-origin"), 0u);
  EXPECT_EQ(t.seen.count(), 2u);
}

TEST(Cors, TheServersOwnPageMayAsk) {
  TestServer t;
  const std::string host = "localhost:" + std::to_string(t.port());
  EXPECT_EQ(Client(t.port()).ask(as(host, "Origin: http://" + host + "\r\n")).status, 200);
  EXPECT_EQ(Client(t.port()).ask(as(host, "Origin: http://localhost:1\r\n")).status, 403) << "another port is another site";
  EXPECT_EQ(Client(t.port()).ask(as("localhost:80", "Origin: http://localhost\r\n")).status, 200);
}

TEST(Cors, PreflightNeedsNoKeyAndTellsWhatMayBeSent) {
  ServerOptions o = with_keys();
  o.origins = {"*"};
  TestServer t(o);
  Client client(t.port());
  const Reply reply = client.ask(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: https://any.org\r\nAccess-Control-Request-Method: "
      "POST\r\n"
      "Access-Control-Request-Headers: authorization, content-type\r\n\r\n");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("access-control-allow-origin"), "https://any.org");
  EXPECT_EQ(reply.headers.at("access-control-allow-headers"), "authorization, content-type");
  EXPECT_NE(reply.headers.at("access-control-allow-methods").find("POST"), std::string::npos);
  EXPECT_EQ(t.seen.count(), 0u);
  // Errors can be read by the page, too.
  EXPECT_EQ(client.ask(get("/", "Origin: https://any.org\r\n")).headers.at("access-control-allow-origin"), "https://any.org");
  EXPECT_EQ(Client(t.port()).ask("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
}

TEST(Cors, PagesOfThisMachineMayAskFromAnyPort) {
  ServerOptions o = test_options();
  o.origins = {"localhost"};
  TestServer t(o);
  for (const std::string origin : {"http://localhost", "http://localhost:3000", "https://127.0.0.1:1", "http://[::1]:8080"})
    EXPECT_EQ(Client(t.port()).ask(as("localhost", "Origin: " + origin + "\r\n")).status, 200) << origin;
  for (const std::string origin : {"http://notlocalhost", "http://localhost.evil.com", "http://evil.com", "null", "localhost",
                                   "http://localhost:x", "http://localhost@evil.com", "ftp://localhost"})
    EXPECT_EQ(Client(t.port()).ask(as("localhost", "Origin: " + origin + "\r\n")).status, 403) << origin;
}

TEST(Cors, OriginsThatAreNoneAreRefused) {
  for (const std::string origin : {"example.org", "https://", "https://a/b", "https://a?b", "ftp://a", "https://u@a", ""})
    EXPECT_THROW(check_origin(origin), UsageError) << origin;
  for (const std::string origin : {"*", "null", "localhost", "https://a", "http://a:8080", "http://[::1]:3000"})
    EXPECT_NO_THROW(check_origin(origin)) << origin;
}

TEST(Access, OtherMachinesAreLetInOnPurposeOnly) {
  const Handler handler = [](const std::shared_ptr<Exchange>& e) { e->respond({}); };
  ServerOptions o = test_options();
  o.host = "0.0.0.0";
  try {
    const Server server(o, handler);
    FAIL() << "an open server was started";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("--no-auth"), std::string::npos);
  }
  o.no_auth = true;
  {
    const Server server(o, handler);
    EXPECT_EQ(Client(server.port()).ask(as("any.name")).status, 200) << "beyond loopback any name may be right";
  }
  o.no_auth = false;
  o.keys = {{"a", "secret"}};
  const Server server(o, handler);
  EXPECT_EQ(Client(server.port()).ask(as("any.name")).status, 401);
}

}  // namespace
}  // namespace vitrine::http
