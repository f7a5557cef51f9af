#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/decode_state.h"

namespace vitrine {

namespace {
void check_size(std::string_view text) {
  constexpr size_t kLargest = size_t{1} << 30;
  if (text.size() >= kLargest)
    throw InputError(fmt::format("the text has {} bytes; split it into parts below 1 GiB", text.size()));
}
}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special, Special special) const {
  check_size(text);
  return run_ids(text, add_special, special, nullptr);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special, Special special, ThreadPool& pool) const {
  check_size(text);
  return run_ids(text, add_special, special, &pool);
}

std::vector<int32_t> Tokenizer::run_ids(std::string_view text, bool add_special, Special special, ThreadPool*) const {
  const std::vector<TokenPiece> tokens = run(text, add_special, special, false);
  std::vector<int32_t> ids(tokens.size());
  std::transform(tokens.begin(), tokens.end(), ids.begin(), [](const TokenPiece& t) { return t.id; });
  return ids;
}

std::vector<TokenPiece> Tokenizer::encode_with_offsets(std::string_view text, bool add_special, Special special) const {
  check_size(text);
  return run(text, add_special, special, true);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  StreamDecoder stream(*this, skip_special);
  std::string out;
  for (const int32_t id : ids) out += stream.push(id);
  return out + stream.flush();
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(&tokenizer), skip_special_(skip_special), state_(tokenizer.decode_state()) {}
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;
StreamDecoder::~StreamDecoder() = default;

std::string StreamDecoder::push(int32_t id) {
  if (id < 0 || id >= tokenizer_->vocab_size())
    throw InputError(fmt::format("token {} is outside the vocabulary: ids are 0 to {}", id, tokenizer_->vocab_size() - 1));
  std::string out;
  state_->push(id, skip_special_, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  state_->flush(out);
  return out;
}

int32_t single_token(const Tokenizer& tokenizer, std::string_view text) {
  constexpr std::string_view kSpace = "\xE2\x96\x81";  // ▁
  const bool marks_spaces = tokenizer.find(kSpace).has_value();
  if (marks_spaces) {
    std::string spelled;
    for (const char c : text) c == ' ' ? spelled += kSpace : spelled += c;
    if (const auto id = tokenizer.find(spelled)) return *id;
  }
  std::vector<int32_t> ids = tokenizer.encode(text, false, Special::parse);
  const bool prefixed = marks_spaces && !text.starts_with(' ') && !ids.empty() && tokenizer.piece(ids[0]).starts_with(kSpace);
  const bool apart = prefixed && ids.size() > 1 && tokenizer.piece(ids[0]) == kSpace;
  if (apart) ids.erase(ids.begin());
  if (ids.size() == 1 && (apart || !prefixed)) return ids[0];
  if (const auto id = tokenizer.find(text)) return *id;
  std::string pieces;
  for (const int32_t id : ids) pieces += fmt::format("{}\"{}\"", pieces.empty() ? "" : ", ", utf8_lossy(tokenizer.piece(id)));
  throw InputError(
      fmt::format("\"{}\" is no single token but {}; expected one. Mind the space before a word, or give a piece as "
                  "`vitrine tokenize` shows it, or an id",
                  utf8_lossy(text), ids.empty() ? "none" : pieces));
}

std::optional<TokenDifference> first_difference(const Tokenizer& a, const Tokenizer& b, std::string_view text, Special special) {
  const std::vector<TokenPiece> left = a.encode_with_offsets(text, false, special),
                                right = b.encode_with_offsets(text, false, special);
  const auto same = [](const TokenPiece& x, const TokenPiece& y) { return x.id == y.id; };
  const auto [l, r] = std::mismatch(left.begin(), left.end(), right.begin(), right.end(), same);
  if (l == left.end() && r == right.end()) return std::nullopt;
  TokenDifference d{};
  d.index = size_t(l - left.begin());
  if (l != left.end()) d.a = *l;
  if (r != right.end()) d.b = *r;
  d.begin = std::min(d.a ? d.a->begin : text.size(), d.b ? d.b->begin : text.size());
  d.line = 1 + size_t(std::count(text.begin(), text.begin() + long(d.begin), '\n'));
  const auto name = [](const Tokenizer& t, const std::optional<TokenPiece>& p) {
    return p ? fmt::format("{} \"{}\"", p->id, utf8_lossy(t.piece(p->id))) : std::string("no more tokens");
  };
  constexpr size_t kAround = 20;
  const size_t from = d.begin > kAround ? d.begin - kAround : 0;
  d.message = fmt::format("token {} (byte {}, line {}): {} against {}, in \"{}\"", d.index, d.begin, d.line, name(a, d.a),
                          name(b, d.b), utf8_lossy(text.substr(from, 2 * kAround)));
  return d;
}

}  // namespace vitrine
