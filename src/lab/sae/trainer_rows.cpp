// The part of a step that goes by rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/table.h"
#include "ops/packed_product.h"
#include "sae/trainer_work.h"

namespace vitrine {

using Architecture = SaeLearning::Architecture;
using Sparsity = SaeLearning::Sparsity;

void SaeRows::clear() {
  entries.clear(), aux.clear(), ends.clear(), aux_ends.clear();
  mse = sparsity = aux_loss = 0;
  active = 0;
}

void SaeTrainer::Work::run_rows(size_t task, size_t thread) {
  const KernelTable& k = kernels();
  const PackedKernels& p = k.packed_f32;
  SaeThread& t = threads[thread];
  SaeRows& result = results[task];
  result.clear();
  const size_t first = task * SaeRows::kRows, n = std::min(SaeRows::kRows, rows - first);
  float* x_centered = centered.data() + first * D;
  for (size_t r = 0; r < n; ++r)
    for (size_t i = 0; i < D; ++i) x_centered[r * D + i] = x[(first + r) * D + i] - q.b_dec[i];
  t.h.resize(SaeRows::kRows * F);
  t.packed.resize(packed_a_bytes(p, SaeRows::kRows, D) + 64);
  std::byte* const packed = aligned_begin(t.packed);
  pack_a(p, {x_centered, D}, n, D, packed);
  multiply_packed(p, packed, false, aligned_begin(packed_enc), n, F, D, t.h.data(), F, false);

  for (size_t r = 0; r < n; ++r) k.add(t.h.data() + r * F, q.b_enc.data(), F, t.h.data() + r * F);
  if (l.architecture == Architecture::topk || l.architecture == Architecture::gated) {
    for (size_t r = 0; r < n; ++r) {
      const float* h = t.h.data() + r * F;
      const size_t begin = result.entries.size();
      choose(h, t, result);
      result.ends.push_back(static_cast<uint32_t>(result.entries.size()));
      reconstruct(first + r, begin, result);
      if (l.architecture == Architecture::gated)
        learn_from_gates(first + r, h, result);
      else if (aux)
        learn_from_silent(first + r, h, t, result);
      differentiate(first + r, begin, nullptr, result);
    }
    return;
  }
  for (size_t r = 0; r < n; ++r) {
    choose(t.h.data() + r * F, t, result);
    result.ends.push_back(static_cast<uint32_t>(result.entries.size()));
  }
  const bool dense = result.entries.size() > n * F / kSparse;
  if (dense) reconstruct_densely(first, n, t, result);
  for (size_t r = 0, begin = 0; r < n; begin = result.ends[r], ++r) {
    if (!dense) reconstruct(first + r, begin, result);
    differentiate(first + r, begin, dense ? t.h.data() + r * F : nullptr, result);
  }
}

// Entries of the active features, and of those near enough to their threshold to move it: until its gradient is known, dthreshold
// holds the h of these.
void SaeTrainer::Work::choose(const float* h, SaeThread& t, SaeRows& result) const {
  const auto add = [&](size_t f, float activation, float below) {
    result.entries.push_back({static_cast<int32_t>(f), activation, 0, below, 0});
    result.active += activation != 0 ? 1 : 0;
  };
  if (l.architecture == Architecture::topk) {
    t.scaled.resize(F);
    for (size_t f = 0; f < F; ++f) t.scaled[f] = h[f] * norms[f];
    if (!std::isfinite(kernels().sum_of_squares(t.scaled.data(), F))) {
      std::fill(t.scaled.begin(), t.scaled.end(), 0.0F);  // nothing is chosen, and the step ends: its loss is not finite
      result.mse = std::numeric_limits<double>::quiet_NaN();
    }
    for (const int32_t f : t.largest.of(t.scaled.data(), F, static_cast<size_t>(l.k)))
      if (t.scaled[static_cast<size_t>(f)] > 0) add(static_cast<size_t>(f), h[f], 0);
  } else if (l.architecture == Architecture::standard) {
    for (size_t f = 0; f < F; ++f)
      if (h[f] > 0) add(f, h[f], 0);
  } else if (l.architecture == Architecture::gated) {
    for (size_t f = 0; f < F; ++f) {
      if (!(h[f] > 0)) continue;
      const float magnitude = (h[f] - q.b_enc[f]) * std::exp(q.r_mag[f]) + q.b_mag[f];
      if (magnitude > 0) add(f, magnitude, 0);
    }
  } else {
    const auto near = static_cast<float>(-0.5 * l.bandwidth);
    for (size_t f = 0; f < F; ++f) {
      const float above = h[f] - q.threshold[f];
      if (above > 0) {
        add(f, h[f], 0);
      } else if (above > near) {
        add(f, 0, h[f]);
      }
    }
  }
}

// y - x of the row: half the gradient of its squared error there.
void SaeTrainer::Work::reconstruct(size_t row, size_t first_entry, SaeRows& result) {
  const KernelTable& k = kernels();
  float* d = output.data() + row * D;
  std::memcpy(d, q.b_dec.data(), D * sizeof(float));
  for (size_t i = first_entry; i < result.entries.size() && i < result.ends[row % SaeRows::kRows]; ++i) {
    const SaeEntry& e = result.entries[i];
    if (e.f != 0) k.add_scaled(q.W_dec.data() + static_cast<size_t>(e.feature) * D, e.f, D, d);
  }
  for (size_t i = 0; i < D; ++i) d[i] -= x[row * D + i];
  result.mse += k.sum_of_squares(d, D);
}

// The same of all rows of a task as two dense products. Leaves in t.h what the rows' gradients are at every feature, without the
// unit of the mean.
void SaeTrainer::Work::reconstruct_densely(size_t first, size_t n, SaeThread& t, SaeRows& result) {
  const KernelTable& k = kernels();
  const PackedKernels& p = k.packed_f32;
  std::memset(t.h.data(), 0, n * F * sizeof(float));
  for (size_t r = 0, i = 0; r < n; ++r)
    for (; i < result.ends[r]; ++i) t.h[r * F + static_cast<size_t>(result.entries[i].feature)] = result.entries[i].f;
  t.packed.resize(std::max(packed_a_bytes(p, SaeRows::kRows, F), packed_a_bytes(p, SaeRows::kRows, D)) + 64);
  std::byte* const packed = aligned_begin(t.packed);
  float* d = output.data() + first * D;
  pack_a(p, {t.h.data(), F}, n, F, packed);
  multiply_packed(p, packed, false, aligned_begin(packed_dec), n, D, F, d, D, false);
  for (size_t r = 0; r < n; ++r) {
    for (size_t i = 0; i < D; ++i) d[r * D + i] += q.b_dec[i] - x[(first + r) * D + i];
    result.mse += k.sum_of_squares(d + r * D, D);
  }
  pack_a(p, {d, D}, n, D, packed);
  multiply_packed(p, packed, false, aligned_begin(packed_dec_turned), n, F, D, t.h.data(), F, false);
}

// What silent features make of the rest, ê - (x - y), and their gradients.
void SaeTrainer::Work::learn_from_silent(size_t row, const float* h, SaeThread& t, SaeRows& result) {
  const KernelTable& k = kernels();
  float* e = aux_output.data() + row * D;
  std::memcpy(e, output.data() + row * D, D * sizeof(float));
  t.dead_h.resize(dead.size());
  for (size_t i = 0; i < dead.size(); ++i) t.dead_h[i] = t.scaled[static_cast<size_t>(dead[i])];
  const size_t begin = result.aux.size();
  for (const int32_t i : t.largest.of(t.dead_h.data(), dead.size(), k_aux)) {
    const int32_t f = dead[static_cast<size_t>(i)];
    result.aux.push_back({f, h[f], 0, 0, 0});
    k.add_scaled(q.W_dec.data() + static_cast<size_t>(f) * D, h[f], D, e);
  }
  result.aux_loss += k.sum_of_squares(e, D);
  k.scale(e, aux_unit, D, e);
  for (size_t i = begin; i < result.aux.size(); ++i)
    result.aux[i].dh = k.dot(e, q.W_dec.data() + static_cast<size_t>(result.aux[i].feature) * D, D);
  result.aux_ends.push_back(static_cast<uint32_t>(result.aux.size()));
}

// What the gates make by themselves, ŷ - x, and their gradients.
void SaeTrainer::Work::learn_from_gates(size_t row, const float* h, SaeRows& result) {
  const KernelTable& k = kernels();
  float* e = aux_output.data() + row * D;
  for (size_t i = 0; i < D; ++i) e[i] = q.b_dec[i] - x[row * D + i];
  const size_t begin = result.aux.size();
  for (size_t f = 0; f < F; ++f) {
    if (!(h[f] > 0)) continue;
    result.aux.push_back({static_cast<int32_t>(f), h[f], 0, 0, sparsity_unit * h[f]});
    result.sparsity += static_cast<double>(h[f]) * static_cast<double>(norms[f]);
    k.add_scaled(q.W_dec.data() + f * D, h[f], D, e);
  }
  result.aux_loss += k.sum_of_squares(e, D);
  k.scale(e, aux_unit, D, e);
  for (size_t i = begin; i < result.aux.size(); ++i) {
    const auto f = static_cast<size_t>(result.aux[i].feature);
    result.aux[i].dh = k.dot(e, q.W_dec.data() + f * D, D) + sparsity_unit * norms[f];
  }
  result.aux_ends.push_back(static_cast<uint32_t>(result.aux.size()));
}

// The gradients at the entries of a row from first_entry on. at_features: those of half the squared error, where they are known.
void SaeTrainer::Work::differentiate(size_t row, size_t first_entry, const float* at_features, SaeRows& result) {
  const KernelTable& k = kernels();
  float* d = output.data() + row * D;
  k.scale(d, unit, D, d);
  for (size_t i = first_entry; i < result.ends[row % SaeRows::kRows]; ++i) {
    SaeEntry& e = result.entries[i];
    const auto f = static_cast<size_t>(e.feature);
    differentiate(at_features != nullptr ? unit * at_features[f] : k.dot(d, q.W_dec.data() + f * D, D), e, result);
  }
}

// Of one entry, from df: that of the squared error at its activation.
void SaeTrainer::Work::differentiate(float df, SaeEntry& e, SaeRows& result) const {
  const auto f = static_cast<size_t>(e.feature);
  if (l.architecture == Architecture::topk) {
    e.dh = df;
    return;
  }
  if (l.architecture == Architecture::gated) {  // through the magnitude alone; a gate is a step, and learns by itself
    e.dh = df * std::exp(q.r_mag[f]);
    return;
  }
  if (l.architecture == Architecture::standard) {
    e.dh = df + sparsity_unit * norms[f];
    e.dnorm = sparsity_unit * e.f;
    result.sparsity += static_cast<double>(e.f) * static_cast<double>(norms[f]);
    return;
  }
  const bool active = e.f != 0;
  const auto bandwidth = static_cast<float>(l.bandwidth), tanh_scale = static_cast<float>(l.tanh_scale);
  const float threshold = q.threshold[f], h = active ? e.f : e.dthreshold;
  const bool near = (h - threshold) / bandwidth < 0.5f;
  float step_estimate = 0;
  if (l.sparsity == Sparsity::tanh) {
    const float level = std::tanh(tanh_scale * e.f * norms[f]), slope = sparsity_unit * (1 - level * level) * tanh_scale;
    df += slope * norms[f];
    e.dnorm = slope * e.f;
    result.sparsity += static_cast<double>(level);
  } else {
    if (near) step_estimate = sparsity_unit / bandwidth;
    result.sparsity += active ? 1 : 0;
  }
  const float estimate = step_estimate + (near ? threshold / bandwidth * df : 0);
  e.dh = (active ? df : 0) + (l.ste_to_input ? estimate : 0);
  e.dthreshold = -estimate;
}

}  // namespace vitrine
