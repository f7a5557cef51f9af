#include "merge/truncated_svd.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/philox.h"
#include "kernels/table.h"

namespace vitrine {
namespace {

constexpr int64_t kSmallSide = 128;          // up to here the Gram matrix is the quickest way
constexpr double kResidual = 2e-6;           // of the largest singular value
constexpr double kDependent = 1e-6;          // what is left of a vector that the others span, of the largest there was
constexpr size_t kStripColumns = 1024;       // of a product: what is packed at once
constexpr uint64_t kStartKey = 0x7376645fu;  // of the random numbers

// A matrix that lies [rows, columns], or [columns, rows] if transposed.
struct MatrixView {
  const float* data;
  size_t stride;
  bool transposed = false;
};

// Products of f32 matrices on one thread, by the packed kernels.
class SvdProducts {
 public:
  // c [rows, columns] = or += a [rows, depth] b [depth, columns]
  void multiply(MatrixView a, MatrixView b, size_t rows, size_t depth, size_t columns, float* c, size_t c_stride, bool add) {
    const PackedKernels& p = kernels().packed_f32;
    const size_t strip = std::max<size_t>(1, kStripColumns / p.columns) * p.columns;
    for (size_t t = 0; t < depth; t += p.depth) {
      const size_t deep = std::min(p.depth, depth - t);
      a_.reserve(p.a_bytes(rows, deep));
      p.pack_a(a.transposed ? a.data + t * a.stride : a.data + t, a.stride, a.transposed, rows, deep, a_.data());
      for (size_t first = 0; first < columns; first += strip) {
        const size_t n = std::min(strip, columns - first);
        b_.reserve(p.b_bytes(deep, n));
        p.pack_b(b.transposed ? b.data + first * b.stride + t : b.data + t * b.stride + first, b.stride, b.transposed, deep, n,
                 b_.data());
        p.multiply(a_.data(), a.transposed, b_.data(), rows, n, deep, c + first, c_stride, add || t > 0, {});
      }
    }
  }

 private:
  class Packed {
   public:
    void reserve(size_t bytes) {
      if (bytes <= size_) return;
      size_ = (bytes + 63) / 64 * 64;
      data_.reset(std::aligned_alloc(64, size_));
      if (data_ == nullptr) throw std::bad_alloc();
    }
    void* data() const { return data_.get(); }

   private:
    struct Free {
      void operator()(void* p) const { std::free(p); }
    };
    std::unique_ptr<void, Free> data_;
    size_t size_ = 0;
  };
  Packed a_, b_;
};

double norm_of(const float* x, size_t n) { return std::sqrt(kernels().sum_of_squares(x, n)); }

void scale_row(float* x, size_t n, double factor) {
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<double>(x[i]) * factor);
}

// Normal random numbers, then brought to unit length.
void random_row(uint64_t row, float* x, size_t n) {
  for (size_t i = 0; i < n; i += 4) {
    const std::array<double, 4> normals = normals_from(philox(kStartKey, i, row));
    for (size_t k = 0; k < 4 && i + k < n; ++k) x[i + k] = static_cast<float>(normals[k]);
  }
  scale_row(x, n, 1 / norm_of(x, n));
}

// Rows that are orthonormal, to which blocks are added.
class Basis {
 public:
  Basis(SvdProducts& products, size_t width, uint64_t key) : products_(products), width_(width), next_random_(key) {}

  size_t size() const { return rows_.size() / width_; }
  const float* row(size_t i) const { return rows_.data() + i * width_; }

  // Adds what is new in the rows x [n, width]: x = coefficients · rows of the basis from then on, [n, size()]. Rows that bring
  // nothing new are replaced by random ones, whose coefficients are 0. Each round takes away what the one before left by
  // rounding.
  Eigen::MatrixXd add(std::vector<float> x) {
    const size_t n = x.size() / width_, before = size();
    Eigen::MatrixXd all = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(before + n));
    Eigen::MatrixXd factors = Eigen::MatrixXd::Identity(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n));
    const auto old = static_cast<Eigen::Index>(before), count = static_cast<Eigen::Index>(n);
    for (size_t i = 0; i < n; ++i) largest_ = std::max(largest_, norm_of(x.data() + i * width_, width_));
    for (int round = 0; round < 2; ++round) {
      if (before > 0) all.leftCols(old) += factors * take_away(x, n);
      factors = factors * orthonormalize(x, n, round == 0 ? kDependent * largest_ : 0);
    }
    all.rightCols(count) = factors;
    rows_.insert(rows_.end(), x.begin(), x.end());
    return all;
  }
  void add_random(size_t n) {
    std::vector<float> x(n * width_);
    for (size_t i = 0; i < n; ++i) random_row(next_random_++, x.data() + i * width_, width_);
    add(std::move(x));
    largest_ = 0;
  }

  // x loses its components along the basis; returns them.
  Eigen::MatrixXd take_away(std::vector<float>& x, size_t n) {
    const size_t k = size();
    std::vector<float> c(n * k);
    products_.multiply({x.data(), width_}, {rows_.data(), width_, true}, n, width_, k, c.data(), k, false);
    Eigen::MatrixXd found(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(k));
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < k; ++j) {
        found(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) = static_cast<double>(c[i * k + j]);
        c[i * k + j] = -c[i * k + j];
      }
    products_.multiply({c.data(), k}, {rows_.data(), width_}, n, k, width_, x.data(), width_, true);
    return found;
  }

 private:
  // Gram and Schmidt: x = result · new x.
  Eigen::MatrixXd orthonormalize(std::vector<float>& x, size_t n, double least) {
    Eigen::MatrixXd factors = Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(n), static_cast<Eigen::Index>(n));
    const auto project = [&](size_t i, bool counts) {
      float* const row = x.data() + i * width_;
      for (size_t j = 0; j < i; ++j) {
        const float c = kernels().dot(row, x.data() + j * width_, width_);
        kernels().add_scaled(x.data() + j * width_, -c, width_, row);
        if (counts) factors(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(j)) += static_cast<double>(c);
      }
      return norm_of(row, width_);
    };
    for (size_t i = 0; i < n; ++i) {
      double left = project(i, true);
      const bool is_new = left > least && left > 0;
      if (is_new) {
        factors(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(i)) = left;
      } else {
        random_row(next_random_++, x.data() + i * width_, width_);
        left = project(i, false);
      }
      scale_row(x.data() + i * width_, width_, 1 / left);
    }
    return factors;
  }

  SvdProducts& products_;
  size_t width_;
  uint64_t next_random_;
  double largest_ = 0;
  std::vector<float> rows_;
};

class Svd {
 public:
  Svd(const float* matrix, int64_t rows, int64_t columns, int64_t rank)
      : matrix_(matrix), rows_(static_cast<size_t>(rows)), columns_(static_cast<size_t>(columns)) {
    wanted_ = static_cast<size_t>(std::min({rank, rows, columns}));
  }

  TruncatedSvd run() {
    const auto side = static_cast<int64_t>(std::min(rows_, columns_));
    if (side > kSmallSide && static_cast<int64_t>(wanted_) <= side / 4)
      if (auto found = by_lanczos()) return std::move(*found);
    return by_gram();
  }

 private:
  // x [n, columns] times the transposed matrix, and x [n, rows] times the matrix.
  std::vector<float> times_transposed(const float* x, size_t n) {
    std::vector<float> y(n * rows_);
    products_.multiply({x, columns_}, {matrix_, columns_, true}, n, columns_, rows_, y.data(), rows_, false);
    return y;
  }
  std::vector<float> times_matrix(const float* x, size_t n) {
    std::vector<float> y(n * columns_);
    products_.multiply({x, rows_}, {matrix_, columns_}, n, rows_, columns_, y.data(), columns_, false);
    return y;
  }

  // Given orthonormal vectors of one side, those of the other are what the matrix makes of them.
  TruncatedSvd finished(std::vector<float> own, std::vector<float> other, bool own_is_left) const {
    const size_t width = own_is_left ? columns_ : rows_;
    TruncatedSvd made;
    made.rank = static_cast<int64_t>(wanted_);
    for (size_t i = 0; i < wanted_; ++i) {
      const double value = norm_of(other.data() + i * width, width);
      made.values.push_back(static_cast<float>(value));
      scale_row(other.data() + i * width, width, value > 0 ? 1 / value : 0);
    }
    made.u = std::move(own_is_left ? own : other);
    made.v = std::move(own_is_left ? other : own);
    return made;
  }

  std::optional<TruncatedSvd> by_lanczos() {
    const size_t side = std::min(rows_, columns_), block = wanted_ <= 48 ? 16 : 32;
    Basis left(products_, rows_, uint64_t{1} << 32), right(products_, columns_, uint64_t{2} << 32);
    right.add_random(block);
    Eigen::MatrixXd projected;  // left · matrix · rightᵀ
    size_t next_check = 2 * wanted_;
    for (size_t done = 0; done + block <= side / 2; done += block) {
      const auto old = static_cast<Eigen::Index>(done), now = static_cast<Eigen::Index>(done + block);
      const Eigen::MatrixXd column = left.add(times_transposed(right.row(done), block));
      projected.conservativeResize(now, now);
      projected.bottomRows(now - old).setZero();
      projected.rightCols(now - old) = column.transpose();
      const Eigen::MatrixXd next = right.add(times_matrix(left.row(done), block));
      if (done + block < next_check) continue;
      next_check = (done + block) * 5 / 4;
      const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(projected * projected.transpose());
      if (eigen.info() != Eigen::Success) return {};
      const Eigen::MatrixXd top = eigen.eigenvectors().rightCols(static_cast<Eigen::Index>(wanted_)).rowwise().reverse();
      const double largest = std::sqrt(std::max(0.0, eigen.eigenvalues()(now - 1)));
      // What the matrix makes of the last left vectors reaches beyond the right ones; of all others it does not.
      const Eigen::MatrixXd beyond = top.bottomRows(now - old).transpose() * next.rightCols(now - old);
      if (beyond.rowwise().norm().maxCoeff() > kResidual * largest) continue;
      std::vector<float> weights(wanted_ * (done + block)), u(wanted_ * rows_);
      for (size_t i = 0; i < wanted_; ++i)
        for (size_t j = 0; j < done + block; ++j)
          weights[i * (done + block) + j] = static_cast<float>(top(static_cast<Eigen::Index>(j), static_cast<Eigen::Index>(i)));
      products_.multiply({weights.data(), done + block}, {left.row(0), rows_}, wanted_, done + block, rows_, u.data(), rows_,
                         false);
      std::vector<float> v = times_matrix(u.data(), wanted_);
      TruncatedSvd made = finished(std::move(u), std::move(v), true);
      if (misses_some(made)) return {};
      return made;
    }
    return {};
  }

  // Blocks of one size see so many copies of a singular value at most. Powers of what is left find a larger one.
  bool misses_some(const TruncatedSvd& made) {
    constexpr size_t kProbes = 8;
    constexpr int kPowers = 4;
    Basis found(products_, rows_, uint64_t{3} << 32);
    found.add(made.u);
    std::vector<float> x(kProbes * rows_);
    for (size_t i = 0; i < kProbes; ++i) random_row((uint64_t{4} << 32) + i, x.data() + i * rows_, rows_);
    double largest = 0;
    for (int power = 0; power < kPowers; ++power) {
      found.take_away(x, kProbes);
      for (size_t i = 0; i < kProbes; ++i) {
        const double norm = norm_of(x.data() + i * rows_, rows_);
        scale_row(x.data() + i * rows_, rows_, norm > 0 ? 1 / norm : 0);
      }
      const std::vector<float> y = times_matrix(x.data(), kProbes);
      for (size_t i = 0; i < kProbes; ++i) largest = std::max(largest, norm_of(y.data() + i * columns_, columns_));
      x = times_transposed(y.data(), kProbes);
    }
    return largest > static_cast<double>(made.values.back()) * (1 + 1e-3) + 1e-5 * static_cast<double>(made.values.front());
  }

  TruncatedSvd by_gram() {
    const bool by_rows = rows_ <= columns_;
    const size_t side = std::min(rows_, columns_), length = std::max(rows_, columns_);
    const auto n = static_cast<Eigen::Index>(side);
    using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const Eigen::Map<const RowMajor> all(matrix_, static_cast<Eigen::Index>(rows_), static_cast<Eigen::Index>(columns_));
    Eigen::MatrixXd gram = Eigen::MatrixXd::Zero(n, n), piece;
    constexpr size_t kPieceLength = 512;
    for (size_t first = 0; first < length; first += kPieceLength) {
      const auto begin = static_cast<Eigen::Index>(first),
                 count = static_cast<Eigen::Index>(std::min(kPieceLength, length - first));
      if (by_rows) {
        piece = all.middleCols(begin, count).cast<double>();
      } else {
        piece = all.middleRows(begin, count).transpose().cast<double>();
      }
      gram.selfadjointView<Eigen::Lower>().rankUpdate(piece);
    }
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> eigen(gram);
    std::vector<float> own(wanted_ * side);
    for (size_t i = 0; i < wanted_; ++i)
      for (size_t j = 0; j < side; ++j)
        own[i * side + j] =
            static_cast<float>(eigen.eigenvectors()(static_cast<Eigen::Index>(j), n - 1 - static_cast<Eigen::Index>(i)));
    std::vector<float> other = by_rows ? times_matrix(own.data(), wanted_) : times_transposed(own.data(), wanted_);
    return finished(std::move(own), std::move(other), by_rows);
  }

  const float* matrix_;
  size_t rows_, columns_, wanted_ = 0;
  SvdProducts products_;
};

}  // namespace

TruncatedSvd truncated_svd(const float* matrix, int64_t rows, int64_t columns, int64_t rank) {
  const size_t n = static_cast<size_t>(rows) * static_cast<size_t>(columns);
  const int64_t most = std::min({rank, rows, columns});
  float largest = 0;
  for (size_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(matrix[i]));
  if (most <= 0 || largest == 0) {
    TruncatedSvd none;
    none.rank = std::max<int64_t>(0, most);
    none.values.assign(static_cast<size_t>(none.rank), 0.0f);
    none.u.assign(static_cast<size_t>(none.rank * rows), 0.0f);
    none.v.assign(static_cast<size_t>(none.rank * columns), 0.0f);
    return none;
  }
  // Squares of tiny and of huge numbers leave the range of f32; a power of two changes no digit.
  int exponent = 0;
  std::frexp(largest, &exponent);
  if (exponent >= -20 && exponent <= 20) return Svd(matrix, rows, columns, rank).run();
  std::vector<float> scaled(matrix, matrix + n);
  for (float& x : scaled) x = std::ldexp(x, -exponent);
  TruncatedSvd made = Svd(scaled.data(), rows, columns, rank).run();
  for (float& value : made.values) value = std::ldexp(value, exponent);
  return made;
}

}  // namespace vitrine
