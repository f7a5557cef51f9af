#pragma once
// A queue that is fair among owners: they take turns, and each one's own items keep their order.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <string>
#include <utility>

namespace vitrine {

template <class T>
class FairQueue {
 public:
  bool empty() const { return size_ == 0; }
  int64_t size() const { return size_; }
  int64_t size_of(const std::string& owner) const {
    const auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.owner == owner; });
    return line == lines_.end() ? 0 : static_cast<int64_t>(line->items.size());
  }

  /// An owner without items comes last.
  void push(const std::string& owner, T item) {
    auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return l.owner == owner; });
    if (line == lines_.end()) line = lines_.insert(lines_.end(), Line{owner, {}});
    line->items.push_back(std::move(item));
    ++size_;
  }

  /// Gives the turn to the first owner for whom may(owner). False without one.
  template <class May>
  bool turn_to(May may) {
    const auto line = std::find_if(lines_.begin(), lines_.end(), [&](const Line& l) { return may(l.owner); });
    if (line == lines_.end()) return false;
    lines_.splice(lines_.begin(), lines_, line);
    return true;
  }

  /// Whose turn it is. Not to be called when empty.
  T& front() { return lines_.front().items.front(); }
  T pop() {
    Line& line = lines_.front();
    T item = std::move(line.items.front());
    line.items.pop_front();
    --size_;
    if (line.items.empty())
      lines_.pop_front();
    else
      lines_.splice(lines_.end(), lines_, lines_.begin());
    return item;
  }

  /// Takes the first item out for which is(item).
  template <class Is>
  std::optional<T> take_if(Is is) {
    for (auto line = lines_.begin(); line != lines_.end(); ++line) {
      const auto item = std::find_if(line->items.begin(), line->items.end(), is);
      if (item == line->items.end()) continue;
      std::optional<T> taken(std::move(*item));
      line->items.erase(item);
      --size_;
      if (line->items.empty()) lines_.erase(line);
      return taken;
    }
    return {};
  }

 private:
  struct Line {
    std::string owner;
    std::deque<T> items;  // never empty
  };
  std::list<Line> lines_;  // in the order of their turns
  int64_t size_ = 0;
};

}  // namespace vitrine
