// Predicts prefill and decode on other numbers of cores: measures here what a region, a byte, a multiply-add, an element and an
// op cost, and adds them up along the plan of a step (model/thread_plan.h), which counts regions and each thread's largest share.
// Where the model has weights, it also runs on as many cores as there are here, and the error of the prediction is printed.
//
//   bench_predict_cores MODEL [--weights q4_0] [--cores 1,2,4,8] [--prompt 512] [--depth 0] [--memory GB/S] [--cache MIB]
//
// MODEL: files, or a config.json alone. --memory: what all cores of the predicted machine read from memory together; without it
// no more than here is assumed. --cache: its last-level cache; steps that read less are not bound by memory.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/huge_pages.h"
#include "base/stopwatch.h"
#include "kernels/table.h"
#include "model/thread_plan.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/step.h"
#include "runtime/engine.h"

using namespace vitrine;

namespace {

struct Options {
  std::string model, weights;
  std::vector<int> cores = {1, 2, 4, 8, 16, 32, 48, 64};
  int64_t prompt = 512, depth = 0, decode = 32;
  double memory = 0, cache = 0;  // GB/s, MiB
};

// Shortest time of `f`, in ns, of `passes` passes of `times` calls.
template <class F>
double fastest_ns(int passes, int times, F&& f) {
  double best = INFINITY;
  for (int pass = 0; pass < passes; ++pass) {
    const Stopwatch watch;
    for (int i = 0; i < times; ++i) f();
    best = std::min(best, watch.ms() * 1e6 / times);
  }
  return best;
}

struct Costs {
  double region_ns = 0;         // a region and its barrier on two threads, and
  double worker_ns = 0;         // what each further thread adds
  double byte_ns_one = 0;       // of weights in a product of one row, on one thread, and
  double bytes_per_ns_all = 0;  // what all threads here read together
  int all = 1;                  // threads here
  double multiply_add_ns = 0;   // of a product of many rows, on one thread
  double score_ns = 0;          // of attention of many rows, likewise, and
  double one_score_ns = 0;      // of one row
  double element_ns = 0;        // of norms and activations
  double op_ns = 0;             // of an op that has next to nothing to do
};

// How long a line of cache takes from one core to another: two threads wait for each other in turn. The shortest of a few passes.
double line_ns() {
  constexpr int kPasses = 50, kTurns = 500;
  alignas(64) std::atomic<int> turn{0};
  const auto wait_for = [&](int number) {
    while (turn.load(std::memory_order_acquire) != number) {
    }
  };
  std::thread other([&] {
    for (int i = 0; i < kPasses * kTurns; ++i) {
      wait_for(2 * i + 1);
      turn.store(2 * i + 2, std::memory_order_release);
    }
  });
  int i = 0;
  const double ns = fastest_ns(kPasses, kTurns, [&] {
    turn.store(2 * i + 1, std::memory_order_release);
    wait_for(2 * ++i);
  });
  other.join();
  return ns / 2;
}

// What a region takes beyond its work: chunks of 3 us each, so that every thread is there for its own.
double region_ns(int threads) {
  constexpr double kWork = 3000;
  ThreadPool pool(threads);
  const double ns = fastest_ns(50, 200, [&] {
    pool.run(threads, [](int64_t, int) {
      const Stopwatch watch;
      while (watch.ms() * 1e6 < kWork) {
      }
    });
  });
  return std::max(0.0, ns - kWork);
}

// A matrix of `bytes` or so in huge pages, of numbers that are harmless in every type.
class Matrix {
 public:
  Matrix(DType type, int64_t in, size_t bytes) {
    const size_t row = row_bytes(type, static_cast<size_t>(in));
    weight.dtype = type;
    weight.in = in;
    weight.out = std::max<int64_t>(64, static_cast<int64_t>(bytes / row) / 64 * 64);
    weight.stride = row;
    pages_ = map_huge_pages(weight.bytes());
    if (pages_.empty()) throw RunError("no memory for a matrix of " + std::to_string(weight.bytes()) + " bytes");
    std::memset(pages_.data(), 0x3c, pages_.size());
    weight.data = pages_.data();
  }
  ~Matrix() { unmap_huge_pages(pages_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  Weight weight;

 private:
  std::span<std::byte> pages_;
};

Tensor ones(Context& ctx, const Shape& shape) {
  const Tensor t = ctx.empty(shape);
  std::fill_n(t.data<float>(), t.count(), 0.5f);
  return t;
}

double product_ns(ThreadPool& pool, const Weight& w, int64_t rows, int passes) {
  Context ctx(pool);
  const Tensor x = ones(ctx, {rows, w.in});
  return fastest_ns(passes, 1, [&] {
    const auto frame = ctx.frame();
    linear(ctx, x, w);
  });
}

// A multiply-add of attention of so many rows behind `position` cached ones.
double score_ns(ThreadPool& pool, int64_t rows, int64_t position, CacheTypes types) {
  constexpr int64_t kHeads = 8, kDim = 64;
  const std::vector<CacheLayer> layers = {{.n_kv_heads = kHeads, .head_dim = kDim, .v_dim = kDim, .types = types}};
  KvCache cache(layers, position + rows, std::max(position, rows));
  CacheSequence sequence = cache.sequence();
  if (position > 0) {
    sequence.reserve(position);
    sequence.commit(position);
  }
  const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
  Step step;
  step.add(tokens, &sequence);
  const AttentionSpec spec{.scale = 0.125};
  const auto attend = [&](Context& ctx, const Tensor& x) { attention(ctx, "attn", x, x, x, step, 0, spec); };
  DryRun dry(false, true);
  Context plan(pool, dry);
  attend(plan, plan.empty({rows, kHeads, kDim}));
  TaskCost cost;
  for (const OpRecord& op : std::move(dry).take_ops())
    for (const RegionRecord& region : op.regions) cost = cost + region.total();
  Context ctx(pool);
  const Tensor x = ones(ctx, {rows, kHeads, kDim});
  const double ns = fastest_ns(10, rows == 1 ? 100 : 1, [&] {
    const auto frame = ctx.frame();
    attend(ctx, x);
  });
  return ns / static_cast<double>(cost.multiply_adds);
}

// Of elements, half of them in norms and half in gated activations; and of an op with few of them.
void measure_elements(ThreadPool& pool, Costs& costs) {
  Context ctx(pool);
  const auto norm_ns = [&](int64_t rows, int64_t width, int times) {
    const std::vector<float> w(static_cast<size_t>(width), 1.0f);
    Vector weight;
    weight.data = w.data();
    weight.size = width;
    const auto outer = ctx.frame();
    const Tensor x = ones(ctx, {rows, width});
    return fastest_ns(10, times, [&] {
      const auto frame = ctx.frame();
      rms_norm(ctx, "ln", x, weight, {});
    });
  };
  costs.op_ns = norm_ns(1, 16, 1000);
  const auto outer = ctx.frame();
  const Tensor x = ones(ctx, {8, 2048});
  const double gated_ns = fastest_ns(10, 100, [&] {
    const auto frame = ctx.frame();
    gated(ctx, x, x, Activation::silu);
  });
  costs.element_ns = (norm_ns(8, 2048, 100) + gated_ns) / (2 * 8 * 2048);
}

Costs measure(DType type, int64_t width, double step_bytes, CacheTypes types) {
  Costs costs;
  ThreadPool one(1), all;
  costs.all = all.threads();
  if (costs.all > 1) {
    costs.region_ns = region_ns(2);
    costs.worker_ns = costs.all > 2 ? (region_ns(costs.all) - costs.region_ns) / (costs.all - 2) : 2 * line_ns();
  }
  const int64_t in = (width + 255) / 256 * 256;
  {
    const Matrix read(type, in, static_cast<size_t>(std::min(step_bytes, 512.0 * (1 << 20))));
    const auto bytes = static_cast<double>(read.weight.bytes());
    costs.byte_ns_one = product_ns(one, read.weight, 1, 8) / bytes;
    costs.bytes_per_ns_all = bytes / product_ns(all, read.weight, 1, 8);
  }
  const Matrix square(type, in, row_bytes(type, static_cast<size_t>(in)) * 2048);
  costs.multiply_add_ns = product_ns(one, square.weight, 512, 5) / static_cast<double>(512 * in * square.weight.out);
  costs.score_ns = score_ns(one, 512, 0, types);
  costs.one_score_ns = score_ns(one, 1, 511, types);
  measure_elements(one, costs);
  return costs;
}

// Time of the step on n cores in ns. On one core a step has no regions: its plan is that of two, whose regions are done as a
// whole.
double predict(const ThreadPlan& plan, int n, const Costs& costs, const Options& o, double step_bytes) {
  double bytes_per_ns = std::min(n, costs.all) / costs.byte_ns_one;
  if (n >= costs.all) bytes_per_ns = costs.bytes_per_ns_all;
  if (n > costs.all && (o.memory > 0 || step_bytes < o.cache * (1 << 20))) {
    bytes_per_ns = costs.bytes_per_ns_all * n / costs.all;
    if (step_bytes >= o.cache * (1 << 20)) bytes_per_ns = std::min(bytes_per_ns, o.memory);
  }
  const auto time = [&](const TaskCost& cost, const std::string& op, int64_t rows, int readers) {
    const double read = static_cast<double>(cost.bytes) * readers / (readers > 1 ? bytes_per_ns : 1 / costs.byte_ns_one);
    const bool few = rows <= static_cast<int64_t>(kFewRows);
    double each = few ? 0 : costs.multiply_add_ns;  // the bytes of few rows have their products with them
    if (op == "attention") each = few ? costs.one_score_ns : costs.score_ns;
    return std::max(read, each * static_cast<double>(cost.multiply_adds)) + costs.element_ns * static_cast<double>(cost.elements);
  };
  double ns = costs.op_ns * static_cast<double>(plan.ops) + time(plan.serial, "", 1, 1);
  for (const PlannedRegion& region : plan.regions) {
    ns += time(n == 1 ? region.total : region.largest, region.op, region.rows, n);
    if (n > 1) ns += costs.region_ns + costs.worker_ns * (n - 2);
  }
  return ns;
}

struct Speeds {
  double prefill = 0, decode = 0;  // tokens per second
};

Speeds predict(const Model& model, const Costs& costs, const Options& o, int threads, CacheTypes types) {
  StepSize decode{
      .rows = 1, .position = o.depth + o.prompt + o.decode / 2, .cached = true, .types = types, .threads = std::max(threads, 2)};
  const ThreadPlan one = plan_threads(model, decode);
  Speeds speeds;
  const double bytes = static_cast<double>(one.total().bytes + one.serial.bytes);
  speeds.decode = 1e9 / predict(one, threads, costs, o, bytes);
  double ns = 0;
  for (int64_t at = 0; at < o.prompt; at += kPrefillChunk) {
    StepSize chunk = decode;
    chunk.position = o.depth + at;
    chunk.rows = std::min(kPrefillChunk, o.prompt - at);
    ns += predict(plan_threads(model, chunk), threads, costs, o, bytes);
  }
  speeds.prefill = 1e9 * static_cast<double>(o.prompt) / ns;
  return speeds;
}

Speeds run(const Options& o, int threads) {
  Engine engine(o.model, {.threads = threads, .decode_narrow = true, .load = Load::copy});
  engine.wait_for_copy();
  std::vector<int32_t> ids(static_cast<size_t>(o.depth + o.prompt));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(engine.shape().vocab_size));
  const std::unique_ptr<KvCache> cache = engine.decoding_cache(o.depth + o.prompt + o.decode);
  std::vector<double> prefill, decode;
  for (int r = 0; r < 6; ++r) {
    CacheSequence sequence = cache->sequence();
    const auto frame = engine.context().frame();
    if (o.depth > 0) engine.prefill(std::span(ids).first(static_cast<size_t>(o.depth)), sequence);
    const Stopwatch prompt;
    engine.prefill(std::span(ids).subspan(static_cast<size_t>(o.depth)), sequence);
    const double prompt_ms = prompt.ms();
    const Stopwatch steps;
    for (int64_t i = 0; i < o.decode; ++i) {
      const auto inner = engine.context().frame();
      Step step;
      step.add(std::span(ids).first(1), &sequence);
      const int64_t row = 0;
      engine.run(step, std::span(&row, 1));
      step.commit();
    }
    if (r == 0) continue;  // brings pages and caches in
    prefill.push_back(static_cast<double>(o.prompt) * 1000 / prompt_ms);
    decode.push_back(static_cast<double>(o.decode) * 1000 / steps.ms());
  }
  std::sort(prefill.begin(), prefill.end());
  std::sort(decode.begin(), decode.end());
  return {prefill[prefill.size() / 2], decode[decode.size() / 2]};
}

DType most_common_type(const Model& model) {
  std::map<DType, size_t> bytes;
  for (const TensorLine& line : model.tensors())
    if (line.weight != nullptr) bytes[line.weight->dtype] += line.weight->bytes();
  return std::max_element(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
}

int report(const Options& o) {
  OpenedModel opened;
  opened.files = resolve_model(o.model);
  const bool runs = !opened.files.weights.empty() && o.weights.empty();
  if (opened.files.weights.empty())
    opened.model = model_from_config(opened.files);
  else
    opened = open_headers(std::move(opened.files));
  Model& model = *opened.model;
  if (!o.weights.empty()) set_weight_types(model, weight_type_named(o.weights, "--weights"));
  const CacheTypes types = cache_types_for(opened, {});
  const DType type = most_common_type(model);
  const ThreadPlan alone = plan_threads(model, {.position = o.depth + o.prompt, .cached = true, .types = types, .threads = 2});
  const Costs c = measure(type, model.shape().d_model, static_cast<double>(alone.total().bytes + alone.serial.bytes), types);
  std::printf(
      "%s, %s, kernels %s. Measured here: a region on 2 threads %.0f ns, each further thread %.0f ns; %.1f GB/s of weights "
      "on one thread, %.1f on %d; a multiply-add of a product %.4f ns, of attention %.4f and %.4f ns; an element %.3f ns; an op "
      "%.0f ns\n",
      opened.files.name.c_str(), std::string(name_of(type)).c_str(), kernels().name, c.region_ns, c.worker_ns, 1 / c.byte_ns_one,
      c.bytes_per_ns_all, c.all, c.multiply_add_ns, c.score_ns, c.one_score_ns, c.element_ns, c.op_ns);
  std::printf("| cores | prefill %lld, tokens/s | decode, tokens/s |\n| --- | --- | --- |\n", static_cast<long long>(o.prompt));
  for (const int cores : o.cores) {
    const Speeds predicted = predict(model, c, o, cores, types);
    std::printf("| %d | %.4g | %.4g |", cores, predicted.prefill, predicted.decode);
    if (runs && cores <= c.all) {
      const Speeds real = run(o, cores);
      std::printf(" measured %.4g (%+.0f %%), %.4g (%+.0f %%)", real.prefill, 100 * (predicted.prefill / real.prefill - 1),
                  real.decode, 100 * (predicted.decode / real.decode - 1));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}

// Whole numbers of at least 1 between commas; empty for anything else.
std::vector<int> parse_cores(const std::string& text) {
  std::vector<int> cores;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const int n = std::atoi(text.substr(begin, end - begin).c_str());
    if (n < 1 || n > 1024) return {};
    cores.push_back(n);
    begin = end + 1;
  }
  return cores;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
#ifdef _SC_LEVEL3_CACHE_SIZE
  o.cache = std::max(0.0, static_cast<double>(::sysconf(_SC_LEVEL3_CACHE_SIZE)) / (1 << 20));
#endif
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--weights" && more)
      o.weights = argv[++i];
    else if (arg == "--cores" && more)
      o.cores = parse_cores(argv[++i]);
    else if (arg == "--prompt" && more)
      o.prompt = std::atoll(argv[++i]);
    else if (arg == "--depth" && more)
      o.depth = std::atoll(argv[++i]);
    else if (arg == "--memory" && more)
      o.memory = std::atof(argv[++i]);
    else if (arg == "--cache" && more)
      o.cache = std::atof(argv[++i]);
    else
      o.model = arg;
  }
  if (o.model.empty() || o.cores.empty() || o.prompt < 1 || o.depth < 0 || o.memory < 0) {
    std::fprintf(
        stderr,
        "usage: bench_predict_cores MODEL [--weights f32|f16|bf16|q8_0|q4_0] [--cores 1,2,4] [--prompt N >= 1] [--depth N] "
        "[--memory GB/S] [--cache MIB]\n");
    return 2;
  }
  try {
    return report(o);
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_predict_cores: %s\n", e.what());
    return 2;
  }
}
