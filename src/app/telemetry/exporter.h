#pragma once
// Sends spans to a collector.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "http/access_entry.h"
#include "hub/http.h"
#include "telemetry/spans.h"

namespace vitrine::telemetry {

struct ExportOptions {
  std::string url;                   // "http://127.0.0.1:4318/v1/traces"
  std::vector<std::string> headers;  // "Authorization: Bearer …"
  std::string service = "vitrine";
  RouteOf route_of = [](const std::string&) { return nullptr; };
  std::function<void(const std::string&)> say = [](const std::string&) {};  // what the operator should know
  std::chrono::milliseconds every{5000};                                    // between batches that are not full
  size_t batch = 512, most_waiting = 2048;                                  // spans
};

/// What `endpoint` (of --otlp-endpoint) and the environment say, with the names and rules of OpenTelemetry:
/// OTEL_EXPORTER_OTLP_ENDPOINT, _TRACES_ENDPOINT, _HEADERS, _TRACES_HEADERS, OTEL_SERVICE_NAME, OTEL_SDK_DISABLED. Nothing: no
/// endpoint was given. Errors: InputError for a URL or headers that are none.
std::optional<ExportOptions> export_options(const std::string& endpoint);

/// From a thread of its own: a collector that is slow or away costs spans, never a request.
class SpanExporter {
 public:
  /// Errors: RunError without libcurl on this machine; InputError for a URL that is none.
  explicit SpanExporter(ExportOptions options);
  /// Sends what waits, in two seconds at most.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  /// Takes the request's span if its trace is recorded. Neither blocks nor throws.
  void add(const http::AccessEntry& request) noexcept;
  int64_t sent() const { return sent_; }
  int64_t lost() const { return lost_; }

 private:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { taken, refused, later };
  void work();
  Outcome send(HttpClient& client, const std::vector<http::AccessEntry>& batch);

  const ExportOptions options_;
  const HubSettings settings_;
  const std::string origin_;  // for messages: the rest of the URL may hold a secret
  bool failing_ = false;      // the last batch; the thread's alone
  std::atomic<int64_t> sent_ = 0, lost_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<http::AccessEntry> waiting_;
  bool stop_ = false;
  Clock::time_point end_{};  // until when it may send once stop_ is set
  std::thread thread_;
};

}  // namespace vitrine::telemetry
