#include "generate/stop.h"

#include <algorithm>

#include "base/error.h"

namespace vitrine {
namespace {

// Bytes at the end of `text` that begin a UTF-8 character and do not finish it.
size_t unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;  // inside a character: its first byte lies further back
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return length > back ? back : 0;
  }
  return 0;
}

}  // namespace

// Knuth, Morris and Pratt's automaton per stop string (SIAM J. Comput. 6(2), 1977): one step per byte and string.
StopFilter::StopFilter(std::vector<std::string> stops) {
  stops_.reserve(stops.size());
  for (std::string& text : stops) {
    if (text.empty()) throw UsageError("a stop string is empty; give at least one character");
    std::vector<size_t> border(text.size() + 1, 0);
    for (size_t i = 1, k = 0; i < text.size(); ++i) {
      while (k > 0 && text[i] != text[k]) k = border[k];
      if (text[i] == text[k]) ++k;
      border[i + 1] = k;
    }
    stops_.push_back({std::move(text), std::move(border)});
  }
}

std::string StopFilter::push(std::string_view text) {
  if (stopped_by_) return {};
  const size_t old = held_.size();
  held_ += text;
  for (size_t i = old; i < held_.size(); ++i) {
    const Stop* longest = nullptr;
    for (Stop& stop : stops_) {
      size_t& k = stop.matched;
      while (k > 0 && (k == stop.text.size() || held_[i] != stop.text[k])) k = stop.border[k];
      if (held_[i] == stop.text[k]) ++k;
      if (k == stop.text.size() && (!longest || k > longest->text.size())) longest = &stop;
    }
    if (longest) {
      stopped_by_ = &longest->text;
      std::string shown = emit(i + 1 - longest->text.size());
      held_.clear();
      return shown;
    }
  }
  size_t open = unfinished_bytes(held_);
  for (const Stop& stop : stops_) open = std::max(open, stop.matched);
  return emit(held_.size() - open);
}

std::string StopFilter::flush() {
  const size_t unfinished = unfinished_bytes(held_);
  std::string rest = emit(held_.size() - unfinished);
  if (!held_.empty()) rest += "\xEF\xBF\xBD";
  held_.clear();
  for (Stop& stop : stops_) stop.matched = 0;
  return rest;
}

std::string StopFilter::emit(size_t bytes) {
  std::string shown = held_.substr(0, bytes);
  held_.erase(0, bytes);
  return shown;
}

}  // namespace vitrine
