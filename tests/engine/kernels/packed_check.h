#pragma once
// The checks that every product of packed matrices goes through.
#include "support.h"

namespace vitrine {

/// c (+)= a b for [rows, depth] and [depth, columns] matrices that lie plain or transposed; packed in pieces, as an op does.
inline void packed_product(const PackedKernels& p, const float* a, bool a_turned, const float* b, bool b_turned, size_t rows,
                           size_t columns, size_t depth, float* c, size_t c_stride, bool add) {
  const auto aligned = [](std::vector<char>& bytes) {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) / 64 * 64);
  };
  const size_t a_stride = a_turned ? rows : depth, b_stride = b_turned ? depth : columns;
  for (size_t t = 0; t < depth; t += p.depth) {
    const size_t here = std::min(p.depth, depth - t);
    std::vector<char> a_storage(p.a_bytes(rows, here) + 64, char(0x7f)), b_storage(p.b_bytes(here, columns) + 64, char(0x7f));
    for (size_t r = 0; r < rows; r += 2 * p.rows)
      p.pack_a(a + (a_turned ? t * a_stride + r : r * a_stride + t), a_stride, a_turned, std::min(2 * p.rows, rows - r), here,
               aligned(a_storage) + p.a_bytes(r, here));
    for (size_t j = 0; j < columns; j += p.columns)
      p.pack_b(b + (b_turned ? j * b_stride + t : t * b_stride + j), b_stride, b_turned, here, std::min(p.columns, columns - j),
               aligned(b_storage) + p.b_bytes(here, j));
    p.multiply(aligned(a_storage), a_turned, aligned(b_storage), rows, columns, here, c, c_stride, add || t > 0,
               {c, rows, columns * sizeof(float), c_stride * sizeof(float)});
  }
}

inline void check_packed(const PackedKernels& p, bool bf16) {
  struct Case {
    size_t rows, columns, depth;
  };
  std::vector<Case> cases = {{1, 1, 1},
                             {p.rows, p.columns, p.depth},
                             {p.rows + 1, p.columns + 1, p.depth + 1},
                             {3 * p.rows - 1, 3 * p.columns - 1, 2 * p.depth + 31},
                             {5, 70, 33},
                             {p.rows + 1, 3, 128},
                             {p.rows + 1, 3, 129},
                             {p.rows + 1, 3, 256},
                             {p.rows + 1, 3, 257}};
  for (size_t n = 1; n <= 34; ++n) cases.push_back({n, 35 - n, n + 3});
  for (const Case& c : cases)
    for (const bool a_turned : {false, true})
      for (const bool b_turned : {false, true})
        for (const bool add : {false, true}) {
          const Guarded<float> a(random_values(c.rows * c.depth, 70)), b(random_values(c.depth * c.columns, 71));
          const size_t stride = c.columns + 3;
          Guarded<float> got(random_values((c.rows - 1) * stride + c.columns, 72));
          const std::vector<float> before = got.values();
          packed_product(p, a.data(), a_turned, b.data(), b_turned, c.rows, c.columns, c.depth, got.data(), stride, add);
          EXPECT_TRUE(got.intact());
          const auto value = [&](float v) { return double(bf16 ? bf16_to_f32(f32_to_bf16(v)) : v); };
          for (size_t i = 0; i < c.rows; ++i)
            for (size_t j = 0; j < stride && i * stride + j < got.size(); ++j) {
              const size_t at = i * stride + j;
              if (j >= c.columns) {  // between rows nothing is touched
                ASSERT_EQ(got[at], before[at]);
                continue;
              }
              double sum = add ? double(before[at]) : 0, magnitude = std::fabs(sum);
              for (size_t t = 0; t < c.depth; ++t) {
                const double term = value(a[a_turned ? t * c.rows + i : i * c.depth + t]) *
                                    value(b[b_turned ? j * c.depth + t : t * c.columns + j]);
                sum += term;
                magnitude += std::fabs(term);
              }
              ASSERT_TRUE(close(got[at], sum, sum_tolerance(c.depth, magnitude)))
                  << c.rows << " x " << c.columns << " x " << c.depth << (a_turned ? " a transposed" : "")
                  << (b_turned ? " b transposed" : "") << (add ? " added" : "") << " at " << i << ", " << j << ": " << got[at]
                  << ", not " << sum;
            }
        }
}

}  // namespace vitrine
