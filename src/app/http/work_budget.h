#pragma once
// Memory that requests in flight may take together: bodies, what is made of them, and answers.
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

namespace vitrine::http {

/// A request needs more than is left, or more than there is at all.
struct OverBudget : std::runtime_error {
  OverBudget(const std::string& what, bool never) : std::runtime_error(what), never_fits(never) {}
  bool never_fits;
};

/// Thread-safe.
class WorkBudget {
 public:
  explicit WorkBudget(size_t bytes) : bytes_(bytes) {}
  size_t bytes() const { return bytes_; }

 private:
  friend class WorkCharge;
  bool take(size_t bytes, std::chrono::milliseconds patience);
  void count(size_t bytes);
  void give_back(size_t bytes);

  const size_t bytes_;
  std::mutex mutex_;
  std::condition_variable freed_;
  size_t used_ = 0;
};

/// What one request has of a budget; given back when this is destroyed. Used by one thread at a time.
class WorkCharge {
 public:
  explicit WorkCharge(std::shared_ptr<WorkBudget> budget) : budget_(std::move(budget)) {}
  WorkCharge(WorkCharge&& other) noexcept;
  WorkCharge& operator=(WorkCharge&&) = delete;
  ~WorkCharge() { clear(); }

  /// Takes more, if need be once others have given back, for which it waits as long as `patience`. Errors: OverBudget.
  void add(size_t bytes, std::chrono::milliseconds patience = {});
  /// Counts what is there already, whether or not it fits.
  void count(size_t bytes);
  void clear();
  size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<WorkBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace vitrine::http
