#pragma once
// A stable sort that is safe with any comparison, even one that contradicts itself (NaN) or throws: it only ever looks at
// elements that are there.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace vitrine {

/// Sorts so that before(b, a) holds for no neighbors a, b; elements that are equal under it keep their order.
template <class T, class Before>
void merge_sort(std::vector<T>& items, const Before& before) {
  std::vector<T> from = items;
  for (size_t width = 1; width < items.size(); width *= 2) {
    std::vector<T> to;
    to.reserve(items.size());
    for (size_t begin = 0; begin < from.size(); begin += 2 * width) {
      size_t a = begin, b = std::min(begin + width, from.size());
      const size_t a_end = b, b_end = std::min(begin + 2 * width, from.size());
      while (a < a_end || b < b_end) {
        const bool second = a == a_end || (b < b_end && before(from[b], from[a]));
        to.push_back(std::move(from[second ? b++ : a++]));
      }
    }
    from = std::move(to);
  }
  items = std::move(from);
}

}  // namespace vitrine
