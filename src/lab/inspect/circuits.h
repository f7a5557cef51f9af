#pragma once
// The two circuits of each attention head as products of thin matrices, and what can be read off them without a prompt.
// Source: Elhage et al., "A Mathematical Framework for Transformer Circuits", Transformer Circuits Thread, 2021.
#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace vitrine {

/// M = leftᵀ · right, [d_model, d_model] of rank d_head at most, kept as its factors; M itself is never formed.
struct FactoredMatrix {
  int64_t d_model = 0, d_head = 0;
  std::vector<float> left, right;  // [d_head, d_model] each, row-major
};

/// A head's circuits. What is linear in the norms is folded into the factors: the weight of ln1 and LayerNorm's taking away of
/// the mean where the head reads, the weight of a norm between the head and the stream (Gemma 2) where it writes. What is not
/// is the division by the norm's scale, so with x the stream at the query's and the key's position:
///   score = scale · (x_query / s_query) QK (x_key / s_key)ᵀ    before a cap, for a key `offset` positions before the query
///   (where queries and keys are normalized by head, also divided by what those norms divide by)
///   what a key's position adds to the stream = pattern · (x_key / s_key) OV    (/ the scale of the norm behind it)
/// With rotary positions QK holds for one offset: queries are turned by offset · frequency, keys not at all.
/// Query heads of a group share W_K and W_V.
struct HeadCircuits {
  int64_t layer = 0, head = 0, kv_head = 0;
  FactoredMatrix qk, ov;
  double scale = 1, softcap = 0;  // of the scores; softcap 0: none
  // Constants beside the weights (b_Q, b_K, b_V, or ln1's bias seen through them) that no bilinear form holds: with the
  // first two a score has terms of the key alone and of the query alone; with the third every key adds the same vector too.
  bool query_bias = false, key_bias = false, value_bias = false;
};

/// offset: positions from key to query; 0 to the context's end. For a model without rotary positions only 0.
/// Errors: InputError for a layer, head or offset that the model does not have.
HeadCircuits head_circuits(Engine& engine, int64_t layer, int64_t head, int64_t offset = 0);

struct Spectrum {
  std::vector<double> singular_values;  // d_head of them, largest first
  int64_t rank = 0;                     // above d_model · 2^-23 of the largest, as numpy.linalg.matrix_rank in f32
  double frobenius = 0;                 // root of the sum of their squares

  VITRINE_MEMBERS(rank, frobenius, singular_values);
};
/// Of M, through the factors' triangles: QR of both, then the singular values of [d_head, d_head].
Spectrum spectrum_of(const FactoredMatrix& m);

/// Sum of λ's real parts / sum of |λ| over the eigenvalues: 1 if every direction is copied with its sign, -1 if every one is
/// turned round. 0 if all are 0.
double copying_score(std::span<const std::complex<double>> eigenvalues);

struct HeadSpectra {
  int64_t layer = 0, head = 0;
  Spectrum qk, ov;
  /// The nonzero eigenvalues of the full OV circuit W_E · OV · W_Uᵀ [vocab, vocab], which are those of
  /// right · (W_Uᵀ W_E) · leftᵀ [d_head, d_head]; the final norm's weight (and LayerNorm's mean) is folded into W_U.
  /// Positive factors (the embedding's scale, norms' scales) are left out: no score depends on them. Largest |λ| first.
  std::vector<std::complex<double>> eigenvalues;
  double copying = 0;

  VITRINE_MEMBERS(layer, head, copying, eigenvalues, qk, ov);
};

/// How much of what one head writes a later head reads, for its queries, keys and values: |A B| / (|A| |B|) with Frobenius
/// norms; A is OV of the first, B is QK (queries), its transpose (keys) or OV of the second. Independent random matrices
/// give about 1 / sqrt(d_model) each.
struct Composition {
  int64_t from_layer = 0, from_head = 0, to_layer = 0, to_head = 0;
  double q = 0, k = 0, v = 0;

  VITRINE_MEMBERS(from_layer, from_head, to_layer, to_head, q, k, v);
};

struct CircuitOptions {
  std::optional<int64_t> layer = {}, head = {};  // none: all of them
  int64_t offset = 0;                            // of QK, also in compositions
  bool composition = true;
  bool spectra = true;  // false: no heads, only compositions; the vocabulary is then not read
  size_t memory = 0;    // bytes the factors may take; 0: what the system has left
};
struct CircuitTable {
  std::vector<HeadSpectra> heads;        // by layer, then head
  std::vector<Composition> composition;  // of pairs in which one of these heads takes part, by to_layer, to_head, from_…

  VITRINE_MEMBERS(heads, composition);
};

/// Errors: as head_circuits; InputError for a model whose factors do not fit into memory; RunError naming the head whose
/// weights hold NaN or infinity.
CircuitTable circuit_table(Engine& engine, const CircuitOptions& options = {});

}  // namespace vitrine
