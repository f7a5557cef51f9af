#include "telemetry/spans.h"

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "vitrine/version.h"

namespace vitrine::telemetry {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kServer = 2;  // SpanKind
constexpr int kError = 2;   // StatusCode

// gen_ai.operation.name
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kOperations = {{
    {"/v1/chat/completions", "chat"},
    {"/chat/completions", "chat"},
    {"/v1/messages", "chat"},
    {"/v1/responses", "chat"},
    {"/responses", "chat"},
    {"/api/chat", "chat"},
    {"/v1/completions", "text_completion"},
    {"/completions", "text_completion"},
    {"/completion", "text_completion"},
    {"/infill", "text_completion"},
    {"/api/generate", "text_completion"},
    {"/v1/embeddings", "embeddings"},
    {"/embeddings", "embeddings"},
    {"/api/embed", "embeddings"},
    {"/api/embeddings", "embeddings"},
}};

Json text(std::string_view key, std::string_view value) { return {{"key", key}, {"value", {{"stringValue", value}}}}; }
// 64-bit numbers are strings in the JSON of Protocol Buffers.
Json number(std::string_view key, int64_t value) { return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}}; }

std::string nanoseconds(std::chrono::system_clock::time_point time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

Json span_json(const http::AccessEntry& e, const char* route) {
  const auto took =
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double, std::milli>(e.ms));
  Json attributes =
      Json::array({text("http.request.method", e.method), text("url.path", e.path), number("http.response.status_code", e.status),
                   number("http.response.body.size", static_cast<int64_t>(e.bytes))});
  if (route != nullptr) attributes.push_back(text("http.route", route));
  if (e.prompt_tokens >= 0) {
    for (const auto& [path, operation] : kOperations)
      if (route != nullptr && path == route) attributes.push_back(text("gen_ai.operation.name", operation));
    attributes.push_back(text("gen_ai.provider.name", "vitrine"));
    attributes.push_back(text("gen_ai.request.model", e.model));
    attributes.push_back(text("gen_ai.response.model", e.model));
    attributes.push_back(number("gen_ai.usage.input_tokens", e.prompt_tokens));
    attributes.push_back(number("gen_ai.usage.output_tokens", e.new_tokens));
  }
  if (e.status >= 500) attributes.push_back(text("error.type", std::to_string(e.status)));
  Json span = {{"traceId", e.trace.trace_id}, {"spanId", e.trace.span_id}};
  if (!e.trace.parent_id.empty()) span["parentSpanId"] = e.trace.parent_id;
  span["name"] = e.method + (route == nullptr ? "" : " " + std::string(route));
  span["kind"] = kServer;
  span["startTimeUnixNano"] = nanoseconds(e.began);
  span["endTimeUnixNano"] = nanoseconds(e.began + took);
  span["attributes"] = std::move(attributes);
  if (e.status >= 500) span["status"] = {{"code", kError}};
  return span;
}

}  // namespace

std::string spans_json(std::span<const http::AccessEntry> requests, const std::string& service, const RouteOf& route_of) {
  Json spans = Json::array();
  for (const http::AccessEntry& request : requests) spans.push_back(span_json(request, route_of(request.path)));
  const Json scope = {{"name", "vitrine"}, {"version", version()}};
  const Json attributes = Json::array({text("service.name", service), text("service.version", version())});
  const Json json = {
      {"resourceSpans", Json::array({{{"resource", {{"attributes", attributes}}},
                                      {"scopeSpans", Json::array({{{"scope", scope}, {"spans", std::move(spans)}}})}}})}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace vitrine::telemetry
