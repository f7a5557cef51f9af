// vitrine picture: one picture of the walk-through as text, data or SVG.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/plural.h"
#include "base/shell_word.h"
#include "cli/commands.h"
#include "cli/heat_map.h"
#include "cli/lens_option.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/picture_arguments.h"
#include "cli/text_table.h"
#include "picture/data/designs.h"
#include "picture/data/document.h"
#include "picture/data/tables.h"
#include "picture/svg/drawings.h"

namespace vitrine::cli {
namespace {

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
  print_table(shown);
  if (table.left_out > 0) print("{}\n", dim(fmt::format("--json has {} more", plural(table.left_out, "row"))));
}

/// Of --config: sizes alone, and nothing that could be run.
Engine open_sizes(const PictureArguments& o) {
  if (o.prompt.has_text || o.prompt.has_tokens)
    throw UsageError(
        "--config reads sizes and no weights, so there is nothing to run a prompt with; give the model with --model.");
  return Engine(open_configuration(o.config), {.threads = static_cast<int>(o.model.threads), .decode_narrow = true});
}

void run_picture(PictureArguments o) {
  if (o.list) return list_pictures(o.model.json, pictures());
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
           {"attention", "softmax", "lookup", "query-length", "experts", "expert-load", "interpolation", "task-vectors",
            "norm-steps", "head-parameters", "causal-mask", "block-diagram", "head-matrices", "frozen-attention", "heads-as-one",
            "permutations", "mask-and-positions"});
  only_for(o.head >= 0, "--head",
           {"attention", "softmax", "lookup", "head-parameters", "causal-mask", "head-matrices", "frozen-attention",
            "permutations", "mask-and-positions"});
  only_for(o.position >= 0, "--position", {"softmax", "lookup", "logit-attribution", "input-attribution", "token-loss"});
  only_for(o.words.has_value(), "--words", {"embedding-cosine"});
  only_for(o.sum.has_value(), "--sum", {"embedding-neighbors"});
  only_for(!o.lens.empty(), "--lens", {"logit-lens", "tuned-lens"});
  const bool sizes = !o.config.empty();
  if (!sizes && !o.prompt.has_text && !o.prompt.has_tokens) {
    o.prompt.text = kUsualPrompt;
    o.prompt.has_text = true;
  }
  PictureOptions options = picture_options(o);
  if (!o.out.empty()) check_writable("--out", o.out);
  Engine engine = sizes ? open_sizes(o) : open_engine(o.model);
  check_output(engine, o.out);
  if (!o.lens.empty()) options.lens = open_lens(o.lens, engine);
  PicturePrompt prompt;
  if (sizes)
    prompt.model = o.config;
  else
    prompt = prompt_of(engine, o);
  const PictureJson document = picture_document(engine, prompt, o.name, options);
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
  add_count(
      app, "--layer", o->layer, 0, 1 << 20,
      "attention, softmax, query-length, experts, expert-load, interpolation, task-vectors, and pictures of one block or head: "
      "this layer");
  add_count(app, "--head", o->head, 0, 1 << 20, "attention, softmax, and pictures of one head: this head");
  add_count(
      app, "--position", o->position, 0, INT32_MAX,
      "softmax, logit-attribution, input-attribution, token-loss: this token of the prompt; default: the last, of token-loss "
      "the one before the largest loss");
  app.add_option("--words", o->words, "embedding-cosine: these words, separated by commas")->type_name("WORDS");
  app.add_option("--sum", o->sum, "embedding-neighbors: words with signs between them; default: king - man + woman")
      ->type_name("SUM");
  add_lens_option(app, o->lens, "logit-lens, tuned-lens: look through this tuned lens, which `vitrine lens train` made");
  add_model_options(app, o->model);
  add_lora_option(app, o->model);
  app.add_option("--config", o->config,
                 "Pictures that follow from sizes alone: a config.json, a model's directory, or a design (gpt2, gpt3, gemma-2b, "
                 "gemma-2-2b, …); no weights are read")
      ->type_name("CONFIG")
      ->check(not_empty())
      ->excludes("--model", "--adapter");
  return [o] { run_picture(*o); };
}

}  // namespace

const Command picture_command = {
    "picture", "Draw one picture of the walk-through",
    "Prints a description with a table of the main numbers, data (--json) or a drawing (--svg). Without a prompt a default "
    "one is used. docs/pictures.md lists what each picture shows.",
    "vitrine picture --list\nvitrine picture update-scale\nvitrine picture attention \"The king and the queen\" --out "
    "heads.svg",
    define_picture};

}  // namespace vitrine::cli
