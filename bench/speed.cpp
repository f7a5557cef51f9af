// Speed of one model: time to open and to the first token, prefill, decode, their share of this machine's limits, memory.
//   bench_speed MODEL [--prompt N] [--decode N] [--threads N] [--f32] [--repeat N] [--json]
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/table.h"
#include "model/load.h"
#include "ops/context.h"

using namespace vitrine;

namespace {

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double peak_resident_gb() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024 / 1e9;
}

// GB/s at which all threads together read the model's own mapping, pages warm.
double read_bandwidth(ThreadPool& pool, const Checkpoint& checkpoint) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    double bytes = 0;
    const double begin = now_s();
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      const auto size = static_cast<int64_t>(tensor.bytes);
      pool.run((size + kChunk - 1) / kChunk, [&](int64_t chunk, int) {
        const auto* data = reinterpret_cast<const uint64_t*>(tensor.data + chunk * kChunk);
        const int64_t n = std::min(kChunk, size - chunk * kChunk) / 8;
        uint64_t sum[8] = {0};
        for (int64_t i = 0; i + 8 <= n; i += 8) {
          __builtin_prefetch(data + i + 512);  // 4 KiB ahead: the hardware stops at page borders
          for (int j = 0; j < 8; ++j) sum[j] += data[i + j];
        }
        volatile uint64_t sink = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
        (void)sink;
      });
      bytes += static_cast<double>(size);
    }
    best = std::max(best, bytes / (now_s() - begin) / 1e9);
  }
  return best;
}

struct Options {
  std::string model;
  int64_t prompt = 512, decode = 32;
  int threads = 0, repeat = 3;
  bool f32 = false, json = false;
};

int measure(const Options& options) {
  const auto& [name, prompt, decode, threads, repeat, f32, json] = options;
  const double start = now_s();
  OpenedModel opened = open_model(name);
  const double open_s = now_s() - start;
  const Model& model = *opened.model;
  ThreadPool pool(threads);
  Context ctx(pool);
  ctx.numerics.f32 = f32;
  const int64_t context = prompt + decode + 1;
  KvCache cache(model.cache_layers(), context, prompt);
  std::vector<int32_t> tokens(static_cast<size_t>(prompt));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(model.shape().vocab_size));
  const auto step_of = [&](std::span<const int32_t> ids, CacheSequence& sequence) {
    Step step;
    step.add(ids, &sequence);
    const auto frame = ctx.frame();
    const int64_t last = step.rows() - 1;
    const Tensor z = logits(ctx, model.residual(ctx, step), model.head(), std::span(&last, 1));
    const auto* best = std::max_element(z.data<float>(), z.data<float>() + z.count());
    step.commit();
    return static_cast<int32_t>(best - z.data<float>());
  };
  {
    CacheSequence sequence = cache.sequence();
    step_of(std::span(tokens).subspan(0, 5), sequence);
  }
  const double first_s = now_s() - start;
  const double bytes = static_cast<double>(opened.checkpoint.bytes()), bandwidth = read_bandwidth(pool, opened.checkpoint);
  int64_t matrices = 0;
  for (const FileTensor& t : file_tensors(*opened.model, opened.gguf != nullptr))
    if (t.shape.size() == 2 && t.name.find("embed") == std::string::npos && t.name.find("wte") == std::string::npos &&
        t.name.find("wpe") == std::string::npos)
      matrices += t.shape[0] * t.shape[1];
  std::vector<double> prefill, one;
  for (int r = 0; r < repeat; ++r) {
    CacheSequence sequence = cache.sequence();
    double begin = now_s();
    int32_t token = step_of(tokens, sequence);
    prefill.push_back(static_cast<double>(prompt) / (now_s() - begin));
    begin = now_s();
    for (int64_t i = 0; i < decode; ++i) token = step_of(std::span(&token, 1), sequence);
    one.push_back(static_cast<double>(decode) / (now_s() - begin));
  }
  std::sort(prefill.begin(), prefill.end());
  std::sort(one.begin(), one.end());
  const double p = prefill[prefill.size() / 2], d = one[one.size() / 2];
  if (json) {
    std::printf(
        "{\"prefill\": %.3f, \"decode\": %.4f, \"bandwidth\": %.3f, \"decode_share\": %.4f, \"open_ms\": %.3f, "
        "\"first_token_s\": %.4f, \"peak_gb\": %.4f, \"weights_gb\": %.4f, \"kernels\": \"%s\"}\n",
        p, d, bandwidth, d * bytes / 1e9 / bandwidth, open_s * 1e3, first_s, peak_resident_gb(), bytes / 1e9, kernels().name);
    return 0;
  }
  std::printf("model %s, %.3f GB of weights, kernels %s, %d threads, compute %s\n", name.c_str(), bytes / 1e9, kernels().name,
              pool.threads(), f32 ? "f32" : "auto");
  std::printf("open %.1f ms (%.2f ms per GB); first token of 5 after %.2f s\n", open_s * 1e3, open_s * 1e3 / (bytes / 1e9),
              first_s);
  std::printf("read bandwidth over the mapping %.1f GB/s\n", bandwidth);
  std::printf("prefill %lld: %.1f tokens/s (%.1f to %.1f), %.0f GFLOP/s in the layers' matrices\n",
              static_cast<long long>(prompt), p, prefill.front(), prefill.back(), p * 2 * static_cast<double>(matrices) / 1e9);
  std::printf("decode %lld: %.2f tokens/s (%.2f to %.2f), %.1f GB/s, %.0f %% of the read bandwidth\n",
              static_cast<long long>(decode), d, one.front(), one.back(), d * bytes / 1e9, 100 * d * bytes / 1e9 / bandwidth);
  std::printf("peak resident %.3f GB, %.3f of the weights\n", peak_resident_gb(), peak_resident_gb() * 1e9 / bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--prompt" && more)
      o.prompt = std::atoll(argv[++i]);
    else if (arg == "--decode" && more)
      o.decode = std::atoll(argv[++i]);
    else if (arg == "--threads" && more)
      o.threads = std::atoi(argv[++i]);
    else if (arg == "--repeat" && more)
      o.repeat = std::atoi(argv[++i]);
    else if (arg == "--f32")
      o.f32 = true;
    else if (arg == "--json")
      o.json = true;
    else
      o.model = arg;
  }
  if (o.model.empty() || o.prompt < 5 || o.decode < 1 || o.repeat < 1) {
    std::fprintf(stderr, "usage: bench_speed MODEL [--prompt N >= 5] [--decode N] [--threads N] [--f32] [--repeat N] [--json]\n");
    return 2;
  }
  try {
    return measure(o);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_speed: %s\n", e.what());
    return 2;
  }
}
