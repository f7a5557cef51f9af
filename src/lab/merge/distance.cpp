#include "merge/distance.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/table.h"

namespace vitrine {
namespace {

// The sum of squared differences of one tensor.
double squared_distance(const StoredTensor& a, const MergeInput& model, const InputTensor& b) {
  const int64_t row = b.shape.empty() ? 1 : b.shape.back(), all = b.elements();
  if (all == 0) return 0;
  const int64_t size = b.made == nullptr ? int64_t{1} << 16 : std::max<int64_t>(1, (int64_t{1} << 16) / row) * row;
  std::vector<float> mine, its;
  double sum = 0;
  for (int64_t first = 0; first < all; first += size) {
    const auto n = static_cast<size_t>(std::min(size, all - first));
    mine.resize(n);
    its.resize(n);
    kernels().widen[static_cast<size_t>(a.dtype)](a.data + row_bytes(a.dtype, static_cast<size_t>(first)), n, mine.data());
    model.read(b, first, n, its.data());
    for (size_t i = 0; i < n; ++i) {
      const double d = static_cast<double>(mine[i]) - static_cast<double>(its[i]);
      sum += d * d;
    }
  }
  return sum;
}

bool has_kernels(DType dtype) { return static_cast<int>(dtype) < kWeightTypes; }

}  // namespace

std::optional<double> weight_distance(const Checkpoint& a, const MergeInput& b) {
  double sum = 0;
  for (const auto& [name, tensor] : b.tensors()) {
    if (!has_kernels(tensor.dtype)) continue;
    const StoredTensor* const mine = a.find(name);
    if (mine == nullptr || mine->shape != tensor.shape || !has_kernels(mine->dtype)) return {};
    sum += squared_distance(*mine, b, tensor);
  }
  return std::sqrt(sum);
}

}  // namespace vitrine
