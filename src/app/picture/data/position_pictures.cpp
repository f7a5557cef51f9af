// Pictures of position encodings: sinusoids beside rotations, how a rotated dot product changes with distance, rotated values.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>

#include "ops/attention.h"
#include "ops/rope.h"
#include "picture/data/normals.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

constexpr double kUsualTheta = 10000;
constexpr int64_t kUsualHead = 128;

// The model's own rotation, or for a model that has none that of Gemma and Llama 2: heads of 128, θ = 10000.
RopeSpec own_or_usual(const ModelFacts& facts) {
  return facts.rope.value_or(RopeSpec{.theta = kUsualTheta, .rotary_dim = kUsualHead});
}

std::vector<double> frequencies_of(const RopeSpec& spec) {
  const std::vector<float> all = rope_frequencies(spec);
  return {all.begin(), all.end()};
}

// Mean of cos(distance · frequency): the dot product of two equal vectors, turned, over their squared length, if each pair of
// components has the same length. So is that of two vectors of sines and cosines, over half their size.
double mean_cosine(const std::vector<double>& frequencies, double distance) {
  double sum = 0;
  for (const double f : frequencies) sum += std::cos(distance * f);
  return sum / static_cast<double>(frequencies.size());
}

// Mean of |S_j|, S_j = Σ_{i<j} e^(i · distance · frequency_i): the factor in the bound of the dot product of any two vectors
// (arXiv:2104.09864 section 3.4.3; the other factor depends on the vectors), over its value at distance 0.
double relative_factor(const std::vector<double>& frequencies, double distance) {
  std::complex<double> sum = 0;
  double bound = 0, at_zero = 0;
  for (size_t j = 0; j < frequencies.size(); ++j) {
    sum += std::polar(1.0, distance * frequencies[j]);
    bound += std::abs(sum);
    at_zero += static_cast<double>(j + 1);
  }
  return bound / at_zero;
}

Tensor random_heads(Context& ctx, int64_t rows, int64_t heads, int64_t head_dim, uint64_t seed) {
  const Tensor t = ctx.empty({rows, heads, head_dim});
  const std::vector<double> numbers = normals(seed, static_cast<size_t>(t.count()));
  std::transform(numbers.begin(), numbers.end(), t.data<float>(), [](double x) { return static_cast<float>(x); });
  return t;
}

// ‖a − b‖ / ‖b‖
double relative_difference(const Tensor& a, const Tensor& b) {
  double difference = 0, length = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    difference += (x - y) * (x - y);
    length += y * y;
  }
  return std::sqrt(difference / length);
}

}  // namespace

PictureJson data_of_position_encodings(Studio& studio) {
  constexpr int64_t kPositions = 64, kSize = 64;
  const RopeSpec own = own_or_usual(studio.facts);
  const std::vector<double> rotary = frequencies_of(own);
  PictureJson p = present(
      fmt::format(
          "Two ways to tell a model where a token stands. A vector of sines and cosines is added to the embedding: here {0} "
          "numbers for each of {1} positions, the sines first. Or pairs of a query's or key's components are rotated: here the "
          "cosine of each pair's angle, {2}.",
          kSize, kPositions,
          studio.facts.rope ? "with this model's frequencies" : "with heads of 128 and θ = 10000, as this model has no rotation"),
      "Both grids change fast from row to row on one side and hardly on the other: the short and the long wavelengths.");
  std::vector<std::vector<double>> added, turned;
  for (int64_t position = 0; position < kPositions; ++position) {
    std::vector<double>&sum = added.emplace_back(), &turn = turned.emplace_back();
    for (const bool cosine : {false, true})
      for (int64_t i = 0; i < kSize / 2; ++i) {
        const double angle =
            static_cast<double>(position) * std::pow(kUsualTheta, -2 * static_cast<double>(i) / static_cast<double>(kSize));
        sum.push_back(cosine ? std::cos(angle) : std::sin(angle));
      }
    for (const double f : rotary) turn.push_back(std::cos(static_cast<double>(position) * f));
  }
  p["size"] = kSize;
  p["sinusoids"] = table(added);
  p["rotations"] = table(turned);
  p["theta"] = number(own.theta);
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "grid", "title": "Added: sines (left half) and cosines (right half)", "label": "Sinusoidal position vectors, one row for each position.", "values": "sinusoids.*.*",
     "rows": "{#0}", "columnTitle": "component", "scale": "diverging", "most": 1, "cell": 9, "tall": 7, "hint": "position {#0}, component {#1}: {sinusoids.*.*}",
     "key": {"label": "value", "low": "-1", "high": "1"}},
    {"kind": "grid", "title": "Rotated: cosine of each pair's angle", "label": "Cosines of the angles by which pairs of components are rotated.", "values": "rotations.*.*",
     "rows": "{#0}", "columnTitle": "pair of components", "scale": "diverging", "most": 1, "cell": 9, "tall": 7, "hint": "position {#0}, pair {#1}: cosine {rotations.*.*}",
     "key": {"label": "cosine", "low": "-1", "high": "1"}}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"note": "sinusoids", "most": 12, "grid": {"corner": "position \\ component", "rows": "{#0}", "columns": "{#1}", "values": "sinusoids.*.*", "middle": 0, "reach": 1, "square": true}},
    {"note": "cosines of the rotated pairs", "most": 12, "grid": {"corner": "position \\ pair", "rows": "{#0}", "columns": "{#1}", "values": "rotations.*.*", "middle": 0, "reach": 1, "square": true}}
  ])json");
  return p;
}

PictureJson data_of_rope_decay(Studio& studio) {
  constexpr int kLongest = 256;
  constexpr double kLlama3Theta = 500000;
  const RopeSpec own = own_or_usual(studio.facts);
  const std::vector<double> frequencies = frequencies_of(own),
                            slow = frequencies_of({.theta = kLlama3Theta, .rotary_dim = own.rotary_dim});
  PictureJson p = present(
      fmt::format(
          "How the score of a query with an equal key changes as the key moves away, if every pair of components is equally "
          "long, {} components to a head. The dashed line is the factor in RoFormer's bound on the score of any query and key "
          "(section 3.4.3): only how it falls can be compared. All are 1 at distance 0.",
          own.rotary_dim),
      "");
  std::vector<double> same, bound, slower;
  for (int d = 0; d <= kLongest; ++d) {
    same.push_back(mean_cosine(frequencies, d));
    bound.push_back(relative_factor(frequencies, d));
    slower.push_back(mean_cosine(slow, d));
  }
  p["theta"] = number(own.theta);
  p["slowTheta"] = kLlama3Theta;
  p["own"] = studio.facts.rope.has_value();
  p["equal"] = numbers(same);
  p["bound"] = numbers(bound);
  p["slower"] = own.theta < kLlama3Theta ? numbers(slower) : PictureJson(nullptr);
  p["alt"] = fmt::format(
      "At distance 1 the score is {:.3f} of its value at 0, at 10 {:.3f}, at 100 {:.3f}, at {} {:.3f}: it falls "
      "with distance and wavers.",
      same[1], same[10], same[100], kLongest, same[kLongest]);
  p["prose"] = {{"at_1", number(same[1])}, {"at_10", number(same[10])}, {"at_100", number(same[100])}, {"size", own.rotary_dim}};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Score of a query with an equal key, by distance.", "height": 320,
     "x": {"label": "distance, tokens", "whole": true}, "y": {"label": "score, relative to distance 0"},
     "series": [
       {"name": "θ = {theta|count}", "tone": "attention", "draw": "line", "y": "equal.*", "hint": "distance {#0}\nscore {equal.*} of that at 0"},
       {"name": "RoFormer's factor", "tone": "plain", "draw": "line", "dashed": true, "y": "bound.*", "hint": "distance {#0}\nthe factor of the bound is {bound.*} of that at 0"},
       {"name": "θ = {slowTheta|count}", "tone": "mlp", "draw": "line", "y": "slower.*", "hint": "distance {#0}, θ = {slowTheta|count}\nscore {slower.*} of that at 0"}]},
    {"kind": "remark", "text": "A larger θ rotates the pairs more slowly, and the score falls more slowly with distance."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"keep": "spread", "most": 17, "columns": [["distance", "#0"], ["equal query and key", "equal.*", ".4f"], ["RoFormer's factor", "bound.*", ".4f"], ["with θ = {slowTheta|count}", "slower.*", ".4f"]]}
  ])json");
  return p;
}

PictureJson data_of_rotated_values(Studio& studio) {
  // The sizes of RoFormer's example in transformers: 9 tokens, 12 heads of 64.
  constexpr int64_t kTokens = 9, kHeads = 12, kHead = 64;
  constexpr std::array<int64_t, 9> kMoved = {0, 1, 2, 4, 8, 16, 32, 64, 128};
  const RopeSpec spec{.theta = kUsualTheta, .rotary_dim = kHead, .layout = RopeLayout::pairs};
  PictureJson p = present(
      "Nine tokens are moved along in a longer text, all by the same distance: how much does what attention reads change? With "
      "rotated "
      "queries and keys alone it does not, beyond rounding: only distances between tokens count. RoFormer can rotate values too "
      "(rotary_value); then what is read depends on the place. Twelve heads of 64 random numbers.",
      "");
  Context ctx(studio.engine.context().pool());
  const auto frame = ctx.frame();
  const Tensor q = random_heads(ctx, kTokens, kHeads, kHead, 1), k = random_heads(ctx, kTokens, kHeads, kHead, 2),
               v = random_heads(ctx, kTokens, kHeads, kHead, 3);
  const std::vector<int32_t> tokens(static_cast<size_t>(kTokens), 0);
  const Step here = Step::of(tokens);
  KvCache places({CacheLayer{}}, kMoved.back() + kTokens, kMoved.back() + kTokens, false);  // of positions alone
  const auto read = [&](int64_t moved, bool values) {
    CacheSequence sequence = places.sequence();
    if (moved > 0) {
      sequence.reserve(moved);
      sequence.commit(moved);
    }
    Step there;
    there.add(tokens, &sequence);
    return attention(ctx, "attn", rope(ctx, q, there, spec), rope(ctx, k, there, spec), values ? rope(ctx, v, there, spec) : v,
                     here, 0, {.scale = 1 / std::sqrt(static_cast<double>(kHead)), .causal = false});
  };
  const Tensor still = read(0, false), still_turned = read(0, true);
  p["moved"] = kMoved;
  std::vector<double> plain, turned;
  for (const int64_t moved : kMoved) {
    plain.push_back(relative_difference(read(moved, false), still));
    turned.push_back(relative_difference(read(moved, true), still_turned));
  }
  p["unrotated"] = numbers(plain);
  p["rotated"] = numbers(turned);
  p["alt"] = fmt::format("Moved by {}: without rotated values what is read changes by {:.1e} of its length, with them by {:.2f}.",
                         kMoved.back(), plain.back(), turned.back());
  p["prose"] = {{"moved", kMoved.back()}, {"plain", number(plain.back())}, {"turned", number(turned.back())}};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "xy", "label": "Change of what attention reads, by how far all tokens are moved.", "height": 260,
     "x": {"label": "moved by, positions"}, "y": {"label": "change, relative to what was read", "zero": true},
     "series": [
       {"name": "queries, keys", "tone": "attention", "draw": "both", "x": "moved.*", "y": "unrotated.*", "hint": "moved by {moved.*}\nchanges by {unrotated.*} of its length"},
       {"name": "values too", "tone": "mlp", "draw": "both", "x": "moved.*", "y": "rotated.*", "hint": "moved by {moved.*}, values rotated too\nchanges by {rotated.*} of its length"}]}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["moved by", "moved.*"], ["queries and keys rotated", "unrotated.*", ".2e"], ["values too", "rotated.*", ".4f"]]}
  ])json");
  return p;
}

}  // namespace vitrine
