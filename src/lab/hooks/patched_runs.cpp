#include "hooks/patched_runs.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "model/layer_name.h"
#include "ops/every_sequence.h"
#include "ops/head.h"
#include "ops/recorder.h"

namespace vitrine {
namespace {

// Puts each patch at the first row of its sequence.
class Patching final : public Listener {
 public:
  Patching(std::string_view hook, std::span<const Patch> patches, const Step& step)
      : hook_(hook), patches_(patches), step_(step) {}
  bool wants(std::string_view name) const override { return name == hook_; }
  Tensor see(Context& ctx, std::string_view, const Tensor& value) override {
    const Tensor changed = ctx.empty(value.shape());
    std::memcpy(changed.raw(), value.raw(), changed.bytes());
    const int rank = value.shape().rank();
    for (size_t i = 0; i < patches_.size(); ++i) {
      const Patch& patch = patches_[i];
      float* at = changed.data<float>();
      if (heads_first(hook_)) {
        const int64_t heads = value.dim(rank - 3), queries = value.dim(rank - 2), keys = value.dim(rank - 1);
        at += (static_cast<int64_t>(i) * heads + patch.head) * queries * keys;
      } else {
        at += step_.sequences()[i].first_row * value.row_size();
        if (patch.head >= 0) at += patch.head * (value.row_size() / value.dim(1));
      }
      std::copy(patch.value.begin(), patch.value.end(), at);
    }
    return changed;
  }

 private:
  std::string_view hook_;
  std::span<const Patch> patches_;
  const Step& step_;
};

std::vector<int64_t> all_rows(const Step& step) {
  std::vector<int64_t> rows(static_cast<size_t>(step.rows()));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

void check_patch(const Patch& patch, std::string_view hook, const std::vector<int64_t>& shape) {  // of the whole prompt's value
  const bool pattern = heads_first(hook);
  const int64_t positions = shape[pattern ? 1 : 0];
  const auto fail = [&](const std::string& what, int64_t found, int64_t n) {
    throw InputError("a patch of " + std::string(hook) + " is for " + what + " " + std::to_string(found) + "; there are " +
                     std::to_string(n) + ", 0 to " + std::to_string(n - 1));
  };
  if (patch.position < 0 || patch.position >= positions) fail("position", patch.position, positions);
  const bool has_heads = pattern || shape.size() > 2;
  if (!has_heads && patch.head >= 0) throw InputError("a patch is for a head of " + std::string(hook) + ", which has none");
  if (pattern && patch.head < 0) throw InputError("a patch of " + std::string(hook) + " is of one head; give its number");
  const int64_t heads = has_heads ? shape[pattern ? 0 : 1] : 1;
  if (patch.head >= heads) fail("head", patch.head, heads);
  int64_t size = 1;
  for (size_t i = 1; i < shape.size(); ++i) size *= shape[i];
  if (patch.head >= 0) size = pattern ? shape[2] : size / heads;
  if (std::ssize(patch.value) != size)
    throw ShapeError("a patch of " + std::string(hook) + " has " + std::to_string(patch.value.size()) + " numbers; expected " +
                     std::to_string(size));
}

bool rows_need_keys_alone(const Engine& engine) {
  if (engine.cache_types() != CacheTypes{} || engine.shape().n_layers == 0) return false;
  for (int64_t layer = 0; layer < engine.shape().n_layers; ++layer)
    if (engine.model().layer(layer).keys_of >= 0 || !engine.model().layer(layer).has_attention() ||
        !engine.model().layer(layer).attention.causal)
      return false;
  const auto layers = engine.model().cache_layers(engine.cache_types());
  return std::all_of(layers.begin(), layers.end(), [](const CacheLayer& layer) { return layer.state == 0; });
}

}  // namespace

bool PatchedRuns::possible(const Engine& engine, std::string_view hook, int64_t length) {
  const int64_t layer = split_layer(hook).first;
  if (layer < 0 || layer >= engine.shape().n_layers || !rows_need_keys_alone(engine)) return false;
  const int64_t window = engine.model().layer(layer).attention.window;
  return !heads_first(hook) || window == kNoWindow || window >= length;
}

PatchedRuns::PatchedRuns(Engine& engine, std::vector<int32_t> ids) : engine_(engine), ids_(std::move(ids)) {
  engine_.check_ids(ids_);
  if (!rows_need_keys_alone(engine_))
    throw InputError("runs of " + engine_.name() + " cannot continue from keys and values of others");
  // One step holds the prompt, so no window's ring overwrites what a run from an earlier position reads.
  cache_ = std::make_unique<KvCache>(engine_.model().cache_layers(engine_.cache_types()), length(), length());
  whole_ = cache_->sequence();
  Step step;
  step.add(ids_, &whole_);
  Context& ctx = engine_.context();
  const auto frame = ctx.frame();
  std::vector<HookRequest> entering;
  for (int64_t layer = 0; layer < engine_.shape().n_layers; ++layer)
    entering.push_back({"blocks." + std::to_string(layer) + ".hook_resid_pre", {}, {}});
  Recorder recorder(entering);
  {
    const Listening listening(ctx, recorder);
    const int64_t last = step.rows() - 1;
    engine_.run(step, std::span(&last, 1));
  }
  step.commit();
  auto values = std::move(recorder).take_values();
  for (const HookRequest& request : entering) streams_.push_back(std::move(values.find(request.glob)->second.values));
}

FloatVector PatchedRuns::run(std::string_view hook, std::span<const Patch> patches) {
  const int64_t layer = split_layer(hook).first, d_model = engine_.shape().d_model;
  const std::vector<std::string> names = engine_.model().hook_names();
  if (layer < 0 || std::find(names.begin(), names.end(), hook) == names.end())
    throw InputError("\"" + std::string(hook) + "\" is no hook of a layer; hook_names lists every one");
  if (!possible(engine_, hook, length()))
    throw InputError("the window of layer " + std::to_string(layer) + " hides keys of a prompt of " + std::to_string(length()) +
                     " tokens from " + std::string(hook) + "; patch it in whole runs");
  const std::vector<int64_t> shape = hook_shape(engine_.model(), hook, length());
  std::vector<CacheSequence> forks;  // share the prompt's pages until they write
  forks.reserve(patches.size());
  Step step;
  FloatVector entering;
  const FloatVector& stream = streams_[static_cast<size_t>(layer)];
  for (const Patch& patch : patches) {
    check_patch(patch, hook, shape);
    forks.push_back(whole_);
    forks.back().truncate(patch.position);
    step.add(std::span(ids_).subspan(static_cast<size_t>(patch.position)), &forks.back(), length());
    entering.insert(entering.end(), stream.begin() + patch.position * d_model, stream.end());
  }
  if (patches.empty()) return {};
  require_memory(2 * static_cast<size_t>(step.rows() * engine_.shape().vocab_size) * sizeof(float), 0,
                 "The logits of these patches", "Run fewer at a time");
  Context& ctx = engine_.context();
  const auto frame = ctx.frame();
  Patching patching(hook, patches, step);
  const Starting starting(ctx, layer, entering, d_model);
  const Listening listening(ctx, patching, kEverySequence);
  const Tensor z = engine_.run(step, all_rows(step));  // nothing is committed
  return FloatVector(z.data<float>(), z.data<float>() + z.count());
}

}  // namespace vitrine
