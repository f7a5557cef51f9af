#include "cli/describe.h"

#include "cli/command.h"
#include "cli/options.h"

namespace vitrine::cli {

std::vector<CommandText> describe_commands() {
  CLI::App app;
  Action unused;
  build_app(app, unused);
  std::vector<CommandText> all;
  for (const Command& command : commands()) {
    if (command.define == nullptr) continue;
    CommandText text{command.name, command.summary, command.details, command.example, command.example_needs, {}};
    for (const CLI::Option* option : find_command(app, command.name).get_options()) {
      OptionText o;
      o.positional = option->get_positional();
      if (o.positional) {
        o.flags = {option->get_name()};
      } else {
        for (const std::string& name : option->get_lnames()) o.flags.push_back("--" + name);
        for (const std::string& name : option->get_snames()) o.flags.push_back("-" + name);
      }
      if (!o.positional && option->get_items_expected_max() > 0) o.value = option->get_type_name();
      o.what = option->get_description();
      o.words = words_of(*option);
      text.options.push_back(std::move(o));
    }
    all.push_back(std::move(text));
  }
  return all;
}

}  // namespace vitrine::cli
