// GET /metrics: Prometheus's text format 0.0.4; the names of llama.cpp's server as aliases, and those that Prometheus's own
// clients give a process.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/table.h"
#include "serve/endpoints.h"
#include "serve/model_lists.h"
#include "serve/process.h"
#include "vitrine/version.h"

namespace vitrine::serve {
namespace {

/// Samples by the name of their metric: those of several models stand together.
class MetricsText {
 public:
  /// Of what follows; "": it has no label.
  void set_model(const std::string& name) { model_ = name.empty() ? "" : fmt::format("model=\"{}\"", escaped(name)); }

  void value(const char* type, const char* name, const char* help, double value) {
    family(name, help, type) += fmt::format("{}{} {}\n", name, braced({}), value);
  }
  void counter(const char* name, const char* help, double v) { value("counter", name, help, v); }
  void gauge(const char* name, const char* help, double v) { value("gauge", name, help, v); }
  using Labels = std::initializer_list<std::pair<const char*, std::string_view>>;
  void histogram(const char* name, const char* help, const Histogram& h, Labels labels = {}) {
    std::string& text = family(name, help, "histogram");
    const std::string own = joined_labels(labels), before = own.empty() ? "" : own + ",";
    uint64_t below = 0;
    for (size_t i = 0; i < h.bounds.size(); ++i) {
      below += h.counts[i];
      text += fmt::format("{}_bucket{} {}\n", name, braced(before + fmt::format("le=\"{}\"", h.bounds[i])), below);
    }
    text += fmt::format("{0}_bucket{3} {1}\n{0}_sum{4} {2}\n{0}_count{4} {1}\n", name, h.count, h.sum,
                        braced(before + "le=\"+Inf\""), braced(own));
  }
  void sample(const char* type, const char* name, const char* help, Labels labels, uint64_t count) {
    family(name, help, type) += fmt::format("{}{} {}\n", name, braced(joined_labels(labels)), count);
  }
  void labeled(const char* name, const char* help, const char* label,
               std::initializer_list<std::pair<const char*, double>> values) {
    std::string& text = family(name, help, "counter");
    for (const auto& [word, v] : values) text += fmt::format("{}{} {}\n", name, braced(fmt::format("{}=\"{}\"", label, word)), v);
  }
  /// A gauge of 1 whose labels tell something.
  void info(const char* name, const char* help, Labels labels) { sample("gauge", name, help, labels, 1); }
  std::string take() && {
    std::string text;
    for (const Family& family : families_) text += family.head + family.samples;
    return text;
  }

 private:
  struct Family {
    std::string name, head, samples;
  };
  std::string& family(const char* name, const char* help, const char* type) {
    const auto found = std::ranges::find(families_, name, &Family::name);
    if (found != families_.end()) return found->samples;
    return families_.emplace_back(name, fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type), "").samples;
  }
  static std::string joined_labels(Labels labels) {
    std::string all;
    for (const auto& [label, word] : labels) all += fmt::format("{}{}=\"{}\"", all.empty() ? "" : ",", label, escaped(word));
    return all;
  }
  std::string braced(const std::string& labels) const {
    if (labels.empty() && model_.empty()) return "";
    return "{" + labels + (labels.empty() || model_.empty() ? "" : ",") + model_ + "}";
  }
  static std::string escaped(std::string_view word) {
    std::string out;
    for (const char c : word) {
      if (c == '\\' || c == '"') out += '\\';
      c == '\n' ? out += "\\n" : out += c;
    }
    return out;
  }
  std::vector<Family> families_;
  std::string model_;
};

void add_process(MetricsText& m, std::time_t started) {
  const ProcessStats p = process_stats();
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  m.counter("process_cpu_seconds_total", "Processor time of all threads.", p.cpu_seconds);
  m.gauge("process_resident_memory_bytes", "Memory in use, read pages of mapped files included.", d(p.resident_bytes));
  m.gauge("process_virtual_memory_bytes", "Addresses in use.", d(p.virtual_bytes));
  m.gauge("process_open_fds", "Open file descriptors.", d(p.open_files));
  m.gauge("process_max_fds", "File descriptors that may be open.", d(p.most_files));
  m.gauge("process_threads", "Threads.", d(p.threads));
  m.gauge("process_start_time_seconds", "Start of the service, since 1970.", d(started));
}

double rate(uint64_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

void add_model(MetricsText& m, Service& service) {
  const SchedulerStats s = service.scheduler().stats();
  const AdapterList::Size adapters = service.adapters().size();
  const auto d = [](auto n) { return static_cast<double>(n); };
  m.gauge("vitrine_streams_running", "Streams that run.", d(s.running));
  m.gauge("vitrine_streams_reading", "Streams among them that read their prompt.", d(s.reading));
  m.gauge("vitrine_streams_waiting", "Streams and jobs in the queue.", d(s.waiting));
  m.gauge("vitrine_draining", "1 while no new work is taken.", s.draining ? 1 : 0);
  m.gauge("vitrine_busy_seconds", "Since the running step or job began; long means stuck.", s.busy_seconds_now);
  m.counter("vitrine_streams_submitted_total", "Streams that entered the queue.", d(s.submitted));
  m.counter("vitrine_streams_refused_total", "Streams and jobs that found the queue full.", d(s.refused));
  m.labeled("vitrine_streams_ended_total", "Streams by their end.", "end",
            {{"stop", d(s.stopped)}, {"length", d(s.length)}, {"cancelled", d(s.cancelled)}, {"failed", d(s.failed)}});
  m.counter("vitrine_jobs_total", "Jobs that were run alone: embeddings, inspection.", d(s.jobs));
  m.counter("vitrine_preempted_total", "Times a stream gave its cache back.", d(s.preempted));
  m.counter("vitrine_steps_total", "Steps of the model.", d(s.steps));
  m.counter("vitrine_prompt_tokens_total", "Tokens of prompts that were read, those from the prefix cache included.",
            d(s.prompt_tokens));
  m.counter("vitrine_cached_tokens_total", "Tokens of prompts that were found in the prefix cache.", d(s.cached_tokens));
  m.counter("vitrine_new_tokens_total", "Tokens that were generated.", d(s.new_tokens));
  m.counter("vitrine_drafted_tokens_total", "Tokens that were drafted.", d(s.drafted_tokens));
  m.counter("vitrine_accepted_tokens_total", "Drafted tokens that were taken.", d(s.accepted_tokens));
  m.counter("vitrine_drafts_total", "Drafts: of a stream for a step.", d(s.drafts));
  m.counter("vitrine_prompt_seconds_total", "Time of steps that read prompts.", s.prompt_seconds);
  m.counter("vitrine_decode_seconds_total", "Time of the other steps.", s.decode_seconds);
  m.gauge("vitrine_cache_bytes", "Keys and values in use, of streams and kept prefixes.", d(s.cache_bytes));
  m.gauge("vitrine_cache_bytes_most", "Keys and values that may be in use.", d(s.cache_bytes_most));
  m.gauge("vitrine_prefixes", "Sequences in the prefix cache.", d(s.prefixes));
  m.gauge("vitrine_prefix_tokens", "Tokens in it; shared beginnings count once.", d(s.prefix_tokens));
  m.labeled("vitrine_prefix_lookups_total", "Prompts that found a beginning in the prefix cache or did not.", "found",
            {{"yes", d(s.prefix_hits)}, {"no", d(s.prefix_misses)}});
  m.counter("vitrine_prefix_evictions_total", "Sequences that left the prefix cache for others.", d(s.prefix_evictions));
  m.gauge("vitrine_adapters", "LoRA adapters that are loaded.", d(adapters.adapters));
  m.gauge("vitrine_adapter_bytes", "Their numbers, those of removed ones that still run included.", d(adapters.bytes));
  m.histogram("vitrine_queue_seconds", "Time in the queue.", s.queue_seconds);
  m.histogram("vitrine_first_token_seconds", "From arrival to the first token.", s.first_token_seconds);
  m.histogram("vitrine_between_tokens_seconds", "Between two tokens of a stream.", s.between_tokens_seconds);
  m.histogram("vitrine_stream_seconds", "From arrival to the end.", s.stream_seconds);
  m.histogram("vitrine_step_seconds", "Time of a step.", s.step_seconds);
  m.histogram("vitrine_step_streams", "Streams in a step.", s.step_streams);
  m.histogram("vitrine_step_rows", "Rows of a step.", s.step_rows);
  // The names of llama.cpp's server.
  m.counter("llamacpp:prompt_tokens_total", "Prompt tokens processed.", d(s.prompt_tokens - s.cached_tokens));
  m.counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", d(s.cached_tokens));
  m.counter("llamacpp:prompt_seconds_total", "Prompt processing time.", s.prompt_seconds);
  m.counter("llamacpp:tokens_predicted_total", "Generated tokens.", d(s.new_tokens));
  m.counter("llamacpp:tokens_predicted_seconds_total", "Generation time.", s.decode_seconds);
  m.counter("llamacpp:n_decode_total", "Steps of the model.", d(s.steps));
  m.counter("llamacpp:n_tokens_max", "Tokens of the longest prompt and text.", d(s.longest_stream));
  m.counter("llamacpp:spec_decode_num_drafts_total", "Drafts.", d(s.drafts));
  m.counter("llamacpp:spec_decode_num_draft_tokens_total", "Drafted tokens.", d(s.drafted_tokens));
  m.counter("llamacpp:spec_decode_num_accepted_tokens_total", "Drafted tokens that were taken.", d(s.accepted_tokens));
  m.gauge("llamacpp:n_busy_slots_per_decode", "Streams in a step, on average.",
          rate(s.step_streams.count, 1) > 0 ? s.step_streams.sum / d(s.step_streams.count) : 0);
  m.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second.",
          rate(s.prompt_tokens - s.cached_tokens, s.prompt_seconds));
  m.gauge("llamacpp:predicted_tokens_seconds", "Generated tokens per second.", rate(s.new_tokens, s.decode_seconds));
  m.gauge("llamacpp:requests_processing", "Streams that run.", d(s.running));
  m.gauge("llamacpp:requests_deferred", "Streams that wait.", d(s.waiting));
}

void add_requests(MetricsText& m, const RequestMetrics& requests) {
  for (const auto& [path, method, status, count] : requests.answers())
    m.sample("counter", "vitrine_http_requests_total", "Requests that were answered, by route and status; 499: the client left.",
             {{"path", path}, {"method", method}, {"status", std::to_string(status)}}, count);
  for (const auto& [path, seconds] : requests.times())
    m.histogram("vitrine_http_request_seconds", "From the first byte of a request to the last one of its answer.", seconds,
                {{"path", path}});
  for (const auto& [key, model, prompt, made] : requests.tokens()) {
    m.sample("counter", "vitrine_key_prompt_tokens_total", "Tokens of prompts by key.", {{"key", key}, {"model", model}}, prompt);
    m.sample("counter", "vitrine_key_new_tokens_total", "Generated tokens by key.", {{"key", key}, {"model", model}}, made);
  }
}

std::string metrics_text(std::span<const ServedModel> models, std::time_t started, const RequestMetrics* requests) {
  const bool several = models.size() > 1;
  MetricsText m;
  for (const ServedModel& model : models)
    m.info("vitrine_build_info", "Version and kernels of this program, and its model.",
           {{"version", version()}, {"kernels", kernels().name}, {"model", model.name}});
  add_process(m, started);
  if (requests != nullptr) add_requests(m, *requests);
  for (const ServedModel& model : models) {
    m.set_model(several ? model.name : "");
    if (several) {
      m.gauge("vitrine_model_loaded", "1 while the model is loaded.", model.service != nullptr ? 1 : 0);
      m.counter("vitrine_model_loads_total", "Times the model was loaded.", static_cast<double>(model.loads));
    }
    if (model.service != nullptr) add_model(m, *model.service);
  }
  return std::move(m).take();
}

}  // namespace

http::Response metrics_response(std::span<const ServedModel> models, std::time_t started, const RequestMetrics* requests) {
  http::Response response;
  response.type = "text/plain; version=0.0.4; charset=utf-8";
  response.headers.emplace_back("Process-Start-Time-Unix", std::to_string(started));
  response.body = metrics_text(models, started, requests);
  return response;
}

void metrics(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  if (!service.options().metrics) throw unsupported("", "this server was started without /metrics");
  exchange->respond(metrics_response(only(service), service.started(), service.options().requests.get()));
}

}  // namespace vitrine::serve
