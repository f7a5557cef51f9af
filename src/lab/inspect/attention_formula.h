#pragma once
// The attention of one layer as the formula of its heads, in double and apart from the ops that run it: for checks, and for what
// no run shows, such as a head without its mask or with weights of attention that do not follow its input.
#include <Eigen/Core>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "inspect/circuits.h"
#include "inspect/factors.h"
#include "inspect/weights.h"
#include "runtime/engine.h"

namespace vitrine {

using RowsD = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// What a head knows of order. Without the mask (and its window) every row sees all rows; without places no query or key is
/// turned, and nothing is added to scores for their distance.
struct AttentionOrder {
  bool mask = true, places = true;
};

/// x [T, d_model]: what the heads read, `reads()` of a run. For each head
///   q = x W_Qᵀ + b_Q,  k = x W_Kᵀ + b_K      normalized where the model does so, turned by their rows' places where it has RoPE
///   A(x) = softmax(cap(scale · q kᵀ) + mask)  [T, T]; with a sink its rows add up to less than 1, with ALiBi slope · (j - i)
///                                             is added to the score of row i and key j
///   h(x) = A(x) · (x S + 1 c)                 S = W_Vᵀ W_Oᵀ [d_model, d_model], c = b_V W_Oᵀ; attn.hook_result of a run
/// Without biases on queries and keys, norms on them and turning, the scores are scale · x Y xᵀ with Y = W_Qᵀ W_K.
class AttentionFormula {
 public:
  /// Why this is not what the layer's heads compute ("its heads stand behind gates"), or nothing.
  static std::optional<std::string> why_not(const Model& model, int64_t layer);
  /// The hook whose rows the layer's heads read: behind the norm where there is one in front.
  static std::string reads(const Model& model, int64_t layer);

  /// Copies the layer's weights. Errors: a broken promise if why_not() says something.
  AttentionFormula(Engine& engine, int64_t layer);

  int64_t heads() const { return heads_; }
  bool turns() const { return spec_.rope.has_value(); }
  bool slopes() const { return spec_.attention.alibi; }
  /// Whether queries grow with their position.
  bool scales() const { return spec_.temperature.has_value(); }
  bool has_sinks() const { return !sinks_.empty(); }
  /// Whether h has the part A(x) · 1 c.
  bool has_constant() const { return v_bias_.size() > 0; }
  /// Whether the scores are scale · x Y xᵀ once nothing is turned.
  bool plain_scores() const { return q_gain_.empty() && q_bias_.size() == 0 && k_bias_.size() == 0; }

  /// A(x) of every head, [T, T] each.
  std::vector<RowsD> patterns(const RowsD& x, const AttentionOrder& order) const;
  /// A · x S, without the constant.
  RowsD mixed(int64_t head, const RowsD& A, const RowsD& x) const;
  /// h for these weights of attention: A · (x S + 1 c).
  RowsD written(int64_t head, const RowsD& A, const RowsD& x) const;

  /// S and Y as thin factors (circuits.h); weights of norms on queries and keys are folded into Y, other norms are not.
  FactoredMatrix S(int64_t head) const;
  FactoredMatrix Y(int64_t head) const;

 private:
  RowsD projected(const RowsD& x, const RowsF& w, const Eigen::RowVectorXd& bias) const;
  void normalize(RowsD& rows, const std::vector<double>& gain) const;
  void turn(RowsD& rows) const;

  int64_t heads_, kv_heads_, group_, d_head_, v_head_;
  LayerRecord spec_;
  RowsF q_, k_, v_, o_;  // [N·d_head, D], [G·d_head, D], [G·v_head, D], [N·v_head, D]
  Eigen::RowVectorXd q_bias_, k_bias_, v_bias_;
  std::vector<double> q_gain_, k_gain_, sinks_;  // of norms on queries and keys: of each head or of all
  bool joint_norms_ = false;                     // one norm over all heads
};

/// M [d_model, d_model] from its factors, reduced to `side` by `side` cells: root mean squares of blocks of nearly equal size;
/// the entries themselves if side >= d_model.
RowsD reduced(const FactoredMatrix& m, int64_t side);

}  // namespace vitrine
