// How answers go over the wire: lengths, chunks, old clients, HEAD, request ids, streams, and clients that leave.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "http/client.h"
#include "http/test_server.h"

namespace vitrine::http {
namespace {

TEST(Answers, KeepAliveIsTheRuleOfTheVersion) {
  TestServer t;
  Client client(t.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.ask(get("/")).body, "hello");
  EXPECT_EQ(client.ask(get("/", "Connection: close\r\n")).headers.at("connection"), "close");
  EXPECT_TRUE(client.ended());
  Client old(t.port());
  EXPECT_EQ(old.ask("GET / HTTP/1.0\r\n\r\n").headers.at("connection"), "close");
  EXPECT_TRUE(old.ended());
  Client old_that_stays(t.port());
  const std::string stay = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
  EXPECT_EQ(old_that_stays.ask(stay).headers.at("connection"), "keep-alive");
  EXPECT_EQ(old_that_stays.ask(stay).body, "hello");
}

TEST(Answers, HeadHasTheLengthAndNoBody) {
  TestServer t;
  Client client(t.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc");
  const Reply head = client.read_reply(false);
  EXPECT_EQ(head.headers.at("content-length"), "3");
  EXPECT_EQ(client.ask(get("/")).body, "hello") << "the next answer follows at once";
  client.send("HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.read_reply(false).headers.at("transfer-encoding"), "chunked");
  EXPECT_EQ(client.ask(get("/")).body, "hello");
}

TEST(Answers, ContinueIsSaidBeforeTheBodyAndOnlyIfItIsWanted) {
  ServerOptions o = test_options();
  o.body_bytes = 10;
  TestServer t(o);
  Client client(t.port());
  const std::string head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: ";
  client.send(head + "3\r\n\r\n");
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(client.ask("abc").body, "abc");
  client.send(head + "11\r\n\r\n");
  EXPECT_EQ(client.read_reply().status, 413) << "the body is too long: the client need not send it";
  Client at_once(t.port());
  at_once.send(head + "3\r\n\r\nabc");
  EXPECT_EQ(at_once.read_reply().body, "abc");
}

TEST(Answers, AStreamThatIsSilentIsKeptAliveByPings) {
  ServerOptions o = test_options();
  o.ping_interval = std::chrono::milliseconds(20);
  TestServer t(o);
  Client client(t.port()), quiet(t.port());
  quiet.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const std::shared_ptr<Stream> without = t.seen.take_stream();
  client.send(get("/stream?ping=P"));
  client.read_until("1\r\nP\r\n1\r\nP\r\n");
  const std::shared_ptr<Stream> stream = t.seen.take_stream();
  ASSERT_NE(stream, nullptr);
  stream->send("data");
  client.read_until("4\r\ndata\r\n1\r\nP\r\n");
  stream->close();
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
  EXPECT_EQ(client.ask(get("/")).body, "hello");
  without->send("x");
  without->close();
  EXPECT_EQ(quiet.read_reply().body, "x") << "a stream without a ping has none";
}

TEST(Answers, StreamsGoOutPieceByPiece) {
  TestServer t;
  Client client(t.port());
  client.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const auto stream = t.seen.take_stream();
  const Reply head = client.read_head();
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(head.headers.at("transfer-encoding"), "chunked");
  for (int i = 0; i < 5; ++i) {
    const std::string piece = "data: " + std::to_string(i) + "\n\n";
    EXPECT_TRUE(stream->send(piece));
    EXPECT_EQ(client.read_chunk(), piece) << "each piece must arrive before the next is sent";
  }
  EXPECT_TRUE(stream->send(""));
  EXPECT_TRUE(stream->send("end"));
  stream->close();
  EXPECT_FALSE(stream->send("behind the end"));
  EXPECT_EQ(client.read_chunk(), "end");
  EXPECT_EQ(client.read_chunk(), "");
  EXPECT_EQ(client.ask(get("/")).body, "hello");
  EXPECT_EQ(t.seen.gone, 0);
}

TEST(Answers, StreamsToOldClientsEndWithTheConnection) {
  TestServer t;
  Client client(t.port());
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const auto stream = t.seen.take_stream();
  stream->send("all of it");
  stream->close();
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_EQ(reply.body, "all of it");
}

TEST(Answers, AStreamThatIsLetGoEndsWithoutItsLastChunk) {
  TestServer t;
  Client client(t.port());
  client.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  auto stream = t.seen.take_stream();
  client.read_head();
  stream->send("half");
  EXPECT_EQ(client.read_chunk(), "half");
  stream.reset();
  EXPECT_EQ(client.read_all(), "");
}

TEST(Answers, RequestIdsAreTakenOrMade) {
  TestServer t;
  Client client(t.port());
  EXPECT_EQ(client.ask(get("/", "X-Request-Id: abc-1.2_Z\r\n")).headers.at("x-request-id"), "abc-1.2_Z");
  EXPECT_EQ(t.seen.last().id, "abc-1.2_Z");
  const std::string made = client.ask(get("/", "X-Request-Id: a b\r\n")).headers.at("x-request-id");
  EXPECT_EQ(made.compare(0, 4, "req_"), 0);
  EXPECT_EQ(made.size(), 28u);
  EXPECT_NE(client.ask(get("/", "X-Request-Id: " + std::string(129, 'a') + "\r\n")).headers.at("x-request-id"), made);
  EXPECT_EQ(Client(t.port()).ask("nonsense\r\n\r\n").headers.at("x-request-id").compare(0, 4, "req_"), 0);
}

TEST(Answers, ARoutesHeaderCannotBreakOut) {
  TestServer t;
  Client client(t.port());
  client.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  t.seen.take_held()->respond({200, "text/plain\r\nX-B: c", "body", {{"X-A", "1\r\nX-C: d\n\ne"}}});
  const Reply reply = client.read_reply();
  EXPECT_EQ(reply.headers.at("x-a"), "1  X-C: d  e");
  EXPECT_EQ(reply.headers.count("x-b") + reply.headers.count("x-c"), 0u);
  EXPECT_EQ(reply.body, "body");
}

TEST(Answers, TwiceIsAnErrorOfTheHandler) {
  TestServer t;
  Client client(t.port());
  client.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const auto held = t.seen.take_held();
  held->respond({});
  EXPECT_THROW(held->respond({}), std::logic_error);
  EXPECT_THROW(held->stream({}), std::logic_error);
  EXPECT_EQ(client.read_reply().status, 200);
}

TEST(Leaving, IsToldAtOnceWhileTheAnswerIsAwaited) {
  TestServer t;
  for (const std::string how : {"close", "half", "reset"}) {
    const int before = t.seen.gone;
    Client client(t.port());
    client.send(get("/hold"));
    ASSERT_TRUE(eventually([&] { return t.server->stats().running == 1; }));
    if (how == "half")
      client.half_close();
    else if (how == "reset")
      client.reset();
    else
      client.close();
    EXPECT_TRUE(eventually([&] { return t.seen.gone == before + 1; })) << how;
    while (t.seen.take_held()) {
    }
    EXPECT_TRUE(eventually([&] { return t.server->stats().running == 0; })) << how;
  }
}

TEST(Leaving, IsToldAlsoBehindPipelinedRequests) {
  TestServer t;
  Client client(t.port());
  client.send(get("/hold") + get("/next"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  client.close();
  EXPECT_TRUE(eventually([&] { return t.seen.gone == 1; }));
}

TEST(Leaving, IsToldInAStreamAndEndsIt) {
  TestServer t;
  Client client(t.port());
  client.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  const auto stream = t.seen.take_stream();
  stream->send("piece");
  client.read_head();
  client.close();
  EXPECT_TRUE(eventually([&] { return t.seen.gone == 1; }));
  EXPECT_FALSE(stream->send("piece"));
}

TEST(Leaving, IsToldToWhoAsksLate) {
  TestServer t;
  Client client(t.port());
  client.send(get("/hold"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 1; }));
  client.close();
  ASSERT_TRUE(eventually([&] { return t.seen.gone == 1; }));
  int called = 0;
  t.seen.take_held()->on_gone([&] { ++called; });
  EXPECT_EQ(called, 1);
}

TEST(Leaving, AHalfClosedConnectionStillGetsAShortAnswer) {
  TestServer t;
  Client client(t.port());
  client.send(get("/"));
  client.half_close();
  EXPECT_EQ(client.read_reply().body, "hello");
  EXPECT_TRUE(client.ended());
}

// Clients that leave at any byte, at any stage of the answer: nothing may stay behind.
TEST(Leaving, TenThousandDisconnectsLeaveNothing) {
  ServerOptions o = test_options();
  o.header_timeout = o.idle_timeout = std::chrono::seconds(30);
  TestServer t(o);
  EXPECT_EQ(Client(t.port()).ask(get("/")).status, 200);
  ASSERT_TRUE(eventually([&] { return t.server->stats().connections == 0; }));
  const int files = open_files();
  std::mt19937 random(31);
  const std::vector<std::string> requests = {
      get("/"),
      get("/hold"),
      get("/stream"),
      get("/drop"),
      get("/throw"),
      get("/big?mb=1"),
      post("/echo", std::string(3000, 'x')),
      get("/") + get("/stream") + get("/hold"),
      "nonsense\r\n\r\n",
      "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"};
  const auto worker = [&](unsigned seed) {
    std::mt19937 r(seed);
    for (int i = 0; i < 2500; ++i) {
      Client client(t.port());
      const std::string& request = requests[r() % requests.size()];
      client.try_send(std::string_view(request).substr(0, r() % 3 == 0 ? r() % (request.size() + 1) : request.size()));
      switch (r() % 5) {
        case 0: std::this_thread::sleep_for(std::chrono::microseconds(r() % 2000)); break;
        case 1: client.silent_for(static_cast<int>(r() % 3)); break;
        case 2: client.half_close(); break;
        default: break;
      }
      if (r() % 2 == 0)
        client.reset();
      else
        client.close();
    }
  };
  std::atomic<bool> over = false;
  std::thread handler([&] {  // ends what was kept, in its own time
    std::mt19937 r(7);
    while (!over) {
      if (const auto held = t.seen.take_held(); held && r() % 2 == 0) held->respond({200, "", "x", {}});
      if (const auto stream = t.seen.take_stream()) {
        stream->send("piece");
        if (r() % 2 == 0) stream->close();
      }
      std::this_thread::sleep_for(std::chrono::microseconds(r() % 300));
    }
  });
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < 4; ++i) clients.emplace_back(worker, i + random());
  for (std::thread& client : clients) client.join();
  over = true;
  handler.join();
  const auto all_gone = [&] {  // what was still on its way is kept by the handler, too
    while (t.seen.take_held()) {
    }
    while (t.seen.take_stream()) {
    }
    return t.server->stats().connections == 0;
  };
  EXPECT_TRUE(eventually(all_gone)) << t.server->stats().connections;
  EXPECT_EQ(t.server->stats().running, 0);
  EXPECT_TRUE(eventually([&] { return open_files() == files; })) << open_files() << " " << files;
  EXPECT_EQ(Client(t.port()).ask(get("/")).body, "hello");
  EXPECT_EQ(Client(t.port()).ask(post("/echo", "x")).body, "x");
}

TEST(Leaving, AServerThatEndsTellsItsHandlers) {
  TestServer t;
  Client client(t.port()), streaming(t.port());
  client.send(get("/hold"));
  streaming.send(get("/stream"));
  ASSERT_TRUE(eventually([&] { return t.seen.count() == 2; }));
  t.server.reset();
  EXPECT_EQ(t.seen.gone, 2);
  EXPECT_TRUE(client.ended());
  const auto stream = t.seen.take_stream();
  EXPECT_FALSE(stream->send("piece")) << "after the server";
  t.seen.take_held()->respond({});
}

}  // namespace
}  // namespace vitrine::http
