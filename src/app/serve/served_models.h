#pragma once
// The models of a server that has several: loaded when a request first names one, unloaded when others need the room or nobody
// has used one for a while, never while a request uses it.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/memory.h"
#include "http/workers.h"
#include "runtime/engine.h"
#include "serve/service.h"

namespace vitrine::serve {

/// An engine with its service.
struct LoadedModel {
  /// open() gives an Engine, options(engine) ServiceOptions.
  template <class Open, class Options>
  LoadedModel(const Open& open, const SchedulerOptions& scheduling, const Options& options)
      : engine(open()), service(engine, scheduling, options(engine)) {}
  Engine engine;
  Service service;
};

struct ModelToServe {
  std::string name, path;                // the path: as --model has it
  std::vector<std::string> others = {};  // further names: aliases, and adapters that are loaded with it
  bool any_name = false;                 // takes requests that name any model
  bool main = false;                     // what the command's flags say of one model applies to it
};

/// The models in a folder, by name: subfolders with a config.json, and GGUF files (of one in parts, the first). Errors: FileError
/// for what is no folder or holds no model.
std::vector<ModelToServe> models_in(const std::string& folder);

struct ServedModelsOptions {
  std::vector<ModelToServe> models;  // the first is for requests that name none
  int64_t most = 0;                  // loaded at once; 0: as many as memory holds
  double keep_seconds = -1;          // a model stays loaded so long after its last request; negative: until others need the room
  int64_t most_waiting = 512;        // requests that wait for a model
  bool metrics = true;               // GET /metrics answers
  std::shared_ptr<RequestMetrics> requests = {};  // of all models, for GET /metrics; null: none
  std::function<std::unique_ptr<LoadedModel>(const ModelToServe&)> load;
  std::function<void(const std::string&)> say = [](const std::string&) {
  };  // what was loaded, unloaded or failed, for the operator
  std::function<size_t()> free_memory = available_memory;  // bytes; 0: not known
};

/// One of them, as lists show it.
struct ServedModel {
  std::string name, path;
  size_t bytes = 0;                    // of its files; 0: not known
  std::shared_ptr<Service> service;    // null: it is not loaded. Keeps the model loaded
  std::optional<double> seconds_left;  // until it is unloaded if nobody uses it; nothing: it stays
  uint64_t loads = 0;                  // since the start
};

/// Thread-safe. A thread loads and unloads, one model at a time; streams of other models go on meanwhile.
class ServedModels {
 public:
  /// Loads the first model. Errors: what options.load throws for it; UsageError for two models of one name.
  explicit ServedModels(ServedModelsOptions options);
  /// Requests that still wait fail; models end as Service does.
  ~ServedModels();
  ServedModels(const ServedModels&) = delete;
  ServedModels& operator=(const ServedModels&) = delete;

  /// Serves these from now on, in their order. Those of before that are not among them get no more requests, and are unloaded
  /// once nobody uses them; so does a model whose files are others than before, and its name stands for the new ones. Errors:
  /// UsageError as the constructor; then nothing changes.
  void set_models(const std::vector<ModelToServe>& models);

  /// The model that has this name, for use(); nothing: none has. An empty name is the first model's.
  std::optional<size_t> find(const std::string& name) const;

  using Run = std::function<void(const std::shared_ptr<Service>&)>;
  using Fail = std::function<void(std::exception_ptr)>;
  /// Calls `run` with the model: now if it is loaded, else later on a thread that may take its time. The model stays loaded while
  /// somebody holds what `run` is given. If it cannot be loaded, `fail` is called instead, and the next request tries again.
  /// keep_seconds: in the place of the option, from this request on. Errors: QueueFull, Draining.
  void use(size_t model, std::optional<double> keep_seconds, Run run, Fail fail);

  const ServedModelsOptions& options() const { return options_; }
  std::vector<ServedModel> list();
  /// Nothing new is loaded, and models that are take no new work.
  void drain();
  /// Cancels what still runs and waits: its clients hear of it. Returns at once. For a server that drains.
  void interrupt();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    Clock::time_point since;
    Run run;
    Fail fail;
  };
  struct Entry {
    ModelToServe model;
    size_t bytes = 0;
    std::unique_ptr<LoadedModel> loaded;
    int64_t uses = 0;      // requests and lists that hold it
    bool leaving = false;  // is unloaded as soon as nobody uses it; new requests wait until it is back
    Clock::time_point used;
    double keep_seconds = 0;
    std::deque<Waiting> waiting;
    uint64_t loads = 0;
    size_t stamp = 0;   // of its files
    bool gone = false;  // is served no more
  };

  void work();
  std::shared_ptr<Service> hold(Entry& entry, bool is_request);
  std::vector<std::shared_ptr<Service>> loaded();
  Entry* longest_waiting();
  Entry* least_recently_used(bool idle);
  bool has_room_for(const Entry& entry);
  void load(Entry& entry, std::unique_lock<std::mutex>& lock);
  void unload(Entry& entry, std::unique_lock<std::mutex>& lock);
  void fail_waiting(Entry& entry, const std::exception_ptr& why);

  const ServedModelsOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;  // none leaves its place
  std::vector<size_t> order_;  // of those that are served
  bool draining_ = false, ended_ = false;
  std::unique_ptr<http::Workers> workers_;  // of requests that had to wait
  std::thread thread_;
};

}  // namespace vitrine::serve
