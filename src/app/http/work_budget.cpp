#include "http/work_budget.h"

#include <utility>

#include "base/memory.h"

namespace vitrine::http {

bool WorkBudget::take(size_t bytes, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto fits = [&] { return used_ <= bytes_ && bytes <= bytes_ - used_; };
  if (!fits() && (patience.count() == 0 || !freed_.wait_for(lock, patience, fits))) return false;
  used_ += bytes;
  return true;
}

void WorkBudget::count(size_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ += bytes;
}

void WorkBudget::give_back(size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
  }
  freed_.notify_all();
}

WorkCharge::WorkCharge(WorkCharge&& other) noexcept : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}

void WorkCharge::add(size_t bytes, std::chrono::milliseconds patience) {
  const auto text = [](size_t n) { return bytes_text(static_cast<double>(n)); };
  if (bytes_ + bytes > budget_->bytes())
    throw OverBudget("this request needs about " + text(bytes_ + bytes) + " of memory, and all requests together may take " +
                         text(budget_->bytes()) + " (--work-mb); send less text in one request",
                     true);
  if (!budget_->take(bytes, patience))
    throw OverBudget("other requests use the memory that requests may take together, " + text(budget_->bytes()) +
                         " (--work-mb); try again later",
                     false);
  bytes_ += bytes;
}

void WorkCharge::count(size_t bytes) {
  budget_->count(bytes);
  bytes_ += bytes;
}

void WorkCharge::clear() {
  if (bytes_ > 0) budget_->give_back(std::exchange(bytes_, 0));
}

}  // namespace vitrine::http
