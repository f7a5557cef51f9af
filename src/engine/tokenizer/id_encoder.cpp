#include "tokenizer/id_encoder.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <exception>

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
struct Task {
  std::vector<AddedSpan> spans;
  std::exception_ptr failure;
  int thread = 0;  // whose list holds the ids
  size_t first = 0, count = 0;
};

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
  constexpr size_t kTask = 1 << 18;
  std::vector<Task> tasks;
  size_t bytes = kTask;  // in the last task
  const auto add = [&](const AddedSpan& s) {
    if (bytes >= kTask) {
      tasks.emplace_back();
      bytes = 0;
    }
    tasks.back().spans.push_back(s);
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

}  // namespace

void encode_spans(const WordModel& model, RawWords words, std::string_view text, std::span<const AddedSpan> spans,
                  ThreadPool* pool, std::vector<int32_t>& out) {
  constexpr size_t kShared = 1 << 19;  // a shorter text is done before other threads have woken
  constexpr size_t kBytesPerToken = 4;
  if (pool == nullptr || pool->threads() == 1 || text.size() < kShared) {
    reserve(out, out.size() + text.size() / kBytesPerToken + spans.size());
    IdEncoder encoder(model, words);
    return encode_on_one_thread(encoder, text, spans, out);
  }
  std::vector<Task> tasks = share_out(model, words, text, spans);
  struct Worker {
    IdEncoder encoder;
    std::vector<int32_t> ids;
  };
  std::vector<Worker> workers;
  workers.reserve(static_cast<size_t>(pool->threads()));
  for (int i = 0; i < pool->threads(); ++i) workers.push_back({IdEncoder(model, words), {}});
  const size_t share = text.size() / kBytesPerToken / workers.size();
  pool->run(int64_t(tasks.size()), [&](int64_t i, int thread) {
    Task& task = tasks[size_t(i)];
    Worker& worker = workers[size_t(thread)];
    task.thread = thread;
    try {
      reserve(worker.ids, share + share / 4);
      task.first = worker.ids.size();
      encode_on_one_thread(worker.encoder, text, task.spans, worker.ids);
      task.count = worker.ids.size() - task.first;
    } catch (...) {
      task.failure = std::current_exception();
    }
  });
  size_t count = out.size();
  for (const Task& task : tasks) {
    if (task.failure != nullptr) std::rethrow_exception(task.failure);
    count += task.count;
  }
  reserve(out, count);
  for (const Task& task : tasks) {
    const auto from = workers[size_t(task.thread)].ids.begin() + ptrdiff_t(task.first);
    out.insert(out.end(), from, from + ptrdiff_t(task.count));
  }
}

}  // namespace vitrine
