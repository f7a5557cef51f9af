#include "train/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/table.h"
#include "ops/layout.h"
#include "ops/packed_product.h"

namespace vitrine {
namespace {

constexpr float kMuonA = 3.4445f, kMuonB = -4.7750f, kMuonC = 2.0315f;
constexpr double kSmallestNorm = 1e-7;  // below it, u is not made longer
constexpr size_t kStrip = 256;          // lines of the longer side that are packed at once
constexpr size_t kTile = 16;            // of a transposition

const PackedKernels& muon_kernels() { return kernels().packed_f32; }
size_t strip_lines(size_t block) { return ceil_div(kStrip, block) * block; }

// Fills what lies above the diagonal of c [n, n] with what lies below.
void mirror(float* c, size_t n) {
  size_t i0 = 0;
  for (; i0 + kTile <= n; i0 += kTile)
    for (size_t j0 = 0; j0 < i0; j0 += kTile)
      for (size_t j = j0; j < j0 + kTile; ++j) {  // rows of a fixed length are written as vectors
        float column[kTile];
        for (size_t i = 0; i < kTile; ++i) column[i] = c[(i0 + i) * n + j];
        for (size_t i = 0; i < kTile; ++i) c[j * n + i0 + i] = column[i];
      }
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i < i0 ? i / kTile * kTile : 0; j < i; ++j) c[j * n + i] = c[i * n + j];
}

// c [n, n] = a b for a product that is symmetric; a is [n, depth]. An operand without data is that of the product before, which
// is packed still.
void symmetric_product(const Operand& a, const Operand& b, size_t n, size_t depth, float* c, std::byte* packed_a,
                       std::byte* packed_b) {
  const PackedKernels& p = muon_kernels();
  if (a.data != nullptr) pack_a(p, a, n, depth, packed_a);
  if (b.data != nullptr) pack_b(p, b, depth, n, packed_b);
  for (size_t t = 0; t < depth; t += p.depth) {
    const size_t here = std::min(p.depth, depth - t);
    for (size_t j = 0; j < n; j += p.columns) {
      const size_t first = j / p.rows * p.rows;
      p.multiply(packed_a + p.a_bytes(first, here), a.transposed, packed_b + p.b_bytes(here, j), n - first,
                 std::min(p.columns, n - j), here, c + first * n + j, n, t > 0, {});
    }
    packed_a += align_up(p.a_bytes(n, here));
    packed_b += align_up(p.b_bytes(here, n));
  }
  mirror(c, n);
}

// y = a + b r + c s
void polynomial(const float* r, const float* s, size_t n, float* y) {
  for (size_t i = 0; i < n * n; ++i) y[i] = kMuonB * r[i] + kMuonC * s[i];
  for (size_t i = 0; i < n; ++i) y[i * n + i] += kMuonA;
}

size_t packed_bytes(size_t side, size_t longer) {
  const PackedKernels& p = muon_kernels();
  const size_t line = std::max(strip_lines(p.rows), strip_lines(p.columns));
  return std::max({packed_a_bytes(p, side, longer), packed_b_bytes(p, longer, side), packed_a_bytes(p, line, side),
                   packed_b_bytes(p, side, line)});
}

}  // namespace

Orthogonalizer::Orthogonalizer(size_t rows, size_t columns) {
  const size_t side = std::min(rows, columns), longer = std::max(rows, columns);
  for (FloatBuffer* buffer : {&gram_, &square_, &product_, &next_, &whole_}) *buffer = FloatBuffer(side * side);
  a_ = Buffer<std::byte>(packed_bytes(side, longer));
  b_ = Buffer<std::byte>(packed_bytes(side, longer));
}

double Orthogonalizer::bytes(size_t rows, size_t columns) {
  const size_t side = std::min(rows, columns);
  return 5.0 * static_cast<double>(side * side * sizeof(float)) +
         2.0 * static_cast<double>(packed_bytes(side, std::max(rows, columns)));
}

void Orthogonalizer::add(const float* u, size_t rows, size_t columns, int iterations, double factor, float* out) {
  const bool wide = rows <= columns;
  const size_t n = wide ? rows : columns, longer = wide ? columns : rows;
  const double norm = std::max(kSmallestNorm, std::sqrt(kernels().sum_of_squares(u, rows * columns)));
  float *r = gram_.data(), *s = square_.data(), *p = product_.data(), *x = next_.data(), *q = whole_.data();
  const auto symmetric = [&](const float* a, const float* b, float* c) {
    symmetric_product({a, n}, {b, n}, n, n, c, a_.data(), b_.data());
  };
  const Operand shorter_first{u, columns, !wide};  // [n, longer]
  symmetric_product(shorter_first, shorter_first.transpose(), n, longer, r, a_.data(), b_.data());
  kernels().scale(r, static_cast<float>(1 / (norm * norm)), n * n, r);
  for (int i = 0; i < iterations; ++i) {
    symmetric(r, r, s);
    polynomial(r, s, n, p);
    const bool goes_on = i + 1 < iterations;
    if (goes_on) {
      symmetric(p, nullptr, x);  // P R
      symmetric(nullptr, x, r);  // P (P R)
    }
    if (i == 0) {
      std::swap(p, q);
    } else {
      symmetric(goes_on ? nullptr : p, q, x);
      std::swap(x, q);
    }
  }
  kernels().scale(q, static_cast<float>(factor / norm), n * n, q);

  const PackedKernels& k = muon_kernels();
  if (wide) {
    pack_a(k, {q, n}, n, n, a_.data());
    const size_t strip = strip_lines(k.columns);
    for (size_t first = 0; first < longer; first += strip) {
      const size_t here = std::min(strip, longer - first);
      pack_b(k, Operand{u, columns}.from(0, first), n, here, b_.data());
      multiply_packed(k, a_.data(), false, b_.data(), n, here, n, out + first, columns, true);
    }
  } else {
    pack_b(k, {q, n}, n, n, b_.data());
    const size_t strip = strip_lines(k.rows);
    for (size_t first = 0; first < longer; first += strip) {
      const size_t here = std::min(strip, longer - first);
      pack_a(k, Operand{u, columns}.from(first, 0), here, n, a_.data());
      multiply_packed(k, a_.data(), false, b_.data(), here, n, n, out + first * columns, columns, true);
    }
  }
}

}  // namespace vitrine
