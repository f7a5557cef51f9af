// vitrine serve: the model over HTTP.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/lens_option.h"
#include "cli/reload_signal.h"
#include "cli/sae_flags.h"
#include "cli/serve_flags.h"
#include "cli/service_flags.h"
#include "cli/service_manager.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "cli/study.h"
#include "grammar/grammar.h"
#include "hub/http.h"
#include "hub/pull.h"
#include "model/abilities.h"
#include "serve/model_routes.h"
#include "serve/routes.h"
#include "serve/served_models.h"
#include "telemetry/exporter.h"

namespace vitrine::cli {
namespace {

constexpr std::chrono::milliseconds kLook{50};
constexpr std::chrono::seconds kLastWords{2};  // for interrupted answers to tell their clients

struct ServeArguments {
  ModelOptions model;
  std::vector<SaeFile> saes;
  ServeFlags flags;
  ServiceFlags service;
  std::string lens;
};

// A connection is a file descriptor; the usual limit of a shell is 1024.
void raise_file_limit(int64_t connections) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(connections + 256);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? wanted : std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Threads share a few heaps, and large blocks go back to the system when they are freed: what one large request took is there for
// the next one, whichever thread has it.
void keep_little_memory() {
#ifdef __GLIBC__
  ::mallopt(M_ARENA_MAX, 4);
  ::mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
}

void say_what_runs(serve::Service& service, int64_t context) {
  const int64_t positions = service.scheduler().positions();
  log("{}: {} positions{}, {} streams at once", visible_message(service.name()), positions,
      context > positions ? fmt::format(" of the {} asked for", context) : "", service.scheduling().running);
  if (service.chat() != nullptr && service.chat_is_plain())
    log("the model has no chat template: messages are joined by blank lines; --template FILE gives one");
}

// Of commands that run the model in the same way.
std::string command_options(ModelOptions o) {
  o.model.clear();
  const std::string words = model_words(o);
  return words.empty() ? words : words.substr(1);
}

bool is_stuck(const serve::ServedModel& model) {
  return model.service != nullptr && model.service->is_stuck(model.service->scheduler().stats());
}

std::vector<serve::KeyQuota> quotas_of(const std::vector<http::ApiKey>& keys) {
  std::vector<serve::KeyQuota> quotas;
  for (const http::ApiKey& key : keys)
    quotas.push_back({key.name, static_cast<double>(key.requests_per_minute), static_cast<double>(key.tokens_per_minute)});
  return quotas;
}

bool has_list(const ServeArguments& o) { return !o.service.models.empty(); }

// As the flags and the folders say now. main: the path of the model that the flags are for, where --model does not name one;
// empty: that of the first.
std::vector<serve::ModelToServe> list_of_models(const ServeArguments& o, const std::string& main = "") {
  std::vector<serve::ModelToServe> models = o.service.other_models();
  if (const auto found = std::ranges::find(models, main, &serve::ModelToServe::path); found != models.end())
    std::rotate(models.begin(), found, found + 1);
  if (models.empty() || !o.model.model.empty()) {
    const std::string path = model_or_shipped(o.model.model);
    models.insert(models.begin(), {o.service.name.empty() ? serve::last_part(path) : o.service.name, path});
  } else if (!o.service.name.empty()) {
    models.front().name = o.service.name;
  }
  serve::ModelToServe& first = models.front();
  const serve::ServiceOptions common = o.service.service();
  first.others = common.aliases;
  for (const serve::AdapterToLoad& adapter : common.adapters)
    first.others.push_back(adapter.name.empty() ? serve::last_part(adapter.path) : adapter.name);
  first.any_name = common.any_model;
  first.main = true;
  return models;
}

// The first model has all that the flags say; of the others, what does not belong to one model.
serve::ServedModelsOptions models_to_serve(const ServeArguments& o, const http::ServerOptions& http,
                                           const std::shared_ptr<serve::Quotas>& quotas,
                                           const std::shared_ptr<serve::RequestMetrics>& requests) {
  serve::ServiceOptions common = o.service.service();
  common.most_inside = std::clamp(http.request_threads - 1, 1, common.most_inside);
  common.answer_bytes = http.answer_bytes;
  common.show_paths = http.keys.empty() && !http.no_auth;  // only this machine has access
  if (common.show_paths || !http.keys.empty())
    common.pull = [](const std::string& name, const std::function<void(const serve::PullStep&)>& progress) {
      pull(read_pull_name(name, "main"), hub_settings(), [&](const PullProgress& now) {
        if (StopSignals::asked()) throw Draining("the server is about to end; what has come is kept, and goes on next time");
        progress({now.arrived, now.total, now.file});
      });
    };
  common.quotas = quotas;
  common.requests = requests;

  serve::ServedModelsOptions options;
  options.models = list_of_models(o);
  options.most = o.service.most_models;
  options.keep_seconds = o.service.keep_alive;
  options.most_waiting = o.service.queue;
  options.metrics = common.metrics;
  options.requests = requests;
  options.say = [](const std::string& what) { log("{}", visible_message(what)); };
  const bool several = has_list(o);
  if (!several) options.keep_seconds = -1;
  options.load = [o, common, several, keys = http.keys.size()](const serve::ModelToServe& model) {
    ModelOptions run = o.model;
    run.model = model.path;
    run.may_lack_head = true;
    if (!model.main) run.window = 0;
    if (!model.main) run.adapter.clear();
    if (model.main) run.through = through_saes(o.saes);
    const auto open = [&] { return open_engine(run); };
    const auto options_of = [&](Engine& engine) {
      require_causal(engine.model(), engine.name(), "Serving completions");
      serve::ServiceOptions answers = common;
      const auto shown = [&](const std::string& path) {
        return common.show_paths || path.empty() ? path : serve::last_part(path);
      };
      ModelOptions told = run;
      told.adapter = shown(told.adapter);
      answers.command_options = command_options(told);
      if (several) answers.name = model.name;
      if (model.main) {
        if (!o.service.draft.empty()) answers.draft = std::make_shared<Engine>(o.service.draft, EngineOptions{.threads = 1});
        if (!o.lens.empty()) answers.lens = open_lens(o.lens, engine);
        answers.lens_file = shown(o.lens);
      } else {
        answers.aliases = {};
        answers.any_model = false;
        answers.chat_template = {};
        answers.adapters = {};
      }
      return answers;
    };
    return std::make_unique<serve::LoadedModel>(open, o.service.scheduling(keys), options_of);
  };
  return options;
}

// Null: none was asked for.
std::shared_ptr<telemetry::SpanExporter> span_exporter(const std::string& endpoint) {
  std::optional<telemetry::ExportOptions> options = telemetry::export_options(endpoint);
  if (!options) return nullptr;
  options->route_of = serve::route_of;
  options->say = [](const std::string& what) { log("{}", visible_message(what)); };
  log("spans of requests are sent to {}", visible_message(origin_of(options->url)));  // whose path or name may hold a secret
  return std::make_shared<telemetry::SpanExporter>(*std::move(options));
}

/// Reads again what may change while the server runs.
class Reload {
 public:
  Reload(const ServeArguments& o, std::vector<http::ApiKey> keys, serve::Quotas& quotas, serve::ServedModels& models)
      : o_(o), keys_(std::move(keys)), quotas_(quotas), models_(models), main_(models.list().front().path) {}

  void operator()(http::Server& server) {
    ++times_;
    if (!o_.flags.key_file.empty())
      part("the keys of " + o_.flags.key_file, [&] {
        std::vector<http::ApiKey> keys = o_.flags.keys_again(keys_, times_);
        server.set_keys(keys);
        quotas_.set(quotas_of(keys));
        keys_ = std::move(keys);
      });
    if (!o_.flags.server.tls_cert.empty())
      part("the certificate " + o_.flags.server.tls_cert, [&] { server.reload_certificate(); });
    if (has_list(o_)) part("the list of models", [&] { models_.set_models(list_of_models(o_, main_)); });
    if (o_.flags.key_file.empty() && o_.flags.server.tls_cert.empty() && !has_list(o_))
      log("SIGHUP reads --api-key-file, --tls-cert and --models again, and there are none");
  }

 private:
  // What does not parse leaves what it is about as it was, and the rest is read all the same.
  static void part(const std::string& what, const std::function<void()>& read) {
    try {
      read();
      log("read again: {}", visible_message(what));
    } catch (const std::exception& e) {
      log("not read again, as before: {}: {}", visible_message(what), visible_message(e.what()));
    }
  }

  const ServeArguments& o_;
  std::vector<http::ApiKey> keys_;
  serve::Quotas& quotas_;
  serve::ServedModels& models_;
  const std::string main_;
  int64_t times_ = 0;
};

void run_serve(const ServeArguments& o) {
  http::ServerOptions options = o.flags.options();
  options.say = [](const std::string& what) { log("{}", visible_message(what)); };
  options.open_paths = serve::open_paths();
  options.quick_paths = serve::quick_paths();
  options.error_body = serve::http_error_body;
  raise_file_limit(options.connections + options.connections_for_quick);
  keep_little_memory();
  start_mask_threads();
  ServiceManager manager;
  std::signal(SIGUSR1, SIG_IGN);  // of scripts for other servers, which open their log again
  const StopSignals signals(true, "stopping: running answers finish, new ones are refused; once more ends at once");
  const ReloadSignal reload_signal;
  const auto quotas = std::make_shared<serve::Quotas>(quotas_of(options.keys));
  const auto requests = std::make_shared<serve::RequestMetrics>(!options.keys.empty());
  const std::shared_ptr<telemetry::SpanExporter> spans = span_exporter(o.flags.otlp_endpoint);
  options.spans = spans != nullptr;
  options.answered = [requests, spans, quick = options.quick_paths](const http::AccessEntry& entry) {
    requests->answered(entry);
    if (spans != nullptr && std::ranges::find(quick, entry.path) == quick.end()) spans->add(entry);
  };
  serve::ServedModels models(models_to_serve(o, options, quotas, requests));
  Reload reload(o, options.keys, *quotas, models);
  // Who holds it keeps it loaded.
  std::shared_ptr<serve::Service> first = models.list().front().service;
  const bool several = has_list(o);
  http::Server server(std::move(options), [&](const std::shared_ptr<http::Exchange>& exchange) {
    if (several) return serve::answer(models, exchange);
    serve::answer(*first, exchange);
  });
  if (o.model.json) {
    print_json({{"url", server.url()},
                {"model", first->name()},
                {"positions", first->scheduler().positions()},
                {"parallel", first->scheduling().running}});
    finish_output();
  }
  log("listening on {}", server.url());
  say_what_runs(*first, o.service.context);
  if (several) log("{} models are loaded when requests name them", models.list().size());
  manager.ready(fmt::format("{} at {}", visible_message(first->name()), server.url()));
  if (several) first = nullptr;
  const auto tell = [&] {
    if (manager.is_due() && std::ranges::none_of(models.list(), is_stuck)) manager.alive();
  };
  while (!StopSignals::asked()) {
    tell();
    const ReloadSignal::Asked asked = reload_signal.take();
    if (asked == ReloadSignal::Asked::end) break;
    if (asked == ReloadSignal::Asked::reload) reload(server);
    std::this_thread::sleep_for(kLook);
  }
  manager.stopping();
  models.drain();
  server.stop_accepting();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(o.flags.drain_seconds);
  while (!server.quiet() && std::chrono::steady_clock::now() < deadline) {
    tell();
    std::this_thread::sleep_for(kLook);
  }
  const int64_t left = server.stats().running;
  if (left == 0) return;
  log("{} answers were not complete after {} seconds and are interrupted", left, o.flags.drain_seconds);
  models.interrupt();
  const auto end = std::chrono::steady_clock::now() + kLastWords;
  while (!server.quiet() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(kLook);
}

Action define_serve(CLI::App& app) {
  auto o = std::make_shared<ServeArguments>();
  add_service_flags(app, o->service);
  add_serve_flags(app, o->flags);
  add_lens_option(app, o->lens, "A tuned lens that /v1/lens looks through where a request asks for it");
  add_sae_option(app, o->saes);
  add_model_options(app, o->model);
  add_decoding_cache_types(app, o->model);
  add_load(app, o->model);
  return [o] { run_serve(*o); };
}

}  // namespace

const Command serve_command = {
    "serve",
    "Answer requests over HTTP",
    "By default only this machine has access, without a key. --host and --api-key give other machines access. SIGTERM and "
    "Ctrl-C let running answers finish. docs/serving.md describes keys, TLS, limits and several replicas.",
    "vitrine serve --port 8080",
    define_serve,
    "a signal to end"};

}  // namespace vitrine::cli
