#pragma once
// The largest singular values of a matrix and their vectors, for low-rank approximations.
#include <cstdint>
#include <vector>

namespace vitrine {

/// matrix ≈ uᵀ · diag(values) · v: the best approximation of its rank (Eckart and Young, 1936).
struct TruncatedSvd {
  int64_t rank = 0;
  std::vector<float> values;  // [rank], descending
  std::vector<float> u;       // [rank, rows]: left singular vectors, one a row
  std::vector<float> v;       // [rank, columns]: right singular vectors; zeros where the value is 0
};

/// The `rank` largest singular values (at most min(rows, columns)) of a matrix of finite numbers, [rows, columns].
///
/// Few of many are found by block Lanczos bidiagonalisation with full reorthogonalization (Golub, Luk and Overton, 1981), until
/// every residual |matrixᵀ u - value v| is below 2e-6 of the largest value, as in a full SVD in f32; more than a quarter of them,
/// those of small matrices, and what Lanczos does not separate, by the eigenvectors of the Gram matrix in f64.
/// One thread; the result depends on the arguments and the CPU's kernels only.
TruncatedSvd truncated_svd(const float* matrix, int64_t rows, int64_t columns, int64_t rank);

}  // namespace vitrine
