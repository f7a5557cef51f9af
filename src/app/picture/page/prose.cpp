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

// What comes before "engineers:", or after it.
struct Part {
  std::vector<std::string> text, formula, pictures;

  void add_line(std::string_view line, bool continues) {
    if (continues) {
      text.back().append(" ").append(line);
    } else {
      text.emplace_back(line);
    }
  }
};

// A question with a place for the reader's guess.
struct Guess {
  std::string question, answer, reveal;
  std::vector<std::string> choices;  // none: the reader writes
  size_t after = 0;                  // paragraphs in front of it
};

// Those that are complete. A run may make two choices equal; where fewer than two are left there is nothing to guess.
PictureJson guesses_of(const std::vector<Guess>& guesses, const std::string& name) {
  PictureJson list = PictureJson::array();
  for (const Guess& guess : guesses) {
    const auto fail = [&](const std::string& problem) {
      throw InputError(name + ": \"guess: " + guess.question + "\" " + problem +
                       "; expected guess: QUESTION, then choice: lines or none, answer: TEXT and reveal: TEXT");
    };
    if (guess.answer.empty()) fail("has no answer");
    if (guess.reveal.empty()) fail("has no reveal");
    std::vector<std::string> choices;
    for (const std::string& choice : guess.choices)
      if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
    if (!choices.empty() && std::find(choices.begin(), choices.end(), guess.answer) == choices.end())
      fail("has the answer \"" + guess.answer + "\", which is none of its choices");
    if (choices.size() == 1) continue;
    list.push_back({{"question", guess.question},
                    {"choices", choices},
                    {"answer", guess.answer},
                    {"reveal", guess.reveal},
                    {"after", guess.after}});
  }
  return list;
}

}  // namespace

PictureJson step_of(const std::string& id, const std::string& source, const std::string& name, const PictureJson& values,
                    std::span<const std::string_view> files) {
  const Rendered rendered = Template(source, name).render(values, PictureJson::object(), {.strict = true});
  // What values wrote is never layout: a token's piece may be a line break.
  std::string layout = rendered.text;
  for (const TextSpan& span : rendered.input) layout.replace(span.begin, span.end - span.begin, span.end - span.begin, 'x');

  std::string title, question;
  Part learner, engineers;
  bool for_engineers = false;
  std::vector<std::string> tags, experiments;
  std::vector<Guess> guesses;
  PictureJson shapes = PictureJson::array();
  bool in_paragraph = false;
  for (size_t begin = 0; begin < layout.size();) {
    const size_t line_end = std::min(layout.find('\n', begin), layout.size());
    const std::string_view shown = std::string_view(layout).substr(begin, line_end - begin);
    const std::string_view line = std::string_view(rendered.text).substr(begin, shown.find_last_not_of(' ') + 1);
    begin = line_end + 1;
    const bool continues = std::exchange(in_paragraph, false);
    if (line.empty()) continue;
    Part& part = for_engineers ? engineers : learner;
    std::string_view rest;
    const auto is = [&](std::string_view key) {
      rest = line.substr(std::min(key.size(), line.size()));
      return shown.starts_with(key);
    };
    const auto guess = [&]() -> Guess& {
      if (guesses.empty()) throw InputError(name + ": \"" + std::string(line) + "\" comes before any \"guess: QUESTION\"");
      return guesses.back();
    };
    if (is("# ")) {
      title = rest;
    } else if (is("## ")) {
      question = rest;
    } else if (is("    ")) {
      part.formula.emplace_back(rest);
    } else if (is("code: ")) {
      append(tags, split(rest, ' '));
    } else if (is("shape: ")) {
      shapes.push_back(shape_of(rest, name));
    } else if (is("pictures: ")) {
      append(part.pictures, split(rest, ' '));
    } else if (is("experiments: ")) {
      append(experiments, split(rest, ' '));
    } else if (is("guess: ")) {
      if (for_engineers)
        throw InputError(name + ": \"" + std::string(line) + "\" comes after \"engineers:\"; guesses come before it");
      guesses.push_back({.question = std::string(rest), .answer = "", .reveal = "", .choices = {}, .after = learner.text.size()});
    } else if (is("choice: ")) {
      guess().choices.emplace_back(rest);
    } else if (is("answer: ")) {
      guess().answer = rest;
    } else if (is("reveal: ")) {
      guess().reveal = rest;
    } else if (shown == "engineers:") {
      for_engineers = true;
    } else {
      in_paragraph = true;
      part.add_line(line, continues);
    }
  }
  if (title.empty()) return nullptr;
  return {{"id", id},
          {"title", title},
          {"question", question},
          {"text", learner.text},
          {"guesses", guesses_of(guesses, name)},
          {"formula", learner.formula},
          {"source", excerpts(files, {tags.begin(), tags.end()})},
          {"shapes", std::move(shapes)},
          {"pictures", learner.pictures},
          {"experiments", experiments},
          {"engineers", {{"text", engineers.text}, {"formula", engineers.formula}, {"pictures", engineers.pictures}}}};
}

}  // namespace vitrine
