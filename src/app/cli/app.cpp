#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/command.h"
#include "cli/other_names.h"
#include "cli/output.h"
#include "cli/version.h"

namespace vitrine::cli {
namespace {

constexpr int kDone = 0, kRunFailed = 1, kInputWrong = 2;

/// The names of the command whose parser refused, as typed: "vitrine tokenize".
std::string typed_name(const CLI::App& app) {
  std::string name = app.get_name();
  const CLI::App* at = &app;
  while (true) {
    const auto chosen = at->get_subcommands();
    if (chosen.empty()) return name;
    at = chosen.front();
    name += " " + at->get_name();
  }
}

int report(const std::string& who, const std::string& message, int code) {
  std::fflush(stdout);
  log("{}: {}", who, visible_message(message));  // what it quotes comes from arguments and files
  return code;
}

/// The parser of the command that was given; that of the program if none was.
CLI::App& chosen_command(CLI::App& app) {
  CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

/// Runs the action and turns what it throws into a message and an exit code.
int run_action(const std::string& who, const Action& action) {
  try {
    action();
    finish_output();
    return kDone;
  } catch (const InputError& error) {
    return report(who, error.what(), kInputWrong);
  } catch (const Error& error) {
    return report(who, error.what(), kRunFailed);
  } catch (const std::bad_alloc&) {
    return report(who, "out of memory. A smaller context or fewer threads need less.", kRunFailed);
  } catch (const std::exception& error) {
    return report(who, error.what(), kRunFailed);
  }
}

/// The first word that no option or command takes.
std::string first_extra(const CLI::App& app, int argc, const char* const* argv) {
  const std::vector<std::string> extras = app.remaining(true);
  const auto first = std::find_if(
      argv + 1, argv + argc, [&](const char* word) { return std::find(extras.begin(), extras.end(), word) != extras.end(); });
  return first != argv + argc ? *first : extras.empty() ? "" : extras.front();
}

/// What to say about a word that no option or command takes.
std::string unexpected(CLI::App& app, const std::string& word) {
  const CLI::App& chosen = chosen_command(app);
  const auto inner = chosen.get_subcommands([](const CLI::App*) { return true; });
  std::vector<std::string> known;
  if (!inner.empty())
    for (const CLI::App* command : inner) known.push_back(command->get_name());
  else
    for (const CLI::Option* option : chosen.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string name = word.substr(0, word.find('='));
  const std::string elsewhere = inner.empty()                    ? known_elsewhere(name, known)
                                : chosen.get_parent() == nullptr ? command_elsewhere(name)
                                                                 : "",
                    meant = meant_by(name, known);
  const std::string hint = !elsewhere.empty() ? elsewhere + "." : meant.empty() ? "." : fmt::format("; did you mean {}?", meant);
  if (!inner.empty()) return fmt::format("{} is no command{}", word, hint);
  if (word.starts_with('-')) return fmt::format("{} is no option of this command{}", word, hint);
  return fmt::format("\"{}\" was not expected{}", word, elsewhere.empty() ? ": is a text with spaces not in quotes?" : hint);
}

constexpr int kOptionColumn = 34;  // where the descriptions of options begin

/// The help's lines as wide as the terminal: descriptions of options stay in their column, examples stay whole.
std::string fitted_help(const std::string& help) {
  const int columns = terminal().columns;
  if (columns == 0) return help;
  std::string text;
  bool example = false;
  for (size_t begin = 0; begin < help.size();) {
    const size_t end = std::min(help.find('\n', begin), help.size());
    const std::string line = help.substr(begin, end - begin);
    const bool described =
        line.starts_with("  ") && line.size() > kOptionColumn && line[kOptionColumn - 1] == ' ' && line[kOptionColumn] != ' ';
    text += (example ? line : wrapped(line, columns, described ? kOptionColumn : 0)) + "\n";
    example = example || line == "Example:";
    begin = end + 1;
  }
  return text;
}

bool is_of(const Command& command, std::string_view group) {
  const std::string_view name = command.name;
  return name.substr(0, name.find(' ')) == group;
}

void add_command(CLI::App& app, const Command& command, std::string_view purpose, Action& chosen) {
  const std::string name = command.name;
  const size_t space = name.find(' ');
  CLI::App& parent = space == std::string::npos ? app : find_command(app, name.substr(0, space));
  CLI::App* sub = parent.add_subcommand(space == std::string::npos ? name : name.substr(space + 1), command.summary);
  if (space == std::string::npos) sub->group(std::string(purpose));
  sub->get_formatter()->column_width(kOptionColumn);
  if (command.define == nullptr) {
    sub->require_subcommand(0, 1);
    return;
  }
  std::string example;
  for (const char* c = command.example; *c != '\0'; ++c) {
    if (example.empty() || example.back() == '\n') example += "  ";
    example += *c;
  }
  sub->footer(std::string(command.details) + (example.empty() ? "" : "\n\nExample:\n" + example));
  Action action = command.define(*sub);
  // A flag takes one value each time it is given. CLI11 would let one that may be repeated take the prompt behind it, too, and
  // read "[PAD]" or "[heads=1]" as a list with brackets around it.
  for (CLI::Option* option : sub->get_options())
    if (!option->get_positional()) option->allow_extra_args(false);
  sub->final_callback([&chosen, action] { chosen = action; });
}

}  // namespace

void build_app(CLI::App& app, Action& chosen) {
  app.name("vitrine");
  app.description("Runs transformer language models and shows every intermediate.");
  app.footer("`vitrine COMMAND --help` explains a command and gives an example.\nWithout --model the shipped model is used.");
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", [] { return version_text(); }, "Print version, commit and the kernels used on this machine");
  app.get_formatter()->column_width(kOptionColumn);
  for (const Purpose& purpose : purposes())
    for (const std::string_view name : purpose.commands)
      for (const Command& command : commands())
        if (is_of(command, name)) add_command(app, command, purpose.title, chosen);
}

CLI::App& find_command(CLI::App& app, const std::string& name) {
  CLI::App* at = &app;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find(' ', begin), name.size());
    at = at->get_subcommand(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return *at;
}

int run(int argc, const char* const* argv) {
  if (const std::string_view command = argc > 0 ? command_of_program(argv[0]) : ""; !command.empty()) {
    std::vector<const char*> words = {"vitrine", command.data()};
    words.insert(words.end(), argv + 1, argv + argc);
    return run(static_cast<int>(words.size()), words.data());
  }
  CLI::App app;
  Action chosen;
  build_app(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    CLI::App& command = chosen_command(app);
    // The parser reads -hf as -h and f.
    const auto longer = std::find_if(argv + 1, argv + argc, [](const char* word) {
      return std::string_view(word).starts_with("-h") && std::string_view(word) != "-h";
    });
    if (longer != argv + argc) {
      const std::string who = typed_name(app);
      return report(who, fmt::format("{} See `{} --help`.", unexpected(app, *longer), who), kInputWrong);
    }
    std::string before;  // the names in front of the command's
    for (const CLI::App* at = command.get_parent(); at != nullptr; at = at->get_parent())
      before = at->get_name() + (before.empty() ? "" : " ") + before;
    return run_action("vitrine", [&] { write_out(fitted_help(&command == &app ? app.help() : command.help(before))); });
  } catch (const CLI::CallForVersion& version) {
    return run_action("vitrine", [&] { print("{}\n", version.what()); });
  } catch (const CLI::ExtrasError&) {
    const std::string who = typed_name(app);
    return report(who, fmt::format("{} See `{} --help`.", unexpected(app, first_extra(app, argc, argv)), who), kInputWrong);
  } catch (const CLI::ParseError& error) {
    const std::string who = typed_name(app);
    return report(who, fmt::format("{}. See `{} --help`.", error.what(), who), kInputWrong);
  } catch (const InputError& error) {  // VITRINE_TARGET, read by --version
    return report("vitrine", error.what(), kInputWrong);
  }
  if (!chosen) {
    const CLI::App& group = chosen_command(app);
    if (&group != &app) {
      const std::string who = typed_name(app);
      const auto inner = group.get_subcommands([](const CLI::App*) { return true; });
      return report(
          who, fmt::format("name a command of this group, such as `{0} {1}`. See `{0} --help`.", who, inner.front()->get_name()),
          kInputWrong);
    }
    log("{}", app.help());
    return report("vitrine", "name a command, such as `vitrine predict \"Once upon a time\"`.", kInputWrong);
  }
  return run_action(typed_name(app), chosen);
}

}  // namespace vitrine::cli
