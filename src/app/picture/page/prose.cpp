#include "picture/page/prose.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/error.h"
#include "jinja/jinja.h"
#include "picture/page/source.h"

namespace vitrine {
namespace {

std::string_view without_spaces(std::string_view text) {
  const size_t first = std::min(text.find_first_not_of(' '), text.size());
  return text.substr(first, text.find_last_not_of(' ') + 1 - first);
}

// "attention heads" at ' '; "q | hook_q | 5 token" at '|'.
std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (const std::string_view part = without_spaces(text.substr(begin, end - begin)); separator != ' ' || !part.empty())
      parts.emplace_back(part);
    begin = end + 1;
  }
  return parts;
}

// "q | blocks.*.attn.hook_q | 5 token | 8 component"
PictureJson shape_of(std::string_view line, const std::string& name) {
  const std::vector<std::string> cells = split(line, '|');
  PictureJson sizes = PictureJson::array(), axes = PictureJson::array();
  for (size_t i = 2; i < cells.size(); ++i) {
    int64_t size = 0;
    const char* const end = cells[i].data() + cells[i].size();
    const char* const axis = std::from_chars(cells[i].data(), end, size).ptr;
    if (axis == cells[i].data() || *axis != ' ') break;
    sizes.push_back(size);
    axes.push_back(std::string(axis + 1, end));
  }
  if (cells.size() < 3 || sizes.size() + 2 != cells.size())
    throw InputError(name + ": \"shape: " + std::string(line) +
                     "\"; expected shape: NAME | HOOK or nothing | SIZE AXIS | SIZE AXIS …");
  return {{"name", cells[0]},
          {"hook", cells[1].empty() ? PictureJson(nullptr) : PictureJson(cells[1])},
          {"shape", std::move(sizes)},
          {"axes", std::move(axes)}};
}

void append(std::vector<std::string>& list, const std::vector<std::string>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

}  // namespace

PictureJson step_of(const std::string& id, const std::string& source, const std::string& name, const PictureJson& values,
                    std::span<const std::string_view> files) {
  const Rendered rendered = Template(source, name).render(values, PictureJson::object(), {.strict = true});
  // What values wrote is never layout: a token's piece may be a line break.
  std::string layout = rendered.text;
  for (const TextSpan& span : rendered.input) layout.replace(span.begin, span.end - span.begin, span.end - span.begin, 'x');

  std::string title, question;
  std::vector<std::string> text, formula, tags, pictures;
  PictureJson shapes = PictureJson::array();
  bool in_paragraph = false;
  for (size_t begin = 0; begin < layout.size();) {
    const size_t line_end = std::min(layout.find('\n', begin), layout.size());
    const std::string_view shown = std::string_view(layout).substr(begin, line_end - begin);
    const std::string_view line = std::string_view(rendered.text).substr(begin, shown.find_last_not_of(' ') + 1);
    begin = line_end + 1;
    const bool continues = std::exchange(in_paragraph, false);
    if (line.empty()) continue;
    std::string_view rest;
    const auto is = [&](std::string_view key) {
      rest = line.substr(std::min(key.size(), line.size()));
      return shown.starts_with(key);
    };
    if (is("# ")) {
      title = rest;
    } else if (is("## ")) {
      question = rest;
    } else if (is("    ")) {
      formula.emplace_back(rest);
    } else if (is("code: ")) {
      append(tags, split(rest, ' '));
    } else if (is("shape: ")) {
      shapes.push_back(shape_of(rest, name));
    } else if (is("pictures: ")) {
      append(pictures, split(rest, ' '));
    } else {
      in_paragraph = true;
      if (continues) {
        text.back().append(" ").append(line);
      } else {
        text.emplace_back(line);
      }
    }
  }
  if (title.empty()) return nullptr;
  return {{"id", id},
          {"title", title},
          {"question", question},
          {"text", text},
          {"formula", formula},
          {"source", excerpts(files, {tags.begin(), tags.end()})},
          {"shapes", std::move(shapes)},
          {"pictures", pictures}};
}

}  // namespace vitrine
