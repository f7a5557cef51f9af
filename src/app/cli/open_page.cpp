#include "cli/open_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"

extern char** environ;

namespace vitrine::cli {

void open_page(const std::string& path) {
#ifdef __APPLE__
  const char* usual = "open";
#else
  const char* usual = "xdg-open";
#endif
  const char* chosen = std::getenv("BROWSER");
  const bool named = chosen != nullptr && *chosen != '\0';
  const std::string program = named ? chosen : usual;
  // Begins with a slash, so that no program takes it for an option.
  std::string page = std::filesystem::absolute(path).string(), name = program;
  char* arguments[] = {name.data(), page.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  // What a browser says is not ours, and Ctrl-C in the terminal does not close it.
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, program.c_str(), &files, &attributes, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    throw RunError(
        fmt::format("{} is written, but {} cannot be started: {}. Open the file yourself, or name a browser in the "
                    "environment variable BROWSER.",
                    path, program, std::strerror(failed)));
}

}  // namespace vitrine::cli
