// document: the data of the page of the walk-through.
#include "picture/data/document.h"

#include <algorithm>

#include "picture/page/page.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

RequestAnswer document_answer(const Host& host, Fields& fields) {
  PicturePrompt prompt = read_prompt(host, fields);
  if (prompt.text) prompt.pieces = host.engine.tokenizer().encode_with_offsets(*prompt.text, prompt.special);
  PictureOptions options;
  options.layer = fields.integer("layer");
  options.head = fields.integer("head");
  options.position = fields.integer("position");
  options.gradients = fields.boolean("gradients", true);
  const std::vector<std::string> names = fields.texts("pictures");
  if (fields.has("pictures") && names.empty())
    throw invalid("pictures", "\"pictures\" is empty; name pictures, or leave it out for all of them");
  const std::string chapter = fields.text("chapter").value_or(kFirstChapter);
  const auto known = chapters();
  if (std::none_of(known.begin(), known.end(), [&](const Chapter& one) { return chapter == one.name; }))
    throw invalid("chapter", "the book has no chapter \"" + chapter + "\"");
  std::optional<DocumentRuns> runs;
  RequestAnswer answer;
  while (answer.json.is_null())
    host.run([&](Engine& engine) {
      if (!runs)
        runs = names.empty() ? explain_runs(engine, prompt, options, chapter) : DocumentRuns(engine, prompt, options, names);
      runs->next();
      if (runs->done()) answer.json = std::move(*runs).take();
    });
  return answer;
}

}  // namespace

Request document_request() {
  using namespace type;
  return {"document", "The data of the page of `vitrine explain`: `steps` and `pictures`, or only the pictures that are named.",
          joined({prompt_fields(),
                  {{"pictures", texts, "Only these pictures, without steps. Default: all, and the steps."},
                   {"chapter", text, "The chapter of the book whose steps and pictures are wanted. Default: next-word."},
                   {"gradients", boolean, "Include the pictures that run the model backward. Default: true."},
                   {"layer", integer, "The layer.", Use::honored, 0, 1e6},
                   {"head", integer, "The head of pictures of one head.", Use::honored, 0, 1e6},
                   {"position", integer, "The position.", Use::honored, 0, 1e9}}}),
          document_answer};
}

}  // namespace vitrine
