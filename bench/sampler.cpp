// What choosing the next token costs: one row of logits through the sampler, under rules that are often asked for.
//   bench_sampler [VOCABULARY]
#include "generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/stopwatch.h"

using namespace vitrine;

namespace {

// A row as a model gives it: most scores in a bell, a few far above.
std::vector<float> logits_of(size_t n, uint32_t seed) {
  std::vector<float> row(n);
  uint32_t state = seed;
  const auto uniform = [&] { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24f; };
  for (float& x : row) x = 2.5f * (uniform() + uniform() + uniform() + uniform() - 2.0f) - 4.0f;
  for (int i = 0; i < 40; ++i) row[static_cast<size_t>(uniform() * static_cast<float>(n - 1))] = 4.0f + 8.0f * uniform();
  return row;
}

void report(const char* name, const SamplingOptions& options, size_t vocabulary) {
  Sampler sampler(options, static_cast<int64_t>(vocabulary));
  std::vector<std::vector<float>> rows;
  for (uint32_t seed = 1; seed <= 8; ++seed) rows.push_back(logits_of(vocabulary, seed));
  std::vector<int32_t> generated;
  std::vector<double> taken;
  for (size_t call = 0; call < 200; ++call) {
    const Stopwatch clock;
    generated.push_back(sampler.pick(rows[call % rows.size()], {}, generated).token);
    taken.push_back(clock.ms());
  }
  std::nth_element(taken.begin(), taken.begin() + 100, taken.end());
  std::printf("%-48s %8.0f us\n", name, 1000 * taken[100]);
}

}  // namespace

int main(int argc, char** argv) {
  const size_t vocabulary = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 256000;
  report("greedy", {}, vocabulary);
  report("greedy, repetition penalty 1.1", {.repetition_penalty = 1.1}, vocabulary);
  report("temperature 0.8", {.temperature = 0.8}, vocabulary);
  report("temperature 0.8, top-k 40", {.temperature = 0.8, .top_k = 40}, vocabulary);
  report("temperature 0.8, top-p 0.95", {.temperature = 0.8, .top_p = 0.95}, vocabulary);
  report("temperature 0.8, top-k 40, top-p 0.95", {.temperature = 0.8, .top_k = 40, .top_p = 0.95}, vocabulary);
  report("temperature 0.8, min-p 0.05", {.temperature = 0.8, .min_p = 0.05}, vocabulary);
  report("temperature 0.8, top-n-sigma 1", {.temperature = 0.8, .top_n_sigma = 1}, vocabulary);
  report("temperature 0.8, XTC 0.5", {.temperature = 0.8, .xtc_probability = 0.5}, vocabulary);
  report("temperature 0.8, Mirostat 1", {.temperature = 0.8, .mirostat = 1}, vocabulary);
  report("temperature 0.8, Mirostat 2", {.temperature = 0.8, .mirostat = 2}, vocabulary);
  report("greedy, DRY 0.8", {.dry_multiplier = 0.8}, vocabulary);
}
