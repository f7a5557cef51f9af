#include <csignal>

#include "cli/command.h"

int main(int argc, char** argv) {
  // Beyond a limit of the file size (ulimit -f) writing then fails with EFBIG, and is reported and cleared away like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  return vitrine::cli::run(argc, argv);
}
