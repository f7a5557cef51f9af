#include "inspect/decompositions.h"

#include <Eigen/Eigenvalues>
#include <Eigen/QR>
#include <Eigen/SVD>
#include <algorithm>

namespace vitrine {

using Eigen::MatrixXd;

MatrixXd upper_triangle(const MatrixXd& columns) {
  const Eigen::HouseholderQR<MatrixXd> qr(columns);
  return qr.matrixQR().topRows(std::min(columns.rows(), columns.cols())).triangularView<Eigen::Upper>();
}

std::vector<double> singular_values(const MatrixXd& m) {
  const Eigen::BDCSVD<MatrixXd> svd(m);
  return {svd.singularValues().begin(), svd.singularValues().end()};
}

std::vector<std::complex<double>> eigenvalues(const MatrixXd& m) {
  const Eigen::EigenSolver<MatrixXd> solver(m, /*computeEigenvectors=*/false);
  return {solver.eigenvalues().begin(), solver.eigenvalues().end()};
}

}  // namespace vitrine
