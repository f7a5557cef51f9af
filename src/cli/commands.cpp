#include "cli/commands.h"

namespace vitrine::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"completion", "Print the completion script of a shell",
       "Load it with `source <(vitrine completion bash)`, or write it to the folder your shell reads.", "vitrine completion bash",
       define_completion},
      {"manual", "Print the manual page", "Read it with `vitrine manual | man -l -`.", "vitrine manual --format markdown",
       define_manual},
  };
  return table;
}

}  // namespace vitrine::cli
