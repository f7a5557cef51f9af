#include "tokenizer/normalizer.h"

#include <utf8proc.h>

#include <cstdlib>
#include <functional>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/unicode.h"

namespace vitrine {
namespace {

constexpr std::string_view kNormalizers =
    "Sequence, Prepend, Append, Replace, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, ByteLevel, Nmt, Precompiled, "
    "BertNormalizer";

// Walks over the characters: edit(code, begin, end, out) appends what becomes of one.
template <class Edit>
void edit_characters(TrackedText& text, const Edit& edit) {
  TrackedText out = text.empty_like();
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = utf8_at(text.text(), pos);
    edit(c.code, pos, pos + c.size, out);
    pos += c.size;
  }
  text = std::move(out);
}

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(TrackedText& text) const override {
    if (text.size() == 0) return;
    TrackedText out = text.empty_like();
    const uint32_t at = text.range(0, 0).begin;
    out.append(prefix_, {at, at});
    out.append(text, 0, text.size());
    text = std::move(out);
  }

 private:
  std::string prefix_;
};

class Append final : public Normalizer {
 public:
  explicit Append(std::string suffix) : suffix_(std::move(suffix)) {}
  void apply(TrackedText& text) const override {
    if (text.size() == 0) return;
    TrackedText out = text.empty_like();
    out.append(text, 0, text.size());
    const uint32_t at = text.range(0, text.size()).end;
    out.append(suffix_, {at, at});
    text = std::move(out);
  }

 private:
  std::string suffix_;
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const Component& c) : pattern_(c, "pattern"), content_(c.text("content")) {}
  bool marks_spaces() const override { return pattern_.is(" ") && content_ == kWordMarker; }
  void apply(TrackedText& text) const override {
    TrackedText out = text.empty_like();
    out.reserve(text.size() + text.size() / 2);
    size_t done = 0;
    bool found = false;
    const auto replace = [&](size_t begin, size_t end) {
      out.append(text, done, begin);
      out.append(content_, text.range(begin, end));
      done = end;
      found = true;
    };
    pattern_.each_match(text.text(), replace, true);
    if (!found) return;
    out.append(text, done, text.size());
    text = std::move(out);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

// Unicode's normal forms by utf8proc. A run of characters above ASCII is converted as a whole; where converting it
// cluster by cluster (a starter with its marks) gives the same text, each cluster keeps its own range.
class NormalForm final : public Normalizer {
 public:
  NormalForm(bool compose, bool compatible)
      // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange): a set of flags
      : options_(utf8proc_option_t(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                   (compatible ? UTF8PROC_COMPAT : 0))) {}
  void apply(TrackedText& text) const override {
    const std::string& in = text.text();
    if (!std::any_of(in.begin(), in.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) return;
    TrackedText out = text.empty_like();
    out.reserve(text.size());
    for (size_t pos = 0; pos < in.size();) {
      // A run: non-ASCII characters with the ASCII one before them, to which a mark may belong.
      size_t begin = pos;
      while (begin < in.size() && static_cast<unsigned char>(in[begin]) < 0x80) ++begin;
      if (begin > pos && begin < in.size()) --begin;
      out.append(text, pos, begin);
      size_t end = begin;
      if (end < in.size()) ++end;
      while (end < in.size() && static_cast<unsigned char>(in[end]) >= 0x80) ++end;
      if (begin < end) convert_known(text, begin, end, out);
      pos = end;
    }
    text = std::move(out);
  }

 private:
  // Characters that the forms leave alone take no part in what stands around them.
  void convert_known(const TrackedText& text, size_t begin, size_t end, TrackedText& out) const {
    for (size_t pos = begin; pos < end;) {
      const Utf8Char c = utf8_at(text.text(), pos);
      if (!is_normalized(c.code)) {
        convert_run(text, begin, pos, out);
        begin = pos + c.size;
        out.append(text, pos, begin);
      }
      pos += c.size;
    }
    convert_run(text, begin, end, out);
  }

  std::string convert(std::string_view in) const {
    utf8proc_uint8_t* result = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(in.data()), utf8proc_ssize_t(in.size()), &result, options_);
    if (size < 0) throw RunError(std::string("normalizing a text failed: ") + utf8proc_errmsg(size));
    std::string out(reinterpret_cast<const char*>(result), size_t(size));
    std::free(result);
    return out;
  }

  void convert_run(const TrackedText& text, size_t begin, size_t end, TrackedText& out) const {
    if (begin == end) return;
    const std::string whole = convert(text.view(begin, end));
    if (whole == text.view(begin, end)) return out.append(text, begin, end);
    if (!out.tracked()) return out.append(whole, {0, 0});
    std::vector<std::pair<std::string, ByteRange>> clusters;
    std::string joined;
    for (size_t pos = begin; pos < end;) {
      size_t next = pos + utf8_at(text.text(), pos).size;
      while (next < end && continues_cluster(utf8_at(text.text(), next).code)) next += utf8_at(text.text(), next).size;
      clusters.emplace_back(convert(text.view(pos, next)), text.range(pos, next));
      joined += clusters.back().first;
      pos = next;
    }
    if (joined != whole) return out.append(whole, text.range(begin, end));
    for (const auto& [piece, range] : clusters) out.append(piece, range);
  }

  static bool continues_cluster(uint32_t c) {
    return utf8proc_get_property(utf8proc_int32_t(c))->combining_class != 0 || is_accent(c) || (c >= 0x1160 && c <= 0x11FF);
  }

  utf8proc_option_t options_;
};

class EachCharacter final : public Normalizer {
 public:
  using Edit = std::function<void(const TrackedText& text, uint32_t code, size_t begin, size_t end, TrackedText& out)>;
  explicit EachCharacter(Edit edit) : edit_(std::move(edit)) {}
  void apply(TrackedText& text) const override {
    edit_characters(text, [&](uint32_t code, size_t begin, size_t end, TrackedText& out) { edit_(text, code, begin, end, out); });
  }

 private:
  Edit edit_;
};

void lower(const TrackedText& text, uint32_t code, size_t begin, size_t end, TrackedText& out) {
  if (code == 0x130) return out.append("i\xCC\x87", text.range(begin, end));  // the one letter whose lower case is two
  const uint32_t to = lower_case(code);
  if (to == code) return out.append(text, begin, end);
  out.append(to_utf8(to), text.range(begin, end));
}

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void apply(TrackedText& text) const override {
    const std::string& in = text.text();
    size_t begin = 0, end = 0, last = 0;
    bool seen = false;
    for (size_t pos = 0; pos < in.size();) {
      const Utf8Char c = utf8_at(in, pos);
      if (!is_whitespace(c.code)) {
        if (!seen) begin = pos;
        seen = true;
        last = pos + c.size;
      }
      pos += c.size;
    }
    if (!seen) begin = last = left_ ? in.size() : 0;
    if (!left_) begin = 0;
    end = right_ ? std::max(last, begin) : in.size();
    if (!seen && right_) begin = end = 0;
    TrackedText out = text.empty_like();
    out.append(text, begin, end);
    text = std::move(out);
  }

 private:
  bool left_, right_;
};

// SentencePiece's table, applied as Hugging Face's library does: a grapheme of up to 5 bytes is looked up as a whole
// (any rule for a start of it replaces all of it), otherwise its characters one by one.
class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(const Component& c) : map_(decode_base64(c), c.path()) {}
  void apply(TrackedText& text) const override {
    if (map_.empty()) return;
    const std::string& in = text.text();
    TrackedText out = text.empty_like();
    out.reserve(text.size());
    for (size_t pos = 0; pos < in.size();) {
      size_t end = pos + utf8_at(in, pos).size;
      utf8proc_int32_t state = 0;
      for (size_t previous = pos; end < in.size();) {
        const Utf8Char c = utf8_at(in, end);
        if (utf8proc_grapheme_break_stateful(utf8proc_int32_t(utf8_at(in, previous).code), utf8proc_int32_t(c.code), &state))
          break;
        previous = end;
        end += c.size;
      }
      const auto whole = end - pos < 6 ? map_.longest(text.view(pos, end), 0) : std::nullopt;
      if (whole) {
        out.append(whole->replacement, text.range(pos, end));
      } else {
        for (size_t at = pos; at < end;) {
          const size_t next = at + utf8_at(in, at).size;
          if (const auto rule = map_.longest(text.view(at, next), 0)) {
            out.append(rule->replacement, text.range(at, next));
          } else {
            out.append(text, at, next);
          }
          at = next;
        }
      }
      pos = end;
    }
    text = std::move(out);
  }

 private:
  static std::string decode_base64(const Component& c) {
    const std::string text = c.text("precompiled_charsmap", "");
    std::string out;
    uint32_t bits = 0;
    int count = 0;
    for (const char d : text) {
      const int value = d >= 'A' && d <= 'Z'   ? d - 'A'
                        : d >= 'a' && d <= 'z' ? d - 'a' + 26
                        : d >= '0' && d <= '9' ? d - '0' + 52
                        : d == '+'             ? 62
                        : d == '/'             ? 63
                                               : -1;
      if (d == '=') break;
      if (value < 0) c.fail("\"precompiled_charsmap\" is not base64");
      bits = bits << 6 | uint32_t(value);
      count += 6;
      if (count >= 8) {
        count -= 8;
        out += char(bits >> count & 0xFF);
      }
    }
    return out;
  }
  Charsmap map_;
};

void remove_accents(const TrackedText& text, uint32_t code, size_t begin, size_t end, TrackedText& out) {
  if (!is_accent(code)) out.append(text, begin, end);
}

void byte_level(const TrackedText& text, uint32_t, size_t begin, size_t end, TrackedText& out) {
  for (size_t i = begin; i < end; ++i)
    out.append(byte_level_alphabet()[static_cast<unsigned char>(text.text()[i])], text.range(i, i + 1));
}

// Neural machine translation's clean-up: some control characters go, exotic spaces become plain.
void nmt(const TrackedText& text, uint32_t c, size_t begin, size_t end, TrackedText& out) {
  if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) return;
  const bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                     c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
  if (space) return out.append(" ", text.range(begin, end));
  out.append(text, begin, end);
}

void clean(const TrackedText& text, uint32_t c, size_t begin, size_t end, TrackedText& out) {
  if (c == '\t' || c == '\n' || c == '\r') return out.append(" ", text.range(begin, end));
  if (c == 0 || c == 0xFFFD || is_bert_control(c)) return;
  if (is_whitespace(c)) return out.append(" ", text.range(begin, end));
  out.append(text, begin, end);
}

void space_ideographs(const TrackedText& text, uint32_t c, size_t begin, size_t end, TrackedText& out) {
  if (!is_cjk_ideograph(c)) return out.append(text, begin, end);
  const ByteRange from = text.range(begin, end);
  out.append(" ", {from.begin, from.begin});
  out.append(text, begin, end);
  out.append(" ", {from.end, from.end});
}

void remove_nonspacing(const TrackedText& text, uint32_t code, size_t begin, size_t end, TrackedText& out) {
  if (!is_bert_accent(code)) out.append(text, begin, end);
}

using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

void add(Normalizers& out, EachCharacter::Edit edit) { out.push_back(std::make_unique<EachCharacter>(std::move(edit))); }

void parse_into(const Component& c, Normalizers& out) {
  const std::string& type = c.type();
  if (type == "Sequence") {
    for (const Component& member : c.children("normalizers")) parse_into(member, out);
  } else if (type == "Prepend") {
    out.push_back(std::make_unique<Prepend>(c.text("prepend")));
  } else if (type == "Append") {
    out.push_back(std::make_unique<Append>(c.text("append")));
  } else if (type == "Replace") {
    out.push_back(std::make_unique<Replace>(c));
  } else if (type == "NFC" || type == "NFD" || type == "NFKC" || type == "NFKD") {
    out.push_back(std::make_unique<NormalForm>(type.back() == 'C', type.size() == 4));
  } else if (type == "Lowercase") {
    add(out, lower);
  } else if (type == "Strip") {
    out.push_back(std::make_unique<Strip>(c.flag("strip_left", true), c.flag("strip_right", true)));
  } else if (type == "StripAccents") {
    add(out, remove_accents);
  } else if (type == "ByteLevel") {
    add(out, byte_level);
  } else if (type == "Nmt") {
    add(out, nmt);
  } else if (type == "Precompiled") {
    out.push_back(std::make_unique<Precompiled>(c));
  } else if (type == "BertNormalizer") {
    const bool lowercase = c.flag("lowercase", true);
    if (c.flag("clean_text", true)) add(out, clean);
    if (c.flag("handle_chinese_chars", true)) add(out, space_ideographs);
    if (c.flag("strip_accents", lowercase)) {
      out.push_back(std::make_unique<NormalForm>(false, false));
      add(out, remove_nonspacing);
    }
    if (lowercase) add(out, lower);
  } else {
    c.unknown("normalizer", kNormalizers);
  }
}

}  // namespace

std::vector<std::unique_ptr<Normalizer>> parse_normalizers(const Component& component) {
  Normalizers out;
  parse_into(component, out);
  return out;
}

std::unique_ptr<Normalizer> make_nfc() { return std::make_unique<NormalForm>(true, false); }

}  // namespace vitrine
