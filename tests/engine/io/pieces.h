#pragma once
// What a TextReader gives, for tests.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/text_reader.h"

namespace vitrine {

inline std::vector<TextPiece> pieces_of(const std::string& path, const TextOptions& options = {}) {
  TextReader reader(path, options);
  std::vector<TextPiece> pieces;
  for (TextPiece piece; reader.next(piece);) pieces.push_back(piece);
  return pieces;
}

/// The documents, their pieces joined; a test fails if a piece is longer than allowed or in the wrong place.
inline std::vector<std::string> documents_of(const std::string& path, const TextOptions& options = {}) {
  std::vector<std::string> documents;
  bool inside = false;
  for (const TextPiece& piece : pieces_of(path, options)) {
    EXPECT_EQ(piece.begins, !inside);
    EXPECT_LE(piece.text.size(), options.longest);
    if (piece.begins) documents.emplace_back();
    documents.back() += piece.text;
    inside = !piece.ends;
  }
  EXPECT_FALSE(inside);
  return documents;
}

}  // namespace vitrine
