#pragma once
// A string that remembers which of its bytes came from the conversation. Control tokens are control tokens only where the
// template wrote them: what a user typed stays text, whatever it spells (see generate/chat.h).
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// The bytes [begin, end) of a text.
struct TextSpan {
  size_t begin, end;
  bool operator==(const TextSpan&) const = default;
};

namespace jinja {

using vitrine::TextSpan;

class Text {
 public:
  Text() = default;
  explicit Text(std::string bytes, bool from_input = false);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  /// The parts that came from the conversation: rising, not empty, never touching.
  const std::vector<TextSpan>& input() const { return input_; }
  bool any_input() const { return !input_.empty(); }
  /// Jinja's Markup: already escaped for HTML.
  bool markup() const { return markup_; }
  Text as_markup(bool markup) const;

  void append(std::string_view template_bytes) { bytes_ += template_bytes; }
  void append(const Text& text);
  void append(const Text& text, size_t begin, size_t end);  // bytes of text
  Text slice(size_t begin, size_t end) const;
  /// Another spelling of this text (upper case, reversed): where parts cannot be followed, all of it counts as input if
  /// any of this did.
  Text respelled(std::string bytes) const;
  /// Appends another spelling of `source`.
  void append_respelled(const Text& source, std::string_view bytes);

 private:
  void mark(size_t begin, size_t end);

  std::string bytes_;
  std::vector<TextSpan> input_;
  bool markup_ = false;
};

}  // namespace jinja
}  // namespace vitrine
