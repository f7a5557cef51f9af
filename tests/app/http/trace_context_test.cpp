// traceparent, and what is told of a request once it is answered.
#include "http/trace_context.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "http/client.h"
#include "http/test_server.h"
#include "support/scratch.h"

namespace vitrine::http {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kParent = "00f067aa0ba902b7";

Request with(const std::string& value) {
  Request request;
  request.headers = {{"Traceparent", value}};
  return request;
}

TEST(TraceContexts, AreReadAsTheStandardHasThem) {
  const std::string good = "00-" + kTrace + "-" + kParent + "-";
  const auto context = read_traceparent(with(good + "01"));
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace_id, kTrace);
  EXPECT_EQ(context->parent_id, kParent);
  EXPECT_EQ(context->span_id, "");
  EXPECT_TRUE(context->sampled);
  EXPECT_FALSE(read_traceparent(with(good + "00"))->sampled);
  EXPECT_TRUE(read_traceparent(with(good + "ff"))->sampled) << "other flags are not ours";
  EXPECT_TRUE(read_traceparent(with("cc-" + kTrace + "-" + kParent + "-01-what-comes-later")));
  EXPECT_TRUE(read_traceparent(with("cc-" + kTrace + "-" + kParent + "-01")));
}

TEST(TraceContexts, ThatAreWrongAreNone) {
  const std::string good = "00-" + kTrace + "-" + kParent + "-01", zeros(32, '0');
  for (const std::string& wrong :
       {std::string(), std::string("00"), good.substr(1), good + "-more", good + "0", "ff" + good.substr(2),
        "0x" + good.substr(2), "cc-" + kTrace + "-" + kParent + "-01.more", "00-" + zeros + "-" + kParent + "-01",
        "00-" + kTrace + "-" + zeros.substr(16) + "-01", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kParent + "-01",
        "00-" + kTrace + "-" + kParent + "-0g", "00_" + kTrace + "-" + kParent + "-01", "00-" + kParent + "-" + kTrace + "-01"})
    EXPECT_FALSE(read_traceparent(with(wrong))) << wrong;
  Request twice = with(good);
  twice.headers.emplace_back("traceparent", good);
  EXPECT_FALSE(read_traceparent(twice)) << "which of them?";
  EXPECT_FALSE(read_traceparent(Request()));
}

TEST(TraceContexts, OwnSpansLieInTheClientsTrace) {
  const TraceContext within = with_own_span(TraceContext{kTrace, kParent, "", false});
  EXPECT_EQ(within.trace_id, kTrace);
  EXPECT_EQ(within.parent_id, kParent);
  EXPECT_EQ(within.span_id.size(), 16u);
  EXPECT_FALSE(within.sampled);
  const TraceContext first = with_own_span({}), second = with_own_span({});
  EXPECT_EQ(first.trace_id.size(), 32u);
  EXPECT_NE(first.trace_id, second.trace_id);
  EXPECT_EQ(first.parent_id, "");
  EXPECT_TRUE(first.sampled);
}

TEST(Log, HasTheTraceTheModelAndTheTokens) {
  const Scratch scratch;
  for (const bool spans : {false, true}) {
    ServerOptions o = test_options();
    o.log = scratch / (spans ? "with" : "without");
    o.spans = spans;
    std::mutex mutex;
    std::vector<AccessEntry> answered;
    o.answered = [&](const AccessEntry& entry) {
      const std::lock_guard lock(mutex);
      answered.push_back(entry);
    };
    {
      const Server server(o, [](const std::shared_ptr<Exchange>& e) {
        e->name_model("tales");
        e->count_tokens(3, 4);
        e->count_tokens(0, 5);
        e->respond({200, "text/plain", "hello", {}});
      });
      const auto before = std::chrono::system_clock::now();
      Client client(server.port());
      EXPECT_EQ(client.ask(get("/a", "traceparent: 00-" + kTrace + "-" + kParent + "-01\r\n")).status, 200);
      EXPECT_EQ(client.ask(get("/b", "traceparent: what\r\n")).status, 200);
      EXPECT_TRUE(eventually([&] {
        const std::lock_guard lock(mutex);
        return answered.size() == 2;
      }));
      EXPECT_GE(answered[0].began, before - std::chrono::milliseconds(1));
    }
    std::ifstream file(o.log);
    std::string text;
    std::getline(file, text);
    const auto first = nlohmann::json::parse(text);
    std::getline(file, text);
    const auto second = nlohmann::json::parse(text);
    EXPECT_EQ(first.at("model"), "tales");
    EXPECT_EQ(first.at("prompt_tokens"), 3);
    EXPECT_EQ(first.at("new_tokens"), 9);
    EXPECT_EQ(first.at("trace_id"), kTrace);
    EXPECT_EQ(first.contains("span_id"), spans);
    EXPECT_EQ(second.contains("trace_id"), spans) << second;
    EXPECT_EQ(answered[0].trace.parent_id, kParent);
    EXPECT_EQ(answered[0].new_tokens, 9);
  }
}

}  // namespace
}  // namespace vitrine::http
