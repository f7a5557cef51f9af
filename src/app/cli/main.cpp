#include <csignal>

#include "base/cut_files.h"
#include "cli/command.h"

int main(int argc, char** argv) {
  // Beyond a limit of the file size (ulimit -f) writing then fails with EFBIG, and is reported and cleared away like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  vitrine::report_cut_files();
  return vitrine::cli::run(argc, argv);
}
