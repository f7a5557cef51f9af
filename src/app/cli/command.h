#pragma once
// The commands of the program: one table (commands.cpp), one file per command. --help, the manual page, the shell
// completions and docs/command-line.md are all written from this table and the options that define() declares.
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace vitrine::cli {

/// What runs a command once its options are parsed. Throws vitrine::Error.
using Action = std::function<void()>;

struct Command {
  const char* name;                 // "info", or "tokenizer train" of a group
  const char* summary;              // one line for the overview
  const char* details;              // what a reader of --help must know besides the options
  const char* example;              // command lines, one a line; the documentation test runs them
  Action (*define)(CLI::App& app);  // declares the options on `app`, which must outlive the action; null: a group
  const char* example_needs = "";   // what a machine may lack for the example: "the network"; its test is left out then
};

/// A group comes before its commands.
const std::vector<Command>& commands();

/// The commands of one purpose, as the overview lists them.
struct Purpose {
  std::string_view title;
  std::vector<std::string_view> commands;  // "tokenizer" stands for all of its group
};
/// Every command is in one of them.
const std::vector<Purpose>& purposes();

/// Builds the parser of the whole program. `chosen` receives the action of the command that was given.
void build_app(CLI::App& app, Action& chosen);

/// The parser of the command with that name.
CLI::App& find_command(CLI::App& app, const std::string& name);

/// The program: parses, runs, reports. Returns the exit code: 0 done, 1 the run failed, 2 the input is wrong.
int run(int argc, const char* const* argv);

}  // namespace vitrine::cli
