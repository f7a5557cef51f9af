// Time and memory to run a prompt and keep every intermediate that TransformerLens keeps by default (run_with_cache).
//   bench_capture MODEL [--tokens N] [--threads N] [--repeat N]
// Prints one JSON object. bench/compare_transformer_lens.py runs it beside TransformerLens.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "hooks/trace.h"
#include "kernels/table.h"
#include "runtime/engine.h"

using namespace vitrine;

namespace {

// The names that both give. Per-head results are off by default there, and the other names are ours alone.
const std::vector<std::string> kHooks = {
    "hook_embed",
    "hook_pos_embed",
    "blocks.*.hook_resid_pre",
    "blocks.*.ln1.hook_scale",
    "blocks.*.ln1.hook_normalized",
    "blocks.*.attn.hook_q",
    "blocks.*.attn.hook_k",
    "blocks.*.attn.hook_v",
    "blocks.*.attn.hook_attn_scores",
    "blocks.*.attn.hook_pattern",
    "blocks.*.attn.hook_z",
    "blocks.*.hook_attn_out",
    "blocks.*.hook_resid_mid",
    "blocks.*.ln2.hook_scale",
    "blocks.*.ln2.hook_normalized",
    "blocks.*.mlp.hook_pre",
    "blocks.*.mlp.hook_post",
    "blocks.*.hook_mlp_out",
    "blocks.*.hook_resid_post",
    "ln_final.hook_scale",
    "ln_final.hook_normalized",
    "hook_logits",
};

int measure(const std::string& name, int64_t tokens, int threads, int repeat) {
  EngineOptions options;
  options.threads = threads;
  Engine engine(name, options);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(engine.shape().vocab_size));
  std::vector<double> ms;
  size_t kept = 0;
  for (int r = 0; r <= repeat; ++r) {
    const auto begin = std::chrono::steady_clock::now();
    const Recorder recorder = trace_to_memory(engine, ids, kHooks);
    const double took = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (r > 0) ms.push_back(took);  // the first run reads the file and faults the memory in
    kept = recorder.values().size();
  }
  std::sort(ms.begin(), ms.end());
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("{\"ms\": %.3f, \"least_ms\": %.3f, \"kept\": %zu, \"peak_gb\": %.4f, \"kernels\": \"%s\"}\n", ms[ms.size() / 2],
              ms.front(), kept, static_cast<double>(usage.ru_maxrss) * 1024 / 1e9, kernels().name);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string model;
  int64_t tokens = 128;
  int threads = 0, repeat = 5;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--tokens" && more)
      tokens = std::atoll(argv[++i]);
    else if (arg == "--threads" && more)
      threads = std::atoi(argv[++i]);
    else if (arg == "--repeat" && more)
      repeat = std::atoi(argv[++i]);
    else
      model = arg;
  }
  if (model.empty() || tokens < 1 || repeat < 1) {
    std::fprintf(stderr, "usage: bench_capture MODEL [--tokens N] [--threads N] [--repeat N]\n");
    return 2;
  }
  try {
    return measure(model, tokens, threads, repeat);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
