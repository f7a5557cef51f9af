#pragma once
// Stop strings in a stream of text: found wherever the token borders lie, and never shown in part.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// Passes text on and holds back only what can still become a stop string (and the bytes of an unfinished character).
/// All pushes and the flush joined are the whole text, or the text before the stop string that is complete first; of
/// several that end at the same byte the longest counts. What comes out does not depend on how the text was cut.
class StopFilter {
 public:
  /// Errors: UsageError for an empty stop string.
  explicit StopFilter(std::vector<std::string> stops);
  StopFilter(StopFilter&&) = default;
  StopFilter& operator=(StopFilter&&) = default;

  /// Takes the next piece of text and returns what is certain to be shown. After a stop string nothing more comes out.
  std::string push(std::string_view text);

  /// The end of the text: what was held back. A character that never became whole is replaced by U+FFFD.
  std::string flush();

  /// The stop string that ended the text; null if none did.
  const std::string* stopped_by() const { return stopped_by_; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> border;  // [length + 1] the longest proper prefix of text that ends its first n bytes
    size_t matched = 0;          // length of the longest prefix that ends what was read so far
  };
  std::string emit(size_t bytes);

  std::vector<Stop> stops_;
  std::string held_;
  const std::string* stopped_by_ = nullptr;
};

}  // namespace vitrine
