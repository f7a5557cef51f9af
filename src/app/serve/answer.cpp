#include "serve/answer.h"

namespace vitrine::serve {

namespace {

// A grammar's source is the name of its field in quotes (serve/grammars.cpp).
ApiError failed(const EndEvent& end) {
  if (end.error_code == "timeout") return {408, "timeout", end.error, "timeout"};
  if (!end.error_is_input) return {500, "run_failed", end.error};
  if (end.error_code.empty()) return {400, "invalid_value", end.error};
  std::string field = end.error_source;
  std::erase(field, '"');
  return {400, end.error_code, end.error, field};
}

}  // namespace

/// Carries what happens to a stream from the scheduler's thread to the thread of answers.
class Answer::Ear final : public Sink {
 public:
  Ear(std::shared_ptr<Answer> answer, Choice& choice) : answer_(std::move(answer)), choice_(choice) {}
  void prompt(const PromptEvent& event) override {
    answer_->post([&a = *answer_, &c = choice_, event] { a.hear([&] { a.take_prompt(c, event); }); });
  }
  void scored(std::vector<PromptToken>&& tokens) override {
    answer_->post([&a = *answer_, &c = choice_, tokens = std::move(tokens)]() mutable {
      a.hear([&] { a.take_scored(c, std::move(tokens)); });
    });
  }
  void token(TokenEvent&& event) override {
    answer_->post([&a = *answer_, &c = choice_, event = std::move(event)]() mutable {
      a.hear([&] { a.take_token(c, std::move(event)); });
    });
  }
  void ended(EndEvent&& event) override {
    answer_->post(
        [&a = *answer_, &c = choice_, event = std::move(event)]() mutable { a.hear([&] { a.take_end(c, std::move(event)); }); });
  }

 private:
  std::shared_ptr<Answer> answer_;
  Choice& choice_;
};

Answer::Answer(Service& service, std::shared_ptr<http::Exchange> exchange, bool streamed, ErrorForm form)
    : service_(service),
      scheduler_(service.shared_scheduler()),
      exchange_(std::move(exchange)),
      streamed_(streamed),
      form_(form) {}

void Answer::add(Work work, size_t prompt) { add(std::move(work), prompt, false, {}); }

void Answer::add(Work work, size_t prompt, const Sampled& sampled) {
  work.adapters = sampled.adapters;
  work.prefix_scope = sampled.cache_salt;
  work.deadline = sampled.deadline;
  work.options.drafter = service_.drafter(sampled.drafts);
  add(std::move(work), prompt, sampled.include_stop, sampled.slot);
}

void Answer::add(Work work, size_t prompt, bool include_stop, std::optional<int64_t> slot) {
  Choice choice;
  choice.index = choices_.size();
  choice.prompt = prompt;
  choice.prompt_ids = work.prompt;
  choices_.push_back(std::move(choice));
  work.owner = exchange_->request().owner;
  work.prefix_scope = service_.prefix_scope(work.owner, work.prefix_scope);
  const bool watched = work.listener != nullptr;  // of which nothing is kept
  sent_.push_back(
      {include_stop, watched ? std::nullopt : slot, {{}, std::ssize(work.prompt), work.prefix_scope, !work.adapters.empty()}});
  works_.push_back(std::move(work));
}

void Answer::start() {
  running_ = choices_.size();
  exchange_->on_gone([weak = weak_from_this()] {
    const std::shared_ptr<Answer> answer = weak.lock();
    if (answer == nullptr) return;
    {
      const std::lock_guard lock(answer->mutex_);
      answer->gone_ = true;
    }
    answer->cancel();
  });
  try {
    for (size_t i = 0; i < works_.size(); ++i) {
      const Scheduler::Ticket ticket =
          service_.scheduler().submit(std::move(works_[i]), std::make_shared<Ear>(shared_from_this(), choices_[i]));
      const std::lock_guard lock(mutex_);
      tickets_.push_back(ticket);
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex_);
      service_.answers().post([self = shared_from_this()] { self->answered_ = true; });  // the caller answers
      held_.clear();
      started_ = true;
    }
    cancel();
    throw;
  }
  bool gone = false;
  {
    // Under the lock, so that what comes next is behind what was held.
    const std::lock_guard lock(mutex_);
    service_.answers().post([self = shared_from_this()] { self->hear([&] { self->open(); }); });
    for (std::function<void()>& task : held_) service_.answers().post(std::move(task));
    held_.clear();
    started_ = true;
    gone = gone_;
  }
  if (gone) cancel();
}

// Tasks hold the answer, so that it lives until the last of them has run.
void Answer::post(std::function<void()> task) {
  auto kept = [self = shared_from_this(), task = std::move(task)] { task(); };
  const std::lock_guard lock(mutex_);
  if (started_)
    service_.answers().post(std::move(kept));
  else
    held_.push_back(std::move(kept));
}

// What goes wrong while JSON is formed ends this request, not the thread.
void Answer::hear(std::function<void()> task) {
  try {
    task();
  } catch (...) {
    fail(api_error(std::current_exception()));
  }
}

void Answer::cancel() {
  std::vector<Scheduler::Ticket> tickets;
  {
    const std::lock_guard lock(mutex_);
    tickets = tickets_;
  }
  const std::shared_ptr<Scheduler> scheduler = scheduler_.lock();  // null: it ends, and with it every stream
  if (scheduler == nullptr) return;
  for (const Scheduler::Ticket ticket : tickets) scheduler->cancel(ticket);
}

void Answer::open() {
  if (!streamed_ || answered_ || stream_ != nullptr) return;
  http::Response head;
  head.type = stream_type();
  head.headers = {{"Cache-Control", "no-cache"}};
  head.ping = ping();
  stream_ = exchange_->stream(std::move(head));
}

void Answer::take_prompt(Choice& choice, const PromptEvent& event) {
  if (streamed_ && !answered_) on_prompt(choice, event);
}

void Answer::take_scored(Choice& choice, std::vector<PromptToken>&& tokens) {
  choice.scored = std::move(tokens);
  for (const PromptToken& token : choice.scored) hold(token.top);
  if (streamed_ && !answered_) on_scored(choice);
}

void Answer::take_token(Choice& choice, TokenEvent&& event) {
  choice.text += event.text;
  choice.tokens.push_back({event.token, event.logprob, std::move(event.text), std::move(event.top)});
  hold(choice.tokens.back().top);
  if (!streamed_) return;
  if (!answered_) on_token(choice);
  choice.tokens.back().top = {};
}

// A client that has left does not hear of it: it is the server that ends, or another text of the request has failed.
ApiError Answer::cancelled() const {
  const std::shared_ptr<Scheduler> scheduler = scheduler_.lock();
  if (scheduler == nullptr || scheduler->stats().draining)
    return {503, "interrupted", "this server is ending, and the answer is not complete; send the request again"};
  return {499, "cancelled", "the request was cancelled"};
}

// What has been made counts, not what might be: few requests say how long their texts are.
void Answer::hold(const std::vector<TokenLogprob>& most_likely) {
  if (streamed_) return;
  most_likely_ += most_likely.size();
  if (const size_t most = service_.options().most_likeliest; most_likely_ > most)
    fail(ApiError(400, "answer_too_large",
                  "the answer would hold more than " + std::to_string(most) +
                      " most likely tokens beside its own; ask for fewer of them, for fewer or shorter texts, or for a stream"));
}

void Answer::take_end(Choice& choice, EndEvent&& event) {
  choice.end = std::move(event);
  choice.ended = true;
  --running_;
  remember(choice);
  const bool same_prompt = choice.index > 0 && choices_[choice.index - 1].prompt == choice.prompt;
  const int64_t prompt = same_prompt ? 0 : std::ssize(choice.prompt_ids), made = std::ssize(choice.tokens);
  service_.quotas().used(exchange_->request().owner, static_cast<double>(prompt + made));
  service_.count_tokens(*exchange_, prompt, made);
  if (choice.end.end == End::failed) fail(failed(choice.end));
  if (choice.end.end == End::cancelled) fail(cancelled());
  if (answered_) return;
  choice.tail = choice.end.text;
  if (sent_[choice.index].include_stop && choice.end.stop_string) choice.tail += *choice.end.stop_string;
  choice.text += choice.tail;
  if (streamed_) on_end(choice);
  if (running_ > 0) return;
  if (streamed_) {
    on_done();
    stream_->close();
    answered_ = true;
  } else {
    http::Response response;
    response.body = whole_text();
    answered_ = true;
    exchange_->respond(std::move(response));
  }
}

// For POST /slots/{id}.
void Answer::remember(const Choice& choice) {
  Sent& sent = sent_[choice.index];
  if (!sent.slot || service_.options().slot_folder.empty()) return;
  SlotText text = std::move(sent.text);
  text.tokens = choice.prompt_ids;
  for (const Token& token : choice.tokens) text.tokens.push_back(token.id);
  service_.slot_texts().remember(exchange_->request().owner, *sent.slot, std::move(text));
}

void Answer::fail(const ApiError& error) {
  if (answered_) return;
  answered_ = true;
  cancel();
  if (stream_ == nullptr) return exchange_->respond(error_response(error, form_));
  on_error(error);
  stream_->close();
}

void Answer::on_error(const ApiError& error) { send(error_json(error, form_)); }

void Answer::send(const OrderedJson& json) { send_text("data: " + json_text(json) + "\n\n"); }

void Answer::send_event_text(std::string_view event, const std::string& json) {
  send_text("event: " + std::string(event) + "\ndata: " + json + "\n\n");
}

void Answer::send_text(std::string text) {
  if (!stream_->send(std::move(text))) {
    answered_ = true;  // nobody reads it
    cancel();
  }
}

Usage Answer::usage() const {
  Usage usage;
  size_t counted = SIZE_MAX;  // the prompt whose tokens were counted last; choices of one prompt stand side by side
  for (const Choice& choice : choices_) {
    usage.completion_tokens += static_cast<int64_t>(choice.tokens.size());
    if (choice.prompt == counted) continue;
    counted = choice.prompt;
    usage.prompt_tokens += static_cast<int64_t>(choice.prompt_ids.size());
    usage.cached_tokens += choice.end.cached_tokens;
  }
  return usage;
}

}  // namespace vitrine::serve
