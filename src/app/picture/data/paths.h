#pragma once
// Paths to values of a picture, by which its tables and charts are declared (web/src/paths.ts reads the same).
//   sublayers.*.scale   * stands for every element of a list; a row or a mark has one place for each * of its path
//   norms.-1            an element by its number, from the end if it is negative
//   x.1::10             every tenth element from the second on
//   layers.#0.layer     the element at the place of the first *; "#0" alone is that place
//   ids.length          how many elements
//   /tokens.*.id        of the document
// Packed numbers are lists of lists. Texts hold paths between braces, and how to write the value: "{ids.*|token}".
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "picture/data/view.h"

namespace vitrine {

/// Where each * of a path stands.
using Places = std::vector<size_t>;

class Paths {
 public:
  explicit Paths(const PictureView& view) : view_(view) {}

  /// Every path then begins with these places, whose wildcards are named #0, #1, … in it; returns those before.
  Places bind(Places bound) { return std::exchange(bound_, std::move(bound)); }
  const Places& bound() const { return bound_; }

  /// Every combination of places of the path's wildcards, the last one fastest; one without places for a path without wildcards,
  /// none where the path leads nowhere.
  std::vector<Places> places(const std::string& path);
  /// Null where the path leads nowhere.
  PictureJson value(const std::string& path, const Places& at);
  double number(const std::string& path, const Places& at);  // NaN: no number
  /// Sorts places by the absolute values there; no number comes last.
  void largest_first(std::vector<Places>& places, const std::string& path);
  /// How many elements each of the two wildcards of a grid's path stands for.
  std::pair<size_t, size_t> sizes(std::string path);
  /// The text with the values of its paths.
  std::string text(std::string_view words, const Places& at);
  /// A value in words. as: "token" (an id), "at" (a position: its token), "place" (its token and itself), "piece" (spaces shown),
  /// "%", "count", "ordinal" (from 1), a format such as ".3f", "first 3" (of a list); for true: the word; empty: by the value's
  /// kind.
  std::string written(const PictureJson& value, std::string_view as) const;

 private:
  // A part of the picture; inside packed numbers, json is all of them.
  struct Node {
    const PictureJson* json = nullptr;
    size_t depth = 0, offset = 0;
  };
  using Steps = std::vector<std::string>;
  const Steps& steps_of(const std::string& path);
  const std::vector<double>& numbers_of(const PictureJson& packed);
  Node root(const std::string& path) const;
  static size_t size(const Node& node);
  static Node child(const Node& node, size_t index);
  static Node go(const Node& node, const std::string& step, const Places& at, size_t& star);
  PictureJson json_of(const Node& node);
  void gather(Node node, const Steps& steps, size_t from, Places& at, std::vector<Places>& all);

  PictureView view_;
  Places bound_;
  std::map<std::string, Steps> steps_;
  std::map<const PictureJson*, std::vector<double>> numbers_;
};

}  // namespace vitrine
