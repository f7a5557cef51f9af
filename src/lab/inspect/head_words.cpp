#include "inspect/head_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/percent.h"

namespace vitrine {
namespace {

constexpr HeadRole kToldRoles[] = {HeadRole::previous, HeadRole::induction, HeadRole::duplicate, HeadRole::first};
constexpr double kMostly = 0.3;  // less is said of the best head only
constexpr size_t kNamed = 3;

std::string name_of_head(int64_t layer, int64_t head) { return std::to_string(layer) + "." + std::to_string(head); }

std::string role_sentence(const HeadScores& scores, std::span<const HeadSpectra> heads, HeadRole role) {
  std::vector<std::pair<double, const HeadSpectra*>> best;
  for (const HeadSpectra& h : heads) best.emplace_back(scores.of(h.layer, h.head).at(role), &h);
  std::sort(best.begin(), best.end(), [](const auto& a, const auto& b) {
    return std::tuple(-a.first, a.second->layer, a.second->head) < std::tuple(-b.first, b.second->layer, b.second->head);
  });
  const auto named = [&](size_t i) { return name_of_head(best[i].second->layer, best[i].second->head); };
  if (best[0].first < kMostly)
    return std::string("No head looks mostly at ") + words_of(role) + "; the most is " + named(0) + ", " + percent(best[0].first);
  std::string line = "`" + named(0) + "` looks at " + words_of(role) + ", " + percent(best[0].first);
  for (size_t i = 1; i < std::min(best.size(), kNamed) && best[i].first >= kMostly; ++i)
    line += "; `" + named(i) + "`, " + percent(best[i].first);
  return line;
}

std::string copying_sentence(std::span<const HeadSpectra> heads) {
  const auto [least, most] = std::minmax_element(
      heads.begin(), heads.end(), [](const HeadSpectra& a, const HeadSpectra& b) { return a.copying < b.copying; });
  std::string line;
  if (most->copying > 0)
    line = name_of_head(most->layer, most->head) + " copies most what it looks at, " + fmt::format("{:+.3f}", most->copying);
  if (least->copying < 0)
    line += (line.empty() ? "" : "; ") + name_of_head(least->layer, least->head) + " suppresses it most, " +
            fmt::format("{:+.3f}", least->copying);
  return line;
}

}  // namespace

const char* words_of(HeadRole role) {
  switch (role) {
    case HeadRole::previous: return "the previous token";
    case HeadRole::duplicate: return "earlier copies of the same token";
    case HeadRole::induction: return "what followed the last time (induction)";
    case HeadRole::first: return "the first token";
  }
  return "";
}

std::vector<std::string> head_sentences(const HeadScores& scores, std::span<const HeadSpectra> heads) {
  std::vector<std::string> lines;
  if (heads.empty()) return lines;
  for (const HeadRole role : kToldRoles)
    if (scores.queries[static_cast<size_t>(role)] > 0) lines.push_back(role_sentence(scores, heads, role));
  if (heads.size() < 2 || heads[0].eigenvalues.empty()) return lines;
  if (std::string line = copying_sentence(heads); !line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::vector<HeadLink> strongest_links(std::span<const Composition> all, size_t n) {
  std::vector<HeadLink> links;
  for (const Composition& c : all) {
    links.push_back({c.q, "queries", &c});
    links.push_back({c.k, "keys", &c});
    links.push_back({c.v, "values", &c});
  }
  const auto key = [](const HeadLink& l) {
    return std::tuple(-l.score, l.pair->to_layer, l.pair->to_head, l.pair->from_layer, l.pair->from_head, *l.kind);
  };
  std::sort(links.begin(), links.end(), [&](const HeadLink& a, const HeadLink& b) { return key(a) < key(b); });
  links.resize(std::min(links.size(), n));
  return links;
}

std::string words_of(const HeadLink& link) {
  return std::string("the ") + link.kind + " of " + name_of_head(link.pair->to_layer, link.pair->to_head) + " read what " +
         name_of_head(link.pair->from_layer, link.pair->from_head) + " writes";
}

}  // namespace vitrine
