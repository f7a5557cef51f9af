// The writing half of run.h: files, the journal that a killed run is resumed from, and the merged model in memory.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/folder_lock.h"
#include "io/safetensors.h"
#include "io/temporary_folder.h"
#include "merge/run.h"
#include "model/adapter.h"
#include "model/export.h"
#include "model/fingerprint.h"
#include "runtime/model_tokenizer.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  const int error = errno;
  throw RunError(path + " " + what + ": " + std::strerror(error) + (error == ENOSPC ? ". Make room, or name another place" : ""));
}

// A file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, const std::string& path, uint64_t offset, const void* data, size_t n) {
  const auto* from = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t wrote = ::pwrite(fd, from, n, static_cast<off_t>(offset));
    if (wrote < 0) {
      if (errno == EINTR) continue;
      fail(path, "cannot be written");
    }
    from += wrote;
    offset += static_cast<uint64_t>(wrote);
    n -= static_cast<size_t>(wrote);
  }
}

std::vector<TensorPlan> plans_of(const MergePlan& plan, const PlannedShard& shard) {
  std::vector<TensorPlan> plans;
  for (const size_t i : shard.tensors) plans.push_back({plan.tensors[i].name, plan.tensors[i].dtype, plan.tensors[i].shape});
  return plans;
}

// The shards, all tensors at their places from the beginning.
class ShardFiles : public TensorSink {
 public:
  struct Place {
    size_t shard = 0;
    uint64_t begin = 0;
  };

  void write(size_t tensor, uint64_t offset, const void* data, size_t n) override {
    const Place& place = places_[tensor];
    write_all(files_[place.shard].get(), names_[place.shard], place.begin + offset, data, n);
  }

 protected:
  void add(const MergePlan& plan, const PlannedShard& shard, Descriptor file, const std::string& name,
           const SafetensorsLayout& layout) {
    places_.resize(plan.tensors.size());
    for (size_t k = 0; k < shard.tensors.size(); ++k) places_[shard.tensors[k]] = {files_.size(), layout.begin[k]};
    files_.push_back(std::move(file));
    names_.push_back(name);
  }

  std::vector<Descriptor> files_;
  std::vector<std::string> names_;
  std::vector<Place> places_;
};

std::string boot_id() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id + "\n";
}

// The files that an input's weights are read from.
std::vector<std::string> weight_files(const MergeInput& input) {
  std::vector<std::string> files;
  for (const MappedFile& file : input.checkpoint().files()) files.push_back(file.path());
  if (input.opened() != nullptr && input.opened()->adapter != nullptr)
    for (std::string& file : input.opened()->adapter->files()) files.push_back(std::move(file));
  return files;
}

// Which rows of the inputs the tokens have: tokenizers may change while a run is stopped, as the weights may.
uint64_t fingerprint_of_rows(const TokenPlan& tokens) {
  uint64_t sum = 0;
  for (const std::vector<int64_t>& own : tokens.own) sum = add_to_fingerprint(sum, std::as_bytes(std::span(own)));
  for (const auto& rows : tokens.defaults)
    for (const auto& [input, row] : rows) {
      const int64_t pair[] = {input, row};
      sum = add_to_fingerprint(sum, std::as_bytes(std::span(pair)));
    }
  return sum;
}

// What a run is: two runs with the same text write the same bytes.
std::string description(const MergePlan& plan) {
  std::string text = "recipe\n" + plan.recipe.yaml + "\nseed " + std::to_string(plan.options.random_seed) + "\n";
  if (plan.tokens) text += "rows of tokens " + std::to_string(fingerprint_of_rows(*plan.tokens)) + "\n";
  for (const auto& input : plan.inputs)
    for (const std::string& file : weight_files(*input)) {
      struct stat status{};
      if (::stat(file.c_str(), &status) != 0) fail(file, "cannot be looked at");
      text += "input " + fs::absolute(file).string() + " " + std::to_string(status.st_size) + " " +
              std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) + "\n";
    }
  for (const PlannedShard& shard : plan.shards)
    for (const size_t i : shard.tensors) {
      const PlannedTensor& tensor = plan.tensors[i];
      text += "tensor " + tensor.name + " " + std::string(name_of(tensor.dtype)) + " " + shape_text(tensor.shape) + " " +
              shard.file + "\n";
    }
  return text;
}

constexpr const char* kJournal = "journal";  // lists the tensors that are whole, by their numbers in the plan
constexpr const char* kPlan = "plan";        // what the run is, and the boot of the machine it was begun in

// The directory while it is written.
class MergeDirectory final : public ShardFiles {
 public:
  MergeDirectory(const MergePlan& plan, const std::string& folder, bool resume) : plan_(plan), folder_(folder) {
    const std::string text = description(plan);
    if (resume && !take_up(text)) resume = false;
    if (!resume) begin(text);
    for (const PlannedShard& shard : plan.shards) open_shard(shard, resume);
    journal_ = Descriptor(::open((folder_ + "/" + kJournal).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (journal_.get() < 0) fail(folder_ + "/" + kJournal, "cannot be made");
  }

  const std::set<size_t>& done() const { return done_; }

  void finished(size_t tensor) override {
    const std::string line = std::to_string(tensor) + "\n";
    if (::write(journal_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      fail(folder_ + "/" + kJournal, "cannot be written");
    // The disk begins while the next tensors are worked out.
    ::sync_file_range(files_[places_[tensor].shard].get(), 0, 0, SYNC_FILE_RANGE_WRITE);
  }

  void sync() {
    for (size_t i = 0; i < files_.size(); ++i)
      if (::fsync(files_[i].get()) != 0) fail(names_[i], "cannot be written");
  }

  void remove_journal() const {
    for (const char* name : {kJournal, kPlan}) fs::remove(folder_ + "/" + name);
  }

 private:
  void begin(const std::string& text) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_, error)) fs::remove_all(entry.path(), error);
    write_file_atomically(folder_ + "/" + kPlan, boot_id() + text);
  }

  // Reads the journal of a run that was stopped. False: there is none, or the machine was started anew since, so that what the
  // journal lists may not have reached the disk.
  bool take_up(const std::string& text) {
    const std::string path = folder_ + "/" + kPlan;
    if (!fs::exists(path)) return false;
    const std::string before = read_file(path), boot = boot_id();
    const size_t line = before.find('\n');
    if (line == std::string::npos) return false;
    if (before.substr(line + 1) != text)
      throw UsageError(folder_ +
                       " was begun with another recipe, other options or other input files; run without --resume to begin anew");
    if (before.substr(0, line + 1) != boot) return false;
    const std::string journal = fs::exists(folder_ + "/" + kJournal) ? read_file(folder_ + "/" + kJournal) : "";
    size_t at = 0;
    for (size_t end; (end = journal.find('\n', at)) != std::string::npos; at = end + 1) {
      size_t tensor = 0;
      const auto [stop, error] = std::from_chars(journal.data() + at, journal.data() + end, tensor);
      if (error == std::errc{} && stop == journal.data() + end && tensor < plan_.tensors.size()) done_.insert(tensor);
    }
    remove_strays();
    if (at < journal.size() && ::truncate((folder_ + "/" + kJournal).c_str(), static_cast<off_t>(at)) != 0)
      fail(folder_ + "/" + kJournal, "cannot be cut");
    return true;
  }

  // Half-written small files of the run that was killed; all of them are written anew at the end.
  void remove_strays() const {
    std::set<std::string> kept = {kJournal, kPlan};
    for (const PlannedShard& shard : plan_.shards) kept.insert(shard.file);
    std::vector<fs::path> strays;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (!kept.contains(entry.path().filename().string())) strays.push_back(entry.path());
    for (const fs::path& stray : strays) fs::remove_all(stray);
  }

  void open_shard(const PlannedShard& shard, bool resume) {
    const std::string path = folder_ + "/" + shard.file;
    const SafetensorsLayout layout = safetensors_layout(path, plans_of(plan_, shard), {{"format", "pt"}});
    Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0666));
    if (file.get() < 0) fail(path, "cannot be made");
    // Room for all of it now: a full disk is told before hours of work, not after.
    if (const int error = ::posix_fallocate(file.get(), 0, static_cast<off_t>(layout.size)); error == ENOSPC || error == EFBIG) {
      errno = error;
      fail(path, "needs " + bytes_text(static_cast<double>(layout.size)));
    }
    if (::ftruncate(file.get(), static_cast<off_t>(layout.size)) != 0) fail(path, "cannot be made as large as it must be");
    write_all(file.get(), path, 0, layout.header.data(), layout.header.size());
    add(plan_, shard, std::move(file), path, layout);
  }

  const MergePlan& plan_;
  std::string folder_;
  Descriptor journal_;
  std::set<size_t> done_;
};

std::string index_json(const MergePlan& plan) {
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_size", plan.bytes_written()}};
  nlohmann::ordered_json& map = index["weight_map"] = nlohmann::ordered_json::object();
  for (const PlannedShard& shard : plan.shards)
    for (const size_t i : shard.tensors) map[plan.tensors[i].name] = shard.file;
  return index.dump(2) + "\n";
}

// Whether something is there that would be lost; an empty directory is not.
bool taken(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  return fs::exists(status) && !(fs::is_directory(status) && fs::is_empty(path, error));
}

// Where the result goes, without a "/" at its end. Errors: InputError for what cannot be renamed.
fs::path place_of(const std::string& directory) {
  fs::path path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.filename().empty() || path.filename() == "." || path.filename() == "..")
    throw InputError(directory +
                     " is the working directory, or one around it, and cannot be put in place when the result is whole; " +
                     "name a directory inside it");
  return path;
}

// What is replaced is removed, and a slip of the keyboard must not cost other files: it is a model, what is left of one, or a
// link, of which the link alone is removed. Errors: InputError.
void refuse_foreign(const std::string& directory, const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::is_symlink(status)) return;
  if (!fs::is_directory(status))
    throw InputError(directory + " is there already, and is a file. --force replaces only the directory of a model; " +
                     "name another place, or remove the file");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "mergekit_config.yml" || name.ends_with(".safetensors")) return;
    names.push_back(name);
  }
  if (error)
    throw InputError(directory + " is there already, and cannot be read: " + error.message() + "; name another directory");
  std::sort(names.begin(), names.end());
  constexpr size_t kShown = 3;
  std::string list;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) list += (i == 0 ? "" : ", ") + names[i];
  throw InputError(directory + " is there already, and is not the directory of a model: it holds " + list +
                   (names.size() > kShown ? ", …" : "") + ", and neither config.json, mergekit_config.yml nor a .safetensors " +
                   "file. --force does not remove other files; name another directory, or empty this one");
}

// A directory that is to be replaced is removed with all that is in it (of a link, the link). A model's own directory may be
// meant; one in which models lie is not.
void refuse_around_inputs(const MergePlan& plan, const fs::path& path) {
  std::error_code error;
  const fs::path place = fs::weakly_canonical(fs::absolute(path).parent_path(), error) / path.filename();
  for (const auto& input : plan.inputs)
    for (const std::string& file : weight_files(*input)) {
      const fs::path folder = fs::weakly_canonical(fs::absolute(file), error).parent_path();
      const auto [end, rest] = std::mismatch(place.begin(), place.end(), folder.begin(), folder.end());
      const bool its_own = rest == folder.end() && fs::is_directory(input->reference().path, error);
      if (end == place.end() && !its_own)
        throw InputError(path.string() + " cannot be replaced: " + input->name() + ", which is merged, lies in it (" + file +
                         "); name another directory");
    }
}

// Puts `from` in the place of `to`; what was there is removed afterwards.
void put_in_place(const std::string& from, const fs::path& to, bool replace) {
  std::error_code error;
  const std::string old = to.string() + ".replaced-" + std::to_string(::getpid());
  const bool there = taken(to);
  if (there && !replace) throw InputError(to.string() + " appeared while the merge ran; the result is in " + from);
  // Both names change hands at once, so that there is no moment without a result; not every file system can.
  if (there && ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(from, error);
    return;
  }
  if (there && ::rename(to.c_str(), old.c_str()) != 0) fail(to.string(), "cannot be replaced");
  if (::rename(from.c_str(), to.c_str()) != 0) {
    const int why = errno;
    if (there) ::rename(old.c_str(), to.c_str());
    errno = why;
    fail(to.string(), "cannot be put in place");
  }
  if (there) fs::remove_all(old, error);
}

void sync_folder(const std::string& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());  // some file systems cannot
}

// A file in memory with the merged tensors.
class MemoryFile final : public ShardFiles {
 public:
  MemoryFile(const MergePlan& plan, const PlannedShard& all) {
    const SafetensorsLayout layout = safetensors_layout("the merged model", plans_of(plan, all));
    if (const size_t room = available_memory(); room != 0 && layout.size > room)
      throw RunError("the merged model takes " + bytes_text(static_cast<double>(layout.size)) + " and " +
                     bytes_text(static_cast<double>(room)) + " of memory are available; write it to a directory instead");
    Descriptor file(::memfd_create("merged model", MFD_CLOEXEC));
    if (file.get() < 0 || ::ftruncate(file.get(), static_cast<off_t>(layout.size)) != 0)
      fail("the merged model", "finds no memory");
    write_all(file.get(), "the merged model", 0, layout.header.data(), layout.header.size());
    add(plan, all, std::move(file), "the merged model", layout);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(files_.front().get()); }
};

}  // namespace

void check_merge_directory(const std::string& directory, bool replace) {
  const fs::path path = place_of(directory);
  if (!taken(path)) return;
  refuse_foreign(directory, path);
  if (!replace) throw InputError(directory + " is there already; name a new directory, or replace it with --force");
}

std::string merge_work_folder(const std::string& directory) {
  const fs::path path = place_of(directory);
  return (path.parent_path() / (".merging-" + path.filename().string())).string();
}

size_t write_merge(const MergePlan& plan, const std::map<std::string, std::string>& companions, const std::string& directory,
                   ThreadPool& pool, const WriteOptions& options, const WatchMerge& watch, const MeasureMerge& measure) {
  refuse_problems(plan);
  check_merge_directory(directory, options.replace);
  const fs::path path = place_of(directory);
  std::error_code error;
  if (taken(path)) refuse_around_inputs(plan, path);
  const std::string folder = merge_work_folder(directory);
  // What is in the folder is removed before a new run.
  if (fs::is_symlink(fs::symlink_status(folder, error)))
    throw InputError(folder + ", where " + directory + " is to be written, is a link; remove it, or name another directory");
  fs::create_directories(folder, error);
  if (error) throw InputError(directory + " cannot be made: " + error.message() + ". Name a place that you may write to");
  const FolderLock lock(folder, folder + " is being written by another process; wait for it, or name another directory");
  if (!lock.is_at(folder)) throw InputError(directory + " has just been written by another process");

  size_t done = 0;
  bool begun = false;
  try {
    MergeDirectory files(plan, folder, options.resume);
    begun = true;
    done = files.done().size();
    merge_tensors(plan, pool, files, [&](size_t i) { return !files.done().contains(i); }, watch, measure);
    files.sync();
    write_file_atomically(folder + "/config.json", plan.config.dump(2) + "\n");
    for (const auto& [name, content] : companions) write_file_atomically(folder + "/" + name, content);
    if (plan.shards.size() > 1) write_file_atomically(folder + "/model.safetensors.index.json", index_json(plan));
    if (plan.inputs[plan.donor]->opened() != nullptr && !plan.stacked) check_written(resolve_model(folder), directory);
    files.remove_journal();
  } catch (const UsageError&) {
    if (begun) fs::remove_all(folder, error);  // what another recipe is to resume stays
    throw;
  } catch (const Error&) {
    fs::remove_all(folder, error);
    throw;
  }
  sync_folder(folder);
  put_in_place(folder, path, options.replace);
  sync_folder(path.parent_path().empty() ? "." : path.parent_path().string());
  return done;
}

std::shared_ptr<const Tokenizer> merged_tokenizer(const MergePlan& plan) {
  if (!plan.tokens) return nullptr;
  const TemporaryFolder folder;
  write_companions(plan.tokens->files, folder.path());
  return open_tokenizer(folder.path());
}

std::unique_ptr<Engine> merge_in_memory(const MergePlan& plan, const EngineOptions& options, const WatchMerge& watch) {
  refuse_problems(plan);
  PlannedShard all;
  for (size_t i = 0; i < plan.tensors.size(); ++i) all.tensors.push_back(i);
  MemoryFile file(plan, all);
  {
    ThreadPool pool(options.threads);
    merge_tensors(plan, pool, file, {}, watch);
  }
  ModelFiles files = plan.inputs[plan.donor]->files();
  files.kind = ModelFiles::Kind::huggingface;
  files.name = "merge of " + plan.recipe.path;
  files.weights = file.path();
  files.config = plan.config;
  // A tokenizer is read from files; those of a new one are there as long as it takes to read them.
  const TemporaryFolder tokenizer;
  files.directory = tokenizer.path();
  const MergeInput& donor = *plan.inputs[plan.donor];
  write_companions(plan.tokens                 ? plan.tokens->files
                   : donor.opened() != nullptr ? companions_of(*donor.opened())
                                               : companions_in(donor.files()),
                   files.directory);
  return std::make_unique<Engine>(open_model(std::move(files)), options);
}

}  // namespace vitrine
