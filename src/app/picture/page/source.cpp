#include "picture/page/source.h"

#include <algorithm>

#include "base/error.h"
#include "picture/page/embedded.h"

namespace vitrine {
namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view without_comment(std::string_view line) {
  line = line.substr(0, line.find("//"));
  const size_t last = line.find_last_not_of(' ');
  return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

// Tags stand behind the words of a comment at the end of a line: "// [T, D] #norm".
size_t tags_of(std::string_view line) {
  const size_t comment = line.find("//");
  if (comment == std::string_view::npos) return line.size();
  return std::min(line.find(" #", comment), line.size());
}

bool carries(std::string_view line, std::string_view tag) {
  const std::string_view tags = line.substr(tags_of(line));
  const size_t at = tags.find("#" + std::string(tag));
  if (at == std::string_view::npos) return false;
  const size_t end = at + 1 + tag.size();
  return end == tags.size() || tags[end] == ' ';
}

// The line as it is shown: without tags, and without a comment that held nothing else.
std::string_view without_tags(std::string_view line) {
  line = line.substr(0, tags_of(line));
  if (line.ends_with("//")) line.remove_suffix(2);
  const size_t last = line.find_last_not_of(' ');
  return last == std::string_view::npos ? std::string_view() : line.substr(0, last + 1);
}

// The first line of the statement that `line` belongs to.
size_t begin_of_statement(const std::vector<std::string_view>& lines, size_t line) {
  while (line > 0) {
    const std::string_view before = without_comment(lines[line - 1]);
    if (before.empty() || before.ends_with(';') || before.ends_with('}') || before.ends_with('{') || before.ends_with(':')) break;
    --line;
  }
  return line;
}

// The last line of the statement that begins at `line`: it ends with ; or a brace.
size_t end_of_statement(const std::vector<std::string_view>& lines, size_t line) {
  constexpr size_t kLongest = 8;
  for (size_t i = line; i < std::min(lines.size(), line + kLongest); ++i) {
    const std::string_view code = without_comment(lines[i]);
    if (code.ends_with(';') || code.ends_with('}') || code.ends_with('{')) return i;
  }
  return line;
}

std::string without_indentation(const std::vector<std::string_view>& lines, size_t first, size_t last) {
  size_t indentation = std::string_view::npos;
  for (size_t i = first; i <= last; ++i)
    if (const size_t start = lines[i].find_first_not_of(' '); start != std::string_view::npos)
      indentation = std::min(indentation, start);
  std::string text;
  for (size_t i = first; i <= last; ++i) {
    if (i > first) text += '\n';
    const std::string_view shown = without_tags(lines[i]);
    text += shown.substr(std::min(indentation, shown.size()));
  }
  return text;
}

}  // namespace

PictureJson excerpts(std::span<const std::string_view> files, const std::vector<std::string_view>& tags) {
  std::vector<std::string_view> missing = tags;
  PictureJson list = PictureJson::array();
  for (const std::string_view file : files) {
    const std::vector<std::string_view> lines = lines_of(embedded_text(file));
    std::vector<std::pair<size_t, size_t>> found;  // first and last line
    std::erase_if(missing, [&](std::string_view tag) {
      const size_t before = found.size();
      for (size_t i = 0; i < lines.size(); ++i)
        if (carries(lines[i], tag)) found.emplace_back(begin_of_statement(lines, i), end_of_statement(lines, i));
      return found.size() > before;
    });
    std::sort(found.begin(), found.end());
    for (size_t i = 0; i < found.size(); ++i) {
      auto [first, last] = found[i];
      while (i + 1 < found.size() && found[i + 1].first <= last + 1) last = std::max(last, found[++i].second);  // they touch
      list.push_back({{"file", file}, {"line", first + 1}, {"code", without_indentation(lines, first, last)}});
    }
  }
  if (!missing.empty())
    throw RunError(std::string(files.front()) + " has no line with the tag #" + std::string(missing.front()) +
                   ", which the walk-through quotes");
  return list;
}

}  // namespace vitrine
