#include "picture/source.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "picture/embedded.h"

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
    text += lines[i].substr(std::min(indentation, lines[i].size()));
  }
  return text;
}

}  // namespace

std::string definition_of(std::string_view family) {
  const std::string own = "src/model/" + std::string(family) + ".cpp";
  if (!embedded_text(own).empty()) return own;
  if (family == "mistral" || family == "qwen2") return "src/model/llama.cpp";
  throw RunError("this build holds no definition of the family " + std::string(family));
}

PictureJson excerpts(std::string_view file, const std::vector<SourceAnchor>& anchors) {
  const std::vector<std::string_view> lines = lines_of(embedded_text(file));
  std::vector<std::pair<size_t, size_t>> found;  // first and last line
  for (const SourceAnchor& anchor : anchors) {
    const auto find = [&](std::string_view text, size_t from) {
      for (size_t i = from; i < lines.size(); ++i)
        if (lines[i].find(text) != std::string_view::npos) return i;
      throw RunError(std::string(file) + " has no line with \"" + std::string(text) + "\", which the walk-through quotes");
    };
    const size_t first = find(anchor.from, 0);
    const size_t last = end_of_statement(lines, anchor.to.empty() ? first : find(anchor.to, first));
    found.emplace_back(first, last);
  }
  std::sort(found.begin(), found.end());
  PictureJson list = PictureJson::array();
  for (size_t i = 0; i < found.size(); ++i) {
    auto [first, last] = found[i];
    while (i + 1 < found.size() && found[i + 1].first <= last + 1) last = std::max(last, found[++i].second);  // they touch
    list.push_back({{"file", file}, {"line", first + 1}, {"code", without_indentation(lines, first, last)}});
  }
  return list;
}

}  // namespace vitrine
