#pragma once
// A text that is rewritten step by step and remembers which bytes of the user's text each of its bytes came from.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

struct ByteRange {
  uint32_t begin, end;
};

/// Thrown where a text grows beyond its limit.
struct TextTooLong {};

class TrackedText {
 public:
  /// `tracked` false: ranges are not kept, and range() gives places in this text.
  explicit TrackedText(bool tracked = false) : tracked_(tracked) {}
  TrackedText(std::string text, bool tracked) : text_(std::move(text)), tracked_(tracked), identity_(true) {}

  const std::string& text() const { return text_; }
  std::string_view view(size_t begin, size_t end) const { return std::string_view(text_).substr(begin, end - begin); }
  size_t size() const { return text_.size(); }
  bool tracked() const { return tracked_; }

  /// The bytes of the user's text behind [begin, end) of this one.
  ByteRange range(size_t begin, size_t end) const {
    if (!tracked_ || identity_) return {uint32_t(begin), uint32_t(end)};
    if (begin < end) return {from_[begin].begin, from_[end - 1].end};
    const uint32_t at = begin < from_.size() ? from_[begin].begin : from_.empty() ? 0 : from_.back().end;
    return {at, at};
  }
  /// The most bytes that it, and what is made of it by empty_like, may have. Errors: TextTooLong from append.
  void limit(size_t bytes) { limit_ = bytes; }
  /// An empty text of the same kind, to be filled by append.
  TrackedText empty_like() const {
    TrackedText out(tracked_);
    out.limit_ = limit_;
    return out;
  }
  void reserve(size_t bytes) {
    text_.reserve(bytes);
    if (tracked_) from_.reserve(bytes);
  }
  /// Appends [begin, end) of `other`.
  void append(const TrackedText& other, size_t begin, size_t end) {
    check(end - begin);
    text_.append(other.text_, begin, end - begin);
    if (!tracked_) return;
    if (other.identity_) {
      for (size_t i = begin; i < end; ++i) from_.push_back({uint32_t(i), uint32_t(i) + 1});
    } else {
      from_.insert(from_.end(), other.from_.begin() + long(begin), other.from_.begin() + long(end));
    }
  }
  /// Appends bytes that all stand for `from`.
  void append(std::string_view bytes, ByteRange from) {
    check(bytes.size());
    text_ += bytes;
    if (tracked_) from_.insert(from_.end(), bytes.size(), from);
  }

 private:
  void check(size_t more) const {
    if (more > limit_ - text_.size()) throw TextTooLong();
  }
  std::string text_;
  std::vector<ByteRange> from_;
  size_t limit_ = SIZE_MAX;
  bool tracked_ = false, identity_ = false;
};

/// A part of a text on its way to the model: [begin, end) of it, and its token where that is already known.
struct Chunk {
  uint32_t begin, end;
  int32_t id = -1;
};

struct Chunks {
  TrackedText text;
  std::vector<Chunk> list;  // in order, not overlapping; what they leave out has been removed
};

}  // namespace vitrine
