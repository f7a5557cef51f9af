#include "inspect/stream_distance.h"

#include <cmath>

namespace vitrine {

// 1 - cosine as |x/|x| - y/|y||² / 2, which is 0 for equal rows.
double cosine_distance(std::span<const float> a, std::span<const float> b) {
  double aa = 0, bb = 0, apart = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  if (aa == 0 || bb == 0) return aa == bb ? 0 : 1;
  const double scale_a = 1 / std::sqrt(aa), scale_b = 1 / std::sqrt(bb);
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) * scale_a - static_cast<double>(b[i]) * scale_b;
    apart += difference * difference;
  }
  return apart / 2;
}

void StreamDistance::add(std::span<const float> a, std::span<const float> b, int64_t at) {
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    size_ += x * x;
    apart_ += (y - x) * (y - x);
  }
  const double distance = cosine_distance(a, b);
  distances_ += distance;
  ++rows_;
  if (distance <= largest_) return;
  largest_ = distance;
  largest_at_ = at;
}

void StreamDistance::add(const StreamDistance& rows) {
  apart_ += rows.apart_;
  size_ += rows.size_;
  distances_ += rows.distances_;
  rows_ += rows.rows_;
  if (rows.largest_ <= largest_) return;
  largest_ = rows.largest_;
  largest_at_ = rows.largest_at_;
}

double StreamDistance::cosine() const { return rows_ > 0 ? 1 - distances_ / static_cast<double>(rows_) : 1; }

double StreamDistance::relative() const { return size_ > 0 ? std::sqrt(apart_ / size_) : std::sqrt(apart_); }

}  // namespace vitrine
