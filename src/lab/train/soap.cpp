#include "train/soap.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/merge_sort.h"
#include "kernels/table.h"
#include "ops/packed_product.h"

namespace vitrine {
namespace {

using Square = Eigen::Map<Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

const PackedKernels& soap_kernels() { return kernels().packed_f32; }

// Of the operands of products with a rotated side.
size_t packed_bytes(size_t longest, size_t side) {
  const PackedKernels& p = soap_kernels();
  return std::max({packed_a_bytes(p, longest, side), packed_a_bytes(p, side, longest), packed_b_bytes(p, side, longest),
                   packed_b_bytes(p, longest, side)});
}

// Eigenvectors as columns, that of the largest eigenvalue first.
void eigenvectors(const float* matrix, size_t n, float* basis) {
  const auto side = static_cast<Eigen::Index>(n);
  const Eigen::MatrixXd of = Square(const_cast<float*>(matrix), side, side).cast<double>();
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solved(of);
  Square(basis, side, side) = solved.eigenvectors().rowwise().reverse().cast<float>();
}

}  // namespace

Soap::Soap(size_t rows, size_t columns, size_t side)
    : gradient_(rows * columns),
      a_(rows * columns),
      b_(rows * columns),
      square_(side * side),
      packed_a_(packed_bytes(std::max(rows, columns), side)),
      packed_b_(packed_bytes(std::max(rows, columns), side)) {}

struct Soap::Operands {  // c [rows, columns] = a [rows, depth] b [depth, columns]
  Soap& soap;
  void product(const Operand& a, const Operand& b, size_t rows, size_t columns, size_t depth, float* c) const {
    const PackedKernels& p = soap_kernels();
    pack_a(p, a, rows, depth, soap.packed_a_.data());
    pack_b(p, b, depth, columns, soap.packed_b_.data());
    multiply_packed(p, soap.packed_a_.data(), a.transposed, soap.packed_b_.data(), rows, columns, depth, c, columns, false);
  }
};

// x = Qlᵀ x Qr, or Ql x Qrᵀ.
void Soap::rotate(float* x, size_t rows, size_t columns, const SoapState& state, bool back) {
  const Operands operands{*this};
  const auto keep = [&] { std::memcpy(x, b_.data(), rows * columns * sizeof(float)); };
  if (state.left_basis != nullptr) {
    operands.product({state.left_basis, rows, !back}, {x, columns}, rows, columns, rows, b_.data());
    keep();
  }
  if (state.right_basis != nullptr) {
    operands.product({x, columns}, {state.right_basis, columns, back}, rows, columns, columns, b_.data());
    keep();
  }
}

// mean = beta mean + (1 - beta) G Gᵀ, or Gᵀ G.
void Soap::add_squares(const float* g, size_t rows, size_t columns, float* mean, double beta, bool of_rows) {
  const size_t side = of_rows ? rows : columns, depth = of_rows ? columns : rows;
  const Operand first{g, columns, !of_rows};  // [side, depth]
  Operands{*this}.product(first, first.transpose(), side, side, depth, square_.data());
  const auto share = static_cast<float>(1 - beta);
  for (size_t i = 0; i < side * side; ++i) mean[i] += share * (square_.data()[i] - mean[i]);
}

// One power iteration, ordered by what it says of the eigenvalues, made orthogonal. The lines of v go along.
void Soap::renew(float* of, float* basis, float* v, size_t rows, size_t columns, bool of_rows) {
  const size_t n = of_rows ? rows : columns;
  Operands{*this}.product({of, n}, {basis, n}, n, n, n, square_.data());
  std::vector<double> eigenvalues(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      eigenvalues[j] += static_cast<double>(basis[i * n + j]) * static_cast<double>(square_.data()[i * n + j]);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  merge_sort(order, [&](size_t a, size_t b) { return eigenvalues[a] > eigenvalues[b]; });
  const auto side = static_cast<Eigen::Index>(n);
  Eigen::MatrixXd power(side, side);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      power(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = static_cast<double>(square_.data()[i * n + order[j]]);
  const Eigen::HouseholderQR<Eigen::MatrixXd> solved(power);
  const Eigen::MatrixXd q = solved.householderQ();
  Square(basis, side, side) = q.cast<float>();
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      b_.data()[i * columns + j] = of_rows ? v[order[i] * columns + j] : v[i * columns + order[j]];
  std::memcpy(v, b_.data(), rows * columns * sizeof(float));
}

void Soap::step(float* w, const float* g, float scale, size_t rows, size_t columns, const SoapState& state, const SoapRule& rule,
                double lr, double decay, int64_t number) {
  const size_t count = rows * columns;
  float* const gradient = gradient_.data();
  for (size_t i = 0; i < count; ++i) gradient[i] = scale * g[i];
  if (number > 1) {
    const auto t = static_cast<double>(number - 1);
    const auto step_size = static_cast<float>(lr * std::sqrt(1 - std::pow(rule.beta2, t)) / (1 - std::pow(rule.beta1, t)));
    const auto of_m = static_cast<float>(1 - rule.beta1), of_v = static_cast<float>(1 - rule.beta2),
               eps = static_cast<float>(rule.eps), kept = static_cast<float>(1 - lr * decay);
    float* const x = a_.data();
    std::memcpy(x, gradient, count * sizeof(float));
    rotate(x, rows, columns, state, false);
    for (size_t i = 0; i < count; ++i) {
      state.m[i] += of_m * (gradient[i] - state.m[i]);
      state.v[i] += of_v * (x[i] * x[i] - state.v[i]);
      x[i] = state.m[i];
    }
    rotate(x, rows, columns, state, false);
    for (size_t i = 0; i < count; ++i) x[i] /= std::sqrt(state.v[i]) + eps;
    rotate(x, rows, columns, state, true);
    for (size_t i = 0; i < count; ++i) w[i] = (w[i] - step_size * x[i]) * kept;
  }
  if (state.left != nullptr) add_squares(gradient, rows, columns, state.left, rule.shampoo_beta, true);
  if (state.right != nullptr) add_squares(gradient, rows, columns, state.right, rule.shampoo_beta, false);
  if (number == 1) {
    if (state.left != nullptr) eigenvectors(state.left, rows, state.left_basis);
    if (state.right != nullptr) eigenvectors(state.right, columns, state.right_basis);
  } else if ((number - 1) % rule.frequency == 0) {
    if (state.left != nullptr) renew(state.left, state.left_basis, state.v, rows, columns, true);
    if (state.right != nullptr) renew(state.right, state.right_basis, state.v, rows, columns, false);
  }
}

}  // namespace vitrine
