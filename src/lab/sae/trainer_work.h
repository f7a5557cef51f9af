#pragma once
// What a step of SaeTrainer has in memory. It runs in two parts: tasks of rows, each of which gives its active features' shares
// of the gradients as a list of entries; and tasks of features, which add these up, rows in order.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sae/largest.h"
#include "sae/trainer.h"

namespace vitrine {

/// A feature of a row that has gradients.
struct SaeEntry {
  int32_t feature;
  float f;   // its activation, by which the row's gradient counts for W_dec
  float dh;  // the loss's gradient for h
  float dthreshold;
  float dnorm;  // for the norm of its row of W_dec
};

/// What one task gives, in the order of its rows.
struct SaeRows {
  static constexpr size_t kRows = 64;    // of a task: what it computes stays in the core's cache
  std::vector<SaeEntry> entries, aux;    // aux: of silent features or of gates, whose gradient at the output is another
  std::vector<uint32_t> ends, aux_ends;  // of each row
  double mse = 0, sparsity = 0, aux_loss = 0, inner = 0;  // sums over rows, without their coefficients
  uint64_t active = 0;
  bool dense = false;  // whether dense products are faster
  // batchtopk, until the batch's features are chosen: entries are candidates, these their h·n, and no other is above left_out.
  std::vector<float> sizes;
  float left_out = 0;
  size_t most = 0;  // candidates

  void clear();
};

/// Entries sorted by feature, rows in order.
struct SaeUses {
  struct Use {
    uint32_t row;
    float f, dh;
  };
  std::vector<size_t> begin;  // [F + 1]
  std::vector<Use> uses;

  void sort(const std::vector<SaeRows>& results, bool aux, size_t features);

 private:
  std::vector<size_t> place_;
};

/// Buffers of one thread.
struct SaeThread {
  FloatVector h, scaled, dead_h;
  std::vector<std::byte> packed;
  Largest largest;
};

struct SaeTrainer::Work {
  /// Where more than one of so many is active, dense products are faster.
  static constexpr size_t kSparse = 8;

  const SaeLearning& l;
  const SaeParameters& q;
  const size_t F, D, O;
  const bool transcoder;

  SaeParameters gradients;
  FloatVector norms;                                                              // [F] of W_dec's rows
  std::vector<std::byte> packed_enc, packed_dec, packed_dec_turned, packed_skip;  // as products read them; the decoder if dense
  FloatVector centered;                                                           // [B, D]: x'
  // [B, O]: y - x, then the loss's gradient at what features of each level write (that of its own y and of all wider ones), and
  // at ê. The last of outputs is y, unless the rows of y are the caller's, which other layers write into as well.
  std::vector<FloatVector> outputs;
  FloatVector aux_output;
  float* y = nullptr;  // rows of O numbers, y_stride apart
  size_t y_stride = 0;
  bool shared = false;
  std::vector<int32_t> dead;     // features that are silent for too long
  std::vector<SaeRows> results;  // of each task
  std::vector<SaeThread> threads;
  SaeUses uses, aux_uses;
  std::vector<float> all_sizes;               // batchtopk: of all candidates
  std::vector<double> dthreshold, dnorm, dh;  // [F]; dh: of x' times a column of W_enc, over all rows

  // Of this step.
  const float *x = nullptr, *target = nullptr;
  size_t rows = 0, k_aux = 0;
  bool aux = false;
  double sparsity = 0, aux_scale = 0;               // coefficients
  float unit = 0, sparsity_unit = 0, aux_unit = 0;  // of the gradients: a row's share of the mean

  Work(const SaeLearning& learning, const SaeParameters& parameters, size_t d_in, size_t d_out, bool is_transcoder);
  /// shared_y: rows that others write into, too, stride apart: forward() adds to them, and backward() reads the loss's gradient
  /// there; null: this step is alone.
  void begin(ThreadPool& pool, const float* rows_of_batch, const float* targets, size_t n,
             const std::vector<int64_t>& silent_steps, double coefficient, float* shared_y = nullptr, size_t stride = 0);
  /// What all rows' features write (trainer_rows.cpp).
  void forward(ThreadPool& pool);
  /// The gradients at their features.
  void backward(ThreadPool& pool);
  /// Sums of what the tasks gave.
  SaeStep summed() const;
  /// Adds the sparsity loss, the active features of a row and the dead ones.
  void count(SaeStep& now) const;
  /// All gradients; returns the sum of their squares.
  double add_up(ThreadPool& pool);
  float smallest_chosen = 0;  // batchtopk: h·n; 0: none is active

 private:
  // Of the rows of one task.
  void choose_rows(size_t task, size_t thread);
  void write_rows(size_t task, size_t thread);
  void differentiate_rows(size_t task, size_t thread);
  void choose_in_batch(ThreadPool& pool);
  void choose_candidates(size_t n, SaeThread& t, SaeRows& result) const;
  void scale_by_norms(const float* h, size_t n, SaeThread& t, SaeRows& result) const;
  void choose_silent(const float* h, const float* scaled, SaeThread& t, SaeRows& result) const;
  /// Of a feature: the first level that has it.
  size_t level_of(size_t feature) const;
  float* y_of(size_t row) { return y + row * y_stride; }
  /// The gradient at what features of a level write.
  const float* at_level(size_t level, size_t row) const {
    return level + 1 == outputs.size() ? y + row * y_stride : outputs[level].data() + row * O;
  }
  double gradients_of_skip(ThreadPool& pool);
  double gradients_of_bias();
  void choose(const float* h, SaeThread& t, SaeRows& result) const;
  void add_features(size_t row, size_t first_entry, SaeRows& result);
  void learn_from_silent(size_t row, SaeRows& result);
  void learn_from_gates(size_t row, const float* h, SaeRows& result);
  void add_features_densely(size_t first, size_t n, SaeThread& t, SaeRows& result);
  void differentiate(size_t row, size_t first_entry, const float* at_features, SaeRows& result);
  void differentiate(float df, SaeEntry& e, SaeRows& result) const;
  void sum_rows(size_t first, size_t n, const SaeUses& from, const float* at_output, size_t stride);
  double gradients_of(size_t first, size_t n);
  double gradients_of_magnitude(size_t f, double sum_dh);
};

/// ‖x - mean of the rows‖² over all rows.
double row_variation(const float* x, size_t rows, size_t d);

/// The first multiple of 64 bytes.
inline std::byte* aligned_begin(std::vector<std::byte>& bytes) {
  return bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64;
}

}  // namespace vitrine
