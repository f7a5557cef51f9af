// What is a request and what is refused as none: through RequestReader, and through a socket where the connection's fate matters.
#include <gtest/gtest.h>

#include "http/client.h"
#include "http/request_reader.h"
#include "http/target.h"
#include "http/test_server.h"

namespace vitrine::http {
namespace {

constexpr ReadLimits kLimits = {4096, 1024, 65536};

struct Read {
  int status = 0;  // of the problem; 0 without one
  bool done = false;
  std::string body, rest;
  Request request;
};

// All of `text`, in pieces of `piece` bytes.
Read read(const std::string& text, size_t piece = SIZE_MAX) {
  RequestReader reader(kLimits);
  std::string in;
  Read out;
  size_t at = 0;
  for (;;) {
    const size_t used = reader.has_head() ? reader.take_body(in) : reader.take_head(in);
    in.erase(0, used);
    if (reader.problem() || (reader.has_head() && reader.done())) break;
    if (used > 0) continue;
    if (at == text.size()) break;
    const size_t n = std::min(piece, text.size() - at);
    in += text.substr(at, n);
    at += n;
  }
  if (reader.problem()) out.status = reader.problem()->status;
  out.done = !reader.problem() && reader.has_head() && reader.done();
  if (out.done) {
    out.request = reader.head();
    out.body = reader.take_body_text();
  }
  out.rest = in + text.substr(at);
  return out;
}

TEST(RequestReader, ReadsARequestInAnyPieces) {
  const std::string text =
      "POST /v1/a%20b?x=1&y=a+b%26&z HTTP/1.1\r\nHost: localhost:80\r\nX-Odd:  some value \r\nContent-Length: 5\r\n\r\nhelloGET";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
    const Read r = read(text, piece);
    ASSERT_TRUE(r.done);
    EXPECT_EQ(r.request.method, "POST");
    EXPECT_EQ(r.request.path, "/v1/a b");
    EXPECT_EQ(r.request.target, "/v1/a%20b?x=1&y=a+b%26&z");
    EXPECT_EQ(r.request.query, (Fields{{"x", "1"}, {"y", "a b&"}, {"z", ""}}));
    EXPECT_EQ(*r.request.header("x-oDD"), "some value");
    EXPECT_EQ(r.body, "hello");
    EXPECT_EQ(r.rest, "GET");
  }
}

TEST(RequestReader, ReadsChunksWithExtensionsAndTrailers) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;note=\"x\"\r\nhello\r\n6\r\n "
      "world\r\n0\r\nAuthorization: Bearer x\r\n\r\nrest";
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{1000}}) {
    const Read r = read(text, piece);
    ASSERT_TRUE(r.done);
    EXPECT_EQ(r.body, "hello world");
    EXPECT_EQ(r.rest, "rest");
    EXPECT_EQ(r.request.header("authorization"), nullptr) << "a trailer is no header";
  }
}

// Beast asserts that it is not asked about four bytes of its last chunk.
TEST(RequestReader, ReadsABodyOfNoBytesInAnyPieces) {
  const std::string text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\nGET";
  for (size_t piece = 1; piece < text.size(); ++piece) {
    const Read r = read(text, piece);
    ASSERT_TRUE(r.done) << piece;
    EXPECT_EQ(r.body, "");
    EXPECT_EQ(r.rest, "GET");
  }
}

TEST(RequestReader, HeadIsToldAsGet) {
  const Read r = read("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(r.done);
  EXPECT_EQ(r.request.method, "GET");
}

struct Bad {
  const char* what;
  int status;
  std::string text;
};

TEST(RequestReader, RefusesWhatAProxyMayReadOtherwise) {
  const std::string host = "Host: a\r\n";
  const std::vector<Bad> cases = {
      {"two lengths", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello"},
      {"the same length twice", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello"},
      {"a list of lengths", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 5, 5\r\n\r\nhello"},
      {"a sign", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\nhello"},
      {"a negative length", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: -5\r\n\r\nhello"},
      {"a hexadecimal length", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x5\r\n\r\nhello"},
      {"an empty length", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: \r\n\r\nhello"},
      {"a length beyond 64 bits", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\nhello"},
      {"length, then chunks", 400,
       "POST / HTTP/1.1\r\n" + host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"chunks, then length", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"},
      {"chunked twice", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"another coding", 501, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip\r\n\r\n"},
      {"a coding before chunked", 501, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"},
      {"a coding like chunked", 501, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"},
      {"identity", 501, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: identity\r\n\r\n"},
      {"chunks in HTTP/1.0", 400, "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"a chunk's size that is no number", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nxyz\r\nhello\r\n0\r\n\r\n"},
      {"a chunk's size with 0x", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n"},
      {"a negative chunk", 400, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\nhello\r\n0\r\n\r\n"},
      {"a chunk beyond 64 bits", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello\r\n0\r\n\r\n"},
      {"a chunk that is longer than its size", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n"},
      {"a chunk's line in LF", 400, "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n"},
      {"a folded header", 400, "GET / HTTP/1.1\r\n" + host + "X-A: b\r\n c\r\n\r\n"},
      {"a folded header by tab", 400, "GET / HTTP/1.1\r\n" + host + "X-A: b\r\n\tc\r\n\r\n"},
      {"a folded Content-Length", 400, "POST / HTTP/1.1\r\n" + host + "Content-Length:\r\n 5\r\n\r\nhello"},
      {"a space before the colon", 400, "GET / HTTP/1.1\r\n" + host + "Content-Length : 5\r\n\r\nhello"},
      {"a header without a name", 400, "GET / HTTP/1.1\r\n" + host + ": x\r\n\r\n"},
      {"a header without a colon", 400, "GET / HTTP/1.1\r\n" + host + "nonsense\r\n\r\n"},
      {"a header before the first", 400, "GET / HTTP/1.1\r\n X: y\r\n" + host + "\r\n"},
      {"a NUL in a value", 400, "GET / HTTP/1.1\r\n" + host + std::string("X-A: b\0c\r\n\r\n", 12)},
      {"a NUL in a name", 400, "GET / HTTP/1.1\r\n" + host + std::string("X\0A: b\r\n\r\n", 10)},
      {"a NUL in the target", 400, std::string("GET /\0 HTTP/1.1\r\n", 17) + host + "\r\n"},
      {"CR alone", 400, "GET / HTTP/1.1\r\n" + host + "X-A: b\rX-B: c\r\n\r\n"},
      {"LF alone", 400, "GET / HTTP/1.1\n" + host + "\n"},
      {"LF alone inside", 400, "GET / HTTP/1.1\r\n" + host + "X-A: b\nTransfer-Encoding: chunked\r\n\r\n"},
      {"no Host", 400, "GET / HTTP/1.1\r\n\r\n"},
      {"two Hosts", 400, "GET / HTTP/1.1\r\n" + host + host + "\r\n"},
      {"a space in the target", 505, "GET /a b HTTP/1.1\r\n" + host + "\r\n"},
      {"no target", 400, "GET  HTTP/1.1\r\n" + host + "\r\n"},
      {"a target without a slash", 400, "GET a HTTP/1.1\r\n" + host + "\r\n"},
      {"a bad escape", 400, "GET /%zz HTTP/1.1\r\n" + host + "\r\n"},
      {"half an escape", 400, "GET /%4 HTTP/1.1\r\n" + host + "\r\n"},
      {"an escaped NUL", 400, "GET /%00 HTTP/1.1\r\n" + host + "\r\n"},
      {"an escaped line end", 400, "GET /%0d%0aX:y HTTP/1.1\r\n" + host + "\r\n"},
      {"a path that is no UTF-8", 400, "GET /%ff HTTP/1.1\r\n" + host + "\r\n"},
      {"HTTP/2.0", 505, "GET / HTTP/2.0\r\n" + host + "\r\n"},
      {"HTTP/0.9", 505, "GET / HTTP/0.9\r\n" + host + "\r\n"},
      {"HTTP/1.2", 505, "GET / HTTP/1.2\r\n" + host + "\r\n"},
      {"no version", 400, "GET /\r\n\r\n"},
      {"CONNECT", 400, "CONNECT a:80 HTTP/1.1\r\n" + host + "\r\n"},
      {"a method of its own", 501, "FETCH / HTTP/1.1\r\n" + host + "\r\n"},
      {"another expectation", 417, "POST / HTTP/1.1\r\n" + host + "Expect: a-pony\r\n\r\n"},
      {"a compressed body", 415, "POST / HTTP/1.1\r\n" + host + "Content-Encoding: gzip\r\nContent-Length: 0\r\n\r\n"},
      {"TLS to a plain port", 400, std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15)},
      {"headers too long", 431, "GET / HTTP/1.1\r\n" + host + "X-A: " + std::string(4096, 'a') + "\r\n\r\n"},
      {"endless headers", 431, "GET / HTTP/1.1\r\n" + host + "X-A: " + std::string(8192, 'a')},
      {"a target too long", 414, "GET /" + std::string(1100, 'a') + " HTTP/1.1\r\n" + host + "\r\n"},
      {"an endless target", 414, "GET /" + std::string(2000, 'a')},
      {"a body too long", 413, "POST / HTTP/1.1\r\n" + host + "Content-Length: 65537\r\n\r\n"},
      {"chunks too long", 413,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n8000\r\n" + std::string(0x8000, 'a') + "\r\n8001\r\n" +
           std::string(0x8001, 'a') + "\r\n0\r\n\r\n"},
      {"a chunk's endless extension", 400,
       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5;" + std::string(70000, 'a')},
  };
  for (const Bad& bad : cases) {
    for (const size_t piece : {SIZE_MAX, size_t{1}}) {
      const Read r = read(bad.text, piece);
      EXPECT_EQ(r.status, bad.status) << bad.what << (r.done ? " was read as a request" : "");
    }
  }
}

TEST(RequestReader, EndlessTrailersAreRefused) {
  std::string text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
  for (int i = 0; i < 10000; ++i) text += "X-" + std::to_string(i) + ": y\r\n";
  EXPECT_NE(read(text).status, 0);
  EXPECT_NE(read(text, 100).status, 0);
}

TEST(Target, AbsoluteFormsAndAsterisk) {
  const auto t = parse_target("http://example.org:81/a?b=c");
  ASSERT_TRUE(t);
  EXPECT_EQ(t->host, "example.org:81");
  EXPECT_EQ(t->path, "/a");
  EXPECT_EQ(parse_target("HTTPS://x")->path, "/");
  EXPECT_EQ(parse_target("http://x?q=1")->query, (Fields{{"q", "1"}}));
  EXPECT_FALSE(parse_target("http:///a"));
  EXPECT_FALSE(parse_target("ftp://x/a"));
  EXPECT_EQ(parse_target("*")->path, "*");
}

// What stands behind a refused request must never be read as one.
TEST(Requests, NothingBehindARefusedRequestIsServed) {
  TestServer t;
  Client client(t.port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
              get("/second"));
  const std::string all = client.read_all();
  EXPECT_EQ(all.compare(0, 12, "HTTP/1.1 400"), 0) << all;
  EXPECT_EQ(all.find("HTTP/1.1", 5), std::string::npos);
  EXPECT_NE(all.find("Connection: close"), std::string::npos);
  EXPECT_EQ(t.seen.count(), 0u);
}

TEST(Requests, PipelinedOnesAreAnsweredInOrder) {
  TestServer t;
  Client client(t.port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += post("/echo", "number " + std::to_string(i));
  client.send(all);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.read_reply().body, "number " + std::to_string(i));
}

TEST(Requests, AnEmptyLineInFrontIsPassedOver) {
  TestServer t;
  Client client(t.port());
  EXPECT_EQ(client.ask(post("/echo", "a") + "\r\n").body, "a");
  EXPECT_EQ(client.ask(post("/echo", "b")).body, "b");
}

}  // namespace
}  // namespace vitrine::http
