// The walk-through: a chapter's steps, in words that are true for the model at hand.
#include <algorithm>

#include "model/registry.h"
#include "picture/data/document.h"
#include "picture/page/chapters.h"
#include "picture/page/embedded.h"
#include "picture/page/page.h"
#include "picture/page/prose.h"
#include "picture/page/source.h"
#include "picture/page/walk_values.h"

namespace vitrine {
namespace {

// What a picture tells texts: its field "prose", under its name with _ for -; none where there is none.
void add_prose(PictureJson& values, const PictureJson& pictures) {
  for (const auto& [name, picture] : pictures.items()) {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    const auto prose = picture.find("prose");
    if (prose != picture.end() || !values.contains(key)) values[key] = prose == picture.end() ? PictureJson() : *prose;
  }
}

PictureJson steps_of(const Chapter& chapter, Studio& studio, const PictureJson& pictures) {
  PictureJson values = walk_values(studio, pictures);
  add_prose(values, pictures);
  const std::vector<std::string_view> definitions = definition_files(family_of(studio.engine.model()));
  std::string macros(embedded_text("src/app/picture/page/chapters/macros.jinja"));
  std::replace(macros.begin(), macros.end(), '\n', ' ');  // messages then count the lines of the step's own file
  PictureJson steps = PictureJson::array();
  for (const ChapterText& text : texts_of(chapter)) {
    PictureJson step = step_of(text.id, macros + std::string(text.text), std::string(text.name), values, definitions);
    if (!step.is_null()) steps.push_back(std::move(step));
  }
  return steps;
}

// The pictures of the texts, and what the page's opening draws.
std::vector<std::string> page_pictures(const Chapter& chapter) {
  std::vector<std::string> names = pictures_of(chapter);
  for (const char* name : {"attention", "next-tokens", "logit-lens"})
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  return names;
}

}  // namespace

DocumentRuns explain_runs(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options, std::string_view chapter) {
  const Chapter& of = chapter_of(chapter);
  require_family_form(engine.model(), engine.name(), "The walk-through");
  return {engine,
          prompt,
          options,
          page_pictures(of),
          [&of](Studio& studio, const PictureJson& pictures) { return steps_of(of, studio, pictures); },
          {{"chapter", chapter_json(of)}}};
}

PictureJson explain_document(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options,
                             std::string_view chapter) {
  return explain_runs(engine, prompt, options, chapter).take();
}

}  // namespace vitrine
