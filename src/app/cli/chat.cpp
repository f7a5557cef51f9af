// vitrine chat: a conversation in the terminal, with the model's own chat template.
#include "generate/chat.h"

#include <unistd.h>

#include <iostream>
#include <memory>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/generate_options.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/session.h"
#include "model/abilities.h"

namespace vitrine::cli {
namespace {

struct ChatArguments {
  ModelOptions model;
  GenerateFlags generate;
  std::string text, system, template_path;
  bool show_prompt = false;
};

/// One turn: the answer joins the conversation.
void answer(Engine& engine, const GenerateOptions& options, const ChatFormat& format, std::vector<ChatMessage>& messages,
            const ChatArguments& o) {
  const std::vector<int32_t> prompt = format.ids(messages);
  if (o.show_prompt) log("{}", visible(format.text(messages).text));
  const Generation made = generate(engine, prompt, options, [&](std::string_view piece) {
    if (o.model.json) return;
    write_out(piece);
    finish_output();
  });
  messages.push_back({"assistant", made.text});
  if (!o.model.json) {
    print("\n");
    return log_drafts(made.timings);
  }
  OrderedJson said = OrderedJson::array();
  for (const ChatMessage& m : messages) said.push_back({{"role", m.role}, {"content", m.content}});
  print_json({{"messages", said},
              {"prompt", format.text({messages.begin(), messages.end() - 1}).text},
              {"prompt_tokens", prompt},
              {"text", made.text},
              {"tokens", made.tokens},
              {"logprobs", made.logprobs},
              {"finish_reason", made.finish_reason},
              {"drafted_tokens", made.timings.drafted_tokens},
              {"accepted_tokens", made.timings.accepted_tokens}});
}

void run_chat(const ChatArguments& o) {
  o.generate.check();
  Engine engine = open_engine(o.model);
  require_causal(engine.model(), engine.name(), "A chat");
  GenerateOptions options = o.generate.options(engine);
  options.alone = true;
  options.drafter = o.generate.open_drafter(engine);
  options.constraint = o.generate.open_constraint(engine);
  const ChatFormat format(engine, o.template_path.empty() ? std::nullopt : std::optional(read_file(o.template_path, 1 << 20)),
                          o.template_path);
  std::vector<ChatMessage> messages;
  if (!o.system.empty()) messages.push_back({"system", o.system});
  const auto say = [&](const std::string& text) {
    require_utf8(text, "what was said");
    messages.push_back({"user", text});
    answer(engine, options, format, messages, o);
  };
  if (!o.text.empty()) return say(o.text);
  const bool person = ::isatty(STDIN_FILENO) != 0;
  std::string line;
  for (;;) {
    if (person) log("you say (an empty line ends the conversation):");
    if (!std::getline(std::cin, line) || (person && line.empty())) break;
    if (!line.empty()) say(line);
  }
}

Action define_chat(CLI::App& app) {
  auto o = std::make_shared<ChatArguments>();
  app.add_option("TEXT", o->text, "Your message; without it, lines are read from standard input")->check(not_empty());
  app.add_option("--system", o->system, "A system message before the conversation")->type_name("TEXT");
  app.add_option("--template", o->template_path, "A Jinja template instead of the model's own")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_flag("--show-prompt", o->show_prompt, "Print the rendered prompt to stderr");
  add_count(app, "--max-tokens,-n", o->generate.max_tokens, 0, int64_t{1} << 40, "Maximum new tokens of an answer (default 128)");
  add_sampling_flags(app, o->generate);
  add_stop_flags(app, o->generate);
  add_draft_flags(app, o->generate);
  add_grammar_flags(app, o->generate);
  add_model_options(app, o->model);
  add_lora_option(app, o->model);
  add_decoding_cache_types(app, o->model);
  add_load(app, o->model);
  return [o] { run_chat(*o); };
}

}  // namespace

const Command chat_command = {
    "chat", "Chat with a model through its chat template",
    "Reads your messages line by line, or one TEXT, and streams the answers. Control tokens spelled out in a message stay "
    "text. If the tokenizer adds BOS, it occurs once at the beginning, whether the template writes it or not. --show-prompt "
    "prints what the template wrote.",
    "vitrine chat \"There was once a king\" --template examples/plain-chat.jinja --max-tokens 24", define_chat};

}  // namespace vitrine::cli
