#include "generate/together.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/error.h"

namespace vitrine {
namespace {

struct Stream {
  Stream(const Engine& engine, const std::vector<int32_t>& prompt, const GenerateOptions& options)
      : sequence(engine, prompt, options) {}
  TokenSequence sequence;
  CacheSequence cached;
};

// One step: what each of them has pending, and a token from its logits.
void next_tokens(Engine& engine, std::span<Stream* const> streams) {
  const auto frame = engine.context().frame();
  Step step;
  std::vector<int64_t> last;
  Tensor z;
  if (streams.size() == 1) {  // which may be longer than a step
    z = engine.prefill(streams[0]->sequence.pending(), streams[0]->cached);
  } else {
    for (Stream* stream : streams) {
      step.add(stream->sequence.pending(), &stream->cached);
      last.push_back(step.rows() - 1);
    }
    z = engine.run(step, last);
    step.commit();
  }
  for (size_t i = 0; i < streams.size(); ++i)
    streams[i]->sequence.push({z.row<float>(static_cast<int64_t>(i)), static_cast<size_t>(z.row_size())});
}

// Prompts, in groups that fit a step.
void read_prompts(Engine& engine, std::span<Stream* const> streams) {
  for (size_t first = 0; first < streams.size();) {
    size_t end = first;
    int64_t rows = 0;
    const auto fits = [&](const Stream& s) { return rows + std::ssize(s.sequence.pending()) <= kPrefillChunk; };
    while (end < streams.size() && (end == first || fits(*streams[end]))) rows += std::ssize(streams[end++]->sequence.pending());
    next_tokens(engine, streams.subspan(first, end - first));
    first = end;
  }
}

}  // namespace

std::vector<Generation> generate_together(Engine& engine, std::span<const std::vector<int32_t>> prompts,
                                          const GenerateOptions& options) {
  if (options.drafter != nullptr) throw UsageError("a drafter follows one text; continue prompts with one by themselves");
  std::unique_ptr<KvCache> cache;  // outlives the sequences in it
  std::vector<std::unique_ptr<Stream>> streams;
  int64_t positions = 1;
  for (size_t i = 0; i < prompts.size(); ++i) {
    try {
      streams.push_back(std::make_unique<Stream>(engine, prompts[i], options));
    } catch (const InputError& e) {
      if (prompts.size() == 1) throw;
      throw InputError("prompt " + std::to_string(i) + ": " + e.what());
    }
    positions = std::max(positions, streams.back()->sequence.positions());
  }
  cache = engine.decoding_cache(positions);
  std::vector<Stream*> live;
  const auto drop_done = [&] {
    std::erase_if(live, [](Stream* stream) {
      const bool done = stream->sequence.done();
      if (done) stream->cached = CacheSequence();
      return done;
    });
  };
  for (size_t next = 0; next < streams.size() || !live.empty();) {
    const size_t running = live.size();
    for (; next < streams.size() && live.size() < kDecodedTogether; ++next) {
      if (streams[next]->sequence.done()) continue;  // no token was asked for
      streams[next]->cached = cache->sequence();
      live.push_back(streams[next].get());
    }
    if (running > 0) next_tokens(engine, std::span(live).first(running));
    read_prompts(engine, std::span(live).subspan(running));
    drop_done();
  }
  std::vector<Generation> made;
  for (auto& stream : streams) made.push_back(std::move(stream->sequence).take());
  return made;
}

}  // namespace vitrine
