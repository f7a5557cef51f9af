#include "cli/eval_input.h"

#include "base/error.h"
#include "cli/options.h"
#include "io/text_reader.h"

namespace vitrine::cli {

namespace {
constexpr size_t kLongestLine = size_t{64} << 20;  // of JSON lines
}

void add_eval_text_options(CLI::App& app, EvalTextOptions& o) {
  app.add_option(
         "--file,-f", o.file,
         "The text: plain, or JSON lines if its name ends in .jsonl or .ndjson; also .gz and .zst; - reads plain text from "
         "standard input")
      ->type_name("FILE")
      ->required()
      ->check(not_empty());
  app.add_flag("--jsonl", o.jsonl, "The file is JSON lines, whatever its name: one object per line, each a separate text");
  app.add_option("--key", o.key, "The key of the text in JSON lines (default text)")
      ->type_name("KEY")
      ->check(not_empty())
      ->each([&o](const std::string&) { o.has_key = true; });
  add_count(app, "--context", o.windows.context, 2, 1 << 20, "Tokens of a window; the default is printed with the result");
  add_count(app, "--stride", o.windows.stride, 1, 1 << 20, "Tokens from one window to the next (default: half of --context)");
  app.add_flag("--no-special", o.windows.no_special, "Do not add BOS or EOS");
}

std::vector<std::string> read_eval_texts(const EvalTextOptions& o) {
  const TextFormat format = o.jsonl ? TextFormat::jsonl : TextFormat::by_name;
  if (o.has_key && !reads_json_lines(o.file, format))
    throw UsageError(
        "--key is for JSON lines; the file's name ends neither in .jsonl nor .ndjson. Add --jsonl if it holds them.");
  std::vector<std::string> texts;
  if (o.file == "-") {
    if (o.jsonl) return read_jsonl_texts("-");
    texts.push_back(read_text("-"));
    require_utf8(texts[0], "standard input");
  } else {
    TextReader reader(o.file, {.format = format, .key = o.key});
    for (TextPiece piece; reader.next(piece);) {
      if (piece.begins) texts.emplace_back();
      texts.back() += piece.text;
    }
  }
  size_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  if (bytes == 0) throw FileError(o.file == "-" ? "standard input" : o.file, "holds no text, so there is nothing to evaluate on");
  return texts;
}

void each_json_line(const std::string& path, const std::function<bool(const Json&, const std::string&)>& f) {
  TextReader reader(path, {.format = TextFormat::text, .separator = "\n"});
  std::string line;
  uint64_t number = 0;
  for (TextPiece piece; reader.next(piece);) {
    if (piece.begins) {
      line.clear();
      number = piece.line;
    }
    line += piece.text;
    if (line.size() > kLongestLine)
      throw FileError(fmt::format("{} line {}", path, number), "is longer than 64 MiB. Expected one JSON object a line");
    if (!piece.ends || line.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    const std::string where = fmt::format("{} line {}", path, number);
    if (!f(parse_json(line, where), where)) return;
  }
}

OrderedJson definition_json(const Engine& engine, const WindowDefinition& d) {
  return {{"like", name_of(d.like)},
          {"context", d.context},
          {"stride", d.stride > 0 ? OrderedJson(d.stride) : OrderedJson(nullptr)},
          {"first_token", d.lead ? OrderedJson(*d.lead) : OrderedJson(nullptr)},
          {"special", d.special},
          {"text", d.text(engine)}};
}

std::string rate_text(double per_second) {
  return per_second < 10000 ? grouped(static_cast<int64_t>(per_second)) : fmt::format("{:.1f} k", per_second / 1000);
}

}  // namespace vitrine::cli
