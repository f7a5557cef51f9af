// vitrine serve: the model over HTTP.
#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/lens_option.h"
#include "cli/serve_flags.h"
#include "cli/service_flags.h"
#include "cli/service_manager.h"
#include "cli/session.h"
#include "cli/stop_signals.h"
#include "cli/study.h"
#include "model/abilities.h"
#include "serve/model_routes.h"
#include "serve/routes.h"
#include "serve/served_models.h"

namespace vitrine::cli {
namespace {

constexpr std::chrono::milliseconds kLook{50};

struct ServeArguments {
  ModelOptions model;
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

// The first model has all that the flags say; of the others, what does not belong to one model.
serve::ServedModelsOptions models_to_serve(const ServeArguments& o, const http::ServerOptions& http) {
  serve::ServiceOptions common = o.service.service();
  common.most_inside = std::clamp(http.request_threads - 1, 1, common.most_inside);
  common.answer_bytes = http.answer_bytes;
  common.show_paths = http.keys.empty() && !http.no_auth;  // only this machine has access
  std::vector<serve::KeyQuota> quotas;
  for (const http::ApiKey& key : http.keys)
    quotas.push_back({key.name, static_cast<double>(key.requests_per_minute), static_cast<double>(key.tokens_per_minute)});
  common.quotas = std::make_shared<serve::Quotas>(quotas);

  serve::ServedModelsOptions options;
  options.models = o.service.other_models();
  if (options.models.empty() || !o.model.model.empty()) {
    const std::string path = model_or_shipped(o.model.model);
    options.models.insert(options.models.begin(), {o.service.name.empty() ? serve::last_part(path) : o.service.name, path});
  } else if (!o.service.name.empty()) {
    options.models.front().name = o.service.name;
  }
  serve::ModelToServe& first = options.models.front();
  first.others = common.aliases;
  for (const serve::AdapterToLoad& adapter : common.adapters)
    first.others.push_back(adapter.name.empty() ? serve::last_part(adapter.path) : adapter.name);
  first.any_name = common.any_model;
  options.most = o.service.most_models;
  options.keep_seconds = o.service.keep_alive;
  options.most_waiting = o.service.queue;
  options.metrics = common.metrics;
  options.say = [](const std::string& what) { log("{}", visible_message(what)); };
  const bool several = options.models.size() > 1;
  if (!several) options.keep_seconds = -1;
  options.load = [o, common, several, keys = http.keys.size(), name = first.name](const serve::ModelToServe& model) {
    ModelOptions run = o.model;
    run.model = model.path;
    const bool is_first = model.name == name;
    if (!is_first) run.adapter.clear();
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
      if (is_first) {
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

void run_serve(const ServeArguments& o) {
  http::ServerOptions options = o.flags.options();
  options.open_paths = serve::open_paths();
  options.quick_paths = serve::quick_paths();
  options.error_body = serve::http_error_body;
  raise_file_limit(options.connections + options.connections_for_quick);
  keep_little_memory();
  ServiceManager manager;
  std::signal(SIGUSR1, SIG_IGN);  // of scripts for other servers, which open their log again
  const StopSignals signals(true, "stopping: running answers finish, new ones are refused; once more ends at once");
  serve::ServedModels models(models_to_serve(o, options));
  // Who holds it keeps it loaded.
  std::shared_ptr<serve::Service> first = models.list().front().service;
  const bool several = models.options().models.size() > 1;
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
  if (several) log("{} models are loaded when requests name them", models.options().models.size());
  manager.ready(fmt::format("{} at {}", visible_message(first->name()), server.url()));
  if (several) first = nullptr;
  const auto tell = [&] {
    if (manager.is_due() && std::ranges::none_of(models.list(), is_stuck)) manager.alive();
  };
  while (!StopSignals::asked()) {
    tell();
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
  if (left > 0) log("{} answers were not complete after {} seconds and are interrupted", left, o.flags.drain_seconds);
}

Action define_serve(CLI::App& app) {
  auto o = std::make_shared<ServeArguments>();
  add_service_flags(app, o->service);
  add_serve_flags(app, o->flags);
  add_lens_option(app, o->lens, "A tuned lens that /v1/lens looks through where a request asks for it");
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
