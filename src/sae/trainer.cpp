#include "sae/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/philox.h"
#include "kernels/table.h"
#include "ops/packed_product.h"
#include "sae/largest.h"

namespace vitrine {
namespace {

constexpr size_t kRows = 64;      // of a task: what it computes stays in the core's cache
constexpr size_t kFeatures = 16;  // of a task of the second part
constexpr size_t kAdamChunk = 1 << 14;

using Architecture = SaeLearning::Architecture;

size_t size(int64_t n) { return static_cast<size_t>(n); }

// A feature of a row that has gradients.
struct Entry {
  int32_t feature;
  float f;   // its activation, by which the row's gradient counts for W_dec
  float dh;  // the loss's gradient for h
  float dthreshold;
  float dnorm;  // for the norm of its row of W_dec
};

// What one task of rows gives, in the order of its rows.
struct RowsResult {
  std::vector<Entry> entries;
  std::vector<uint32_t> ends;  // of each row
  std::vector<Entry> aux;      // of silent features, whose gradient at the output is another
  std::vector<uint32_t> aux_ends;
  double mse = 0, sparsity = 0, aux_loss = 0;
  uint64_t active = 0;
};

// Buffers of one thread.
struct Thread {
  FloatVector h, scaled, left, aux_output, dead_h;
  std::vector<std::byte> packed;
  Largest largest;
};

// A row's share of a feature.
struct Use {
  uint32_t row;
  float f, dh;
};

// Entries sorted by feature, rows in order.
struct ByFeature {
  std::vector<size_t> begin;  // [F + 1]
  std::vector<Use> uses;

  void collect(const std::vector<RowsResult>& results, bool aux, size_t features) {
    begin.assign(features + 1, 0);
    for (const RowsResult& r : results)
      for (const Entry& e : aux ? r.aux : r.entries) ++begin[size(e.feature) + 1];
    for (size_t f = 0; f < features; ++f) begin[f + 1] += begin[f];
    uses.resize(begin[features]);
    place_ = begin;
    for (size_t task = 0; task < results.size(); ++task) {
      const auto& entries = aux ? results[task].aux : results[task].entries;
      const auto& ends = aux ? results[task].aux_ends : results[task].ends;
      size_t at = 0;
      for (size_t r = 0; r < ends.size(); ++r)
        for (; at < ends[r]; ++at)
          uses[place_[size(entries[at].feature)]++] = {static_cast<uint32_t>(task * kRows + r), entries[at].f, entries[at].dh};
    }
  }

 private:
  std::vector<size_t> place_;
};

double sum(const std::vector<double>& parts) {
  double all = 0;
  for (const double part : parts) all += part;
  return all;
}

}  // namespace

struct SaeTrainer::Work {
  SaeParameters gradients;
  FloatVector norms;  // [F] of W_dec's rows
  std::vector<std::byte> packed_enc;
  FloatVector centred, output, aux_output;  // [B, D]: x', and the loss's gradient at y and at ê
  std::vector<int32_t> dead;
  std::vector<RowsResult> results;
  std::vector<Thread> threads;
  ByFeature by_feature, aux_by_feature;
  std::vector<double> parts;
  std::vector<double> dthreshold, dnorm;  // [F]
};

SaeTrainer::SaeTrainer(const SaeLearning& learning, int64_t d_in)
    : learning_(learning), d_in_(d_in), work_(std::make_unique<Work>()) {
  if (learning.features < 1) throw InputError("an autoencoder needs at least one feature");
  if (d_in < 1 || learning.features > (int64_t{1} << 31) / d_in)
    throw InputError("an autoencoder of " + std::to_string(learning.features) + " features for rows of " + std::to_string(d_in) +
                     " numbers is too large: at most 2^31 weights a matrix");
  if (learning.architecture == Architecture::topk && (learning.k < 1 || learning.k > learning.features))
    throw InputError("k is " + std::to_string(learning.k) + "; expected 1 to the number of features, " +
                     std::to_string(learning.features));
  const size_t F = size(learning.features), D = size(d_in);
  parameters.W_dec.resize(F * D);
  for (size_t f = 0; f < F; ++f) {
    float* row = parameters.W_dec.data() + f * D;
    double squares = 0;
    for (size_t i = 0; i < D; ++i) {
      row[i] = uniform_from(philox(learning.seed, f, i)[0]) * 2 - 1;
      squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    const auto factor = static_cast<float>(learning.decoder_norm / std::sqrt(std::max(squares, 1e-30)));
    for (size_t i = 0; i < D; ++i) row[i] *= factor;
  }
  parameters.W_enc = parameters.W_dec;
  parameters.b_enc.assign(F, 0);
  parameters.b_dec.assign(D, 0);
  if (learning.architecture == Architecture::jumprelu) parameters.threshold.assign(F, static_cast<float>(learning.threshold));
  for (size_t i = 0; i < SaeParameters::kCount; ++i) {
    first_moment[i].assign(parameters[i].size(), 0);
    second_moment[i].assign(parameters[i].size(), 0);
    work_->gradients[i].resize(parameters[i].size());
  }
  silent.assign(F, 0);
  activations.assign(F, 0);
}

SaeTrainer::~SaeTrainer() = default;

double SaeTrainer::lr_now() const {
  const SaeLearning& l = learning_;
  if (steps < l.lr_warm_up) return l.lr * static_cast<double>(steps + 1) / static_cast<double>(l.lr_warm_up);
  const int64_t begin = l.steps - l.lr_decay;
  if (l.lr_decay > 0 && steps > begin) return l.lr * (1 - static_cast<double>(steps - begin) / static_cast<double>(l.lr_decay));
  return l.lr;
}

double SaeTrainer::sparsity_now() const {
  const SaeLearning& l = learning_;
  if (steps >= l.sparsity_warm_up) return l.sparsity_coefficient;
  return l.sparsity_coefficient * static_cast<double>(steps) / static_cast<double>(l.sparsity_warm_up);
}

SaeStep SaeTrainer::step(ThreadPool& pool, const float* x, size_t rows) {
  const SaeLearning& l = learning_;
  const size_t F = size(l.features), D = size(d_in_);
  const KernelTable& k = kernels();
  const PackedKernels& p = k.packed_f32;
  Work& w = *work_;
  SaeParameters& q = parameters;
  if (l.architecture == Architecture::jumprelu)
    for (float& t : q.threshold) t = std::max(t, 0.0f);

  // Norms of the decoder's rows, silent features, the encoder as the product reads it.
  w.norms.resize(F);
  const auto feature_tasks = static_cast<int64_t>((F + kFeatures - 1) / kFeatures);
  pool.run(feature_tasks, [&](int64_t task, int) {
    for (size_t f = size(task) * kFeatures; f < std::min(F, (size(task) + 1) * kFeatures); ++f)
      w.norms[f] = static_cast<float>(std::sqrt(k.sum_of_squares(q.W_dec.data() + f * D, D)));
  });
  w.dead.clear();
  for (size_t f = 0; f < F; ++f)
    if (silent[f] > l.dead_window) w.dead.push_back(static_cast<int32_t>(f));
  const bool aux = l.architecture == Architecture::topk && !w.dead.empty() && l.aux_coefficient != 0;
  const size_t k_aux = std::min(D / 2, w.dead.size());
  const double aux_scale =
      aux && D / 2 > 0 ? l.aux_coefficient * std::min(static_cast<double>(w.dead.size()) / static_cast<double>(D / 2), 1.0) : 0;
  w.packed_enc.resize(packed_b_bytes(p, D, F) + 64);
  const auto aligned = [](std::vector<std::byte>& bytes) {
    return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
  };
  std::byte* const packed_enc = aligned(w.packed_enc);
  pack_b(p, {q.W_enc.data(), D, true}, D, F, packed_enc);

  const auto row_tasks = (rows + kRows - 1) / kRows;
  w.centred.resize(rows * D);
  w.output.resize(rows * D);
  if (aux) w.aux_output.resize(rows * D);
  w.results.resize(row_tasks);
  w.threads.resize(size(pool.threads()));
  const double sparsity = sparsity_now();
  const auto unit = static_cast<float>(2.0 / static_cast<double>(rows));
  const auto sparsity_unit = static_cast<float>(sparsity / static_cast<double>(rows));
  const auto aux_unit = static_cast<float>(2.0 * aux_scale / static_cast<double>(rows));
  const auto bandwidth = static_cast<float>(l.bandwidth), tanh_scale = static_cast<float>(l.tanh_scale);

  pool.run(static_cast<int64_t>(row_tasks), [&](int64_t task, int thread) {
    Thread& t = w.threads[size(thread)];
    RowsResult& result = w.results[size(task)];
    result.entries.clear(), result.ends.clear(), result.aux.clear(), result.aux_ends.clear();
    result.mse = result.sparsity = result.aux_loss = 0;
    result.active = 0;
    const size_t first = size(task) * kRows, n = std::min(kRows, rows - first);
    t.h.resize(kRows * F);
    t.packed.resize(packed_a_bytes(p, kRows, D) + 64);
    float* centred = w.centred.data() + first * D;
    for (size_t r = 0; r < n; ++r)
      for (size_t i = 0; i < D; ++i) centred[r * D + i] = x[(first + r) * D + i] - q.b_dec[i];
    std::byte* const packed = aligned(t.packed);
    pack_a(p, {centred, D}, n, D, packed);
    multiply_packed(p, packed, false, packed_enc, n, F, D, t.h.data(), F, false);

    for (size_t r = 0; r < n; ++r) {
      float* h = t.h.data() + r * F;
      k.add(h, q.b_enc.data(), F, h);
      const size_t begin = result.entries.size();
      const float* scaled = h;
      if (l.architecture == Architecture::topk) {
        t.scaled.resize(F);
        for (size_t f = 0; f < F; ++f) t.scaled[f] = h[f] * w.norms[f];
        scaled = t.scaled.data();
        for (const int32_t f : t.largest.of(scaled, F, size(l.k)))
          if (scaled[f] > 0) result.entries.push_back({f, h[f], 0, 0, 0});
      } else if (l.architecture == Architecture::standard) {
        for (size_t f = 0; f < F; ++f)
          if (h[f] > 0) result.entries.push_back({static_cast<int32_t>(f), h[f], 0, 0, 0});
      } else {
        for (size_t f = 0; f < F; ++f) {  // active, or near enough to the threshold to move it
          const float above = h[f] - q.threshold[f];
          if (above > 0) {
            result.entries.push_back({static_cast<int32_t>(f), h[f], 0, 0, 0});
          } else if (above / bandwidth > -0.5f) {
            result.entries.push_back({static_cast<int32_t>(f), 0, 0, h[f], 0});  // its h, until the gradient is known
          }
        }
      }

      // y, and the loss's gradient there.
      float* d = w.output.data() + (first + r) * D;
      std::memcpy(d, q.b_dec.data(), D * sizeof(float));
      for (size_t i = begin; i < result.entries.size(); ++i) {
        const Entry& e = result.entries[i];
        if (e.f != 0) k.add_scaled(q.W_dec.data() + size(e.feature) * D, e.f, D, d);
        result.active += e.f != 0 ? 1 : 0;
      }
      const float* row = x + (first + r) * D;
      for (size_t i = 0; i < D; ++i) d[i] -= row[i];
      result.mse += k.sum_of_squares(d, D);

      if (aux) {
        float* e = w.aux_output.data() + (first + r) * D;
        std::memcpy(e, d, D * sizeof(float));  // ê - (x - y)
        t.dead_h.resize(w.dead.size());
        for (size_t i = 0; i < w.dead.size(); ++i) t.dead_h[i] = scaled[w.dead[i]];
        const size_t aux_begin = result.aux.size();
        for (const int32_t i : t.largest.of(t.dead_h.data(), w.dead.size(), k_aux)) {
          const int32_t f = w.dead[size(i)];
          result.aux.push_back({f, h[f], 0, 0, 0});
          k.add_scaled(q.W_dec.data() + size(f) * D, h[f], D, e);
        }
        result.aux_loss += k.sum_of_squares(e, D);
        k.scale(e, aux_unit, D, e);
        for (size_t i = aux_begin; i < result.aux.size(); ++i)
          result.aux[i].dh = k.dot(e, q.W_dec.data() + size(result.aux[i].feature) * D, D);
        result.aux_ends.push_back(static_cast<uint32_t>(result.aux.size()));
      }

      k.scale(d, unit, D, d);
      for (size_t i = begin; i < result.entries.size(); ++i) {
        Entry& e = result.entries[i];
        const auto f = size(e.feature);
        float df = k.dot(d, q.W_dec.data() + f * D, D);  // the loss's gradient for f
        if (l.architecture == Architecture::topk) {
          e.dh = df;
        } else if (l.architecture == Architecture::standard) {
          e.dh = df + sparsity_unit * w.norms[f];
          e.dnorm = sparsity_unit * e.f;
          result.sparsity += static_cast<double>(e.f) * static_cast<double>(w.norms[f]);
        } else {
          const bool active = e.f != 0;
          const float here = active ? e.f : e.dthreshold, threshold = q.threshold[f];
          const bool near = (here - threshold) / bandwidth < 0.5f;
          if (l.sparsity == SaeLearning::Sparsity::tanh) {
            const float level = std::tanh(tanh_scale * e.f * w.norms[f]), slope = 1 - level * level;
            df += sparsity_unit * slope * tanh_scale * w.norms[f];
            e.dnorm = sparsity_unit * slope * tanh_scale * e.f;
            result.sparsity += static_cast<double>(level);
          }
          const float estimate = near ? threshold / bandwidth * df : 0;
          float step_estimate = 0;
          if (l.sparsity == SaeLearning::Sparsity::step) {
            step_estimate = near ? sparsity_unit / bandwidth : 0;
            result.sparsity += active ? 1 : 0;
          }
          e.dh = active ? df : 0;
          if (l.ste_to_input) e.dh += estimate + step_estimate;
          e.dthreshold = -(estimate + step_estimate);
        }
      }
      result.ends.push_back(static_cast<uint32_t>(result.entries.size()));
    }
  });

  // Sums over the batch.
  SaeStep now;
  uint64_t active = 0;
  for (const RowsResult& r : w.results) {
    now.mse += r.mse, now.sparsity += r.sparsity, now.aux += r.aux_loss;
    active += r.active;
  }
  const auto count = static_cast<double>(rows);
  const double squares = now.mse;
  now.mse /= count;
  now.sparsity *= sparsity / count;
  now.aux *= aux_scale / count;
  now.loss = now.mse + now.sparsity + now.aux;
  now.l0 = static_cast<double>(active) / count;
  now.dead = static_cast<int64_t>(w.dead.size());
  if (!std::isfinite(now.loss))
    throw RunError("the loss of step " + std::to_string(steps + 1) +
                   " is NaN or infinite; are the activations? A lower rate may help");
  std::vector<double> mean(D, 0);
  double all_squares = 0;
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < D; ++i) {
      const auto v = static_cast<double>(x[r * D + i]);
      mean[i] += v;
      all_squares += v * v;
    }
  double variance = all_squares;
  for (const double m : mean) variance -= m * m / count;
  now.explained_variance = variance > 0 ? 1 - squares / variance : 0;

  // Gradients of each feature's weights: rows in order.
  w.by_feature.collect(w.results, false, F);
  if (aux) w.aux_by_feature.collect(w.results, true, F);
  const bool norms_learn = l.architecture == Architecture::standard ||
                           (l.architecture == Architecture::jumprelu && l.sparsity == SaeLearning::Sparsity::tanh);
  w.dnorm.assign(F, 0);
  w.dthreshold.assign(F, 0);
  if (l.architecture != Architecture::topk)
    for (const RowsResult& r : w.results)
      for (const Entry& e : r.entries) {
        w.dnorm[size(e.feature)] += static_cast<double>(e.dnorm);
        w.dthreshold[size(e.feature)] += static_cast<double>(e.dthreshold);
      }
  SaeParameters& g = w.gradients;
  w.parts.assign(size(feature_tasks), 0);
  pool.run(feature_tasks, [&](int64_t task, int) {
    double squares_here = 0;
    for (size_t f = size(task) * kFeatures; f < std::min(F, (size(task) + 1) * kFeatures); ++f) {
      float *dec = g.W_dec.data() + f * D, *enc = g.W_enc.data() + f * D;
      std::memset(dec, 0, D * sizeof(float));
      std::memset(enc, 0, D * sizeof(float));
      double bias = 0;
      const auto add = [&](const ByFeature& entries, const FloatVector& output) {
        for (size_t i = entries.begin[f]; i < entries.begin[f + 1]; ++i) {
          const Use& use = entries.uses[i];
          if (use.f != 0) k.add_scaled(output.data() + use.row * D, use.f, D, dec);
          if (use.dh != 0) k.add_scaled(w.centred.data() + use.row * D, use.dh, D, enc);
          bias += static_cast<double>(use.dh);
        }
      };
      add(w.by_feature, w.output);
      if (aux) add(w.aux_by_feature, w.aux_output);
      if (norms_learn && w.norms[f] > 0)
        k.add_scaled(q.W_dec.data() + f * D, static_cast<float>(w.dnorm[f]) / w.norms[f], D, dec);
      g.b_enc[f] = static_cast<float>(bias);
      if (!g.threshold.empty()) g.threshold[f] = static_cast<float>(w.dthreshold[f]);
      squares_here += k.sum_of_squares(dec, D) + k.sum_of_squares(enc, D) + bias * bias + w.dthreshold[f] * w.dthreshold[f];
    }
    w.parts[size(task)] = squares_here;
  });
  // b_dec is added to y and taken from x.
  std::vector<double> bias(D, 0);
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < D; ++i) bias[i] += static_cast<double>(w.output[r * D + i]);
  for (size_t f = 0; f < F; ++f)
    if (g.b_enc[f] != 0)
      for (size_t i = 0; i < D; ++i) bias[i] -= static_cast<double>(g.b_enc[f]) * static_cast<double>(q.W_enc[f * D + i]);
  double bias_squares = 0;
  for (size_t i = 0; i < D; ++i) {
    g.b_dec[i] = static_cast<float>(bias[i]);
    bias_squares += bias[i] * bias[i];
  }
  now.gradient_norm = std::sqrt(sum(w.parts) + bias_squares);
  if (!std::isfinite(now.gradient_norm))
    throw RunError("the gradient of step " + std::to_string(steps + 1) + " is NaN or infinite; are the activations?");

  // Adam, with the gradients limited.
  const auto limit = static_cast<float>(std::min(1.0, 1.0 / (now.gradient_norm + 1e-6)));
  const double lr = lr_now();
  ++steps;
  const auto bias1 = static_cast<float>(1 - std::pow(l.beta1, static_cast<double>(steps)));
  const auto bias2 = static_cast<float>(1 - std::pow(l.beta2, static_cast<double>(steps)));
  for (size_t i = 0; i < SaeParameters::kCount; ++i) {
    const size_t n = q[i].size();
    pool.run(static_cast<int64_t>((n + kAdamChunk - 1) / kAdamChunk), [&](int64_t task, int) {
      const size_t from = size(task) * kAdamChunk, here = std::min(kAdamChunk, n - from);
      k.adamw(q[i].data() + from, g[i].data() + from, first_moment[i].data() + from, second_moment[i].data() + from, here,
              static_cast<float>(lr), static_cast<float>(l.beta1), static_cast<float>(l.beta2), static_cast<float>(l.eps), 0,
              bias1, bias2, limit);
    });
  }
  for (int64_t& s : silent) ++s;
  for (const RowsResult& r : w.results)
    for (const Entry& e : r.entries)
      if (e.f != 0) {
        silent[size(e.feature)] = 0;
        ++activations[size(e.feature)];
      }
  rows_seen += rows;
  return now;
}

}  // namespace vitrine
