#include "train/checkpoint.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/atomic_file.h"
#include "io/config_reader.h"
#include "io/file_checks.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/fingerprint.h"
#include "train/average.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
constexpr const char* kStep = "step-";
constexpr const char* kUnfinished = ".unfinished-";
constexpr const char* kState = "training/optimizer.safetensors";
constexpr const char* kStateBefore = "training/optimiser.safetensors";  // the spelling before, as is the key "optimiser"
constexpr const char* kAverage = "/ema";
constexpr const char* kMetrics = "metrics.jsonl";
constexpr const char* kProgress = "training/progress.json";
constexpr int kFormat = 1;

std::string reason() { return std::strerror(errno); }

// Makes what was renamed or made in a directory last through a crash. Some file systems refuse; then nothing can be done.
void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  static_cast<void>(::fsync(fd));
  ::close(fd);
}

// -1: no checkpoint's name, which has no zero in front.
int64_t step_of(const std::string& name) {
  int64_t step = -1;
  const std::string_view text = name;
  if (!text.starts_with(kStep)) return -1;
  const std::string_view digits = text.substr(std::strlen(kStep));
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  return error == std::errc{} && end == digits.data() + digits.size() && std::to_string(step) == digits ? step : -1;
}

Json identity_json(const TrainIdentity& i) {
  Json json = {
      {"seed", i.seed},           {"sequence_length", i.sequence_length}, {"batch", i.batch},        {"accumulate", i.accumulate},
      {"documents", i.documents}, {"data_tokens", i.data_tokens},         {"optimizer", i.optimizer}};
  if (!i.lora.empty()) json["lora"] = i.lora;
  if (!i.preference.empty()) json[i.preference] = i.preference_by;
  if (!i.grpo.empty()) json["grpo"] = i.grpo;
  if (!i.masked.empty()) json["masked"] = i.masked;
  if (!i.data_weights.empty()) json["data_weights"] = i.data_weights;
  return json;
}

// The key of a model's configuration that `now` has otherwise than the run had it, and both values; empty: they agree.
std::string changed_key(const Json& had, const Json& now) {
  Json keys = had;
  keys.update(now);
  for (const auto& [key, value] : keys.items()) {
    const bool was = had.contains(key), is = now.contains(key);
    if (was && is && had.at(key) == now.at(key)) continue;
    return "model.config." + key + (was ? " " + had.at(key).dump() : " as the family has it") + ", and the configuration now " +
           (is ? "says " + now.at(key).dump() : "leaves it out");
  }
  return "";
}

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// `had`: what the checkpoint says. Errors: InputError naming `path` and what has changed.
void check_identity(const TrainIdentity& identity, const Json& had, const std::string& path, const std::string& checkpoint) {
  const std::string elsewhere =
      identity.lora.empty() ? "from " + checkpoint + " with model: and another out:" : "with another out:";
  const auto refuse_data = [&](const std::string& learned, const std::string& now) {
    throw InputError(path + ": the run has learned from data " + learned + ", and " + identity.data_path + " has " + now +
                     ", so the run cannot be resumed. Set data.train back, or begin a new run " + elsewhere);
  };
  const Json wanted = identity_json(identity);
  for (const auto& [key, value] : wanted.items()) {
    if (had.contains(key) && had.at(key) == value) continue;
    if (had.contains(key) && key == "data_tokens") refuse_data("of " + had.at(key).dump() + " tokens", value.dump());
    throw InputError(path + ": the run has " + key + " " + (had.contains(key) ? had.at(key).dump() : "unknown") +
                     ", and the configuration now says " + value.dump() +
                     ", so the run cannot be resumed. Set it back, or begin a new run " + elsewhere);
  }
  const std::string checksum = hexadecimal(identity.data_checksum);
  if (had.contains("data_checksum") && had.at("data_checksum") != checksum)
    refuse_data("with the checksum " + had.at("data_checksum").dump(), '"' + checksum + '"');
  if (had.contains("model_path") && identity.model_config.is_object())
    throw InputError(
        path + ": the run began from the model " + text_of(had.at("model_path")) +
        ", and the configuration now has model.config for fresh weights; a resumed run uses the model that it began " +
        "with. Set model back, or begin a new run with another out:");
  if (!had.contains("model_config") || !had.at("model_config").is_object() || !identity.model_config.is_object()) return;
  if (const std::string changed = changed_key(had.at("model_config"), identity.model_config); !changed.empty())
    throw InputError(path + ": the run has " + changed +
                     "; a resumed run uses the model that it began with. Set it back, or begin a new run with another out:");
}

std::string checksum_of(const std::string& path) {
  const MappedFile file = MappedFile::open(path);
  file.will_need();
  return hexadecimal(add_to_fingerprint(0, file.bytes()));
}

// The checksum of every file of a checkpoint, by its name in there.
Json checksums_in(const std::string& folder) {
  Json sums = Json::object();
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      sums[entry.path().lexically_relative(folder).generic_string()] = checksum_of(entry.path().string());
  return sums;
}

// Of progress.json itself: what it says beside this.
std::string checksum_of_progress(Json state) {
  state.at("files").erase(kProgress);
  const std::string text = state.dump();
  return hexadecimal(add_to_fingerprint(0, std::as_bytes(std::span(text))));
}

// A step in a line of metrics.jsonl; -1: there is none, as in the last line, half-written.
int64_t whole_in(const std::string& line, const char* key) {
  const Json entry = Json::parse(line, nullptr, false);
  const bool there = entry.is_object() && entry.contains(key) && entry.at(key).is_number_integer();
  return there ? entry.at(key).get<int64_t>() : -1;
}

// A Hugging Face directory, or the folder of an adapter as PEFT has it. `weights(p)` gives the values of a parameter.
template <class F>
void write_model(Learner& learner, const Companions& companions, const std::string& folder, F&& weights) {
  std::vector<TensorToWrite> tensors;  // of an adapter only looked at: write_adapter() reads the same values
  for (const Parameter& p : learner.parameters().list()) {
    const float* w = weights(p);
    if (first_not_finite(Tensor(const_cast<float*>(w), DType::f32, {1, static_cast<int64_t>(p.count)})) >= 0)
      throw RunError("a weight of " + p.name + " is NaN or infinite, so no checkpoint was written; those before are intact");
    tensors.push_back({p.name, DType::f32, p.shape, w});
  }
  const OpenedModel& opened = learner.engine().opened();
  if (opened.adapter != nullptr) {
    write_adapter(*opened.adapter, folder, opened.files.name);
    return write_companions(companions, folder);
  }
  write_file_atomically(folder + "/config.json", exported_config(opened.files, DType::f32).dump(2) + "\n");
  write_companions(companions, folder);
  write_safetensors(folder + "/model.safetensors", tensors, {{"format", "pt"}});
  ModelFiles written = resolve_model(folder);
  written.rewards = opened.files.rewards;
  check_written(std::move(written), folder);
}

// Hands the values of every parameter over, from the tensor prefix(parameter) + its name; nothing: it is left out.
template <class Prefix, class F>
void read_numbers(const Learner& learner, const Checkpoint& stored, Prefix&& prefix, F&& give) {
  for (const Parameter& p : learner.parameters().list()) {
    const std::optional<std::string> before = prefix(p);
    if (!before) continue;
    const std::string name = *before + p.name;
    const StoredTensor* t = stored.find(name);
    if (t == nullptr || t->dtype != DType::f32 || t->shape != p.shape)
      throw FileError(stored.path(), "lacks the f32 tensor \"" + name + "\" of shape " + shape_text(p.shape) +
                                         "; it belongs to another model or optimizer");
    give(p, reinterpret_cast<const float*>(t->data));
  }
}

void write_state(Learner& learner, const std::string& path) {
  const std::vector<Parameter>& parameters = learner.parameters().list();
  const Optimizer& optimizer = learner.optimizer();
  std::vector<TensorPlan> tensors;
  for (size_t which = 0; which < optimizer.states(); ++which)
    for (const Parameter& p : parameters)
      if (const std::string what = optimizer.state_of(which, p); !what.empty())
        tensors.push_back({what + "/" + p.name, DType::f32, p.shape});
  for (const Optimizer::Aside& aside : optimizer.asides())
    tensors.push_back({aside.name + "/" + parameters[aside.parameter].name, DType::f32, aside.shape});
  SafetensorsWriter writer(path, std::move(tensors));
  size_t next = 0;
  learner.each_state(
      [&](size_t which, const float* numbers) {
        for (const Parameter& p : parameters)
          if (!optimizer.state_of(which, p).empty()) writer.write(next++, std::as_bytes(std::span(numbers + p.begin, p.count)));
      },
      [&](const Optimizer::Aside& aside, const float* numbers) {
        writer.write(next++, std::as_bytes(std::span(numbers, aside.size())));
      });
  writer.finish();
}

}  // namespace

RunFolder::RunFolder(const std::string& path, bool holder) : path_(path) {
  if (!holder) return;
  std::error_code error;
  made_ = fs::create_directories(path, error);
  if (error) throw InputError("out: " + path + " cannot be made: " + error.message() + ". Name a folder that you may write to");
  lock_.emplace(path, "out: another process trains in " + path + ". Wait for it, or name another folder");
  for (const std::string& name : names_in(path))
    if (name.starts_with(kUnfinished) || (name != kMetrics && is_or_becomes(name, kMetrics)) ||
        (name != kConfig && is_or_becomes(name, kConfig)))
      fs::remove_all(path + "/" + name, error);
}

RunFolder::~RunFolder() {
  if (metrics_ >= 0) ::close(metrics_);
  if (made_) ::rmdir(path_.c_str());  // which leaves a folder that is not empty
}

std::vector<int64_t> RunFolder::steps() const {
  std::vector<int64_t> found;
  for (const std::string& name : names_in(path_))
    if (const int64_t step = step_of(name); step >= 0 && is_folder(path_ + "/" + name)) found.push_back(step);
  std::sort(found.begin(), found.end());
  return found;
}

std::string RunFolder::step_path(int64_t step) const { return path_ + "/" + kStep + std::to_string(step); }

bool RunFolder::used() const { return !steps().empty() || present(path_ + "/" + kMetrics); }

// Returns why it cannot be.
std::string RunFolder::point(const std::string& link, int64_t step) const {
  const std::string temporary = path_ + "/" + kUnfinished + link, final_name = path_ + "/" + link;
  ::unlink(temporary.c_str());
  if (::symlink((kStep + std::to_string(step)).c_str(), temporary.c_str()) == 0 &&
      ::rename(temporary.c_str(), final_name.c_str()) == 0)
    return "";
  const std::string why = final_name + " cannot be pointed at " + kStep + std::to_string(step) + ": " + reason();
  ::unlink(temporary.c_str());
  return why;
}

void RunFolder::remove_step(int64_t step) const {
  // Renamed first, so that a run killed here leaves no half of a checkpoint under the name of a whole one.
  const std::string doomed = path_ + "/" + kUnfinished + "removed-" + std::to_string(step);
  std::error_code error;
  fs::remove_all(doomed, error);
  if (::rename(step_path(step).c_str(), doomed.c_str()) == 0) fs::remove_all(doomed, error);
}

void RunFolder::save(Learner& learner, const Companions& companions, const TrainProgress& progress,
                     const TrainIdentity& identity) {
  const std::string temporary = path_ + "/" + kUnfinished + kStep + std::to_string(progress.step);
  std::error_code error;
  try {
    keep_config();
    fs::remove_all(temporary, error);
    fs::create_directories(temporary + "/training", error);
    if (error) throw RunError(temporary + ": cannot be made: " + error.message());
    write_model(learner, companions, temporary, [&](const Parameter& p) { return learner.parameters().weights(p); });
    if (const Ema* ema = learner.ema()) {
      fs::create_directories(temporary + kAverage, error);
      if (error) throw RunError(temporary + kAverage + ": cannot be made: " + error.message());
      write_model(learner, companions, temporary + kAverage, [&](const Parameter& p) { return ema->weights(p); });
      sync_directory(temporary + kAverage);
    }
    write_state(learner, temporary + "/" + kState);
    Json run = identity_json(identity);
    run["data_checksum"] = hexadecimal(identity.data_checksum);
    if (!identity.model_path.empty()) run["model_path"] = identity.model_path;
    if (identity.model_config.is_object()) run["model_config"] = identity.model_config;
    Json state = {{"format", kFormat},
                  {"step", progress.step},
                  {"tokens", progress.tokens},
                  {"epoch", progress.position.epoch},
                  {"next", progress.position.next},
                  {"best_step", progress.best_step},
                  {"best_loss", progress.best_loss},
                  {"best_on", progress.best_on},
                  {"run", run},
                  {"files", checksums_in(temporary)}};
    if (!progress.validation_due.empty()) state["validation_due"] = progress.validation_due;
    state["files"][kProgress] = checksum_of_progress(state);
    write_file_atomically(temporary + "/" + kProgress, state.dump(2) + "\n");
    sync_directory(temporary + "/training");
    sync_directory(temporary);
    if (fs::exists(step_path(progress.step))) remove_step(progress.step);
    if (::rename(temporary.c_str(), step_path(progress.step).c_str()) != 0)
      throw RunError(step_path(progress.step) + ": cannot be put in place: " + reason());
    sync_directory(path_);
  } catch (const std::exception& failure) {  // from the disk, whoever read or wrote there
    fs::remove_all(temporary, error);
    const std::vector<int64_t> there = steps();
    throw RunError(std::string(failure.what()) + "\n  The checkpoint of step " + std::to_string(progress.step) +
                   " was not written; " +
                   (there.empty() ? "there was none before" : "that of step " + std::to_string(there.back()) + " is intact") +
                   ". Free some space and continue with --resume");
  }
}

std::string RunFolder::settle(int64_t step, int64_t best_step, int64_t keep) const {
  std::string why = point("last", step);
  const std::vector<int64_t> all = steps();
  if (best_step == 0) {
    std::error_code error;
    best_step = step_of(fs::read_symlink(path_ + "/best", error).string());
  } else if (std::binary_search(all.begin(), all.end(), best_step)) {
    if (const std::string of_best = point("best", best_step); why.empty()) why = of_best;
  }
  for (size_t i = 0; i + static_cast<size_t>(keep) < all.size(); ++i)
    if (all[i] != best_step && all[i] != step) remove_step(all[i]);
  sync_directory(path_);
  return why;
}

std::vector<int64_t> RunFolder::average(size_t most) const {
  std::vector<int64_t> newest = steps();
  newest.erase(newest.begin(), newest.end() - static_cast<std::ptrdiff_t>(std::min(most, newest.size())));
  std::vector<std::string> folders;
  for (const int64_t step : newest) {
    verify(step);
    folders.push_back(step_path(step));
  }
  const std::string temporary = path_ + "/" + kUnfinished + "average";
  std::error_code error;
  try {
    fs::remove_all(temporary, error);
    fs::create_directories(temporary);
    average_checkpoints(folders, temporary);
    sync_directory(temporary);
    fs::remove_all(average_path());
    fs::rename(temporary, average_path());
    sync_directory(path_);
  } catch (const std::exception& failure) {
    fs::remove_all(temporary, error);
    throw RunError(std::string(failure.what()) +
                   "\n  The average of the checkpoints was not written; they are intact. Write it with --resume");
  }
  return newest;
}

bool RunFolder::of_adapter(int64_t step) const {
  const Json json = read_json(step_path(step) + "/" + kProgress);
  return json.is_object() && json.contains("run") && json.at("run").contains("lora");
}

void RunFolder::verify(int64_t step) const {
  const std::string folder = step_path(step), path = folder + "/" + kProgress;
  const auto compare = [&](const std::string& file, const std::string& found, const Json& expected) {
    if (expected != found)
      throw FileError(file, "has the checksum " + Json(found).dump() + "; expected " + expected.dump() + ", as " + path +
                                " records. It was damaged or replaced after the checkpoint was written");
  };
  try {
    const Json json = read_json(path);
    const ConfigReader state(json, path);
    if (state.count("step") != step)
      state.fail("step", "expected " + std::to_string(step) + ", as the folder is called. Is it of another checkpoint?");
    if (!json.contains("files")) return;
    const Json& files = json.at("files");
    if (!files.is_object() || !files.contains(kProgress)) state.fail("files", "expected the checksum of every file");
    compare(path, checksum_of_progress(json), files.at(kProgress));
    for (const auto& [name, expected] : files.items()) {
      const std::string file = folder + "/" + name;
      if (!present(file)) throw FileError(file, "is missing; the checkpoint was written with it");
      if (name != kProgress) compare(file, checksum_of(file), expected);
    }
  } catch (const FileError& error) {
    int64_t earlier = -1;
    for (const int64_t other : steps())
      if (other < step) earlier = other;
    throw InputError(std::string(error.what()) + ".\n  Put it back as it was" +
                     (earlier < 0
                          ? ". There is no earlier checkpoint to resume from"
                          : ", or move " + folder + " away: then --resume continues from step " + std::to_string(earlier)));
  }
}

TrainProgress RunFolder::restore(int64_t step, Learner& learner, TrainIdentity& identity) const {
  const std::string path = step_path(step) + "/" + kProgress;
  const Json json = read_json(path);
  const ConfigReader state(json, path);
  if (state.count("format") != kFormat)
    state.fail("format", "is of another version of vitrine; expected " + std::to_string(kFormat));
  Json had = json.value("run", Json::object());
  if (had.contains("optimiser") && !had.contains("optimizer")) had["optimizer"] = had.at("optimiser");
  check_identity(identity, had, path, step_path(step));
  identity.model_path = had.contains("model_path") ? text_of(had.at("model_path")) : "";
  identity.model_config = had.value("model_config", Json());
  TrainProgress progress;
  progress.step = state.count("step");
  const auto whole = [&](const char* key) {
    const double number = state.number(key);
    if (number < 0 || number > 0x1p53 || number != std::floor(number)) state.fail(key, "expected a whole number from 0 to 2^53");
    return static_cast<uint64_t>(number);
  };
  progress.tokens = static_cast<int64_t>(whole("tokens"));
  progress.position = {whole("epoch"), whole("next")};
  progress.best_step = state.count("best_step");
  progress.best_loss = state.number("best_loss");
  progress.best_on = state.string("best_on", {}, "");
  progress.validation_due = state.string("validation_due", {}, "");
  if (!progress.validation_due.empty() && whole_in(progress.validation_due, "step") != step)
    state.fail("validation_due", "expected the line of metrics.jsonl of step " + std::to_string(step));

  const std::string folder = step_path(step) + "/";
  const Checkpoint stored = open_safetensors(folder + (fs::exists(folder + kStateBefore) ? kStateBefore : kState));
  for (size_t which = 0; which < learner.optimizer().states(); ++which) {
    // A run of SGD that had no momentum so far begins with none.
    if (learner.optimizer().options().kind == OptimizerOptions::Kind::sgd &&
        stored.find("momentum/" + learner.parameters().list().front().name) == nullptr)
      continue;
    const auto prefix = [&](const Parameter& p) -> std::optional<std::string> {
      const std::string what = learner.optimizer().state_of(which, p);
      if (what.empty()) return std::nullopt;
      return what + "/";
    };
    read_numbers(learner, stored, prefix,
                 [&](const Parameter& p, const float* numbers) { learner.optimizer().set_state(which, p, numbers); });
  }
  for (Optimizer::Aside& aside : learner.optimizer().asides()) {
    const std::string name = aside.name + "/" + learner.parameters().list()[aside.parameter].name;
    const StoredTensor* t = stored.find(name);
    if (t == nullptr || t->dtype != DType::f32 || t->shape != aside.shape)
      throw FileError(stored.path(), "lacks the f32 tensor \"" + name + "\" of shape " + shape_text(aside.shape) +
                                         "; it belongs to another model or optimizer, or optimizer.largest_side was changed");
    if (!aside.values.empty()) std::memcpy(aside.values.data(), t->data, aside.values.size() * sizeof(float));
  }
  // A run that kept no average so far begins one at these weights.
  if (const Ema* ema = learner.ema(); ema != nullptr && is_folder(step_path(step) + kAverage))
    read_numbers(
        learner, open_safetensors(step_path(step) + kAverage + "/model.safetensors"),
        [](const Parameter&) { return std::optional<std::string>(""); },
        [&](const Parameter& p, const float* numbers) { std::copy_n(numbers, p.count, ema->weights(p)); });
  learner.set_steps_done(progress.step);
  return progress;
}

RunFolder::History RunFolder::history() const {
  std::ifstream file(path_ + "/" + kMetrics);
  std::error_code none;
  History history{.saved = step_of(fs::read_symlink(path_ + "/last", none).string())};
  for (std::string line; std::getline(file, line);) {
    history.measured = std::max(history.measured, whole_in(line, "step"));
    history.saved = std::max(history.saved, whole_in(line, "saved"));
  }
  return history;
}

void RunFolder::keep_config() {
  if (config_.empty()) return;
  write_file_atomically(path_ + "/" + kConfig,
                        "# The configuration of this run: `vitrine train FOLDER --resume` reads it.\n" + config_);
  config_.clear();
}

void RunFolder::rewind_metrics(int64_t step) {
  const std::string path = path_ + "/" + kMetrics;
  std::vector<std::string> lines;
  if (present(path)) {
    std::ifstream file(path);
    std::string kept;
    for (std::string line; std::getline(file, line);) {
      if (const int64_t measured = whole_in(line, "step"); measured < 0 || measured > step) continue;
      kept += line + "\n";
      lines.push_back(line);
    }
    write_file_atomically(path, kept);
  }
  others_.reset();
  if (formats_.csv || formats_.tensorboard) others_.emplace(path_, formats_, lines);
}

void RunFolder::add_metrics(const std::string& line) {
  keep_config();
  const std::string path = path_ + "/" + kMetrics;
  if (metrics_ < 0) metrics_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  const std::string whole = line + "\n";
  std::string_view left = whole;
  while (metrics_ >= 0 && !left.empty()) {
    const ssize_t put = ::write(metrics_, left.data(), left.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) break;
    left.remove_prefix(static_cast<size_t>(put));
  }
  if (metrics_ < 0 || !left.empty()) throw RunError(path + ": cannot be written: " + reason());
  if (others_) others_->add(line);
}

}  // namespace vitrine
