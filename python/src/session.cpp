#include "session.h"

#include "base/error.h"

namespace vitrine::python {

Running::Running(Session& session) : session_(session) {
  if (session_.runner_ == std::this_thread::get_id())
    throw UsageError(
        "this model is running, and a function that the run calls (a hook, a metric, an iterator of texts) cannot run it again. "
        "Load it a second time (its file is mapped once), or call it after this run");
  session_.mutex_.lock();
  session_.runner_ = std::this_thread::get_id();
}

Running::~Running() {
  session_.runner_ = std::thread::id{};
  session_.mutex_.unlock();
}

ReadingWeights::ReadingWeights(Session& session) {
  if (session.runner_ != std::this_thread::get_id()) lock_ = std::shared_lock(session.weights_mutex_);
}

}  // namespace vitrine::python
