#pragma once
// Large JSON as text: vocabularies need no tree.
#include <string>
#include <string_view>

#include "base/json.h"

namespace vitrine {

/// `text`, which is UTF-8, in quotes.
inline std::string json_text(std::string_view text) { return Json(text).dump(); }

/// A list, one element a line: `indent` spaces, joined by commas.
class JsonList {
 public:
  explicit JsonList(std::string& out, int indent) : out_(out), indent_(size_t(indent)) {}
  void add(std::string_view element) {
    out_ += empty_ ? "\n" : ",\n";
    out_.append(indent_, ' ') += element;
    empty_ = false;
  }
  void close(std::string_view bracket) {
    if (!empty_) out_.append("\n").append(indent_ - 2, ' ');
    out_ += bracket;
  }

 private:
  std::string& out_;
  size_t indent_;
  bool empty_ = true;
};

}  // namespace vitrine
