#include "model/record.h"

#include <algorithm>
#include <numeric>

#include "model/abilities.h"
#include "model/layer_name.h"
#include "model/model.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

// Runs `step` dry.
DryRun run_dry(const Model& model, const Step& step, const StepSize& size, bool inside) {
  ThreadPool pool(ThreadPool::Guests{size.threads});
  DryRun dry(inside, size.regions);
  Context ctx(pool, dry);
  ctx.numerics = size.numerics;
  Tape tape;
  if (size.tape) ctx.record_on(&tape);
  const Tensor x = model.residual(ctx, step);
  std::vector<int64_t> rows(static_cast<size_t>(size.every_logit ? step.rows() : 1), step.rows() - 1);
  if (size.every_logit) std::iota(rows.begin(), rows.end(), 0);
  logits(ctx, x, model.head(), rows);
  return dry;
}

// The ops and hooks of one layer.
struct LayerOps {
  std::vector<const OpRecord*> ops;
  std::vector<const HookRecord*> hooks;

  const OpRecord* find(std::string_view op) const {
    const auto found = std::find_if(ops.begin(), ops.end(), [&](const OpRecord* o) { return o->op == op; });
    return found == ops.end() ? nullptr : *found;
  }
  /// The op that made what the hook shows.
  const OpRecord* behind(std::string_view hook) const {
    for (const HookRecord* h : hooks)
      if (split_layer(h->name).second == hook) return maker(h->value);
    return nullptr;
  }
  const OpRecord* maker(int value) const {
    const OpRecord* found = nullptr;
    for (const OpRecord* op : ops)
      for (const ValueRecord& output : op->outputs)
        if (output.number == value) found = op;
    return found;
  }
};

bool is_norm(const OpRecord& op) { return op.op == "rms_norm" || op.op == "layer_norm"; }
bool mixes_positions(const OpRecord& op) {
  return op.op == "attention" || op.op == "causal_conv" || op.op == "gated_delta" || op.op == "state_space";
}

template <class Spec>
Spec spec_of(const OpRecord* op) {
  return op != nullptr && op->spec_as<Spec>() != nullptr ? *op->spec_as<Spec>() : Spec{};
}

LayerRecord describe(const LayerOps& layer, const ModelShape& shape, int64_t number) {
  LayerRecord r;
  r.n_kv_heads = shape.n_kv_heads;
  r.head_dim = shape.head_dim;
  r.d_ff = shape.d_ff;
  bool mixed = false, has_norm = false;
  for (const OpRecord* op : layer.ops) {
    if (is_norm(*op)) {
      if (!has_norm) r.norm = *op->spec_as<NormSpec>();
      if (!has_norm) r.rms = op->op == "rms_norm";
      has_norm = true;
      if (op->name.ends_with(".ln1")) r.norms_after = mixed;
    }
    mixed = mixed || mixes_positions(*op);
  }
  if (const OpRecord* attention = layer.find("attention")) {
    const ValueRecord &q = attention->inputs[0], &k = attention->inputs[1], &v = attention->inputs[2];
    r.attends = true;
    r.attention = *attention->spec_as<AttentionSpec>();
    r.n_kv_heads = k.shape[1];
    r.head_dim = q.shape[2];
    r.latent_keys = layer.find("join_heads") != nullptr;
    if (attention->cache_layer != number) r.keys_of = attention->cache_layer;
    if (const OpRecord* made = layer.maker(v.number); made != nullptr) r.value_norm = is_norm(*made);
    for (const OpRecord* op : layer.ops)
      if (op->op == "gated")
        for (const ValueRecord& input : op->inputs) r.gated_heads = r.gated_heads || input.number == attention->outputs[0].number;
  }
  if (const OpRecord* rope = layer.find("rope")) r.rope = *rope->spec_as<RopeSpec>();
  if (const OpRecord* tempered = layer.find("attention_temperature")) r.temperature = *tempered->spec_as<TemperatureSpec>();
  const OpRecord *conv = layer.find("causal_conv"), *delta = layer.find("gated_delta"), *decay = layer.find("decay_log");
  if (delta == nullptr) delta = layer.find("state_space"), decay = layer.behind("ssm.hook_log_decay");
  if (conv != nullptr) r.conv_activation = conv->spec_as<ConvSpec>()->activation;
  if (delta != nullptr) {
    r.delta = *delta->spec_as<DeltaSpec>();
    r.delta->taps = spec_of<ConvSpec>(conv).taps;
    r.delta->A_is_log = spec_of<DecaySpec>(decay).is_log;
  } else if (conv != nullptr) {
    r.conv = *conv->spec_as<ConvSpec>();
  }
  const OpRecord* mlp = layer.find("gated_mlp");
  if (mlp == nullptr) mlp = layer.find("mlp");
  if (mlp != nullptr && mlp->name.ends_with(".shared")) {
    r.shared_d_ff = mlp->weights[0]->out;
    mlp = nullptr;
  }
  if (mlp != nullptr) {
    r.activation = *mlp->spec_as<Activation>();
    r.d_ff = mlp->weights[0]->out;
  }
  if (const OpRecord* experts = layer.find("expert_mlp")) {
    r.experts = *experts->spec_as<ExpertSpec>();
    r.experts_beside = mlp != nullptr;
    if (mlp == nullptr) r.activation = r.experts->activation;
  }
  r.residual_scale = spec_of<ScaleSpec>(layer.behind("hook_attn_out")).factor;
  r.mlp_scale = spec_of<ScaleSpec>(layer.behind("hook_mlp_out")).factor;
  r.stream_scale = spec_of<ScaleSpec>(layer.behind("hook_resid_post")).factor;
  r.attention_dropout = spec_of<DropoutSpec>(layer.behind("hook_attn_out"));
  r.mlp_dropout = spec_of<DropoutSpec>(layer.behind("hook_mlp_out"));
  for (const HookRecord* hook : layer.hooks)
    if (split_layer(hook->name).second == "per_layer.hook_pre") r.per_layer_dim = hook->shape[1];
  return r;
}

// What the layer's ops that mix positions keep of past ones.
CacheLayer cache_of(const LayerOps& layer, const LayerRecord& r) {
  if (r.conv) return CacheLayer::of_rows(r.conv->taps, r.conv->channels);
  CacheLayer cache{.window = r.attention.window};
  if (r.delta) cache.state = r.delta->states() + (r.delta->taps - 1) * r.delta->channels();
  const OpRecord* attention = layer.find("attention");
  if (attention == nullptr || r.keys_of >= 0 || !r.attention.causal) return cache;  // in both directions nothing can be kept
  cache.n_kv_heads = r.n_kv_heads;
  cache.head_dim = r.head_dim;
  cache.v_dim = attention->inputs[2].shape[2];
  return cache;
}

Step step_of(int64_t rows) { return Step::of(std::vector<int32_t>(static_cast<size_t>(rows), 0)); }

}  // namespace

int64_t StepRecord::multiply_adds() const {
  return std::accumulate(ops.begin(), ops.end(), int64_t{0},
                         [](int64_t sum, const OpRecord& op) { return sum + op.multiply_adds; });
}

StepRecord record_step(const Model& model, const StepSize& size) {
  const std::vector<int32_t> tokens(static_cast<size_t>(size.rows), 0);
  StepRecord record;
  if (size.position > 0) require_causal(model, model.shape().family, "A step behind others");
  if (!size.cached || !is_causal(model)) {  // in both directions a text is one step without a cache
    record.ops = run_dry(model, Step::of(tokens), size, false).take_ops();
  } else {
    KvCache cache(model.cache_layers(size.types), size.position + size.rows, std::max(size.rows, size.position), false);
    CacheSequence sequence = cache.sequence();
    if (size.position > 0) {
      sequence.reserve(size.position);
      sequence.commit(size.position);
    }
    Step step;
    step.add(tokens, &sequence);
    record.ops = run_dry(model, step, size, false).take_ops();
  }
  for (const OpRecord& op : record.ops) {
    record.peak_bytes = std::max(record.peak_bytes, op.bytes_peak);
    record.kept_bytes += op.bytes_kept;
  }
  return record;
}

std::vector<int64_t> HookShape::of(int64_t rows) const {
  std::vector<int64_t> shape = sizes;
  std::replace(shape.begin(), shape.end(), kRows, rows);
  return shape;
}

// Two runs of other lengths show which sizes are the number of rows.
ModelRecord::ModelRecord(const Model& model) {
  constexpr int64_t kRows = 2;
  const std::vector<HookRecord> seen_longer = run_dry(model, step_of(kRows + 1), {}, true).take_hooks();
  DryRun dry = run_dry(model, step_of(kRows), {}, true);
  const std::vector<OpRecord> ops = std::move(dry).take_ops();
  const std::vector<HookRecord> seen = std::move(dry).take_hooks();
  for (size_t i = 0; i < seen.size(); ++i) {
    HookShape& hook = hooks.emplace_back();
    hook.name = seen[i].name;
    by_name_.emplace(hook.name, i);
    for (int axis = 0; axis < seen[i].shape.rank(); ++axis)
      hook.sizes.push_back(seen[i].shape[axis] == seen_longer[i].shape[axis] ? seen[i].shape[axis] : HookShape::kRows);
  }
  std::vector<LayerOps> by_layer(static_cast<size_t>(model.shape().n_layers));
  for (const OpRecord& op : ops) {
    if (op.layer >= 0) by_layer[static_cast<size_t>(op.layer)].ops.push_back(&op);
    if (by_layer.empty() || by_layer.front().ops.empty())
      if (const auto* spec = op.spec_as<DropoutSpec>()) embedding_dropout = *spec;
    if (op.op == "embed_positions") positions = AddedPositions::learned;
    if (const auto* layout = op.spec_as<SinusoidLayout>())
      positions = *layout == SinusoidLayout::halves ? AddedPositions::sinusoids_in_halves : AddedPositions::sinusoids_in_pairs;
  }
  for (const HookRecord& hook : seen)
    if (const int64_t layer = split_layer(hook.name).first; layer >= 0)
      by_layer[static_cast<size_t>(layer)].hooks.push_back(&hook);
  for (size_t layer = 0; layer < by_layer.size(); ++layer) {
    layers.push_back(describe(by_layer[layer], model.shape(), static_cast<int64_t>(layer)));
    cache_.push_back(cache_of(by_layer[layer], layers.back()));
  }
}

const HookShape* ModelRecord::hook(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &hooks[found->second];
}

std::vector<CacheLayer> ModelRecord::cache_layers(CacheTypes types) const {
  std::vector<CacheLayer> layers_of_cache = cache_;
  for (CacheLayer& layer : layers_of_cache)
    if (layer.head_dim > 0) layer.types = types;
  return layers_of_cache;
}

}  // namespace vitrine
