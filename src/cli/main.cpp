#include "cli/command.h"

int main(int argc, char** argv) { return vitrine::cli::run(argc, argv); }
