#include "tokenizer/decoder.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

namespace vitrine {
namespace {

constexpr std::string_view kDecoders =
    "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, WordPiece, BPEDecoder";

// A stage that needs whole pieces.
class PieceStage : public DecodeStage {
 public:
  void push(Fragment f) final {
    held_ += f.text;
    if (!f.ends) return;
    std::string whole;
    whole.swap(held_);
    piece(std::move(whole));
  }
  void end() final {
    finish();
    held_.clear();
    next_->end();
  }

 protected:
  virtual void piece(std::string text) = 0;
  virtual void finish() {}
  void pass(std::string text) { next_->push({std::move(text), true, true}); }

 private:
  std::string held_;
};

// One piece to one piece, by its place.
class MapStage final : public PieceStage {
 public:
  using Map = std::function<std::string(std::string piece, bool first)>;
  explicit MapStage(Map map) : map_(std::move(map)) {}

 private:
  void piece(std::string text) override {
    pass(map_(std::move(text), first_));
    first_ = false;
  }
  void finish() override { first_ = true; }
  Map map_;
  bool first_ = true;
};

class ByteLevelStage final : public PieceStage {
 public:
  explicit ByteLevelStage(bool replace) : buffer_(replace) {}

 private:
  void piece(std::string text) override {
    std::string bytes, out;
    // A piece with other characters (an added token) stands for itself.
    if (!append_byte_level(text, bytes)) bytes = std::move(text);
    buffer_.push(bytes, out);
    next_->push({std::move(out), first_, false});
    first_ = false;
  }
  void finish() override {
    std::string out;
    buffer_.flush(out);
    if (!first_ || !out.empty()) next_->push({std::move(out), first_, true});
    first_ = true;
  }
  Utf8Buffer buffer_;
  bool first_ = true;
};

// The byte of <0x0A>; -1: another piece.
int byte_of_fallback(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

// <0xE2><0x82><0xAC>: the bytes of a run count as text only if all of them together are UTF-8; otherwise each is U+FFFD.
// So a run is known when it has ended, and not before.
class ByteFallbackStage final : public PieceStage {
 private:
  void piece(std::string text) override {
    if (const int byte = byte_of_fallback(text); byte >= 0) {
      bytes_ += char(byte);
      return;
    }
    finish();
    pass(std::move(text));
  }
  void finish() override {
    if (bytes_.empty()) return;
    if (is_valid_utf8(bytes_)) {
      pass(bytes_);
    } else {
      for (size_t i = 0; i < bytes_.size(); ++i) pass(std::string(kReplacementUtf8));
    }
    bytes_.clear();
  }
  std::string bytes_;
};

class FuseStage final : public DecodeStage {
 public:
  void push(Fragment f) override {
    next_->push({std::move(f.text), first_, false});
    first_ = false;
  }
  void end() override {
    if (!first_) next_->push({"", false, true});
    first_ = true;
    next_->end();
  }

 private:
  bool first_ = true;
};

// Up to `start` times `content` from the front of each piece and up to `stop` times from its back. Works on parts of a
// piece: what may yet be its back is held.
class StripStage final : public DecodeStage {
 public:
  StripStage(std::string content, size_t start, size_t stop) : content_(std::move(content)), start_(start), stop_(stop) {}
  void push(Fragment f) override {
    if (f.begins) to_cut_ = start_, begins_ = true;
    held_ += f.text;
    size_t pos = 0;
    while (to_cut_ > 0 && held_.size() - pos >= content_.size()) {
      if (held_.compare(pos, content_.size(), content_) != 0) {
        to_cut_ = 0;
        break;
      }
      pos += content_.size();
      --to_cut_;
    }
    held_.erase(0, pos);
    size_t back = held_.size();
    for (size_t i = 0;
         i < stop_ && back >= content_.size() && held_.compare(back - content_.size(), content_.size(), content_) == 0; ++i)
      back -= content_.size();
    std::string out = held_.substr(0, back);
    held_.erase(0, f.ends ? held_.size() : back);
    next_->push({std::move(out), begins_, f.ends});
    begins_ = false;
  }
  void end() override {
    held_.clear();
    next_->end();
  }

 private:
  std::string content_, held_;
  size_t start_, stop_, to_cut_ = 0;
  bool begins_ = true;
};

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at = from.empty() ? std::string_view::npos : text.find(from); at != std::string_view::npos;
       at = text.find(from, done)) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  return out.append(text, done);
}

// The suffix that marks the end of a word becomes a space, except in the last piece.
class SuffixStage final : public PieceStage {
 public:
  explicit SuffixStage(std::string suffix) : suffix_(std::move(suffix)) {}

 private:
  void piece(std::string text) override {
    if (waiting_) pass(replaced(last_, suffix_, " "));
    waiting_ = true;
    last_ = std::move(text);
  }
  void finish() override {
    if (waiting_) pass(replaced(last_, suffix_, ""));
    waiting_ = false;
  }
  std::string suffix_, last_;
  bool waiting_ = false;
};

// The clean-up of English text that BERT's decoder does, piece by piece.
std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) text = replaced(text, from, to);
  return text;
}

/// The steps read so far. Once a step has joined pieces, those behind it see no pieces.
struct DecodeSteps {
  std::vector<DecodeStep> list;
  bool joined = false;
};

void add_map(DecodeSteps& out, const MapStage::Map& map) {
  DecodeStep step{.make = [map] { return std::make_unique<MapStage>(map); }, .bytes = {}};
  if (!out.joined) step.bytes = [map](std::string& piece) { piece = map(std::move(piece), false); };
  out.list.push_back(std::move(step));
}

std::string one_character(const Component& c, const char* key, const std::string& otherwise) {
  const std::string text = c.text(key, otherwise);
  if (text.empty() || utf8_at(text, 0).size != text.size())
    c.fail(std::string("\"") + key + "\" is \"" + text + "\", expected one character");
  return text;
}

size_t count(const Component& c, const char* key) {
  const int64_t value = c.integer(key);
  if (value < 0 || value > 1000) c.fail(std::string("\"") + key + "\" is " + std::to_string(value) + ", expected 0 to 1000");
  return size_t(value);
}

void parse_into(const Component& c, DecodeSteps& out) {
  const std::string& type = c.type();
  if (type == "Sequence") {
    for (const Component& member : c.children("decoders")) parse_into(member, out);
  } else if (type == "ByteLevel") {
    out.list.push_back(make_byte_level_decoder(true));
    if (out.joined) out.list.back().bytes = nullptr;
    out.joined = true;
  } else if (type == "Replace") {
    const auto pattern = std::make_shared<const Pattern>(c, "pattern");
    add_map(out, [pattern, content = c.text("content")](const std::string& piece, bool) {
      std::string text;
      size_t done = 0;
      const auto replace = [&](size_t begin, size_t end) {
        text.append(piece, done, begin - done).append(content);
        done = end;
      };
      pattern->each_match(piece, replace, true);
      return text.append(piece, done);
    });
  } else if (type == "ByteFallback") {
    out.list.push_back({[] { return std::make_unique<ByteFallbackStage>(); },
                        [](std::string& piece) {
                          if (const int byte = byte_of_fallback(piece); byte >= 0) piece = static_cast<char>(byte);
                        }});
    if (out.joined) out.list.back().bytes = nullptr;
    out.joined = true;
  } else if (type == "Fuse") {
    out.list.push_back({[] { return std::make_unique<FuseStage>(); }, [](std::string&) {}});
    out.joined = true;
  } else if (type == "Strip") {
    const size_t start = count(c, "start"), stop = count(c, "stop");
    out.list.push_back(
        {[content = one_character(c, "content", " "), start, stop] { return std::make_unique<StripStage>(content, start, stop); },
         {}});
    if (out.joined && stop == 0) out.list.back().bytes = [](std::string&) {};  // cuts the beginning of the text alone
  } else if (type == "Metaspace") {
    const bool prepends = c.text("prepend_scheme", c.flag("add_prefix_space", true) ? "always" : "never") != "never";
    add_map(out, [marker = one_character(c, "replacement", "\xE2\x96\x81"), prepends](const std::string& piece, bool first) {
      return replaced(piece, marker, first && prepends ? "" : " ");
    });
  } else if (type == "WordPiece") {
    add_map(out, [prefix = c.text("prefix", "##"), cleanup = c.flag("cleanup", true)](std::string piece, bool first) {
      if (!first && piece.starts_with(prefix)) {
        piece.erase(0, prefix.size());
      } else if (!first) {
        piece.insert(0, " ");
      }
      return cleanup ? clean_up(std::move(piece)) : piece;
    });
  } else if (type == "BPEDecoder") {
    out.list.push_back({[suffix = c.text("suffix", "</w>")] { return std::make_unique<SuffixStage>(suffix); }, {}});
  } else {
    c.unknown("decoder", kDecoders);
  }
}

}  // namespace

std::vector<DecodeStep> parse_decoders(const Component& component) {
  DecodeSteps out;
  parse_into(component, out);
  return std::move(out.list);
}

DecodeStep make_byte_level_decoder(bool replace) {
  return {[replace] { return std::make_unique<ByteLevelStage>(replace); },
          [](std::string& piece) {
            std::string bytes;
            if (append_byte_level(piece, bytes)) piece = std::move(bytes);
          }};
}

}  // namespace vitrine
