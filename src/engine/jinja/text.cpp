#include "jinja/text.h"

#include <algorithm>

namespace vitrine::jinja {

Text::Text(std::string bytes, bool from_input) : bytes_(std::move(bytes)) {
  if (from_input) mark(0, bytes_.size());
}

Text Text::as_markup(bool markup) const {
  Text copy = *this;
  copy.markup_ = markup;
  return copy;
}

void Text::append(const Text& text) { append(text, 0, text.size()); }

void Text::append(const Text& text, size_t begin, size_t end) {
  const size_t at = bytes_.size();
  bytes_.append(text.bytes_, begin, end - begin);
  const auto after = [](size_t position, const TextSpan& span) { return position < span.end; };
  for (auto span = std::upper_bound(text.input_.begin(), text.input_.end(), begin, after);
       span != text.input_.end() && span->begin < end; ++span)
    mark(at + std::max(span->begin, begin) - begin, at + std::min(span->end, end) - begin);
}

Text Text::slice(size_t begin, size_t end) const {
  Text part;
  part.append(*this, begin, end);
  part.markup_ = markup_;
  return part;
}

Text Text::respelled(std::string bytes) const {
  Text text(std::move(bytes), any_input());
  text.markup_ = markup_;
  return text;
}

void Text::append_respelled(const Text& source, std::string_view bytes) {
  const size_t at = bytes_.size();
  bytes_ += bytes;
  if (source.any_input()) mark(at, bytes_.size());
}

void Text::mark(size_t begin, size_t end) {
  if (begin == end) return;
  if (!input_.empty() && input_.back().end == begin)
    input_.back().end = end;
  else
    input_.push_back({begin, end});
}

}  // namespace vitrine::jinja
