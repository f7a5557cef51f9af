#include "train/ema.h"

#include <algorithm>
#include <cstring>

namespace vitrine {

Ema::Ema(std::unique_ptr<Model> model, const Parameters& learned, double decay)
    : model_(std::move(model)), learned_(learned), averaged_(*model_, Parameters::Grads::none), decay_(decay) {
  VITRINE_CHECK(averaged_.size() == learned.size(), "the averaged model has the learner's parameters");
  std::memcpy(averaged_.weights(), learned.weights(), learned.size() * sizeof(float));
}

void Ema::update(ThreadPool& pool) {
  constexpr size_t kChunk = size_t{1} << 15;
  const auto share = static_cast<float>(1 - decay_);
  pool.run(static_cast<int64_t>((learned_.size() + kChunk - 1) / kChunk), [&](int64_t chunk, int) {
    const size_t begin = static_cast<size_t>(chunk) * kChunk, n = std::min(kChunk, learned_.size() - begin);
    float* const e = averaged_.weights() + begin;
    const float* const w = learned_.weights() + begin;
    for (size_t i = 0; i < n; ++i) e[i] += share * (w[i] - e[i]);
  });
}

}  // namespace vitrine
