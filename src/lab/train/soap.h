#pragma once
// SOAP: Adam in the eigenbasis of Shampoo's preconditioner, for one matrix.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/parameters.h"

namespace vitrine {

/// What a matrix [rows, columns] keeps; all lie row by row.
struct SoapState {
  float *m = nullptr, *v = nullptr;                // [rows, columns]: of the gradient, and of its square in the eigenbasis
  float *left = nullptr, *left_basis = nullptr;    // [rows, rows]: mean of G Gᵀ, its eigenvectors as columns; null: not rotated
  float *right = nullptr, *right_basis = nullptr;  // [columns, columns]: of Gᵀ G
};

struct SoapRule {
  double beta1, beta2, eps;
  double shampoo_beta;  // decay of the means of G Gᵀ and Gᵀ G
  int64_t frequency;    // steps from one renewal of the bases to the next
};

/// arXiv:2409.11321, algorithm 3, with the details of the authors' publication:
///   step 1 finds the bases by an eigendecomposition of G Gᵀ and Gᵀ G, and changes no weight;
///   then  m = b1 m + (1 - b1) G,  v = b2 v + (1 - b2) (Qlᵀ G Qr)²,
///         w = (w - lr sqrt(1 - b2^(t-1)) / (1 - b1^(t-1)) · Ql ((Qlᵀ m Qr) / (sqrt(v) + eps)) Qrᵀ) (1 - lr decay);
///   every `frequency` steps the bases follow by one power iteration and a QR decomposition, in the order of the eigenvalues.
/// Decompositions are in double, the rest in f32.
class Soap {
 public:
  /// For matrices up to so many rows and columns, of which no side that is rotated is longer than `side`. One at a time; threads
  /// need one each.
  Soap(size_t rows, size_t columns, size_t side);

  /// Takes step `number` (from 1) for weights w with gradient scale · g, both [rows, columns].
  void step(float* w, const float* g, float scale, size_t rows, size_t columns, const SoapState& state, const SoapRule& rule,
            double lr, double decay, int64_t number);

 private:
  FloatBuffer gradient_, a_, b_, square_;
  Buffer<std::byte> packed_a_, packed_b_;
  struct Operands;
  void rotate(float* x, size_t rows, size_t columns, const SoapState& state, bool back);
  void renew(float* of, float* basis, float* v, size_t rows, size_t columns, bool of_rows);
  void add_squares(const float* g, size_t rows, size_t columns, float* mean, double beta, bool of_rows);
};

}  // namespace vitrine
