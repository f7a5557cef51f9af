#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "tokenizer/model.h"

namespace vitrine {

uint64_t MergeTable::mix(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  pair ^= pair >> 32;
  pair *= 0xD6E8FEB86659FD93u;
  return pair ^ (pair >> 32);
}

void MergeTable::reserve(size_t merges) {
  size_t slots = 16;
  while (slots * 5 < merges * 8) slots *= 2;  // at most 5/8 full
  if (slots <= slots_.size()) return;
  std::vector<Slot> old(slots);
  old.swap(slots_);
  for (const Slot& s : old)
    if (s.pair != kEmpty) slot(s.pair) = s;
}

MergeTable::Slot& MergeTable::slot(uint64_t pair) {
  size_t at = mix(pair) & (slots_.size() - 1);
  while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return slots_[at];
}

void MergeTable::set(int32_t left, int32_t right, BpeJoin join) {
  if ((count_ + 1) * 8 > slots_.size() * 5) reserve(std::max<size_t>(16, count_ * 2));
  const uint64_t pair = uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  Slot& s = slot(pair);
  count_ += s.pair == kEmpty;
  s = {pair, join};
}

BpeJoin MergeTable::find(int32_t left, int32_t right) const {
  if (slots_.empty()) return {0, -1};
  const uint64_t pair = uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  for (size_t at = mix(pair) & (slots_.size() - 1); slots_[at].pair != kEmpty; at = (at + 1) & (slots_.size() - 1))
    if (slots_[at].pair == pair) return slots_[at].join;
  return {0, -1};
}

void MergeTable::prefetch(int32_t left, int32_t right) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[mix(uint64_t(uint32_t(left)) << 32 | uint32_t(right)) & (slots_.size() - 1)]);
}

BpeModel::BpeModel(Vocabulary vocabulary, Options options, const std::string& path) : options_(std::move(options)), path_(path) {
  vocabulary_ = std::move(vocabulary);
  if (!options_.unknown_token.empty()) {
    unknown_ = vocabulary_.find(options_.unknown_token);
    if (unknown_ < 0)
      throw FileError(path, fmt::format("model.unk_token is \"{}\", which model.vocab does not hold", options_.unknown_token));
  }
  for (int byte = 0; byte < 256; ++byte)
    byte_ids_[byte] = options_.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)) : -1;
  substitute_.resize(size_t(vocabulary_.size()));
  if (unknown_ >= 0) substitute_[size_t(unknown_)] = true;
  for (const int32_t id : byte_ids_)
    if (id >= 0) substitute_[size_t(id)] = true;
  single_.assign(0x10000, -1);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view piece = vocabulary_.piece(id);
    if (piece.empty() || piece.size() > 3) continue;
    const Utf8Char c = utf8_at(piece, 0);
    if (c.valid && c.size == piece.size()) single_[c.code] = id;
  }
}

void BpeModel::add_merge(std::string_view left, std::string_view right) {
  const std::string_view tail = right.substr(std::min(options_.continuing_subword_prefix.size(), right.size()));
  PendingMerge merge{};
  merge.begin = uint32_t(pending_text_.size());
  merge.left_size = uint32_t(left.size()), merge.right_size = uint32_t(right.size()),
  merge.joined_size = uint32_t(left.size() + tail.size());
  pending_text_.append(left).append(right).append(left).append(tail);
  merge.left_hash = hash_text(left), merge.right_hash = hash_text(right);
  merge.joined_hash = hash_text(std::string_view(pending_text_).substr(pending_text_.size() - merge.joined_size));
  vocabulary_.prefetch(merge.left_hash);
  vocabulary_.prefetch(merge.right_hash);
  vocabulary_.prefetch(merge.joined_hash);
  pending_.push_back(merge);
  if (pending_.size() == kMergeGroup) resolve_merges();
}

void BpeModel::resolve_merges() {
  for (const PendingMerge& m : pending_) {
    vocabulary_.prefetch_text(m.left_hash);
    vocabulary_.prefetch_text(m.right_hash);
    vocabulary_.prefetch_text(m.joined_hash);
  }
  struct Resolved {
    int32_t left, right, joined;
  };
  Resolved resolved[kMergeGroup];
  for (size_t i = 0; i < pending_.size(); ++i) {
    const PendingMerge& m = pending_[i];
    const std::string_view text = std::string_view(pending_text_).substr(m.begin);
    const std::string_view left = text.substr(0, m.left_size), right = text.substr(m.left_size, m.right_size),
                           joined = text.substr(m.left_size + m.right_size, m.joined_size);
    const Resolved r{vocabulary_.find(left, m.left_hash), vocabulary_.find(right, m.right_hash),
                     vocabulary_.find(joined, m.joined_hash)};
    if (r.left < 0 || r.right < 0 || r.joined < 0)
      throw FileError(path_, fmt::format("merge {} (\"{}\" + \"{}\") needs the piece \"{}\", which the vocabulary does not hold",
                                         merge_count_ + i, left, right,
                                         r.left < 0    ? left
                                         : r.right < 0 ? right
                                                       : joined));
    merges_.prefetch(r.left, r.right);
    merges_substitutes_ = merges_substitutes_ || substitute_[size_t(r.left)] || substitute_[size_t(r.right)];
    resolved[i] = r;
  }
  for (size_t i = 0; i < pending_.size(); ++i)
    merges_.set(resolved[i].left, resolved[i].right, {uint32_t(merge_count_++), resolved[i].joined});
  pending_.clear();
  pending_text_.clear();
}

void BpeModel::finish() {
  resolve_merges();
  const std::string& marker = options_.word_marker;
  const bool plain = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty() && !options_.ignore_merges;
  if (marker.empty() || !plain || vocabulary_.find(marker) < 0) return;
  cuts_ = SafeCuts(options_.word_marker);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) cuts_.add_piece(vocabulary_.piece(id));
  if (marker != kWordMarker || merges_substitutes_) return;
  std::array<bool, 128> known{};
  for (size_t c = 0; c < known.size(); ++c) known[c] = c == ' ' || single_[c] >= 0;
  pair_cuts_.emplace(known);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) pair_cuts_->add_piece(vocabulary_.piece(id));
}

std::optional<PieceMerge> BpeModel::merge(std::string_view left, std::string_view right) const {
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty()) return std::nullopt;
  const int32_t l = vocabulary_.find(left), r = vocabulary_.find(right);
  if (l < 0 || r < 0) return std::nullopt;
  const BpeJoin join = merges_.find(l, r);
  if (join.id < 0) return std::nullopt;
  return PieceMerge{join.id, double(join.order)};
}

int32_t BpeModel::find_character(std::string_view character, bool first, bool last) const {
  const bool prefixed = !first && !options_.continuing_subword_prefix.empty();
  const bool suffixed = last && !options_.end_of_word_suffix.empty();
  if (!prefixed && !suffixed) {
    const Utf8Char c = utf8_at(character, 0);
    return c.code < single_.size() ? single_[c.code] : vocabulary_.find(character);
  }
  return vocabulary_.find((prefixed ? options_.continuing_subword_prefix : "") + std::string(character) +
                          (suffixed ? options_.end_of_word_suffix : ""));
}

void BpeModel::split_characters(std::string_view word, std::vector<BpeSymbol>& symbols) const {
  symbols.clear();
  BpeSymbol pending{-1, 0, 0, 0, 0};  // an unknown token that may still grow
  const auto release = [&] {
    if (pending.size > 0) symbols.push_back(pending);
    pending.size = 0;
  };
  for (size_t pos = 0; pos < word.size();) {
    const auto size = uint32_t(utf8_at(word, pos).size);
    const std::string_view character = word.substr(pos, size);
    const auto begin = uint32_t(pos);
    const bool last = pos + size == word.size();
    pos += size;
    if (const int32_t id = find_character(character, begin == 0, last); id >= 0) {
      release();
      symbols.push_back({id, begin, size, 0, 0});
      continue;
    }
    // Bytes take prefix and suffix along, as the reference does: they are spelled out with the character.
    if (options_.byte_fallback) {
      std::string spelled(character);
      if (begin != 0) spelled.insert(0, options_.continuing_subword_prefix);
      if (last) spelled += options_.end_of_word_suffix;
      if (std::all_of(spelled.begin(), spelled.end(), [&](char c) { return byte_ids_[static_cast<unsigned char>(c)] >= 0; })) {
        for (uint32_t i = 0; i < spelled.size(); ++i)
          symbols.push_back({byte_ids_[static_cast<unsigned char>(spelled[i])], begin + std::min(i, size - 1), 1, 0, 0});
        continue;
      }
    }
    if (unknown_ < 0) continue;
    if (pending.size > 0 && options_.fuse_unknown) {
      pending.size += size;
    } else {
      release();
      pending = {unknown_, begin, size, 0, 0};
    }
  }
  release();
}

// bpe_merge() for few symbols: the pairs lie in a row, and the first of the lowest order is looked for among them all.
void BpeModel::merge_short(std::vector<BpeSymbol>& symbols) const {
  BpeJoin joins[kShortWord];
  size_t count = symbols.size();
  const auto join = [&](size_t i) {
    joins[i] = merges_.find(symbols[i].id, symbols[i + 1].id);
    if (joins[i].id < 0) joins[i].order = kNever;
  };
  // The table is larger than the caches, and whether two characters merge cannot be predicted: without this, one miss waits for
  // another.
  for (size_t i = 0; i + 1 < count; ++i) merges_.prefetch(symbols[i].id, symbols[i + 1].id);
  for (size_t i = 0; i + 1 < count; ++i) join(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (joins[i].order < joins[best].order) best = i;
    if (joins[best].order == kNever) break;
    symbols[best].id = joins[best].id;
    symbols[best].size += symbols[best + 1].size;
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1], joins[i - 1] = joins[i];
    if (best > 0) join(best - 1);
    if (best + 1 < count) join(best);
  }
  symbols.resize(count);
}

void BpeModel::encode_word(std::string_view word, ModelScratch& scratch, std::vector<WordToken>& out) const {
  if (options_.ignore_merges) {
    if (const int32_t id = vocabulary_.find(word); id >= 0) {
      out.push_back({id, 0, uint32_t(word.size())});
      return;
    }
  }
  if (const auto known = scratch.cache.find(word); !known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  split_characters(word, scratch.symbols);
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch.symbols);
  } else {
    bpe_merge(scratch.symbols, scratch.heap, [this](const BpeSymbol& l, const BpeSymbol& r) { return merges_.find(l.id, r.id); });
  }
  const size_t first = out.size();
  for (const BpeSymbol& s : scratch.symbols) out.push_back({s.id, s.begin, std::min(s.begin + s.size, uint32_t(word.size()))});
  scratch.cache.insert(word, std::span(out).subspan(first));
}

void BpeModel::encode(std::string_view word, ModelScratch& scratch, std::vector<WordToken>& out) const {
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = cuts_.word_end(word, begin), first = out.size();
    encode_word(word.substr(begin, end - begin), scratch, out);
    for (size_t i = first; i < out.size() && begin > 0; ++i) {
      out[i].begin += uint32_t(begin);
      out[i].end += uint32_t(begin);
    }
    begin = end;
  }
}

}  // namespace vitrine
