#include "train/initialize.h"

#include <algorithm>
#include <cmath>

#include "base/fnv.h"
#include "base/philox.h"
#include "model/config_file.h"
#include "model/registry.h"
#include "model/reward_model.h"

namespace vitrine {
namespace {

// n values of N(center, std), two from each counter value (Box and Muller, 1958).
void draw(float* w, size_t n, double center, double std, uint64_t seed, uint64_t stream) {
  constexpr double kTurn = 6.283185307179586;
  for (size_t i = 0; i < n; i += 2) {
    const auto words = philox(seed, i / 2, stream);
    const double u = (static_cast<double>(words[0]) + 0.5) * 0x1p-32, angle = kTurn * static_cast<double>(words[1]) * 0x1p-32;
    const double radius = std * std::sqrt(-2 * std::log(u));
    w[i] = static_cast<float>(center + radius * std::cos(angle));
    if (i + 1 < n) w[i + 1] = static_cast<float>(center + radius * std::sin(angle));
  }
}

// log of n values even in [0.01, 16]: the recurrence's decays, from long memories to short ones.
void draw_decays(float* w, size_t n, uint64_t seed, uint64_t stream) {
  for (size_t i = 0; i < n; ++i)
    w[i] = static_cast<float>(std::log(0.01 + 15.99 * static_cast<double>(philox(seed, i, stream)[0]) * 0x1p-32));
}

// n biases whose softplus is even in the logarithm from 0.001 to 0.1: a state space's steps of time, from slow heads to quick
// ones.
void draw_time_steps(float* w, size_t n, uint64_t seed, uint64_t stream) {
  for (size_t i = 0; i < n; ++i) {
    const double delta = 0.001 * std::pow(100.0, static_cast<double>(philox(seed, i, stream)[0]) * 0x1p-32);
    w[i] = static_cast<float>(std::log(std::expm1(delta)));
  }
}

}  // namespace

void initialize_score(OpenedModel& opened, uint64_t seed) {
  const Weight& score = *opened.model->head().weight;
  const auto* const numbers = reinterpret_cast<const float*>(score.data);
  for (const auto& own : opened.widened)
    if (own.get() == numbers)
      draw(own.get(), static_cast<size_t>(score.in), 0, initializer_range(opened.files), seed, fnv1a(RewardModel::kScore));
}

void initialize(const Parameters& parameters, const Model& model, const InitRule& rule, uint64_t seed) {
  const ModelShape shape = model.shape();
  const double offset = model.layer(0).norm.offset;
  for (const Parameter& p : parameters.list()) {
    float* const w = parameters.weights(p);
    const std::string_view ours = p.ours;
    const uint64_t stream = fnv1a(p.name);
    if (ours.ends_with("conv.kernel")) {
      const double of_taps = 1 / std::sqrt(static_cast<double>(p.shape.back()));
      draw(w, p.count, 0, rule.kind == InitRule::Kind::scale_preserving ? of_taps : rule.std, seed, stream);
      continue;
    }
    if (ours.ends_with(".delta.A") || ours.ends_with(".ssm.A")) {
      draw_decays(w, p.count, seed, stream);
      continue;
    }
    if (ours.ends_with(".ssm.dt_bias")) {
      draw_time_steps(w, p.count, seed, stream);
      continue;
    }
    if (ours.ends_with(".ssm.D")) {
      std::fill_n(w, p.count, 1.0f);
      continue;
    }
    if (ours.ends_with(".delta.dt_bias") || ours.ends_with(".delta.norm.w")) {  // 1 whatever the other norms' weights mean
      draw(w, p.count, 1, ours.ends_with(".w") && rule.random_norms ? rule.std : 0.0, seed, stream);
      continue;
    }
    if (!p.matrix) {
      const bool norm_weight = ours.ends_with(".w"),
                 norm = norm_weight || ours.ends_with(".b");  // other vectors: biases b_Q, b_in
      if (p.constant) {                                       // norms without scale and shift; Gemma 4's factor of a layer
        std::fill_n(w, p.count, norm ? static_cast<float>(norm_weight ? 1 - offset : 0) : 1.0f);
        continue;
      }
      draw(w, p.count, norm_weight ? 1 - offset : 0.0, norm && rule.random_norms ? rule.std : 0.0, seed, stream);
      continue;
    }
    double std = rule.std;
    if (rule.kind == InitRule::Kind::scale_preserving)
      std = 1 / std::sqrt(static_cast<double>(p.shape[p.by_columns ? 0 : 1]));
    else if (family_of(model).scales_residual_init && (ours.ends_with(".W_O") || ours.ends_with(".W_out")))
      std /= std::sqrt(2 * static_cast<double>(shape.n_layers));
    draw(w, p.count, 0, std, seed, stream);
  }
}

}  // namespace vitrine
