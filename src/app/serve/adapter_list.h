#pragma once
// The LoRA adapters that requests choose from, loaded beside the model and removed while it runs.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "model/adapter.h"

namespace vitrine::serve {

struct AdapterToLoad {
  std::string name, path;
  double scale = 0;  // in requests that choose no adapter
};

struct AdapterLimits {
  int64_t most = 16;                 // loaded at once
  size_t bytes = size_t{1} << 30;    // of the numbers of all as f32, those that were removed and still run included
  std::vector<std::string> folders;  // below which requests may load them; none: requests load nothing
};

class AdapterList {
 public:
  struct Entry {
    int64_t id = 0;  // not used again once it is removed
    std::string name, path;
    double scale = 0;  // in requests that choose no adapter
    std::shared_ptr<const Adapter> adapter;
  };

  /// opened: the model, which must outlive the list. taken: names that no adapter may have, for the model has them.
  AdapterList(const OpenedModel& opened, AdapterLimits limits, std::vector<std::string> taken);

  /// For who starts the server: loads from anywhere. An empty name: the last part of the path. Errors: as read_adapter;
  /// InputError for a name that is taken, or is none, and where the limits are reached.
  Entry load(AdapterToLoad wanted);
  /// For requests: `path` as a whole, or behind one of AdapterLimits::folders, must lie below one of these, links resolved.
  /// Errors: as load; ApiError 501 without such folders, 400 for other paths (whether or not something is there).
  Entry load_for_request(const std::string& name, const std::string& path);
  /// What runs with it goes on to its end; its memory is free then. Errors: ApiError 404.
  void remove(const std::string& name);

  std::vector<Entry> all() const;
  std::optional<Entry> named(const std::string& name) const;
  /// Those that requests have which choose none.
  ScaledAdapters chosen_by_default() const;
  /// Scales of requests that choose none, by id; an adapter that is not among them gets 0. Errors: ApiError 400 for an unknown
  /// id.
  void set_scales(const std::vector<std::pair<int64_t, double>>& scales);

  struct Size {
    int64_t adapters = 0;
    size_t bytes = 0;  // with those that were removed and still run
  };
  Size size() const;

 private:
  void check_name(const std::string& name) const;
  size_t bytes_in_use() const;

  const OpenedModel& opened_;
  const AdapterLimits limits_;
  const std::vector<std::string> taken_;
  std::mutex loading_;                                         // one at a time, so that limits hold
  mutable std::mutex mutex_;                                   // of what follows
  std::vector<Entry> entries_;                                 // by id
  mutable std::vector<std::weak_ptr<const Adapter>> removed_;  // which may still run
  int64_t next_id_ = 0;
};

}  // namespace vitrine::serve
