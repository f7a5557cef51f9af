#include "session.h"

#include "base/error.h"

namespace vitrine::python {

void Session::splice(std::shared_ptr<const SplicedModel> spliced) {
  const std::lock_guard lock(spliced_mutex_);
  if (spliced == nullptr)
    spliced_.erase(std::this_thread::get_id());
  else
    spliced_[std::this_thread::get_id()] = std::move(spliced);
}

std::shared_ptr<const SplicedModel> Session::spliced() const {
  const std::lock_guard lock(spliced_mutex_);
  const auto found = spliced_.find(std::this_thread::get_id());
  return found == spliced_.end() ? nullptr : found->second;
}

const Model& Session::model() const {
  const std::shared_ptr<const SplicedModel> mine = spliced();  // this thread alone takes it away
  return mine == nullptr ? base() : *mine;
}

Running::Running(Session& session, std::shared_ptr<const SplicedModel> spliced)
    : session_(session), spliced_(std::move(spliced)) {
  if (session_.runner_ == std::this_thread::get_id())
    throw UsageError(
        "this model is running, and a function that the run calls (a hook, a metric, an iterator of texts) cannot run it again. "
        "Load it a second time (its file is mapped once), or call it after this run");
  session_.mutex_.lock();
  session_.runner_ = std::this_thread::get_id();
  session_.engine.run_through(spliced_);
}

Running::~Running() {
  session_.engine.run_through(nullptr);
  session_.runner_ = std::thread::id{};
  session_.mutex_.unlock();
}

ReadingWeights::ReadingWeights(Session& session) {
  if (session.runner_ != std::this_thread::get_id()) lock_ = std::shared_lock(session.weights_mutex_);
}

}  // namespace vitrine::python
