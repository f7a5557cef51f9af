#include "tokenizer/id_encoder.h"

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "tokenizer/byte_level.h"
#include "tokenizer/gpt2_words.h"

namespace vitrine {

size_t IdEncoder::safe_cut(const WordModel& model, RawWords words, std::string_view text, size_t from, size_t limit) {
  if (words == RawWords::byte_level) return gpt2_safe_cut(text, from, limit);
  for (size_t at = std::min(limit, text.size() - 1); at > from; --at)
    if (model.pair_cuts()->between(text[at - 1], text[at])) return at;
  return 0;
}

void IdEncoder::encode(std::string_view text, std::vector<int32_t>& out) {
  constexpr size_t kPart = 1 << 14;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = 0;
    for (size_t most = kPart; end == 0; most *= 2)
      end = text.size() - begin <= most ? text.size() : safe_cut(model_, words_, text, begin, begin + most);
    ids_.clear();
    cache_.refresh();
    encode_part(text.substr(begin, end - begin), text);
    out.insert(out.end(), ids_.data(), ids_.data() + ids_.size());
    begin = end;
  }
}

void IdEncoder::encode_part(std::string_view part, std::string_view whole) {
  const auto look_up = [&](size_t begin, size_t end) {
    cache_.append(part.substr(begin, end - begin), whole, ids_, [this](std::string_view word, IdList& ids) { merge(word, ids); });
  };
  if (words_ == RawWords::byte_level) {
    each_gpt2_word(part, starts_, look_up);
  } else {
    model_.pair_cuts()->each_word(part, look_up);
  }
}

void IdEncoder::merge(std::string_view word, IdList& ids) {
  spelled_.clear();
  if (words_ == RawWords::byte_level) {
    for (const char c : word) spelled_ += byte_level_alphabet()[static_cast<unsigned char>(c)];
  } else {
    for (const char c : word) {
      if (c == ' ') {
        spelled_ += kWordMarker;
      } else {
        spelled_ += c;
      }
    }
  }
  tokens_.clear();
  model_.encode(spelled_, scratch_, tokens_);
  int32_t* to = ids.room(tokens_.size());
  for (const WordToken& t : tokens_) *to++ = t.id;
  ids.used(tokens_.size());
}

namespace {

// A part of the text that one thread encodes: spans, of which only a long one is shared among parts.
using Task = std::vector<AddedSpan>;

// Room for so many ids, in huge pages where the system has them: the first touch of each small page of a fresh list costs as much
// as the ids in it.
void reserve(std::vector<int32_t>& ids, size_t count) {
  constexpr size_t kPage = 4096;
  if (count <= ids.capacity()) return;
  ids.reserve(count);
  auto* const data = reinterpret_cast<std::byte*>(ids.data());
  const size_t to_page = (kPage - reinterpret_cast<uintptr_t>(data) % kPage) % kPage, bytes = count * sizeof(int32_t);
  const size_t pages = bytes > to_page ? (bytes - to_page) / kPage * kPage : 0;
  if (pages > 0) static_cast<void>(::madvise(data + to_page, pages, MADV_HUGEPAGE));
}

std::vector<Task> share_out(const WordModel& model, RawWords words, std::string_view text, std::span<const AddedSpan> spans) {
  constexpr size_t kTask = 1 << 16;
  std::vector<Task> tasks;
  size_t bytes = kTask;  // in the last task
  const auto add = [&](const AddedSpan& s) {
    if (bytes >= kTask) {
      tasks.emplace_back();
      bytes = 0;
    }
    tasks.back().push_back(s);
    bytes += s.end - s.begin;
  };
  for (const AddedSpan& s : spans) {
    if (s.id >= 0) {
      add(s);
      continue;
    }
    for (size_t begin = s.begin; begin < s.end;) {
      size_t end = 0;
      for (size_t most = kTask; end == 0; most *= 2)
        end = s.end - begin <= most ? s.end : IdEncoder::safe_cut(model, words, text.substr(0, s.end), begin, begin + most);
      add({begin, end, -1});
      begin = end;
    }
  }
  return tasks;
}

void encode_on_one_thread(IdEncoder& encoder, std::string_view text, std::span<const AddedSpan> spans,
                          std::vector<int32_t>& out) {
  for (const AddedSpan& s : spans) {
    if (s.id >= 0) {
      out.push_back(s.id);
    } else {
      encoder.encode(text.substr(s.begin, s.end - s.begin), out);
    }
  }
}

// Joins the ids of tasks in their order while others are still at work: whoever has finished the next one appends it, and those
// behind it that are finished, too. So few lists are in use at a time, small enough to stay near the processors.
class JoinedIds {
 public:
  JoinedIds(size_t tasks, std::vector<int32_t>& out) : done_(tasks), out_(out) {}

  /// An empty list.
  std::vector<int32_t> list() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    std::vector<int32_t> ids = std::move(free_.back());
    free_.pop_back();
    ids.clear();
    return ids;
  }
  void add(size_t task, std::vector<int32_t> ids) {
    std::unique_lock lock(mutex_);
    done_[task] = std::move(ids);
    if (joining_) return;
    joining_ = true;
    while (next_ < done_.size() && done_[next_]) {
      std::vector<int32_t> part = *std::exchange(done_[next_++], std::nullopt);
      lock.unlock();
      out_.insert(out_.end(), part.begin(), part.end());
      lock.lock();
      free_.push_back(std::move(part));
    }
    joining_ = false;
  }
  void fail(size_t task, std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == nullptr || task < failed_task_) failure_ = std::move(failure), failed_task_ = task;
  }
  /// Throws what the first task that failed has thrown.
  void check() const {
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::optional<std::vector<int32_t>>> done_;
  std::vector<std::vector<int32_t>> free_;
  std::vector<int32_t>& out_;
  size_t next_ = 0;
  bool joining_ = false;  // one thread at a time, outside the lock
  std::exception_ptr failure_;
  size_t failed_task_ = 0;
};

}  // namespace

void encode_spans(const WordModel& model, RawWords words, std::string_view text, std::span<const AddedSpan> spans,
                  ThreadPool* pool, std::vector<int32_t>& out) {
  constexpr size_t kSeveral = 1 << 19;  // a shorter text is done before other threads have woken
  constexpr size_t kBytesPerToken = 4;
  reserve(out, out.size() + text.size() / kBytesPerToken + spans.size());
  SharedIds shared(text.size());
  if (pool == nullptr || pool->threads() == 1 || text.size() < kSeveral) {
    IdEncoder encoder(model, words, shared);
    return encode_on_one_thread(encoder, text, spans, out);
  }
  const std::vector<Task> tasks = share_out(model, words, text, spans);
  JoinedIds joined(tasks.size(), out);
  std::atomic<size_t> next{0};  // tasks are begun in order, so that few wait for one before them
  pool->run(pool->threads(), [&](int64_t, int) {
    size_t task = 0;
    try {
      IdEncoder encoder(model, words, shared);
      while ((task = next.fetch_add(1)) < tasks.size()) {
        std::vector<int32_t> ids = joined.list();
        encode_on_one_thread(encoder, text, tasks[task], ids);
        joined.add(task, std::move(ids));
      }
    } catch (...) {
      joined.fail(task, std::current_exception());
    }
  });
  joined.check();
}

}  // namespace vitrine
