#pragma once
// What the kernel tests share: arrays that end at a forbidden page, random values, stored weights of every type, and
// the list of targets.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "kernels/table.h"

namespace vitrine {

/// n values that end where the next page may not be touched, with guard bytes before them: a read or write behind the
/// last value ends the test program, a write before the first is seen by intact(). Not aligned beyond T.
template <class T>
class Guarded {
 public:
  explicit Guarded(size_t n) : size_(n) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    const size_t used = (n * sizeof(T) + kGuard + page - 1) / page * page;
    bytes_ = used + page;
    base_ = static_cast<char*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_ + used, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<T*>(base_ + used - n * sizeof(T));
    std::memset(guard(), kPattern, kGuard);
  }
  explicit Guarded(const std::vector<T>& values) : Guarded(values.size()) { std::copy(values.begin(), values.end(), data_); }
  ~Guarded() { munmap(base_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  std::vector<T> values() const { return std::vector<T>(data_, data_ + size_); }
  bool intact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (reinterpret_cast<const unsigned char*>(data_)[-1 - ptrdiff_t(i)] != kPattern) return false;
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr unsigned char kPattern = 0xa5;
  char* guard() { return reinterpret_cast<char*>(data_) - kGuard; }

  size_t size_, bytes_;
  char* base_;
  T* data_;
};

inline std::vector<float> random_values(size_t n, uint32_t seed, float spread = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}
inline std::vector<double> as_double(const float* x, size_t n) { return std::vector<double>(x, x + n); }
inline std::vector<double> as_double(const std::vector<float>& x) { return std::vector<double>(x.begin(), x.end()); }

#define VITRINE_TYPE(name, elements, bytes, number) , DType::name
inline constexpr DType kAllWeightTypes[] = {
    DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_0 VITRINE_DECODED_TYPES(VITRINE_TYPE), DType::f8_e4m3};
#undef VITRINE_TYPE
inline constexpr DType kFloatTypes[] = {DType::f32, DType::f16, DType::bf16};

/// Where the f16 scales of a block lie.
inline std::vector<size_t> scale_places(DType type) {
  switch (type) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k: return {0, 2};
    case DType::q2_k: return {80, 82};
    case DType::q3_k: return {108};
    case DType::q6_k: return {208};
    case DType::tq1_0: return {52};
    case DType::tq2_0: return {64};
    case DType::iq1_m:               // four bits in each of four places
    case DType::mxfp4:               // a power of two in byte 0
    case DType::f8_e4m3: return {};  // an f32
    default: return {0};
  }
}

/// Random stored weights, [rows, k], of any type; every bit pattern of the block formats' integers occurs.
inline std::vector<char> random_weights(DType type, size_t rows, size_t k, uint32_t seed) {
  std::vector<char> bytes(rows * row_bytes(type, k));
  std::mt19937 random(seed);
  if (is_block(type)) {
    for (char& b : bytes) b = static_cast<char>(random());
    const size_t block = block_bytes(type);
    for (size_t at = 0; at + block <= bytes.size(); at += block) {
      for (const size_t place : scale_places(type)) {
        const uint16_t scale = f32_to_f16(0.01f * (1.0f + float(random() % 100) / 100.0f) * (random() % 2 ? 1.0f : -1.0f));
        std::memcpy(&bytes[at + place], &scale, 2);
      }
      if (type == DType::iq1_m) {
        const uint16_t scale = f32_to_f16(0.01f * (1.0f + float(random() % 100) / 100.0f));
        for (size_t n = 0; n < 4; ++n) {
          char& byte = bytes[at + 49 + 2 * n];
          byte = static_cast<char>((byte & 15) | (scale >> (4 * n) & 15) << 4);
        }
      }
      if (type == DType::f8_e4m3) {
        const float scale = 0.01f * (1.0f + float(random() % 100) / 100.0f);
        std::memcpy(&bytes[at], &scale, 4);
      }
      if (type == DType::mxfp4) bytes[at] = static_cast<char>(120 + random() % 4);
    }
    return bytes;
  }
  const std::vector<float> values = random_values(rows * k, seed);
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == DType::f32) {
      std::memcpy(&bytes[4 * i], &values[i], 4);
    } else {
      const uint16_t half = type == DType::f16 ? f32_to_f16(values[i]) : f32_to_bf16(values[i]);
      std::memcpy(&bytes[2 * i], &half, 2);
    }
  }
  return bytes;
}

/// One stored row as f32. A block is decoded once.
inline std::vector<float> row_values(DType type, const char* row, size_t k) {
  std::vector<float> values(k);
  if (is_decoded(type)) {
    for (size_t i = 0; i < k; i += block_elements(type)) decode_block(type, row + row_bytes(type, i), &values[i]);
  } else {
    for (size_t i = 0; i < k; ++i) values[i] = element_at(type, row, i);
  }
  return values;
}

/// |got - want| <= tolerance, where a NaN is only equal to a NaN and infinities to themselves.
inline bool close(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return got == want;
  return std::fabs(got - want) <= tolerance;
}
inline bool same_bits(const float* a, const float* b, size_t n) { return n == 0 || std::memcmp(a, b, n * sizeof(float)) == 0; }

/// Rounding allowed for a sum of n products whose absolute values add up to `magnitude`.
inline double sum_tolerance(size_t n, double magnitude) {
  return (8 + std::sqrt(double(n))) * double(std::numeric_limits<float>::epsilon()) * magnitude + 1e-37;
}

/// Lengths that meet every tail of every vector width, and two long ones.
inline std::vector<size_t> lengths() {
  std::vector<size_t> all;
  for (size_t n = 0; n <= 33; ++n) all.push_back(n);
  for (const size_t n : {47, 63, 64, 65, 127, 128, 129, 255, 2304}) all.push_back(n);
  return all;
}

/// The derivative of an activation far from 0, to the last bit of f64.
inline double far_slope(Activation f, double x) {
  switch (f) {
    case Activation::none: return 1;
    case Activation::sigmoid:
    case Activation::tanh: return 0;
    case Activation::relu_squared: return x > 0 ? 2 * x : 0;
    default: return x > 0 ? 1 : 0;
  }
}

/// Runs once per target; a target that this CPU or this build lacks is reported as skipped.
class EveryTarget : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    table = kernels_for(GetParam());
    if (table == nullptr) GTEST_SKIP() << "target " << GetParam() << ": this CPU or this build lacks it";
  }
  const KernelTable* table = nullptr;
};
inline std::string target_name(const testing::TestParamInfo<std::string_view>& info) { return std::string(info.param); }

/// The targets of this processor family; tests of others would only be skipped.
inline std::vector<std::string_view> targets_of_this_family() {
#ifdef VITRINE_ARM
  constexpr bool kArm = true;
#else
  constexpr bool kArm = false;
#endif
  std::vector<std::string_view> targets;
  for (const std::string_view target : kTargets)
    if (target == "reference" || target.starts_with("neon") == kArm) targets.push_back(target);
  return targets;
}
#define VITRINE_FOR_EVERY_TARGET(suite) \
  INSTANTIATE_TEST_SUITE_P(Targets, suite, testing::ValuesIn(targets_of_this_family()), target_name)

}  // namespace vitrine
