#include "schedule/running.h"

#include <algorithm>
#include <utility>

#include "base/memory.h"
#include "kernels/table.h"

namespace vitrine {
namespace {

constexpr int64_t kLeastReused = 8;                             // tokens; fewer are read again
constexpr int64_t kHeadroom = static_cast<int64_t>(kKeyBlock);  // positions for new tokens that a stream begins with
constexpr size_t kBytesWhereUnknown = size_t{1} << 30;          // if the system does not tell what memory is free

constexpr const char* kLate = "the text was not complete when the time of the request was over; ask for a shorter one";

size_t chosen_cache_bytes(size_t asked) {
  if (asked > 0) return asked;
  const size_t free = available_memory();
  return free > 0 ? free / 2 : kBytesWhereUnknown;
}

// Positions that a sequence may have within those bytes.
int64_t fitting_positions(const Engine& engine, int64_t wanted, size_t bytes) {
  const int64_t context = engine.shape().context_length;
  const int64_t most = std::min(wanted > 0 ? wanted : INT32_MAX, context > 0 ? context : INT32_MAX);  // they are 32-bit
  const auto fits = [&](int64_t positions) { return engine.decoding_cache(positions)->bytes_for(positions) <= bytes; };
  if (!fits(1))
    throw UsageError("a cache of " + bytes_text(static_cast<double>(bytes)) + " holds no sequence of " + engine.name() +
                     ", whose first " + std::to_string(kKeyBlock) + " positions take " +
                     bytes_text(static_cast<double>(engine.decoding_cache(1)->bytes_for(1))) + "; allow it more");
  int64_t low = 1, high = most;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (fits(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

// A block multiplies a row by about 12 d_model² weights, the head by vocab_size · d_model, whose results are then sorted.
int64_t cost_of_score(const ModelShape& shape) {
  return 1 + (shape.vocab_size + 3 * shape.n_layers * shape.d_model) / std::max<int64_t>(6 * shape.n_layers * shape.d_model, 1);
}

int64_t long_from(const Model& model) {
  for (int64_t layer = 0; layer < model.shape().n_layers; ++layer)
    if (const std::optional<RopeSpec> rope = model.layer(layer).rope; rope && rope->scaling == RopeSpec::Scaling::longrope)
      return static_cast<int64_t>(rope->original_context);
  return INT64_MAX;
}

void count_prompt(SchedulerStats& stats, const Stream& stream) {
  stats.prompt_tokens += static_cast<uint64_t>(stream.prompt_tokens());
  stats.cached_tokens += static_cast<uint64_t>(stream.cached_tokens);
}

}  // namespace

Running::Running(Engine& engine, const SchedulerOptions& options, Meter& meter)
    : engine_(engine),
      meter_(meter),
      most_running_(options.running),
      cache_bytes_(chosen_cache_bytes(options.cache_bytes)),
      kept_bytes_(options.kept_bytes > 0 ? std::min(options.kept_bytes, cache_bytes_) : cache_bytes_),
      cost_of_score_(cost_of_score(engine.shape())),
      cache_(engine.decoding_cache(fitting_positions(engine, options.positions, cache_bytes_))),
      prefixes_(long_from(engine.model())),
      pace_(options.prefill_rows, cache_->largest_step()) {
  if (options.clear_pages) cache_->clear_pages();
  for (const CacheLayer& layer : engine.model().cache_layers()) {
    has_windows_ |= layer.n_kv_heads > 0 && layer.window != kNoWindow;
    has_states_ |= layer.state > 0;
  }
  meter_.change([&](SchedulerStats& s) { s.cache_bytes_most = cache_bytes_; });
}

// That its text takes with a little more: at most, for what it shares with others counts too.
size_t Running::bytes_of(const Stream& stream) const {
  const int64_t soon = std::ssize(stream.sequence().text()) + kHeadroom;
  return cache_->bytes_for(std::min({positions(), stream.sequence().positions(), soon}));
}

bool Running::has_room_for(const Stream& stream) const {
  if (streams_.empty()) return true;  // positions() fit
  if (std::ssize(streams_) >= most_running_) return false;
  size_t bytes = bytes_of(stream);
  for (const auto& running : streams_) bytes += bytes_of(*running);
  return bytes <= cache_bytes_;
}

void Running::admit(std::unique_ptr<Stream> stream) {
  const Clock::time_point now = Clock::now();
  if (stream->admitted == Clock::time_point()) {
    stream->admitted = now;
    meter_.change([&](SchedulerStats& s) { s.queue_seconds.add(seconds_between(stream->submitted, now)); });
  }
  stream->begin_again(cache_->sequence());
  find_beginning(*stream);
  streams_.push_back(std::move(stream));
  end_those_over();  // it may ask for no token
}

bool Running::readmit() {
  while (!preempted_.empty() && has_room_for(*preempted_.front())) {
    std::unique_ptr<Stream> stream = std::move(preempted_.front());
    preempted_.pop_front();
    admit(std::move(stream));
  }
  return preempted_.empty();
}

// Takes what another sequence, kept or running, begins with too, or waits for one that is about to have it.
void Running::find_beginning(Stream& stream) {
  stream.waits_for = 0;
  if (stream.scores() || stream.listens()) return;  // every one of its tokens is to be seen
  const int64_t begun = stream.prompt_tokens();
  const auto text = stream.sequence().text().first(stream.sequence().text().size() - 1);  // the last one gives the next token
  PrefixCache::Found found = prefixes_.find(text, begun, stream.kind());
  int64_t coming = found.length;
  for (const auto& other : streams_) {
    if (other.get() == &stream) break;  // those before it: nobody waits for who waits for him
    if (other->listens() || other->kind() != stream.kind() || !prefixes_.as_long(other->prompt_tokens(), begun)) continue;
    const int64_t shared = alike(text, other->sequence().text()), there = std::min(shared, other->cached.length());
    if (there > found.length && other->cached.can_go_back(there)) {
      found.sequence = other->cached.beginning(there);
      found.length = there;
    }
    if (shared > other->cached.length() && shared >= std::max(coming, found.length) + kLeastReused) {
      coming = shared;
      stream.waits_for = other->ticket();
      stream.waits_until = shared;
    }
  }
  if (stream.waits_for != 0) {
    if (has_states_)
      for (const auto& other : streams_)
        if (other->ticket() == stream.waits_for) other->keep_at.push_back(coming), std::ranges::sort(other->keep_at);
    return;
  }
  if (found.length >= kLeastReused) {
    stream.cached = std::move(found.sequence);
  } else {
    found.length = 0;
  }
  // Where others left the same path, more will: a layer that cannot go back there later keeps it now.
  std::erase_if(stream.keep_at, [&](int64_t length) { return length <= found.length; });  // others may have asked for some
  if ((has_windows_ || has_states_) && found.alike >= found.length + kLeastReused) stream.keep_at.push_back(found.alike);
  if (has_states_ && begun - 1 >= found.length + kLeastReused) stream.keep_at.push_back(begun - 1);
  std::ranges::sort(stream.keep_at);
  if (!stream.reading()) return;  // it had begun before
  stream.cached_tokens = found.length;
  meter_.change([&](SchedulerStats& s) { ++(found.length > 0 ? s.prefix_hits : s.prefix_misses); });
  stream.tell_prompt();
}

bool Running::waits(Stream& stream) {
  if (stream.waits_for == 0) return false;
  for (const auto& other : streams_)
    if (other->ticket() == stream.waits_for && !other->over() && other->cached.length() < stream.waits_until) return true;
  find_beginning(stream);
  return stream.waits_for != 0;
}

void Running::turn_away(std::unique_ptr<Stream> stream) {
  stream->cancel();
  end(std::move(stream));
}

void Running::turn_away_late(std::unique_ptr<Stream> stream) {
  stream->fail(std::make_exception_ptr(DeadlineError(kLate)));
  end(std::move(stream));
}

void Running::cancel(uint64_t ticket) {
  for (auto& stream : streams_)
    if (stream->ticket() == ticket) stream->cancel();
  for (auto& stream : preempted_)
    if (stream->ticket() == ticket) stream->cancel();
  end_those_over();
}

void Running::cancel_all() {
  for (auto& stream : streams_) stream->cancel();
  for (auto& stream : preempted_) stream->cancel();
  end_those_over();
}

void Running::fail_all(const std::exception_ptr& error) {
  for (auto& stream : streams_) stream->fail(error);
  for (auto& stream : preempted_) stream->fail(error);
  end_those_over();
}

int64_t Running::of(const std::string& owner) const {
  const auto is_its = [&](const auto& stream) { return stream->owner() == owner; };
  return std::ranges::count_if(streams_, is_its) + std::ranges::count_if(preempted_, is_its);
}

void Running::end_late(Clock::time_point now) {
  bool any = false;
  const auto look = [&](auto& streams) {
    for (auto& stream : streams) {
      if (now < stream->deadline()) continue;
      stream->fail(std::make_exception_ptr(DeadlineError(kLate)));
      any = true;
    }
  };
  look(streams_);
  look(preempted_);
  if (any) end_those_over();
}

bool Running::choose_for_holders() {
  bool any = false;
  for (auto& stream : streams_) {
    if (!stream->holds() || stream->over() || !stream->sequence().ready({})) continue;
    Piece piece(stream.get(), 0);
    choose_held(piece);
    after(piece, Clock::now());
    any = true;
  }
  return any;
}

bool Running::step() {
  const bool chose = choose_for_holders();
  std::vector<Piece> pieces = plan();
  make_room(pieces);
  if (pieces.empty()) {
    end_those_over();
    return chose;
  }
  int64_t decoding = 0, prompt_rows = 0, prompt_cost = 0, rows = 0;
  for (const Piece& piece : pieces) {
    keep_before_forgotten(piece);
    rows += piece.rows();
    if (piece.tokens > 1)
      prompt_rows += piece.tokens, prompt_cost += piece.tokens * cost_of(*piece.stream);
    else
      ++decoding;
  }
  const Clock::time_point began = Clock::now();
  run_mixed_step(engine_, pieces);
  const Clock::time_point now = Clock::now();
  const double seconds = seconds_between(began, now);
  if (rows == decoding + prompt_rows && !listened_)
    pace_.saw(decoding, prompt_cost, 1e3 * seconds);  // drafts and listeners are not ordinary
  meter_.change([&](SchedulerStats& s) {
    ++s.steps;
    (prompt_rows > 0 ? s.prompt_seconds : s.decode_seconds) += seconds;
    s.step_seconds.add(seconds);
    s.step_streams.add(static_cast<double>(pieces.size()));
    s.step_rows.add(static_cast<double>(rows));
  });
  for (Piece& piece : pieces) {
    shares_.had(piece.stream->owner(), seconds * static_cast<double>(piece.rows()) / static_cast<double>(rows));
    after(piece, now);
  }
  end_those_over();
  return true;
}

void Running::after(Piece& piece, Clock::time_point now) {
  Stream& stream = *piece.stream;
  if (piece.error != nullptr) {
    stream.cached = cache_->sequence();  // what it holds may be what went wrong
    return stream.fail(piece.error);
  }
  const int64_t length = stream.cached.length();
  while (!stream.keep_at.empty() && stream.keep_at.front() <= length) {
    if (stream.keep_at.front() == length)
      prefixes_.keep(stream.sequence().text().first(static_cast<size_t>(length)), stream.cached, stream.kind());
    stream.keep_at.erase(stream.keep_at.begin());
  }
  const int64_t drafted = std::ssize(piece.drafts), accepted = piece.counted - piece.tokens;
  stream.sequence().timings().drafted_tokens += drafted;
  stream.sequence().timings().accepted_tokens += accepted;
  const bool first = stream.last_token == Clock::time_point();
  if (first) stream.tell_prompt();
  if (stream.scores()) stream.tell_scores(std::move(piece.scores));
  meter_.change([&](SchedulerStats& s) {
    s.drafted_tokens += static_cast<uint64_t>(drafted);
    s.accepted_tokens += static_cast<uint64_t>(accepted);
    s.drafts += drafted > 0 ? 1 : 0;
    s.longest_stream = std::max<int64_t>(s.longest_stream, std::ssize(stream.sequence().text()));
    s.new_tokens += piece.made.size();
    if (piece.made.empty()) return;
    if (first) {
      s.first_token_seconds.add(seconds_between(stream.submitted, now));
      count_prompt(s, stream);
    } else {
      s.between_tokens_seconds.add(seconds_between(stream.last_token, now));
    }
  });
  for (TokenEvent& event : piece.made) stream.tell(std::move(event), now);
}

void Running::end_those_over() {
  std::vector<std::unique_ptr<Stream>> over;
  const auto move_over = [&](auto& from) {
    std::erase_if(from, [&](std::unique_ptr<Stream>& stream) {
      if (!stream->over()) return false;
      over.push_back(std::move(stream));
      return true;
    });
  };
  move_over(streams_);
  move_over(preempted_);
  for (auto& stream : over) end(std::move(stream));
  while (cache_->bytes_in_use() > kept_bytes_ && prefixes_.forget_one()) {
  }
  publish();
}

void Running::end(std::unique_ptr<Stream> stream) {
  if (stream->scores() && stream->sequence().done()) stream->tell_scores({});  // of a prompt of one token
  if (const int64_t length = stream->cached.length(); length >= kLeastReused && !stream->listens())
    prefixes_.keep(stream->sequence().text().first(static_cast<size_t>(length)), std::move(stream->cached), stream->kind());
  stream->tell_ended();
  const double seconds = seconds_between(stream->submitted, Clock::now());
  meter_.change([&](SchedulerStats& s) {
    switch (stream->end()) {
      case End::stop: ++s.stopped; break;
      case End::length: ++s.length; break;
      case End::cancelled: ++s.cancelled; break;
      case End::failed: ++s.failed; break;
    }
    const bool complete = stream->end() == End::stop || stream->end() == End::length;
    if (complete && stream->reading()) count_prompt(s, *stream);  // no token came behind it
    s.stream_seconds.add(seconds);
  });
}

void Running::publish() {
  const Clock::time_point now = Clock::now();
  meter_.change([&](SchedulerStats& s) {
    s.running = std::ssize(streams_);
    s.reading = std::ranges::count_if(streams_, [](const auto& stream) { return stream->reading(); });
    s.cache_bytes = cache_->bytes_in_use();
    s.prefixes = prefixes_.sequences();
    s.prefix_tokens = prefixes_.tokens();
    s.prefix_evictions = prefixes_.forgotten();
    s.streams.resize(streams_.size());
    for (size_t i = 0; i < streams_.size(); ++i) {
      const Stream& stream = *streams_[i];
      StreamStats& told = s.streams[i];
      if (told.ticket != stream.ticket()) told.owner = stream.owner();
      told.ticket = stream.ticket();
      told.prompt_tokens = stream.prompt_tokens();
      told.cached_tokens = stream.cached_tokens;
      told.read_tokens = std::min(stream.cached.length(), stream.prompt_tokens());
      told.new_tokens = std::ssize(stream.sequence().made().tokens);
      told.most_tokens = told.new_tokens + stream.sequence().room_left();
      told.seconds = seconds_between(stream.submitted, now);
    }
  });
}

}  // namespace vitrine
