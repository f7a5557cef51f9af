#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "runtime/model_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace vitrine::cli {
namespace {

struct TokenizeOptions {
  std::string model, text, file, jsonl, special, compare;
  bool has_text = false, no_special = false, json = false;
};

Special special_of(const std::string& word) {
  if (word == "text") return Special::text;
  if (word == "parse") return Special::parse;
  return Special::as_file;
}

OrderedJson document(const Tokenizer& tokenizer, const std::string& text, const TokenizeOptions& o) {
  OrderedJson tokens = OrderedJson::array(), pieces = OrderedJson::array(), offsets = OrderedJson::array();
  for (const TokenPiece& piece : tokenizer.encode_with_offsets(text, !o.no_special, special_of(o.special))) {
    tokens.push_back(piece.id);
    pieces.push_back(tokenizer.piece(piece.id));
    offsets.push_back({piece.begin, piece.end});
  }
  return {{"tokens", tokens}, {"pieces", pieces}, {"offsets", offsets}};
}

void print_table(const Tokenizer& tokenizer, const std::string& text, const TokenizeOptions& o) {
  const auto pieces = tokenizer.encode_with_offsets(text, !o.no_special, special_of(o.special));
  int widest = 5;
  for (const TokenPiece& piece : pieces) widest = std::max(widest, width_of(visible(tokenizer.piece(piece.id))));
  print("{}\n", dim(fmt::format("{:>8}  {}  bytes", "id", pad_right("piece", widest))));
  for (const TokenPiece& piece : pieces)
    print("{:>8}  {}  {}\n", piece.id, pad_right(visible(tokenizer.piece(piece.id)), widest),
          piece.begin == piece.end ? dim("-") : fmt::format("{}-{}", piece.begin, piece.end));
  log("{} for {}. {}", plural(pieces.size(), "token"), plural(text.size(), "byte"), tokenizer.description());
}

/// --compare: the first difference over the whole text. Finding one is a result, not a failure.
void compare(const Tokenizer& ours, const std::string& text, const TokenizeOptions& o) {
  const auto other = open_tokenizer(o.compare);
  const auto difference = first_difference(ours, *other, text, special_of(o.special));
  if (o.json) {
    OrderedJson found = nullptr;
    if (difference)
      found = {{"index", difference->index},
               {"byte", difference->begin},
               {"line", difference->line},
               {"message", difference->message}};
    print_json({{"equal", !difference}, {"bytes", text.size()}, {"first_difference", found}});
  } else {
    print("{}\n", difference ? difference->message : "equal over " + plural(text.size(), "byte"));
  }
}

void tokenize(const TokenizeOptions& o) {
  const int given = int{o.has_text} + int{!o.file.empty()} + int{!o.jsonl.empty()};
  if (given == 0) throw UsageError("no text: give one, or name a file with --file or --jsonl.");
  if (given > 1) throw UsageError("more than one text: give TEXT, --file or --jsonl.");
  if (o.has_text) require_utf8(o.text, "the text");
  const auto tokenizer = open_tokenizer(model_or_shipped(o.model));
  if (!o.jsonl.empty()) {
    if (!o.compare.empty()) throw UsageError("--compare reads one text; give it as TEXT or --file.");
    for (const std::string& text : read_jsonl_texts(o.jsonl)) print_json(document(*tokenizer, text, o));
    return;
  }
  const std::string text = o.has_text ? o.text : read_text(o.file);
  if (!o.compare.empty()) {
    compare(*tokenizer, text, o);
  } else if (o.json) {
    print_json(document(*tokenizer, text, o));
  } else {
    print_table(*tokenizer, text, o);
  }
}

Action define_tokenize(CLI::App& app) {
  auto o = std::make_shared<TokenizeOptions>();
  app.add_option("TEXT", o->text, "The text")->type_name("")->each([o](const std::string&) { o->has_text = true; });
  app.add_option("--file", o->file, "A file (- for standard input) as one text; any bytes")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--jsonl", o->jsonl, "A file with one {\"text\": …} per line; prints one object per line")
      ->type_name("FILE")
      ->check(not_empty());
  add_model_name(app, o->model);
  app.add_flag("--no-special", o->no_special, "Do not add BOS or EOS");
  add_choice(app, "--special", o->special, "text|parse",
             "Treat control tokens spelled in the text as text or as tokens; default: as in the tokenizer's reference library");
  app.add_option("--compare", o->compare, "Another model or tokenizer; prints where the ids first differ")
      ->type_name("MODEL")
      ->check(not_empty());
  add_json(app, o->json);
  return [o] { tokenize(*o); };
}

}  // namespace

const Command tokenize_command = {
    "tokenize", "Split text into tokens: ids, pieces, byte offsets",
    "--model may also be a bare tokenizer: a folder with tokenizer.json, tokenizer.model, vocab.json and merges.txt, or "
    "vocab.txt, or one such file.",
    "vitrine tokenize \"The old king had three sons\"\nvitrine tokenize --json \"The old king had three sons\"", define_tokenize};

}  // namespace vitrine::cli
