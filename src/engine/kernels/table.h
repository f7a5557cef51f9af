#pragma once
// The kernels: pointers and sizes only. They know no Tensor, allocate nothing, start no threads; ops cut the work.
// One table of function pointers per instruction set; chosen once from the CPU and VITRINE_TARGET.
//
// Weight rows: `w` is the first of n rows of k elements in memory, `stride` bytes from row to row, element type by
// table index (int(DType) < kWeightTypes); k is a multiple of a block's elements. Names say the layout: "rows" is [out, in] (each
// output is one row), "columns" is [in, out] as GPT-2 stores it (each row holds one input's contribution to all outputs).
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"
#include "kernels/narrow.h"
#include "kernels/types.h"

namespace vitrine {

inline constexpr size_t kFewRows = 8;  // up to here a product reads the weights once, by dot products

/// 256 activations as int8, with an f32 scale for every 32: x = scale q. sum is scale times the sum of q, for every 16 (what a
/// block type's minimum is multiplied by). 32 that hold a NaN or an infinity have scale NaN. The last block of a row may have
/// fewer than 256: what is not there is 0.
struct alignas(32) ActivationBlock {
  static constexpr size_t kElements = kLargestBlock;
  float scale[kElements / kBlock];
  float sum[kElements / 16];
  int8_t q[kElements];
};
constexpr size_t activation_blocks(size_t k) { return (k + ActivationBlock::kElements - 1) / ActivationBlock::kElements; }

/// One block of keys and values for the queries of one sequence that share a key/value head.
/// Query row r is q + r * q_stride. The kernels run it in f32; gradient checks run the reference in double.
template <class T>
struct AttentionBlockOf {
  const T* q;
  size_t q_stride, rows;
  const T* k_t;  // [head_dim, k_stride]: keys of this block, transposed: key j's component c is k_t[c * k_stride + j]
  size_t k_stride;
  const T* v;  // [keys, v_stride]
  size_t v_stride;
  NarrowBlock k_narrow, v_narrow;  // in a narrower type: read instead of k_t and of v, whole lines; f32 kernels only
  size_t keys;                     // keys in this block, at most kKeyBlock
  size_t head_dim, v_dim;
  T scale;
  T softcap;             // 0: none
  const T* slope;        // [rows] row r's score of key j gets slope[r] * (j - place[r]), after the cap; null: nothing
  const T* place;        // [rows] where the query itself is, counted from the block's first key
  const int32_t* first;  // [rows] row r sees the keys first[r] <= j < last[r] of this block (may be none)
  const int32_t* last;
  // Running softmax, updated: largest score, sum of exponentials, weighted values. Start: -inf, 0, 0.
  T* largest;  // [rows]
  T* total;    // [rows]
  T* z;        // [rows, z_stride], not yet divided by total
  size_t z_stride;
  T* scratch;  // [rows, kKeyBlock]
};
using AttentionBlock = AttentionBlockOf<float>;

/// Rows of a recurrence, and some columns of its state S [d_key, kScanColumns], which is zero in those that it lacks:
///   S = decay S + k cᵀ,   z = Sᵀ q,   where c = beta (v - decay Sᵀ k) if it corrects, else c = beta v.
inline constexpr size_t kScanColumns = 32;
template <class T>
struct ScanBlockOf {
  const T *q, *k;  // row r at r * key_stride, d_key numbers
  size_t key_stride;
  const T* v;  // [rows, v_stride]
  size_t v_stride;
  const T *decay, *beta;  // row r at r * gate_stride
  size_t gate_stride;
  size_t rows, d_key;
  size_t columns;  // of v and z, at most kScanColumns
  bool corrects;
  T* state;
  T* z;  // [rows, z_stride]
  size_t z_stride;
};
using ScanBlock = ScanBlockOf<float>;

/// Memory that is read soon: `rows` stretches of `bytes`, each `stride` bytes after the one before. A product that computes
/// longer than it reads may ask for it ahead of time.
struct ReadNext {
  const void* data = nullptr;
  size_t rows = 0, bytes = 0, stride = 0;
};

/// The product of many rows (more than kFewRows) with one block of weight rows goes through a panel: the block's
/// weights expanded into the order the inner loop reads. Sizes depend on the target only.
struct PanelKernels {
  size_t outputs;  // weight rows per panel
  size_t depth;    // elements of k per panel; longer k is cut and the partial sums are added in order
  /// Bytes of one panel (64-byte aligned buffer, reused for every panel a thread works on).
  size_t panel_bytes;
  /// Bytes for the activations of one product in the inner loop's order; 0: they are read where they lie.
  size_t (*x_bytes)(size_t rows, size_t k);
  /// Converts rows [row0, row0 + n) of x; n is a multiple of 32 except at the end. May be null if x_bytes gives 0.
  void (*pack_x)(const float* x, size_t x_stride, size_t row0, size_t n, size_t rows, size_t k, void* packed);
  /// Expands `n` <= outputs weight rows, elements [k0, k0 + depth_now) of each, depth_now <= depth.
  /// by_columns: the weights lie [in, out]; w points at output 0 of the block, input 0.
  void (*expand)(DType type, const void* w, size_t stride, bool by_columns, size_t n, size_t k0, size_t depth_now, void* panel);
  /// y[r][j] (+)= sum over this panel's depth, for rows [row0, row0 + n_rows), j < n; `add` false: y is set. by_columns as
  /// in expand; `next` is what the caller reads afterwards.
  void (*multiply)(const void* panel, const float* x, size_t x_stride, const void* packed, size_t rows, size_t row0,
                   size_t n_rows, size_t k, size_t k0, size_t depth_now, bool by_columns, size_t n, float* y, size_t y_stride,
                   bool add, const ReadNext& next);
  /// Weights of this type whose rows of k elements lie [out, in] need no panel: each is read once for up to kRowsInPlace rows.
  /// The bits are those of expand and multiply. Null: they do. k is a multiple of in_place_step.
  DType in_place_type = DType::f32;
  size_t in_place_step = 1;
  void (*multiply_in_place)(const void* w, size_t stride, const void* packed, size_t rows, size_t k, size_t k0, size_t depth_now,
                            size_t n, float* y, size_t y_stride, bool add, const ReadNext& next) = nullptr;
};
inline constexpr size_t kRowsInPlace = 32;

/// Products of two f32 matrices that both change from step to step, as in training: each is packed into the order that the
/// inner loop reads, and c [rows, columns] is set or added to. A sum goes through its depth in order.
struct PackedKernels {
  size_t rows, columns;  // of c per block: callers cut at multiples of them. rows == 0: f32 is as fast on this target
  size_t depth;          // most of one product; longer sums are cut, and added in order
  size_t (*a_bytes)(size_t rows, size_t depth);  // packed; whole blocks lie one after the other
  size_t (*b_bytes)(size_t depth, size_t columns);
  /// a lies [rows, depth] with `stride` elements from line to line, or [depth, rows] if transposed. 64-byte aligned target.
  void (*pack_a)(const float* a, size_t stride, bool transposed, size_t rows, size_t depth, void* packed);
  /// b lies [depth, columns], or [columns, depth] if transposed.
  void (*pack_b)(const float* b, size_t stride, bool transposed, size_t depth, size_t columns, void* packed);
  /// a_turned: as a was packed. next: what is packed after this product.
  void (*multiply)(const void* a, bool a_turned, const void* b, size_t rows, size_t columns, size_t depth, float* c,
                   size_t c_stride, bool add, const ReadNext& next);
};

/// Every routine agrees with the one in kernels/reference to the error its comment there states.
struct KernelTable {
  const char* name;  // one of kTargets

  // Products of at most kFewRows rows: y[r][j] = sum over i of x[r][i] * w[j][i], for j in [0, n). A row's bits do not
  // depend on `rows` nor on where a caller cuts [0, n).
  void (*dot_rows[kWeightTypes])(const void* w, size_t stride, size_t n, size_t k, const float* x, size_t x_stride, size_t rows,
                                 float* y, size_t y_stride);
  /// The same with activations in blocks of int8, for block types (null for others); x_stride in blocks.
  void (*dot_rows_int8[kWeightTypes])(const void* w, size_t stride, size_t n, size_t k, const ActivationBlock* x, size_t x_stride,
                                      size_t rows, float* y, size_t y_stride);
  /// y[r][j] = sum over i of x[r][i] * w[i][j] for weights that lie [in, out] (f32, f16, bf16; null for block types).
  void (*dot_columns[kWeightTypes])(const void* w, size_t stride, size_t n, size_t k, const float* x, size_t x_stride,
                                    size_t rows, float* y, size_t y_stride);
  PanelKernels panel_f32;   // f32 operands: any weight type widened
  PanelKernels panel_bf16;  // operands rounded to bf16, f32 sums; outputs == 0 where f32 is faster on this target
  /// Block types with activations in blocks of int8, as dot_rows_int8; outputs == 0 where another panel is faster.
  PanelKernels panel_int8;
  size_t panel_int8_rows = SIZE_MAX;  // products of up to so many rows are faster by it than by panel_bf16

  PackedKernels packed_f32;
  PackedKernels packed_bf16;  // operands rounded to bf16, f32 sums; rows == 0 where f32 is as fast

  void (*widen[kWeightTypes])(const void* row, size_t n, float* y);  // one stored row as f32, exactly
  void (*narrow)(const float* x, size_t n, uint16_t* y);             // as bf16, to nearest
  /// One row: n a multiple of 32; round to nearest. Writes activation_blocks(n).
  void (*quantize_int8)(const float* x, size_t n, ActivationBlock* y);
  // Norms: y may be x. w null: no weight (the factor is 1, offset is not read); b null: no bias; the statistics
  // (inv_rms; mean, inv_std) are written where their pointer is not null.
  void (*rms_norm)(const float* x, const float* w, float offset, float eps, size_t d, float* y, float* inv_rms);
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, size_t d, float* y, float* mean, float* inv_std);
  /// Turns each of n heads of head_dim (x + h * head_dim) by cos/sin [rotary_dim / 2]; components from rotary_dim on stay.
  /// y may be x, here and in every routine below.
  void (*rope)(const float* x, const float* cos, const float* sin, RopeLayout layout, size_t n_heads, size_t head_dim,
               size_t rotary_dim, float* y);
  void (*activate)(Activation f, const float* x, size_t n, float* y);
  void (*gate)(Activation f, const float* gate, const float* up, size_t n, float* y);  // f(gate) * up
  void (*softmax)(const float* x, size_t n, float* y);  // may be in place; -inf gives 0; all -inf gives 0
  void (*pattern)(float* s, size_t first, size_t last, size_t n, float scale, float cap);  // in place, of capped scores
  void (*softcap)(const float* x, float cap, size_t n, float* y);
  void (*add)(const float* a, const float* b, size_t n, float* y);
  void (*scale)(const float* x, float factor, size_t n, float* y);
  float (*log_sum_exp)(const float* x, size_t n);  // -inf for no or only -inf
  void (*attention)(const AttentionBlock& block);
  // Small products of f32 elements, sums over i < depth in order:  c[r][j] = factor * sum of a[r][i] * b[i][j],  and
  // c[r][j] += that sum, for r < rows and j < n. Strides are elements from row to row; c is none of a and b.
  void (*set_products)(const float* a, size_t a_stride, size_t rows, const float* b, size_t b_stride, size_t depth, size_t n,
                       float factor, float* c, size_t c_stride);
  void (*add_products)(const float* a, size_t a_stride, size_t rows, const float* b, size_t b_stride, size_t depth, size_t n,
                       float* c, size_t c_stride);
  void (*scan)(const ScanBlock& block);

  // Gradients: set, or added to what is there if `add`. A gradient that is not wanted is null; those of weights and biases
  // (dw, db) are always added to. Statistics as the forward wrote them.
  void (*rms_norm_gradient)(const float* x, const float* w, float offset, float inv_rms, const float* dy, size_t d, float* dx,
                            float* dw, bool add);
  void (*layer_norm_gradient)(const float* x, const float* w, float mean, float inv_std, const float* dy, size_t d, float* dx,
                              float* dw, float* db, bool add);
  void (*rope_gradient)(const float* dy, const float* cos, const float* sin, RopeLayout layout, size_t n_heads, size_t head_dim,
                        size_t rotary_dim, float* dx, bool add);
  void (*activate_gradient)(Activation f, const float* x, const float* dy, size_t n, float* dx, bool add);
  void (*gate_gradient)(Activation f, const float* gate, const float* up, const float* dy, size_t n, float* dgate, float* dup,
                        bool add);
  void (*softcap_gradient)(const float* x, float cap, const float* dy, size_t n, float* dx, bool add);
  void (*add_scaled)(const float* x, float factor, size_t n, float* y);  // y += factor x
  float (*dot)(const float* a, const float* b, size_t n);
  /// In place: a row's capped logits become unit · exp(z - lse) times the cap's slope (cap 0: none).
  void (*loss_gradient)(float* z, size_t n, float lse, float unit, float cap);
  /// In place, for the keys first <= j < last of a query row of n (zeros elsewhere; first <= n): scores s become the pattern,
  /// its gradient dp that of the scores. work: n elements.
  void (*pattern_gradient)(float* s, float* dp, size_t first, size_t last, size_t n, float scale, float cap, float* work);

  // Optimizers: n neighboring parameters w, gradients g and moments, one pass. g is multiplied by grad_scale first.
  void (*adamw)(float* w, const float* g, float* m, float* v, size_t n, float lr, float beta1, float beta2, float eps,
                float weight_decay, float bias1, float bias2, float grad_scale);  // bias_i = 1 - beta_i^t
  // The same for moments in bf16, rounded by the random bits of place, place + 1, … under `seed`.
  void (*adamw_bf16)(float* w, const float* g, uint16_t* m, uint16_t* v, size_t n, float lr, float beta1, float beta2, float eps,
                     float weight_decay, float bias1, float bias2, float grad_scale, uint32_t place, uint32_t seed);
  void (*sgd)(float* w, const float* g, float* momentum, size_t n, float lr, float factor, float weight_decay,
              float grad_scale);  // momentum null: none
  double (*sum_of_squares)(const float* x, size_t n);
};

/// The table in use. Chosen at the first call: VITRINE_TARGET if set (InputError if unknown or lacking on this CPU),
/// else the best this CPU has.
const KernelTable& kernels();

/// The named target's table, or null if this build or CPU lacks it. Tests walk kTargets.
const KernelTable* kernels_for(std::string_view target);
/// The same, for a name a user gave: InputError if it is unknown or this CPU lacks it.
const KernelTable& kernels_for_request(std::string_view target);
/// Every target there is, those of one processor family in rising order of preference.
inline constexpr std::string_view kTargets[] = {"reference", "avx2",     "avx512",    "avx512_bf16", "amx",
                                                "neon",      "neon_dot", "neon_i8mm", "neon_bf16",   "wasm"};

}  // namespace vitrine
