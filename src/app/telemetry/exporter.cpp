#include "telemetry/exporter.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "http/target.h"
#include "hub/settings.h"

namespace vitrine::telemetry {
namespace {

constexpr std::chrono::seconds kPatience{10};  // for one batch
constexpr std::chrono::seconds kLastWords{2};
constexpr int kPollMs = 50;
constexpr std::string_view kTraces = "/v1/traces";

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : std::string(text.substr(begin, text.find_last_not_of(" \t") + 1 - begin));
}

// "name=value,other=value", values percent-encoded.
std::vector<std::string> header_lines(const std::string& variable) {
  std::vector<std::string> lines;
  const std::string all = environment(variable.c_str());
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(',', at), all.size());
    const std::string one = trimmed(std::string_view(all).substr(at, end - at));
    at = end + 1;
    if (one.empty()) continue;
    const size_t equals = one.find('=');
    const std::string name = trimmed(one.substr(0, equals));
    const std::string coded = equals == std::string::npos ? "" : trimmed(one.substr(equals + 1));
    const std::string value = http::percent_decoded(coded, false).value_or(coded);
    const auto visible = [](unsigned char c) { return c >= ' ' && c != 0x7f; };
    if (equals == std::string::npos || name.empty() || name.find_first_of(" :\t") != std::string::npos ||
        !std::ranges::all_of(name + value, visible))
      throw InputError(variable + " has an entry that is no header; expected NAME=VALUE, and a comma between two");
    lines.push_back(name + ": " + value);
  }
  return lines;
}

}  // namespace

std::optional<ExportOptions> export_options(const std::string& endpoint) {
  std::string disabled = environment("OTEL_SDK_DISABLED");
  std::ranges::transform(disabled, disabled.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string base = endpoint, url;
  if (base.empty() && disabled == "true") return {};
  if (base.empty()) url = environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");  // as it is
  if (base.empty() && url.empty()) base = environment("OTEL_EXPORTER_OTLP_ENDPOINT");
  if (base.empty() && url.empty()) return {};
  if (url.empty()) {
    while (base.ends_with('/')) base.pop_back();
    url = base.ends_with(kTraces) ? base : base + std::string(kTraces);
  }
  ExportOptions options;
  options.url = url;
  const std::string own = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
  options.headers = header_lines(environment(own.c_str()).empty() ? "OTEL_EXPORTER_OTLP_HEADERS" : own);
  if (const std::string name = environment("OTEL_SERVICE_NAME"); !name.empty()) options.service = name;
  return options;
}

SpanExporter::SpanExporter(ExportOptions options)
    : options_(std::move(options)),
      settings_([] {
        HubSettings settings;
        settings.certificates = trusted_certificates();
        settings.stall_seconds = static_cast<int>(kPatience.count());
        return settings;
      }()),
      origin_(origin_of(options_.url)) {
  thread_ = std::thread([this] { work(); });
}

SpanExporter::~SpanExporter() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    end_ = Clock::now() + kLastWords;
  }
  wake_.notify_one();
  thread_.join();
}

void SpanExporter::add(const http::AccessEntry& request) noexcept {
  if (!request.trace.sampled || request.trace.span_id.empty()) return;
  bool full = false;
  try {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= options_.most_waiting) {
      ++lost_;
      return;
    }
    waiting_.push_back(request);
    full = waiting_.size() >= options_.batch;
  } catch (const std::exception&) {  // no memory
    ++lost_;
  }
  if (full) wake_.notify_one();
}

void SpanExporter::work() {
  HttpClient client(settings_);
  std::vector<http::AccessEntry> batch;  // what could not be sent yet stays
  for (;;) {
    bool last = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, options_.every, [&] { return stop_ || (batch.empty() && waiting_.size() >= options_.batch); });
      last = stop_;
      if (batch.empty()) {
        const auto end = waiting_.begin() + static_cast<ptrdiff_t>(std::min(waiting_.size(), options_.batch));
        std::move(waiting_.begin(), end, std::back_inserter(batch));
        waiting_.erase(waiting_.begin(), end);
      }
    }
    if (batch.empty()) {
      if (last) return;
      continue;
    }
    const Outcome outcome = send(client, batch);
    if (outcome == Outcome::taken) sent_ += std::ssize(batch);
    if (outcome == Outcome::refused || (outcome == Outcome::later && last)) lost_ += std::ssize(batch);
    if (outcome != Outcome::later) batch.clear();
    if (last && outcome == Outcome::later) return;
  }
}

SpanExporter::Outcome SpanExporter::send(HttpClient& client, const std::vector<http::AccessEntry>& batch) {
  Outcome outcome = Outcome::later;
  std::string why;
  try {
    Transfer transfer;
    transfer.request.url = options_.url;
    transfer.request.body = spans_json(batch, options_.service, options_.route_of);
    transfer.request.headers = options_.headers;
    transfer.request.headers.emplace_back("Content-Type: application/json");
    client.start(transfer);
    const Clock::time_point late = Clock::now() + kPatience;
    const auto goes_on = [&] {
      const std::lock_guard lock(mutex_);
      return Clock::now() < (stop_ ? std::min(end_, late) : late);
    };
    while (transfer.handle != nullptr && goes_on()) client.wait(kPollMs);
    const bool answered = transfer.handle == nullptr;
    client.cancel(transfer);
    const HttpResponse& response = transfer.response;
    const int status = response.status;
    // Those that OTLP names as worth another try.
    const bool again = status == 429 || status == 502 || status == 503 || status == 504;
    if (!answered)
      why = "no answer came";
    else if (!response.whole)
      why = response.failure;
    else if (status / 100 != 2)
      why = "the answer has status " + std::to_string(status);
    if (why.empty()) outcome = Outcome::taken;
    if (answered && response.whole && status / 100 != 2 && !again) outcome = Outcome::refused;
  } catch (const std::exception& e) {
    why = e.what();
  }
  if (failing_ != !why.empty())
    options_.say(why.empty() ? "spans are sent to " + origin_ + " again; " + std::to_string(lost_) + " were lost so far"
                             : "spans cannot be sent to " + origin_ + ": " + why);
  failing_ = !why.empty();
  return outcome;
}

}  // namespace vitrine::telemetry
