// vitrine explain: every picture of the walk-through, as one offline page.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/open_page.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/picture_arguments.h"
#include "io/temporary_folder.h"
#include "model/to_gguf.h"
#include "picture/page/live_page.h"
#include "picture/page/page.h"
#include "quantize/encoding.h"
#include "quantize/mixture.h"
#include "runtime/model_tokenizer.h"

namespace vitrine::cli {
namespace {

// The model as the page holds it: one GGUF file, whose name the page's commands give.
struct LiveModel {
  TemporaryFolder folder;
  std::string name, path;

  LiveModel(const OpenedModel& opened, int threads) {
    const std::list<MappedFile>& files = opened.checkpoint.files();
    const bool as_it_is = opened.gguf != nullptr && opened.adapter == nullptr && files.size() == 1;
    const std::filesystem::path from = std::filesystem::weakly_canonical(as_it_is ? files.front().path() : opened.files.name);
    name = as_it_is ? from.filename().string() : (opened.gguf != nullptr ? from.stem() : from.filename()).string() + "-q8_0.gguf";
    path = folder.path() + "/" + name;
    if (as_it_is) {
      std::filesystem::create_symlink(from, path);
      return;
    }
    const GgufEncoding encoding = mixture_encoding(opened, *find_mixture("q8_0"));
    const GgufPlan plan = plan_gguf(opened, opened.gguf == nullptr ? vocabulary_keys(opened) : GgufKeys(), encoding);
    if (plan.bytes > kMostLiveWeights)  // as live_page, but before the work
      throw UsageError(fmt::format(
          "as q8_0 {} takes {}, and a live page holds at most {}. Take a smaller model, or leave --live "
          "out: the page then shows this run alone.",
          opened.files.name, bytes_text(static_cast<double>(plan.bytes)), bytes_text(static_cast<double>(kMostLiveWeights))));
    ThreadPool pool(threads);
    write_gguf(opened, plan, encoding, path, pool);
  }
};

// The page shows what its own engine computes: these weights, widened to f32.
void run_live(const PictureArguments& o) {
  if (o.out.empty()) throw UsageError("--live makes a page. Give --out PAGE.html.");
  const Engine source = open_engine(o.model);
  check_output(source, o.out);
  const LiveModel model(source.opened(), static_cast<int>(o.model.threads));
  PictureArguments live = o;
  live.model.model = model.path;
  live.model.adapter.clear();
  live.model.compute = "f32";
  Engine engine = open_engine(live.model);
  PicturePrompt prompt = prompt_of(engine, live);
  prompt.model = model.name;
  const PictureJson document = explain_document(engine, prompt, picture_options(o), o.chapter);
  const MappedFile weights = MappedFile::open(model.path);
  write_file(o.out, live_page(document, weights.bytes(), model.name));
  if (o.model.json) print_json(document);
}

void run_explain(const PictureArguments& o) {
  if (o.out.empty() && !o.model.json)
    throw UsageError("where should the page go? Give --out PAGE.html, or --json for the data alone.");
  chapter_of(o.chapter);
  if (o.open && o.out.empty()) throw UsageError("--open needs a page to show: give --out PAGE.html, too.");
  if (!o.out.empty()) check_writable("--out", o.out);
  if (o.live) {
    run_live(o);
  } else {
    Engine engine = open_engine(o.model);
    check_output(engine, o.out);
    const PictureJson document = explain_document(engine, prompt_of(engine, o), picture_options(o), o.chapter);
    if (!o.out.empty()) write_file(o.out, explain_page(document));
    if (o.model.json) print_json(document);
  }
  if (o.open) open_page(o.out);
}

// Those of a chapter's page, in its order.
std::vector<PictureInfo> chapter_pictures(const Chapter& chapter) {
  std::vector<PictureInfo> list;
  for (const std::string& name : pictures_of(chapter))
    list.push_back(*std::ranges::find_if(pictures(), [&](const PictureInfo& info) { return name == info.name; }));
  return list;
}

Action define_explain(CLI::App& app) {
  auto o = std::make_shared<PictureArguments>();
  add_prompt_options(app, o->prompt, false);
  app.add_flag("--list", o->list, "List every picture, or with --chapter those of its page");
  app.add_option("--out,-o", o->out, "The HTML file to write (replaced if it exists)")->type_name("PAGE")->check(not_empty());
  const CLI::Option* const chapter =
      app.add_option("--chapter", o->chapter,
                     fmt::format("The chapter of the book to write with this model: {}", fmt::join(chapter_names(), ", ")))
          ->type_name("NAME")
          ->capture_default_str();
  app.add_flag("--open", o->open, "Show the page in the browser given by BROWSER, or in the default one");
  app.add_flag("--no-gradients", o->no_gradients,
               "Omit the steps that run the model backward; they take most of the time for large models and long prompts");
  app.add_flag(
      "--live", o->live,
      "Put the engine and the weights, in q8_0 unless MODEL is a GGUF file, into the page, so that it recomputes what you "
      "change");
  add_model_options(app, o->model);
  return [o, chapter] {
    if (!o->list) return run_explain(*o);
    list_pictures(o->model.json, chapter->count() > 0 ? chapter_pictures(chapter_of(o->chapter)) : pictures());
  };
}

}  // namespace

const Command explain_command = {
    "explain", "Walk a prompt through the model, as one offline page",
    "Writes a page that opens without a network. It follows the prompt from the string to the prediction, and the gradients "
    "back. Each step has an explanation, its formula, the lines of the model's definition, the shapes of this run, and "
    "pictures of this run's numbers. Long prompts are shown with less detail, so that the page stays below 30 MB.",
    "vitrine explain \"Once upon a time there was a little girl who\" --out walk.html\nvitrine explain --list", define_explain};

}  // namespace vitrine::cli
