#include "http/answer.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace vitrine::http {
namespace {
constexpr std::chrono::seconds kPatience{2};  // for memory that others have
}

class Answer::StreamHandle : public Stream {
 public:
  explicit StreamHandle(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~StreamHandle() override { answer_->end(true); }
  bool send(std::string bytes) override { return answer_->send(std::move(bytes)); }
  void close() override { answer_->end(false); }

 private:
  std::shared_ptr<Answer> answer_;
};

class Answer::Handle : public Exchange {
 public:
  explicit Handle(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~Handle() override { answer_->abandon(); }
  const Request& request() const override { return answer_->request_; }
  void respond(Response response) override { answer_->start(std::move(response), false); }
  std::shared_ptr<Stream> stream(Response head) override {
    answer_->start(std::move(head), true);
    return std::make_shared<StreamHandle>(answer_);
  }
  void on_gone(std::function<void()> gone) override { answer_->on_gone(std::move(gone)); }
  WorkCharge charge(size_t bytes) override {
    WorkCharge charge(answer_->budget_);
    charge.add(bytes, kPatience);
    return charge;
  }
  void name_model(const std::string& name) override {
    const std::lock_guard lock(answer_->mutex_);
    answer_->told_.model = name;
  }
  void count_tokens(int64_t prompt, int64_t made) override {
    const std::lock_guard lock(answer_->mutex_);
    Told& told = answer_->told_;
    told.prompt_tokens = std::max<int64_t>(told.prompt_tokens, 0) + prompt;
    told.new_tokens = std::max<int64_t>(told.new_tokens, 0) + made;
  }

 private:
  std::shared_ptr<Answer> answer_;
};

std::shared_ptr<Exchange> Answer::make_exchange() { return std::make_shared<Handle>(shared_from_this()); }

void Answer::start(Response response, bool streams) {
  {
    const std::lock_guard lock(mutex_);
    if (answered_) throw std::logic_error("a request was answered twice");
    answered_ = true;
    streams_ = streams;
    if (!finished_) head_ = std::move(response);
  }
  changed_();
}

bool Answer::send(std::string bytes) {
  bool fits = false;
  {
    const std::lock_guard lock(mutex_);
    if (left_ || ended_ || finished_) return false;
    if (bytes.empty()) return true;
    // One piece always fits, so that no piece is too large for every client.
    if (!bytes_.empty() && bytes_.size() + bytes.size() > stream_bytes_) {
      ended_ = broken_ = too_slow_ = true;
      bytes_ = {};
    } else if (bytes_.empty()) {
      bytes_ = std::move(bytes);
    } else {
      bytes_ += bytes;
    }
    fits = !too_slow_;
  }
  changed_();
  return fits;
}

void Answer::end(bool broken) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    broken_ = broken;
  }
  changed_();
}

void Answer::abandon() {
  {
    const std::lock_guard lock(mutex_);
    if (answered_) return;
    answered_ = abandoned_ = true;
  }
  changed_();
}

void Answer::on_gone(std::function<void()> gone) {
  std::function<void()> before;
  {
    const std::lock_guard lock(mutex_);
    if (!left_ && !finished_) {
      before = std::exchange(gone_, std::move(gone));  // destroyed without the lock: it may hold what calls us
      return;
    }
    if (!left_) return;
  }
  if (gone) gone();
}

Answer::News Answer::take() {
  const std::lock_guard lock(mutex_);
  News news;
  news.head = std::exchange(head_, std::nullopt);
  news.streams = streams_;
  news.bytes = std::exchange(bytes_, {});
  news.ended = ended_;
  news.unanswered = abandoned_;
  news.broken = broken_;
  news.too_slow = too_slow_;
  return news;
}

void Answer::leave() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    if (left_ || finished_) return;
    left_ = true;
    gone = std::exchange(gone_, nullptr);
  }
  if (gone) gone();
}

void Answer::finish() {
  std::function<void()> gone;  // destroyed after the lock is free
  const std::lock_guard lock(mutex_);
  finished_ = true;
  gone = std::exchange(gone_, nullptr);
}

Answer::Told Answer::told() const {
  const std::lock_guard lock(mutex_);
  return told_;
}

bool Answer::left() const {
  const std::lock_guard lock(mutex_);
  return left_;
}

bool Answer::broken() const {
  const std::lock_guard lock(mutex_);
  return broken_;
}

}  // namespace vitrine::http
