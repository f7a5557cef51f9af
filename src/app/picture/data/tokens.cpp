// Pictures of the prompt: its pieces, the merges that made them, and other ways to cut it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/utf8.h"
#include "picture/data/shipped_text.h"
#include "picture/data/studio.h"
#include "picture/data/view.h"

namespace vitrine {
namespace {

constexpr size_t kMostTraced = 256;      // tokens whose merges are shown
constexpr size_t kMostCharacters = 64;   // of a piece whose merges are shown
constexpr size_t kMostSplitBytes = 120;  // of the string whose splits are counted
constexpr size_t kLongestPiece = 48;     // bytes of a piece in a split
constexpr size_t kSplitsKept = 6;        // beside the tokenizer's own and the one by single characters

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> characters;
  for (size_t i = 0; i < text.size();) {
    const size_t size = std::max<size_t>(1, utf8_at(text, i).size);
    characters.emplace_back(text.substr(i, size));
    i += size;
  }
  return characters;
}

struct Part {
  std::string piece;
  int32_t id;
  size_t token;  // only parts of one token merge
};

// The text that a vocabulary of growing size cuts: a fable of Aesop's, George Fyler Townsend's translation (examples/fables.txt).
constexpr std::string_view kFable =
    "A Crab said to her son: \"Why do you walk so one-sided, my child? It is far more becoming to go straight forward.\" The "
    "young "
    "Crab replied: \"Quite true, dear mother; and if you will show me the straight way, I will promise to walk in it.\" The "
    "mother "
    "tried in vain, and submitted without remonstrance to the reproof of her child.";

// The pair that merges next: the lowest order, the leftmost of equal ones.
std::optional<size_t> next_merge(const std::vector<Part>& parts, const std::vector<std::optional<PieceMerge>>& merges) {
  std::optional<size_t> best;
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    if (merges[i] && (!best || merges[i]->order < merges[*best]->order)) best = i;
  return best;
}

// Merges until nothing merges, by pairs of at most this order; tells `step` of each.
template <class Step>
void merge_all(const Tokenizer& tokenizer, std::vector<Part>& parts, Step&& step,
               double most = std::numeric_limits<double>::infinity()) {
  const auto look = [&](size_t i) -> std::optional<PieceMerge> {
    if (i + 1 >= parts.size() || parts[i].token != parts[i + 1].token) return std::nullopt;
    std::optional<PieceMerge> made = tokenizer.merge(parts[i].piece, parts[i + 1].piece);
    return made && made->order <= most ? made : std::nullopt;
  };
  std::vector<std::optional<PieceMerge>> merges(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) merges[i] = look(i);
  while (const auto at = next_merge(parts, merges)) {
    const PieceMerge made = *merges[*at];
    step(*at, parts[*at], parts[*at + 1], made);
    parts[*at] = {parts[*at].piece + parts[*at + 1].piece, made.id, parts[*at].token};
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(*at) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(*at) + 1);
    merges[*at] = look(*at);
    if (*at > 0) merges[*at - 1] = look(*at - 1);
  }
}

// A token's characters, or the token itself where merging them does not lead to it: bytes, added tokens, whole words that the
// tokenizer looks up. Merges inside a token do not depend on its neighbors: each was the first among all candidates, so it is
// the first among those inside.
std::vector<Part> parts_of(const Tokenizer& tokenizer, int32_t id, size_t token) {
  const std::string piece = tokenizer.piece(id);
  const std::vector<std::string> characters = characters_of(piece);
  const std::vector<Part> whole = {{piece, id, token}};
  if (characters.size() < 2 || characters.size() > kMostCharacters) return whole;
  std::vector<Part> parts;
  for (const std::string& c : characters) parts.push_back({c, tokenizer.find(c).value_or(-1), token});
  std::vector<Part> merged = parts;
  merge_all(tokenizer, merged, [](size_t, const Part&, const Part&, const PieceMerge&) {});
  return merged.size() == 1 && merged[0].id == id ? parts : whole;
}

bool is_byte_piece(std::string_view piece) { return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with(">"); }

std::vector<int32_t> plain_ids(const Studio& studio) {
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  std::vector<int32_t> ids;
  for (const int32_t id : studio.prompt.ids)
    if (id < tokenizer.vocab_size() && !tokenizer.is_control(id)) ids.push_back(id);
  return ids;
}

// Text in parts that merge only inside a token, and how the tokenizer cuts it if it knows no pairs above an order.
struct Cut {
  std::vector<std::vector<Part>> tokens;  // each in its characters

  Cut(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
    for (size_t i = 0; i < ids.size(); ++i) tokens.push_back(parts_of(tokenizer, ids[i], i));
  }
  template <class Step>
  std::vector<Part> merged(const Tokenizer& tokenizer, double most, Step&& step) const {
    std::vector<Part> all;
    for (std::vector<Part> parts : tokens) {
      merge_all(tokenizer, parts, [&](size_t, const Part& l, const Part& r, const PieceMerge& made) { step(l, r, made); }, most);
      std::move(parts.begin(), parts.end(), std::back_inserter(all));
    }
    return all;
  }
};

// The beginning of the fables in examples/, whole words.
std::string_view passage() {
  constexpr size_t kBytes = 1500;
  const std::string_view text = shipped_text("examples/fables.txt");
  return text.substr(0, text.size() <= kBytes ? text.size() : text.rfind(' ', kBytes));
}

struct Split {
  std::vector<int32_t> ids;
  bool chosen = false;
  double logprob = 0;
};

// The splits of `text` into the model's tokens with the fewest of them, at most kSplitsKept + 1 of them, and how many there are
// in all.
struct Lattice {
  std::vector<std::vector<int32_t>> fewest;
  double count = 0;
};
Lattice cut_every_way(const Tokenizer& tokenizer, int64_t vocab_size, const std::string& text) {
  std::vector<double> ways(text.size() + 1);
  std::vector<std::vector<std::vector<int32_t>>> best(text.size() + 1);
  ways[0] = 1;
  best[0] = {{}};
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (ways[begin] == 0) continue;
    for (size_t end = begin + 1; end <= std::min(text.size(), begin + kLongestPiece); ++end) {
      const std::string_view piece = std::string_view(text).substr(begin, end - begin);
      const std::optional<int32_t> id = tokenizer.find(piece);
      if (!id || *id >= vocab_size || tokenizer.is_control(*id) || is_byte_piece(piece)) continue;
      ways[end] += ways[begin];
      for (std::vector<int32_t> split : best[begin]) {
        split.push_back(*id);
        const auto place = std::upper_bound(best[end].begin(), best[end].end(), split,
                                            [](const auto& a, const auto& b) { return a.size() < b.size(); });
        best[end].insert(place, std::move(split));
      }
      if (best[end].size() > kSplitsKept + 1) best[end].resize(kSplitsKept + 1);
    }
  }
  return {best.back(), ways.back()};
}

// For each text the sum of ln p of its tokens but the first, each given those before it. All are run in one step, so that the
// weights are read once.
std::vector<double> joint_logprobs(Engine& engine, const std::vector<std::vector<int32_t>>& texts) {
  std::vector<double> sums(texts.size());
  Step step;
  std::vector<std::pair<size_t, int32_t>> next;  // by row: its text, and the token that follows
  for (size_t text = 0; text < texts.size(); ++text) {
    const std::span<const int32_t> ids = texts[text];
    engine.check_ids(ids);
    if (ids.size() < 2) continue;
    step.add(ids.first(ids.size() - 1));
    for (const int32_t id : ids.subspan(1)) next.emplace_back(text, id);
  }
  if (next.empty()) return sums;
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  const Tensor x = engine.model().residual(ctx, step);
  for (int64_t begin = 0; begin < step.rows(); begin += kLogitRows) {
    const auto part = ctx.frame();
    std::vector<int64_t> rows(static_cast<size_t>(std::min(kLogitRows, step.rows() - begin)));
    std::iota(rows.begin(), rows.end(), begin);
    const Tensor z = logits(ctx, x, engine.model().head(), rows);
    if (first_not_finite(z) >= 0) engine.report_not_finite(step, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::span<const float> row(z.row<float>(static_cast<int64_t>(i)), static_cast<size_t>(z.row_size()));
      const auto& [text, id] = next[static_cast<size_t>(rows[i])];
      sums[text] += static_cast<double>(row[static_cast<size_t>(id)]) - log_sum_exp(row);
    }
  }
  return sums;
}

}  // namespace

std::string Studio::piece(int32_t id) const {
  return (spelled() ? engine.piece(id) : std::nullopt).value_or("#" + std::to_string(id));
}

PictureJson data_of_tokens(Studio& studio) {
  if (!studio.spelled()) return absent("This model has no tokenizer; its prompt was given as token ids.");
  const int64_t n = studio.tokens();
  constexpr size_t kMostBytes = 4096;
  PictureJson p = present(
      "The prompt as the model reads it: each piece is one entry of the vocabulary, with its number and the bytes of the text "
      "that it "
      "stands for. Pieces without bytes, such as a mark for the beginning, are added by the tokenizer.",
      studio.prompt.text
          ? fmt::format("{} of text become{} {} of a vocabulary of {}.", plural(studio.prompt.text->size(), "byte"),
                        studio.prompt.text->size() == 1 ? "s" : "", plural(n, "token"), studio.engine.tokenizer().vocab_size())
      : n == 1 ? std::string("1 token, given by its id.")
               : fmt::format("{} tokens, given by their ids.", n));
  p["bytes"] = nullptr;
  if (studio.prompt.text) {
    p["bytes"] = PictureJson::array();
    for (const char c : std::string_view(*studio.prompt.text).substr(0, kMostBytes))
      p["bytes"].push_back(static_cast<unsigned char>(c));
  }
  p["bytesTotal"] = studio.prompt.text ? studio.prompt.text->size() : 0;
  p["vocabSize"] = studio.engine.tokenizer().vocab_size();
  p["tokenizer"] = studio.engine.tokenizer().description();
  p["spans"] = PictureJson::array();  // of the bytes of each; nothing for those without
  for (const TokenPiece& piece : studio.prompt.pieces)
    p["spans"].push_back(piece.begin < piece.end ? PictureJson::array({piece.begin, piece.end})
                                                 : PictureJson::array({nullptr, nullptr}));
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["at", "#0"], ["id", "/tokens.*.id"], ["piece", "/tokens.*.piece", "piece"], ["from byte", "spans.*.0"], ["to", "spans.*.1"], ["control", "/tokens.*.control"]]}
  ])json");
  return p;
}

PictureJson data_of_merges(Studio& studio) {
  if (!studio.spelled()) return absent("This model has no tokenizer; its prompt was given as token ids.");
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  std::vector<int32_t> ids = plain_ids(studio);
  if (ids.empty()) return absent("The prompt holds no text, so nothing was merged. Give it a word.");
  const bool cut = ids.size() > kMostTraced;
  ids.resize(std::min(ids.size(), kMostTraced));
  std::vector<Part> parts;
  for (size_t i = 0; i < ids.size(); ++i)
    for (Part& part : parts_of(tokenizer, ids[i], i)) parts.push_back(std::move(part));
  if (parts.size() == ids.size() &&
      std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return characters_of(tokenizer.piece(id)).size() > 1; }))
    return absent("This tokenizer does not build its tokens by merging pairs: it looks for pieces of the vocabulary directly.");
  PictureJson p = present(
      "Byte-pair encoding starts from single characters or bytes and joins the two neighbors whose pair training found "
      "earliest, "
      "again and again, until no pair is in the list.",
      "");
  p["start"] = p["steps"] = PictureJson::array();
  for (const Part& part : parts) p["start"].push_back({{"id", part.id}, {"piece", part.piece}});
  const size_t start = parts.size();
  merge_all(tokenizer, parts, [&](size_t at, const Part& left, const Part& right, const PieceMerge& made) {
    p["steps"].push_back({{"at", at},
                          {"left", left.id},
                          {"right", right.id},
                          {"id", studio.mention(made.id)},
                          {"piece", left.piece + right.piece},
                          {"parts", {left.piece, right.piece}},
                          {"order", number(made.order)}});
  });
  p["end"] = PictureJson::array();
  for (const Part& part : parts) p["end"].push_back(studio.mention(part.id));
  p["cut"] = cut;
  p["orderNote"] =
      "order: the rank of the merge in the tokenizer's file (or minus the score of the joined piece); the lowest merges first";
  p["alt"] = fmt::format("{} become{} {} in {}.", plural(start, "part"), start == 1 ? "s" : "", plural(parts.size(), "token"),
                         plural(start - parts.size(), "merge"));
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["merge", "#0", "ordinal"], ["order", "steps.*.order"], ["left", "steps.*.parts.0", "piece"], ["right", "steps.*.parts.1", "piece"],
       ["joined", "steps.*.piece", "piece"], ["id", "steps.*.id"]]}
  ])json");
  return p;
}

// Training adds one entry after the other to the vocabulary, so their ids have its order. A vocabulary with the first k of them
// cuts a text as this one does with every later one left out.
PictureJson data_of_vocabulary_size(Studio& studio) {
  if (!studio.spelled()) return absent("This model has no tokenizer; its prompt was given as token ids.");
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  std::vector<Part> parts;
  size_t token = 0;
  for (const int32_t id : tokenizer.encode(kFable, false, Special::text))
    for (Part& part : parts_of(tokenizer, id, token++)) parts.push_back(std::move(part));
  const size_t characters = parts.size();
  std::vector<std::pair<double, int32_t>> joined;  // order of the merge, and what it made
  merge_all(tokenizer, parts,
            [&](size_t, const Part&, const Part&, const PieceMerge& made) { joined.emplace_back(made.order, made.id); });
  if (joined.empty())
    return absent("This tokenizer does not build its tokens by merging pairs, so its vocabulary has no smaller ones inside it.");
  std::sort(joined.begin(), joined.end());
  if (!std::is_sorted(joined.begin(), joined.end(), [](const auto& a, const auto& b) { return a.second < b.second; }))
    return absent("The ids of this vocabulary do not follow the order of its merges, so its smaller vocabularies are not known.");
  std::vector<int32_t> entries;  // made by merges: longer than a character, and no byte or mark
  const int32_t vocab_size = tokenizer.vocab_size();
  for (int32_t id = 0; id < vocab_size; ++id) {
    const std::string piece = tokenizer.piece(id);
    if (!tokenizer.is_control(id) && !is_byte_piece(piece) && !piece.empty() && utf8_at(piece, 0).size < piece.size())
      entries.push_back(id);
  }
  const auto made = static_cast<int64_t>(entries.size());
  const int64_t alphabet = vocab_size - made;
  std::vector<int64_t> merges = {0};
  for (int64_t k = 16; k < made; k *= 2) merges.push_back(k);
  merges.push_back(made);

  PictureJson p = present("", "");
  p["merges"] = merges;
  p["tokens"] = p["entries"] = p["table"] = p["bytesPerToken"] = PictureJson::array();
  const auto bytes = static_cast<double>(kFable.size());
  for (const int64_t k : merges) {
    const int32_t first_left_out = k < made ? entries[static_cast<size_t>(k)] : vocab_size;
    const auto done = std::count_if(joined.begin(), joined.end(), [&](const auto& one) { return one.second < first_left_out; });
    const size_t tokens = characters - static_cast<size_t>(done);
    p["entries"].push_back(alphabet + k);
    p["tokens"].push_back(tokens);
    p["bytesPerToken"].push_back(number(bytes / static_cast<double>(tokens)));
    p["table"].push_back((alphabet + k) * studio.facts.shape.d_model);
  }
  p["text"] = std::string(kFable);
  p["bytes"] = kFable.size();
  p["dModel"] = studio.facts.shape.d_model;
  p["vocabSize"] = vocab_size;
  p["caption"] = fmt::format(
      "How long a text of {} bytes is in tokens when only the first entries that training merged are known. Each adds a row of "
      "{} "
      "numbers to the embedding table; the text becomes shorter, first quickly, then slowly.",
      kFable.size(), studio.facts.shape.d_model);
  p["alt"] = fmt::format("{} tokens without any merge, with {} entries; {} tokens with all {} entries.", characters, alphabet,
                         parts.size(), vocab_size);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "a text of {bytes} bytes", "columns": [["merges", "merges.*", "count"], ["vocabulary", "entries.*", "count"], ["tokens", "tokens.*", "count"],
       ["bytes/token", "bytesPerToken.*", ".2f"], ["numbers in the embedding table", "table.*", "count"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Tokens of one text by the size of the vocabulary.", "height": 260,
     "x": {"label": "entries of the vocabulary", "log": true}, "y": {"label": "tokens of the text", "zero": true},
     "series": [{"name": "tokens", "named": false, "tone": "attention", "draw": "both", "x": "entries.*", "y": "tokens.*",
       "hint": "{entries.*|count} entries\n{tokens.*|count} tokens, {bytesPerToken.*|.2f} bytes each\nthe embedding table has {table.*|count} numbers"}]}
  ])json");
  return p;
}

PictureJson data_of_splits(Studio& studio) {
  if (!studio.spelled()) return absent("This model has no tokenizer; its prompt was given as token ids.");
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  std::vector<int32_t> own;
  std::string spelled;
  for (const int32_t id : plain_ids(studio)) {
    const std::string piece = tokenizer.piece(id);
    // Bytes and added tokens are not spelled by other pieces; the split ends in front of them.
    if (piece.empty() || is_byte_piece(piece) || tokenizer.find(piece) != id || spelled.size() + piece.size() > kMostSplitBytes)
      break;
    own.push_back(id);
    spelled += piece;
  }
  if (own.empty()) return absent("The prompt does not begin with text that can be cut in several ways. Begin it with a word.");
  const int64_t vocab_size = studio.facts.shape.vocab_size;  // the tokenizer's may be larger
  const Lattice lattice = cut_every_way(tokenizer, vocab_size, spelled);

  std::vector<Split> splits = {{own, true, 0}};
  const auto add = [&](const std::vector<int32_t>& ids) {
    const bool known = std::any_of(splits.begin(), splits.end(), [&](const Split& s) { return s.ids == ids; });
    if (!known) splits.push_back({ids, false, 0});
  };
  for (const auto& ids : lattice.fewest)
    if (splits.size() <= kSplitsKept) add(ids);
  std::vector<int32_t> single;
  for (const std::string& c : characters_of(spelled)) single.push_back(tokenizer.find(c).value_or(-1));
  if (std::all_of(single.begin(), single.end(), [&](int32_t id) { return id >= 0 && id < vocab_size; })) add(single);
  const std::optional<int32_t> bos = tokenizer.adds_bos() ? tokenizer.bos() : std::nullopt;
  std::vector<std::vector<int32_t>> whole;
  for (const Split& split : splits) {
    std::vector<int32_t>& ids = whole.emplace_back(split.ids);
    if (bos) ids.insert(ids.begin(), *bos);
    if (studio.facts.shape.context_length > 0 && std::ssize(ids) > studio.facts.shape.context_length)
      return absent("The prompt's splits are longer than the model's context.");
  }
  const std::vector<double> logprobs = joint_logprobs(studio.engine, whole);
  for (size_t i = 0; i < splits.size(); ++i) splits[i].logprob = logprobs[i];
  std::sort(splits.begin(), splits.end(),
            [](const Split& a, const Split& b) { return a.logprob != b.logprob ? a.logprob > b.logprob : a.ids < b.ids; });
  const size_t rank =
      static_cast<size_t>(std::find_if(splits.begin(), splits.end(), [](const Split& s) { return s.chosen; }) - splits.begin());
  PictureJson p = present(
      "The same string, cut in other ways by the same vocabulary, with the probability that the model gives to each. The "
      "tokenizer "
      "always gives one of them; models are trained on that one, so the others are usually less likely.",
      fmt::format("There are about 10^{:.1f} ways to cut it. Of the {} shown, the tokenizer's own is number {} by probability.",
                  std::log10(lattice.count), splits.size(), rank + 1));
  p["spelled"] = spelled;
  p["log10Count"] = number(std::log10(lattice.count));
  p["splits"] = PictureJson::array();
  for (const Split& split : splits) {
    PictureJson pieces = PictureJson::array();
    for (const int32_t id : split.ids) pieces.push_back(tokenizer.piece(studio.mention(id)));
    p["splits"].push_back({{"ids", split.ids},
                           {"pieces", pieces},
                           {"chosen", split.chosen},
                           {"logprob", number(split.logprob)},
                           {"bitsPerByte", number(-split.logprob / std::log(2.0) / static_cast<double>(spelled.size()))}});
  }
  p["tables"] = PictureJson::parse(R"json([
    {"note": "ln p of each split, * marks the tokenizer's own", "columns": [["ln p", "splits.*.logprob", ".2f"], ["bits/byte", "splits.*.bitsPerByte", ".3f"],
       ["tokens", "splits.*.ids.length"], ["", "splits.*.chosen", "*"], ["pieces", "splits.*.pieces"]]}
  ])json");
  return p;
}

PictureJson data_of_vocabulary_growth(Studio& studio) {
  if (!studio.spelled()) return absent("This model has no tokenizer; its prompt was given as token ids.");
  constexpr size_t kMostCut = 32;  // tokens of the prompt that are shown in parts
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  const std::string_view text = passage();
  if (text.empty()) return absent("This build has no passage to cut: build it with examples/fables.txt.");
  const Cut whole(tokenizer, tokenizer.encode(text, false));
  struct Used {
    PieceMerge made{};
    std::string left, right;
    int64_t times = 0;
  };
  std::map<double, Used> used;  // by order
  const std::vector<Part> end = whole.merged(tokenizer, std::numeric_limits<double>::infinity(),
                                             [&](const Part& left, const Part& right, const PieceMerge& made) {
                                               Used& one = used[made.order];
                                               if (one.times++ == 0)
                                                 one.made = made, one.left = left.piece, one.right = right.piece;
                                             });
  if (used.empty())
    return absent("This tokenizer does not build its tokens by merging pairs: it looks for pieces of the vocabulary directly.");
  const bool ranks =
      std::all_of(used.begin(), used.end(), [](const auto& one) { return one.first >= 0 && one.first == std::floor(one.first); });

  // Cut once more at growing numbers of known pairs: after each of the first ones, then ever further apart.
  constexpr double kFirst = 24, kApart = 1.15;
  PictureJson steps = PictureJson::array();
  std::vector<int32_t> ids = plain_ids(studio);
  ids.resize(std::min(ids.size(), kMostCut));
  const Cut prompt(tokenizer, ids);
  const auto none = [](const Part&, const Part&, const PieceMerge&) {};
  const auto known_at = [&](double order, size_t place) { return ranks ? order + 1 : static_cast<double>(place); };
  double next = 0;
  size_t place = 0;
  const size_t start = whole.merged(tokenizer, -std::numeric_limits<double>::infinity(), none).size();
  for (const auto& [order, one] : used) {
    ++place;
    const double known = known_at(order, place);
    if (place > kFirst && known < next && place < used.size()) continue;
    next = known * kApart;
    const size_t tokens = whole.merged(tokenizer, order, none).size();
    PictureJson pieces = PictureJson::array();
    for (const Part& part : prompt.merged(tokenizer, order, none)) pieces.push_back(part.piece);
    steps.push_back({{"known", number(known)},
                     {"left", one.left},
                     {"right", one.right},
                     {"piece", one.left + one.right},
                     {"id", studio.mention(one.made.id)},
                     {"times", one.times},
                     {"tokens", tokens},
                     {"bytesPerToken", number(static_cast<double>(text.size()) / static_cast<double>(tokens))},
                     {"tokensPerByte", number(static_cast<double>(tokens) / static_cast<double>(text.size()))},
                     {"pieces", std::move(pieces)}});
  }
  const PictureJson& first = steps[0];
  PictureJson p = present(
      fmt::format(
          "How a passage of {} bytes is cut while the vocabulary grows. Each step adds the pair that training joined next, "
          "as one more entry; the passage is cut again by the pairs known so far. Pairs that the passage does not contain "
          "are left out.",
          text.size()),
      fmt::format("From {} to {}. The first pair that this passage uses is \"{}\" + \"{}\", {}.", plural(start, "part"),
                  plural(end.size(), "token"), first.at("left").get<std::string>(), first.at("right").get<std::string>(),
                  plural(first.at("times").get<int64_t>(), "time")));
  p["passage"] = std::string(text);
  p["start"] = start;
  p["end"] = end.size();
  p["bytes"] = text.size();
  p["used"] = used.size();
  p["vocabSize"] = tokenizer.vocab_size();
  p["prose"] = {{"first", with_spaces(first.at("piece").get<std::string>())}, {"start", start}, {"end", end.size()}};
  p["steps"] = std::move(steps);
  p["tables"] = PictureJson::parse(R"json([
    {"note": "pairs in the order of training, and what they do to the passage", "keep": "spread", "columns": [["pairs known", "steps.*.known", "count"], ["left", "steps.*.left", "piece"],
       ["right", "steps.*.right", "piece"], ["new piece", "steps.*.piece", "piece"], ["joined", "steps.*.times"], ["tokens", "steps.*.tokens"],
       ["tokens per byte", "steps.*.tokensPerByte", ".3f"]]},
    {"note": "the prompt, by the pairs known so far", "detail": true, "columns": [["pairs known", "steps.*.known", "count"], ["pieces", "steps.*.pieces"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Tokens per byte of the passage against the number of pairs in the vocabulary.",
     "x": {"label": "pairs in the vocabulary, log", "log": true}, "y": {"label": "tokens per byte", "zero": true},
     "series": [
       {"name": "tokens per byte", "named": false, "tone": "attention", "draw": "both", "x": "steps.*.known", "y": "steps.*.tokensPerByte",
        "hint": "{steps.*.known|count} pairs; the last one seen here: {steps.*.left|piece} + {steps.*.right|piece}\n{steps.*.tokens|count} tokens, {steps.*.tokensPerByte} for each byte"}]},
    {"kind": "remark", "text": "{start} parts at first, {end} tokens with the whole vocabulary of {vocabSize|count}. The first pair: {steps.0.left|piece} + {steps.0.right|piece}."}
  ])json");
  return p;
}

}  // namespace vitrine
