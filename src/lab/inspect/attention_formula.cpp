#include "inspect/attention_formula.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/reference/rope.h"

namespace vitrine {
namespace {

using Eigen::Index;

Eigen::RowVectorXd bias_of(const Vector& v) {
  Eigen::RowVectorXd row(v ? v.size : 0);
  for (Index i = 0; i < row.size(); ++i) row[i] = v.at<double>(i);
  return row.isZero(0) ? Eigen::RowVectorXd() : row;
}

std::vector<float> stored_factor(const RowsF& rows) { return {rows.data(), rows.data() + rows.size()}; }

}  // namespace

std::optional<std::string> AttentionFormula::why_not(const Model& model, int64_t layer) {
  const LayerRecord& spec = model.layer(layer);
  if (!spec.has_attention()) return std::string("it has ") + spec.instead_of_attention() + " in the place of attention";
  if (spec.latent_keys) return "its keys and values are made of a latent vector behind a norm";
  if (spec.gated_heads) return "its heads stand behind gates, which each token opens for itself";
  if (spec.value_norm) return "its values are divided by their length, so they are no fixed map of what the heads read";
  if (spec.keys_of >= 0)
    return "it takes its keys and values from layer " + std::to_string(spec.keys_of) + " and does not read them itself";
  const auto shows = [&](const char* hook) { return model.record().hook("blocks." + std::to_string(layer) + hook) != nullptr; };
  if (shows(".attn.hook_rot_v")) return "its values are turned by their places";
  if (shows(".attn.rot_q_norm.hook_scale")) return "its queries and keys are normalized after RoPE";
  return std::nullopt;
}

std::string AttentionFormula::reads(const Model& model, int64_t layer) {
  const std::string block = "blocks." + std::to_string(layer) + ".", normed = block + "ln1.hook_normalized";
  return !model.layer(layer).norms_after && model.record().hook(normed) != nullptr ? normed : block + "hook_resid_pre";
}

AttentionFormula::AttentionFormula(Engine& engine, int64_t layer)
    : heads_(engine.shape().n_heads), spec_(engine.model().layer(layer)) {
  VITRINE_CHECK(!why_not(engine.model(), layer), "a layer whose heads are this formula");
  const NamedWeights weights(*engine.opened().model);
  const std::string attn = "blocks." + std::to_string(layer) + ".attn.";
  const Weight &W_Q = weights.matrix(attn + "W_Q"), &W_K = weights.matrix(attn + "W_K"), &W_O = weights.matrix(attn + "W_O");
  const Weight* const own_values = weights.find_matrix(attn + "W_V");
  const Weight& W_V = own_values != nullptr ? *own_values : W_K;
  kv_heads_ = spec_.n_kv_heads;
  group_ = heads_ / kv_heads_;
  d_head_ = W_Q.out / heads_;
  v_head_ = W_V.out / kv_heads_;
  q_ = dense(W_Q);
  k_ = dense(W_K);
  v_ = dense(W_V);
  o_ = dense(W_O).transpose();
  q_bias_ = bias_of(W_Q.bias);
  k_bias_ = bias_of(W_K.bias);
  v_bias_ = bias_of(W_V.bias);
  q_gain_ = frozen_norm(weights, spec_, attn + "q_norm").gain;
  k_gain_ = frozen_norm(weights, spec_, attn + "k_norm").gain;
  const HookShape* const normed = engine.model().record().hook(attn + "q_norm.hook_normalized");
  joint_norms_ = normed != nullptr && normed->sizes.size() == 2;  // [rows, n_heads * head_dim]
  if (const Vector* const sinks = spec_.attention.sinks; sinks != nullptr)
    for (int64_t h = 0; h < sinks->size; ++h) sinks_.push_back(sinks->at<double>(h));
}

RowsD AttentionFormula::projected(const RowsD& x, const RowsF& w, const Eigen::RowVectorXd& bias) const {
  RowsD rows = x * w.cast<double>().transpose();
  if (bias.size() > 0) rows.rowwise() += bias;
  return rows;
}

// Each head's part of a row by itself, or the row as one. gain: of one head, which all share, or of all.
void AttentionFormula::normalize(RowsD& rows, const std::vector<double>& gain) const {
  const Index width = joint_norms_ ? rows.cols() : d_head_;
  for (Index r = 0; r < rows.rows(); ++r)
    for (Index first = 0; !gain.empty() && first < rows.cols(); first += width) {
      auto part = rows.row(r).segment(first, width);
      if (!spec_.rms) part.array() -= part.mean();
      part /= std::sqrt(part.squaredNorm() / static_cast<double>(width) + spec_.norm.eps);
      for (Index i = 0; i < width; ++i) part[i] *= gain[static_cast<size_t>(first + i) % gain.size()];
    }
}

// Angles are f32 as those of a run are; everything behind them is double.
void AttentionFormula::turn(RowsD& rows) const {
  const RopeSpec& rope = *spec_.rope;
  const std::vector<float> frequencies = rope_frequencies(rope, rows.rows());
  for (Index r = 0; r < rows.rows(); ++r)
    for (Index head = 0; head < rows.cols(); head += d_head_)
      for (size_t i = 0; i < frequencies.size(); ++i) {
        const auto angle = static_cast<double>(static_cast<float>(r) * frequencies[i]);
        const double cos = std::cos(angle) * rope.attention_factor, sin = std::sin(angle) * rope.attention_factor;
        const RopePair pair = rope_pair(rope.layout, i, static_cast<size_t>(rope.rotary_dim));
        const Index begin = head + rope.first;
        double &a = rows(r, begin + static_cast<Index>(pair.a)), &b = rows(r, begin + static_cast<Index>(pair.b));
        const double before = a;
        a = before * cos - b * sin;
        b = b * cos + before * sin;
      }
}

std::vector<RowsD> AttentionFormula::patterns(const RowsD& x, const AttentionOrder& order) const {
  RowsD q = projected(x, q_, q_bias_), k = projected(x, k_, k_bias_);
  normalize(q, q_gain_);
  normalize(k, k_gain_);
  if (order.places && spec_.rope) {
    turn(q);
    turn(k);
  }
  for (Index r = 0; order.places && spec_.temperature && r < q.rows(); ++r)
    q.row(r) *= static_cast<double>(temperature_factor(*spec_.temperature, r));
  const AttentionSpec& spec = spec_.attention;
  std::vector<RowsD> patterns;
  for (int64_t head = 0; head < heads_; ++head) {
    RowsD a = spec.scale * (q.middleCols(head * d_head_, d_head_) * k.middleCols(head / group_ * d_head_, d_head_).transpose());
    if (spec.softcap != 0) a = spec.softcap * (a.array() / spec.softcap).tanh();
    if (spec.alibi && order.places)
      for (Index i = 0; i < a.rows(); ++i)
        for (Index j = 0; j < a.cols(); ++j) a(i, j) += alibi_slope(head, heads_) * static_cast<double>(j - i);
    for (Index i = 0; i < a.rows(); ++i) {
      const auto hidden = [&](Index j) { return order.mask && spec.causal && (j > i || j < first_seen(spec, i)); };
      double most = sinks_.empty() ? -std::numeric_limits<double>::infinity() : sinks_[static_cast<size_t>(head)];
      for (Index j = 0; j < a.cols(); ++j)
        if (!hidden(j)) most = std::max(most, a(i, j));
      double sum = sinks_.empty() ? 0 : std::exp(sinks_[static_cast<size_t>(head)] - most);
      for (Index j = 0; j < a.cols(); ++j) {
        a(i, j) = hidden(j) ? 0 : std::exp(a(i, j) - most);
        sum += a(i, j);
      }
      a.row(i) /= sum;
    }
    patterns.push_back(std::move(a));
  }
  return patterns;
}

RowsD AttentionFormula::mixed(int64_t head, const RowsD& A, const RowsD& x) const {
  const RowsD values = x * v_.middleRows(head / group_ * v_head_, v_head_).cast<double>().transpose();
  return (A * values) * o_.middleRows(head * v_head_, v_head_).cast<double>();
}

RowsD AttentionFormula::written(int64_t head, const RowsD& A, const RowsD& x) const {
  RowsD rows = mixed(head, A, x);
  if (!has_constant()) return rows;
  const Eigen::RowVectorXd constant =
      v_bias_.segment(head / group_ * v_head_, v_head_) * o_.middleRows(head * v_head_, v_head_).cast<double>();
  return rows + A.rowwise().sum() * constant;
}

FactoredMatrix AttentionFormula::S(int64_t head) const {
  return {o_.cols(), v_head_, stored_factor(v_.middleRows(head / group_ * v_head_, v_head_)),
          stored_factor(o_.middleRows(head * v_head_, v_head_))};
}

FactoredMatrix AttentionFormula::Y(int64_t head) const {
  const auto factor = [&](const RowsF& all, int64_t h, const std::vector<double>& gain) {
    RowsF rows = all.middleRows(h * d_head_, d_head_);
    if (!gain.empty() && !spec_.rms) rows.rowwise() -= Eigen::RowVectorXf(rows.colwise().mean());
    for (Index r = 0; r < rows.rows() && !gain.empty(); ++r)
      rows.row(r) *= static_cast<float>(gain[static_cast<size_t>(h * d_head_ + r) % gain.size()]);
    return stored_factor(rows);
  };
  return {q_.cols(), d_head_, factor(q_, head, q_gain_), factor(k_, head / group_, k_gain_)};
}

RowsD reduced(const FactoredMatrix& m, int64_t side) {
  const Eigen::Map<const RowsF> left(m.left.data(), m.d_head, m.d_model), right(m.right.data(), m.d_head, m.d_model);
  const int64_t cells = std::min(side, m.d_model);
  const auto begin = [&](int64_t cell) { return cell * m.d_model / cells; };
  RowsD grid(cells, cells);
  for (int64_t r = 0; r < cells; ++r) {
    const int64_t rows = begin(r + 1) - begin(r);
    const RowsD band = left.middleCols(begin(r), rows).cast<double>().transpose() * right.cast<double>();  // [rows, d_model]
    for (int64_t c = 0; c < cells; ++c) {
      const auto block = band.middleCols(begin(c), begin(c + 1) - begin(c));
      grid(r, c) = cells == m.d_model ? block(0, 0) : std::sqrt(block.squaredNorm() / static_cast<double>(block.size()));
    }
  }
  return grid;
}

}  // namespace vitrine
