// The part of a step that goes by rows.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "kernels/table.h"
#include "ops/packed_product.h"
#include "sae/trainer_work.h"

namespace vitrine {

using Architecture = SaeLearning::Architecture;
using Sparsity = SaeLearning::Sparsity;

void SaeRows::clear() {
  entries.clear(), aux.clear(), ends.clear(), aux_ends.clear(), sizes.clear();
  mse = sparsity = aux_loss = inner = 0;
  active = 0;
  left_out = 0;
}

size_t SaeTrainer::Work::level_of(size_t feature) const {
  size_t level = 0;
  while (level < l.widths.size() && feature >= static_cast<size_t>(l.widths[level])) ++level;
  return level;
}

void SaeTrainer::Work::forward(ThreadPool& pool) {
  const auto tasks = static_cast<int64_t>(results.size());
  const bool of_batch = l.architecture == Architecture::batchtopk;
  for (SaeRows& r : results) r.most = 4 * SaeRows::kRows * static_cast<size_t>(l.k);
  pool.run(tasks, [&](int64_t i, int of_thread) {
    const auto task = static_cast<size_t>(i), thread = static_cast<size_t>(of_thread);
    choose_rows(task, thread);
    if (!of_batch) write_rows(task, thread);
  });
  if (!of_batch) return;
  choose_in_batch(pool);
  pool.run(tasks, [&](int64_t task, int thread) { write_rows(static_cast<size_t>(task), static_cast<size_t>(thread)); });
}

void SaeTrainer::Work::backward(ThreadPool& pool) {
  pool.run(static_cast<int64_t>(results.size()),
           [&](int64_t task, int thread) { differentiate_rows(static_cast<size_t>(task), static_cast<size_t>(thread)); });
}

// The active features of a task's rows, of batchtopk the candidates.
void SaeTrainer::Work::choose_rows(size_t task, size_t thread) {
  const KernelTable& k = kernels();
  const PackedKernels& p = k.packed_f32;
  SaeThread& t = threads[thread];
  SaeRows& result = results[task];
  result.clear();
  const size_t first = task * SaeRows::kRows, n = std::min(SaeRows::kRows, rows - first);
  float* x_centered = centered.data() + first * D;
  for (size_t r = 0; r < n; ++r)
    for (size_t i = 0; i < D; ++i) x_centered[r * D + i] = x[(first + r) * D + i] - (transcoder ? 0 : q.b_dec[i]);
  // Comparisons with NaN are false, so that a transcoder's features would be silent where its input is.
  if (!std::isfinite(k.sum_of_squares(x_centered, n * D))) result.sparsity = std::numeric_limits<double>::quiet_NaN();
  t.h.resize(SaeRows::kRows * F);
  t.packed.resize(packed_a_bytes(p, SaeRows::kRows, D) + 64);
  std::byte* const packed = aligned_begin(t.packed);
  pack_a(p, {x_centered, D}, n, D, packed);
  multiply_packed(p, packed, false, aligned_begin(packed_enc), n, F, D, t.h.data(), F, false);
  if (l.skip) multiply_packed(p, packed, false, aligned_begin(packed_skip), n, O, D, y_of(first), y_stride, false);

  for (size_t r = 0; r < n; ++r) k.add(t.h.data() + r * F, q.b_enc.data(), F, t.h.data() + r * F);
  if (l.architecture == Architecture::batchtopk) return choose_candidates(n, t, result);
  for (size_t r = 0; r < n; ++r) {
    const float* h = t.h.data() + r * F;
    choose(h, t, result);
    result.ends.push_back(static_cast<uint32_t>(result.entries.size()));
    if (l.architecture == Architecture::gated) learn_from_gates(first + r, h, result);
    if (l.architecture == Architecture::topk && aux) choose_silent(h, t.scaled.data(), t, result);
  }
  const bool is_sparse = l.architecture == Architecture::topk || l.architecture == Architecture::gated;
  result.dense = !is_sparse && result.entries.size() > n * F / kSparse;
}

// y - x (of a transcoder y - t) of a task's rows: half the gradient of their squared errors there. Shared rows hold what others
// write, and the target.
void SaeTrainer::Work::write_rows(size_t task, size_t thread) {
  SaeRows& result = results[task];
  const size_t first = task * SaeRows::kRows, n = result.ends.size();
  for (size_t r = first; r < first + n && !shared; ++r) {
    float* const to = y_of(r);
    const float* const t = target + r * O;
    if (!l.skip) std::memset(to, 0, O * sizeof(float));
    for (size_t i = 0; i < O; ++i) to[i] += q.b_dec[i] - t[i];
  }
  if (result.dense) return add_features_densely(first, n, threads[thread], result);
  for (size_t r = 0, begin = 0; r < n; begin = result.ends[r], ++r) add_features(first + r, begin, result);
}

void SaeTrainer::Work::differentiate_rows(size_t task, size_t thread) {
  const KernelTable& k = kernels();
  SaeRows& result = results[task];
  SaeThread& t = threads[thread];
  const size_t first = task * SaeRows::kRows, n = result.ends.size();
  for (size_t r = first; r < first + n && !shared; ++r) {
    float* const last = y_of(r);
    result.mse += k.sum_of_squares(last, O);
    if (aux && takes_k(l)) learn_from_silent(r, result);
    k.scale(last, unit, O, last);
    for (size_t level = l.widths.size(); level-- > 0;) {
      float* const d = outputs[level].data() + r * O;
      k.scale(d, unit, O, d);
      k.add(d, at_level(level + 1, r), O, d);
    }
  }
  if (result.dense) {
    const PackedKernels& p = k.packed_f32;
    t.h.resize(SaeRows::kRows * F);
    t.packed.resize(packed_a_bytes(p, SaeRows::kRows, O) + 64);
    std::byte* const packed = aligned_begin(t.packed);
    pack_a(p, {y_of(first), y_stride}, n, O, packed);
    multiply_packed(p, packed, false, aligned_begin(packed_dec_turned), n, F, O, t.h.data(), F, false);
  }
  for (size_t r = 0, begin = 0; r < n; begin = result.ends[r], ++r)
    differentiate(first + r, begin, result.dense ? t.h.data() + r * F : nullptr, result);
}

// h·n of n rows, in t.scaled.
void SaeTrainer::Work::scale_by_norms(const float* h, size_t n, SaeThread& t, SaeRows& result) const {
  t.scaled.resize(n * F);
  for (size_t i = 0; i < n; ++i)
    for (size_t f = 0; f < F; ++f) t.scaled[i * F + f] = h[i * F + f] * norms[f];
  if (std::isfinite(kernels().sum_of_squares(t.scaled.data(), n * F))) return;
  std::fill(t.scaled.begin(), t.scaled.end(), 0.0F);  // nothing is chosen, and the step ends: its loss is not finite
  result.sparsity = std::numeric_limits<double>::quiet_NaN();
}

// The largest of a task's rows together, as many as may well be among the largest of the batch.
void SaeTrainer::Work::choose_candidates(size_t n, SaeThread& t, SaeRows& result) const {
  scale_by_norms(t.h.data(), n, t, result);
  const std::vector<int32_t>& places = t.largest.of(t.scaled.data(), n * F, result.most);
  result.ends.assign(n, 0);
  float smallest = std::numeric_limits<float>::infinity();
  for (const int32_t place : places) {
    const auto at = static_cast<size_t>(place);
    if (!(t.scaled[at] > 0)) continue;
    smallest = std::min(smallest, t.scaled[at]);
    result.entries.push_back({static_cast<int32_t>(at % F), t.h[at], 0, 0, 0});
    result.sizes.push_back(t.scaled[at]);
    ++result.ends[at / F];
  }
  if (result.entries.size() == result.most) result.left_out = smallest;
  for (size_t r = 1; r < n; ++r) result.ends[r] += result.ends[r - 1];
  for (size_t r = 0; r < n && aux; ++r) choose_silent(t.h.data() + r * F, t.scaled.data() + r * F, t, result);
}

// The B·k largest among all candidates. A task of which too few were candidates gives more of them first. Of equal ones at the
// border the first are taken.
void SaeTrainer::Work::choose_in_batch(ThreadPool& pool) {
  const size_t wanted = rows * static_cast<size_t>(l.k);
  float border = 0;
  while (true) {
    all_sizes.clear();
    for (const SaeRows& r : results) all_sizes.insert(all_sizes.end(), r.sizes.begin(), r.sizes.end());
    border = 0;
    if (all_sizes.size() > wanted) {
      const auto last = all_sizes.begin() + static_cast<ptrdiff_t>(wanted) - 1;
      std::nth_element(all_sizes.begin(), last, all_sizes.end(), std::greater<>());
      border = *last;
    }
    std::vector<size_t> again;
    for (size_t task = 0; task < results.size(); ++task)
      if (results[task].left_out > 0 && results[task].left_out >= border) again.push_back(task);
    if (again.empty()) break;
    for (const size_t task : again) results[task].most *= 4;
    pool.run(static_cast<int64_t>(again.size()),
             [&](int64_t i, int thread) { choose_rows(again[static_cast<size_t>(i)], static_cast<size_t>(thread)); });
  }
  size_t equal = wanted;  // of those at the border
  for (const float v : all_sizes) equal -= v > border ? 1 : 0;
  smallest_chosen = std::numeric_limits<float>::infinity();
  for (SaeRows& r : results) {
    size_t kept = 0, at = 0;
    for (uint32_t& end : r.ends) {
      for (; at < end; ++at) {
        const float v = r.sizes[at];
        if (v < border || (v == border && equal == 0)) continue;
        if (v == border) --equal;
        smallest_chosen = std::min(smallest_chosen, v);
        r.entries[kept++] = r.entries[at];
      }
      end = static_cast<uint32_t>(kept);
    }
    r.entries.resize(kept);
    r.active = kept;
  }
  if (std::isinf(smallest_chosen)) smallest_chosen = 0;
}

// Entries of the active features, and of those near enough to their threshold to move it: until its gradient is known, dthreshold
// holds the h of these.
void SaeTrainer::Work::choose(const float* h, SaeThread& t, SaeRows& result) const {
  const auto add = [&](size_t f, float activation, float below) {
    result.entries.push_back({static_cast<int32_t>(f), activation, 0, below, 0});
    result.active += activation != 0 ? 1 : 0;
  };
  if (l.architecture == Architecture::topk) {
    scale_by_norms(h, 1, t, result);
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

// What a row's features write, with what stands there before the features of each width.
void SaeTrainer::Work::add_features(size_t row, size_t first_entry, SaeRows& result) {
  const KernelTable& k = kernels();
  float* const to = y_of(row);
  size_t level = 0;
  const auto end_levels = [&](size_t feature) {  // those that do not have it
    for (; level < l.widths.size() && static_cast<size_t>(l.widths[level]) <= feature; ++level) {
      float* const d = outputs[level].data() + row * O;
      std::memcpy(d, to, O * sizeof(float));
      result.inner += k.sum_of_squares(d, O);
    }
  };
  for (size_t i = first_entry; i < result.ends[row % SaeRows::kRows]; ++i) {
    const SaeEntry& e = result.entries[i];
    const auto f = static_cast<size_t>(e.feature);
    end_levels(f);
    if (e.f != 0) k.add_scaled(q.W_dec.data() + f * O, e.f, O, to);
  }
  end_levels(F);
}

// The same of all rows of a task as a dense product.
void SaeTrainer::Work::add_features_densely(size_t first, size_t n, SaeThread& t, SaeRows& result) {
  const PackedKernels& p = kernels().packed_f32;
  std::memset(t.h.data(), 0, n * F * sizeof(float));
  for (size_t r = 0, i = 0; r < n; ++r)
    for (; i < result.ends[r]; ++i) t.h[r * F + static_cast<size_t>(result.entries[i].feature)] = result.entries[i].f;
  t.packed.resize(packed_a_bytes(p, SaeRows::kRows, F) + 64);
  std::byte* const packed = aligned_begin(t.packed);
  pack_a(p, {t.h.data(), F}, n, F, packed);
  multiply_packed(p, packed, false, aligned_begin(packed_dec), n, O, F, y_of(first), y_stride, true);
}

// The silent features of a row that learn.
void SaeTrainer::Work::choose_silent(const float* h, const float* scaled, SaeThread& t, SaeRows& result) const {
  t.dead_h.resize(dead.size());
  for (size_t i = 0; i < dead.size(); ++i) t.dead_h[i] = scaled[static_cast<size_t>(dead[i])];
  for (const int32_t i : t.largest.of(t.dead_h.data(), dead.size(), k_aux)) {
    const int32_t f = dead[static_cast<size_t>(i)];
    result.aux.push_back({f, h[f], 0, 0, 0});
  }
  result.aux_ends.push_back(static_cast<uint32_t>(result.aux.size()));
}

// What they make of the rest, ê - (x - y), and their gradients.
void SaeTrainer::Work::learn_from_silent(size_t row, SaeRows& result) {
  const KernelTable& k = kernels();
  float* e = aux_output.data() + row * O;
  std::memcpy(e, y_of(row), O * sizeof(float));
  const size_t r = row % SaeRows::kRows, begin = r == 0 ? 0 : result.aux_ends[r - 1], end = result.aux_ends[r];
  for (size_t i = begin; i < end; ++i)
    k.add_scaled(q.W_dec.data() + static_cast<size_t>(result.aux[i].feature) * O, result.aux[i].f, O, e);
  result.aux_loss += k.sum_of_squares(e, O);
  k.scale(e, aux_unit, O, e);
  for (size_t i = begin; i < end; ++i)
    result.aux[i].dh = k.dot(e, q.W_dec.data() + static_cast<size_t>(result.aux[i].feature) * O, O);
}

// What the gates make by themselves, ŷ - x, and their gradients.
void SaeTrainer::Work::learn_from_gates(size_t row, const float* h, SaeRows& result) {
  const KernelTable& k = kernels();
  float* e = aux_output.data() + row * D;  // an autoencoder: O is D
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

// The gradients at the entries of a row from first_entry on. at_features: those of the squared error at each feature, where they
// are known.
void SaeTrainer::Work::differentiate(size_t row, size_t first_entry, const float* at_features, SaeRows& result) {
  for (size_t i = first_entry; i < result.ends[row % SaeRows::kRows]; ++i) {
    SaeEntry& e = result.entries[i];
    const auto f = static_cast<size_t>(e.feature);
    const float* const d = at_level(level_of(f), row);
    differentiate(at_features != nullptr ? at_features[f] : kernels().dot(d, q.W_dec.data() + f * O, O), e, result);
  }
}

// Of one entry, from df: that of the squared error at its activation.
void SaeTrainer::Work::differentiate(float df, SaeEntry& e, SaeRows& result) const {
  const auto f = static_cast<size_t>(e.feature);
  if (takes_k(l)) {
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
