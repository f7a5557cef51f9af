// What goes into a step: which streams, how much of each, and whose cache makes room for it.
#include <algorithm>
#include <utility>

#include "base/merge_sort.h"
#include "kernels/table.h"
#include "schedule/running.h"

namespace vitrine {

// Of reading one of its tokens, in tokens of a prompt that is only read.
int64_t Running::cost_of(const Stream& stream) const { return stream.scores() ? cost_of_score_ : 1; }

// Those that can go on, of owners who have not had more than their share.
std::vector<Stream*> Running::whose_turn() {
  std::vector<Stream*> can;
  std::vector<std::string_view> owners;
  for (auto& stream : streams_) {
    if (stream->holds() || stream->over() || (!stream->listens() && waits(*stream))) continue;
    can.push_back(stream.get());
    if (owners.empty() || owners.back() != stream->owner()) owners.push_back(stream->owner());
  }
  shares_.keep(std::move(owners));
  std::erase_if(can, [&](const Stream* stream) { return !shares_.may_run(stream->owner()); });
  return can;
}

std::vector<Piece> Running::plan() {
  std::vector<Piece> pieces;
  std::vector<Stream*> readers, listening;
  for (Stream* const stream : whose_turn()) {
    if (stream->listens())
      listening.push_back(stream);
    else if (stream->left() == 1)
      pieces.emplace_back(stream, 1);
    else
      readers.push_back(stream);
  }
  const int64_t decoding = std::ssize(pieces);
  if (Stream* const alone = turn_of(listening, decoding + std::ssize(readers))) {
    pieces.clear();
    if (alone->left() == 1)
      pieces.emplace_back(alone, 1);
    else
      add_readers(pieces, {alone}, pace_.prompt_rows(decoding));
  } else if (readers.empty())
    add_drafts(pieces);
  else
    add_readers(pieces, std::move(readers), pace_.prompt_rows(decoding));
  std::erase_if(pieces, [](const Piece& piece) { return piece.stream->over(); });  // its drafter failed
  return pieces;
}

// The one that has this step alone; null: the others have it, which they do every other time if there are any.
Stream* Running::turn_of(std::span<Stream* const> listening, int64_t others) {
  listened_ = !listening.empty() && (others == 0 || !listened_);
  if (!listened_) return nullptr;
  const auto next = std::ranges::find_if(listening, [&](const Stream* stream) { return stream->ticket() > listened_last_; });
  Stream* const stream = next != listening.end() ? *next : listening.front();
  listened_last_ = stream->ticket();
  return stream;
}

// Of the rows, half or more go to the one that was admitted first, so that it gets on, the others to those with the least left,
// so that short prompts do not wait for long ones.
void Running::add_readers(std::vector<Piece>& pieces, std::vector<Stream*> readers, int64_t rows) {
  std::vector<int64_t> share(readers.size());
  const auto give = [&](size_t i, int64_t most) {
    if (most <= 0) return;
    const int64_t cost = cost_of(*readers[i]), given = std::min(std::max<int64_t>(most / cost, 1), readers[i]->left() - share[i]);
    share[i] += given;
    rows -= given * cost;
  };
  give(0, (rows + 1) / 2);
  std::vector<size_t> shortest(readers.size());
  for (size_t i = 0; i < readers.size(); ++i) shortest[i] = i;
  merge_sort(shortest, [&](size_t a, size_t b) { return readers[a]->left() < readers[b]->left(); });
  for (const size_t i : shortest) give(i, rows);
  for (size_t i = 0; i < readers.size(); ++i) {
    const Stream& stream = *readers[i];
    const int64_t length = stream.cached.length();
    int64_t tokens = std::min(share[i], cache_->largest_step());
    if (length == 0)
      tokens = std::min(tokens, stream.prompt_tokens());  // a sequence begins with its prompt (StepSequence::begun)
    if (!stream.keep_at.empty() && stream.keep_at.front() > length) tokens = std::min(tokens, stream.keep_at.front() - length);
    if (tokens > 0) pieces.emplace_back(readers[i], tokens);
  }
}

// Rows that cost next to nothing: with up to kFewRows of them the weights are read once, and that is what takes time.
void Running::add_drafts(std::vector<Piece>& pieces) {
  const auto few = static_cast<int64_t>(kFewRows);
  int64_t free = few - std::ssize(pieces), drafting = 0;
  const auto drafts = [&](const Piece& piece) {
    const auto& drafter = piece.stream->sequence().options().drafter;
    return drafter != nullptr && !piece.stream->reading() && std::ssize(pieces) <= drafter->most_texts();
  };
  for (const Piece& piece : pieces) drafting += drafts(piece);
  for (Piece& piece : pieces) {
    if (free <= 0 || drafting <= 0) return;
    const TokenSequence& sequence = piece.stream->sequence();
    if (!drafts(piece)) continue;
    const int64_t share = (free + drafting - 1) / drafting;
    --drafting;
    const int64_t most = std::min({share, kMostDrafts, sequence.room_left() - 1});
    if (most > 0) {
      try {
        piece.drafts = sequence.options().drafter->draft(sequence.text(), most);
      } catch (...) {
        piece.stream->fail(std::current_exception());
      }
    }
    free -= std::ssize(piece.drafts);
  }
}

// Kept prefixes make room first, the one used the longest ago before others; then the streams that were admitted last.
void Running::make_room(std::vector<Piece>& pieces) {
  const auto needed = [&] {
    size_t bytes = cache_->bytes_in_use();
    for (const Piece& piece : pieces) bytes += piece.stream->cached.bytes_to_add(piece.rows());
    return bytes;
  };
  while (needed() > kept_bytes_ && prefixes_.forget_one()) {
  }
  while (needed() > cache_bytes_ && streams_.size() > 1) {
    const Stream* const last = streams_.back().get();
    std::erase_if(pieces, [&](const Piece& piece) { return piece.stream == last; });
    preempt_last();
  }
  if (cache_->bytes() > cache_bytes_) cache_->trim();
}

void Running::preempt_last() {
  std::unique_ptr<Stream> stream = std::move(streams_.back());
  streams_.pop_back();
  stream->begin_again(cache_->sequence());
  preempted_.push_front(std::move(stream));
  meter_.change([](SchedulerStats& s) { ++s.preempted; });
}

// The end of the prompt is where the next prompt of a conversation may leave this text. Layers with a window keep it until they
// need its pages for what comes.
void Running::keep_before_forgotten(const Piece& piece) {
  const Stream& stream = *piece.stream;
  const int64_t prompt = stream.prompt_tokens();
  if (stream.listens() || !has_windows_ || has_states_ || stream.cached.length() <= prompt || !stream.cached.can_go_back(prompt))
    return;
  if (!stream.cached.can_go_back(prompt, piece.rows()))
    prefixes_.keep(stream.sequence().prompt(), stream.cached.beginning(prompt), stream.kind());
}

}  // namespace vitrine
