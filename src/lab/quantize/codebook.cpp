// Blocks of 256 values whose vectors come from a codebook: IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S.
#include <vector>

#include "base/blocks/all.h"
#include "quantize/encoders.h"
#include "quantize/search.h"

namespace vitrine {
namespace {

// The vectors of a codebook near any point: a point is rounded to the grid of all magnitudes, and each point of the grid has a
// list of the vectors that lie nearest to it.
template <int kCount, int kWidth, int kMagnitudes>
class NearVectors {
 public:
  static constexpr int kNear = 16;

  explicit NearVectors(const Codebook<kCount, kWidth>& book) : book_(book) {
    std::vector<bool> seen(256);
    for (const auto& vector : book.vectors)
      for (const int8_t v : vector) seen[static_cast<uint8_t>(v)] = true;
    for (int v = -128; v < 128; ++v)
      if (seen[static_cast<uint8_t>(v)] && found_ < kMagnitudes) magnitudes_[found_++] = static_cast<float>(v);
    size_t points = 1;
    for (int i = 0; i < kWidth; ++i) points *= kMagnitudes;
    lists_.resize(points * kNear);
    std::vector<std::pair<float, uint16_t>> order(kCount);
    for (size_t point = 0; point < points; ++point) {
      float at[kWidth];
      size_t rest = point;
      for (int i = 0; i < kWidth; ++i, rest /= kMagnitudes) at[i] = magnitudes_[rest % kMagnitudes];
      for (int v = 0; v < kCount; ++v) {
        float distance = 0;
        for (int i = 0; i < kWidth; ++i) {
          const float off = at[i] - static_cast<float>(book.vectors[v][i]);
          distance += off * off;
        }
        order[static_cast<size_t>(v)] = {distance, static_cast<uint16_t>(v)};
      }
      std::partial_sort(order.begin(), order.begin() + kNear, order.end());
      for (int n = 0; n < kNear; ++n) lists_[point * kNear + static_cast<size_t>(n)] = order[static_cast<size_t>(n)].second;
    }
  }

  // The vector with the least weighted squared distance from t among those near it.
  uint16_t nearest(const float* t, const float* w) const {
    size_t point = 0, power = 1;
    for (int i = 0; i < kWidth; ++i, power *= kMagnitudes) {
      size_t level = 0;
      for (int m = 0; m + 1 < kMagnitudes; ++m) level += t[i] > (magnitudes_[m] + magnitudes_[m + 1]) / 2;
      point += level * power;
    }
    uint16_t best = 0;
    float best_error = std::numeric_limits<float>::infinity();
    for (int n = 0; n < kNear; ++n) {
      const uint16_t v = lists_[point * kNear + static_cast<size_t>(n)];
      float error = 0;
      for (int i = 0; i < kWidth; ++i) {
        const float off = t[i] - static_cast<float>(book_.vectors[v][i]);
        error += w[i] * off * off;
      }
      if (error < best_error) best_error = error, best = v;
    }
    return best;
  }
  float value(uint16_t vector, int i) const { return static_cast<float>(book_.vectors[vector][i]); }
  float smallest() const { return magnitudes_[0]; }
  float largest() const { return magnitudes_[kMagnitudes - 1]; }

 private:
  const Codebook<kCount, kWidth>& book_;
  float magnitudes_[kMagnitudes] = {};
  int found_ = 0;
  std::vector<uint16_t> lists_;
};

enum class Signs { free, even };

// A vector of magnitudes with signs for each kWidth values; signs are chosen for eight at a time.
template <int kCount, int kWidth, int kMagnitudes, Signs kSigns>
class SignedVectors {
 public:
  static constexpr int kPer = kWidth, kChoices = 1;
  explicit SignedVectors(const Codebook<kCount, kWidth>& book) : near_(book) {}

  struct Eight {
    uint16_t vector[8 / kWidth];
    uint8_t signs;
  };
  // The best eight values v for x = scale v. `v` takes them.
  Eight choose(const float* x, const float* w, float inverse, int, float* v) const {
    float t[8];
    Eight chosen = {};
    int cheapest = 0;
    for (int i = 0; i < 8; ++i) {
      t[i] = std::abs(x[i]) * inverse;
      if (x[i] < 0) chosen.signs |= static_cast<uint8_t>(1 << i);
      if (w[i] * t[i] * t[i] < w[cheapest] * t[cheapest] * t[cheapest]) cheapest = i;
    }
    if (kSigns == Signs::even && __builtin_parity(chosen.signs) != 0) {
      chosen.signs ^= static_cast<uint8_t>(1 << cheapest);
      t[cheapest] = -t[cheapest];
    }
    for (int part = 0; part < 8 / kWidth; ++part) {
      const int first = part * kWidth;
      const uint16_t vector = chosen.vector[part] = near_.nearest(t + first, w + first);
      for (int i = first; i < first + kWidth; ++i)
        v[i] = (chosen.signs >> i & 1) != 0 ? -near_.value(vector, i - first) : near_.value(vector, i - first);
    }
    return chosen;
  }
  float smallest() const { return near_.smallest(); }
  float largest() const { return near_.largest(); }

 private:
  NearVectors<kCount, kWidth, kMagnitudes> near_;
};

// A vector of -1, 0 and 1 for each eight values, shifted by an eighth up (choice 0) or down (1).
class ShiftedVectors {
 public:
  static constexpr int kChoices = 2;
  ShiftedVectors() : near_(kIq1Vectors) {}
  struct Eight {
    uint16_t vector[1];
    bool down;
  };
  Eight choose(const float* x, const float* w, float inverse, int choice, float* v) const {
    const float shift = choice == 0 ? 0.125f : -0.125f;
    float t[8];
    for (int i = 0; i < 8; ++i) t[i] = x[i] * inverse - shift;
    const uint16_t vector = near_.nearest(t, w);
    for (int i = 0; i < 8; ++i) v[i] = near_.value(vector, i) + shift;
    return {{vector}, choice == 1};
  }
  float smallest() const { return 0.875f; }
  float largest() const { return 1.125f; }

 private:
  NearVectors<2048, 8, 3> near_;
};

// y = (unit (2 s + 1)) v: s in 0..kMost for each kSize values. A choice (the shift) is made for each kSize values, or, with
// kChoiceForEight, for each eight.
template <class Vectors, int kSize, int kMost, bool kChoiceForEight>
struct CodebookGroups {
  static constexpr int kGroups = 256 / kSize, kEights = kSize / 8, kRounds = 2;
  float unit = 0;
  int s[kGroups] = {};
  typename Vectors::Eight eight[32] = {};

  // `stored`: what the file makes of a unit.
  template <class Stored>
  CodebookGroups(const Vectors& vectors, const float* x, const float* w, Stored stored) {
    float own[kGroups], most = 0;
    for (int g = 0; g < kGroups; ++g) most = std::max(most, own[g] = own_scale(vectors, x + g * kSize, w + g * kSize));
    unit = stored(most / (2 * kMost + 1));
    for (int g = 0; g < kGroups; ++g) s[g] = clamp(int(whole((own[g] * inverse_of(unit) - 1) / 2)));
    float best_error = std::numeric_limits<float>::infinity(), v[256];
    CodebookGroups best = *this;
    for (int round = 0; round < kRounds; ++round) {
      float error = 0;
      for (int g = 0; g < kGroups; ++g) {
        float least = std::numeric_limits<float>::infinity();
        const int middle = s[g];
        for (const int off : {0, -1, 1}) {
          Group tried;
          const int multiple = clamp(middle + off);
          if (off != 0 && multiple == middle) continue;
          tried.fit(vectors, x + g * kSize, w + g * kSize, unit * float(2 * multiple + 1));
          if (!(tried.error < least)) continue;
          least = tried.error;
          s[g] = multiple;
          std::copy(tried.eight, tried.eight + kEights, eight + g * kEights);
          std::copy(tried.v, tried.v + kSize, v + g * kSize);
        }
        error += least;
      }
      if (!(error < best_error)) break;
      best = *this;
      best_error = error;
      double aa = 0, ax = 0;
      for (int i = 0; i < 256; ++i) {
        const double a = double(2 * s[i / kSize] + 1) * double(v[i]);
        aa += double(w[i]) * a * a;
        ax += double(w[i]) * a * double(x[i]);
      }
      if (!(aa > 0) || !(ax > 0)) break;
      unit = stored(float(ax / aa));
    }
    *this = best;
  }

 private:
  struct Group {
    typename Vectors::Eight eight[kEights];
    float v[kSize], error, products, squares;

    void fit(const Vectors& vectors, const float* x, const float* w, float scale) {
      error = std::numeric_limits<float>::infinity();
      if constexpr (kChoiceForEight || Vectors::kChoices == 1) {
        error = 0;
        for (int e = 0; e < kEights; ++e) {
          float least = std::numeric_limits<float>::infinity();
          for (int choice = 0; choice < Vectors::kChoices; ++choice) {
            float tried[8];
            const auto chosen = vectors.choose(x + e * 8, w + e * 8, inverse_of(scale), choice, tried);
            const float off = error_of(x + e * 8, w + e * 8, scale, tried, 8);
            if (!(off < least)) continue;
            least = off;
            eight[e] = chosen;
            std::copy(tried, tried + 8, v + e * 8);
          }
          error += least;
        }
      } else {
        for (int choice = 0; choice < Vectors::kChoices; ++choice) {
          typename Vectors::Eight chosen[kEights];
          float tried[kSize];
          for (int e = 0; e < kEights; ++e)
            chosen[e] = vectors.choose(x + e * 8, w + e * 8, inverse_of(scale), choice, tried + e * 8);
          const float off = error_of(x, w, scale, tried, kSize);
          if (!(off < error)) continue;
          error = off;
          std::copy(chosen, chosen + kEights, eight);
          std::copy(tried, tried + kSize, v);
        }
      }
      products = squares = 0;
      for (int i = 0; i < kSize; ++i) {
        products += w[i] * v[i] * x[i];
        squares += w[i] * v[i] * v[i];
      }
    }
    static float error_of(const float* x, const float* w, float scale, const float* v, int n) {
      float error = 0;
      for (int i = 0; i < n; ++i) error += w[i] * (scale * v[i] - x[i]) * (scale * v[i] - x[i]);
      return error;
    }
  };

  static int clamp(int multiple) { return std::clamp(multiple, 0, kMost); }

  static float own_scale(const Vectors& vectors, const float* x, const float* w) {
    const float extreme = std::abs(extreme_of(x, kSize));
    if (extreme < kSmallest) return 0;
    float best = 0, best_gain = 0;
    // The largest value on the largest magnitude or near it; last, for values of one size, on the smallest.
    for (const float part : {0.45f, 0.54f, 0.63f, 0.72f, 0.81f, 0.9f, 1.0f, 1.1f, vectors.largest() / vectors.smallest()}) {
      Group group;
      group.fit(vectors, x, w, extreme / vectors.largest() * part);
      if (group.squares <= 0 || group.products <= 0) continue;
      const float gain = group.products * group.products / group.squares;
      if (gain > best_gain) best_gain = gain, best = group.products / group.squares;
    }
    return best;
  }
};

template <int kDivisor>
float f16_times(float unit) {  // the file holds kDivisor units as f16
  return as_f16(unit * kDivisor) / kDivisor;
}

uint32_t seven_signs(uint8_t signs) { return signs & 127u; }

}  // namespace

void encode_iq2_xxs(const float* x, const float* w, uint8_t* block) {
  using Vectors = SignedVectors<256, 8, 3, Signs::even>;
  static const Vectors kVectors(kIq2xxsVectors);
  const CodebookGroups<Vectors, 32, 15, true> fit(kVectors, x, w, f16_times<8>);
  store_f16(fit.unit * 8, block);
  for (int g = 0; g < 8; ++g) {
    uint32_t rest = static_cast<uint32_t>(fit.s[g]) << 28;
    for (int e = 0; e < 4; ++e) {
      block[2 + g * 8 + e] = static_cast<uint8_t>(fit.eight[g * 4 + e].vector[0]);
      rest |= seven_signs(fit.eight[g * 4 + e].signs) << (7 * e);
    }
    std::memcpy(block + 2 + g * 8 + 4, &rest, 4);
  }
}

void encode_iq2_xs(const float* x, const float* w, uint8_t* block) {
  using Vectors = SignedVectors<512, 8, 3, Signs::even>;
  static const Vectors kVectors(kIq2xsVectors);
  const CodebookGroups<Vectors, 16, 15, true> fit(kVectors, x, w, f16_times<8>);
  store_f16(fit.unit * 8, block);
  for (int e = 0; e < 32; ++e) {
    const auto q = static_cast<uint16_t>(fit.eight[e].vector[0] | seven_signs(fit.eight[e].signs) << 9);
    std::memcpy(block + 2 + e * 2, &q, 2);
  }
  for (int g = 0; g < 8; ++g) block[66 + g] = static_cast<uint8_t>(fit.s[2 * g] | fit.s[2 * g + 1] << 4);
}

void encode_iq2_s(const float* x, const float* w, uint8_t* block) {
  using Vectors = SignedVectors<1024, 8, 3, Signs::free>;
  static const Vectors kVectors(kIq2sVectors);
  const CodebookGroups<Vectors, 16, 15, true> fit(kVectors, x, w, f16_times<8>);
  store_f16(fit.unit * 8, block);
  std::fill(block + 66, block + 74, uint8_t{0});
  for (int e = 0; e < 32; ++e) {
    block[2 + e] = static_cast<uint8_t>(fit.eight[e].vector[0]);
    block[34 + e] = fit.eight[e].signs;
    block[66 + e / 4] |= static_cast<uint8_t>((fit.eight[e].vector[0] >> 8) << (e % 4 * 2));
  }
  for (int g = 0; g < 8; ++g) block[74 + g] = static_cast<uint8_t>(fit.s[2 * g] | fit.s[2 * g + 1] << 4);
}

void encode_iq3_xxs(const float* x, const float* w, uint8_t* block) {
  using Vectors = SignedVectors<256, 4, 8, Signs::even>;
  static const Vectors kVectors(kIq3xxsVectors);
  const CodebookGroups<Vectors, 32, 15, true> fit(kVectors, x, w, f16_times<4>);
  store_f16(fit.unit * 4, block);
  for (int g = 0; g < 8; ++g) {
    uint32_t rest = static_cast<uint32_t>(fit.s[g]) << 28;
    for (int e = 0; e < 4; ++e) {
      const auto& eight = fit.eight[g * 4 + e];
      block[2 + g * 8 + e * 2] = static_cast<uint8_t>(eight.vector[0]);
      block[2 + g * 8 + e * 2 + 1] = static_cast<uint8_t>(eight.vector[1]);
      rest |= seven_signs(eight.signs) << (7 * e);
    }
    std::memcpy(block + 66 + g * 4, &rest, 4);
  }
}

void encode_iq3_s(const float* x, const float* w, uint8_t* block) {
  using Vectors = SignedVectors<512, 4, 8, Signs::free>;
  static const Vectors kVectors(kIq3sVectors);
  const CodebookGroups<Vectors, 32, 15, true> fit(kVectors, x, w, f16_times<1>);
  store_f16(fit.unit, block);
  std::fill(block + 66, block + 74, uint8_t{0});
  for (int v = 0; v < 64; ++v) {
    const uint16_t vector = fit.eight[v / 2].vector[v % 2];
    block[2 + v] = static_cast<uint8_t>(vector);
    block[66 + v / 8] |= static_cast<uint8_t>((vector >> 8) << (v % 8));
    block[74 + v / 2] = fit.eight[v / 2].signs;
  }
  for (int g = 0; g < 4; ++g) block[106 + g] = static_cast<uint8_t>(fit.s[2 * g] | fit.s[2 * g + 1] << 4);
}

void encode_iq1_s(const float* x, const float* w, uint8_t* block) {
  static const ShiftedVectors kVectors;
  const CodebookGroups<ShiftedVectors, 32, 7, false> fit(kVectors, x, w, f16_times<1>);
  store_f16(fit.unit, block);
  for (int g = 0; g < 8; ++g) {
    auto rest = static_cast<uint16_t>(fit.s[g] << 12 | (fit.eight[g * 4].down ? 0x8000 : 0));
    for (int e = 0; e < 4; ++e) {
      const uint16_t vector = fit.eight[g * 4 + e].vector[0];
      block[2 + g * 4 + e] = static_cast<uint8_t>(vector);
      rest = static_cast<uint16_t>(rest | (vector >> 8) << (3 * e));
    }
    std::memcpy(block + 34 + g * 2, &rest, 2);
  }
}

void encode_iq1_m(const float* x, const float* w, uint8_t* block) {
  static const ShiftedVectors kVectors;
  const CodebookGroups<ShiftedVectors, 16, 7, true> fit(kVectors, x, w, f16_times<1>);
  std::fill(block + 32, block + 56, uint8_t{0});
  for (int e = 0; e < 32; ++e) {
    block[e] = static_cast<uint8_t>(fit.eight[e].vector[0]);
    block[32 + e / 2] |= static_cast<uint8_t>((fit.eight[e].vector[0] >> 8 | (fit.eight[e].down ? 8 : 0)) << (e % 2 * 4));
  }
  const uint16_t half = f32_to_f16(fit.unit);
  for (int n = 0; n < 4; ++n) {
    auto scales = static_cast<uint16_t>((half >> (4 * n) & 15) << 12);
    for (int g = 0; g < 4; ++g) scales = static_cast<uint16_t>(scales | fit.s[n * 4 + g] << (3 * g));
    std::memcpy(block + 48 + n * 2, &scales, 2);
  }
}

}  // namespace vitrine
