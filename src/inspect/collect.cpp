#include "inspect/collect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <optional>

#include "base/error.h"
#include "base/stopwatch.h"
#include "inspect/hooks.h"
#include "inspect/listening.h"
#include "io/folder_lock.h"
#include "io/safetensors.h"
#include "kernels/table.h"
#include "ops/recorder.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultContext = 256;
constexpr float kLargestF16 = 65504;

using ContextIds = std::vector<int32_t>;

// Documents cut into contexts, none of which holds two.
class Contexts {
 public:
  Contexts(DocumentTokens& documents, int64_t context, int64_t lead, uint64_t max_tokens)
      : documents_(documents),
        room_(static_cast<size_t>(context) - (lead >= 0 ? 1 : 0)),
        lead_(lead),
        left_(max_tokens > 0 ? max_tokens : UINT64_MAX) {}

  // The next one; empty at the end.
  ContextIds next() {
    ContextIds context;
    const size_t lead = lead_ >= 0 ? 1 : 0;
    if (left_ <= lead) return context;
    while (rest_.size() - begin_ < room_ && more()) {
    }
    const size_t held = border_.value_or(rest_.size()) - begin_;
    const size_t n = std::min({held, room_, static_cast<size_t>(std::min<uint64_t>(left_ - lead, INT64_MAX))});
    if (n == 0) return context;
    if (lead_ >= 0) context.push_back(static_cast<int32_t>(lead_));
    const auto from = rest_.begin() + static_cast<ptrdiff_t>(begin_);
    context.insert(context.end(), from, from + static_cast<ptrdiff_t>(n));
    begin_ += n;
    if (border_ && begin_ == *border_) border_.reset();
    left_ -= context.size();
    return context;
  }

 private:
  // Reads on within the document whose ids stand at begin_; false at its end.
  bool more() {
    if (border_) return false;
    std::vector<int32_t> ids;
    bool begins = false;
    do {
      if (!documents_.next(ids, begins)) return false;
    } while (ids.empty());
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<ptrdiff_t>(begin_));
    begin_ = 0;
    if (begins && !rest_.empty()) border_ = rest_.size();  // the next document waits behind it
    rest_.insert(rest_.end(), ids.begin(), ids.end());
    return !border_;
  }

  DocumentTokens& documents_;
  size_t room_;
  int64_t lead_;
  uint64_t left_;
  std::vector<int32_t> rest_;  // ids that were read, from begin_ on
  size_t begin_ = 0;
  std::optional<size_t> border_;  // where in rest_ another document begins
};

// Contexts that become one shard.
struct Plan {
  std::vector<ContextIds> contexts;
  uint64_t tokens = 0;
};

class Planner {
 public:
  Planner(Contexts& contexts, uint64_t shard_tokens)
      : contexts_(contexts), shard_tokens_(shard_tokens), ahead_(contexts.next()) {}
  bool at_end() const { return ahead_.empty(); }
  // Empty at the end.
  Plan next() {
    Plan plan;
    while (!ahead_.empty() && plan.tokens + ahead_.size() <= shard_tokens_) {
      plan.tokens += ahead_.size();
      plan.contexts.push_back(std::move(ahead_));
      ahead_ = contexts_.next();
    }
    return plan;
  }

 private:
  Contexts& contexts_;
  uint64_t shard_tokens_;
  ContextIds ahead_;
};

struct HeardAll {};  // thrown through the model behind the last hook

// Hands the rows of all sequences of a step at each hook to `give`, and ends the run behind the last.
class Giving final : public Listener {
 public:
  using Give = std::function<void(size_t hook, const Tensor& value)>;
  Giving(const std::vector<ActivationManifest::Hook>& hooks, Give give) : left_(hooks.size()), give_(std::move(give)) {
    for (size_t i = 0; i < hooks.size(); ++i) number_.emplace(hooks[i].name, i);
  }
  bool wants(std::string_view name) const override { return number_.contains(name); }
  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    give_(number_.find(name)->second, value);
    if (--left_ == 0) throw HeardAll();
    return {};
  }

 private:
  std::map<std::string, size_t, std::less<>> number_;
  size_t left_;
  Give give_;
};

// Runs contexts in steps of about kPrefillChunk rows: give(hook, values of the step's rows, first row in the plan).
class Runner {
 public:
  Runner(Engine& engine, const ActivationManifest& manifest) : engine_(engine), manifest_(manifest) {}

  // The number of contexts from `begin` on that share a step.
  static size_t together(const Plan& plan, size_t begin) {
    size_t rows = plan.contexts[begin].size(), end = begin + 1;
    while (end < plan.contexts.size() && (rows += plan.contexts[end].size()) <= static_cast<size_t>(kPrefillChunk)) ++end;
    return end - begin;
  }

  // The values as they are stored, of the contexts [begin, begin + count): give(hook, bytes).
  template <class F>
  void run(const Plan& plan, size_t begin, size_t count, F&& give) {
    Step step;
    for (size_t i = begin; i < begin + count; ++i) step.add(plan.contexts[i]);
    bool finite = true;
    Giving giving(manifest_.hooks, [&](size_t hook, const Tensor& value) {
      finite = finite && first_not_finite(value) < 0;
      give(hook, stored(value, step, hook));
    });
    Context& ctx = engine_.context();
    const auto frame = ctx.frame();
    try {
      ctx.listen(&giving, kEverySequence);
      engine_.model().residual(ctx, step);
    } catch (const HeardAll&) {
    } catch (...) {
      ctx.listen(nullptr);
      throw;
    }
    ctx.listen(nullptr);
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

std::vector<ActivationManifest::Hook> hooks_of(const Engine& engine, const std::vector<std::string>& requests, int64_t context) {
  if (requests.empty()) throw InputError("no hooks are named; for instance blocks.3.hook_resid_post");
  std::vector<HookQuery> queries;
  for (const std::string& request : requests) queries.push_back(parse_hook_query(request));
  std::vector<ActivationManifest::Hook> hooks;
  for (const Capture& capture : plan_captures(engine.model(), queries, context)) {
    if (!capture.request.whole())
      throw InputError(capture.name + " is asked for in part; collect writes whole values, so leave [heads=…,positions=…] away");
    if (heads_first(capture.name) || capture.shape.empty() || capture.shape[0] != context)
      throw InputError(capture.name + " has the shape " + shape_text(capture.shape) +
                       "; collect writes a row for each token. `vitrine trace` writes such values of one prompt");
    if (capture.name == "hook_logits")
      throw InputError(
          "hook_logits cannot be collected: collect blocks.*.hook_resid_post or ln_final.hook_normalized, from which "
          "logits can be computed");
    hooks.push_back({capture.name, {capture.shape.begin() + 1, capture.shape.end()}});
  }
  return hooks;
}

ActivationManifest plan_manifest(const Engine& engine, const CollectOptions& o) {
  ActivationManifest m;
  const int64_t most = engine.shape().context_length > 0 ? engine.shape().context_length : INT32_MAX;
  m.context = o.context > 0 ? o.context : std::min(kDefaultContext, most);
  if (m.context > most)
    throw InputError("a context of " + std::to_string(m.context) + " tokens is longer than that of " + engine.name() +
                     ", which is " + std::to_string(most));
  if (o.type != DType::f32 && o.type != DType::f16 && o.type != DType::bf16)
    throw UsageError("activations are stored as f32, f16 or bf16, not as " + std::string(name_of(o.type)));
  if (o.special && engine.has_tokenizer() && engine.tokenizer().adds_bos() && engine.tokenizer().bos())
    m.lead = *engine.tokenizer().bos();
  if (m.lead >= 0 && m.context < 2) throw InputError("a context of 1 token holds BOS and nothing of the text; give at least 2");
  fs::path name(engine.name());
  if (!name.has_filename()) name = name.parent_path();
  m.model = name.filename().string();
  m.type = o.type;
  m.max_tokens = o.max_tokens;
  m.checksum = kNoTokens;
  m.hooks = hooks_of(engine, o.hooks, m.context);
  m.shard_tokens = std::max<uint64_t>(o.shard_bytes / m.bytes_per_token(), static_cast<uint64_t>(m.context));
  return m;
}

[[noreturn]] void refuse_resume(const std::string& out, const std::string& what) {
  throw InputError(out + ": was made " + what + ". Resume with what it was begun with, or name another folder");
}

// What an unfinished folder holds already, checked against the options.
ActivationManifest resumed(const std::string& out, const ActivationManifest& planned) {
  ActivationManifest m = read_activation_manifest(out);
  if (m.hooks != planned.hooks) refuse_resume(out, "with other hooks");
  if (m.type != planned.type) refuse_resume(out, "as " + std::string(name_of(m.type)));
  if (m.context != planned.context) refuse_resume(out, "with contexts of " + std::to_string(m.context) + " tokens");
  if (m.lead != planned.lead) refuse_resume(out, "with another token in front of contexts");
  if (m.max_tokens != planned.max_tokens) refuse_resume(out, "with a limit of " + std::to_string(m.max_tokens) + " tokens");
  if (m.shard_tokens != planned.shard_tokens) refuse_resume(out, "with shards of " + std::to_string(m.shard_tokens) + " tokens");
  return m;
}

void make_folder(const std::string& out, bool resume) {
  std::error_code error;
  if (fs::exists(out, error) && !fs::is_directory(out, error)) throw InputError(out + ": is a file; activations are a folder");
  if (!resume && fs::exists(out, error) && !fs::is_empty(out, error))
    throw InputError(out + ": exists and holds something. Name another folder, or resume the run that made it");
  if (resume && !fs::exists(fs::path(out) / kActivationManifest, error))
    throw InputError(out + ": holds no run to resume; leave resume away to begin one");
  fs::create_directories(out, error);
  if (error) throw InputError(out + ": cannot be made: " + error.message());
}

class Collector {
 public:
  Collector(Engine& engine, DocumentTokens& documents, const CollectOptions& options,
            const std::function<void(const CollectProgress&)>& progress)
      : documents_(documents),
        options_(options),
        progress_(progress),
        manifest_(plan_manifest(engine, options)),
        runner_(engine, manifest_) {}

  Collected run() {
    make_folder(options_.out, options_.resume);
    const FolderLock lock(options_.out, options_.out + ": another process writes it. Wait for it, or name another folder");
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(options_.out, ignored))  // of a run that was killed
      if (entry.path().filename().string().find(".safetensors.tmp.") != std::string::npos) fs::remove(entry.path(), ignored);
    const size_t done = options_.resume ? begin_behind() : 0;
    if (manifest_.complete) return {manifest_, 0, 0};
    Contexts contexts(documents_, manifest_.context, manifest_.lead, manifest_.max_tokens);
    Planner planner(contexts, manifest_.shard_tokens);
    if (planner.at_end()) throw InputError("the text is empty: there are no tokens to collect activations of");
    if (!options_.resume) write_activation_manifest(options_.out, manifest_);
    pass_over(planner, done);
    watch_.lap_ms();
    for (Plan plan = planner.next(); !plan.contexts.empty(); plan = planner.next()) write_shard(plan);
    settle();
    manifest_.complete = true;
    write_activation_manifest(options_.out, manifest_);
    return {manifest_, computed_, watch_.ms() / 1000};
  }

 private:
  size_t begin_behind() {
    const ActivationManifest found = resumed(options_.out, manifest_);
    manifest_.shards = found.shards;
    manifest_.complete = found.complete;
    manifest_.checksum = found.checksum;
    return found.shards.size();
  }

  // Reads the text of whole shards again, and sees whether text and model are those that these were made from.
  void pass_over(Planner& planner, size_t done) {
    uint64_t checksum = kNoTokens;
    for (size_t i = 0; i < done; ++i) {
      const Plan plan = planner.next();
      for (const auto& context : plan.contexts) checksum = token_checksum(checksum, context);
      if (plan.tokens != manifest_.shards[i].tokens) refuse_resume(options_.out, "from another text");
      if (i == 0) check_model(plan);
    }
    if (checksum != manifest_.checksum) refuse_resume(options_.out, "from another text");
  }

  void check_model(const Plan& plan) {
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
            refuse_resume(options_.out, "by a model that gives other values");
      }
    });
  }

  void write_shard(const Plan& plan) {
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
      runner_.run(plan, begin, count, [&](size_t hook, std::span<const std::byte> bytes) {
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
    for (const auto& context : plan.contexts) next_checksum_ = token_checksum(next_checksum_, context);
    finishing_ = std::async(std::launch::async, [writer = std::move(writer)] { writer->finish(); });
  }

  uint64_t report(const Plan& plan, size_t begin, size_t count) {
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
                  const std::function<void(const CollectProgress&)>& progress) {
  return Collector(engine, documents, options, progress).run();
}

}  // namespace vitrine
