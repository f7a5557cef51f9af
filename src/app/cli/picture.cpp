// vitrine picture: one picture of the walk-through as text, data or SVG. vitrine explain: all of them as one offline page.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/plural.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/heat_map.h"
#include "cli/open_page.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/text_table.h"
#include "io/atomic_file.h"
#include "io/temporary_folder.h"
#include "model/to_gguf.h"
#include "picture/data/document.h"
#include "picture/data/tables.h"
#include "picture/page/live_page.h"
#include "picture/page/page.h"
#include "picture/svg/drawings.h"
#include "quantize/encoding.h"
#include "quantize/mixture.h"
#include "runtime/model_tokenizer.h"

namespace vitrine::cli {
namespace {

struct PictureArguments {
  ModelOptions model;
  PromptOptions prompt;
  std::string name, out;
  std::optional<std::string> words, sum;
  int64_t layer = -1, head = -1, position = -1;  // -1: not given
  bool list = false, svg = false, no_gradients = false, open = false, live = false;
};

void list_pictures(bool json) {
  const std::vector<PictureInfo>& all = pictures();
  if (json) {
    OrderedJson list = OrderedJson::array();
    for (const PictureInfo& info : all) list.push_back({{"name", info.name}, {"title", info.title}, {"summary", info.summary}});
    print_json({{"pictures", list}});
    return;
  }
  TextTable table{{{"", true}, {"", true}}, {}};
  for (const PictureInfo& info : all) table.rows.push_back({info.name, info.summary});
  write_out(text_table(table, terminal().columns));
}

PicturePrompt prompt_of(Engine& engine, const PictureArguments& o) {
  std::vector<Prompt> prompts = read_prompts(engine, o.prompt);
  if (prompts.size() > 1) throw UsageError("several sequences in --tokens: a picture shows one. Give them one at a time.");
  PicturePrompt prompt;
  prompt.model = o.model.model;
  prompt.adapter = o.model.adapter;
  prompt.compute = o.model.compute;
  prompt.ids = std::move(prompts[0].ids);
  if (prompts[0].from_text) {
    prompt.special = !o.prompt.no_special;
    prompt.text = std::move(prompts[0].text);
    prompt.pieces = engine.tokenizer().encode_with_offsets(*prompt.text, prompt.special);
  }
  return prompt;
}

PictureOptions picture_options(const PictureArguments& o) {
  PictureOptions options;
  const auto given = [](int64_t value) { return value < 0 ? std::optional<int64_t>() : value; };
  options.layer = given(o.layer);
  options.head = given(o.head);
  options.position = given(o.position);
  options.sum = o.sum.value_or("");
  options.gradients = !o.no_gradients;
  const std::string words = o.words.value_or("");
  require_utf8(words, "--words");
  require_utf8(options.sum, "--sum");
  for (size_t begin = 0; begin < words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    if (end > begin) options.words.push_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  if (o.words && options.words.empty()) throw UsageError("--words holds no word. Give some, such as --words king,queen.");
  if (o.sum && options.sum.empty())
    throw UsageError("--sum is empty. Give words with signs, such as --sum \"king - man + woman\".");
  return options;
}

void write_file(const std::string& path, const std::string& text) {
  write_file_atomically(path, text);
  log("{} written, {}", path, bytes_text(static_cast<double>(text.size())));
}

void print_or_write(const PictureArguments& o, const std::string& text) {
  if (o.out.empty()) {
    write_out(text);
  } else {
    write_file(o.out, text);
  }
}

template <class Text>
std::vector<std::string> all_visible(const std::vector<Text>& words) {
  std::vector<std::string> shown;
  for (const std::string& word : words) shown.push_back(visible(word));
  return shown;
}

void print_table(const PictureTable& table) {
  print("\n");
  if (!table.note.empty()) print("{}\n", visible(table.note));
  if (table.grid) {
    const PictureGrid& grid = *table.grid;
    write_out(
        heat_map_text({grid.corner, all_visible(grid.rows), all_visible(grid.columns), grid.values, grid.middle, grid.reach},
                      terminal().columns, terminal().colors));
  }
  TextTable shown;
  for (const PictureTable::Column& column : table.columns) shown.columns.push_back({column.name, column.words});
  for (const auto& row : table.rows) shown.rows.push_back(all_visible(row));
  write_out(text_table(shown, terminal().columns));
  if (table.left_out > 0) print("{}\n", dim(fmt::format("--json has {} more", plural(table.left_out, "row"))));
}

void run_picture(PictureArguments o) {
  if (o.list) return list_pictures(o.model.json);
  if (o.name.empty()) throw UsageError("which picture? `vitrine picture --list` names them all.");
  if (o.svg && o.model.json) throw UsageError("--svg and --json exclude each other; run twice for both.");
  if (o.model.json && o.out.ends_with(".svg")) throw UsageError("--json would put data into " + o.out + "; name a .json file.");
  if (o.svg && o.out.ends_with(".json")) throw UsageError("--svg would put a drawing into " + o.out + "; name a .svg file.");
  const bool csv = o.out.ends_with(".csv");
  if (csv && (o.svg || o.model.json))
    throw UsageError(fmt::format("{} would not put a table into {}; leave it out, or name another ending.",
                                 o.svg ? "--svg" : "--json", o.out));
  if (!o.out.empty() && !o.svg && !o.model.json && !csv) {
    o.svg = o.out.ends_with(".svg");
    o.model.json = o.out.ends_with(".json");
    if (const size_t end = o.out.rfind(".png"); end != std::string::npos && end + 4 == o.out.size()) {
      const std::string svg = o.out.substr(0, end) + ".svg";
      throw UsageError(
          fmt::format("--out {}: drawings are SVG. Write {}, and convert it: rsvg-convert --background-color=white {} -o {}",
                      o.out, svg, shell_word(svg), shell_word(o.out)));
    }
    if (!o.svg && !o.model.json)
      throw UsageError("--out " + o.out + ": say --svg or --json, or end the name in .svg, .json or .csv.");
  }
  if (o.name == "embedding-neighbours") o.name = "embedding-neighbors";  // the spelling before
  check_picture_name(o.name);
  const auto only_for = [&](bool given, const char* flag, std::vector<std::string_view> names) {
    if (!given || std::find(names.begin(), names.end(), o.name) != names.end()) return;
    std::string list;
    for (const std::string_view name : names) list += (list.empty() ? "" : ", ") + std::string(name);
    throw UsageError(fmt::format("{} is of no use to the picture {}; these take it: {}.", flag, o.name, list));
  };
  only_for(o.layer >= 0, "--layer",
           {"attention", "softmax", "query-length", "experts", "expert-load", "interpolation", "task-vectors"});
  only_for(o.head >= 0, "--head", {"attention", "softmax"});
  only_for(o.position >= 0, "--position", {"softmax", "logit-attribution", "input-attribution"});
  only_for(o.words.has_value(), "--words", {"embedding-cosine"});
  only_for(o.sum.has_value(), "--sum", {"embedding-neighbors"});
  if (!o.prompt.has_text && !o.prompt.has_tokens) {
    o.prompt.text = kUsualPrompt;
    o.prompt.has_text = true;
  }
  const PictureOptions options = picture_options(o);
  if (!o.out.empty()) check_writable("--out", o.out);
  Engine engine = open_engine(o.model);
  check_output(engine, o.out);
  const PictureJson document = picture_document(engine, prompt_of(engine, o), o.name, options);
  const PictureJson& picture = document.at("pictures").at(o.name);
  if (csv) {
    if (!picture.at("available").get<bool>()) throw InputError(picture.at("reason").get<std::string>());
    return write_file(o.out, csv_text(picture_tables(document, o.name, true)));
  }
  if (o.svg) return print_or_write(o, picture_svg(document, o.name, options));
  if (o.model.json) return print_or_write(o, document.dump(-1, ' ', false, PictureJson::error_handler_t::replace) + "\n");
  print("{}\n\n", bold(picture.at("title").get<std::string>()));
  if (!picture.at("available").get<bool>()) return print("{}\n", picture.at("reason").get<std::string>());
  print("{}\n\n{}\n", visible(picture.at("caption").get<std::string>()), visible(picture.at("alt").get<std::string>()));
  for (const PictureTable& table : picture_tables(document, o.name)) print_table(table);
  log("--svg draws it, --json gives its numbers.");
}

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
  const PictureJson document = explain_document(engine, prompt, picture_options(o));
  const MappedFile weights = MappedFile::open(model.path);
  write_file(o.out, live_page(document, weights.bytes(), model.name));
  if (o.model.json) print_json(document);
}

void run_explain(const PictureArguments& o) {
  if (o.list) return list_pictures(o.model.json);
  if (o.out.empty() && !o.model.json)
    throw UsageError("where should the page go? Give --out PAGE.html, or --json for the data alone.");
  if (o.open && o.out.empty()) throw UsageError("--open needs a page to show: give --out PAGE.html, too.");
  if (!o.out.empty()) check_writable("--out", o.out);
  if (o.live) {
    run_live(o);
  } else {
    Engine engine = open_engine(o.model);
    check_output(engine, o.out);
    const PictureJson document = explain_document(engine, prompt_of(engine, o), picture_options(o));
    if (!o.out.empty()) write_file(o.out, explain_page(document));
    if (o.model.json) print_json(document);
  }
  if (o.open) open_page(o.out);
}

}  // namespace

Action define_picture(CLI::App& app) {
  auto o = std::make_shared<PictureArguments>();
  app.add_option("NAME", o->name, "Name of the picture; --list shows all")->type_name("");
  add_prompt_options(app, o->prompt, false);
  app.add_flag("--list", o->list, "List every picture");
  app.add_flag("--svg", o->svg, "Draw it: an SVG file, on standard output or to --out");
  app.add_option(
         "--out,-o", o->out,
         "The file to write (replaced if it exists); the ending chooses the kind: .svg, .json, or .csv, a table with all digits")
      ->type_name("FILE")
      ->check(not_empty());
  add_count(app, "--layer", o->layer, 0, 1 << 20,
            "attention, softmax, query-length, experts, expert-load, interpolation, task-vectors: this layer");
  add_count(app, "--head", o->head, 0, 1 << 20, "attention, softmax: this head");
  add_count(app, "--position", o->position, 0, INT32_MAX,
            "softmax, logit-attribution, input-attribution: this token of the prompt; default: the last");
  app.add_option("--words", o->words, "embedding-cosine: these words, separated by commas")->type_name("WORDS");
  app.add_option("--sum", o->sum, "embedding-neighbors: words with signs between them; default: king - man + woman")
      ->type_name("SUM");
  add_model_options(app, o->model);
  return [o] { run_picture(*o); };
}

Action define_explain(CLI::App& app) {
  auto o = std::make_shared<PictureArguments>();
  add_prompt_options(app, o->prompt, false);
  app.add_flag("--list", o->list, "List every picture of the page");
  app.add_option("--out,-o", o->out, "The HTML file to write (replaced if it exists)")->type_name("PAGE")->check(not_empty());
  app.add_flag("--open", o->open, "Show the page in the browser given by BROWSER, or in the default one");
  app.add_flag("--no-gradients", o->no_gradients,
               "Omit the steps that run the model backward; they take most of the time for large models and long prompts");
  app.add_flag(
      "--live", o->live,
      "Put the engine and the weights, in q8_0 unless MODEL is a GGUF file, into the page, so that it recomputes what you "
      "change");
  add_model_options(app, o->model);
  return [o] { run_explain(*o); };
}

}  // namespace vitrine::cli
