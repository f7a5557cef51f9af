#include "tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>

#include "base/utf8.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/gpt2_words.h"
#include "tokenizer/unicode.h"

namespace vitrine {
namespace {

constexpr std::string_view kPreTokenizers =
    "Sequence, ByteLevel, Split, Metaspace, Digits, Whitespace, WhitespaceSplit, Punctuation, BertPreTokenizer, "
    "CharDelimiterSplit, FixedLength";

struct Span {
  size_t begin, end;
  bool match;
};

enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior parse_behavior(const Component& c, const std::string& name) {
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  if (name == "Contiguous") return Behavior::contiguous;
  c.fail("behavior is \"" + name + "\"; expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// What is kept of spans that cover a chunk, in order. Every delimiter joins its neighbor at most once: of two delimiters
// in a row, the second stands alone.
void arrange(std::vector<Span>& spans, Behavior behavior) {
  std::vector<Span> out;
  const auto join = [&](bool backwards) {
    bool previous = false;
    for (const Span& s : spans) {
      const bool joins = behavior == Behavior::contiguous ? s.match == previous : s.match && !previous;
      previous = s.match;
      if (joins && !out.empty()) {
        (backwards ? out.back().begin : out.back().end) = backwards ? s.begin : s.end;
      } else {
        out.push_back(s);
      }
    }
  };
  switch (behavior) {
    case Behavior::isolated: return;
    case Behavior::removed: std::erase_if(spans, [](const Span& s) { return s.match; }); return;
    case Behavior::merged_with_next:
      std::reverse(spans.begin(), spans.end());
      join(true);
      std::reverse(out.begin(), out.end());
      break;
    default: join(false);
  }
  spans = std::move(out);
}

// Cuts chunks without changing the text. find(subject, match) calls match(begin, end) for each delimiter.
class Splitter final : public PreTokenizer {
 public:
  using Match = std::function<void(size_t, size_t)>;
  using Find = std::function<void(std::string_view, const Match&)>;
  Splitter(Find find, Behavior behavior, bool invert = false) : find_(std::move(find)), behavior_(behavior), invert_(invert) {}

  void apply(Chunks& chunks) const override {
    std::vector<Chunk> out;
    std::vector<Span> spans;
    for (const Chunk& chunk : chunks.list) {
      if (chunk.id >= 0) {
        out.push_back(chunk);
        continue;
      }
      const std::string_view subject = chunks.text.view(chunk.begin, chunk.end);
      spans.clear();
      size_t done = 0;
      find_(subject, [&](size_t begin, size_t end) {
        if (begin > done) spans.push_back({done, begin, invert_});
        spans.push_back({begin, end, !invert_});
        done = end;
      });
      if (done < subject.size()) spans.push_back({done, subject.size(), invert_});
      arrange(spans, behavior_);
      for (const Span& s : spans)
        if (s.end > s.begin) out.push_back({chunk.begin + uint32_t(s.begin), chunk.begin + uint32_t(s.end)});
    }
    chunks.list = std::move(out);
  }

 private:
  Find find_;
  Behavior behavior_;
  bool invert_;
};

// A delimiter is one character for which `is` holds.
Splitter::Find characters(std::function<bool(uint32_t)> is) {
  return [is = std::move(is)](std::string_view subject, const Splitter::Match& match) {
    for (size_t pos = 0; pos < subject.size();) {
      const Utf8Char c = utf8_at(subject, pos);
      if (is(c.code)) match(pos, pos + c.size);
      pos += c.size;
    }
  };
}

template <class Finder>
Splitter::Find finder(std::shared_ptr<const Finder> pattern) {
  return [pattern = std::move(pattern)](std::string_view subject, const Splitter::Match& match) {
    pattern->each_match(subject, match, true);  // an empty match cuts as well
  };
}

// Rewrites every open chunk: edit(old text, chunk, new text) appends to the new text.
template <class Edit>
void rewrite(Chunks& chunks, const Edit& edit) {
  TrackedText out = chunks.text.empty_like();
  out.reserve(chunks.text.size() + chunks.text.size() / 2);
  for (Chunk& chunk : chunks.list) {
    const auto begin = uint32_t(out.size());
    if (chunk.id >= 0) {
      out.append(chunks.text, chunk.begin, chunk.end);
    } else {
      edit(chunks.text, chunk, out);
    }
    chunk = {begin, uint32_t(out.size()), chunk.id};
  }
  chunks.text = std::move(out);
}

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    const auto words = [](std::string_view subject, const Splitter::Match& match) { each_gpt2_word(subject, match); };
    if (use_regex) split_ = std::make_unique<Splitter>(words, Behavior::isolated);
  }
  bool is_gpt2_byte_level() const override { return !add_prefix_space_ && split_ != nullptr; }
  void apply(Chunks& chunks) const override {
    const auto starts_with_space = [&](const Chunk& c) { return chunks.text.view(c.begin, c.end).starts_with(' '); };
    if (add_prefix_space_ &&
        std::any_of(chunks.list.begin(), chunks.list.end(), [&](const Chunk& c) { return c.id < 0 && !starts_with_space(c); })) {
      rewrite(chunks, [&](const TrackedText& text, const Chunk& c, TrackedText& out) {
        const ByteRange from = text.range(c.begin, c.end);
        if (!starts_with_space(c)) out.append(" ", {from.begin, from.begin});
        out.append(text, c.begin, c.end);
      });
    }
    if (split_) split_->apply(chunks);
    rewrite(chunks, [](const TrackedText& text, const Chunk& c, TrackedText& out) {
      const auto& alphabet = byte_level_alphabet();
      for (uint32_t i = c.begin; i < c.end; ++i)
        out.append(alphabet[static_cast<unsigned char>(text.text()[i])], text.range(i, i + 1));
    });
  }

 private:
  bool add_prefix_space_;
  std::unique_ptr<Splitter> split_;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(const Component& c)
      : replacement_(c.text("replacement", "\xE2\x96\x81")), split_words_(c.flag("split", true)) {
    const Utf8Char first = replacement_.empty() ? Utf8Char{0, 0, false} : utf8_at(replacement_, 0);
    if (!first.valid || first.size != replacement_.size())
      c.fail("\"replacement\" is \"" + replacement_ + "\", expected one character");
    scheme_ = c.text("prepend_scheme", c.flag("add_prefix_space", true) ? "always" : "never");
    if (scheme_ != "always" && scheme_ != "first" && scheme_ != "never")
      c.fail("\"prepend_scheme\" is \"" + scheme_ + "\", expected always, first or never");
    const std::string marker = replacement_;
    split_ = std::make_unique<Splitter>(
        [marker](std::string_view subject, const Splitter::Match& match) {
          for (size_t at = subject.find(marker); at != std::string_view::npos; at = subject.find(marker, at + marker.size()))
            match(at, at + marker.size());
        },
        Behavior::merged_with_next);
  }
  bool needs_ranges() const override { return scheme_ == "first"; }
  void apply(Chunks& chunks) const override {
    rewrite(chunks, [&](const TrackedText& text, const Chunk& c, TrackedText& out) {
      const ByteRange from = text.range(c.begin, c.end);
      const std::string_view view = text.view(c.begin, c.end);
      const bool prepend = scheme_ == "always" || (scheme_ == "first" && from.begin == 0);
      if (prepend && !view.starts_with(' ') && !view.starts_with(replacement_))
        out.append(replacement_, {from.begin, from.begin});
      for (uint32_t begin = c.begin; begin < c.end;) {
        uint32_t end = begin;
        while (end < c.end && text.text()[end] != ' ') ++end;
        out.append(text, begin, end);
        if (end < c.end) out.append(replacement_, text.range(end, end + 1));
        begin = end + 1;
      }
    });
    if (split_words_) split_->apply(chunks);
  }

 private:
  std::string replacement_, scheme_;
  bool split_words_;
  std::unique_ptr<Splitter> split_;
};

using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

void add(PreTokenizers& out, Splitter::Find find, Behavior behavior, bool invert = false) {
  out.push_back(std::make_unique<Splitter>(std::move(find), behavior, invert));
}

// Words and runs of everything else that is not white space.
void find_words(std::string_view subject, const Splitter::Match& match) {
  const auto kind = [](uint32_t c) { return is_word(c) ? 1 : is_whitespace(c) ? 0 : 2; };
  for (size_t pos = 0; pos < subject.size();) {
    Utf8Char c = utf8_at(subject, pos);
    const int first = kind(c.code);
    size_t end = pos + c.size;
    while (end < subject.size() && kind((c = utf8_at(subject, end)).code) == first) end += c.size;
    if (first != 0) match(pos, end);
    pos = end;
  }
}

void parse_into(const Component& c, PreTokenizers& out) {
  const std::string& type = c.type();
  if (type == "Sequence") {
    for (const Component& member : c.children("pretokenizers")) parse_into(member, out);
  } else if (type == "ByteLevel") {
    out.push_back(make_byte_level(c.flag("add_prefix_space", true), c.flag("use_regex", true)));
  } else if (type == "Split") {
    add(out, finder(std::make_shared<const Pattern>(c, "pattern")), parse_behavior(c, c.text("behavior")),
        c.flag("invert", false));
  } else if (type == "Metaspace") {
    out.push_back(std::make_unique<Metaspace>(c));
  } else if (type == "Digits") {
    out.push_back(make_digits(c.flag("individual_digits", false)));
  } else if (type == "Whitespace") {
    add(out, find_words, Behavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    add(out, characters(is_whitespace), Behavior::removed);
  } else if (type == "Punctuation") {
    add(out, characters(is_punctuation), parse_behavior(c, c.text("behavior", "Isolated")));
  } else if (type == "BertPreTokenizer") {
    add(out, characters(is_whitespace), Behavior::removed);
    add(out, characters(is_punctuation), Behavior::isolated);
  } else if (type == "CharDelimiterSplit") {
    const std::string delimiter = c.text("delimiter");
    const Utf8Char d = delimiter.empty() ? Utf8Char{0, 0, false} : utf8_at(delimiter, 0);
    if (!d.valid || d.size != delimiter.size()) c.fail("\"delimiter\" is \"" + delimiter + "\", expected one character");
    add(out, characters([d](uint32_t code) { return code == d.code; }), Behavior::removed);
  } else if (type == "FixedLength") {
    const int64_t length = c.integer("length");
    if (length < 1) c.fail("\"length\" is " + std::to_string(length) + ", expected at least 1");
    add(
        out,
        [length](std::string_view subject, const Splitter::Match& match) {
          size_t begin = 0;
          int64_t count = 0;
          for (size_t pos = 0; pos < subject.size();) {
            pos += utf8_at(subject, pos).size;
            if (++count < length && pos < subject.size()) continue;
            match(begin, pos);
            begin = pos;
            count = 0;
          }
        },
        Behavior::isolated);
  } else {
    c.unknown("pre-tokenizer", kPreTokenizers);
  }
}

}  // namespace

std::vector<std::unique_ptr<PreTokenizer>> parse_pre_tokenizers(const Component& component) {
  PreTokenizers out;
  parse_into(component, out);
  return out;
}

std::unique_ptr<PreTokenizer> make_split(const std::string& regex, const std::string& path, const std::string& field) {
  return std::make_unique<Splitter>(finder(std::make_shared<const Regex>(regex, path, field)), Behavior::isolated);
}

std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex) {
  return std::make_unique<ByteLevel>(add_prefix_space, use_regex);
}

std::unique_ptr<PreTokenizer> make_digits(bool individual) {
  return std::make_unique<Splitter>(characters(is_numeric), individual ? Behavior::isolated : Behavior::contiguous);
}

std::unique_ptr<PreTokenizer> make_punctuation() {
  return std::make_unique<Splitter>(characters(is_punctuation), Behavior::contiguous);
}

}  // namespace vitrine
