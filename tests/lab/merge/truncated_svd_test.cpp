// Truncated singular value decompositions against Eigen's full one in f64.
#include "merge/truncated_svd.h"

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <cmath>
#include <random>

namespace vitrine {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix random_matrix(int64_t rows, int64_t columns, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  return Matrix::NullaryExpr(rows, columns, [&] { return normal(random); });
}

Matrix with_spectrum(int64_t rows, int64_t columns, const std::vector<double>& values) {
  const auto orthonormal = [](const Matrix& m) {
    return Eigen::MatrixXd(Eigen::HouseholderQR<Eigen::MatrixXd>(m.cast<double>()).householderQ() *
                           Eigen::MatrixXd::Identity(m.rows(), m.cols()));
  };
  const auto n = static_cast<int64_t>(values.size());
  const Eigen::VectorXd diagonal = Eigen::Map<const Eigen::VectorXd>(values.data(), n);
  return (orthonormal(random_matrix(rows, n, 1)) * diagonal.asDiagonal() * orthonormal(random_matrix(columns, n, 2)).transpose())
      .cast<float>();
}

struct Spectrum {
  std::string name;
  std::vector<double> values;
};

std::vector<Spectrum> spectra(int64_t side) {
  std::vector<double> fast, slow, one_size, steps, few;
  for (int64_t i = 0; i < side; ++i) {
    const auto x = static_cast<double>(i);
    fast.push_back(std::pow(0.8, x));
    slow.push_back(1 / (1 + 0.05 * x));
    one_size.push_back(1);
    steps.push_back(i < 40 ? 10 : 1);  // more copies than a block has vectors
    few.push_back(i < 7 ? 3 + 0.1 * x : 0);
  }
  return {{"fast", fast}, {"slow", slow}, {"one size", one_size}, {"steps", steps}, {"few", few}};
}

// Values, orthonormal vectors, and an approximation that is as good as the best one.
void expect_best(const Matrix& matrix, int64_t rank, const std::string& what) {
  const TruncatedSvd svd = truncated_svd(matrix.data(), matrix.rows(), matrix.cols(), rank);
  const Eigen::BDCSVD<Eigen::MatrixXd> full(matrix.cast<double>());
  const int64_t r = std::min({rank, matrix.rows(), matrix.cols()});
  ASSERT_EQ(svd.rank, r) << what;
  const double largest = full.singularValues()(0);
  for (int64_t i = 0; i < r; ++i)
    EXPECT_NEAR(svd.values[static_cast<size_t>(i)], full.singularValues()(i), 1e-5 * largest) << what << " " << i;
  const Eigen::MatrixXd u = Eigen::Map<const Matrix>(svd.u.data(), r, matrix.rows()).cast<double>();
  const Eigen::MatrixXd v = Eigen::Map<const Matrix>(svd.v.data(), r, matrix.cols()).cast<double>();
  const Eigen::VectorXd values = Eigen::Map<const Eigen::VectorXf>(svd.values.data(), r).cast<double>();
  const double missed = (matrix.cast<double>() - u.transpose() * values.asDiagonal() * v).norm();
  const double best = full.singularValues().tail(full.singularValues().size() - r).norm();
  EXPECT_LE(missed, best * (1 + 1e-5) + 1e-5 * largest) << what;
  for (int64_t i = 0; i < r; ++i)
    if (values(i) > 1e-3 * largest) {
      EXPECT_NEAR(u.row(i).norm(), 1, 1e-5) << what;
      EXPECT_NEAR(v.row(i).norm(), 1, 1e-5) << what;
    }
}

TEST(TruncatedSvd, IsTheBestApproximation) {
  for (const auto& [rows, columns] : {std::pair{200, 160}, {160, 201}})  // larger ones take minutes under the sanitizers
    for (const Spectrum& spectrum : spectra(160))
      for (const int64_t rank : {1, 20, 40})
        expect_best(with_spectrum(rows, columns, spectrum.values), rank,
                    spectrum.name + " " + std::to_string(rows) + " rank " + std::to_string(rank));
}

TEST(TruncatedSvd, OfNoise) { expect_best(random_matrix(260, 700, 3), 30, "noise"); }

TEST(TruncatedSvd, OfSmallMatricesAndAllRanks) {
  for (const auto& [rows, columns] : {std::pair{1, 1}, {1, 7}, {7, 1}, {9, 11}, {33, 20}, {140, 150}})
    for (const int64_t rank : {1, 3, 500}) expect_best(random_matrix(rows, columns, 4), rank, std::to_string(rows));
}

TEST(TruncatedSvd, OfTinyAndHugeNumbers) {
  for (const float factor : {1e-30f, 1e30f}) {
    const Matrix matrix = random_matrix(300, 280, 5), scaled = matrix * factor;
    const TruncatedSvd plain = truncated_svd(matrix.data(), 300, 280, 8), other = truncated_svd(scaled.data(), 300, 280, 8);
    for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(other.values[i] / factor, plain.values[i], 1e-4 * plain.values[0]);
  }
}

TEST(TruncatedSvd, OfZeros) {
  const Matrix zeros = Matrix::Zero(5, 6);
  const TruncatedSvd svd = truncated_svd(zeros.data(), 5, 6, 3);
  EXPECT_EQ(svd.values, (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(svd.u.size(), 15u);
  EXPECT_EQ(svd.v.size(), 18u);
}

TEST(TruncatedSvd, GivesTheSameBitsEachTime) {
  const Matrix matrix = random_matrix(300, 280, 6);
  const TruncatedSvd one = truncated_svd(matrix.data(), 300, 280, 8), two = truncated_svd(matrix.data(), 300, 280, 8);
  EXPECT_EQ(one.values, two.values);
  EXPECT_EQ(one.u, two.u);
}

}  // namespace
}  // namespace vitrine
