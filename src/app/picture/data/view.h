#pragma once
// Reading a picture's data (data.ts) back, for drawings and tables.
#include <cstdint>
#include <string>
#include <vector>

#include "picture/data/request.h"
#include "picture/data/values.h"

namespace vitrine {

/// A picture inside its document, which holds the tokens and their spellings.
struct PictureView {
  const PictureJson& document;
  const PictureJson& picture;
  const PictureOptions& options;
  std::string title() const { return picture.at("title").get<std::string>(); }
  std::string alt() const { return picture.at("alt").get<std::string>(); }
  /// The spelling of an id, cut to so many characters.
  std::string spelling(int64_t id, size_t most = 14) const;
  std::string token_at(size_t position, size_t most = 14) const;
  size_t tokens() const { return document.at("tokens").size(); }
};

/// The picture of that name; null if the document's `pictures` have none, or none for this model.
const PictureJson* available(const PictureJson& pictures, const char* name);

/// A text with pieces of a vocabulary as a reader sees it: with spaces in the place of ▁ and Ġ.
std::string with_spaces(std::string text);
/// At most so many characters, with … for the rest.
std::string cut(const std::string& text, size_t most);
/// The same; spaces, tabs and line ends are made visible.
std::string shortened(const std::string& text, size_t most = std::string::npos);

/// The numbers of a Packed grid, row by row; a causal one has zeros above its diagonals.
std::vector<double> unpacked(const PictureJson& packed);
/// A list of numbers; null is NaN.
std::vector<double> number_list(const PictureJson& list);

/// Four significant digits: "0.0523", "1.23e+06".
std::string short_number(double value);

}  // namespace vitrine
