#include "picture/data/backward.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "model/layer_name.h"
#include "model/record.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

constexpr std::array<std::string_view, 2> kStream = {"hook_resid_pre", "hook_resid_post"};
// Those that hold a row for each token.
constexpr std::array<std::string_view, 15> kTokenHooks = {
    "hook_embed",   "hook_resid_pre", "ln1.hook_normalized", "attn.hook_q",     "attn.hook_k",
    "attn.hook_v",  "attn.hook_z",    "hook_attn_out",       "hook_resid_mid",  "ln2.hook_normalized",
    "mlp.hook_pre", "mlp.hook_post",  "hook_mlp_out",        "hook_resid_post", "ln_final.hook_normalized"};

double length(const std::vector<double>& parts) {
  double squares = 0;
  for (const double x : parts) squares += x * x;
  return std::sqrt(squares);
}

// Hears the gradients at hooks and keeps the length of each row.
class GradientLengths final : public Listener {
 public:
  GradientLengths(const Model& model, std::span<const std::string_view> wanted, size_t tokens) {
    for (const std::string& name : model.hook_names()) {
      const auto [layer, rest] = split_layer(name);
      if (std::find(wanted.begin(), wanted.end(), rest) == wanted.end()) continue;
      const std::string kind = layer < 0 ? name : "blocks.*." + std::string(rest);
      size_t at = 0;
      while (at < hooks.size() && hooks[at].name != kind) ++at;
      if (at == hooks.size()) {  // zeros, if nothing that is scored depends on it, and in layers that have no such hook
        const int64_t places = layer < 0 ? 1 : model.shape().n_layers;
        hooks.push_back({kind, std::vector(static_cast<size_t>(places), std::vector<double>(tokens))});
      }
      places_[name] = {at, static_cast<size_t>(std::max<int64_t>(layer, 0))};
    }
  }
  bool wants(std::string_view) const override { return false; }
  Tensor see(Context&, std::string_view, const Tensor&) override { return {}; }
  bool wants_gradient(std::string_view name) const override { return places_.contains(name); }
  void see_gradient(std::string_view name, const Tensor& gradient) override {
    const auto [kind, layer] = places_.find(name)->second;
    for (int64_t r = 0; r < gradient.rows(); ++r) {
      const float* row = gradient.row<float>(r);
      double squares = 0;
      for (int64_t i = 0; i < gradient.row_size(); ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
      hooks[kind].norms[layer][static_cast<size_t>(r)] = std::sqrt(squares);
    }
  }
  std::vector<Backward::Hook> hooks;

 private:
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> places_;  // of a hook's full name: kind, layer
};

Backward::Parameters lengths_of(OpenedModel& opened, const Gradients& gradients) {
  const bool gguf = opened.gguf != nullptr;
  const auto layers = static_cast<size_t>(opened.model->shape().n_layers);
  Backward::Parameters p{std::vector<double>(layers), std::vector<double>(layers), {}, 0};
  for (const FileTensor& tensor : file_tensors(*opened.model, gguf)) {  // in the order of the run
    if (tensor.is_constant()) continue;
    const std::vector<std::byte>& data = gradients.buffers().at(tensor.name).data;
    const std::span<const float> numbers(reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float));
    double squares = 0;
    for (const float g : numbers) squares += static_cast<double>(g) * static_cast<double>(g);
    p.all += squares;
    const std::string& name = tensor.parts.back()->ours;
    const auto [layer, rest] = split_layer(name);
    if (layer < 0) {
      p.rest.emplace_back(name, std::sqrt(squares));
    } else {
      const bool attention = rest.starts_with("attn.") || rest.starts_with("conv.") || rest.starts_with("ln1");
      (attention ? p.attention : p.mlp)[static_cast<size_t>(layer)] += squares;
    }
  }
  for (auto* group : {&p.attention, &p.mlp})
    for (double& x : *group) x = std::sqrt(x);
  p.all = std::sqrt(p.all);
  return p;
}

}  // namespace

Backward run_backward(Engine& engine, std::span<const int32_t> ids, const BackwardOptions& options) {
  std::vector<int32_t> labels(ids.begin() + 1, ids.end());
  labels.push_back(kNotScored);
  OpenedModel& opened = engine.opened();
  Context& ctx = engine.context();
  const Model& model = options.model != nullptr ? *options.model : engine.model();
  GradientLengths seen(model, options.hooks ? std::span<const std::string_view>(kTokenHooks) : kStream, ids.size());
  std::optional<Gradients> gradients;
  if (options.parameters) gradients.emplace(*opened.model, opened.gguf != nullptr);
  Backward result;
  {
    const Step step = Step::of(ids);  // the tape refers to it
    const auto frame = ctx.frame();
    const Listening listening(ctx, seen);
    Tape tape;  // a block that is run again in backward would show nobody its hooks
    const Recording recording(ctx, tape);
    const Tensor loss = cross_entropy(ctx, model.residual(ctx, step), model.head(), labels);
    result.loss = static_cast<double>(*loss.data<float>());
    tape.backward(ctx, loss);
    result.bytes = tape.peak();
  }
  for (const Backward::Hook& hook : seen.hooks) {
    if (hook.name == "blocks.*.hook_resid_pre")
      for (const std::vector<double>& layer : hook.norms) result.stream.push_back(length(layer));
    if (hook.name == "blocks.*.hook_resid_post") result.stream.push_back(length(hook.norms.back()));  // comes after resid_pre
  }
  if (options.hooks) result.hooks = std::move(seen.hooks);
  if (gradients) result.parameters = lengths_of(opened, *gradients);
  return result;
}

size_t backward_bytes(const Model& model, int64_t tokens, int64_t layers) {
  int64_t around = 0;  // kept outside of the blocks
  std::vector<int64_t> kept(static_cast<size_t>(model.shape().n_layers));
  for (const OpRecord& op : record_step(model, {.rows = tokens, .tape = true}).ops)
    (op.layer < 0 ? around : kept[static_cast<size_t>(op.layer)]) += op.bytes_kept;
  // The stepwise forms that listeners select keep more, and gradients are beside the activations: twice the tape of a run that
  // nobody listens to. A tape that runs blocks again keeps the residual stream before each of them. The loss takes rows of
  // logits.
  const ModelShape& shape = model.shape();
  const int64_t others = tokens * shape.n_layers * shape.d_model + 4 * shape.vocab_size;
  return static_cast<size_t>(2 * (around + layers * *std::max_element(kept.begin(), kept.end()))) +
         static_cast<size_t>(others) * sizeof(float);
}

}  // namespace vitrine
