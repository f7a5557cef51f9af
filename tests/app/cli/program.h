#pragma once
// Runs the built program as a shell would: arguments in, exit code and both outputs out.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "support/scratch.h"

extern char** environ;

namespace vitrine {

struct Outcome {
  int code = -1;  // exit code; 128 + signal if it was killed
  std::string out, err;

  Json json() const { return parse_json(out, "standard output"); }
};

/// The program words[0] with the other words as arguments; the rest as for vitrine().
inline Outcome run_program(std::vector<std::string> words, const std::vector<std::string>& environment = {},
                           const std::string& stdout_path = "", const std::string& stdin_path = "/dev/null") {
  const Scratch scratch;
  std::vector<char*> argv, env;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> added = environment;
  for (std::string& word : added) env.push_back(word.data());
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view name = std::string_view(*e).substr(0, std::string_view(*e).find('=') + 1);
    if (std::none_of(added.begin(), added.end(), [&](const std::string& word) { return word.starts_with(name); }))
      env.push_back(*e);
  }
  env.push_back(nullptr);

  const std::string out = stdout_path.empty() ? scratch / "out" : stdout_path, err = scratch / "err";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, stdin_path.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  pid_t child = 0;
  const int failed = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), env.data());
  posix_spawn_file_actions_destroy(&actions);
  Outcome outcome;
  if (failed != 0) {
    ADD_FAILURE() << argv[0] << " cannot be started";
    return outcome;
  }
  int status = 0;
  waitpid(child, &status, 0);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (stdout_path.empty()) outcome.out = read_file(out);
  outcome.err = read_file(err);
  return outcome;
}

/// vitrine ARGUMENTS…, standard input empty or that file. `environment` is added to ours, or replaces what is there:
/// {"VITRINE_TARGET=reference"}.
inline Outcome vitrine(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
                       const std::string& stdout_path = "", const std::string& stdin_path = "/dev/null") {
  std::vector<std::string> words = {VITRINE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(std::move(words), environment, stdout_path, stdin_path);
}

/// The same, and no file may grow beyond so many blocks of 512 bytes.
inline Outcome vitrine_with_small_files(int blocks, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"/bin/sh", "-c", "ulimit -f " + std::to_string(blocks) + " && exec \"$0\" \"$@\"",
                                    VITRINE_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(std::move(words));
}

/// The wrong input exits with 2, writes no result, and says all of `parts`.
inline void expect_refused(const std::vector<std::string>& arguments, const std::vector<std::string>& parts) {
  const Outcome outcome = vitrine(arguments);
  std::string line;
  for (const std::string& word : arguments) line += " " + word;
  EXPECT_EQ(outcome.code, 2) << "vitrine" << line << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "") << "vitrine" << line;
  for (const std::string& part : parts) EXPECT_CONTAINS(outcome.err, part);
}

inline std::string golden_model(const std::string& name) { return std::string(VITRINE_GOLDEN) + "/models/" + name + "/model"; }
inline std::string shipped_model_folder() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }

/// A copy of a model's folder, to be damaged.
inline std::string copy_model(const Scratch& scratch, const std::string& from) {
  const std::string to = scratch / "model";
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(to))
    std::filesystem::permissions(entry.path(), std::filesystem::perms::owner_write, std::filesystem::perm_options::add);
  return to;
}

}  // namespace vitrine
