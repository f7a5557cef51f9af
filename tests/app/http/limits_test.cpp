// Each limit and time-out of ServerOptions, and slow or silent clients.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "http/client.h"
#include "http/listen.h"
#include "http/test_server.h"

namespace vitrine::http {
namespace {

using std::chrono::milliseconds;

TEST(Limits, HeadersTargetAndBodyAreRefusedAboveAndTakenAtTheirSize) {
  ServerOptions o = test_options();
  o.header_bytes = 2000;
  o.target_bytes = 500;
  o.body_bytes = 1000;
  TestServer t(o);
  EXPECT_EQ(Client(t.port()).ask(get("/", "X-A: " + std::string(2000, 'a') + "\r\n")).status, 431);
  EXPECT_EQ(Client(t.port()).ask(get("/", "X-A: " + std::string(1900, 'a') + "\r\n")).status, 200);
  EXPECT_EQ(Client(t.port()).ask(get("/" + std::string(500, 'a'))).status, 414);
  EXPECT_EQ(Client(t.port()).ask(get("/" + std::string(499, 'a'))).status, 200);
  EXPECT_EQ(Client(t.port()).ask(post("/echo", std::string(1001, 'a'))).status, 413);
  EXPECT_EQ(Client(t.port()).ask(post("/echo", std::string(1000, 'a'))).body.size(), 1000u);
}

TEST(Limits, ErrorsHaveTheBodyThatTheCallerGives) {
  ServerOptions o = test_options();
  o.body_bytes = 10;
  o.error_body = [](const std::string& path, int status, const std::string& code, const std::string&) {
    return path + std::to_string(status) + " " + code;
  };
  TestServer t(o);
  const Reply reply = Client(t.port()).ask(post("/echo", "more than ten bytes"));
  EXPECT_EQ(reply.body, "413 body_too_large");
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_EQ(Client(t.port()).ask(get("/throw")).body, "/throw500 internal_error");
  EXPECT_EQ(Client(t.port()).ask(get("/drop")).body, "/drop500 internal_error");
}

// The refusal must arrive although the body is still being sent: a connection closed at once would be reset.
TEST(Limits, ARefusedUploadHearsWhy) {
  ServerOptions o = test_options();
  o.body_bytes = 1 << 20;
  TestServer t(o);
  for (int i = 0; i < 20; ++i) {
    Client client(t.port());
    client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n");
    for (int piece = 0; piece < 80; ++piece)
      if (!client.try_send(std::string(100'000, 'x'))) break;
    EXPECT_EQ(client.read_reply().status, 413);
  }
}

TEST(Limits, BodiesOfAllRequestsTogether) {
  ServerOptions o = test_options();
  o.work_bytes = 10'000;
  TestServer t(o);
  Client first(t.port()), second(t.port());
  first.send(post("/hold", std::string(8000, 'a')));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const Reply refused = second.ask(post("/echo", std::string(8000, 'a')));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  Client chunked(t.port());
  chunked.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1f40\r\n" + std::string(8000, 'a') +
               "\r\n");
  EXPECT_EQ(chunked.read_reply().status, 503);
  t.seen.take_held()->respond({200, "", "done", {}});
  EXPECT_EQ(first.read_reply().body, "done");
  EXPECT_TRUE(eventually([&] { return Client(t.port()).ask(post("/echo", std::string(8000, 'a'))).status == 200; }));
  EXPECT_EQ(Client(t.port()).ask(post("/echo", std::string(10'001, 'a'))).status, 413) << "it can never fit";
}

// A client that opens connections and says nothing, or half of a request, keeps out neither others nor who asks for health.
TEST(Limits, ConnectionsOfOneAddressLeavePlacesForHealth) {
  ServerOptions o = test_options();
  o.connections = 6;
  o.connections_per_address = 3;
  o.quick_paths = {"/health"};
  TestServer t(o);
  std::vector<std::unique_ptr<Client>> half;
  for (int i = 0; i < 3; ++i) {
    half.push_back(std::make_unique<Client>(t.port()));
    half.back()->send("GET / HTTP/1.1\r\nHo");
  }
  ASSERT_TRUE(eventually([&] { return t.server->stats().connections == 3; }));
  EXPECT_EQ(Client(t.port()).ask(get("/health")).status, 200);
  const Reply refused = Client(t.port()).ask(get("/"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  half[0]->send("st: localhost\r\n\r\n");
  EXPECT_EQ(half[0]->read_reply().status, 200);  // and is idle now, so that it makes room
  EXPECT_TRUE(eventually([&] { return Client(t.port()).ask(get("/")).status == 200; }));
}

TEST(Limits, AddressesOfOneNetworkCountTogether) {
  EXPECT_EQ(address_group("2001:db8:1:2::1"), "2001:db8:1:2::/64");
  EXPECT_EQ(address_group("2001:db8:1:2:ffff:ffff:ffff:ffff"), "2001:db8:1:2::/64");
  EXPECT_NE(address_group("2001:db8:1:3::1"), address_group("2001:db8:1:2::1"));
  EXPECT_EQ(address_group("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(address_group("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(address_group("unix"), "unix");
}

TEST(Limits, AnswersAreOfBoundedSize) {
  ServerOptions o = test_options();
  o.answer_bytes = 2 << 20;
  TestServer t(o);
  EXPECT_EQ(Client(t.port()).ask(get("/big?mb=2")).status, 200);
  const Reply refused = Client(t.port()).ask(get("/big?mb=3"));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("answer_too_large"), std::string::npos) << refused.body;
  EXPECT_NE(refused.body.find("3.0 MiB, and answers have at most 2.0 MiB"), std::string::npos) << refused.body;
}

// A client may say a length and send nothing for as long as body_timeout.
TEST(Limits, ALengthThatIsOnlySaidKeepsNoBodyOut) {
  ServerOptions o = test_options();
  o.work_bytes = 10'000;
  TestServer t(o);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 8; ++i) {
    silent.push_back(std::make_unique<Client>(t.port()));
    silent.back()->send("POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 8000\r\n\r\n");
    EXPECT_NE(silent.back()->read_until("\r\n\r\n").find(" 100 "), std::string::npos);
  }
  EXPECT_EQ(Client(t.port()).ask(post("/echo", std::string(8000, 'a'))).status, 200);
  // What comes is counted: of two halves of 16,000 bytes the second finds no room, and gives back what it had.
  silent[0]->send(std::string(7999, 'a'));
  EXPECT_TRUE(eventually([&] { return Client(t.port()).ask(post("/echo", std::string(8000, 'a'))).status == 503; }));
  silent[1]->send(std::string(8000, 'a'));
  EXPECT_EQ(silent[1]->read_reply().status, 503);
  silent[0]->send("a");
  EXPECT_EQ(silent[0]->read_reply().body.size(), 8000u);
  EXPECT_TRUE(eventually([&] { return Client(t.port()).ask(post("/echo", std::string(8000, 'a'))).status == 200; }));
}

TEST(Limits, SlowHeadersAreGivenUp) {  // slowloris
  ServerOptions o = test_options();
  o.header_timeout = milliseconds(300);
  TestServer t(o);
  Client client(t.port());
  client.send("GET / HTTP/1.1\r\n");
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000 && client.silent_for(20); ++i)
    if (!client.try_send("X: y\r\n")) break;  // each byte is progress, and must not move the deadline
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(8));
  EXPECT_EQ(client.read_reply().status, 408);
  EXPECT_EQ(t.seen.count(), 0u);
}

TEST(Limits, SlowBodiesAreGivenUp) {
  ServerOptions o = test_options();
  o.body_timeout = milliseconds(300);
  TestServer t(o);
  Client client(t.port());
  client.send("POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
  for (int i = 0; i < 1000 && client.silent_for(20); ++i)
    if (!client.try_send("x")) break;
  EXPECT_EQ(client.read_reply().status, 408);
  EXPECT_EQ(t.seen.count(), 0u);
}

TEST(Limits, IdleConnectionsAreClosedWithoutAWord) {
  ServerOptions o = test_options();
  o.idle_timeout = milliseconds(200);
  TestServer t(o);
  Client never(t.port()), once(t.port());
  EXPECT_EQ(once.ask(get("/")).status, 200);
  EXPECT_TRUE(never.ended());
  EXPECT_TRUE(once.ended());
}

TEST(Limits, ARequestThatRunsHasNoDeadline) {
  ServerOptions o = test_options();
  o.idle_timeout = o.header_timeout = o.body_timeout = o.write_timeout = milliseconds(100);
  TestServer t(o);
  Client client(t.port());
  client.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  EXPECT_TRUE(client.silent_for(600));
  t.seen.take_held()->respond({200, "", "late", {}});
  EXPECT_EQ(client.read_reply().body, "late");
  EXPECT_EQ(t.seen.gone, 0);
}

TEST(Limits, AClientThatTakesNothingIsGivenUp) {
  ServerOptions o = test_options();
  o.write_timeout = milliseconds(300);
  TestServer t(o);
  Client client(t.port(), 4096);
  client.send(get("/big?mb=64"));
  EXPECT_TRUE(eventually([&] { return t.server->stats().slow == 1; }));
  EXPECT_TRUE(eventually([&] { return t.server->stats().connections == 0; }));
  EXPECT_EQ(t.seen.gone, 1);
}

TEST(Limits, ASlowReaderGetsAllOfALargeAnswer) {
  TestServer t;
  Client client(t.port(), 4096);
  EXPECT_EQ(client.ask(get("/big?mb=8")).body.size(), size_t{8} << 20);
}

// Pieces at once fill the queue; those that come one by one fill the socket first, and the queue while the connection waits to
// write.
TEST(Limits, AStreamThatIsNotTakenEnds) {
  for (const milliseconds pause : {milliseconds(0), milliseconds(1)}) {
    ServerOptions o = test_options();
    o.stream_bytes = 100'000;
    TestServer t(o);
    Client client(t.port(), 4096);
    client.send(get("/stream"));
    ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
    const auto stream = t.seen.take_stream();
    const std::string piece(10'000, 'x');
    int sent = 0;
    for (; sent < 5'000 && stream->send(piece); ++sent)
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
    EXPECT_LT(sent, 5'000) << "50 MB were taken from us";
    EXPECT_FALSE(stream->send("more"));
    EXPECT_TRUE(eventually([&] { return t.seen.gone == 1; }));
    EXPECT_TRUE(eventually([&] { return t.server->stats().connections == 0; }));
    EXPECT_EQ(t.server->stats().slow, 1);
  }
}

TEST(Limits, OnePieceMayBeLargerThanTheQueue) {
  ServerOptions o = test_options();
  o.stream_bytes = 1000;
  TestServer t(o);
  Client client(t.port());
  client.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const auto stream = t.seen.take_stream();
  EXPECT_TRUE(stream->send(std::string(1 << 20, 'x')));
  stream->close();
  EXPECT_EQ(client.read_reply().body.size(), size_t{1} << 20);
}

TEST(Limits, BusyConnectionsKeepOthersOutAndIdleOnesMakeRoom) {
  ServerOptions o = test_options();
  o.connections = o.connections_per_address = 3;
  o.connections_for_quick = 0;
  TestServer t(o);
  Client idle(t.port()), busy1(t.port()), busy2(t.port());
  EXPECT_EQ(idle.ask(get("/")).status, 200);
  busy1.send(get("/hold"));
  busy2.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 3; }));
  Client third(t.port());
  third.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 4; }));
  EXPECT_TRUE(idle.ended());
  ASSERT_TRUE(eventually([&] { return t.server->stats().connections == 3; }));
  Client fourth(t.port());
  const Reply refused = fourth.read_reply();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.count("retry-after"), 1u);
  EXPECT_EQ(t.server->stats().refused, 1);
  while (const auto held = t.seen.take_held()) held->respond({});
  EXPECT_EQ(busy1.read_reply().status, 200);
}

TEST(Limits, ClientsThatAskOnAfterAnEndedPipelineDoNotFillMemory) {
  TestServer t;
  Client client(t.port());
  client.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  // What is sent while an answer is awaited stays in the socket's buffers from 64 KiB on.
  size_t sent = 0;
  const std::string more(65536, 'x');
  timeval patience = {0, 300'000};
  for (; sent < (size_t{64} << 20); sent += more.size())
    if (!client.send_for(more, patience)) break;
  EXPECT_LT(sent, size_t{32} << 20);
  t.seen.take_held()->respond({200, "", "answer", {}});
  EXPECT_EQ(client.read_reply().body, "answer");
}

}  // namespace
}  // namespace vitrine::http
