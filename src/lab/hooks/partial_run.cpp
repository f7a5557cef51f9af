#include "hooks/partial_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "hooks/batch_recorder.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "hooks/until_last.h"
#include "model/layer_name.h"
#include "ops/embed.h"
#include "ops/every_sequence.h"
#include "ops/head.h"
#include "ops/label_scores.h"
#include "ops/listener_chain.h"

namespace vitrine {
namespace {

bool lies_before(std::string_view hook, int64_t start_layer) {
  const int64_t layer = split_layer(hook).first;
  if (layer >= 0) return layer < start_layer;
  return !hook.starts_with("ln_final.") && hook != "hook_logits";
}

void check_start(const Engine& engine, size_t tokens, const PartialRun& request) {
  if (request.stream.empty()) return;
  const ModelShape& shape = engine.shape();
  if (request.behind != nullptr) throw InputError("a run after cached keys starts at the first layer; give no residual stream");
  if (request.start_layer < 0 || request.start_layer >= shape.n_layers)
    throw InputError("a run cannot start at layer " + std::to_string(request.start_layer) + ": the model has " +
                     std::to_string(shape.n_layers) + " layers, 0 to " + std::to_string(shape.n_layers - 1));
  if (request.stream.size() != tokens * static_cast<size_t>(shape.d_model))
    throw InputError("the residual stream has " + std::to_string(request.stream.size()) + " numbers; expected " +
                     std::to_string(tokens) + " positions of " + std::to_string(shape.d_model));
  for (int64_t layer = request.start_layer; layer < shape.n_layers; ++layer)
    if (const int64_t giver = engine.model().layer(layer).keys_of; giver >= 0 && giver < request.start_layer)
      throw InputError("a run of " + engine.name() + " cannot start at layer " + std::to_string(request.start_layer) +
                       ": layer " + std::to_string(layer) + " reads the keys of layer " + std::to_string(giver) +
                       ". Start at layer " + std::to_string(giver) + " or before");
}

void check_not_before(const std::string& hook, const PartialRun& request) {
  if (!request.stream.empty() && lies_before(hook, request.start_layer))
    throw InputError(hook + " lies before layer " + std::to_string(request.start_layer) +
                     ", where this run starts; ask for hooks from that layer on");
}

// What is kept of each sequence; those of one length share it.
class Plan {
 public:
  Plan(const Engine& engine, std::span<const std::vector<int32_t>> sequences, const PartialRun& request) {
    std::vector<HookQuery> queries;
    for (const std::string& hook : request.hooks) queries.push_back(parse_hook_query(hook));
    size_t most = 0;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto rows = static_cast<int64_t>(sequences[i].size());
      try {
        engine.check_ids(sequences[i]);
        if (!by_length_.contains(rows)) by_length_[rows] = plan_captures(engine.model(), queries, rows);
      } catch (const InputError& e) {
        if (sequences.size() == 1) throw;
        throw InputError("row " + std::to_string(i) + ": " + e.what());
      }
      of_.push_back(&by_length_[rows]);
      most = std::max(most, capture_bytes(*of_.back()));
    }
    require_memory(most * sequences.size(), request.memory, "These hooks",
                   "Ask for fewer hooks, or for slices of them: blocks.*.attn.hook_pattern[heads=0:2,positions=-1]");
  }
  std::span<const std::vector<Capture>* const> of_sequences() const { return of_; }
  const std::vector<Capture>& any() const { return *of_.front(); }

 private:
  std::map<int64_t, std::vector<Capture>> by_length_;
  std::vector<const std::vector<Capture>*> of_;
};

// Rows that may go through the model in one step.
int64_t rows_together(const Engine& engine, bool logits) {
  constexpr int64_t kLogits = int64_t{1} << 24;  // 64 MiB of them
  return logits ? std::clamp<int64_t>(kLogits / std::max<int64_t>(1, engine.shape().vocab_size), kLogitRows, kRowsTogether)
                : kRowsTogether;
}

// What a step of so many rows takes beside what is kept, before it is run.
void require_step(const Engine& engine, int64_t rows, bool logits) {
  const ModelShape& s = engine.shape();
  const int64_t numbers = 4 * s.d_model + 3 * s.d_ff + 4 * s.n_heads * s.head_dim + (logits ? s.vocab_size : 0);
  require_memory(static_cast<size_t>(rows * numbers) * sizeof(float), 0,
                 "These rows, which run as one for the functions at hooks,", "Run fewer at a time");
}

class Runner {
 public:
  Runner(Engine& engine, const PartialRun& request, const Plan& plan, BatchRecorder& recorder)
      : engine_(engine), request_(request), recorder_(recorder), edited_({request.edits, &recorder}) {
    for (const Capture& capture : plan.any()) {
      check_not_before(capture.name, request);
      awaited_.insert(capture.name);
    }
    for (const std::string& name : request.edited) {
      check_not_before(name, request);
      awaited_.insert(name);
    }
    wants_logits_ = awaited_.contains("hook_logits");
    // What is cached is to be whole, and nobody may wait for anything.
    to_the_end_ = request.behind != nullptr || awaited_.empty() || wants_logits_ || request.losses;
  }
  // One step. label_rows: rows that are scored, with their labels.
  void run(const Step& step, std::span<const int64_t> label_rows, std::span<const int32_t> labels, std::vector<float>& losses) {
    Context& ctx = engine_.context();
    const int64_t last = step.rows() - 1;
    const auto frame = ctx.frame();
    if (request_.before_step) request_.before_step(step);
    bool finite = true;
    try {
      UntilLast until(edited_, awaited_);
      const Listening listening(ctx, to_the_end_ ? static_cast<Listener&>(edited_) : until, kEverySequence);
      const Tensor x = engine_.model().residual(ctx, step);
      finite = first_not_finite(x) < 0;
      const Head head = engine_.model().head();
      std::vector<LabelScore> scores;
      if (wants_logits_) {
        const bool some = !label_rows.empty();
        const Tensor z = logits(ctx, x, head, some ? label_rows : std::span(&last, 1));
        finite = first_not_finite(z) < 0 && finite;
        if (some) scores = label_scores(ctx, z, labels);
      } else if (!label_rows.empty()) {
        scores = label_scores(ctx, take_rows(ctx, x, label_rows), head, labels);
      }
      for (const LabelScore& score : scores) {
        finite = finite && std::isfinite(score.logprob);
        losses.push_back(-score.logprob);
      }
    } catch (const Enough&) {
      finite = recorder_.all_finite();
    }
    if (finite || !request_.refuse_nan) return;
    ListenerChain edits({request_.edits});
    const Listening listening(ctx, edits, kEverySequence);
    engine_.report_not_finite(step, std::span(&last, 1));
  }

 private:
  Engine& engine_;
  const PartialRun& request_;
  BatchRecorder& recorder_;
  ListenerChain edited_;
  std::set<std::string, std::less<>> awaited_;
  bool wants_logits_ = false, to_the_end_ = false;
};

}  // namespace

PartialResult run_partly(Engine& engine, std::span<const std::vector<int32_t>> sequences, const PartialRun& request) {
  if (sequences.empty()) throw InputError("there are no tokens to run; give at least one");
  if (request.behind != nullptr && sequences.size() > 1)
    throw InputError("got a batch of " + std::to_string(sequences.size()) +
                     " prompts; a cache of keys and values is of one. Give each prompt a cache and a call of its own");
  const Plan plan(engine, sequences, request);
  size_t tokens = 0, longest = 0;
  for (const auto& ids : sequences) {
    tokens += ids.size();
    longest = std::max(longest, ids.size());
  }
  check_start(engine, tokens, request);
  const int64_t before = request.behind != nullptr ? request.behind->length() : 0;
  const auto chunk = request.behind == nullptr ? longest : static_cast<size_t>(request.behind->cache().largest_step());
  const bool logits_wanted =
      std::any_of(plan.any().begin(), plan.any().end(), [](const Capture& c) { return c.name == "hook_logits"; });
  const int64_t most = request.edited.empty() ? rows_together(engine, logits_wanted) : std::numeric_limits<int64_t>::max();
  const bool one_step = chunk >= longest && (sequences.size() == 1 || static_cast<int64_t>(tokens) <= most);

  if (!request.edited.empty() && sequences.size() > 1) require_step(engine, static_cast<int64_t>(tokens), logits_wanted);
  BatchRecorder recorder(plan.of_sequences(), one_step, before + static_cast<int64_t>(longest));
  Runner runner(engine, request, plan, recorder);
  PartialResult result;
  size_t row = 0;  // of all sequences
  for (size_t first = 0; first < sequences.size();) {
    size_t end = first;
    int64_t together = 0;
    while (end < sequences.size() && (end == first || together + std::ssize(sequences[end]) <= most))
      together += std::ssize(sequences[end++]);
    const auto stream = request.stream.empty() ? request.stream
                                               : request.stream.subspan(row * static_cast<size_t>(engine.shape().d_model),
                                                                        static_cast<size_t>(together * engine.shape().d_model));
    const Starting starting(engine.context(), request.start_layer, stream, engine.shape().d_model);
    for (size_t begin = 0; begin < (request.behind != nullptr ? sequences[first].size() : 1); begin += chunk) {
      Step step;
      std::vector<int64_t> label_rows;
      std::vector<int32_t> labels;
      for (size_t s = first; s < end; ++s) {
        const std::span<const int32_t> ids = sequences[s];
        const auto here = ids.subspan(begin, std::min(chunk, ids.size() - begin));
        for (size_t i = 0; request.losses && i < here.size() && begin + i + 1 < ids.size(); ++i) {
          label_rows.push_back(step.rows() + static_cast<int64_t>(i));
          labels.push_back(ids[begin + i + 1]);
        }
        step.add(here, request.behind, request.behind != nullptr ? static_cast<int64_t>(ids.size()) : 0);
      }
      recorder.expect(step, first, static_cast<int64_t>(begin));
      runner.run(step, label_rows, labels, result.losses);
      if (request.behind != nullptr) step.commit();
    }
    row += static_cast<size_t>(together);
    first = end;
  }
  result.order = recorder.order();
  result.values = std::move(recorder).take_values();
  return result;
}

}  // namespace vitrine
