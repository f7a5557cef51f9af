// Attention in blocks: against softmax(q k) v in double over all keys at once, and the bits of a row under every
// company it may keep.
#include "kernels/reference/attention.h"

#include <optional>

#include "support.h"

namespace vitrine {
namespace {

using AttentionTest = EveryTarget;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Queries, keys (transposed per block) and values, with each row's range over all keys.
struct Problem {
  size_t rows, keys, head_dim, v_dim;
  float scale, softcap;
  std::vector<float> q, k, v;
  std::vector<int> first, last;
  DType k_type = DType::f32, v_type = DType::f32;
  std::vector<float> k_scales = {}, v_scales = {};  // of narrow types, for every 32 components of a key or value
  float slope = 0;                                  // times the distance to the row's last key; rows differ
  float slope_of(size_t row) const { return slope * float(row + 1); }
};
Problem problem(size_t rows, size_t keys, size_t head_dim, size_t v_dim, float softcap, uint32_t seed) {
  Problem p{rows,
            keys,
            head_dim,
            v_dim,
            1.0f / std::sqrt(float(head_dim)),
            softcap,
            random_values(rows * head_dim, seed, 2.0f),
            random_values(keys * head_dim, seed + 1, 2.0f),
            random_values(keys * v_dim, seed + 2),
            {},
            {}};
  std::mt19937 random(seed + 3);
  for (size_t r = 0; r < rows; ++r) {
    const int a = int(random() % (keys + 1)), b = int(random() % (keys + 1));
    p.first.push_back(std::min(a, b));
    p.last.push_back(std::max(a, b));
  }
  return p;
}

/// softmax(cap(scale q k)) v over each row's keys, in double; and the sum of |weight v| for the tolerance.
std::vector<double> plain_attention(const Problem& p) {
  std::vector<double> z(p.rows * p.v_dim);
  for (size_t r = 0; r < p.rows; ++r) {
    std::vector<double> s;
    double m = -HUGE_VAL, total = 0;
    for (int j = p.first[r]; j < p.last[r]; ++j) {
      double dot = 0;
      for (size_t c = 0; c < p.head_dim; ++c) dot += double(p.q[r * p.head_dim + c]) * double(p.k[size_t(j) * p.head_dim + c]);
      dot *= double(p.scale);
      if (p.softcap != 0) dot = double(p.softcap) * std::tanh(dot / double(p.softcap));
      dot += double(p.slope_of(r)) * double(j - (p.last[r] - 1));
      s.push_back(dot);
      m = std::max(m, dot);
    }
    for (double& value : s) total += value = std::exp(value - m);
    for (size_t j = 0; j < s.size(); ++j)
      for (size_t c = 0; c < p.v_dim; ++c)
        z[r * p.v_dim + c] += s[j] / total * double(p.v[(size_t(p.first[r]) + j) * p.v_dim + c]);
  }
  return z;
}

/// Rounds rows of `dim` components to what a narrow type holds; the scales that it takes.
std::vector<float> narrow(DType type, std::vector<float>& x, size_t dim) {
  std::vector<float> scales;
  for (size_t row = 0; row < x.size(); row += dim)
    for (size_t begin = row; begin < row + dim; begin += kBlock) {
      const size_t end = std::min(begin + kBlock, row + dim);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(x[i]));
      const float scale = f16_to_f32(f32_to_f16(largest / (type == DType::q8_0 ? 127.0f : 7.5f)));
      scales.push_back(scale);
      for (size_t i = begin; i < end; ++i) {
        if (type == DType::f16) {
          x[i] = f16_to_f32(f32_to_f16(x[i]));
        } else {
          x[i] = scale * (type == DType::q8_0 ? std::round(x[i] / scale) : std::clamp(std::round(x[i] / scale), -8.0f, 7.0f));
        }
      }
    }
  return scales;
}
Problem narrow(DType k_type, DType v_type, Problem p) {
  p.k_type = k_type;
  p.v_type = v_type;
  if (k_type != DType::f32) p.k_scales = narrow(k_type, p.k, p.head_dim);
  if (v_type != DType::f32) p.v_scales = narrow(v_type, p.v, p.v_dim);
  return p;
}

/// A block of a narrow type, as kernels/narrow.h describes it, of the keys or values from `begin` on; what is not there is 0xff.
class Narrow {
 public:
  Narrow(DType type, bool transposed, const std::vector<float>& x, const std::vector<float>& scales, size_t dim, size_t begin,
         size_t keys)
      : type_(type),
        line_((transposed ? kKeyBlock : (dim + 31) / 32 * 32) *
              (type == DType::f16    ? 4
               : type == DType::q8_0 ? 2
                                     : 1) /
              2),
        lines_(std::vector<char>(line_ * (transposed ? dim : keys), char(0xff))),
        scales_(std::vector<uint16_t>((dim + 31) / 32 * kKeyBlock, 0xffff)) {
    for (size_t j = 0; j < keys; ++j)
      for (size_t c = 0; c < dim; ++c) {
        const float value = x[(begin + j) * dim + c];
        float scale = 1;
        if (type != DType::f16) {
          scale = scales[(begin + j) * ((dim + 31) / 32) + c / 32];
          scales_[c / 32 * kKeyBlock + j] = f32_to_f16(std::isnan(value) ? value : scale);
        }
        put(transposed ? c : j, transposed ? j : c, std::isnan(value) && type != DType::f16 ? 0.0f : value / scale);
      }
  }
  NarrowBlock block() const { return {type_, reinterpret_cast<const std::byte*>(lines_.data()), scales_.data()}; }

 private:
  void put(size_t line, size_t i, float number) {
    char* const at = lines_.data() + line * line_;
    const auto code = int(std::lround(std::isnan(number) ? 0 : number));
    if (type_ == DType::f16) {
      reinterpret_cast<uint16_t*>(at)[i] = f32_to_f16(number);
    } else if (type_ == DType::q8_0) {
      at[i] = char(code);
    } else {
      char& pair = at[i / 32 * 16 + i % 16];
      pair = char(i % 32 < 16 ? (pair & 0xf0) | (code + 8) : (pair & 0x0f) | ((code + 8) << 4));
    }
  }

  DType type_;
  size_t line_;
  Guarded<char> lines_;
  Guarded<uint16_t> scales_;
};

struct Running {
  std::vector<float> largest, total, z;
};
/// Rows [row0, row0 + n) over all blocks of keys.
Running run(const KernelTable& table, const Problem& p, size_t row0, size_t n) {
  Running state{std::vector<float>(n, -kInfinity), std::vector<float>(n, 0.0f), std::vector<float>(n * p.v_dim, 0.0f)};
  Guarded<float> z(state.z), scratch(n * kKeyBlock),
      q(std::vector<float>(p.q.begin() + ptrdiff_t(row0 * p.head_dim), p.q.begin() + ptrdiff_t((row0 + n) * p.head_dim)));
  for (size_t begin = 0; begin < p.keys; begin += kKeyBlock) {
    const size_t keys = std::min(kKeyBlock, p.keys - begin);
    Guarded<float> k_t(p.head_dim * keys), v(keys * p.v_dim);  // not one value more than the block has
    for (size_t j = 0; j < keys; ++j) {
      for (size_t c = 0; c < p.head_dim; ++c) k_t[c * keys + j] = p.k[(begin + j) * p.head_dim + c];
      for (size_t c = 0; c < p.v_dim; ++c) v[j * p.v_dim + c] = p.v[(begin + j) * p.v_dim + c];
    }
    std::vector<int32_t> first, last;
    std::vector<float> slope, place;
    for (size_t r = row0; r < row0 + n; ++r) {
      slope.push_back(p.slope_of(r));
      place.push_back(float(p.last[r] - 1 - int(begin)));
      first.push_back(p.first[r] - int(begin));
      last.push_back(p.last[r] - int(begin));
    }
    std::optional<Narrow> k_narrow, v_narrow;
    if (p.k_type != DType::f32) k_narrow.emplace(p.k_type, true, p.k, p.k_scales, p.head_dim, begin, keys);
    if (p.v_type != DType::f32) v_narrow.emplace(p.v_type, false, p.v, p.v_scales, p.v_dim, begin, keys);
    table.attention({.q = q.data(),
                     .q_stride = p.head_dim,
                     .rows = n,
                     .k_t = k_t.data(),
                     .k_stride = keys,
                     .v = v.data(),
                     .v_stride = p.v_dim,
                     .k_narrow = k_narrow ? k_narrow->block() : NarrowBlock{},
                     .v_narrow = v_narrow ? v_narrow->block() : NarrowBlock{},
                     .keys = keys,
                     .head_dim = p.head_dim,
                     .v_dim = p.v_dim,
                     .scale = p.scale,
                     .softcap = p.softcap,
                     .slope = p.slope != 0 ? slope.data() : nullptr,
                     .place = place.data(),
                     .first = first.data(),
                     .last = last.data(),
                     .largest = state.largest.data(),
                     .total = state.total.data(),
                     .z = z.data(),
                     .z_stride = p.v_dim,
                     .scratch = scratch.data()});
  }
  EXPECT_TRUE(z.intact() && scratch.intact());
  state.z = z.values();
  return state;
}

void expect_softmax(const KernelTable& table, const Problem& p) {
  const std::vector<double> want = plain_attention(p);
  const Running got = run(table, p, 0, p.rows);
  for (size_t r = 0; r < p.rows; ++r) {
    if (p.first[r] == p.last[r]) {
      EXPECT_EQ(got.largest[r], -kInfinity);
      EXPECT_EQ(got.total[r], 0.0f);
      continue;
    }
    for (size_t c = 0; c < p.v_dim; ++c)
      ASSERT_NEAR(got.z[r * p.v_dim + c] / got.total[r], want[r * p.v_dim + c], 1e-5)
          << "keys " << p.keys << " head_dim " << p.head_dim << " row " << r << " " << name_of(p.k_type) << " "
          << name_of(p.v_type);
  }
}

TEST_P(AttentionTest, EqualsSoftmaxOverAllKeys) {
  uint32_t seed = 40;
  for (const size_t keys : {1, 2, 15, 16, 17, 33, 63, 64, 65, 255, 256, 257, 600})
    for (const size_t head_dim : {1, 8, 64, 80})
      for (const float softcap : {0.0f, 5.0f})
        expect_softmax(*table, problem(11, keys, head_dim, head_dim == 8 ? 70 : head_dim, softcap, seed += 10));
}

TEST_P(AttentionTest, AddsASlopeForEachKey) {
  uint32_t seed = 90;
  for (const size_t keys : {1, 15, 17, 64, 65, 300})
    for (const DType type : {DType::f32, DType::f16, DType::q8_0}) {
      Problem p = problem(11, keys, 8, 70, 0, seed += 10);
      p.slope = 0.02f;
      expect_softmax(*table, type == DType::f32 ? p : narrow(type, type, p));
    }
}

constexpr DType kNarrow[] = {DType::f16, DType::q8_0, DType::q4_0};

TEST_P(AttentionTest, NarrowKeysAndValuesAreTheNumbersTheyHold) {
  uint32_t seed = 400;
  constexpr std::pair<DType, DType> kPairs[] = {
      {DType::f16, DType::f16}, {DType::q8_0, DType::q8_0}, {DType::q4_0, DType::q4_0}, {DType::f32, DType::q8_0}};
  for (const auto& [k_type, v_type] : kPairs)
    for (const size_t keys : {1, 33, 130, 300})
      for (const size_t head_dim : {1, 8, 64, 80, 256}) {
        const Problem p = problem(15, keys, head_dim, head_dim == 8 ? 70 : head_dim, head_dim == 80 ? 5.0f : 0.0f, seed += 10);
        expect_softmax(*table, narrow(k_type, v_type, p));
      }
}

TEST_P(AttentionTest, NarrowRowsDoNotDependOnOtherRowsNorOnWhatTheyDoNotSee) {
  for (const DType type : kNarrow) {
    Problem p = narrow(type, type, problem(15, 300, 96, 160, 3.0f, 7));
    const Running all = run(*table, p, 0, p.rows);
    for (size_t n = 1; n <= 9; ++n)
      for (size_t row = 0; row + n <= p.rows; ++row) {
        const Running some = run(*table, p, row, n);
        ASSERT_TRUE(same_bits(some.z.data(), all.z.data() + row * p.v_dim, n * p.v_dim)) << name_of(type) << row << " " << n;
        ASSERT_TRUE(same_bits(some.total.data(), all.total.data() + row, n));
      }
    for (const int j : {0, 150, 299}) {
      Problem poisoned = p;
      poisoned.k[size_t(j) * p.head_dim] = poisoned.v[size_t(j) * p.v_dim + 159] = std::numeric_limits<float>::quiet_NaN();
      const Running got = run(*table, poisoned, 0, p.rows);
      for (size_t r = 0; r < p.rows; ++r) {
        if (p.first[r] <= j && j < p.last[r]) {
          EXPECT_TRUE(std::isnan(got.z[r * p.v_dim + 159]));
        } else {
          EXPECT_TRUE(same_bits(got.z.data() + r * p.v_dim, all.z.data() + r * p.v_dim, p.v_dim)) << r << " " << j;
        }
      }
    }
  }
}

TEST_P(AttentionTest, ARowsBitsDoNotDependOnOtherRows) {
  for (const size_t keys : {40, 256, 300}) {
    const Problem p = problem(13, keys, 64, 48, 3.0f, 7);
    const Running all = run(*table, p, 0, p.rows);
    for (size_t n = 1; n <= 6; ++n)
      for (size_t row = 0; row + n <= p.rows; ++row) {
        const Running some = run(*table, p, row, n);
        ASSERT_TRUE(same_bits(some.z.data(), all.z.data() + row * p.v_dim, n * p.v_dim)) << row << " " << n;
        ASSERT_TRUE(same_bits(some.total.data(), all.total.data() + row, n));
        ASSERT_TRUE(same_bits(some.largest.data(), all.largest.data() + row, n));
      }
  }
}

TEST_P(AttentionTest, WhatARowDoesNotSeeCannotReachIt) {
  Problem p = problem(9, 300, 32, 40, 0.0f, 8);
  for (size_t r = 0; r < p.rows; ++r) {
    p.first[r] = int(r);
    p.last[r] = int(290 - 3 * r);
  }
  const Running clean = run(*table, p, 0, p.rows);
  for (const int j : {0, 4, 7, 266, 280, 291, 299}) {
    Problem poisoned = p;
    for (size_t c = 0; c < p.head_dim; ++c) poisoned.k[size_t(j) * p.head_dim + c] = std::numeric_limits<float>::quiet_NaN();
    for (size_t c = 0; c < p.v_dim; ++c) poisoned.v[size_t(j) * p.v_dim + c] = std::numeric_limits<float>::quiet_NaN();
    const Running got = run(*table, poisoned, 0, p.rows);
    for (size_t r = 0; r < p.rows; ++r) {
      if (p.first[r] <= j && j < p.last[r]) {
        EXPECT_TRUE(std::isnan(got.z[r * p.v_dim])) << "a NaN that row " << r << " sees must show";
      } else {
        EXPECT_TRUE(same_bits(got.z.data() + r * p.v_dim, clean.z.data() + r * p.v_dim, p.v_dim)) << "row " << r << " key " << j;
        EXPECT_TRUE(same_bits(&got.total[r], &clean.total[r], 1));
      }
    }
  }
}

TEST_P(AttentionTest, KeysBehindTheRangeChangeNoBits) {  // a longer cache, the same window
  const Problem p = problem(6, 250, 32, 32, 0.0f, 9);
  Problem shorter = p;
  for (int& last : shorter.last) last = std::min(last, 130);
  Problem cut = shorter;
  cut.keys = 130;
  cut.k.resize(cut.keys * p.head_dim);
  cut.v.resize(cut.keys * p.v_dim);
  for (size_t r = 0; r < p.rows; ++r) shorter.first[r] = cut.first[r] = std::min(p.first[r], shorter.last[r]);
  const Running a = run(*table, shorter, 0, p.rows), b = run(*table, cut, 0, p.rows);
  EXPECT_TRUE(same_bits(a.z.data(), b.z.data(), a.z.size()));
  EXPECT_TRUE(same_bits(a.total.data(), b.total.data(), a.total.size()));
}

TEST_P(AttentionTest, OnlyMinusInfinityAddsNothing) {
  Problem p = problem(5, 20, 4, 4, 0.0f, 10);
  std::fill(p.q.begin(), p.q.end(), 1.0f);
  std::fill(p.k.begin(), p.k.end(), -kInfinity);
  std::fill(p.first.begin(), p.first.end(), 0);
  std::fill(p.last.begin(), p.last.end(), 20);
  const Running got = run(*table, p, 0, p.rows);
  for (const float t : got.total) EXPECT_EQ(t, 0.0f);
  for (const float z : got.z) EXPECT_EQ(z, 0.0f);
}

VITRINE_FOR_EVERY_TARGET(AttentionTest);

}  // namespace
}  // namespace vitrine
