// vitrine data: text files to token data that training reads.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/plural.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "cli/shard_flags.h"
#include "io/corpus_files.h"
#include "model/fingerprint.h"
#include "runtime/engine.h"
#include "runtime/model_tokenizer.h"
#include "tokenizer/load.h"
#include "train/data/characters.h"
#include "train/data/conversations.h"
#include "train/data/forms.h"
#include "train/data/prepare.h"

namespace vitrine::cli {
namespace {

constexpr char kCharacters[] = "characters";

struct DataArguments {
  PrepareOptions prepare;
  DocumentFlags documents;
  std::string tokenizer, out, check, show, template_path;
  int64_t threads = 0, seed = 0, count = 3;
  bool no_special = false, json = false, chat = false, preferences = false, unpaired = false, prompts = false,
       as_messages = false;
  ShardFlags sharing;
};

OrderedJson counts(const PreparedSplit& split, bool masked) {
  if (masked) return {{"tokens", split.tokens}, {"documents", split.documents}, {"scored", split.scored}};
  return {{"tokens", split.tokens}, {"documents", split.documents}, {"text_bytes", split.text_bytes}};
}

void print_counts(const char* name, const PreparedSplit& split, bool masked) {
  const auto tokens = static_cast<double>(std::max<uint64_t>(split.tokens, 1));
  print("{}  {} in {}, {}\n", pad_right(name, 5), plural(grouped(static_cast<int64_t>(split.tokens)), "token"),
        plural(grouped(static_cast<int64_t>(split.documents)), "document"),
        masked ? fmt::format("{} of them scored ({})", grouped(static_cast<int64_t>(split.scored)),
                             percent(static_cast<double>(split.scored) / tokens))
               : bytes_text(static_cast<double>(split.text_bytes)) + " of text" +
                     (split.tokens == 0 ? ""
                                        : fmt::format(", {:.2f} bytes a token", static_cast<double>(split.text_bytes) / tokens)));
}

uint64_t scored_in(const TokenData& data) {
  std::vector<uint8_t> scored(size_t{1} << 16);
  uint64_t sum = 0;
  for (uint64_t at = 0; at < data.tokens(); at += scored.size()) {
    const std::span<uint8_t> some = std::span(scored).first(std::min<uint64_t>(scored.size(), data.tokens() - at));
    data.read_scored(at, some);
    sum += static_cast<uint64_t>(std::count(some.begin(), some.end(), 1));
  }
  return sum;
}

void check(const DataArguments& o) {
  const TokenData data = TokenData::open(o.check);
  data.verify();
  const PreparedSplit split{data.tokens(), data.documents(), data.text_bytes(), scored_in(data)};
  if (o.json) {
    OrderedJson document = counts(split, data.masked());
    document["vocab_size"] = data.vocab_size();
    print_json(document);
    return;
  }
  print_counts("whole", split, data.masked());
}

std::string what_lines_become(const TokenData& data, uint64_t document, uint64_t start) {
  if (data.content() == DataContent::unpaired)
    return fmt::format("example {}, {}", document, data.desirable(start) ? "desirable" : "undesirable");
  if (data.content() != DataContent::preferences) return fmt::format("document {}", document);
  return fmt::format("pair {}, {}", document / 2, document % 2 == 0 ? "chosen" : "rejected");
}

// The first documents, as text with what is scored between marks.
void show(const DataArguments& o) {
  const TokenData data = TokenData::open(o.show);
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(model_or_shipped(o.tokenizer));
  if (tokenizer_fingerprint(*tokenizer) != data.tokenizer())
    throw InputError(o.show + ": was made with another tokenizer; name that one with --tokenizer");
  std::vector<uint64_t> starts = data.document_starts(0, data.tokens());
  starts.push_back(data.tokens());
  OrderedJson documents = OrderedJson::array();
  for (uint64_t d = 0; d + 1 < starts.size() && d < static_cast<uint64_t>(o.count); ++d) {
    std::vector<int32_t> ids(starts[d + 1] - starts[d]);
    std::vector<uint8_t> scored(ids.size());
    data.read(starts[d], ids);
    data.read_scored(starts[d], scored);
    if (o.json) {
      documents.push_back({{"tokens", ids}, {"scored", scored}, {"text", tokenizer->decode(ids)}});
      if (data.content() == DataContent::unpaired) documents.back()["label"] = data.desirable(starts[d]);
      continue;
    }
    print("{}: {}, {} scored\n", what_lines_become(data, d, starts[d]), plural(static_cast<int64_t>(ids.size()), "token"),
          std::count(scored.begin(), scored.end(), 1));
    std::string text;
    for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
      while (end < ids.size() && scored[end] == scored[begin]) ++end;
      const std::string part = visible_message(tokenizer->decode(std::span(ids).subspan(begin, end - begin)));
      text += scored[begin] != 0 && data.masked() ? "⟦" + part + "⟧" : part;
    }
    print("{}\n", text);
  }
  if (o.json) print_json({{"content", content_name(data.content())}, {"documents", documents}});
}

const char* flag_of(DataContent content) {
  switch (content) {
    case DataContent::preferences: return "--preferences";
    case DataContent::unpaired: return "--unpaired-preferences";
    case DataContent::prompts: return "--prompts";
    default: return "--chat";
  }
}

// What the flags say that the files hold.
DataContent content_of(const DataArguments& o) {
  return o.chat          ? DataContent::conversations
         : o.preferences ? DataContent::preferences
         : o.unpaired    ? DataContent::unpaired
         : o.prompts     ? DataContent::prompts
                         : DataContent::text;
}

// Of the first object. Null: there is none. Errors: InputError naming its line, as form_of().
const DataForm* form_of_first(const std::vector<std::string>& files, const PrepareOptions& options) {
  const std::optional<FirstObject> first = first_object(files, options.text.invalid);
  if (!first) return nullptr;
  try {
    return &form_of(object_of(first->json, options.content), options.content);
  } catch (const InputError& error) {
    throw InputError(first->where + ": " + error.what());
  }
}

// Errors: UsageError for objects without a text that are of a form which another flag reads.
void check_text(const std::vector<std::string>& files, const TextOptions& text) {
  if (!reads_json_lines(files.front(), text.format) || is_tar(files.front())) return;
  const std::optional<FirstObject> first = first_object({files.front()}, text.invalid);
  if (!first || !OrderedJson::accept(first->json)) return;
  const OrderedJson object = OrderedJson::parse(first->json);
  if (!object.is_object() || object.contains(text.key)) return;
  for (const DataForm& form : kDataForms)
    if (find_form(object, form.content) == &form)
      throw UsageError(fmt::format("{}: has {}, the form {}. Read it with {}, or name the key of a text with --key.",
                                   first->where, named_keys(object), form.expected, flag_of(form.content)));
}

void run_data(DataArguments o) {
  if (!o.check.empty()) {
    if (!o.prepare.files.empty() || !o.out.empty()) throw UsageError("--check reads one folder and takes no FILES and no --out.");
    check(o);
    return;
  }
  if (!o.show.empty()) {
    if (!o.prepare.files.empty() || !o.out.empty()) throw UsageError("--show reads one folder and takes no FILES and no --out.");
    show(o);
    return;
  }
  if (o.prepare.files.empty()) throw UsageError("no text: name files, as in `vitrine data tales.txt.gz --out tokens`.");
  if (o.out.empty()) throw UsageError("--out is missing: name the folder to make.");
  if (o.prepare.valid > 0 && !o.prepare.valid_files.empty())
    throw UsageError("--valid and --valid-files are two ways to hold text out; give one.");
  o.prepare.files = corpus_files(o.prepare.files);
  o.prepare.valid_files = corpus_files(o.prepare.valid_files);
  std::vector<std::string> files = o.prepare.files;
  files.insert(files.end(), o.prepare.valid_files.begin(), o.prepare.valid_files.end());
  read_document_flags(files, o.prepare.text, o.documents);
  o.prepare.content = content_of(o);
  const bool masked = o.prepare.content != DataContent::text;
  if (!o.template_path.empty() && !masked)
    throw UsageError("--template goes with --chat, --preferences, --unpaired-preferences or --prompts.");
  if (!masked) check_text(files, o.prepare.text);
  o.prepare.special = !o.no_special;
  o.prepare.seed = static_cast<uint64_t>(o.seed);

  std::map<std::string, std::string> tokenizer_files;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::pair<std::string, std::string>> identity;  // what the parts of --shard depend on, beside the flags
  if (masked) {
    if (o.tokenizer == kCharacters)
      throw UsageError(fmt::format("{} goes with a model's tokenizer, not with characters.", flag_of(o.prepare.content)));
    const auto engine = std::make_shared<const Engine>(model_or_shipped(o.tokenizer), EngineOptions{.threads = 1});
    const auto source = o.template_path.empty() ? std::nullopt : std::optional(read_file(o.template_path, 1 << 20));
    tokenizer = std::shared_ptr<const Tokenizer>(engine, &engine->tokenizer());
    const LineReading reading = read_lines(engine, {.content = o.prepare.content,
                                                    .form = form_of_first(files, o.prepare),
                                                    .chat_template = source,
                                                    .called = o.template_path,
                                                    .as_messages = o.as_messages});
    o.prepare.encode_line = reading.encode;
    if (!reading.chat_template.empty()) tokenizer_files[kTemplateName] = reading.chat_template;
    identity.emplace_back("template", hexadecimal(add_to_fingerprint(0, std::as_bytes(std::span(reading.chat_template)))));
    identity.emplace_back("as_messages", o.as_messages ? "1" : "0");
  } else if (o.tokenizer == kCharacters) {
    tokenizer_files = character_tokenizer_files(characters_of(files, o.prepare.text));
    tokenizer = tokenizer_from_json(tokenizer_files.at("tokenizer.json"), "the vocabulary of characters", {});
  } else {
    tokenizer = open_tokenizer(model_or_shipped(o.tokenizer));
  }
  // Not of the pieces alone: what merges, what is normalized and what stands around a text change ids, too.
  if (!o.sharing.shard.empty() || !o.sharing.join.empty())
    identity.emplace_back("tokenizer",
                          hexadecimal(o.tokenizer == kCharacters ? tokenizer_fingerprint(*tokenizer)
                                                                 : fingerprint_of_tokenizer(model_or_shipped(o.tokenizer))));
  ThreadPool pool(static_cast<int>(o.threads));
  Progress progress("tokenizing");
  double tokens_per_second = 0;
  const auto show_progress = [&](const PrepareProgress& now) {
    tokens_per_second = static_cast<double>(now.tokens) / std::max(progress.seconds(), 1e-9);
    progress.show(static_cast<double>(now.read_bytes) / static_cast<double>(std::max<uint64_t>(now.file_bytes, 1)),
                  grouped(static_cast<int64_t>(tokens_per_second)) + " tokens/s");
  };
  SharedWork work = shared_work(o.sharing, {}, identity);
  const Prepared made = prepare_data(*tokenizer, pool, o.prepare, o.out, tokenizer_files, show_progress, &work);
  if (finish_part(work, o.json)) return;
  if (o.json) {
    print_json({{"out", o.out},
                {"vocab_size", tokenizer->vocab_size()},
                {"train", counts(made.train, masked)},
                {"valid", made.valid ? counts(*made.valid, masked) : OrderedJson(nullptr)},
                {"bos", made.bos ? OrderedJson(*made.bos) : OrderedJson()},
                {"eos", made.eos ? OrderedJson(*made.eos) : OrderedJson()},
                {"tokens_per_s", tokens_per_second}});
    return;
  }
  print_counts("train", made.train, masked);
  if (made.valid) print_counts("valid", *made.valid, masked);
  if (masked)
    return log("written to {}, {} tokens/s; `vitrine data --show {}/train` shows what is scored", o.out,
               grouped(static_cast<int64_t>(tokens_per_second)), o.out);
  const auto token = [&](std::optional<int32_t> id) {
    return id ? fmt::format("{} \"{}\"", *id, visible_message(tokenizer->piece(*id))) : std::string("nothing");
  };
  log("written to {}, {} tokens/s; {} before each document, {} at its end", o.out,
      grouped(static_cast<int64_t>(tokens_per_second)), token(made.bos), token(made.eos));
}

Action define_data(CLI::App& app) {
  auto o = std::make_shared<DataArguments>();
  app.add_option("FILES", o->prepare.files, kTextFiles)->type_name("");
  app.add_option("--tokenizer", o->tokenizer,
                 "A model or a bare tokenizer; \"characters\" makes a vocabulary of the text's characters and writes it to "
                 "OUT/tokenizer.json; default: that of the shipped model")
      ->type_name("MODEL")
      ->check(not_empty());
  app.add_option("--out,-o", o->out, "The folder to create: OUT/train, and OUT/valid if text is held out (replaced if it exists)")
      ->type_name("OUT")
      ->check(not_empty());
  add_number(app, "--valid", o->prepare.valid, 0, 0.99, "Share of the documents that is held out for validation", true);
  app.add_option("--valid-files", o->prepare.valid_files, "Files held out for validation. May be repeated")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
  add_document_flags(app, o->prepare.text, o->documents);
  app.add_flag("--no-special", o->no_special, "No BOS or EOS around documents");
  app.add_flag_callback(
      "--replace-invalid", [o] { o->prepare.text.invalid = InvalidText::replace; },
      "Read bytes that are not UTF-8 as U+FFFD instead of stopping");
  add_count(app, "--seed", o->seed, 0, INT64_MAX, "Seed for the documents that --valid selects (default 0)");
  app.add_option("--check", o->check, "Instead: check such a folder (OUT/train) against its checksums")
      ->type_name("FOLDER")
      ->check(not_empty());
  app.add_flag(
      "--chat", o->chat,
      "JSON lines, or a JSON list, of conversations (\"messages\", or ShareGPT's \"conversations\"), of \"prompt\" and "
      "\"completion\", or of Alpaca's \"instruction\", \"input\" and \"output\"; only what the assistant says is scored");
  app.add_flag("--as-messages", o->as_messages,
               "Prompts and completions that are texts, and Alpaca's, become messages of the chat template");
  app.add_flag("--preferences", o->preferences,
               "Lines of {\"prompt\", \"chosen\", \"rejected\"}, texts or messages: pairs of answers, for dpo, cpo and orpo");
  app.add_flag(
      "--unpaired-preferences", o->unpaired,
      "Lines of {\"prompt\", \"completion\", \"label\"}, texts or messages and whether the completion is desirable, or of "
      "{\"prompt\", \"chosen\", \"rejected\"}, which become two: for kto");
  app.add_flag("--prompts", o->prompts,
               "Lines of {\"prompt\"}, a text or messages, with whatever a reward reads besides: for grpo");
  app.add_option("--template", o->template_path, "A Jinja template instead of the model's own")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option("--show", o->show, "Instead: print the first documents of such a folder, with ⟦ ⟧ around the scored tokens")
      ->type_name("FOLDER")
      ->check(not_empty());
  add_count(app, "--count", o->count, 1, 1'000'000, "Documents that --show prints (default 3)");
  add_count(app, "--threads", o->threads, 1, 1024,
            "Threads; default: the cores this process may use. The result does not depend on it");
  add_json(app, o->json);
  add_shard_flags(app, o->sharing);
  for (const char* name : {"--tokenizer", "--valid", "--valid-files", "--key", "--format", "--document", "--no-special",
                           "--replace-invalid", "--seed", "--shard", "--join"})
    app.get_option("--check")->excludes(app.get_option(name));
  for (const char* name :
       {"--check", "--valid", "--valid-files", "--key", "--format", "--document", "--no-special", "--replace-invalid", "--seed",
        "--chat", "--as-messages", "--preferences", "--unpaired-preferences", "--prompts", "--template", "--shard", "--join"})
    app.get_option("--show")->excludes(app.get_option(name));
  app.get_option("--count")->needs(app.get_option("--show"));
  std::vector<CLI::Option*> lines;
  for (const char* flag : {"--chat", "--preferences", "--unpaired-preferences", "--prompts"}) {
    CLI::Option* const one = app.get_option(flag);
    for (CLI::Option* other : lines) one->excludes(other);
    for (const char* name : {"--check", "--key", "--format", "--document", "--no-special"}) one->excludes(app.get_option(name));
    lines.push_back(one);
  }
  app.get_option("--template")->excludes(app.get_option("--check"));
  app.get_option("--as-messages")->needs("--chat");
  return [o] { run_data(*o); };
}

}  // namespace

const Command data_command = {
    "data", "Tokenize text files into training data",
    "Reads plain files or JSON lines, compressed or not. Text is read as a stream, so memory does not grow with the "
    "corpus. The output is the same for any number of threads. Control tokens spelled out in the text stay text. See "
    "docs/token-data.md.",
    "vitrine data examples/fables.txt --document '\\n\\n\\n' --valid 0.2 --out fables-tokens\n"
    "vitrine data examples/fables.txt --tokenizer characters --out fables-characters\n"
    "vitrine data --check fables-tokens/train",
    define_data};

}  // namespace vitrine::cli
