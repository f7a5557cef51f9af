// document: the data of the page of the walk-through.
#include "picture/data/document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "picture/page/page.h"
#include "requests/shared.h"

namespace vitrine {
namespace {

// Those that show the observed run alone: others run the model in their own way, which an edit would not reach.
constexpr std::array<std::string_view, 2> kEdited = {"next-tokens", "attention"};

void check_edited(const std::vector<std::string>& names) {
  const bool all =
      std::ranges::all_of(names, [](const std::string& name) { return std::ranges::find(kEdited, name) != kEdited.end(); });
  if (names.empty() || !all)
    throw invalid("edits", "\"edits\" change the pictures next-tokens and attention; name them, and no others, in \"pictures\"");
}

// A document that is asked for piece by piece: one call of DocumentRuns for each question, until it is done.
struct Unfinished {
  std::string question;
  std::unique_ptr<Interventions> planned;
  std::optional<DocumentRuns> runs;
};

// Begins the document that the fields ask for.
void begin(Unfinished& made, Engine& engine, PicturePrompt prompt, PictureOptions options, const std::vector<std::string>& names,
           const std::string& chapter, const OrderedJson* edits) {
  if (edits != nullptr) {
    made.planned = planned_edits(engine, edits, prompt.ids);
    options.edits = made.planned.get();
  }
  made.runs = names.empty() ? explain_runs(engine, prompt, options, chapter) : DocumentRuns(engine, prompt, options, names);
}

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
  if (const std::vector<std::string> known = chapter_names(); std::ranges::find(known, chapter) == known.end())
    throw invalid("chapter", fmt::format("the book has no chapter \"{}\"; it has {}", chapter, fmt::join(known, ", ")));
  const OrderedJson* edits = fields.find("edits");
  if (edits != nullptr && edits->empty()) edits = nullptr;
  if (edits != nullptr) check_edited(names);
  const bool in_pieces = fields.boolean("in_pieces", false) && host.unfinished != nullptr;
  auto made = std::make_shared<Unfinished>();
  if (in_pieces) {
    made->question = json_text(fields.body());
    const auto before = std::static_pointer_cast<Unfinished>(std::exchange(*host.unfinished, nullptr));
    if (before != nullptr && before->question == made->question) made = before;
  }
  RequestAnswer answer;
  do {
    host.run([&](Engine& engine) {
      if (!made->runs) begin(*made, engine, std::move(prompt), options, names, chapter, edits);
      made->runs->next();
      if (made->runs->done()) answer.json = std::move(*made->runs).take();
    });
  } while (!in_pieces && answer.json.is_null());
  if (!answer.json.is_null()) return answer;
  *host.unfinished = made;
  return {{{"unfinished", true}}};
}

}  // namespace

Request document_request() {
  using namespace type;
  return {"document", "The data of the page of `vitrine explain`: `steps` and `pictures`, or only the pictures that are named.",
          joined({prompt_fields(),
                  {{"pictures", texts, "Only these pictures, without steps. Default: all, and the steps."},
                   {"chapter", text, "The chapter of the book whose steps and pictures are wanted. Default: next-word."},
                   {"edits", list,
                    "Changes to the model, in the format of the list interventions in docs/intervene.md; with the "
                    "pictures next-tokens and attention, which then show the changed model."},
                   {"in_pieces", boolean,
                    "Make a part of the document and answer `{\"unfinished\": true}`, until the same has been asked often "
                    "enough; a server answers at once. Default: false."},
                   {"gradients", boolean, "Include the pictures that run the model backward. Default: true."},
                   {"layer", integer, "The layer.", Use::honored, 0, 1e6},
                   {"head", integer, "The head of pictures of one head.", Use::honored, 0, 1e6},
                   {"position", integer, "The position.", Use::honored, 0, 1e9}}}),
          document_answer};
}

}  // namespace vitrine
