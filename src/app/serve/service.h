#pragma once
// What the routes share: the running model, its scheduler, its chat template, and the thread that forms answers.
#include <atomic>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "generate/chat.h"
#include "generate/speculate.h"
#include "grammar/grammar.h"
#include "http/exchange.h"
#include "runtime/engine.h"
#include "schedule/scheduler.h"
#include "serve/adapter_list.h"
#include "serve/api_error.h"
#include "serve/quotas.h"
#include "serve/request_metrics.h"
#include "serve/slot_texts.h"
#include "serve/task_thread.h"

namespace vitrine {
struct TunedLens;
}

namespace vitrine::serve {

/// How far a model of the hub has come.
struct PullStep {
  uint64_t arrived = 0, total = 0;  // bytes of this run
  std::string file;
};
/// Fetches a model of the hub by the name that `vitrine pull` takes. What `progress` throws ends it; what has come is kept.
using PullModel = std::function<void(const std::string& name, const std::function<void(const PullStep&)>& progress)>;

struct ServiceOptions {
  std::string name;                          // what the model is called in answers; empty: the last part of Engine::name()
  std::vector<std::string> aliases;          // other names that requests may use
  bool any_model = false;                    // requests may name any model, and are answered under that name
  bool strict_fields = false;                // unknown fields are refused instead of named in the answer
  std::optional<std::string> chat_template;  // in the place of the model's own
  std::string tool_parser = "auto";          // of serve/tool_calls.h: how calls of tools are written
  std::string reasoning_format = "auto";     // and reasoning
  // Variables of the template for requests whose chat_template_kwargs and other fields do not set them.
  OrderedJson template_variables = OrderedJson::object();
  std::string command_options;  // of command lines that run the model in the same way: "--compute f32"
  // Requests that look inside the model and are under way at once; another one is answered with 429. They wait on request
  // threads, of which streams need some, too.
  int most_inside = 4;
  // Most likely tokens that an answer holds beside its own; each takes about 300 bytes while JSON is made of it. Streams send
  // them at once.
  size_t most_likeliest = size_t{1} << 21;
  std::shared_ptr<Quotas> quotas = {};            // of several models together; null: none
  std::shared_ptr<RequestMetrics> requests = {};  // the same
  double mask_seconds = 10;                       // Grammar::mask_seconds
  double request_seconds = 0;                     // for the texts of a request, which may ask for less; 0: no limit
  size_t answer_bytes = size_t{64} << 20;         // of an answer's text, for endpoints whose answers grow with what is sent
  int64_t lookup = 0;                             // tokens drafted by prompt lookup in requests that do not say how many; 0: none
  std::shared_ptr<const Engine> draft = {};       // a model that drafts, in the place of prompt lookup; null: none
  int64_t draft_tokens = kDefaultDrafts;          // by it, in requests that do not say how many
  std::vector<AdapterToLoad> adapters = {};       // loaded before anything runs
  AdapterLimits adapter_limits = {};
  std::shared_ptr<const TunedLens> lens = {};  // that requests may look through, and its file
  std::string lens_file = {};
  // Requests of all keys and addresses share cached prefixes; else only those of the same key or address do.
  bool share_prefixes = false;
  std::string slot_folder = {};                    // where POST /slots/{id} saves (serve/slots.h); empty: nowhere
  PullModel pull = {};                             // for POST /api/pull; null: it is refused
  bool slots = true, metrics = true, page = true;  // whether GET /slots, GET /metrics and the web pages answer
  bool show_paths = false;   // answers have the paths of model and adapters, so that command lines run; else names
  double stuck_seconds = 0;  // a step or a job that takes longer is stuck; 0: none is
};

class Service {
 public:
  /// Starts a scheduler, to which the engine belongs until the service ends. Ending cancels what runs; its answers are still
  /// told, so exchanges may outlive neither the server nor the service. Errors: as Scheduler and AdapterList; InputError for
  /// options.chat_template.
  Service(Engine& engine, const SchedulerOptions& scheduling, ServiceOptions options = {});

  const Engine& engine() const { return engine_; }
  Scheduler& scheduler() { return *scheduler_; }
  /// For who may still want to cancel a stream while the service ends.
  const std::shared_ptr<Scheduler>& shared_scheduler() const { return scheduler_; }
  const SchedulerOptions& scheduling() const { return scheduling_; }
  const ServiceOptions& options() const { return options_; }

  const std::string& name() const { return name_; }
  /// The model's path as answers show it (ServiceOptions::show_paths).
  const std::string& shown_path() const { return options_.show_paths ? engine_.name() : name_; }
  /// The name an answer bears: the model's, or that of an adapter, which read_adapters() then takes. Errors: ApiError 404 for a
  /// model that is not here.
  std::string model_named(const std::optional<std::string>& wanted) const;
  AdapterList& adapters() { return *adapters_; }
  const AdapterList& adapters() const { return *adapters_; }
  std::time_t started() const { return started_; }
  /// Work::prefix_scope of a request of `owner` with that cache_salt; empty: it has none.
  std::string prefix_scope(const std::string& owner, const std::string& salt) const;
  /// Of program and weights, for system_fingerprint.
  const std::string& fingerprint() const { return fingerprint_; }

  /// The template that was given, the model's own, or the plain one. Null: the model has no tokenizer.
  const ChatFormat* chat() const { return chat_ ? &*chat_ : nullptr; }
  /// Neither has the model a template, nor was one given: the contents of messages stand with a blank line between them, and
  /// another one in front of the answer.
  bool chat_is_plain() const { return chat_is_plain_; }
  /// The template's text where it is not the plain one, else "".
  std::string chat_template() const { return chat_ && !chat_is_plain_ ? chat_->source() : ""; }
  bool chat_reads_tools() const { return chat_reads_tools_; }
  /// Made for this model's vocabulary at the first call. Errors: as GrammarCompiler.
  const GrammarCompiler& grammars() const;
  /// The model's step or a job has taken longer than options().stuck_seconds.
  bool is_stuck(const SchedulerStats& stats) const {
    return options_.stuck_seconds > 0 && stats.busy_seconds_now > options_.stuck_seconds;
  }
  /// Ends of text.
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }

  /// Runs things in order on the thread that forms answers, apart from the scheduler's.
  TaskThread& answers() { return answers_; }
  /// Requests that look inside the model and are under way (serve/inside.h).
  std::atomic<int>& inside() { return inside_; }
  Quotas& quotas() { return *options_.quotas; }
  /// Tokens of a prompt and of a text of this request, for its line in the log and for its key.
  void count_tokens(http::Exchange& exchange, int64_t prompt, int64_t made);
  /// Held by who fetches a model.
  std::mutex& pulling() { return pulling_; }
  SlotTexts& slot_texts() { return slot_texts_; }
  /// Tokens that are drafted for each step where a request does not say how many; 0: none.
  int64_t usual_drafts() const { return draft_ != nullptr ? options_.draft_tokens : options_.lookup; }
  /// Drafts up to so many tokens for one text; 0: null.
  std::shared_ptr<Drafter> drafter(int64_t drafts) const;
  Numerics numerics() const { return engine_.context().numerics; }
  /// Of the whole model (model/fingerprint.h); reads it at the first call.
  uint64_t model_fingerprint();
  /// Held by who takes a step of training, which needs memory for a copy of the weights.
  std::mutex& training() { return training_; }

 private:
  Engine& engine_;
  SchedulerOptions scheduling_;
  ServiceOptions options_;
  std::string name_, fingerprint_;
  std::time_t started_;
  bool chat_is_plain_;
  std::optional<ChatFormat> chat_;
  bool chat_reads_tools_ = false;
  std::unique_ptr<AdapterList> adapters_;
  mutable std::once_flag grammars_once_;
  mutable std::unique_ptr<const GrammarCompiler> grammars_;
  std::vector<int32_t> end_tokens_;
  std::atomic<int> inside_{0};
  std::shared_ptr<const ModelDrafter> draft_;  // for no text; each has another one
  SlotTexts slot_texts_;
  std::once_flag fingerprint_once_;
  uint64_t model_fingerprint_ = 0;
  std::mutex training_, pulling_;
  TaskThread answers_;  // ends behind the scheduler, whose last words it tells
  std::shared_ptr<Scheduler> scheduler_;
};

/// What answers show of a path: "tales9m" of "models/tales9m/".
std::string last_part(const std::string& path);
/// "chatcmpl-" and 24 random letters and digits.
std::string random_id(const std::string& prefix);

}  // namespace vitrine::serve
