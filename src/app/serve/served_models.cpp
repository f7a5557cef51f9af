#include "serve/served_models.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "base/error.h"
#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

namespace fs = std::filesystem;

constexpr int kWorkers = 4;

// "x-00002-of-00003.gguf" is a part of the model that "x-00001-of-00003.gguf" begins.
bool is_later_part(const std::string& file) {
  const size_t of = file.rfind("-of-");
  if (of == std::string::npos || of < 6 || file[of - 6] != '-') return false;
  const std::string number = file.substr(of - 5, 5);
  return number.find_first_not_of("0123456789") == std::string::npos && number != "00001";
}

bool is_gguf(const fs::path& path) { return path.extension() == ".gguf"; }

/// Of the weights' files: nothing where the path names a model in a cache.
struct WeightFiles {
  size_t bytes = 0;
  size_t stamp = 0;  // is another one if they are others
  explicit WeightFiles(const fs::path& path) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) add(path);
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (at->path().extension() == ".safetensors" || is_gguf(at->path())) add(at->path());
  }

 private:
  void add(const fs::path& file) {
    struct stat found = {};
    if (::stat(file.c_str(), &found) != 0) return;
    bytes += static_cast<size_t>(found.st_size);
    const auto of = [](auto n) { return std::to_string(n) + " "; };
    stamp += std::hash<std::string>()(of(found.st_dev) + of(found.st_ino) + of(found.st_size) + of(found.st_mtim.tv_sec) +
                                      of(found.st_mtim.tv_nsec));
  }
};

Draining draining() { return Draining("this server is about to end and takes no new work"); }

std::string why(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

std::vector<ModelToServe> models_in(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw FileError(folder, "is no folder; expected one that holds models");
  std::vector<ModelToServe> models;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    const std::string name = path.filename().string();
    std::error_code unknown;
    if (fs::is_regular_file(path / "config.json", unknown) ||
        (is_gguf(path) && fs::is_regular_file(path, unknown) && !is_later_part(name)))
      models.push_back({name, path.string()});
  }
  if (models.empty()) throw FileError(folder, "holds no model; expected subfolders with a config.json, or .gguf files");
  std::ranges::sort(models, {}, &ModelToServe::name);
  return models;
}

ServedModels::ServedModels(ServedModelsOptions options) : options_(std::move(options)) {
  set_models(options_.models);
  entries_.front().loaded = options_.load(entries_.front().model);
  entries_.front().used = Clock::now();
  entries_.front().loads = 1;
  workers_ = std::make_unique<http::Workers>(kWorkers);
  thread_ = std::thread([this] { work(); });
}

ServedModels::~ServedModels() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = draining_ = true;
  }
  changed_.notify_all();
  thread_.join();
  for (Entry& entry : entries_) fail_waiting(entry, std::make_exception_ptr(draining()));
  workers_.reset();
  // What still runs is cancelled and lets go of its model on the way: outside the lock, and before the entries go.
  for (Entry& entry : entries_) entry.loaded.reset();
}

void ServedModels::set_models(const std::vector<ModelToServe>& models) {
  if (models.empty()) throw UsageError("there is no model to serve");
  std::set<std::string> names;
  std::vector<WeightFiles> files;
  for (const ModelToServe& model : models) {
    if (!names.insert(model.name).second)
      throw UsageError("two models are called \"" + model.name + "\"; give one of them another name: --models NAME=MODEL");
    files.emplace_back(model.path);
  }

  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.gone = true;
  order_.clear();
  for (size_t i = 0; i < models.size(); ++i) {
    const auto same = [&](const Entry& e) {
      return e.model.name == models[i].name && e.model.path == models[i].path && e.stamp == files[i].stamp;
    };
    auto entry = std::ranges::find_if(entries_, same);
    if (entry == entries_.end()) {
      entries_.emplace_back();
      entry = std::prev(entries_.end());
      entry->bytes = files[i].bytes;
      entry->stamp = files[i].stamp;
      entry->keep_seconds = options_.keep_seconds;
    }
    entry->model = models[i];
    entry->gone = false;
    order_.push_back(static_cast<size_t>(entry - entries_.begin()));
  }
  changed_.notify_all();
}

std::optional<size_t> ServedModels::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  if (name.empty()) return order_.front();
  for (const size_t i : order_) {
    const ModelToServe& model = entries_[i].model;
    if (model.name == name || model.name == name + ".gguf" || std::ranges::find(model.others, name) != model.others.end())
      return i;
  }
  const Entry& first = entries_[order_.front()];
  if (first.loaded && first.loaded->service.adapters().named(name)) return order_.front();  // loaded by a request
  for (const size_t i : order_)
    if (entries_[i].model.any_name) return i;
  return {};
}

// The service belongs to the entry: who holds it only counts.
std::shared_ptr<Service> ServedModels::hold(Entry& entry, bool is_request) {
  ++entry.uses;
  if (is_request) entry.used = Clock::now();
  return {&entry.loaded->service, [this, &entry, is_request](Service*) {
            const std::lock_guard lock(mutex_);
            --entry.uses;
            if (is_request) entry.used = Clock::now();
            changed_.notify_all();
          }};
}

void ServedModels::use(size_t model, std::optional<double> keep_seconds, Run run, Fail fail) {
  std::shared_ptr<Service> service;
  {
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[model];
    if (!entry.loaded || entry.leaving) {
      if (draining_) throw draining();
      if (std::ssize(entry.waiting) >= options_.most_waiting)
        throw QueueFull(std::to_string(entry.waiting.size()) + " requests wait for the model \"" + entry.model.name + "\"", 1);
      entry.keep_seconds = keep_seconds.value_or(options_.keep_seconds);
      entry.waiting.push_back({Clock::now(), std::move(run), std::move(fail)});
      changed_.notify_all();
      return;
    }
    entry.keep_seconds = keep_seconds.value_or(options_.keep_seconds);
    service = hold(entry, true);
  }
  run(service);
}

std::vector<ServedModel> ServedModels::list() {
  std::vector<ServedModel> all;
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = Clock::now();
  for (const size_t i : order_) {
    Entry& entry = entries_[i];
    ServedModel model{entry.model.name, entry.model.path, entry.bytes, nullptr, {}, entry.loads};
    if (entry.loaded && entry.keep_seconds >= 0) {
      const double idle = entry.uses > 0 ? 0 : std::chrono::duration<double>(now - entry.used).count();
      model.seconds_left = std::max(0.0, entry.keep_seconds - idle);
    }
    if (entry.loaded) model.service = hold(entry, false);
    all.push_back(std::move(model));
  }
  return all;
}

void ServedModels::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
    for (Entry& entry : entries_) fail_waiting(entry, std::make_exception_ptr(draining()));
  }
  // Without the lock: who gives a model back has locks of the scheduler.
  for (const std::shared_ptr<Service>& service : loaded()) service->scheduler().drain();
}

void ServedModels::interrupt() {
  for (const std::shared_ptr<Service>& service : loaded()) service->scheduler().cancel_all();
}

// Those that are served no more and still in use among them.
std::vector<std::shared_ptr<Service>> ServedModels::loaded() {
  std::vector<std::shared_ptr<Service>> services;
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_)
    if (entry.loaded) services.push_back(hold(entry, false));
  return services;
}

ServedModels::Entry* ServedModels::longest_waiting() {
  Entry* longest = nullptr;
  for (Entry& entry : entries_)
    if (!entry.loaded && !entry.waiting.empty() &&
        (longest == nullptr || entry.waiting.front().since < longest->waiting.front().since))
      longest = &entry;
  return longest;
}

ServedModels::Entry* ServedModels::least_recently_used(bool idle) {
  Entry* least = nullptr;
  for (Entry& entry : entries_)
    if (entry.loaded && (!idle || entry.uses == 0) && (least == nullptr || entry.used < least->used)) least = &entry;
  return least;
}

bool ServedModels::has_room_for(const Entry& entry) {
  const auto loaded = std::ranges::count_if(entries_, [](const Entry& e) { return e.loaded != nullptr; });
  if (loaded == 0) return true;
  if (options_.most > 0 && loaded >= options_.most) return false;
  const size_t free = options_.free_memory();
  return free == 0 || entry.bytes <= free;
}

void ServedModels::work() {
  std::unique_lock lock(mutex_);
  while (!ended_) {
    if (Entry* wanted = longest_waiting(); wanted != nullptr && !draining_) {
      if (has_room_for(*wanted)) {
        load(*wanted, lock);
        continue;
      }
      if (Entry* idle = least_recently_used(true); idle != nullptr) {
        unload(*idle, lock);
        continue;
      }
      // All are in use. One takes no new requests until it has made room, so that its clients cannot keep it for ever.
      if (std::ranges::none_of(entries_, &Entry::leaving)) least_recently_used(false)->leaving = true;
    }
    std::optional<Clock::time_point> next;
    Entry* over = nullptr;
    for (Entry& entry : entries_) {
      if (!entry.loaded || entry.uses > 0) continue;
      if (entry.leaving || entry.gone) over = &entry;
      if (entry.keep_seconds < 0) continue;
      const Clock::time_point end =
          entry.used + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(entry.keep_seconds));
      if (end <= Clock::now()) over = &entry;
      if (!next || end < *next) next = end;
    }
    if (over != nullptr)
      unload(*over, lock);
    else if (next)
      changed_.wait_until(lock, *next);
    else
      changed_.wait(lock);
  }
}

void ServedModels::load(Entry& entry, std::unique_lock<std::mutex>& lock) {
  const ModelToServe model = entry.model;
  lock.unlock();
  std::unique_ptr<LoadedModel> loaded;
  std::exception_ptr error;
  const Clock::time_point begin = Clock::now();
  try {
    loaded = options_.load(model);
  } catch (...) {
    error = std::current_exception();
  }
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin).count();
  options_.say(error ? "the model " + model.name + " cannot be loaded: " + why(error)
                     : "loaded the model " + model.name + " in " + std::to_string(ms) + " ms");
  lock.lock();
  if (error)
    return fail_waiting(entry, std::make_exception_ptr(ApiError(
                                   500, "model_not_loaded",
                                   "the model \"" + entry.model.name +
                                       "\" cannot be loaded; the server's messages say why, and the next request tries again",
                                   "model")));
  entry.loaded = std::move(loaded);
  entry.used = Clock::now();
  ++entry.loads;
  if (draining_) entry.loaded->service.scheduler().drain();
  for (Waiting& waiting : std::exchange(entry.waiting, {}))
    workers_->run([run = std::move(waiting.run), service = hold(entry, true)] { run(service); });
}

void ServedModels::unload(Entry& entry, std::unique_lock<std::mutex>& lock) {
  std::unique_ptr<LoadedModel> gone = std::move(entry.loaded);
  entry.leaving = false;
  const std::string name = entry.model.name;
  lock.unlock();
  gone.reset();
  give_back_freed_memory();
  options_.say("unloaded the model " + name);
  lock.lock();
}

void ServedModels::fail_waiting(Entry& entry, const std::exception_ptr& why) {
  for (Waiting& waiting : std::exchange(entry.waiting, {})) workers_->run([fail = std::move(waiting.fail), why] { fail(why); });
}

}  // namespace vitrine::serve
