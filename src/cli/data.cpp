// vitrine data: text files to token data that training reads.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/model_tokenizer.h"
#include "tokenizer/load.h"
#include "train/data/characters.h"
#include "train/data/prepare.h"

namespace vitrine::cli {
namespace {

constexpr char kCharacters[] = "characters";

struct DataArguments {
  PrepareOptions prepare;
  std::string tokenizer, out, format, separator, check;
  int64_t threads = 0, seed = 0;
  bool no_special = false, has_key = false, json = false;
};

OrderedJson counts(uint64_t tokens, uint64_t documents, uint64_t text_bytes) {
  return {{"tokens", tokens}, {"documents", documents}, {"text_bytes", text_bytes}};
}

void print_counts(const char* name, uint64_t tokens, uint64_t documents, uint64_t text_bytes) {
  print("{}  {} in {}, {} of text{}\n", pad_right(name, 5), plural(grouped(static_cast<int64_t>(tokens)), "token"),
        plural(grouped(static_cast<int64_t>(documents)), "document"), bytes_text(static_cast<double>(text_bytes)),
        tokens == 0 ? "" : fmt::format(", {:.2f} bytes a token", static_cast<double>(text_bytes) / static_cast<double>(tokens)));
}

void check(const DataArguments& o) {
  const TokenData data = TokenData::open(o.check);
  data.verify();
  if (o.json) {
    OrderedJson document = counts(data.tokens(), data.documents(), data.text_bytes());
    document["vocab_size"] = data.vocab_size();
    print_json(document);
    return;
  }
  print_counts("whole", data.tokens(), data.documents(), data.text_bytes());
}

void run_data(DataArguments o) {
  if (!o.check.empty()) {
    if (!o.prepare.files.empty() || !o.out.empty()) throw UsageError("--check reads one folder and takes no FILES and no --out.");
    check(o);
    return;
  }
  if (o.prepare.files.empty()) throw UsageError("no text: name files, as in `vitrine data tales.txt.gz --out tokens`.");
  if (o.out.empty()) throw UsageError("--out is missing: name the folder to make.");
  if (o.prepare.valid > 0 && !o.prepare.valid_files.empty())
    throw UsageError("--valid and --valid-files are two ways to hold text out; give one.");
  if (o.format == "text") o.prepare.text.format = TextFormat::text;
  if (o.format == "jsonl") o.prepare.text.format = TextFormat::jsonl;
  o.prepare.text.separator = unescape(o.separator, "--document");
  std::vector<std::string> files = o.prepare.files;
  files.insert(files.end(), o.prepare.valid_files.begin(), o.prepare.valid_files.end());
  check_text_flags(files, o.prepare.text, o.has_key);
  o.prepare.special = !o.no_special;
  o.prepare.seed = static_cast<uint64_t>(o.seed);

  std::map<std::string, std::string> tokenizer_files;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (o.tokenizer == kCharacters) {
    tokenizer_files = character_tokenizer_files(characters_of(files, o.prepare.text));
    tokenizer = tokenizer_from_json(tokenizer_files.at("tokenizer.json"), "the vocabulary of characters", {});
  } else {
    tokenizer = open_tokenizer(model_or_shipped(o.tokenizer));
  }
  ThreadPool pool(static_cast<int>(o.threads));
  Progress progress("tokenising");
  double tokens_per_second = 0;
  const Prepared made = prepare_data(*tokenizer, pool, o.prepare, o.out, tokenizer_files, [&](const PrepareProgress& now) {
    tokens_per_second = static_cast<double>(now.tokens) / std::max(progress.seconds(), 1e-9);
    progress.show(static_cast<double>(now.read_bytes) / static_cast<double>(std::max<uint64_t>(now.file_bytes, 1)),
                  grouped(static_cast<int64_t>(tokens_per_second)) + " tokens/s");
  });
  if (o.json) {
    print_json(
        {{"out", o.out},
         {"vocab_size", tokenizer->vocab_size()},
         {"train", counts(made.train.tokens, made.train.documents, made.train.text_bytes)},
         {"valid", made.valid ? counts(made.valid->tokens, made.valid->documents, made.valid->text_bytes) : OrderedJson(nullptr)},
         {"bos", made.bos ? OrderedJson(*made.bos) : OrderedJson()},
         {"eos", made.eos ? OrderedJson(*made.eos) : OrderedJson()},
         {"tokens_per_s", tokens_per_second}});
    return;
  }
  print_counts("train", made.train.tokens, made.train.documents, made.train.text_bytes);
  if (made.valid) print_counts("valid", made.valid->tokens, made.valid->documents, made.valid->text_bytes);
  const auto token = [&](std::optional<int32_t> id) {
    return id ? fmt::format("{} \"{}\"", *id, visible_message(tokenizer->piece(*id))) : std::string("nothing");
  };
  log("written to {}, {} tokens/s; {} in front of each document, {} at its end", o.out,
      grouped(static_cast<int64_t>(tokens_per_second)), token(made.bos), token(made.eos));
}

}  // namespace

Action define_data(CLI::App& app) {
  auto o = std::make_shared<DataArguments>();
  app.add_option("FILES", o->prepare.files, "Text files, or JSON lines (.jsonl), each also as .gz or .zst")->type_name("");
  app.add_option("--tokenizer", o->tokenizer,
                 "A model or a bare tokenizer; \"characters\" makes a vocabulary of the text's characters and writes it to "
                 "OUT/tokenizer.json; default: that of the shipped model")
      ->type_name("MODEL")
      ->check(not_empty());
  app.add_option("--out,-o", o->out, "The folder to make: OUT/train, and OUT/valid if text is held out (replaced if it exists)")
      ->type_name("OUT")
      ->check(not_empty());
  add_number(app, "--valid", o->prepare.valid, 0, 0.99, "Share of the documents that is held out for validation", true);
  app.add_option("--valid-files", o->prepare.valid_files, "Files held out for validation. May be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  app.add_option("--key", o->prepare.text.key, "JSON lines: the key that holds the text")
      ->type_name("KEY")
      ->capture_default_str()
      ->each([o](const std::string&) { o->has_key = true; });
  add_choice(app, "--format", o->format, "text|jsonl", "What the files are; default: what their names say");
  app.add_option(
         "--document", o->separator,
         "Text files: the separator between documents, such as '<|endoftext|>' or '\\n\\n\\n'; without it a file is one document")
      ->type_name("SEPARATOR")
      ->check(not_empty());
  app.add_flag("--no-special", o->no_special, "No BOS or EOS around documents");
  app.add_flag_callback(
      "--replace-invalid", [o] { o->prepare.text.invalid = InvalidText::replace; },
      "Read bytes that are not UTF-8 as U+FFFD instead of stopping");
  add_count(app, "--seed", o->seed, 0, INT64_MAX, "Decides which documents --valid draws (default 0)");
  app.add_option("--check", o->check, "Instead: read such a folder (OUT/train) again and compare it with its checksums")
      ->type_name("FOLDER")
      ->check(not_empty());
  add_count(app, "--threads", o->threads, 1, 1024,
            "Threads; default: the cores this process may use. The result does not depend on it");
  add_json(app, o->json);
  for (const char* name : {"--tokenizer", "--valid", "--valid-files", "--key", "--format", "--document", "--no-special",
                           "--replace-invalid", "--seed"})
    app.get_option("--check")->excludes(app.get_option(name));
  return [o] { run_data(*o); };
}

}  // namespace vitrine::cli
