#pragma once
#include "jinja/meter.h"
#include "jinja/text.h"

namespace vitrine::jinja {

/// `text` with & < > ' " as HTML entities, marked as markup. Markup comes back as it is.
inline Text escape_html(Meter& meter, const Text& text) {
  if (text.markup()) return text;
  meter.make_string(6 * text.size());
  Text escaped;
  size_t begin = 0;
  const auto flush = [&](size_t end) {
    escaped.append(text, begin, end);
    begin = end + 1;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char* entity = nullptr;
    switch (text.bytes()[i]) {
      case '&': entity = "&amp;"; break;
      case '<': entity = "&lt;"; break;
      case '>': entity = "&gt;"; break;
      case '\'': entity = "&#39;"; break;
      case '"': entity = "&#34;"; break;
      default: continue;
    }
    flush(i);
    escaped.append(entity);
  }
  flush(text.size());
  return escaped.as_markup(true);
}

}  // namespace vitrine::jinja
