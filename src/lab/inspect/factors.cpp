#include "inspect/factors.h"

#include <cmath>

#include "base/error.h"
#include "kernels/reference/rope.h"
#include "ops/linear.h"
#include "ops/low_rank.h"

namespace vitrine {
namespace {

bool has_number(const Vector& v) {
  for (int64_t i = 0; v && i < v.size; ++i)
    if (v.at<float>(i) != 0) return true;
  return false;
}

// (x - mean) ⊙ gain · w = (w ⊙ gain - mean(w ⊙ gain)) · x: what reads behind a norm, as if it read before it.
void fold_reader(RowsF& rows, const FrozenNorm& norm) {
  if (norm.gain.empty()) return;
  for (Eigen::Index r = 0; r < rows.rows(); ++r) {
    double mean = 0;
    for (Eigen::Index i = 0; i < rows.cols(); ++i) {
      rows(r, i) = static_cast<float>(static_cast<double>(rows(r, i)) * norm.gain[static_cast<size_t>(i)]);
      mean += static_cast<double>(rows(r, i));
    }
    if (!norm.rms) rows.row(r).array() -= static_cast<float>(mean / static_cast<double>(rows.cols()));
  }
}

// Each head's rows turned as rope turns a query `offset` positions after its key, with the factors of both.
void turn(RowsF& q, int64_t d_head, int64_t offset, const RopeSpec& rope) {
  const std::vector<float> frequencies = rope_frequencies(rope);
  const auto stretch = static_cast<float>(rope.attention_factor * rope.attention_factor);
  for (Eigen::Index head = rope.first; head < q.rows(); head += d_head)
    for (size_t i = 0; i < frequencies.size(); ++i) {
      const float angle = static_cast<float>(offset) * frequencies[i];
      const RopePair pair = rope_pair(rope.layout, i, static_cast<size_t>(rope.rotary_dim));
      const Eigen::RowVectorXf a = q.row(head + static_cast<Eigen::Index>(pair.a));
      const Eigen::RowVectorXf b = q.row(head + static_cast<Eigen::Index>(pair.b));
      q.row(head + static_cast<Eigen::Index>(pair.a)) = (a * std::cos(angle) - b * std::sin(angle)) * stretch;
      q.row(head + static_cast<Eigen::Index>(pair.b)) = (b * std::cos(angle) + a * std::sin(angle)) * stretch;
    }
}

RowsF multiply(Context& ctx, const RowsF& x, const RowsF& w, bool by_columns) {
  Weight weight;
  weight.name = "factor";
  weight.data = reinterpret_cast<const std::byte*>(w.data());
  weight.dtype = DType::f32;
  weight.out = by_columns ? w.cols() : w.rows();
  weight.in = by_columns ? w.rows() : w.cols();
  weight.stride = static_cast<size_t>(w.cols()) * sizeof(float);
  weight.by_columns = by_columns;
  RowsF y(x.rows(), weight.out);
  const Tensor rows(const_cast<float*>(x.data()), DType::f32, {x.rows(), x.cols()});  // linear only reads it
  linear_part(ctx, rows, weight, 0, weight.out, y.data(), y.cols());
  return y;
}

}  // namespace

RowsF dense(const Weight& w, int64_t first, int64_t n) {
  RowsF rows(n, w.in);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < w.in; ++i) rows(j, i) = w.at<float>(first + j, i);
    if (w.adapter != nullptr) add_merged(*w.adapter, first + j, rows.row(j).data());
  }
  return rows;
}

RowsF product(Context& ctx, const RowsF& x, const RowsF& w) { return multiply(ctx, x, w, false); }
RowsF product_by_columns(Context& ctx, const RowsF& x, const RowsF& w) { return multiply(ctx, x, w, true); }

LayerFactors layer_factors(Engine& engine, const NamedWeights& weights, int64_t layer, int64_t offset) {
  const ModelShape& shape = engine.shape();
  const LayerRecord& spec = engine.model().layer(layer);
  if (spec.gated_heads)
    throw InputError("layer " + std::to_string(layer) + " of " + engine.name() +
                     " has heads behind a gate that each token opens for itself: what a head writes is no fixed map of what it "
                     "reads, so it has no QK and OV circuits. Its hooks attn.hook_gate and attn.hook_gated_z show both");
  if (spec.latent_keys)
    throw InputError("layer " + std::to_string(layer) + " of " + engine.name() +
                     " makes keys and values of a latent vector that a norm divides by its length: what a head reads is no fixed "
                     "map of the stream, so it has no QK and OV circuits. Its hooks attn.kv_latent_norm.hook_normalized, "
                     "attn.hook_k and attn.hook_v show both sides");
  const std::string block = "blocks." + std::to_string(layer) + ".";
  if (engine.model().record().hook(block + "attn.rot_q_norm.hook_scale") != nullptr)
    throw InputError("layer " + std::to_string(layer) + " of " + engine.name() +
                     " normalizes queries and keys after RoPE: a score depends on both positions and not on their distance "
                     "alone, so its heads have no QK circuits. Its hooks attn.rot_q_norm and attn.rot_k_norm show both");
  // Keys and values may be those of an earlier layer, and values the keys before their norm.
  const std::string giver = "blocks." + std::to_string(spec.keys_of < 0 ? layer : spec.keys_of) + ".";
  const Weight &W_Q = weights.matrix(block + "attn.W_Q"), &W_K = weights.matrix(giver + "attn.W_K"),
               &W_O = weights.matrix(block + "attn.W_O");
  const Weight* const own_values = weights.find_matrix(giver + "attn.W_V");
  const Weight& W_V = own_values != nullptr ? *own_values : W_K;
  LayerFactors f;
  f.d_head = W_Q.out / shape.n_heads;
  f.v_head = W_V.out / spec.n_kv_heads;
  f.group = shape.n_heads / spec.n_kv_heads;
  f.q = dense(W_Q);
  f.k = dense(W_K);
  f.v = dense(W_V);
  f.o = dense(W_O).transpose();
  const Vector* ln1_bias = weights.find_vector(block + "ln1.b");
  const bool shifted = !spec.norms_after && ln1_bias != nullptr && has_number(*ln1_bias);
  f.query_bias = shifted || has_number(W_Q.bias);
  f.key_bias = shifted || has_number(W_K.bias);
  f.value_bias = shifted || has_number(W_V.bias);
  if (!spec.norms_after) {
    fold_reader(f.q, frozen_norm(weights, spec, block + "ln1"));
    const FrozenNorm ln1 = frozen_norm(weights, spec, giver + "ln1");
    for (RowsF* reader : {&f.k, &f.v}) fold_reader(*reader, ln1);
  }
  const FrozenNorm behind = frozen_norm(weights, spec, block + "ln1_post");  // an RMSNorm: nothing but a factor
  for (size_t i = 0; i < behind.gain.size(); ++i) f.o.col(static_cast<Eigen::Index>(i)) *= static_cast<float>(behind.gain[i]);
  if (spec.residual_scale != 1) f.o *= static_cast<float>(spec.residual_scale);
  // Norms on each head's query and key, or on those of all heads: their weights are factors of the rows, and LayerNorm takes the
  // mean of a head's rows from each of them.
  const auto fold_head_norm = [&](RowsF& rows, const std::string& name) {
    const std::vector<double> gain = frozen_norm(weights, spec, name).gain;
    for (Eigen::Index head = 0; head < rows.rows() && !gain.empty() && !spec.rms; head += f.d_head) {
      auto part = rows.middleRows(head, f.d_head);
      const Eigen::RowVectorXf mean = part.colwise().mean();
      part.rowwise() -= mean;
    }
    for (Eigen::Index r = 0; r < rows.rows() && !gain.empty(); ++r)
      rows.row(r) *= static_cast<float>(gain[static_cast<size_t>(r) % gain.size()]);
  };
  fold_head_norm(f.q, block + "attn.q_norm");
  fold_head_norm(f.k, giver + "attn.k_norm");
  if (spec.rope && (offset != 0 || spec.rope->attention_factor != 1)) turn(f.q, f.d_head, offset, *spec.rope);
  return f;
}

}  // namespace vitrine
