#pragma once
// Mixture of experts: a router chooses for each row the few feed-forward sub-layers that it goes through.
#include <optional>
#include <span>
#include <vector>

#include "ops/context.h"
#include "ops/elementwise.h"
#include "ops/weight.h"

namespace vitrine {

/// How rows are routed, and what an expert's hidden layer computes.
struct ExpertSpec {
  int64_t count = 0, per_row = 0;  // experts of the layer; those that a row goes through
  int64_t d_ff = 0;                // hidden units of one expert
  /// The weights of the chosen: their share of the softmax over all experts (true), or the softmax over themselves.
  bool softmax_over_all = true;
  bool renormalize = true;  // with softmax_over_all: divided by their sum
  double sum_eps = 0;       // which this is added to
  double least_sum = 0;     // and which is at least this
  bool sigmoid = false;     // with softmax_over_all: the score of an expert is the sigmoid of its logit, not a share of a softmax
  double scale = 1;         // what all weights are multiplied by in the end
  /// [count] What is added to the scores of experts where they are chosen, and not to their weights; null: nothing.
  const Vector* correction = nullptr;
  /// Above 1: experts stand in so many groups of one size, and are chosen from the best groups_used of them. A group is as good
  /// as the sum of its best group_best scores (1 or 2).
  int64_t groups = 1, groups_used = 1, group_best = 1;
  /// SparseMixer, in the place of all above but count and per_row.
  /// The chosen are taken one after the other, and each is weighed by the softmax over those experts that are left whose logits
  /// are near to the largest:
  ///   (largest - logit) / max(|logit|, largest) <= near
  std::optional<double> near = {};
  Activation activation = Activation::silu;
  bool gated = true;  // false: an expert is f(x W_inᵀ) W_outᵀ
  /// Above 0: the hidden layer is (up + 1) · gate · sigmoid(slope · gate) with gate <= limit and |up| <= limit (gpt-oss).
  double limit = 0, slope = 1.702;
  /// A row enters an expert multiplied by its weight, and what experts give is added as it is (Llama 4).
  bool weighs_inputs = false;
  const Vector* scales = nullptr;  // [count] what the weights of each expert are multiplied by in the end; null: nothing
};

/// One expert's matrices. `in` may hold gate and up by turns: outputs 2i and 2i + 1 are gate i and up i; then there is no `gate`.
struct Expert {
  Weight gate, in;  // [d_ff, d_model] each, or `in` alone [2 d_ff, d_model]; without gates `in` alone [d_ff, d_model]
  Weight out;       // [d_model, d_ff]
};

/// What the load-balancing loss of a step is made of, from all its layers with experts. With N rows of all layers together, f_e
/// the choices of expert e and P_e the sum of its probabilities (softmax over all experts):
///   loss = E · sum over e of (f_e / N) · (P_e / N)
/// arXiv:2101.03961 equations 4 to 6, as transformers' load_balancing_loss_func computes it. While a Context has one, forward
/// adds to the sums and backward adds `weight` times the loss's gradient to that of the router's logits.
struct RouterBalance {
  double weight = 0;  // of the loss: its coefficient, and what the step's loss is multiplied by
  std::vector<double> chosen, probability;
  int64_t rows = 0;
  bool complete = false;  // set before backward: a recomputed block adds nothing again

  double loss() const;
};

/// The sub-layer: sum over the chosen experts e of weight_e · expert_e(x), with expert(x) = (f(x W_gateᵀ) · (x W_inᵀ)) W_outᵀ;
/// without gates expert(x) = f(x W_inᵀ) W_outᵀ; with weighs_inputs the sum of expert_e(weight_e · x).
///
/// x        [rows, d_model]
/// router   [count, d_model], with a bias where it has one
/// experts  `count` of them, all of one size; their elements may have any weight type
/// routed   what the router reads, where that is not x (Gemma 4): [rows, d_model]
/// returns  [rows, d_model]
///
/// Rows are sorted by expert, and each expert multiplies its rows at once. Which kernel does that depends on the rows of x, not
/// on how many of them an expert gets: a row's result does not depend on the other rows. Equal logits: the expert of lower
/// number.
///
/// Hook points under `name`: hook_router_logits [rows, count]; hook_expert_indices [rows, per_row], numbers of experts, the
/// best first; hook_expert_weights [rows, per_row]; hook_pre, hook_pre_linear (with gates), hook_post [rows, per_row, d_ff] and
/// hook_expert_out [rows, per_row, d_model] of each chosen expert, the last before its weight. Listening to those with three axes
/// runs the stepwise form, whose numbers are those of the other. Replaced indices choose the experts and their weights.
/// Backward: x, routed, the router and the scales through the weights, the experts, their adapters. The choice itself has no
/// gradient. Errors:   ShapeError for a wrong number of experts; InputError for a replaced index that is no expert's number.
/// Sources:  arXiv:1701.06538 section 2, 2401.04088 section 2.1 (Mixtral), 2505.09388 section 2 (Qwen 3), 2508.10925 (gpt-oss),
///           2405.04434 section 2.2.1 (groups), 2412.19437 section 2.1.2 (sigmoids, corrections), 2409.12136 (SparseMixer, as it
///           runs outside of training).
Tensor expert_mlp(Context& ctx, std::string_view name, const Tensor& x, const Weight& router, std::span<const Expert> experts,
                  const ExpertSpec& spec, const Tensor& routed = {});

}  // namespace vitrine
