#include "inspect/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "hooks/trace.h"
#include "inspect/adapted_part.h"
#include "inspect/parts.h"
#include "inspect/weights.h"
#include "model/abilities.h"

namespace vitrine {
namespace {

// The linear map from what an MLP gives to the stream that the head reads, at one position of one run.
class WayOut {
 public:
  WayOut(Engine& engine, int64_t layer) : model_(engine.model()), weights_(*engine.opened().model) {
    const int64_t layers = engine.shape().n_layers;
    factor_ = model_.layer(layer).mlp_scale;
    if (weights_.find_vector(block(layer) + "ln2_post.w") != nullptr) norm(layer, "ln2_post");
    if (model_.layer(layer).norms_after) norm(layer, "ln2");
    for (int64_t l = layer; l < layers; ++l) {
      factor_ *= model_.layer(l).stream_scale;
      if (l > layer && model_.layer(l).norms_after) {
        norm(l, "ln1");
        norm(l, "ln2");
      }
    }
    if (FrozenNorm last = frozen_norm(weights_, model_.layer(0), "ln_final"); !last.gain.empty())
      norms_.push_back({"ln_final", std::move(last)});
  }

  std::vector<std::string> hooks() const {
    std::vector<std::string> names;
    for (const auto& [name, norm] : norms_) names.push_back(name + ".hook_scale");
    return names;
  }
  void apply(double* x, const std::map<std::string, double, std::less<>>& scales, int64_t d) const {
    for (int64_t i = 0; i < d; ++i) x[i] *= factor_;
    for (const auto& [name, norm] : norms_) norm.apply(x, scales.at(name + ".hook_scale"));
  }

 private:
  static std::string block(int64_t layer) { return "blocks." + std::to_string(layer) + "."; }
  void norm(int64_t layer, const char* name) {
    norms_.push_back({block(layer) + name, frozen_norm(weights_, model_.layer(layer), block(layer) + name)});
  }

  const Model& model_;
  NamedWeights weights_;
  std::vector<std::pair<std::string, FrozenNorm>> norms_;  // in the order of the run
  double factor_ = 1;
};

int64_t layer_of(const Engine& engine, int64_t layer) {
  const int64_t layers = engine.shape().n_layers;
  if (layer == -1) return std::max<int64_t>(layers - 2, 0);
  if (layer < 0 || layer >= layers)
    throw InputError(fmt::format("layer {} does not exist; {} has the layers 0 to {}", layer, engine.name(), layers - 1));
  return layer;
}

// What is sorted, and what it is divided by, must be numbers.
void require_finite(std::span<const float> numbers, const std::string& hook) {
  for (const float x : numbers)
    if (!std::isfinite(x)) throw RunError(fmt::format("{} holds {}", hook, std::isnan(x) ? "NaN" : "an infinity"));
}

}  // namespace

UnitWrites unit_writes(Engine& engine, std::span<const int32_t> ids, const UnitsOptions& options) {
  engine.check_ids(ids);
  require_residual(engine.model(), engine.name(), "What a unit writes");
  require_plain_head(engine.model(), engine.name(), "What a unit writes");
  UnitWrites result;
  result.layer = layer_of(engine, options.layer);
  const auto tokens = static_cast<int64_t>(ids.size());
  const std::vector<int64_t> asked{options.position < 0 ? options.position + tokens : options.position};
  result.position = positions_or_last(asked, ids.size()).front();

  const std::string mlp = "blocks." + std::to_string(result.layer) + ".mlp.";
  const std::vector<std::string> known = engine.model().hook_names();
  const NamedWeights weights(*engine.opened().model);
  const Weight* const out = weights.find_matrix(mlp + "W_out");
  if (out == nullptr && !engine.model().layer(result.layer).experts)
    throw UsageError(fmt::format("layer {} of {} has no MLP, and so no units", result.layer, engine.name()));
  if (out == nullptr || std::find(known.begin(), known.end(), mlp + "hook_post") == known.end() ||
      engine.model().layer(result.layer).experts)
    throw UsageError(
        fmt::format("layer {} of {} has no MLP that all tokens share; its units belong to experts", result.layer, engine.name()));
  const WayOut way(engine, result.layer);
  std::vector<std::string> hooks = way.hooks();
  hooks.push_back(mlp + "hook_post");
  for (std::string& hook : hooks) hook += fmt::format("[positions={}]", result.position);
  const Recorder seen = trace_to_memory(engine, ids, hooks);
  for (const auto& [name, value] : seen.values()) require_finite(value.values, name);
  std::map<std::string, double, std::less<>> scales;
  for (const std::string& name : way.hooks()) scales[name] = static_cast<double>(seen.values().at(name).values.front());
  const std::span<const float> values(seen.values().at(mlp + "hook_post").values);
  result.d_ff = std::ssize(values);

  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min<std::ptrdiff_t>(options.units, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end(), [&](int64_t a, int64_t b) {
    const float x = std::abs(values[static_cast<size_t>(a)]), y = std::abs(values[static_cast<size_t>(b)]);
    return x != y ? x > y : a < b;
  });
  Context& ctx = engine.context();
  const Head head = engine.model().head();
  const int64_t d = engine.shape().d_model, vocab = engine.shape().vocab_size;
  std::vector<float> logits(static_cast<size_t>(vocab));
  std::vector<double> x(static_cast<size_t>(d));
  for (auto unit = order.begin(); unit != end; ++unit) {
    // One unit's column of the matrix, with what an adapter adds to it: the matrix times that unit's axis.
    const auto frame = ctx.frame();
    const Tensor axis = ctx.zeros({1, result.d_ff}), column = ctx.empty({1, d}), row = ctx.empty({1, d});
    axis.data<float>()[*unit] = 1;
    adapted_part(ctx, axis, *out, 0, d, column.data<float>());
    const auto value = static_cast<double>(values[static_cast<size_t>(*unit)]);
    for (size_t i = 0; i < x.size(); ++i) x[i] = value * static_cast<double>(column.data<float>()[i]);
    way.apply(x.data(), scales, d);
    for (size_t i = 0; i < x.size(); ++i) row.data<float>()[i] = static_cast<float>(x[i]);
    adapted_part(ctx, row, *head.weight, 0, vocab, logits.data());
    for (float& logit : logits) logit *= static_cast<float>(head.scale);
    require_finite(logits, fmt::format("what unit {} adds to the logits", *unit));
    result.units.push_back(
        {*unit, value, extreme_logits(logits, options.tokens, true), extreme_logits(logits, options.tokens, false)});
  }
  return result;
}

}  // namespace vitrine
