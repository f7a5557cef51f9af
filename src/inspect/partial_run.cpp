#include "inspect/partial_run.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "inspect/hooks.h"
#include "inspect/listening.h"
#include "model/layer_name.h"
#include "ops/listener_chain.h"

namespace vitrine {
namespace {

struct Enough {};  // thrown through the model when nobody waits for more

// Passes everything on to `inner`, and ends the run behind the last of `awaited`.
class UntilLast final : public Listener {
 public:
  UntilLast(Listener& inner, std::set<std::string, std::less<>> awaited) : inner_(inner), awaited_(std::move(awaited)) {}
  bool wants(std::string_view name) const override { return inner_.wants(name) || awaited_.contains(name); }
  bool takes() const override { return inner_.takes(); }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const Tensor changed = inner_.wants(name) ? inner_.see(ctx, name, value) : Tensor();
    const auto found = awaited_.find(name);
    if (found == awaited_.end()) return changed;
    awaited_.erase(found);
    if (awaited_.empty()) throw Enough();
    return changed;
  }

 private:
  Listener& inner_;
  std::set<std::string, std::less<>> awaited_;
};

// While it lives, the context's runs start where the request says.
class Starting {
 public:
  Starting(Context& ctx, const PartialRun& request, int64_t d_model) : ctx_(ctx) {
    if (request.stream.empty()) return;
    stream_ = Tensor(const_cast<float*>(request.stream.data()), DType::f32,  // the context copies it
                     {static_cast<int64_t>(request.stream.size()) / d_model, d_model});
    ctx_.start_at(static_cast<int>(request.start_layer), &stream_);
  }
  ~Starting() { ctx_.start_at(0, nullptr); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  Context& ctx_;
  Tensor stream_;
};

bool lies_before(std::string_view hook, int64_t start_layer) {
  const int64_t layer = split_layer(hook).first;
  if (layer >= 0) return layer < start_layer;
  return !hook.starts_with("ln_final.") && hook != "hook_logits";
}

void check_start(const Engine& engine, size_t tokens, const PartialRun& request) {
  if (request.stream.empty()) return;
  const ModelShape& shape = engine.shape();
  if (request.behind != nullptr) throw InputError("a run behind cached keys starts at the first layer; give no residual stream");
  if (request.start_layer < 0 || request.start_layer >= shape.n_layers)
    throw InputError("a run cannot start at layer " + std::to_string(request.start_layer) + ": the model has " +
                     std::to_string(shape.n_layers) + " layers, 0 to " + std::to_string(shape.n_layers - 1));
  if (request.stream.size() != tokens * static_cast<size_t>(shape.d_model))
    throw InputError("the residual stream has " + std::to_string(request.stream.size()) + " numbers; expected " +
                     std::to_string(tokens) + " positions of " + std::to_string(shape.d_model));
  for (int64_t layer = request.start_layer; layer < shape.n_layers; ++layer)
    if (const int64_t giver = engine.model().layer_shape(layer).keys_of; giver >= 0 && giver < request.start_layer)
      throw InputError("a run of " + engine.name() + " cannot start at layer " + std::to_string(request.start_layer) +
                       ": layer " + std::to_string(layer) + " reads the keys of layer " + std::to_string(giver) +
                       ". Start at layer " + std::to_string(giver) + " or before");
}

void check_not_before(const std::string& hook, const PartialRun& request) {
  if (!request.stream.empty() && lies_before(hook, request.start_layer))
    throw InputError(hook + " lies before layer " + std::to_string(request.start_layer) +
                     ", where this run starts; ask for hooks from that layer on");
}

bool all_finite(const Recorder& recorder) {
  return std::all_of(recorder.values().begin(), recorder.values().end(), [](const auto& entry) {
    const bool scores = entry.first.ends_with("hook_attn_scores");  // masked ones are -inf by definition
    return std::all_of(entry.second.values.begin(), entry.second.values.end(),
                       [scores](float x) { return scores ? !std::isnan(x) : std::isfinite(x); });
  });
}

}  // namespace

Recorder run_partly(Engine& engine, std::span<const int32_t> ids, const PartialRun& request) {
  engine.check_ids(ids);
  check_start(engine, ids.size(), request);
  std::vector<HookQuery> queries;
  for (const std::string& hook : request.hooks) queries.push_back(parse_hook_query(hook));
  const std::vector<Capture> captures = plan_captures(engine.model(), queries, static_cast<int64_t>(ids.size()));
  require_memory(capture_bytes(captures), request.memory, "These hooks",
                 "Ask for fewer hooks, or for slices of them: blocks.*.attn.hook_pattern[heads=0:2,positions=-1]");
  std::vector<HookRequest> kept;
  std::set<std::string, std::less<>> awaited;
  for (const Capture& capture : captures) {
    check_not_before(capture.name, request);
    kept.push_back(capture.request);
    awaited.insert(capture.name);
  }
  for (const std::string& name : request.edited) {
    check_not_before(name, request);
    awaited.insert(name);
  }
  const bool wants_logits = awaited.contains("hook_logits");
  // What is cached is to be whole, and nobody may wait for anything.
  const bool to_the_end = request.behind != nullptr || awaited.empty() || wants_logits;

  Recorder recorder(kept);
  ListenerChain edited({request.edits, &recorder});
  Context& ctx = engine.context();
  const Starting starting(ctx, request, engine.shape().d_model);
  const auto chunk = request.behind == nullptr ? ids.size() : static_cast<size_t>(request.behind->cache().largest_step());
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    Step step;
    step.add(ids.subspan(begin, std::min(chunk, ids.size() - begin)), request.behind, static_cast<int64_t>(ids.size()));
    const int64_t last = step.rows() - 1;
    const auto frame = ctx.frame();
    bool finite = true;
    try {
      UntilLast until(edited, awaited);
      const Listening listening(ctx, to_the_end ? static_cast<Listener&>(edited) : until);
      const Tensor x = engine.model().residual(ctx, step);
      finite = first_not_finite(x) < 0;
      if (wants_logits) finite = first_not_finite(logits(ctx, x, engine.model().head(), std::span(&last, 1))) < 0 && finite;
    } catch (const Enough&) {
      finite = all_finite(recorder);
    }
    if (!finite && request.refuse_nan) {
      ListenerChain edits({request.edits});
      const Listening listening(ctx, edits);
      engine.report_not_finite(step, std::span(&last, 1));
    }
    if (request.behind != nullptr) step.commit();
  }
  return recorder;
}

}  // namespace vitrine
