#include "train/continuation.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "generate/sampler.h"

namespace vitrine {
namespace {

struct Stream {
  std::vector<int32_t> prompt, drawn;
  size_t room = 0;   // tokens to draw
  uint64_t row = 0;  // where the sequence began, among the rows of all ranks
  CacheSequence cache;
};

}  // namespace

Batch continued_by(Engine& engine, const Batch& batch, const DistillOptions& options, uint64_t seed, uint64_t number) {
  Context& ctx = engine.context();
  const std::vector<int32_t> ends = engine.end_tokens();
  const auto words = philox(seed, number, 0x6f6e);  // apart from the values that dropout and the order of the data draw
  SamplingOptions sampling;
  sampling.temperature = options.sample_temperature;
  sampling.seed = uint64_t{words[0]} << 32 | words[1];
  Sampler sampler(sampling, engine.shape().vocab_size);

  Batch result;
  result.sampled = true;
  result.first_row = batch.first_row;
  if (batch.lengths.empty()) return result;
  const std::unique_ptr<KvCache> cache = engine.make_cache(*std::max_element(batch.lengths.begin(), batch.lengths.end()));
  std::vector<Stream> streams;  // after the cache, to which their pages go back
  size_t row = 0;
  for (const int64_t length : batch.lengths) {
    const auto n = static_cast<size_t>(length);
    const auto kept = std::max<size_t>(1, static_cast<size_t>(std::floor(options.prompt * static_cast<double>(n))));
    const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(row);
    if (n > kept)
      streams.push_back({{begin, begin + static_cast<std::ptrdiff_t>(kept)}, {}, n - kept, batch.first_row + row, {}});
    row += n;
  }
  if (streams.empty()) return result;

  const auto draw = [&](size_t s, const float* logits) {
    Stream& stream = streams[s];
    const auto vocab = static_cast<size_t>(engine.shape().vocab_size);
    stream.drawn.push_back(sampler.pick({logits, vocab}, stream.prompt, stream.drawn, stream.row).token);
    if (std::find(ends.begin(), ends.end(), stream.drawn.back()) != ends.end()) stream.room = stream.drawn.size();
  };
  for (size_t s = 0; s < streams.size(); ++s) {
    const auto frame = ctx.frame();
    streams[s].cache = cache->sequence();
    draw(s, engine.prefill(streams[s].prompt, streams[s].cache).data<float>());
  }
  while (true) {  // all streams a token further, in one step
    Step step;
    std::vector<size_t> running;
    std::vector<int64_t> rows;
    for (size_t s = 0; s < streams.size(); ++s) {
      if (streams[s].drawn.size() >= streams[s].room) continue;
      step.add(std::span(&streams[s].drawn.back(), 1), &streams[s].cache);
      rows.push_back(static_cast<int64_t>(running.size()));
      running.push_back(s);
    }
    if (running.empty()) break;
    const auto frame = ctx.frame();
    const Tensor z = engine.run(step, rows);
    step.commit();
    for (size_t i = 0; i < running.size(); ++i) draw(running[i], z.row<float>(static_cast<int64_t>(i)));
  }

  for (const Stream& stream : streams) {
    std::vector<int32_t> all = stream.prompt;
    all.insert(all.end(), stream.drawn.begin(), stream.drawn.end());
    result.tokens.insert(result.tokens.end(), all.begin(), all.end());
    result.lengths.push_back(static_cast<int64_t>(all.size()));
    for (size_t i = 0; i < all.size(); ++i)
      result.labels.push_back(i + 1 < stream.prompt.size() || i + 1 == all.size() ? kNotScored : all[i + 1]);
  }
  return result;
}

}  // namespace vitrine
