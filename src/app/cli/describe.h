#pragma once
// The commands and their options as plain data, read back from the parser: the one source of the manual page, of
// docs/command-line.md and of the shell completions.
#include <string>
#include <vector>

namespace vitrine::cli {

struct OptionText {
  std::vector<std::string> flags;  // "--top", "-h"; one name without dashes for a positional argument
  std::string value;               // "N", "FILE", "auto|f32"; empty for a switch
  std::string what;
  std::vector<std::string> words;  // the values, where only these are allowed
  bool positional;
};
struct CommandText {
  std::string name, summary, details, example, example_needs;
  std::vector<OptionText> options;
};

/// Without the groups: their commands have their full names, "tokenizer train".
std::vector<CommandText> describe_commands();

std::string manual_page();      // troff, for man(1)
std::string manual_markdown();  // docs/command-line.md

std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace vitrine::cli
