#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/options.h"
#include "cli/output.h"

namespace vitrine::cli {
namespace {

bool takes_path(const OptionText& option) {
  return option.value == "FILE" || option.value == "DIR" || option.value == "MODEL" || option.value == "PATH";
}

/// For single quotes of a shell.
std::string quoted(const std::string& text) {
  std::string safe = "'";
  for (const char c : text) safe += c == '\'' ? "'\\''" : std::string(1, c);
  return safe + "'";
}

/// For the [description] of zsh's _arguments.
std::string bracketed(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') safe += '\\';
    safe += c;
  }
  return safe;
}

std::string spaced(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, " ")); }

/// The words that may stand first, and for those that are groups the words that may follow.
struct FirstWord {
  std::string name, summary;
  std::vector<std::string> inner;  // empty: a command
};
std::vector<FirstWord> first_words() {
  std::vector<FirstWord> words;
  for (const Command& command : commands()) {
    const std::string name = command.name;
    const size_t space = name.find(' ');
    if (space == std::string::npos)
      words.push_back({name, command.summary, {}});
    else
      words.back().inner.push_back(name.substr(space + 1));  // a group comes before its commands
  }
  return words;
}

Action define_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  add_choice(app, "SHELL", *shell, "bash|zsh|fish", "The shell: bash, zsh or fish")->required();
  return [shell] { write_out(*shell == "bash" ? bash_completion() : *shell == "zsh" ? zsh_completion() : fish_completion()); };
}

}  // namespace

std::string bash_completion() {
  std::string names, groups, cases;
  for (const FirstWord& word : first_words()) {
    names += (names.empty() ? "" : " ") + word.name;
    if (!word.inner.empty())
      groups += fmt::format(
          "    {}) if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W \"{} --help\" -- \"$cur\")); return; fi\n"
          "      command+=\" ${{COMP_WORDS[2]}}\" ;;\n",
          word.name, spaced(word.inner));
  }
  for (const CommandText& command : describe_commands()) {
    std::string flags, values;
    for (const OptionText& option : command.options) {
      if (option.positional) {
        if (!option.words.empty()) flags += " " + spaced(option.words);
        continue;
      }
      for (const std::string& flag : option.flags) flags += " " + flag;
      if (option.value.empty()) continue;
      const std::string reply = takes_path(option) ? "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$cur\"))"
                                : option.words.empty()
                                    ? "COMPREPLY=()"
                                    : fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$cur\"))", spaced(option.words));
      values += fmt::format("        {}) {}; return ;;\n", fmt::join(option.flags, "|"), reply);
    }
    cases += fmt::format("    \"{}\")\n      case \"$prev\" in\n{}      esac\n      words=\"{}\" ;;\n", command.name, values,
                         flags.empty() ? "" : flags.substr(1));
  }
  return fmt::format(
      "# bash completion for vitrine, written by `vitrine completion bash`\n"
      "_vitrine() {{\n"
      "  local cur=\"${{COMP_WORDS[COMP_CWORD]}}\" prev=\"${{COMP_WORDS[COMP_CWORD-1]}}\" words\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"{} --help --version\" -- \"$cur\"))\n"
      "    return\n"
      "  fi\n"
      "  local command=\"${{COMP_WORDS[1]}}\"\n"
      "  case \"$command\" in\n{}  esac\n"
      "  case \"$command\" in\n{}"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "}}\n"
      "complete -o default -F _vitrine vitrine\n",
      names, groups, cases);
}

std::string zsh_completion() {
  std::string names, groups, cases;
  for (const FirstWord& word : first_words()) {
    names += fmt::format("    {}\n", quoted(word.name + ":" + word.summary));
    if (!word.inner.empty())
      groups += fmt::format(
          "  if [[ $command == {} ]]; then\n    if (( CURRENT == 2 )); then\n      compadd {}\n      return\n    fi\n"
          "    command+=\" $words[2]\"\n    shift words\n    (( CURRENT-- ))\n  fi\n",
          word.name, spaced(word.inner));
  }
  for (const CommandText& command : describe_commands()) {
    cases += fmt::format("    \"{}\")\n      _arguments", command.name);
    for (const OptionText& option : command.options) {
      const std::string values = !option.words.empty() ? "(" + spaced(option.words) + ")" : takes_path(option) ? "_files" : "";
      if (option.positional) {
        cases += " \\\n        " + quoted(fmt::format("::{}:{}", bracketed(option.flags.front()), values));
        continue;
      }
      for (const std::string& flag : option.flags)
        cases += " \\\n        " + quoted(flag + "[" + bracketed(option.what) + "]" +
                                          (option.value.empty() ? "" : ":" + bracketed(option.value) + ":" + values));
    }
    cases += " ;;\n";
  }
  return fmt::format(
      "#compdef vitrine\n# zsh completion for vitrine, written by `vitrine completion zsh`\n"
      "_vitrine() {{\n"
      "  local -a commands\n  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n{}"
      "  case $command in\n{}  esac\n"
      "}}\n"
      "_vitrine \"$@\"\n",
      names, groups, cases);
}

std::string fish_completion() {
  std::string text = "# fish completion for vitrine, written by `vitrine completion fish`\n";
  text += "complete -c vitrine -n __fish_use_subcommand -l version -d 'Print version, commit and kernels'\n";
  const auto words = first_words();
  std::string groups;  // names of groups: after one of them no word is a command of its own
  for (const FirstWord& word : words) {
    text += fmt::format("complete -c vitrine -f -n __fish_use_subcommand -a {} -d {}\n", word.name, quoted(word.summary));
    if (word.inner.empty()) continue;
    groups += " " + word.name;
    text += fmt::format(
        "complete -c vitrine -f -n '__fish_seen_subcommand_from {0}; and not __fish_seen_subcommand_from {1}' -a '{1}'\n",
        word.name, spaced(word.inner));
  }
  for (const CommandText& command : describe_commands()) {
    const size_t space = command.name.find(' ');
    const std::string only =
        space == std::string::npos
            ? fmt::format("complete -c vitrine -n '__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from{}'",
                          command.name, groups)
            : fmt::format("complete -c vitrine -n '__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}'",
                          command.name.substr(0, space), command.name.substr(space + 1));
    for (const OptionText& option : command.options) {
      if (option.positional) {
        if (!option.words.empty()) text += fmt::format("{} -f -a {}\n", only, quoted(spaced(option.words)));
        continue;
      }
      text += only;
      for (const std::string& flag : option.flags)
        text += flag.rfind("--", 0) == 0 ? " -l " + flag.substr(2) : " -s " + flag.substr(1);
      if (!option.words.empty()) {
        text += " -x -a " + quoted(spaced(option.words));
      } else if (takes_path(option)) {
        text += " -r -F";
      } else if (!option.value.empty()) {
        text += " -x";
      }
      text += " -d " + quoted(option.what) + "\n";
    }
  }
  return text;
}

const Command completion_command = {
    "completion", "Print the completion script of a shell",
    "Load it with `source <(vitrine completion bash)`, or write it to your shell's completion folder.", "vitrine completion bash",
    define_completion};

}  // namespace vitrine::cli
