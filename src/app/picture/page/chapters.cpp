#include "picture/page/chapters.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "base/error.h"
#include "base/nearest.h"
#include "picture/data/shipped_text.h"
#include "picture/page/embedded.h"

namespace vitrine {
namespace {

constexpr std::string_view kFolder = "src/app/picture/page/chapters/", kEnding = ".md.jinja";

constexpr std::array kChapters = {
    Chapter{kFirstChapter, "How a language model finds the next word",
            "From a text to the table of words that could follow, step by step, and back through the gradients.", "tales9m",
            "Once upon a time there was a king"},
    Chapter{"gpt2", "GPT-2, from bytes to a sampled text",
            "How a small GPT-2 got its vocabulary, what its parts are, how it was trained, and how it writes.", "book/gpt2-tales",
            "Once upon a time there was a king who had a daughter, and the king"},
    Chapter{
        "heads", "A head is A·x·S",
        "A block taken apart: the stream as a sum, one head as three matrices, what order means to it, and which heads do what.",
        "tales9m", "The old king and the young queen had a son"},
    Chapter{"gemma2", "What Gemma 2 changed",
            "Shared keys, windows, rotations, soft caps, distillation and merged models, beside what other models do.", "tales9m",
            "Once upon a time there was a king"},
    Chapter{"trainable", "What makes it trainable",
            "Attention alone learns next to nothing. Norms, residual connections and MLPs, added one by one and taken apart.",
            "tales9m", "the fat cat sat on the"},
};

}  // namespace

std::span<const Chapter> chapters() { return kChapters; }

std::vector<std::string> chapter_names() {
  std::vector<std::string> names;
  for (const Chapter& chapter : kChapters) names.emplace_back(chapter.name);
  return names;
}

const Chapter& chapter_of(std::string_view name) {
  for (const Chapter& chapter : kChapters)
    if (name == chapter.name) return chapter;
  throw UsageError("the book has no chapter \"" + std::string(name) + "\". Did you mean \"" + nearest(name, chapter_names()) +
                   "\"?");
}

PictureJson chapter_json(const Chapter& chapter) {
  return {{"name", chapter.name},
          {"number", &chapter - kChapters.data() + 1},
          {"title", chapter.title},
          {"summary", chapter.summary}};
}

std::vector<ChapterText> texts_of(const Chapter& chapter) {
  const std::string folder = std::string(kFolder) + chapter.name + "/";
  std::vector<ChapterText> texts;
  for (const EmbeddedFile& file : embedded_files()) {
    if (!file.name.starts_with(folder) || !file.name.ends_with(kEnding)) continue;
    const size_t begin = file.name.find('-', folder.size()) + 1;
    texts.push_back({std::string(file.name.substr(begin, file.name.size() - kEnding.size() - begin)), file.name, file.text});
  }
  return texts;
}

std::vector<std::string> pictures_of(const Chapter& chapter) {
  constexpr std::string_view kLine = "pictures:";
  std::vector<std::string> names;
  for (const ChapterText& text : texts_of(chapter)) {
    std::istringstream lines{std::string(text.text)};
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(kLine)) continue;
      std::istringstream words(line.substr(kLine.size()));
      for (std::string name; words >> name;)
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  return names;
}

std::string_view shipped_text(std::string_view path) { return embedded_text(path); }

}  // namespace vitrine
