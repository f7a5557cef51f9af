// vitrine bench: this machine's limits, then the model's speed and its share of them.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "cli/bench_plan.h"
#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/limits.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "kernels/table.h"
#include "runtime/row_math.h"

namespace vitrine::cli {
namespace {

struct BenchArguments {
  ModelOptions model;
  bool plan = false;
  std::string weights;
  int64_t prompt = 0, decode = 32, repeat = 3, sequences = 1, depth = 0;
};

/// Tokens per second of each of `repeat` runs.
struct Speed {
  std::vector<double> runs;
  double median = 0, slowest = 0, fastest = 0;
  explicit Speed(std::vector<double> all) : runs(std::move(all)) {
    std::vector<double> sorted = runs;
    std::sort(sorted.begin(), sorted.end());
    median = sorted[sorted.size() / 2], slowest = sorted.front(), fastest = sorted.back();
  }
};

int32_t most_likely(const Tensor& z, int64_t row) {
  return static_cast<int32_t>(argmax({z.row<float>(row), static_cast<size_t>(z.row_size())}));
}

/// Prompts one after the other, then all sequences together, a token each in every step.
class Sequences {
 public:
  /// They begin with what `beginning` holds.
  Sequences(Engine& engine, int64_t count, const CacheSequence& beginning)
      : engine_(engine), sequences_(static_cast<size_t>(count), beginning), tokens_(sequences_.size()), rows_(sequences_.size()) {
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i] = static_cast<int64_t>(i);
  }

  void prefill(std::span<const int32_t> prompt) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const auto frame = engine_.context().frame();
      tokens_[i] = most_likely(engine_.prefill(prompt, sequences_[i]), 0);
    }
  }

  void decode() {
    Step step;
    for (size_t i = 0; i < tokens_.size(); ++i) step.add(std::span(&tokens_[i], 1), &sequences_[i]);
    const auto frame = engine_.context().frame();
    const Tensor z = engine_.run(step, rows_);
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = most_likely(z, rows_[i]);
    step.commit();
  }

 private:
  Engine& engine_;
  std::vector<CacheSequence> sequences_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> rows_;  // of the step's logits: all
};

/// Numbers in the layers' matrices, each of which costs a multiply-add per token of a prompt; embedding and head are left
/// out, as the head runs for the last token only.
double layer_numbers(Engine& engine) {
  const ModelShape& s = engine.shape();
  const int64_t tables = s.vocab_size * s.d_model * (s.tied ? 1 : 2);
  return static_cast<double>(parameter_count(*engine.opened().model) - tables);
}

void run_bench(const BenchArguments& o) {
  if (o.plan) return print_thread_plan(o.model, {.prompt = o.prompt, .depth = o.depth, .weights = o.weights});
  const Stopwatch opening;
  Engine engine = open_engine(o.model);
  const double open_ms = opening.ms();
  const ModelShape& shape = engine.shape();
  const int64_t context = shape.context_length > 0 ? shape.context_length : INT64_MAX;
  const int64_t prompt = o.prompt > 0 ? o.prompt : std::min<int64_t>(512, context - o.decode - o.depth);
  if (prompt < 1 || prompt > context - o.decode - o.depth)
    throw UsageError(fmt::format("--depth, --prompt and --decode: {} + {} + {} tokens do not fit the model's context of {}.",
                                 o.depth, std::max<int64_t>(prompt, 1), o.decode, context));
  std::vector<int32_t> ids(static_cast<size_t>(std::max(prompt, o.depth)));  // any ids take the same time
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * 7919 + 13) % static_cast<size_t>(shape.vocab_size));

  Context& ctx = engine.context();
  const std::unique_ptr<KvCache> cache = engine.decoding_cache(o.depth + prompt + o.decode);
  CacheSequence beginning = cache->sequence();
  if (o.depth > 0) {
    const auto frame = ctx.frame();
    engine.prefill(std::span(ids).first(static_cast<size_t>(o.depth)), beginning);
  }
  ids.resize(static_cast<size_t>(prompt));
  std::vector<double> prefill_runs, decode_runs;
  for (int64_t run = -1; run < o.repeat; ++run) {  // run -1 brings pages and caches in
    if (run == 0) engine.wait_for_copy();
    Sequences sequences(engine, o.sequences, beginning);
    Stopwatch prefill;
    sequences.prefill(ids);
    const double prefill_ms = prefill.ms();
    Stopwatch decode;
    for (int64_t i = 0; i < o.decode; ++i) sequences.decode();
    if (run < 0) continue;
    prefill_runs.push_back(static_cast<double>(prompt * o.sequences) * 1000 / prefill_ms);
    decode_runs.push_back(static_cast<double>(o.decode * o.sequences) * 1000 / decode.ms());
  }
  const Speed prefill(prefill_runs), decode(decode_runs);

  const double weights = static_cast<double>(engine.opened().checkpoint.bytes());
  const ReadLimit reading = read_limit(ctx.pool(), engine.opened().checkpoint);
  const double bandwidth = std::max(reading.mapped, reading.huge);
  const double peak = f32_operations_per_s(ctx.pool());
  const double operations = 2 * layer_numbers(engine);
  const double prefill_share = prefill.median * operations / peak,
               step_bytes = weights + static_cast<double>(o.sequences) * static_cast<double>(cache->bytes_for(o.depth + prompt)),
               decode_share = decode.median / static_cast<double>(o.sequences) * step_bytes / bandwidth;

  if (o.model.json) {
    const auto row = [&](const std::string& work, const Speed& speed, double bytes, double share, const char* limit) {
      return OrderedJson{{"work", work},
                         {"tokens_per_s", speed.median},
                         {"slowest", speed.slowest},
                         {"fastest", speed.fastest},
                         {"runs", speed.runs},
                         {"bytes", bytes},
                         {"share", share},
                         {"of", limit}};
    };
    print_json(
        {{"model", engine.name()},
         {"kernels", kernels().name},
         {"threads", ctx.pool().threads()},
         {"sequences", o.sequences},
         {"depth", o.depth},
         {"cache_types", {{"keys", name_of(engine.decoding_types().keys)}, {"values", name_of(engine.decoding_types().values)}}},
         {"compute", o.model.compute},
         {"open_ms", open_ms},
         {"load", o.model.load},
         {"huge_bytes", engine.huge_bytes()},
         {"limits",
          {{"read_bytes_per_s", bandwidth},
           {"read_mapped_bytes_per_s", reading.mapped},
           {"read_huge_bytes_per_s", reading.huge},
           {"f32_operations_per_s", peak}}},
         {"rows",
          {row(fmt::format("prefill {}", prompt), prefill, weights, prefill_share, "f32_operations_per_s"),
           row(fmt::format("decode {}", o.decode), decode, step_bytes, decode_share, "read_bytes_per_s")}}});
    return;
  }
  print("{}  {} with {} of weights, opened in {:.1f} ms\n", bold("model "), engine.name(), bytes_text(weights), open_ms);
  print(
      "{}  {} threads, kernels {}: reading {:.1f} GB/s from the mapped files, {:.1f} from huge pages; f32 multiply-adds {:.0f} "
      "GFLOP/s\n",
      bold("limits"), ctx.pool().threads(), kernels().name, reading.mapped / 1e9, reading.huge / 1e9, peak / 1e9);
  if (engine.huge_bytes() > 0)
    print("{}    {} of the weights in huge pages\n", bold("load"), bytes_text(static_cast<double>(engine.huge_bytes())));
  const auto line = [](const std::string& work, const Speed& speed, double share, const char* limit) {
    print("{}  {:>10.1f} tokens/s  ({:.1f} to {:.1f})  {} of {}\n", pad_right(work, 12), speed.median, speed.slowest,
          speed.fastest, percent(share), limit);
  };
  line(fmt::format("prefill {}", prompt), prefill, prefill_share, "the f32 limit");
  line(fmt::format("decode {}", o.decode), decode, decode_share, "the reading limit");
}

Action define_bench(CLI::App& app) {
  auto o = std::make_shared<BenchArguments>();
  add_count(app, "--prompt", o->prompt, 1, int64_t{1} << 30, "Tokens of prefill; default: 512, or the context length");
  CLI::Option* const decode = add_count(app, "--decode", o->decode, 1, int64_t{1} << 30, "Tokens of decode (default 32)");
  CLI::Option* const sequences =
      add_count(app, "--sequences", o->sequences, 1, 4096, "Sequences that decode together (default 1)");
  add_count(app, "--depth", o->depth, 0, int64_t{1} << 30, "Positions in the cache before both (default 0)");
  CLI::Option* const repeat = add_count(app, "--repeat", o->repeat, 1, 1000, "Number of runs; the median is used (default 3)");
  CLI::Option* const plan =
      app.add_flag("--plan", o->plan,
                   "Run nothing, and show how one prefill step and one decode step fall to --threads: parallel regions, their "
                   "chunks, bytes and multiply-adds per thread. A config.json alone is enough")
          ->excludes(decode)
          ->excludes(sequences)
          ->excludes(repeat);
  add_choice(app, "--weights", o->weights, "f32|f16|bf16|q8_0|q4_0",
             "Plan for weights of this type; default: as the files have them, bf16 for a configuration alone")
      ->needs(plan);
  add_model_options(app, o->model);
  add_decoding_cache_types(app, o->model);
  add_load(app, o->model);
  for (const char* unused : {"--pin", "--load", "--adapter"}) plan->excludes(app.get_option(unused));
  return [o] { run_bench(*o); };
}

}  // namespace

const Command bench_command = {
    "bench", "Measure the machine's limits and the model's share of them",
    "Prefill is compared with the peak of f32 multiply-adds in registers (tile instructions can exceed it), decode with the "
    "speed at which the weights can be read. Use an idle machine.",
    "vitrine bench --prompt 64 --decode 8 --repeat 1\nvitrine bench --plan --threads 64", define_bench};

}  // namespace vitrine::cli
