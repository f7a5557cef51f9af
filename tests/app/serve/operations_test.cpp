// What operators see: metrics and the log of requests, and what clients see of a server that ends.
#include <future>
#include <map>
#include <regex>

#include "base/mapped_file.h"
#include "support.h"

namespace vitrine::serve {
namespace {

ServiceOptions counted(bool keys) {
  ServiceOptions options;
  options.requests = std::make_shared<RequestMetrics>(keys);
  return options;
}

std::string metrics_of(const Served& served) { return served.ask("GET", "/metrics", "", "sk-admin").body; }
bool has(const std::string& metrics, const std::string& line) { return metrics.find("\n" + line + "\n") != std::string::npos; }

TEST(Operations, RequestsAreCountedByRouteAndStatus) {
  const Served served(counted(false));
  EXPECT_EQ(served.get("/v1/models/tales9m").status, 200);
  EXPECT_EQ(served.get("/v1/models/no-such").status, 404);
  for (const char* path : {"/a", "/b?x=1", "/v1/modelsx"}) EXPECT_EQ(served.get(path).status, 404);
  EXPECT_EQ(served.ask("BREW", "/coffee").status, 501);
  EXPECT_EQ(served.ask("POST", "/v1/completions", "{").status, 400);
  served.answered(6);
  const std::string metrics = metrics_of(served);
  for (const char* line : {R"(vitrine_http_requests_total{path="/v1/models/{id}",method="GET",status="200"} 1)",
                           R"(vitrine_http_requests_total{path="/v1/models/{id}",method="GET",status="404"} 1)",
                           R"(vitrine_http_requests_total{path="other",method="GET",status="404"} 3)",
                           R"(vitrine_http_requests_total{path="other",method="other",status="501"} 1)",
                           R"(vitrine_http_requests_total{path="/v1/completions",method="POST",status="400"} 1)",
                           R"(vitrine_http_request_seconds_bucket{path="other",le="+Inf"} 4)",
                           R"(vitrine_http_request_seconds_count{path="other"} 4)", "# TYPE vitrine_http_requests_total counter",
                           "# TYPE vitrine_http_request_seconds histogram"})
    EXPECT_TRUE(has(metrics, line)) << line << "\n" << metrics;
  EXPECT_EQ(metrics.find("coffee"), std::string::npos);
}

TEST(Operations, TokensAreCountedByKeyAndModel) {
  const Served served(counted(true), std::string(VITRINE_SOURCE) + "/models/tales9m", {},
                      {{"alice", "sk-a"}, {"admin", "sk-admin"}});
  const OrderedJson body = {{"prompt", {1, 2, 3}}, {"max_tokens", 4}, {"ignore_eos", true}, {"n", 2}};
  EXPECT_EQ(served.ask("POST", "/v1/completions", body.dump(), "sk-a").status, 200);
  EXPECT_EQ(served.ask("POST", "/v1/embeddings", R"({"input": [5, 6, 7, 8]})", "sk-a").status, 200);
  const http::AccessEntry completion = served.answered(0), embedding = served.answered(1);
  EXPECT_EQ(completion.owner, "alice");
  EXPECT_EQ(completion.model, "tales9m");
  EXPECT_EQ(completion.prompt_tokens, 3) << "which both texts continue";
  EXPECT_EQ(completion.new_tokens, 8);
  EXPECT_EQ(embedding.prompt_tokens, 4);
  EXPECT_EQ(embedding.new_tokens, 0);
  const std::string metrics = metrics_of(served);
  for (const char* line : {R"(vitrine_key_prompt_tokens_total{key="alice",model="tales9m"} 7)",
                           R"(vitrine_key_new_tokens_total{key="alice",model="tales9m"} 8)"})
    EXPECT_TRUE(has(metrics, line)) << line << "\n" << metrics;
  // The dashboard shows what there is.
  const std::string dashboard = read_file(std::string(VITRINE_SOURCE) + "/packaging/grafana-dashboard.json");
  const std::regex named("(vitrine|process)_[a-z_]+");
  size_t shown = 0;
  for (std::sregex_iterator at(dashboard.begin(), dashboard.end(), named), end; at != end; ++at, ++shown) {
    EXPECT_NE(metrics.find("\n" + at->str()), std::string::npos) << at->str();
  }
  EXPECT_GT(shown, 20U);
}

TEST(Operations, AddressesAreNoLabels) {
  const Served served(counted(false));
  EXPECT_EQ(served.post("/v1/completions", {{"prompt", {1, 2}}, {"max_tokens", 1}}).status, 200);
  EXPECT_EQ(metrics_of(served).find("vitrine_key_"), std::string::npos);
}

// A stream that a draining server cuts ends with an error in the form of its API, and none of them looks complete.
TEST(Operations, StreamsThatDrainingCutsEndWithAnError) {
  const OrderedJson messages = {{{"role", "user"}, {"content", "hello"}}};
  const std::map<std::string, std::pair<OrderedJson, std::string>> requests = {
      {"/v1/completions", {{{"prompt", "Once"}}, "data: {\"error\":{\"message\":\"this server is ending"}},
      {"/v1/chat/completions", {{{"messages", messages}}, "data: {\"error\":{\"message\":\"this server is ending"}},
      {"/v1/messages",
       {{{"model", "tales9m"}, {"messages", messages}, {"max_tokens", 9}},
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"this server is ending"}},
      {"/v1/responses", {{{"input", "hello"}}, "event: response.failed\n"}},
      {"/api/chat", {{{"model", "tales9m"}, {"messages", messages}}, "{\"error\":\"this server is ending"}},
      {"/completion", {{{"prompt", "Once"}}, "{\"error\":{\"message\":\"this server is ending"}}};
  Served served;
  Scheduler& scheduler = served.service->scheduler();
  std::promise<void> begun, may_end;
  std::future<void> job = scheduler.run(
      [&](Engine&) {
        begun.set_value();
        may_end.get_future().wait();
      },
      "operator");
  begun.get_future().wait();  // so that no stream can end by itself
  std::map<std::string, std::future<Reply>> replies;
  for (const auto& [path, request] : requests) {
    OrderedJson body = request.first;
    body["stream"] = true;
    replies[path] = std::async(std::launch::async, [&served, path, body] { return served.post(path, body); });
  }
  const OrderedJson whole = {{"prompt", "Once"}};
  replies["whole"] = std::async(std::launch::async, [&] { return served.post("/v1/completions", whole); });
  for (int i = 0; i < 3000 && scheduler.stats().waiting < std::ssize(replies); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(scheduler.stats().waiting, std::ssize(replies));
  scheduler.drain();
  scheduler.cancel_all();
  may_end.set_value();
  job.get();
  const Reply refused = replies["whole"].get();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "interrupted");
  for (const auto& [path, request] : requests) {
    const Reply reply = replies[path].get();
    EXPECT_EQ(reply.status, 200) << path;
    EXPECT_NE(reply.body.find(request.second), std::string::npos) << path << "\n" << reply.body;
    for (const char* end : {"[DONE]", "message_stop", "response.completed", "\"done\":true", "\"stop\":true"})
      EXPECT_EQ(reply.body.find(end), std::string::npos) << path << "\n" << reply.body;
  }
}

TEST(Operations, RunningStreamsAreCutToo) {
  Served served;
  Connection connection(served.server->port());
  const OrderedJson body = {{"prompt", "Once"}, {"max_tokens", 900}, {"n", 8}, {"ignore_eos", true}, {"stream", true}};
  connection.send("POST", "/v1/completions", body.dump());
  while (served.service->scheduler().stats().new_tokens == 0) std::this_thread::yield();
  served.service->scheduler().drain();
  served.service->scheduler().cancel_all();
  const Reply reply = connection.reply();
  EXPECT_NE(reply.body.find("\"code\":\"interrupted\""), std::string::npos) << reply.body.substr(reply.body.size() - 500);
  EXPECT_EQ(reply.body.find("[DONE]"), std::string::npos);
  while (served.service->scheduler().stats().running > 0)  // counted by the scheduler's thread, after the last is told
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace vitrine::serve
