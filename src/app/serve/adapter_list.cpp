#include "serve/adapter_list.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/memory.h"
#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

constexpr size_t kLongestName = 256;

size_t bytes_of(const Adapter& adapter) { return static_cast<size_t>(adapter.parameter_count()) * sizeof(float); }

// "adapters/french/" is called "french".
std::string name_of(const std::string& path) {
  std::filesystem::path p = path;
  if (p.filename().empty()) p = p.parent_path();
  return p.filename().string();
}

bool lies_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto [at, end] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return at == folder.end() && end != path.end();
}

// The folder without links, if it lies below one of `folders` and so do its files.
std::optional<std::string> found_below(const std::vector<std::string>& folders, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (const std::string& folder : folders) {
    const fs::path root = fs::canonical(folder, error);
    if (error) continue;
    const fs::path whole = fs::canonical(root / path, error);  // an absolute path takes the place of both
    if (error || !lies_below(whole, root)) continue;
    const bool inside = std::ranges::all_of(adapter_files(whole.string()), [&](const std::string& file) {
      const fs::path real = fs::weakly_canonical(file, error);
      return !error && lies_below(real, root);
    });
    if (inside) return whole.string();
  }
  return {};
}

}  // namespace

AdapterList::AdapterList(const OpenedModel& opened, AdapterLimits limits, std::vector<std::string> taken)
    : opened_(opened), limits_(std::move(limits)), taken_(std::move(taken)) {
  for (const std::string& folder : limits_.folders)
    if (!std::filesystem::is_directory(folder)) throw FileError(folder, "is no folder; expected one that holds adapters");
}

void AdapterList::check_name(const std::string& name) const {
  if (name.empty() || name.size() > kLongestName)
    throw InputError("an adapter's name has " + std::to_string(name.size()) + " bytes; expected 1 to " +
                     std::to_string(kLongestName));
  if (std::find(taken_.begin(), taken_.end(), name) != taken_.end())
    throw InputError("an adapter cannot be called \"" + name + "\": the model is. Give it another name");
  if (std::ranges::any_of(entries_, [&](const Entry& e) { return e.name == name; }))
    throw InputError("an adapter called \"" + name + "\" is loaded already; remove it first, or give this one another name");
  if (std::ssize(entries_) >= limits_.most)
    throw InputError(std::to_string(entries_.size()) +
                     " adapters are loaded, and no more may be; remove one first, or start the "
                     "server with a higher --max-loras");
}

size_t AdapterList::bytes_in_use() const {
  size_t bytes = 0;
  for (const Entry& entry : entries_) bytes += bytes_of(*entry.adapter);
  std::erase_if(removed_, [](const auto& adapter) { return adapter.expired(); });
  for (const auto& removed : removed_)
    if (const auto adapter = removed.lock()) bytes += bytes_of(*adapter);
  return bytes;
}

AdapterList::Entry AdapterList::load(AdapterToLoad wanted) {
  if (wanted.name.empty()) wanted.name = name_of(wanted.path);
  const std::lock_guard one_at_a_time(loading_);
  size_t left = 0;
  {
    const std::lock_guard lock(mutex_);
    check_name(wanted.name);
    left = limits_.bytes - std::min(limits_.bytes, bytes_in_use());
  }
  Entry entry{0, wanted.name, wanted.path, wanted.scale, read_adapter(opened_, wanted.path, left)};
  const std::lock_guard lock(mutex_);
  entry.id = next_id_++;
  entries_.push_back(entry);
  return entry;
}

AdapterList::Entry AdapterList::load_for_request(const std::string& name, const std::string& path) {
  if (limits_.folders.empty())
    throw unsupported("lora_path",
                      "requests load no adapters here; start the server with --lora-folder FOLDER to allow those below it");
  if (name.empty()) throw invalid("lora_name", "\"lora_name\" is empty; expected a name for the adapter");
  const std::optional<std::string> found =
      path.find('\0') == std::string::npos ? found_below(limits_.folders, path) : std::nullopt;
  if (!found)
    throw invalid("lora_path",
                  "\"lora_path\" names no adapter below the folders that this server was started with (--lora-folder)");
  return load({name, *found, 0});
}

void AdapterList::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find_if(entries_, [&](const Entry& e) { return e.name == name; });
  if (at == entries_.end()) throw ApiError(404, "adapter_not_found", "there is no adapter called \"" + name + "\"", "lora_name");
  removed_.push_back(at->adapter);
  entries_.erase(at);
}

std::vector<AdapterList::Entry> AdapterList::all() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

std::optional<AdapterList::Entry> AdapterList::named(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find_if(entries_, [&](const Entry& e) { return e.name == name; });
  return at == entries_.end() ? std::nullopt : std::optional(*at);
}

ScaledAdapters AdapterList::chosen_by_default() const {
  const std::lock_guard lock(mutex_);
  ScaledAdapters chosen;
  for (const Entry& entry : entries_)
    if (entry.scale != 0) chosen.push_back({entry.adapter, entry.scale});
  return chosen;
}

void AdapterList::set_scales(const std::vector<std::pair<int64_t, double>>& scales) {
  const std::lock_guard lock(mutex_);
  std::vector<double> set(entries_.size());
  for (const auto& [id, scale] : scales) {
    const auto at = std::ranges::find_if(entries_, [&](const Entry& e) { return e.id == id; });
    if (at == entries_.end())
      throw invalid("id", "\"id\" is " + std::to_string(id) + "; no adapter has it. GET /lora-adapters lists them");
    set[static_cast<size_t>(at - entries_.begin())] = scale;
  }
  for (size_t i = 0; i < set.size(); ++i) entries_[i].scale = set[i];
}

AdapterList::Size AdapterList::size() const {
  const std::lock_guard lock(mutex_);
  return {std::ssize(entries_), bytes_in_use()};
}

}  // namespace vitrine::serve
