#include "graph/local_replacement.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "hooks/listening.h"
#include "inspect/features.h"
#include "model/layer_name.h"
#include "ops/linear.h"
#include "ops/step.h"

namespace vitrine {
namespace {

struct SkipNode {
  Tensor input, output;
  const SparseAutoencoder* sae;  // lives as long as the set
};

// dx += dy W_skip
void skip_backward(Context& ctx, Tape& tape, const SkipNode& n) {
  const Tensor dy = tape.gradient(n.output);
  if (!dy) return;
  const Tensor dx = tape.accumulate(n.input);
  Weight skip;
  skip.name = "W_skip";
  skip.data = reinterpret_cast<const std::byte*>(n.sae->W_skip.data());
  skip.out = n.sae->d_out;
  skip.in = n.sae->d_in;
  skip.stride = static_cast<size_t>(skip.in) * sizeof(float);
  linear_part_backward(ctx, dx, skip, 0, skip.out, dy.raw(), skip.out, dx);
}

// A family's own words for its blocks say what else than attention and MLPs there is.
const char* other_parts(const LayerRecord& spec) {
  if (spec.conv) return "convolutions";
  if (spec.delta) return "recurrences";
  if (spec.latent_keys) return "keys and values of a latent vector";
  if (spec.gated_heads) return "gates on attention's heads";
  if (spec.per_layer_dim > 0) return "embeddings of each layer";
  if (spec.experts_beside) return "experts beside its MLP";
  if (spec.value_norm) return "norms on attention's values";
  return nullptr;
}

// Freezes what the local replacement model holds still, and keeps the tensors where gradients enter and leave.
class Freezing final : public Listener {
 public:
  Freezing(Tape& tape, const TranscoderSet& set)
      : tape_(tape), set_(set), inputs(set.layers.size()), outputs(set.layers.size()), mixed_(set.layers.size()) {}

  bool wants(std::string_view name) const override { return place_of(name).what != What::nothing; }

  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const Place place = place_of(name);
    if (place.what == What::constant) return value.without_grad();
    if (place.what == What::embedding) return embedding = copied(ctx, value);
    const auto layer = static_cast<size_t>(place.layer);
    if (place.what == What::mixing) {
      mixed_[layer] = true;
      return value.without_grad();
    }
    if (place.what == What::input) {
      inputs[layer] = value;
      // Nothing flows back through the MLP, so it need not be recorded; where attention reads beside it, it is.
      if (mixed_[layer]) ctx.record_on(nullptr);
      return {};
    }
    ctx.record_on(&tape_, /*training=*/false);
    outputs[layer] = copied(ctx, value);
    const SparseAutoencoder& sae = *set_.layers[layer];
    if (!sae.W_skip.empty()) tape_.record(&skip_backward, SkipNode{inputs[layer], outputs[layer], &sae});
    return outputs[layer];
  }

 private:
  enum class What : uint8_t { nothing, constant, mixing, input, output, embedding };
  struct Place {
    What what = What::nothing;
    int64_t layer = -1;
  };

  Place place_of(std::string_view name) const {
    if (name == "hook_embed") return {What::embedding};
    if (name.starts_with("ln_final.")) return {name.ends_with(".hook_scale") ? What::constant : What::nothing};
    const auto [layer, rest] = split_layer(name);
    if (layer < 0 || layer >= set_.n_layers()) return {};
    const SparseAutoencoder& sae = *set_.layers[static_cast<size_t>(layer)];
    if (name == sae.hook_name) return {What::input, layer};
    if (name == sae.hook_name_out) return {What::output, layer};
    for (const char* hook : {"attn.hook_q", "attn.hook_k", "attn.hook_rot_q", "attn.hook_rot_k"})
      if (rest == hook) return {What::mixing, layer};
    return {rest.starts_with("ln") && rest.ends_with(".hook_scale") ? What::constant : What::nothing, layer};
  }

  Tensor copied(Context& ctx, const Tensor& value) {
    const Tensor copy = ctx.empty(value.shape());
    std::memcpy(copy.raw(), value.raw(), value.bytes());
    return copy;
  }

  Tape& tape_;
  const TranscoderSet& set_;

 public:
  std::vector<Tensor> inputs, outputs;  // of each layer
  Tensor embedding;

 private:
  std::vector<bool> mixed_;  // attention has been reached in that layer
};

}  // namespace

struct LocalReplacement::Pass {
  Step step;
  Tape tape;
  Tensor final;  // what residual() gave
  int64_t positions = 0, copies = 0;
  std::vector<Tensor> inputs, outputs;
  Tensor embedding;
};

LocalReplacement::LocalReplacement(Engine& engine, const TranscoderSet& set, std::span<const int32_t> ids, size_t memory)
    : engine_(engine), set_(set), ids_(ids), memory_(memory) {
  check_replaceable(engine, set);
  engine.check_ids(ids);
}
LocalReplacement::~LocalReplacement() = default;

int64_t LocalReplacement::last_position(int64_t position) const {
  constexpr int64_t kShortest = 16;
  int64_t length = std::ssize(ids_);
  while (length > kShortest && position < (length + 1) / 2) length = (length + 1) / 2;
  return length - 1;
}

int64_t LocalReplacement::together(int64_t last) const {
  constexpr int64_t kMostRows = 512, kMostReaders = 256;
  const ModelShape& s = engine_.shape();
  // Of each layer what is recorded: the stream, norms in their parts, queries, keys, values; and gradients at its output.
  const int64_t numbers = s.n_layers * (16 * s.d_model + 5 * (s.n_heads + 2 * s.n_kv_heads) * s.head_dim);
  const int64_t rows =
      std::clamp<int64_t>(static_cast<int64_t>(memory_ / sizeof(float)) / std::max<int64_t>(numbers, 1), 1, kMostRows);
  return std::clamp<int64_t>(rows / (last + 1), 1, kMostReaders);
}

void LocalReplacement::record(int64_t positions, int64_t copies) {
  pass_ = nullptr;  // its memory first
  pass_ = std::make_unique<Pass>();
  Pass& r = *pass_;
  r.positions = positions;
  r.copies = copies;
  for (int64_t i = 0; i < r.copies; ++i) r.step.add(ids_.first(static_cast<size_t>(positions)), nullptr, std::ssize(ids_));
  Context& ctx = engine_.context();
  const auto frame = ctx.frame();
  Freezing freezing(r.tape, set_);
  const Listening listening(ctx, freezing, kEverySequence);
  const Recording recording(ctx, r.tape);
  r.final = engine_.model().residual(ctx, r.step);
  r.inputs = std::move(freezing.inputs);
  r.outputs = std::move(freezing.outputs);
  r.embedding = freezing.embedding;
  for (size_t layer = 0; layer < r.inputs.size(); ++layer)
    if (r.inputs[layer].grad() == nullptr || r.outputs[layer].grad() == nullptr)
      throw InputError("the transcoder of layer " + std::to_string(layer) + " reads at " + set_.layers[layer]->hook_name +
                       ", which a run reaches after " + set_.layers[layer]->hook_name_out + ", where it writes");
}

const LocalReplacement::Gradients& LocalReplacement::gradients(std::span<const StreamReader> readers, int64_t last) {
  if (pass_ == nullptr || pass_->positions != last + 1 || pass_->copies < std::ssize(readers))
    record(last + 1, std::ssize(readers));
  Pass& r = *pass_;
  Context& ctx = engine_.context();
  const auto frame = ctx.frame();
  r.tape.forget_gradients();
  int64_t row = 0;
  for (const StreamReader& reader : readers) {
    VITRINE_CHECK(reader.position <= last, "readers are at positions of the pass");
    const Tensor& at = reader.layer == set_.n_layers() ? r.final : r.inputs[static_cast<size_t>(reader.layer)];
    std::ranges::copy(reader.along, r.tape.accumulate(at).row<float>(row + reader.position));
    row += r.positions;
  }
  r.tape.walk(ctx);
  gradients_.positions = r.positions;
  gradients_.at_output.clear();
  for (const Tensor& output : r.outputs) gradients_.at_output.push_back(r.tape.gradient(output));
  gradients_.at_embedding = r.tape.gradient(r.embedding);
  return gradients_;
}

void check_replaceable(const Engine& engine, const TranscoderSet& set) {
  if (set.n_layers() != engine.shape().n_layers)
    throw InputError("there are transcoders for " + std::to_string(set.n_layers()) + " layers, and " + engine.name() + " has " +
                     std::to_string(engine.shape().n_layers) + "; a graph needs one for each. Are they of another model?");
  check_fits(engine, set);
  for (int64_t layer = 0; layer < set.n_layers(); ++layer) {
    const SparseAutoencoder& sae = *set.layers[static_cast<size_t>(layer)];
    if (split_layer(sae.hook_name_out) != std::pair<int64_t, std::string_view>(layer, "hook_mlp_out"))
      throw InputError("the transcoder of layer " + std::to_string(layer) + " writes at " + sae.hook_name_out +
                       "; a graph needs those that stand for MLPs and write at blocks." + std::to_string(layer) +
                       ".hook_mlp_out");
    if (const char* parts = other_parts(engine.model().layer(layer)))
      throw InputError(engine.name() + " has " + parts + " in layer " + std::to_string(layer) +
                       ", and attribution graphs are defined for attention and MLPs alone");
    if (engine.model().layer(layer).keys_of >= 0)
      throw InputError("layer " + std::to_string(layer) + " of " + engine.name() +
                       " reads the keys and values of another layer, for which attribution graphs are not defined");
  }
}

}  // namespace vitrine
