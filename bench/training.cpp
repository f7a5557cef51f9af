// Time of one training step, by the path that `vitrine train` takes: forward, backward, clipping, the optimizer; its share of
// this machine's peak, and memory.
//   bench_training MODEL_DIRECTORY [--batch N] [--length N] [--steps N] [--threads N] [--recompute BLOCKS] [--bf16]
//   [--bf16-moments]
//     [--muon|--normuon|--soap] [--json]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "kernels/table.h"
#include "ops/product_peak.h"
#include "train/learner.h"
#include "train/step_cost.h"

using namespace vitrine;

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Options {
  std::string model;
  int64_t batch = 4, length = 64;
  int steps = 10, threads = 0;
  int64_t recompute = 0;
  bool bf16 = false, bf16_moments = false, json = false;
  OptimizerOptions::Kind optimizer = OptimizerOptions::Kind::adamw;
};

int measure(const Options& o) {
  LearnerOptions options;
  options.clip = 1;
  options.recomputed_layers = o.recompute;
  options.threads = o.threads;
  options.optimizer.bf16_moments = o.bf16_moments;
  options.optimizer.kind = o.optimizer;
  if (options.optimizer.by_matrices()) options.optimizer.momentum = 0.95;
  Learner learner(open_model(o.model), options);
  Context& ctx = learner.engine().context();
  ctx.numerics.bf16 = o.bf16;
  const ModelShape shape = learner.engine().shape();
  Batch batch;
  const auto vocab = static_cast<size_t>(shape.vocab_size), rows = static_cast<size_t>(o.batch * o.length);
  for (size_t i = 0; i < rows; ++i) {
    batch.tokens.push_back(static_cast<int32_t>((i * 7919 + 13) % vocab));
    batch.labels.push_back(static_cast<int32_t>((i * 104729 + 7) % vocab));
  }
  batch.lengths.assign(static_cast<size_t>(o.batch), o.length);
  std::vector<double> times;
  double first_s = 0;
  for (int s = 0; s <= o.steps; ++s) {
    const double begin = now_s();
    learner.step(std::span(&batch, 1), 1e-4);
    (s == 0 ? first_s : times.emplace_back()) = now_s() - begin;
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2],
               gflop = step_flop(learner.parameters(), learner.engine().model(), batch.lengths) / 1e9;
  const double peak = product_flops_per_s(ctx) / 1e9;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double peak_mb = static_cast<double>(usage.ru_maxrss) * 1024 / 1e6, share = gflop / median / peak;
  if (o.json) {
    std::printf(
        "{\"ms\": %.3f, \"best_ms\": %.3f, \"share\": %.4f, \"peak_gflops\": %.1f, \"peak_mb\": %.0f, \"kernels\": \"%s\"}\n",
        median * 1e3, times.front() * 1e3, share, peak, peak_mb, kernels().name);
    return 0;
  }
  std::printf("model %s, %lld x %lld tokens, kernels %s, %d threads, products in %s%s\n", o.model.c_str(),
              static_cast<long long>(o.batch), static_cast<long long>(o.length), kernels().name, ctx.pool().threads(),
              o.bf16 && kernels().packed_bf16.rows > 0 ? "bf16" : "f32", o.recompute > 0 ? ", blocks recomputed" : "");
  std::printf("step %.2f ms (%.2f to %.2f; the first %.2f s), %.0f tokens/s\n", median * 1e3, times.front() * 1e3,
              times.back() * 1e3, first_s, static_cast<double>(rows) / median);
  std::printf("%.1f GFLOP a step, %.0f GFLOP/s, %.0f %% of the %.0f GFLOP/s that products in the caches reach\n", gflop,
              gflop / median, 100 * share, peak);
  std::printf("peak resident %.0f MB\n", peak_mb);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--batch" && more)
      o.batch = std::atoll(argv[++i]);
    else if (arg == "--length" && more)
      o.length = std::atoll(argv[++i]);
    else if (arg == "--steps" && more)
      o.steps = std::atoi(argv[++i]);
    else if (arg == "--threads" && more)
      o.threads = std::atoi(argv[++i]);
    else if (arg == "--recompute" && more)
      o.recompute = std::atoll(argv[++i]);
    else if (arg == "--bf16")
      o.bf16 = true;
    else if (arg == "--bf16-moments")
      o.bf16_moments = true;
    else if (arg == "--muon")
      o.optimizer = OptimizerOptions::Kind::muon;
    else if (arg == "--normuon")
      o.optimizer = OptimizerOptions::Kind::normuon;
    else if (arg == "--soap")
      o.optimizer = OptimizerOptions::Kind::soap;
    else if (arg == "--json")
      o.json = true;
    else
      o.model = arg;
  }
  if (o.model.empty() || o.batch < 1 || o.length < 1 || o.steps < 1) {
    std::fprintf(
        stderr,
        "usage: bench_training MODEL_DIRECTORY [--batch N] [--length N] [--steps N] [--threads N] [--recompute BLOCKS] [--bf16] "
        "[--bf16-moments] [--muon|--normuon|--soap] [--json]\n");
    return 2;
  }
  try {
    return measure(o);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_training: %s\n", e.what());
    return 2;
  }
}
