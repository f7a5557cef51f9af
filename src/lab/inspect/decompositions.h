#pragma once
// The decompositions of small matrices that circuits need. They stand alone because Eigen's solvers take longest to compile of
// all that the folder uses.
#include <Eigen/Core>
#include <complex>
#include <vector>

namespace vitrine {

/// R [n, columns] of columns = Q R with orthonormal columns in Q; n is the smaller side.
Eigen::MatrixXd upper_triangle(const Eigen::MatrixXd& columns);

/// The largest first.
std::vector<double> singular_values(const Eigen::MatrixXd& m);

/// Of a square matrix, in no particular order.
std::vector<std::complex<double>> eigenvalues(const Eigen::MatrixXd& m);

}  // namespace vitrine
