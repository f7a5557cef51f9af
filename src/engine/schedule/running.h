#pragma once
// The streams that run, with what they share: the cache of keys and values, the prefixes kept in it, the pace of steps.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/engine.h"
#include "schedule/kept_sequences.h"
#include "schedule/meter.h"
#include "schedule/mixed_step.h"
#include "schedule/pace.h"
#include "schedule/prefix_cache.h"
#include "schedule/scheduler.h"
#include "schedule/shares.h"
#include "schedule/stream.h"

namespace vitrine {

/// Belongs to one thread, the engine's.
class Running {
 public:
  /// Errors: UsageError for options out of range.
  Running(Engine& engine, const SchedulerOptions& options, Meter& meter);

  bool empty() const { return streams_.empty() && preempted_.empty(); }
  /// Positions of a sequence at most.
  int64_t positions() const { return cache_->context(); }

  KeptSequences kept() { return {engine_, *cache_, prefixes_, kept_bytes_}; }

  /// Streams that may begin if the cache has room.
  int64_t places() const { return preempted_.empty() ? std::max<int64_t>(most_running_ - std::ssize(streams_), 0) : 0; }
  /// Whether another stream may begin: one fewer runs than may, and the cache has room for this one's text and a little more.
  bool has_room_for(const Stream& stream) const;
  void admit(std::unique_ptr<Stream> stream);
  /// Those that gave their cache back begin again, before others are admitted. False if some of them still wait.
  bool readmit();

  /// Ends one that was not admitted.
  void turn_away(std::unique_ptr<Stream> stream);
  void turn_away_late(std::unique_ptr<Stream> stream);
  void cancel(uint64_t ticket);
  void cancel_all();
  void fail_all(const std::exception_ptr& error);

  /// Streams of this owner.
  int64_t of(const std::string& owner) const;
  /// Ends those whose deadline has passed.
  void end_late(Clock::time_point now);

  /// One step, and what follows from it; ends those that are over. False: every stream waits for its constraint.
  bool step();

 private:
  size_t bytes_of(const Stream& stream) const;
  int64_t cost_of(const Stream& stream) const;
  void find_beginning(Stream& stream);
  bool waits(Stream& stream);
  bool choose_for_holders();
  std::vector<Stream*> whose_turn();
  std::vector<Piece> plan();
  Stream* turn_of(std::span<Stream* const> listening, int64_t others);
  void add_readers(std::vector<Piece>& pieces, std::vector<Stream*> readers, int64_t rows);
  void add_drafts(std::vector<Piece>& pieces);
  void make_room(std::vector<Piece>& pieces);
  void preempt_last();
  void keep_before_forgotten(const Piece& piece);
  void after(Piece& piece, Clock::time_point now);
  void end_those_over();
  void end(std::unique_ptr<Stream> stream);
  void publish();

  Engine& engine_;
  Meter& meter_;
  int64_t most_running_;
  size_t cache_bytes_, kept_bytes_;
  int64_t cost_of_score_;  // of a token whose logits are wanted, in tokens that are only read
  bool has_windows_ = false, has_states_ = false;
  std::unique_ptr<KvCache> cache_;  // outlives the sequences in it
  PrefixCache prefixes_;
  Pace pace_;
  Shares shares_;                                  // of owners
  std::vector<std::unique_ptr<Stream>> streams_;   // in the order they were admitted
  std::deque<std::unique_ptr<Stream>> preempted_;  // which gave their cache back
  bool listened_ = false;                          // the last step was one of a stream that listens
  uint64_t listened_last_ = 0;                     // the ticket of the last of them that had a step
};

}  // namespace vitrine
