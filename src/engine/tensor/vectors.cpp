#include "tensor/vectors.h"

#include <algorithm>
#include <utility>

namespace vitrine {

float* Vectors::allocate(size_t count) {
  const size_t size = std::max<size_t>(count, 1);  // so that every tensor lies somewhere
  const auto same = std::find_if(spare_.begin(), spare_.end(), [&](const FloatVector& spare) { return spare.size() == size; });
  FloatVector values;
  if (same == spare_.end()) {
    values.resize(size);
  } else {
    values = std::move(*same);
    spare_.erase(same);
  }
  float* const begin = values.data();
  made_.push_back({begin, std::move(values)});
  return begin;
}

void Vectors::rewind(size_t mark) {
  while (made_.size() > mark) {
    if (!made_.back().values.empty()) spare_.push_back(std::move(made_.back().values));
    made_.pop_back();
  }
  if (mark == 0) spare_.clear();
}

bool Vectors::rewind_keeping(size_t mark, const void* p) {
  for (size_t i = made_.size(); i-- > mark;) {  // the latest: an address is used again when a listener gives up what it took
    if (made_[i].begin != p) continue;
    std::swap(made_[mark], made_[i]);
    rewind(mark + 1);
    return true;
  }
  return false;
}

bool Vectors::take(const void* p, size_t count, FloatVector& values) {
  for (size_t i = made_.size(); i-- > 0;) {
    if (made_[i].begin != p) continue;
    if (made_[i].values.size() != count) return false;
    values = std::move(made_[i].values);
    made_[i].values.clear();
    return true;
  }
  return false;
}

}  // namespace vitrine
