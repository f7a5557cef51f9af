// Pictures of the embedding table and of position vectors.
#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "ops/embed.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  const double lengths = std::sqrt(dot(a, a) * dot(b, b));
  return lengths > 0 ? dot(a, b) / lengths : 0;
}

// Stored rows of the embedding table, as f32.
std::vector<float> rows_of(Studio& studio, std::span<const int32_t> ids) {
  Context& ctx = studio.engine.context();
  const auto frame = ctx.frame();
  const Tensor rows = embed(ctx, ids, *studio.facts.parameters.matrix("W_E"));
  if (const int64_t bad = first_not_finite(rows); bad >= 0)
    throw RunError(
        fmt::format("NaN or infinity in the embedding of token {}. Do the weights hold NaN?", ids[static_cast<size_t>(bad)]));
  return {rows.data<float>(), rows.data<float>() + rows.count()};
}

// Cosines of n rows of equal width with each other.
std::vector<std::vector<double>> cosines(std::span<const float> rows, size_t n) {
  const size_t width = rows.size() / n;
  std::vector<std::vector<double>> grid(n, std::vector<double>(n, 1));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j)
      grid[i][j] = grid[j][i] = cosine(rows.subspan(i * width, width), rows.subspan(j * width, width));
  return grid;
}

std::vector<double> lengths(std::span<const float> rows, size_t n) {
  const size_t width = rows.size() / n;
  std::vector<double> result;
  for (size_t i = 0; i < n; ++i) result.push_back(std::sqrt(dot(rows.subspan(i * width, width), rows.subspan(i * width, width))));
  return result;
}

// The token that a word is where a text goes on with it: with a space in front if the vocabulary has it so.
std::optional<int32_t> token_of(const Studio& studio, const std::string& word) {
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  for (const char* space : {"\xE2\x96\x81", "\xC4\xA0", ""})  // ▁, Ġ
    if (const auto id = tokenizer.find(space + word); id && *id < studio.facts.shape.vocab_size) return id;
  return {};
}

// What a word is where a text goes on with it: one token, or the tokens that spell it. Empty: the vocabulary has no spelling.
std::vector<int32_t> tokens_of(const Studio& studio, const std::string& word) {
  if (const auto id = token_of(studio, word)) return {*id};
  const Tokenizer& tokenizer = studio.engine.tokenizer();
  std::vector<int32_t> best;
  for (const std::string& text : {" " + word, word}) {  // some tokenizers put the space there by themselves
    const std::vector<int32_t> ids = tokenizer.encode(text, false, Special::text);
    const bool spelled = !ids.empty() && std::all_of(ids.begin(), ids.end(), [&](int32_t id) {
      return id < studio.facts.shape.vocab_size && !tokenizer.is_control(id) && tokenizer.unknown() != id;
    });
    if (spelled && (best.empty() || ids.size() < best.size())) best = ids;
  }
  return best;
}

struct Chosen {
  std::vector<std::vector<int32_t>> ids;  // of each word
  std::vector<std::string> labels, groups, missing;
  void add(std::vector<int32_t> tokens, const std::string& label, const std::string& group) {
    if (std::find(ids.begin(), ids.end(), tokens) != ids.end()) return;
    ids.push_back(std::move(tokens));
    labels.push_back(label);
    groups.push_back(group);
  }
  void add(const Studio& studio, int32_t id, const std::string& group) { add({id}, studio.piece(id), group); }
};

Chosen choose_words(Studio& studio) {
  Chosen chosen;
  const auto add = [&](const std::string& group, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
      std::vector<int32_t> tokens = tokens_of(studio, word);
      if (tokens.empty()) {
        chosen.missing.push_back(word);
      } else if (tokens.size() == 1) {
        chosen.add(studio, tokens[0], group);
      } else {
        const std::string label = fmt::format("{} ({})", word, tokens.size());
        chosen.add(std::move(tokens), label, group);
      }
    }
  };
  if (!studio.options.words.empty()) {
    if (!studio.spelled()) throw InputError("this model has no tokenizer, so words cannot be looked up. Leave them out");
    add("chosen", studio.options.words);
    std::string list;
    for (const std::string& word : chosen.missing) list += (list.empty() ? "\"" : ", \"") + word + "\"";
    if (!list.empty()) throw InputError("this vocabulary cannot spell these words: " + list + ". Leave them out");
    if (chosen.ids.size() < 2) throw InputError("one word was given; a cosine needs two or more");
    return chosen;
  }
  if (studio.spelled()) {
    add("colors", {"red", "green", "blue", "golden"});
    add("places", {"London", "Paris", "Tokyo", "castle", "forest"});
    add("adjectives", {"pleasant", "vibrant", "little", "great"});
    add("people", {"king", "queen", "man", "woman"});
    add("others", {"with"});
  }
  constexpr size_t kFew = 4, kMost = 24;
  if (chosen.ids.size() < kFew)
    for (const int32_t id : studio.prompt.ids)
      if (chosen.ids.size() < kMost) chosen.add(studio, id, "prompt");
  return chosen;
}

// A row for each word: its token's embedding, or the mean of its tokens' embeddings.
std::vector<float> mean_rows(Studio& studio, const std::vector<std::vector<int32_t>>& words) {
  std::vector<float> means;
  for (const std::vector<int32_t>& ids : words) {
    const std::vector<float> rows = rows_of(studio, ids);
    const size_t width = rows.size() / ids.size();
    for (size_t i = 0; i < width; ++i) {
      double sum = 0;
      for (size_t r = 0; r < ids.size(); ++r) sum += static_cast<double>(rows[r * width + i]);
      means.push_back(static_cast<float>(sum / static_cast<double>(ids.size())));
    }
  }
  return means;
}

struct Term {
  int sign;
  int32_t id;
};

// "king - man + woman". Signs stand alone between words.
std::vector<Term> parse_sum(Studio& studio, const std::string& text) {
  const auto fail = [&](const std::string& problem) {
    throw InputError("the sum \"" + text + "\" " + problem + "; expected words and signs in turn, such as: king - man + woman");
  };
  if (!studio.spelled()) throw InputError("this model has no tokenizer, so the words of a sum cannot be looked up. Leave it out");
  std::vector<Term> terms;
  std::istringstream words(text);
  std::string word;
  int sign = 1;
  bool wants_word = true;
  while (words >> word) {
    if (wants_word) {
      if (word == "+" || word == "-") fail("has a sign where a word should stand");
      const auto id = token_of(studio, word);
      if (!id) fail("has the word \"" + word + "\", which is no single token of this vocabulary");
      terms.push_back({sign, *id});
    } else {
      if (word != "+" && word != "-") fail("has \"" + word + "\" where a sign should stand");
      sign = word == "+" ? 1 : -1;
    }
    wants_word = !wants_word;
  }
  if (terms.empty() || wants_word) fail(terms.empty() ? "is empty" : "ends with a sign");
  return terms;
}

}  // namespace

PictureJson data_of_embedding_cosine(Studio& studio) {
  const Chosen chosen = choose_words(studio);
  if (chosen.ids.size() < 2) return absent("The prompt has a single token, so there is no pair to compare.");
  const size_t n = chosen.ids.size();
  const std::vector<float> rows = mean_rows(studio, chosen.ids);
  const auto grid = cosines(rows, n);
  std::pair<size_t, size_t> nearest{1, 0};
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j)
      if (grid[i][j] > grid[nearest.first][nearest.second]) nearest = {i, j};
  const bool means = std::any_of(chosen.ids.begin(), chosen.ids.end(), [](const auto& ids) { return ids.size() > 1; });
  PictureJson p = present(
      fmt::format(
          "Cosine of the angle between embeddings, a · b / √(a·a · b·b): 1 for the same direction, 0 for no similarity. In "
          "a trained model, words that are used alike tend to point in similar directions.{}",
          means ? " A word with a number behind it has that many tokens in this vocabulary; its row is their mean, which "
                  "says less than one embedding."
                : ""),
      fmt::format("{} by {} grid. The nearest pair is \"{}\" and \"{}\" with {:.3f}.", n, n, chosen.labels[nearest.first],
                  chosen.labels[nearest.second], grid[nearest.first][nearest.second]));
  p["words"] = PictureJson::array();
  for (size_t i = 0; i < n; ++i) {
    PictureJson pieces = PictureJson::array();
    for (const int32_t id : chosen.ids[i]) pieces.push_back(studio.piece(studio.mention(id)));
    p["words"].push_back(
        {{"label", chosen.labels[i]}, {"ids", chosen.ids[i]}, {"pieces", pieces}, {"tokens", chosen.ids[i].size()}});
  }
  p["groups"] = chosen.groups;
  p["cosine"] = table(grid);
  p["lengths"] = numbers(lengths(rows, n));
  p["missing"] = chosen.missing;
  p["wide"] = n > 14;
  p["tables"] = PictureJson::parse(R"json([
    {"note": "cosines", "grid": {"corner": "word", "rows": "{words.#0.label|piece}", "columns": "{words.#1.label|piece}", "values": "cosine.*.*", "square": true}},
    {"detail": true, "columns": [["word", "words.*.label", "piece"], ["tokens", "words.*.tokens"], ["pieces", "words.*.pieces"], ["group", "groups.*"], ["length", "lengths.*"]]},
    {"detail": true, "columns": [["not to be spelled in this vocabulary", "missing.*"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "grid", "label": "Cosine between embeddings.", "values": "cosine.*.*", "rows": "{words.#0.label|piece}", "columns": "{words.#1.label|piece}",
     "scale": "diverging", "most": 1, "cell": 46, "write": ".2f",
     "hint": "{words.#0.label|piece} and {words.#1.label|piece}\ncosine {cosine.*.*}\ngroups: {groups.#0}, {groups.#1}\nlengths {lengths.#0} and {lengths.#1}",
     "key": {"label": "cosine: 1 is the same direction", "low": "−1", "high": "1"}}
  ])json");
  return p;
}

PictureJson data_of_embedding_neighbors(Studio& studio) {
  std::vector<Term> terms;
  if (!studio.options.sum.empty()) {
    terms = parse_sum(studio, studio.options.sum);
  } else if (studio.spelled() && token_of(studio, "king") && token_of(studio, "man") && token_of(studio, "woman")) {
    terms = parse_sum(studio, "king - man + woman");
  } else {
    std::vector<int32_t> distinct;
    for (const int32_t id : studio.prompt.ids)
      if (std::find(distinct.begin(), distinct.end(), id) == distinct.end()) distinct.push_back(id);
    if (distinct.size() < 3) return absent("The prompt has fewer than three different tokens to add and subtract.");
    terms = {{1, distinct[0]}, {-1, distinct[1]}, {1, distinct[2]}};
  }
  std::vector<float> sum(static_cast<size_t>(studio.facts.shape.d_model));
  for (const Term& term : terms) {
    const std::vector<float> row = rows_of(studio, std::span(&term.id, 1));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float>(term.sign) * row[i];
  }
  if (dot(sum, sum) == 0) throw InputError("--sum adds up to zero, which is near to nothing; leave one of its words out");

  // Every row of the table, a part at a time.
  constexpr int32_t kPart = 512;
  const auto vocab = static_cast<int32_t>(studio.facts.shape.vocab_size);
  std::vector<double> likeness(static_cast<size_t>(vocab));
  for (int32_t first = 0; first < vocab; first += kPart) {
    std::vector<int32_t> ids;
    for (int32_t id = first; id < std::min(vocab, first + kPart); ++id) ids.push_back(id);
    const std::vector<float> rows = rows_of(studio, ids);
    studio.engine.context().pool().run(static_cast<int64_t>(ids.size()), [&](int64_t i, int) {
      const size_t at = static_cast<size_t>(i);
      likeness[static_cast<size_t>(ids[at])] = cosine(std::span(rows).subspan(at * sum.size(), sum.size()), sum);
    });
  }
  std::vector<int32_t> order(likeness.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  const size_t shown = std::min<size_t>(10 + terms.size(), order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(), [&](int32_t a, int32_t b) {
    const double la = likeness[static_cast<size_t>(a)], lb = likeness[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  });

  std::string expression;
  PictureJson written = PictureJson::array();
  for (const Term& term : terms) {
    expression += (expression.empty() ? (term.sign < 0 ? "−" : "") : term.sign > 0 ? " + " : " − ") + studio.piece(term.id);
    written.push_back({{"sign", term.sign}, {"id", studio.mention(term.id)}});
  }
  PictureJson neighbors = PictureJson::array();
  std::string nearest;
  for (size_t i = 0; i < shown; ++i) {
    const bool term = std::any_of(terms.begin(), terms.end(), [&](const Term& t) { return t.id == order[i]; });
    if (!term && nearest.empty()) nearest = studio.piece(order[i]);
    neighbors.push_back(
        {{"id", studio.mention(order[i])}, {"cosine", number(likeness[static_cast<size_t>(order[i])])}, {"term", term}});
  }
  PictureJson p =
      present(fmt::format("The embeddings nearest, by cosine, to the sum {}. The words of the sum itself are usually among them.",
                          expression),
              fmt::format("Beside the words of the sum, the nearest is \"{}\".", nearest));
  p["terms"] = std::move(written);
  p["neighbors"] = std::move(neighbors);
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["rank", "#0", "ordinal"], ["token", "neighbors.*.id", "token"], ["cosine", "neighbors.*.cosine", ".4f"], ["", "neighbors.*.term", "in the sum"]]}
  ])json");
  p["sum"] = expression;
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "title": "{sum} ≈ ?", "label": "Tokens nearest to the sum.", "name": "{neighbors.*.id|token}", "value": "neighbors.*.cosine", "most": 1,
     "faint": "neighbors.*.term", "note": "{neighbors.*.cosine|.2f}{neighbors.*.term|, part of the sum}",
     "hint": "{neighbors.*.id|token}\ncosine with the sum {neighbors.*.cosine}{neighbors.*.term|\nitself part of the sum}\nid {neighbors.*.id}"}
  ])json");
  return p;
}

std::string likeness_of_positions(const Studio& studio) {
  constexpr double kClearly = 0.1;
  const Observation& seen = studio.seen;
  const size_t n = seen.positions.size();
  if (n < 3 || seen.position_rows.empty()) return "";
  const auto grid = cosines(seen.position_rows, n);
  double near = 0, far = 0;
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) (i == j + 1 ? near : far) += grid[i][j];
  near /= static_cast<double>(n - 1);
  far /= static_cast<double>((n - 1) * (n - 2) / 2);
  const int64_t apart = seen.positions[1] - seen.positions[0];
  return fmt::format("The mean cosine of {} is {:.3f}, that of all other pairs {:.3f}: neighbors are {}.",
                     apart == 1 ? "neighbors" : fmt::format("positions {} apart", apart), near, far,
                     near > far + kClearly   ? "more alike than distant positions"
                     : near < far - kClearly ? "less alike than distant positions"
                                             : "about as alike as distant positions");
}

PictureJson data_of_position_vectors(Studio& studio) {
  const ModelFacts& facts = studio.facts;
  if (facts.positions == Positions::rotary)
    return absent("This model adds no position vectors: rotary positions turn its queries and keys instead.");
  if (facts.positions == Positions::alibi)
    return absent("This model adds no position vectors: its scores fall with the distance of query and key (ALiBi).");
  const Observation& seen = studio.seen;
  const size_t n = seen.positions.size();
  const bool learned = facts.positions == Positions::learned;
  const auto grid = cosines(seen.position_rows, n);
  PictureJson p = present(fmt::format("Cosines between the {} position vectors that are added to the embeddings.{}",
                                      learned ? "learned" : "sinusoidal", n > 2 ? " " + likeness_of_positions(studio) : ""),
                          n > 1 ? fmt::format("{} positions. The first two have cosine {:.3f}, the first and the last {:.3f}.", n,
                                              grid[0][1], grid[0][n - 1])
                                : std::string("One position."));
  p["kind"] = learned ? "learned" : "sinusoidal";
  p["positions"] = seen.positions;
  p["cosine"] = table(grid);
  p["lengths"] = numbers(lengths(seen.position_rows, n));
  p["tokenLengths"] = numbers(lengths(seen.embed_rows, n));
  p["tables"] = PictureJson::parse(R"json([
    {"note": "cosines", "grid": {"corner": "position", "rows": "{positions.#0}", "columns": "{positions.#1}", "values": "cosine.*.*", "square": true}},
    {"detail": true, "columns": [["position", "positions.*"], ["length", "lengths.*"], ["length of the token's vector", "tokenLengths.*"]]}
  ])json");
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "grid", "label": "Cosine between position vectors.", "values": "cosine.*.*", "rows": "{positions.#0}", "columns": "{positions.#1}", "place": "positions.#1", "columnTitle": "position",
     "scale": "diverging", "most": 1, "cell": 34, "hint": "positions {positions.#0} and {positions.#1}\ncosine {cosine.*.*}",
     "key": {"label": "cosine", "low": "−1", "high": "1"}},
    {"kind": "xy", "label": "Length of each position's vector and of the token's.", "height": 220,
     "x": {"label": "position", "whole": true}, "y": {"label": "length", "zero": true},
     "series": [
       {"name": "position", "tone": "mlp", "draw": "both", "x": "positions.*", "y": "lengths.*",
        "hint": "{positions.*|place}\nlength of the position's vector {lengths.*}"},
       {"name": "token", "tone": "attention", "draw": "both", "x": "positions.*", "y": "tokenLengths.*",
        "hint": "{positions.*|place}\nlength of the token's vector {tokenLengths.*}"}]}
  ])json");
  return p;
}

}  // namespace vitrine
