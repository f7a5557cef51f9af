#pragma once
#include "base/merge_sort.h"
#include "jinja/operators.h"

namespace vitrine::jinja {

/// Sorts stably by key(item), compared as Python's < does. Descending keeps equal items in their order too.
template <class T, class Key>
void sort_values(Meter& meter, std::vector<T>& items, Key key, bool descending = false) {
  meter.make(2 * items.size() * sizeof(T));
  merge_sort(items,
             [&](const T& a, const T& b) { return descending ? less(meter, key(b), key(a)) : less(meter, key(a), key(b)); });
}

}  // namespace vitrine::jinja
