#pragma once
// The chapters of the book: each is a folder of texts (chapters/README.md) about one model at work.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "picture/data/values.h"

namespace vitrine {

struct Chapter {
  const char* name;  // its folder, and the word of `explain --chapter`
  const char* title;
  const char* summary;  // one sentence
  const char* model;    // the shipped model that the book tells it with, a folder of models/
  const char* prompt;   // what the book runs that model on
};

inline constexpr char kFirstChapter[] = "next-word";

/// In the order of the book.
std::span<const Chapter> chapters();
std::vector<std::string> chapter_names();
/// Errors: UsageError for an unknown name, naming the nearest.
const Chapter& chapter_of(std::string_view name);
/// What a page says about its chapter: {name, number, title, summary} (data.ts).
PictureJson chapter_json(const Chapter& chapter);

/// A text of a chapter.
struct ChapterText {
  std::string id;         // of the step: "06-residual.md.jinja" is "residual"
  std::string_view name;  // in the source tree
  std::string_view text;
};
std::vector<ChapterText> texts_of(const Chapter& chapter);
/// The pictures that its texts name, in their order, each once.
std::vector<std::string> pictures_of(const Chapter& chapter);

}  // namespace vitrine
