// Spans, and how they reach a collector.
#include "telemetry/exporter.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "http/server.h"

namespace vitrine::telemetry {
namespace {

using Json = nlohmann::json;
using namespace std::chrono_literals;

bool eventually(const std::function<bool()>& holds) {
  for (int i = 0; i < 3000 && !holds(); ++i) std::this_thread::sleep_for(10ms);
  return holds();
}

http::AccessEntry entry(const std::string& path) {
  http::AccessEntry e{"req_1", "POST", path, "alice"};
  e.status = 200;
  e.ms = 1500;
  e.model = "tales9m";
  e.prompt_tokens = 7;
  e.new_tokens = 24;
  e.began = std::chrono::system_clock::time_point(1'700'000'000s);
  e.trace = {std::string(32, 'a'), std::string(16, 'b'), std::string(16, 'c'), true};
  return e;
}

/// Takes what is sent, and answers with the status that it is told.
struct Collector {
  Collector() {
    http::ServerOptions o;
    o.port = 0;
    server = std::make_unique<http::Server>(o, [this](const std::shared_ptr<http::Exchange>& e) {
      std::unique_lock lock(mutex);
      requests.push_back(e->request());
      if (hold) {
        held.push_back(e);
        return;
      }
      const int answer = status;
      lock.unlock();
      e->respond({answer, "application/json", "{}", {}});
    });
  }
  ~Collector() {
    held.clear();
    server.reset();
  }
  size_t count() {
    const std::lock_guard lock(mutex);
    return requests.size();
  }
  ExportOptions options() {
    ExportOptions o;
    o.url = server->url() + "/v1/traces";
    o.every = 20ms;
    o.say = [this](const std::string& what) {
      const std::lock_guard lock(mutex);
      said.push_back(what);
    };
    return o;
  }
  std::mutex mutex;
  std::vector<http::Request> requests;
  std::vector<std::shared_ptr<http::Exchange>> held;
  std::vector<std::string> said;
  int status = 200;
  bool hold = false;
  std::unique_ptr<http::Server> server;
};

TEST(Spans, AreOtlpsJson) {
  const http::AccessEntry answered = entry("/v1/chat/completions");
  http::AccessEntry failed = entry("/no/such");
  failed.status = 503;
  failed.prompt_tokens = failed.new_tokens = -1;
  failed.trace.parent_id = "";
  const auto route = [](const std::string& path) { return path == "/no/such" ? nullptr : "/v1/chat/completions"; };
  const Json json = Json::parse(spans_json(std::vector{answered, failed}, "my-service", route));
  const Json& resource = json.at("resourceSpans").at(0);
  EXPECT_EQ(resource["resource"]["attributes"][0], (Json{{"key", "service.name"}, {"value", {{"stringValue", "my-service"}}}}));
  const Json& spans = resource.at("scopeSpans").at(0).at("spans");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["traceId"], std::string(32, 'a'));
  EXPECT_EQ(spans[0]["parentSpanId"], std::string(16, 'b'));
  EXPECT_EQ(spans[0]["spanId"], std::string(16, 'c'));
  EXPECT_EQ(spans[0]["name"], "POST /v1/chat/completions");
  EXPECT_EQ(spans[0]["kind"], 2);
  EXPECT_EQ(spans[0]["startTimeUnixNano"], "1700000000000000000");
  EXPECT_EQ(spans[0]["endTimeUnixNano"], "1700000001500000000");
  EXPECT_FALSE(spans[0].contains("status"));
  std::map<std::string, Json> attributes;
  for (const Json& attribute : spans[0]["attributes"]) attributes[attribute["key"]] = attribute["value"];
  EXPECT_EQ(attributes["http.response.status_code"], (Json{{"intValue", "200"}}));
  EXPECT_EQ(attributes["http.route"], (Json{{"stringValue", "/v1/chat/completions"}}));
  EXPECT_EQ(attributes["gen_ai.operation.name"], (Json{{"stringValue", "chat"}}));
  EXPECT_EQ(attributes["gen_ai.response.model"], (Json{{"stringValue", "tales9m"}}));
  EXPECT_EQ(attributes["gen_ai.usage.input_tokens"], (Json{{"intValue", "7"}}));
  EXPECT_EQ(attributes["gen_ai.usage.output_tokens"], (Json{{"intValue", "24"}}));
  EXPECT_EQ(spans[1]["name"], "POST");
  EXPECT_EQ(spans[1]["status"]["code"], 2);
  EXPECT_FALSE(spans[1].contains("parentSpanId"));
  EXPECT_EQ(spans[1].dump().find("gen_ai"), std::string::npos);
}

TEST(SpanExporters, SendBatches) {
  Collector collector;
  ExportOptions options = collector.options();
  options.headers = {"Authorization: Bearer secret"};
  {
    SpanExporter exporter(options);
    http::AccessEntry other = entry("/");
    other.trace.sampled = false;
    exporter.add(other);
    for (int i = 0; i < 3; ++i) exporter.add(entry("/v1/completions"));
    EXPECT_TRUE(eventually([&] { return exporter.sent() == 3; }));
  }
  EXPECT_EQ(collector.requests[0].method, "POST");
  EXPECT_EQ(collector.requests[0].path, "/v1/traces");
  EXPECT_EQ(*collector.requests[0].header("content-type"), "application/json");
  EXPECT_EQ(*collector.requests[0].header("authorization"), "Bearer secret");
  size_t spans = 0;
  for (const http::Request& request : collector.requests)
    spans += Json::parse(request.body)["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
  EXPECT_EQ(spans, 3u) << "the trace of the other one is not recorded";
  EXPECT_TRUE(collector.said.empty());
}

TEST(SpanExporters, SendWhatWaitsAtTheEnd) {
  Collector collector;
  ExportOptions options = collector.options();
  options.every = std::chrono::hours(1);
  {
    SpanExporter(options).add(entry("/"));
  }
  EXPECT_EQ(collector.count(), 1u);
}

TEST(SpanExporters, TryAgainWhereThatMayHelp) {
  Collector collector;
  collector.status = 503;
  SpanExporter exporter(collector.options());
  exporter.add(entry("/"));
  EXPECT_TRUE(eventually([&] { return collector.count() >= 2; }));
  {
    const std::lock_guard lock(collector.mutex);
    ASSERT_EQ(collector.said.size(), 1u) << "once, not each time";
    EXPECT_NE(collector.said[0].find("status 503"), std::string::npos) << collector.said[0];
    collector.status = 200;
  }
  EXPECT_TRUE(eventually([&] { return exporter.sent() == 1; }));
  {
    const std::lock_guard lock(collector.mutex);
    collector.status = 400;
  }
  exporter.add(entry("/"));
  EXPECT_TRUE(eventually([&] { return exporter.lost() == 1; })) << "a batch that is wrong stays wrong";
  const std::lock_guard lock(collector.mutex);
  EXPECT_EQ(collector.said.size(), 3u);
}

// A collector that does not answer costs spans, and neither the requests nor the end of the server wait for it.
TEST(SpanExporters, KeepABoundedNumber) {
  Collector collector;
  collector.hold = true;
  ExportOptions options = collector.options();
  options.batch = 2;
  options.most_waiting = 4;
  SpanExporter exporter(options);
  exporter.add(entry("/"));
  ASSERT_TRUE(eventually([&] { return collector.count() == 1; }));
  for (int i = 0; i < 10; ++i) exporter.add(entry("/"));
  EXPECT_EQ(exporter.lost(), 6);
  const std::lock_guard lock(collector.mutex);
  collector.hold = false;
  collector.held.clear();  // 500
}

TEST(SpanExporters, ReadTheEnvironment) {
  for (const char* name : {"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_HEADERS",
                           "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_SERVICE_NAME", "OTEL_SDK_DISABLED"})
    ::unsetenv(name);
  EXPECT_FALSE(export_options(""));
  EXPECT_EQ(export_options("http://a:4318/")->url, "http://a:4318/v1/traces");
  EXPECT_EQ(export_options("http://a/x/v1/traces")->url, "http://a/x/v1/traces");
  ::setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://b:4318", 1);
  ::setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b , x=y", 1);
  ::setenv("OTEL_SERVICE_NAME", "tales", 1);
  EXPECT_EQ(export_options("")->url, "http://b:4318/v1/traces");
  EXPECT_EQ(export_options("")->headers, (std::vector<std::string>{"api-key: a b", "x: y"}));
  EXPECT_EQ(export_options("")->service, "tales");
  EXPECT_EQ(export_options("http://a")->url, "http://a/v1/traces");
  ::setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c/as-it-is", 1);
  EXPECT_EQ(export_options("")->url, "http://c/as-it-is");
  ::setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "no-value", 1);
  EXPECT_THROW(export_options(""), InputError);
  ::setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "a=b%0d%0aX: y", 1);
  EXPECT_THROW(export_options(""), InputError) << "a header more";
  ::setenv("OTEL_SDK_DISABLED", "True", 1);
  EXPECT_FALSE(export_options(""));
  ExportOptions wrong;
  wrong.url = "not a url";
  EXPECT_THROW(SpanExporter{wrong}, InputError);
}

}  // namespace
}  // namespace vitrine::telemetry
