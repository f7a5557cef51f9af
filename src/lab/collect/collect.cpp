#include "collect/collect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <span>

#include "base/error.h"
#include "base/fnv.h"
#include "base/stopwatch.h"
#include "collect/contexts.h"
#include "collect/plan.h"
#include "hooks/listening.h"
#include "hooks/until_last.h"
#include "io/atomic_file.h"
#include "io/folder_lock.h"
#include "io/safetensors.h"
#include "kernels/table.h"
#include "model/fingerprint.h"
#include "ops/head.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr float kLargestF16 = 65504;

// Hands the rows of all sequences of a step at each hook to `give`.
class Giving final : public Listener {
 public:
  using Give = std::function<void(size_t hook, const Tensor& value)>;
  Giving(const std::vector<ActivationManifest::Hook>& hooks, Give give) : give_(std::move(give)) {
    for (size_t i = 0; i < hooks.size(); ++i) number_.emplace(hooks[i].name, i);
  }
  bool wants(std::string_view name) const override { return number_.contains(name); }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    give_(number_.find(name)->second, value);
    return {};
  }

 private:
  std::map<std::string, size_t, std::less<>> number_;
  Give give_;
};

// Runs contexts in steps of about kPrefillChunk rows: give(hook, values of the step's rows, first row in the plan).
class Runner {
 public:
  Runner(Engine& engine, const ActivationManifest& manifest) : engine_(engine), manifest_(manifest) {}

  // The number of contexts from `begin` on that share a step.
  static size_t together(const ShardPlan& plan, size_t begin) {
    size_t rows = plan.contexts[begin].size(), end = begin + 1;
    while (end < plan.contexts.size() && (rows += plan.contexts[end].size()) <= static_cast<size_t>(kPrefillChunk)) ++end;
    return end - begin;
  }

  // The values as they are stored, of the contexts [begin, begin + count): give(hook, bytes).
  template <class F>
  void run(const ShardPlan& plan, size_t begin, size_t count, F&& give) {
    Step step;
    for (size_t i = begin; i < begin + count; ++i) step.add(plan.contexts[i]);
    bool finite = true;
    Giving giving(manifest_.hooks, [&](size_t hook, const Tensor& value) {
      finite = finite && first_not_finite(value) < 0;
      give(hook, stored(value, step, hook));
    });
    Context& ctx = engine_.context();
    const auto frame = ctx.frame();
    std::set<std::string, std::less<>> awaited;
    for (const ActivationManifest::Hook& hook : manifest_.hooks) awaited.insert(hook.name);
    try {
      UntilLast until(giving, std::move(awaited));
      const Listening listening(ctx, until, kEverySequence);
      engine_.model().residual(ctx, step);
    } catch (const Enough&) {
    }
    const int64_t last = step.rows() - 1;
    if (!finite) engine_.report_not_finite(step, std::span(&last, 1));
  }

 private:
  std::span<const std::byte> stored(const Tensor& value, const Step& step, size_t hook) {
    const auto n = static_cast<size_t>(value.count());
    const float* x = value.data<float>();
    if (manifest_.type == DType::f32) return std::as_bytes(std::span(x, n));
    narrow_.resize(n);
    if (manifest_.type == DType::bf16) {
      kernels().narrow(x, n, narrow_.data());
    } else {
      for (size_t i = 0; i < n; ++i) {
        if (std::fabs(x[i]) > kLargestF16) {
          const size_t row = i / static_cast<size_t>(value.row_size());
          throw RunError(manifest_.hooks[hook].name + " holds " + std::to_string(x[i]) + " at position " +
                         std::to_string(step.positions()[row]) + " (token " + std::to_string(step.tokens()[row]) +
                         "), and f16 ends at 65504. Collect as bf16 or f32");
        }
        narrow_[i] = f32_to_f16(x[i]);
      }
    }
    return std::as_bytes(std::span(narrow_));
  }

  Engine& engine_;
  const ActivationManifest& manifest_;
  std::vector<uint16_t> narrow_;
};

class Collector {
 public:
  Collector(Engine& engine, DocumentTokens& documents, const CollectOptions& options,
            const std::function<void(const CollectProgress&)>& progress, SharedWork& work)
      : documents_(documents),
        options_(options),
        progress_(progress),
        work_(work),
        manifest_(plan_collection(engine, options)),
        runner_(engine, manifest_) {}

  // The steps of a part, of which no folder is made.
  Collected run_part() {
    Contexts contexts(documents_, manifest_.context, manifest_.lead, manifest_.max_tokens);
    ShardPlanner planner(contexts, manifest_.shard_tokens);
    if (planner.at_end()) throw_empty();
    watch_.lap_ms();
    for (ShardPlan plan = planner.next(); !plan.contexts.empty(); plan = planner.next()) {
      for (size_t begin = 0; begin < plan.contexts.size();) {
        const size_t count = Runner::together(plan, begin);
        const uint64_t before = work_.computed();
        each_value(plan, begin, count, [](size_t, std::span<const std::byte>) {});
        const uint64_t tokens = report(plan, begin, count);
        if (work_.computed() > before) computed_ += tokens;
        begin += count;
      }
      manifest_.shards.push_back({"", plan.tokens, plan.contexts.size()});
    }
    work_.finish();
    return {manifest_, computed_, watch_.ms() / 1000};
  }

  Collected run() {
    make_collection_folder(options_.out, options_.resume);
    const FolderLock lock(options_.out, options_.out + ": another process writes it. Wait for it, or name another folder");
    remove_leftovers(options_.out);
    const size_t done = options_.resume ? begin_behind() : 0;
    if (manifest_.complete) return {manifest_, 0, 0};
    Contexts contexts(documents_, manifest_.context, manifest_.lead, manifest_.max_tokens);
    ShardPlanner planner(contexts, manifest_.shard_tokens);
    if (planner.at_end()) throw_empty();
    if (!options_.resume) write_activation_manifest(options_.out, manifest_);
    pass_over(planner, done);
    watch_.lap_ms();
    for (ShardPlan plan = planner.next(); !plan.contexts.empty(); plan = planner.next()) write_shard(plan);
    settle();
    work_.finish();
    manifest_.complete = true;
    write_activation_manifest(options_.out, manifest_);
    return {manifest_, computed_, watch_.ms() / 1000};
  }

 private:
  [[noreturn]] static void throw_empty() { throw InputError("the text is empty: there are no tokens to collect activations of"); }

  // The values of a step as they are stored, computed or read from a part: give(hook, bytes). Nothing for a step of another part.
  template <class F>
  void each_value(const ShardPlan& plan, size_t begin, size_t count, F&& give) {
    if (!work_.joins() && work_.gives_all()) return runner_.run(plan, begin, count, give);
    uint64_t key = 0, tokens = 0;
    for (size_t i = begin; i < begin + count; ++i) {
      key = add_to_fingerprint(key, std::as_bytes(std::span(plan.contexts[i])));
      tokens += plan.contexts[i].size();
    }
    std::vector<std::vector<std::byte>> values(manifest_.hooks.size());
    const bool here = work_.unit(
        key,
        [&] {
          runner_.run(plan, begin, count,
                      [&](size_t hook, std::span<const std::byte> bytes) { values[hook].assign(bytes.begin(), bytes.end()); });
        },
        [&](UnitBytes& bytes) {
          size_t hook = 0;
          bytes.each(
              values,
              [&](std::vector<std::byte>& value) {
                bytes.values(value, tokens * row_bytes(manifest_.type, static_cast<size_t>(manifest_.hooks[hook++].numbers())));
              },
              manifest_.hooks.size());
        });
    for (size_t hook = 0; here && hook < values.size(); ++hook) give(hook, std::span<const std::byte>(values[hook]));
  }

  size_t begin_behind() {
    const ActivationManifest found = begun_collection(options_.out, manifest_);
    manifest_.shards = found.shards;
    manifest_.complete = found.complete;
    manifest_.checksum = found.checksum;
    return found.shards.size();
  }

  // Reads the text of whole shards again, and sees whether text and model are those that these were made from.
  void pass_over(ShardPlanner& planner, size_t done) {
    uint64_t checksum = kFnvOfNothing;
    for (size_t i = 0; i < done; ++i) {
      const ShardPlan plan = planner.next();
      for (const auto& context : plan.contexts) checksum = fnv1a(std::as_bytes(std::span(context)), checksum);
      if (plan.tokens != manifest_.shards[i].tokens) refuse_to_resume(options_.out, "from another text");
      if (i == 0) check_model(plan);
    }
    if (checksum != manifest_.checksum) refuse_to_resume(options_.out, "from another text");
  }

  void check_model(const ShardPlan& plan) {
    const Activations held = Activations::open(options_.out);
    const size_t count = Runner::together(plan, 0);
    std::vector<float> row;
    runner_.run(plan, 0, count, [&](size_t hook, std::span<const std::byte> bytes) {
      const auto n = static_cast<size_t>(manifest_.hooks[hook].numbers());
      row.resize(n);
      for (size_t r = 0; r < bytes.size() / row_bytes(manifest_.type, n); ++r) {
        held.read(hook, r, row.data());
        for (size_t i = 0; i < n; ++i)
          if (element_at(manifest_.type, bytes.data() + r * row_bytes(manifest_.type, n), i) != row[i])
            refuse_to_resume(options_.out, "by a model that gives other values");
      }
    });
  }

  void write_shard(const ShardPlan& plan) {
    const auto n = static_cast<int64_t>(plan.tokens);
    std::vector<TensorPlan> tensors{{"tokens", DType::i32, {n}}, {"positions", DType::i32, {n}}};
    for (const auto& hook : manifest_.hooks) {
      std::vector<int64_t> shape{n};
      shape.insert(shape.end(), hook.shape.begin(), hook.shape.end());
      tensors.push_back({hook.name, manifest_.type, shape});
    }
    const std::string name = activation_shard_name(manifest_.shards.size() + (finishing_.valid() ? 1 : 0));
    auto writer = std::make_unique<SafetensorsWriter>((fs::path(options_.out) / name).string(), std::move(tensors));
    std::vector<int32_t> positions;
    size_t row = 0;
    for (size_t begin = 0; begin < plan.contexts.size();) {
      const size_t count = Runner::together(plan, begin);
      each_value(plan, begin, count, [&](size_t hook, std::span<const std::byte> bytes) {
        const auto numbers = static_cast<size_t>(manifest_.hooks[hook].numbers());
        writer->write(2 + hook, bytes, row * row_bytes(manifest_.type, numbers));
      });
      for (size_t i = begin; i < begin + count; ++i) {
        const auto& context = plan.contexts[i];
        positions.resize(context.size());
        for (size_t p = 0; p < positions.size(); ++p) positions[p] = static_cast<int32_t>(p);
        writer->write(0, std::as_bytes(std::span(context)), row * sizeof(int32_t));
        writer->write(1, std::as_bytes(std::span(positions)), row * sizeof(int32_t));
        row += context.size();
      }
      computed_ += report(plan, begin, count);
      begin += count;
    }
    settle();
    // The disk takes its time over a whole shard while the next one is computed.
    next_ = {name, plan.tokens, plan.contexts.size()};
    next_checksum_ = manifest_.checksum;
    for (const auto& context : plan.contexts) next_checksum_ = fnv1a(std::as_bytes(std::span(context)), next_checksum_);
    finishing_ = std::async(std::launch::async, [writer = std::move(writer)] { writer->finish(); });
  }

  uint64_t report(const ShardPlan& plan, size_t begin, size_t count) {
    uint64_t tokens = 0;
    for (size_t i = begin; i < begin + count; ++i) tokens += plan.contexts[i].size();
    if (progress_) {
      const uint64_t settled = manifest_.tokens() + (finishing_.valid() ? next_.tokens : 0);
      uint64_t here = tokens;
      for (size_t i = 0; i < begin; ++i) here += plan.contexts[i].size();
      const double now = static_cast<double>(computed_ + tokens), limit = static_cast<double>(manifest_.max_tokens);
      const double share = limit > 0 ? static_cast<double>(settled + here) / limit : 0;
      progress_({settled + here, manifest_.contexts() + (finishing_.valid() ? next_.contexts : 0) + begin + count,
                 std::max(share, documents_.share()), now / std::max(watch_.ms() / 1000, 1e-9)});
    }
    return tokens;
  }

  // The shard before is on the disk, and the manifest says so.
  void settle() {
    if (!finishing_.valid()) return;
    finishing_.get();
    manifest_.shards.push_back(next_);
    manifest_.checksum = next_checksum_;
    write_activation_manifest(options_.out, manifest_);
  }

  DocumentTokens& documents_;
  const CollectOptions& options_;
  const std::function<void(const CollectProgress&)>& progress_;
  SharedWork& work_;
  ActivationManifest manifest_;
  Runner runner_;
  std::future<void> finishing_;  // of the shard before
  ActivationManifest::Shard next_;
  uint64_t next_checksum_ = 0;
  uint64_t computed_ = 0;
  Stopwatch watch_;
};

}  // namespace

Collected collect(Engine& engine, DocumentTokens& documents, const CollectOptions& options,
                  const std::function<void(const CollectProgress&)>& progress, SharedWork* shared) {
  SharedWork alone = SharedWork::alone();
  Collector collector(engine, documents, options, progress, shared != nullptr ? *shared : alone);
  return shared != nullptr && !shared->gives_all() ? collector.run_part() : collector.run();
}

}  // namespace vitrine
