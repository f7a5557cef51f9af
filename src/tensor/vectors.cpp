#include "tensor/vectors.h"

#include <algorithm>
#include <utility>

namespace vitrine {

float* Vectors::allocate(size_t count) {
  const size_t size = std::max<size_t>(count, 1);  // so that every tensor lies somewhere
  const auto same = std::find_if(spare_.begin(), spare_.end(), [&](const Numbers& spare) { return spare.size() == size; });
  Numbers numbers;
  if (same == spare_.end()) {
    numbers.resize(size);
  } else {
    numbers = std::move(*same);
    spare_.erase(same);
  }
  float* const begin = numbers.data();
  made_.push_back({begin, std::move(numbers)});
  return begin;
}

void Vectors::rewind(size_t mark) {
  while (made_.size() > mark) {
    if (!made_.back().numbers.empty()) spare_.push_back(std::move(made_.back().numbers));
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

bool Vectors::take(const void* p, size_t count, Numbers& numbers) {
  for (size_t i = made_.size(); i-- > 0;) {
    if (made_[i].begin != p) continue;
    if (made_[i].numbers.size() != count) return false;
    numbers = std::move(made_[i].numbers);
    made_[i].numbers.clear();
    return true;
  }
  return false;
}

}  // namespace vitrine
