#include "cli/picture_arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/text_table.h"
#include "io/atomic_file.h"

namespace vitrine::cli {

void list_pictures(bool json, std::span<const PictureInfo> list) {
  if (json) {
    OrderedJson all = OrderedJson::array();
    for (const PictureInfo& info : list) all.push_back({{"name", info.name}, {"title", info.title}, {"summary", info.summary}});
    print_json({{"pictures", all}});
    return;
  }
  TextTable table{{{"", true}, {"", true}}, {}};
  for (const PictureInfo& info : list) table.rows.push_back({info.name, info.summary});
  print_table(table);
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

}  // namespace vitrine::cli
